//! The io_uring backend: one ring, one system call for a batch.
//!
//! - Set up for one thread that reaps its own completions: `SINGLE_ISSUER`, `DEFER_TASKRUN`,
//!   `COOP_TASKRUN`, `NO_SQARRAY`; what this kernel does not know is dropped, one by one.
//! - Devices are registered files, pools are registered buffers, where the kernel allows it.
//! - Discards and write-zeroes, and flushes of an `IOPOLL` ring (where `FSYNC` is `EINVAL`), are
//!   blocking calls that [`SyncPool`] runs; its threads start with the first of these.
//! - No more operations are in flight than the completion queue holds, so none is ever dropped.

mod setup;
mod submission;

use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{EnterFlags, IoUring, opcode, types};
use rustix::event::{PollFd, PollFlags};

use crate::buf::BufPool;
use crate::device::Device;
use crate::error::Result;
use crate::op::OpKind;
use crate::queue::eventfd::EventWake;
use crate::queue::sync::SyncPool;
use crate::queue::{Memory, Queue, QueueDescription, QueueOptions, RawCompletion, RawOp, Wake};
use crate::sys::clock::monotonic_ns;

use self::submission::{Entry, SubmissionRing};

/// How often a broken ring is asked again for what it has, when it is dropped.
const DRAIN_ATTEMPTS: u32 = 100_000;

/// Threads for the operations that the ring does not run.
const POOL_THREADS: usize = 2;

/// `RWF_DSYNC` and `POLLIN`, as an entry holds them.
const RWF_DSYNC: u32 = libc::RWF_DSYNC.cast_unsigned();
const POLL_IN: u32 = libc::POLLIN.cast_unsigned() as u32;

/// The token of the poll on the wake-up descriptor; no operation has it (see [`RawOp::token`]).
const WAKE_TOKEN: u64 = u64::MAX;

/// A ring over a list of devices.
pub(crate) struct UringQueue {
    // Before the ring: its mappings go first.
    submission: SubmissionRing,
    ring: IoUring,
    targets: Vec<Target>,
    registered: Vec<(usize, usize)>,
    description: QueueDescription,
    capacity: usize,
    /// Operations that the ring has: submitted to it and not yet reaped.
    in_ring: usize,
    /// Entries pushed since the last system call.
    pushed: u32,
    is_iopoll: bool,
    is_sqpoll: bool,
    wake: Arc<EventWake>,
    /// Whether anybody can wake this queue, and whether the ring watches for it now.
    wake_is_used: bool,
    wake_is_armed: bool,
    pool: Option<SyncPool>,
    /// Completions of operations that could not be started.
    refused: Vec<RawCompletion>,
    // Keeps the descriptors open that the ring uses.
    devices: Vec<Arc<dyn Device>>,
    /// Keeps the arenas mapped: the kernel knows registered memory by its pages and a lane by its
    /// address, so nothing else may come to lie at that address.
    _pools: Vec<BufPool>,
}

/// How the ring names a device: a registered file's number with `FIXED_FILE`, or a descriptor.
#[derive(Debug, Clone, Copy)]
struct Target {
    file: i32,
    flags: u8,
}

impl UringQueue {
    pub(crate) fn open(
        devices: &[Arc<dyn Device>],
        options: &QueueOptions,
        reasons: Vec<String>,
    ) -> Result<Self> {
        setup::open(devices, options, reasons)
    }

    /// As [`Queue::submit`], for a caller that knows the ring by its type. Inlined, so that the
    /// operation of `kind` that `make` makes goes from the caller's registers into the entry.
    ///
    /// # Safety
    ///
    /// As [`Queue::submit`].
    #[inline(always)]
    pub(super) unsafe fn start(&mut self, kind: OpKind, make: impl FnOnce() -> RawOp) {
        if self.runs(kind) {
            assert!(self.in_flight() < self.capacity, "the queue is full");
            let op = make();
            let target = self.targets[op.device as usize];
            // There is room: the queue has more entries than operations may be in flight.
            fill(self.submission.push(), target, &Op::of(&op), op.token);
            self.pushed += 1;
            self.in_ring += 1;
        } else {
            // SAFETY: passed on from this function's own contract.
            unsafe { self.hand_to_pool(&make()) };
        }
    }

    /// Gives the pool what the ring cannot run.
    ///
    /// # Safety
    ///
    /// As [`Queue::submit`].
    #[cold]
    unsafe fn hand_to_pool(&mut self, op: &RawOp) {
        assert!(self.in_flight() < self.capacity, "the queue is full");
        if self.pool.is_none() {
            match SyncPool::start(&self.devices, POOL_THREADS, self.wake.for_done()) {
                Ok(pool) => {
                    self.wake_is_used = true;
                    self.pool = Some(pool);
                }
                Err(error) => {
                    tracing::warn!(%error, "no threads for what io_uring does not run");
                    let (token, result) = (op.token, -libc::ENOMEM);
                    self.refused.push(RawCompletion { token, result });
                    return;
                }
            }
        }
        let pool = self.pool.as_ref().expect("it was started just now");
        // SAFETY: passed on from this function's own contract.
        unsafe { pool.submit(op) };
    }

