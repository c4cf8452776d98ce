//! [`LaneScope`]: operations on borrowed memory, many at once.
//!
//! As with `std::thread::scope`, what is borrowed outlives the scope, and the scope does not end
//! before every operation in it has completed, also when the work panics. So memory of the caller
//! goes to the device and back without a copy and without being handed over.

use std::fmt;
use std::marker::PhantomData;

use crate::buf::{Borrowed, Buffer, ScopeMemory};
use crate::error::{Error, Result};
use crate::lane::{DRAIN_ATTEMPTS, Lane};
use crate::op::{Completion, OpKind, Request, Segment};

/// The end of an operation on borrowed memory: as a [`Completion`], with the borrow given back.
#[derive(Debug)]
pub struct ScopeCompletion<'env> {
    /// The operation's token.
    pub token: u64,
    /// The operation's kind.
    pub kind: OpKind,
    /// How many bytes were transferred, always the full length; or the first error of any part.
    pub result: Result<u64>,
    /// The memory, which is the caller's again.
    pub memory: ScopeMemory<'env>,
}

/// A time during which a lane works on borrowed memory. Made by [`Lane::scope`].
pub struct LaneScope<'lane, 'env> {
    lane: &'lane mut Lane,
    /// Operations of this scope that the lane has.
    in_flight: usize,
    /// Those that ended without the lane.
    ended: Vec<ScopeCompletion<'env>>,
    /// Completions of the visit in progress, of this scope and others; kept for its memory.
    mixed: Vec<Completion>,
    /// Invariant: what is borrowed for `'env` is borrowed for all of it.
    borrowed: PhantomData<&'env mut &'env ()>,
}

impl Lane {
    /// Runs `work`, which may start any number of operations on memory borrowed from outside it.
    /// Returns when all of them have completed.
    ///
    /// ```
    /// # use swath_engine::{AlignedBuf, Kernel, Lane, LaneOptions, OpenOptions, Platform, Segment};
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("member");
    /// # swath_engine::create_file(&path, 1 << 20, swath_engine::FileFill::Zeroes)?;
    /// # let device = Kernel.open(&path, &OpenOptions::read_write())?;
    /// # let mut lane = Lane::open(&Kernel, &[device], &LaneOptions::default())?;
    /// let mut memory = AlignedBuf::zeroed(8192)?;
    /// let (first, second) = memory.split_at_mut(4096);
    /// lane.scope(|scope| {
    ///     scope.read(first, &[Segment::whole(0, 0, 4096)], 1);
    ///     scope.read(second, &[Segment::whole(0, 65536, 4096)], 2);
    ///     let mut ends = Vec::new();
    ///     scope.wait(2, &mut ends)?;
    ///     ends.into_iter().try_for_each(|end| end.result.map(drop))
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// As `work` does. The process is aborted when the kernel refuses the lane's queue for good
    /// while it holds borrowed memory: there is no safe way to go on.
    pub fn scope<'env, T>(&mut self, work: impl FnOnce(&mut LaneScope<'_, 'env>) -> T) -> T {
        let mut scope = LaneScope {
            lane: self,
            in_flight: 0,
            ended: Vec::new(),
            mixed: Vec::new(),
            borrowed: PhantomData,
        };
        work(&mut scope)
    }
}

