//! [`Lane`]: one thread's way to a list of devices. It turns requests into raw operations and
//! their raw results into exactly one completion each.
//!
//! ```text
//! Request + Segments --submit--> slots: the request (owns the buffers), and
//!                                one piece for each run of contiguous segments
//!                                  |
//!                                  +--RawOp--> Queue --RawCompletion--> piece: more to do?
//!                                                                         |
//! Completion (buffers given back) <--poll, wait-- request <--- last piece +
//! ```
//!
//! Invariants:
//! - The buffers of a request lie in its slot from before the first raw operation is submitted
//!   until after the last one has completed, whatever fails in between, and dropping a lane waits
//!   for what is in flight. So the kernel never uses memory that a caller can free or change.
//! - A piece has at most one raw operation in flight. A short result, and a piece longer than the
//!   kernel takes at once, are continued where they stopped, at a block's border, and where the
//!   device takes the address too.
//! - `EAGAIN`, `EINTR` and `ECANCELED` are tried again, a bounded number of times in a row, with
//!   pauses after the first few. A flush is not: what it says is believed.
//! - No lock, no allocation and no wake-up for an operation once the slots have grown to the depth
//!   that is used.
//! - A lane stays on the thread that made it: it is not `Send`, as the kernel wants of a ring with
//!   `IORING_SETUP_SINGLE_ISSUER`.

mod begin;
mod check;
mod end;
mod patience;
mod piece;
mod scope;
mod slots;

pub use self::scope::{LaneScope, ScopeCompletion};

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::op::{Completion, Request, Segment};
use crate::platform::Platform;
use crate::poison::Poison;
use crate::queue::{AnyQueue, QueueDescription, QueueOptions, RawCompletion, Wake};
use crate::stats::LaneStats;

use self::check::Limits;
use self::patience::Postponed;
use self::piece::Gather;
use self::slots::Slots;

/// What a lane is asked to be.
#[derive(Debug, Clone)]
pub struct LaneOptions {
    /// The queue below it.
    pub queue: QueueOptions,
    /// The latch that a failed write sets, shared by all lanes of a volume. Default: none, so that
    /// every failure is told but later writes are tried.
    pub poison: Option<Arc<Poison>>,
    /// Whether to keep [`LaneStats`]. Default: yes; it costs about 10 ns for a request.
    pub statistics: bool,
}

impl Default for LaneOptions {
    fn default() -> Self {
        Self {
            queue: QueueOptions::default(),
            poison: None,
            statistics: true,
        }
    }
}

/// One thread's way to a list of devices: push requests, poll completions. It stays on the thread
/// that made it.
///
/// Buffers are given back with their completion. Dropping a lane waits for what is in flight.
pub struct Lane {
    // Dropped after `drop` has waited for every operation, so the slots below may go in any order.
    queue: AnyQueue,
    slots: Slots,
    /// Requests in the slots.
    requests: usize,
    /// Pieces that wait for room in the queue.
    backlog: VecDeque<u32>,
    /// Pieces that wait for their next attempt.
    postponed: Vec<Postponed>,
    /// Completions for the next poll: of requests that ended without the queue (refused or empty
    /// ones), and those that came in while `call` waited for another.
    ready: VecDeque<Completion>,
    /// The completion that `call` waits for.
    called: Option<Completion>,
    /// Raw operations that the queue has, and the most that it takes.
    queued: usize,
    capacity: usize,
    /// Runs of memory that are registered with the kernel: first address and length.
    registered: Vec<(usize, usize)>,
    /// Raw completions of the poll in progress; kept for its memory.
    raw: Vec<RawCompletion>,
    /// How many of them were looked at.
    raw_taken: usize,
    /// Where each buffer of the request at hand begins in the run of all of them.
    starts: Vec<u64>,
    /// Iovec lists that are not in use; kept for their memory.
    #[expect(
        clippy::vec_box,
        reason = "a piece holds the box: it keeps the piece small"
    )]
    spare_gathers: Vec<Box<Gather>>,
    devices: Vec<Arc<dyn Device>>,
    limits: Vec<Limits>,
    poison: Option<Arc<Poison>>,
    stats: Option<LaneStats>,
    /// The clock as last read, and whether it is to be read again before it stamps a request. Without
    /// statistics nobody asks for stamps.
    now_ns: u64,
    now_is_old: bool,
    /// A ring belongs to the thread that made it.
    not_send: PhantomData<*mut ()>,
}