    /// Whether the ring can run an operation itself.
    #[inline]
    fn runs(&self, kind: OpKind) -> bool {
        match kind {
            OpKind::Read | OpKind::Write => true,
            OpKind::Flush => !self.is_iopoll,
            OpKind::Discard | OpKind::WriteZeroes => false,
        }
    }

    #[inline]
    fn in_flight(&self) -> usize {
        self.in_ring + self.pool.as_ref().map_or(0, SyncPool::in_flight)
    }

    /// Has the ring watch the wake-up descriptor, if anybody can wake this queue.
    fn arm_wake(&mut self) {
        // An IOPOLL ring takes only operations that can be polled for. And a submission queue that
        // is full of operations has no room for one more entry: the next visit arms it.
        if self.wake_is_used && !self.wake_is_armed && !self.is_iopoll && !self.submission.is_full()
        {
            let poll = Op {
                code: opcode::PollAdd::CODE,
                op_flags: POLL_IN,
                ..Op::default()
            };
            let target = Target {
                file: self.wake.descriptor().as_raw_fd(),
                flags: 0,
            };
            fill(self.submission.push(), target, &poll, WAKE_TOKEN);
            self.pushed += 1;
            self.wake_is_armed = true;
        }
    }

    /// Submits what was pushed, waits for `want` entries of the completion queue, and runs what
    /// the kernel has put off until now.
    fn enter(&mut self, want: usize) -> io::Result<()> {
        self.submission.publish();
        loop {
            let result = if self.is_sqpoll {
                // The crate knows when the kernel's thread must be woken.
                self.ring
                    .submit_and_wait(want)
                    .map(|_| self.pushed as usize)
            } else {
                let want = u32::try_from(want).unwrap_or(u32::MAX);
                let flags = EnterFlags::GETEVENTS.bits();
                // SAFETY: `pushed` entries lie in the submission queue, each valid by the
                // contract of `Queue::submit`, or the poll of a descriptor.
                unsafe {
                    self.ring
                        .submitter()
                        .enter::<libc::sigset_t>(self.pushed, want, flags, None)
                }
            };
            match result {
                Ok(submitted) => {
                    self.pushed -= u32::try_from(submitted).unwrap_or(self.pushed);
                    if self.pushed == 0 {
                        return Ok(());
                    }
                    // The kernel stopped early at an entry it refused: its completion says why.
                }
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                // Out of memory for requests for the moment, or completions to be reaped first:
                // the entries stay and go with the next call.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Appends what has completed. Returns whether somebody asked the wait to return.
    #[inline]
    fn reap(&mut self, completions: &mut Vec<RawCompletion>) -> bool {
        if !self.wake_is_used {
            // Every entry is an operation's.
            let entries = self.ring.completion();
            self.in_ring -= entries.len();
            completions.extend(entries.map(|entry| RawCompletion {
                token: entry.user_data(),
                result: entry.result(),
            }));
            completions.append(&mut self.refused);
            return false;
        }
        let before = completions.len();
        let mut rang = false;
        for entry in self.ring.completion() {
            if entry.user_data() == WAKE_TOKEN {
                rang = true;
            } else {
                completions.push(RawCompletion {
                    token: entry.user_data(),
                    result: entry.result(),
                });
            }
        }
        self.in_ring -= completions.len() - before;
        completions.append(&mut self.refused);
        if rang {
            self.wake_is_armed = false;
        }
        if rang || self.is_iopoll {
            // Cleared first, looked at afterwards: what is signalled from here on rings again.
            self.wake.clear();
        }
        if let Some(pool) = &self.pool {
            pool.take(completions);
        }
        self.wake.take_asked()
    }

    /// Sleeps until woken. For an `IOPOLL` ring, which cannot watch the descriptor itself.
    fn sleep(&self) -> io::Result<()> {
        let descriptor = self.wake.descriptor();
        let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
        match rustix::event::poll(&mut descriptors, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// What an entry says beside its target and its token.
#[derive(Debug, Default)]
struct Op {
    code: u8,
    offset: u64,
    address: u64,
    length: u32,
    op_flags: u32,
    /// The number of the registered buffer.
    buffer: u16,
}

impl Op {
    /// The entry of a read, a write or a flush.
    #[inline(always)]
    fn of(op: &RawOp) -> Self {
        if op.kind == OpKind::Flush {
            return Self {
                code: opcode::Fsync::CODE,
                op_flags: types::FsyncFlags::DATASYNC.bits(),
                ..Self::default()
            };
        }
        let is_read = match op.kind {
            OpKind::Read => true,
            OpKind::Write => false,
            OpKind::Flush | OpKind::Discard | OpKind::WriteZeroes => {
                unreachable!("the pool runs these")
            }
        };
        // At most RAW_BYTES_MAX, by the trait's contract.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a raw operation is below 2 GiB"
        )]
        let bytes = op.length as u32;
        let (read, write, address, length, buffer) = match op.memory {
            Memory::Flat {
                pointer,
                registered: Some(number),
            } => (
                opcode::ReadFixed::CODE,
                opcode::WriteFixed::CODE,
                pointer.expose_provenance(),
                bytes,
                number,
            ),
            Memory::Flat {
                pointer,
                registered: None,
            } => (
                opcode::Read::CODE,
                opcode::Write::CODE,
                pointer.expose_provenance(),
                bytes,
                0,
            ),
            Memory::Vector { iovecs, count } => (
                opcode::Readv::CODE,
                opcode::Writev::CODE,
                iovecs.expose_provenance(),
                count,
                0,
            ),
            Memory::None => unreachable!("a read or write comes with memory"),
        };
        Self {
            code: if is_read { read } else { write },
            offset: op.offset,
            address: address as u64,
            length,
            op_flags: if op.fua { RWF_DSYNC } else { 0 },
            buffer,
        }
    }
}

/// Writes an entry: every field that any entry uses.
#[inline(always)]
fn fill(entry: &mut Entry, target: Target, op: &Op, token: u64) {
    entry.opcode = op.code;
    entry.flags = target.flags;
    entry.fd = target.file;
    entry.offset = op.offset;
    entry.address = op.address;
    entry.length = op.length;
    entry.op_flags = op.op_flags;
    entry.user_data = token;
    entry.buffer = op.buffer;
}

// SAFETY: the kernel touches an operation's memory only until it posts the completion entry, which
// `reap` turns into exactly one completion; `SyncPool` promises the same for its part; and `drop`
// waits for both.
unsafe impl Queue for UringQueue {
    fn description(&self) -> &QueueDescription {
        &self.description
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    unsafe fn submit(&mut self, op: &RawOp) {
        // SAFETY: passed on from this function's own contract.
        unsafe { self.start(op.kind, || *op) };
    }

    fn poll(&mut self, completions: &mut Vec<RawCompletion>) -> io::Result<()> {
        self.arm_wake();
        let outcome = if self.in_ring > 0 || self.pushed > 0 {
            self.enter(0)
        } else {
            Ok(())
        };
        self.reap(completions);
        outcome
    }

    fn wait(&mut self, min: usize, completions: &mut Vec<RawCompletion>) -> io::Result<()> {
        let enough = completions.len() + min;
        loop {
            self.arm_wake();
            if self.in_ring == 0 && self.is_iopoll {
                // Nothing to poll a device for: what is missing comes from the pool or a waker.
                if self.reap(completions) || completions.len() >= enough {
                    return Ok(());
                }
                self.sleep()?;
                continue;
            }
            if !self.refused.is_empty() {
                self.reap(completions);
            }
            let missing = enough.saturating_sub(completions.len());
            // Whoever can be woken looks after every entry: one of them may be the wake-up.
            let want = if self.wake_is_used {
                missing.min(1)
            } else {
                missing.min(self.in_ring)
            };
            if want == 0 && self.in_ring == 0 {
                // Nothing is in flight, and nobody is left who could wake us.
                self.reap(completions);
                return Ok(());
            }
            self.enter(want)?;
            if self.reap(completions) || completions.len() >= enough {
                return Ok(());
            }
        }
    }

    fn waker(&mut self) -> Arc<dyn Wake> {
        self.wake_is_used = true;
        Arc::clone(&self.wake) as _
    }

    fn registered_buffers(&self) -> &[(usize, usize)] {
        &self.registered
    }

    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }
}

impl Drop for UringQueue {
    /// Waits for what is in the ring: closing it does not, and the kernel would go on using the
    /// memory of operations whose owners believe it free. The pool waits in its own drop.
    fn drop(&mut self) {
        let mut completions = Vec::new();
        for _ in 0..DRAIN_ATTEMPTS {
            if self.in_ring == 0 {
                // Closing the ring lets go of its files some time later; a device that is opened
                // anew at once shall not find itself in use. Refused where none are registered.
                let _ = self.ring.submitter().unregister_files();
                return;
            }
            // Starts also what was only pushed: it is counted in `in_ring`.
            if let Err(error) = self.enter(1) {
                tracing::warn!(%error, in_ring = self.in_ring, "a ring is being dropped");
            }
            self.reap(&mut completions);
            completions.clear();
        }
        tracing::error!(
            in_ring = self.in_ring,
            "memory lent to the kernel cannot be had back"
        );
        std::process::abort();
    }
}

impl fmt::Debug for UringQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringQueue")
            .field("description", &self.description)
            .field("capacity", &self.capacity)
            .field("in_ring", &self.in_ring)
            .finish_non_exhaustive()
    }
}