impl<'env> LaneScope<'_, 'env> {
    /// Queues a read into `memory`.
    pub fn read(&mut self, memory: &'env mut [u8], segments: &[Segment], token: u64) {
        // SAFETY: `memory` is borrowed for `'env`, which outlives the scope, and the scope's drop
        // waits for the completion.
        let buffer = unsafe { Borrowed::writable(memory) };
        self.start(Request::read(buffer, token), segments);
    }

    /// Queues a write from `memory`; durable when it completes if `fua` is set.
    pub fn write(&mut self, memory: &'env [u8], fua: bool, segments: &[Segment], token: u64) {
        // SAFETY: as in `read`.
        let buffer = unsafe { Borrowed::read_only(memory) };
        let request = Request {
            fua,
            ..Request::write(buffer, token)
        };
        self.start(request, segments);
    }

    fn start(&mut self, request: Request, segments: &[Segment]) {
        let guard = AbortOnUnwind;
        match self.lane.start(request, segments) {
            Ok(_) => self.in_flight += 1,
            // SAFETY: the buffer was made from memory borrowed for `'env`, just now.
            Err(completion) => self.ended.push(unsafe { end_of(*completion) }),
        }
        guard.disarm();
    }

    /// Ends an operation at once with `error`, which a layer above found; its completion comes with
    /// the next wait.
    pub fn refuse(&mut self, memory: ScopeMemory<'env>, token: u64, error: Error) {
        let kind = match memory {
            ScopeMemory::Read(_) => OpKind::Read,
            ScopeMemory::Write(_) => OpKind::Write,
        };
        let result = Err(error);
        self.ended.push(ScopeCompletion {
            token,
            kind,
            result,
            memory,
        });
    }

    /// Queues a request with buffers of its own among the scope's. Its completion comes with the
    /// next [`wait_for_all`](Self::wait_for_all), or with the lane's next poll after the scope.
    pub fn submit(&mut self, request: Request, segments: &[Segment]) {
        self.lane.submit(request, segments);
    }

    /// Ends such a request at once, as [`Lane::refuse`].
    pub fn refuse_request(&mut self, request: Request, error: Error) {
        self.lane.refuse(request, error);
    }

    /// Starts what is queued and blocks until at least `min` completions were appended (or all
    /// there can be). Returns how many were appended. A `min` of 0 does not block.
    ///
    /// # Errors
    ///
    /// The kernel refused the queue itself.
    pub fn wait(
        &mut self,
        min: usize,
        completions: &mut Vec<ScopeCompletion<'env>>,
    ) -> Result<usize> {
        let before = completions.len();
        completions.append(&mut self.ended);
        loop {
            let missing = min.saturating_sub(completions.len() - before);
            if self.in_flight == 0 {
                break;
            }
            self.visit(missing, completions)?;
            if completions.len() - before >= min {
                break;
            }
        }
        Ok(completions.len() - before)
    }

    /// As [`wait`](Self::wait), for requests with buffers of their own too: what was submitted in
    /// this scope or before it. Theirs go to `others`.
    ///
    /// # Errors
    ///
    /// The kernel refused the queue itself.
    pub fn wait_for_all(
        &mut self,
        min: usize,
        completions: &mut Vec<ScopeCompletion<'env>>,
        others: &mut Vec<Completion>,
    ) -> Result<usize> {
        let before = completions.len() + others.len();
        completions.append(&mut self.ended);
        others.extend(self.lane.ready.drain(..));
        let mut found = completions.len() + others.len() - before;
        while self.lane.requests > 0 {
            let visit = self.visit(min.saturating_sub(found), completions);
            others.extend(self.lane.ready.drain(..));
            found = completions.len() + others.len() - before;
            visit?;
            if found >= min {
                break;
            }
        }
        Ok(found)
    }

    /// Operations of this scope that have not completed, and completions not yet waited for.
    /// Requests with buffers of their own do not count.
    pub fn in_flight(&self) -> usize {
        self.in_flight + self.ended.len()
    }

    /// One visit to the lane's queue. Completions of earlier requests stay with the lane.
    fn visit(&mut self, min: usize, completions: &mut Vec<ScopeCompletion<'env>>) -> Result<()> {
        let guard = AbortOnUnwind;
        if min > 0 {
            self.lane.refill_or_sleep();
        } else {
            self.lane.refill();
        }
        let outcome = self.lane.reap(min.min(self.lane.queued), &mut self.mixed);
        self.lane.refill();
        for completion in self.mixed.drain(..) {
            if completion.buffers.is_borrowed() {
                self.in_flight -= 1;
                // SAFETY: in a lane that a scope has borrowed, only the scope's own operations have
                // borrowed memory, all of it for `'env`.
                completions.push(unsafe { end_of(completion) });
            } else {
                self.lane.ready.push_back(completion);
            }
        }
        guard.disarm();
        outcome
    }
}

/// Ends the process when the lane's own machinery panics while it holds borrowed memory: it cannot
/// be known any more what the kernel still uses, so there is nothing to unwind to.
struct AbortOnUnwind;

impl AbortOnUnwind {
    fn disarm(self) {
        #[expect(clippy::mem_forget, reason = "its drop is the alarm")]
        std::mem::forget(self);
    }
}

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        tracing::error!("a lane panicked while it held borrowed memory");
        std::process::abort();
    }
}

/// The completion with its borrow.
///
/// # Safety
///
/// The completion's buffer is one that was borrowed for `'env`.
unsafe fn end_of<'env>(completion: Completion) -> ScopeCompletion<'env> {
    let buffer = completion.buffers.into_one();
    let borrowed = buffer.and_then(Buffer::into_borrowed);
    let borrowed = borrowed.expect("a scope's operation has one buffer, which is borrowed");
    // SAFETY: by this function's contract the memory is borrowed for `'env`, exclusively for a
    // read; the operation has completed, so the kernel is done with it.
    let memory = unsafe { borrowed.into_memory() };
    ScopeCompletion {
        token: completion.token,
        kind: completion.kind,
        result: completion.result,
        memory,
    }
}

impl Drop for LaneScope<'_, '_> {
    fn drop(&mut self) {
        let mut completions = Vec::new();
        let mut refusals = 0;
        while self.in_flight > 0 {
            let Err(error) = self.visit(self.in_flight, &mut completions) else {
                completions.clear();
                continue;
            };
            refusals += 1;
            if refusals > DRAIN_ATTEMPTS {
                tracing::error!(%error, "memory lent to the kernel cannot be had back");
                std::process::abort();
            }
        }
    }
}

impl fmt::Debug for LaneScope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneScope")
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