impl Lane {
    /// A lane over `devices`, with a queue made by `platform`.
    ///
    /// # Errors
    ///
    /// No devices; a device of another platform; a backend that is not to be had.
    pub fn open(
        platform: &dyn Platform,
        devices: &[Arc<dyn Device>],
        options: &LaneOptions,
    ) -> Result<Self> {
        if devices.is_empty() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a lane needs at least one device",
            ));
        }
        let queue = AnyQueue::from(platform.queue(devices, &options.queue)?);
        let now_ns = queue.now_ns();
        let capacity = queue.capacity();
        Ok(Self {
            slots: Slots::with_capacity(capacity),
            requests: 0,
            backlog: VecDeque::new(),
            postponed: Vec::new(),
            ready: VecDeque::new(),
            called: None,
            queued: 0,
            capacity,
            registered: queue.registered_buffers().to_vec(),
            raw: Vec::with_capacity(capacity + 1),
            raw_taken: 0,
            starts: Vec::new(),
            spare_gathers: Vec::new(),
            limits: devices.iter().map(|device| Limits::of(&**device)).collect(),
            devices: devices.to_vec(),
            poison: options.poison.clone(),
            stats: options.statistics.then(|| LaneStats::new(devices.len())),
            now_ns,
            now_is_old: options.statistics,
            not_send: PhantomData,
            queue,
        })
    }

    /// Queues a request whose bytes lie where `segments` say. It starts at the next
    /// [`poll`](Self::poll) or [`wait`](Self::wait), or earlier.
    ///
    /// Neighbouring segments that are contiguous on one device become one operation. A request
    /// that makes no sense (misaligned, beyond the end, lengths that do not add up, a shared
    /// buffer to read into) is not started: its completion says why.
    ///
    /// The segments cover the buffers once: that their lengths add up is checked, that they do not
    /// overlap is the caller's to see to.
    ///
    /// More requests than the queue's [`depth`](Self::depth) wait inside the lane.
    #[inline(always)]
    pub fn submit(&mut self, request: Request, segments: &[Segment]) {
        // By value, and as a list of its own on the rare way: a segment whose address is taken could
        // not stay in registers on the common one.
        if let &[segment] = segments {
            match self.check_whole(request.kind, &request.buffers, &segment) {
                Some(pointer) => {
                    self.start_whole(request, &segment, pointer);
                }
                None => self.submit_in_full(request, &[segment]),
            }
        } else {
            self.submit_in_full(request, segments);
        }
    }

    /// Ends a request at once with `error`, which a layer above found; its completion comes with
    /// the next poll.
    pub fn refuse(&mut self, request: Request, error: Error) {
        self.ready.push_back(request.end(Err(error)));
    }

    /// Starts what is queued and appends the completions that are there, never blocking. Returns
    /// how many were appended.
    ///
    /// # Errors
    ///
    /// The kernel refused the queue itself. Requests stay in flight, and their buffers are kept.
    pub fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<usize> {
        self.advance(0, completions)
    }

    /// Starts what is queued and blocks until at least `min` completions were appended (or all
    /// there can be, if fewer are in flight). Returns how many were appended.
    ///
    /// # Errors
    ///
    /// As [`poll`](Self::poll).
    pub fn wait(&mut self, min: usize, completions: &mut Vec<Completion>) -> Result<usize> {
        self.advance(min, completions)
    }

    fn advance(&mut self, min: usize, completions: &mut Vec<Completion>) -> Result<usize> {
        let before = completions.len();
        completions.extend(self.ready.drain(..));
        loop {
            self.refill();
            if self.queued == 0 {
                let has_enough = completions.len() - before >= min;
                if has_enough || !self.sleep_until_due() {
                    break;
                }
                continue;
            }
            let missing = min
                .saturating_sub(completions.len() - before)
                .min(self.queued);
            self.reap(missing, completions)?;
            // A poll is done after one look, a wait when it has enough.
            if completions.len() - before >= min {
                break;
            }
        }
        // Continued and postponed pieces go before what the caller submits next.
        self.refill();
        Ok(completions.len() - before)
    }

    /// Blocks until nothing is in flight.
    ///
    /// # Errors
    ///
    /// As [`poll`](Self::poll).
    pub fn drain(&mut self, completions: &mut Vec<Completion>) -> Result<()> {
        while self.in_flight() > 0 {
            self.wait(self.in_flight(), completions)?;
        }
        Ok(())
    }

    /// Moves pieces from the backlog to the queue while there is room.
    #[inline]
    fn refill(&mut self) {
        if !self.postponed.is_empty() {
            self.resume();
        }
        while self.queued < self.capacity {
            let Some(piece) = self.backlog.pop_front() else {
                break;
            };
            self.hand_over_next(piece);
        }
    }

    /// As [`refill`](Self::refill), for who blocks: with nothing in the queue to wait for, waits for
    /// what was postponed.
    #[inline]
    fn refill_or_sleep(&mut self) {
        self.refill();
        if self.queued == 0 && self.sleep_until_due() {
            self.refill();
        }
    }

    /// One visit to the queue.
    fn reap(&mut self, min: usize, completions: &mut Vec<Completion>) -> Result<()> {
        // A visit that ended early (a panic of a foreign device) may have left some.
        let left = self.raw.len() - self.raw_taken;
        if left == 0 {
            self.raw.clear();
            self.raw_taken = 0;
        }
        let visit = if min > left {
            self.queue.wait(min - left, &mut self.raw)
        } else {
            self.queue.poll(&mut self.raw)
        };
        if self.stats.is_some() && self.raw_taken < self.raw.len() {
            self.now_ns = self.queue.now_ns();
        }
        completions.reserve(self.raw.len() - self.raw_taken);
        while let Some(&completion) = self.raw.get(self.raw_taken) {
            self.raw_taken += 1;
            self.complete(completion, completions);
        }
        self.now_is_old = self.stats.is_some();
        visit.map_err(|cause| Error::from_io(cause, "the kernel refused the queue"))
    }

    /// Submits one request and blocks until it completes. Completions of other requests that come
    /// in meanwhile are kept for the next poll.
    ///
    /// # Errors
    ///
    /// The kernel refused the queue itself: the request, buffers and all, stays with the lane.
    pub fn call(&mut self, request: Request, segments: &[Segment]) -> Result<Completion> {
        let number = match self.start(request, segments) {
            Ok(number) => number,
            Err(completion) => return Ok(*completion),
        };
        let slot = &mut self.slots[number];
        slot.request.is_called = true;
        slot.piece.is_plain = false;
        let mut others = Vec::new();
        let mut visit = Ok(());
        while visit.is_ok() && self.called.is_none() {
            self.refill_or_sleep();
            visit = self.reap(1, &mut others);
        }
        self.ready.extend(others);
        match (self.called.take(), visit) {
            (Some(completion), _) => Ok(completion),
            (None, Err(error)) => {
                // Nobody waits for it any more: a later poll gives it out.
                self.slots[number].request.is_called = false;
                Err(error)
            }
            (None, Ok(())) => unreachable!("the loop ends with a completion or an error"),
        }
    }

    /// Reads into memory of the caller, who waits.
    ///
    /// # Errors
    ///
    /// As a read's completion.
    pub fn read_blocking(&mut self, memory: &mut [u8], segments: &[Segment]) -> Result<()> {
        self.scope(|scope| {
            scope.read(memory, segments, 0);
            only_end(scope)
        })
    }

    /// Writes from memory of the caller, who waits; durable when it returns if `fua` is set.
    ///
    /// # Errors
    ///
    /// As a write's completion.
    pub fn write_blocking(&mut self, memory: &[u8], fua: bool, segments: &[Segment]) -> Result<()> {
        self.scope(|scope| {
            scope.write(memory, fua, segments, 0);
            only_end(scope)
        })
    }

    /// Requests that have not completed, and completions not yet polled.
    pub fn in_flight(&self) -> usize {
        self.requests + self.ready.len()
    }

    /// The most raw operations that are in flight at once.
    pub fn depth(&self) -> usize {
        self.capacity
    }

    /// The devices, in the order by which segments name them.
    pub fn devices(&self) -> &[Arc<dyn Device>] {
        &self.devices
    }

    /// What the queue below is, and why it was chosen.
    pub fn description(&self) -> &QueueDescription {
        self.queue.description()
    }

    /// What this lane did. Empty when statistics are off.
    pub fn stats(&self) -> LaneStats {
        self.stats.clone().unwrap_or_default()
    }

    /// What this lane did since this was last called.
    pub fn take_stats(&mut self) -> LaneStats {
        let empty = LaneStats::new(self.devices.len());
        self.stats
            .as_mut()
            .map_or_else(LaneStats::default, |stats| std::mem::replace(stats, empty))
    }

    /// Nanoseconds on the clock that latencies are measured by. The zero point is arbitrary.
    pub fn now_ns(&self) -> u64 {
        self.queue.now_ns()
    }

    /// A handle by which another thread makes a blocked [`wait_or_wake`](Self::wait_or_wake)
    /// return.
    pub(crate) fn waker(&mut self) -> Arc<dyn Wake> {
        self.queue.waker()
    }

    /// As [`wait`](Self::wait) for one completion, but also returns when woken, and waits for a
    /// wake-up when nothing is in flight.
    pub(crate) fn wait_or_wake(&mut self, completions: &mut Vec<Completion>) -> Result<()> {
        completions.extend(self.ready.drain(..));
        let outcome = if completions.is_empty() {
            self.refill_or_sleep();
            self.reap(1, completions)
        } else {
            self.refill();
            self.reap(0, completions)
        };
        self.refill();
        outcome
    }
}

/// Waits for the one operation of a scope.
fn only_end(scope: &mut LaneScope<'_, '_>) -> Result<()> {
    let mut ends = Vec::with_capacity(1);
    scope.wait(1, &mut ends)?;
    ends.into_iter().try_for_each(|end| end.result.map(drop))
}

/// How often a broken queue is asked again for the operations it has.
const DRAIN_ATTEMPTS: u32 = 1000;

impl Drop for Lane {
    fn drop(&mut self) {
        let mut completions = Vec::new();
        // No operation of these is with the kernel.
        self.postponed.clear();
        self.backlog.clear();
        for _ in 0..DRAIN_ATTEMPTS {
            if self.queued == 0 {
                return;
            }
            if let Err(error) = self.reap(self.queued, &mut completions) {
                tracing::warn!(%error, in_flight = self.queued, "a lane is being dropped");
            }
            self.backlog.clear();
            completions.clear();
        }
        // The queue's own drop still waits for the kernel; should that fail too, the memory must
        // not be freed. Losing it is the only safe thing left.
        if self.queued > 0 {
            tracing::error!(
                in_flight = self.queued,
                "memory lent to the kernel is given up"
            );
            #[expect(clippy::mem_forget, reason = "the kernel may still use this memory")]
            std::mem::forget(std::mem::replace(&mut self.slots, Slots::with_capacity(0)));
        }
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("devices", &self.devices.len())
            .field("in_flight", &self.in_flight())
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}
