//! Operations by blocking system calls: the backend that works anywhere.
//!
//! - [`run_blocking`] is one whole operation on the calling thread.
//! - [`SyncPool`] is a few threads that run such operations. io_uring and AIO hand it what their
//!   rings cannot do (discard of a block device, ...).
//! - [`SyncQueue`] is the queue: on a pool, or, with no threads, on the caller's own thread within
//!   `poll` and `wait`. For files in memory the latter is the fastest of all backends: there is
//!   nothing to wait for, and no lock, allocation or thread in the way.
//!
//! The worker threads run nothing that can panic: places of devices are checked at submit, results
//! of the kernel are only numbers, and the lists were allocated at the start. So a worker cannot
//! leave a job without its completion, and no wait hangs.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};
use rustix::fs::{FallocateFlags, fallocate, fdatasync};

use crate::device::{Device, DeviceKind};
use crate::error::{Error, Result};
use crate::op::OpKind;
use crate::queue::doorbell::{Doorbell, Ring};
use crate::queue::targets::Targets;
use crate::queue::{
    Backend, Memory, Queue, QueueDescription, QueueOptions, RawCompletion, RawOp, Wake,
};
use crate::sys::ioctl::{blkdiscard, blkzeroout};
use crate::sys::transfer::{pread, preadv2, pwrite, pwritev2};
use crate::sys::{clock, result_of};

/// Runs one operation now, by blocking system calls on a descriptor. Returns the bytes moved (0
/// for operations without memory) or a negated error number, as the kernel would; short results
/// and `-EINTR` are the caller's to continue.
///
/// # Safety
///
/// As for [`Queue::submit`], until the call returns.
pub(crate) unsafe fn run_blocking(fd: BorrowedFd<'_>, device_kind: DeviceKind, op: &RawOp) -> i32 {
    let is_block = device_kind == DeviceKind::Block;
    match op.kind {
        // SAFETY: the caller vouches for the operation's memory until this call returns.
        OpKind::Read => unsafe { read(fd, op) },
        // SAFETY: as for the read.
        OpKind::Write => unsafe { write(fd, op) },
        OpKind::Flush => result_of(fdatasync(fd)),
        OpKind::Discard if is_block => result_of(blkdiscard(fd, op.offset, op.length)),
        OpKind::Discard => result_of(punch_hole(fd, op)),
        OpKind::WriteZeroes if is_block => result_of(blkzeroout(fd, op.offset, op.length)),
        OpKind::WriteZeroes => {
            let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
            match fallocate(fd, flags, op.offset, op.length) {
                // tmpfs cannot zero a range, but a hole reads as zeroes just as well.
                Err(rustix::io::Errno::OPNOTSUPP) => result_of(punch_hole(fd, op)),
                outcome => result_of(outcome),
            }
        }
    }
}

fn punch_hole(fd: BorrowedFd<'_>, op: &RawOp) -> rustix::io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(fd, flags, op.offset, op.length)
}

/// The length of an operation's memory, which cannot be longer than the address space.
fn memory_len(op: &RawOp) -> usize {
    usize::try_from(op.length).unwrap_or(usize::MAX)
}

/// # Safety
///
/// As for [`run_blocking`]; `op` is a read.
unsafe fn read(fd: BorrowedFd<'_>, op: &RawOp) -> i32 {
    match op.memory {
        // SAFETY: `length` bytes at `pointer` are the operation's, which the caller vouches for.
        Memory::Flat { pointer, .. } => unsafe { pread(fd, pointer, memory_len(op), op.offset) },
        // SAFETY: the list and its memory are the operation's, which the caller vouches for.
        Memory::Vector { iovecs, count } => unsafe { preadv2(fd, iovecs, count, op.offset, 0) },
        Memory::None => -libc::EINVAL,
    }
}

/// # Safety
///
/// As for [`run_blocking`]; `op` is a write.
unsafe fn write(fd: BorrowedFd<'_>, op: &RawOp) -> i32 {
    let flags = if op.fua { libc::RWF_DSYNC } else { 0 };
    match op.memory {
        Memory::Flat { pointer, .. } if op.fua => {
            let iovec = libc::iovec {
                iov_base: pointer.cast(),
                iov_len: memory_len(op),
            };
            // SAFETY: the list is our one iovec, and the memory it describes the operation's,
            // which the caller vouches for.
            unsafe { pwritev2(fd, &raw const iovec, 1, op.offset, flags) }
        }
        // SAFETY: `length` bytes at `pointer` are the operation's, which the caller vouches for.
        Memory::Flat { pointer, .. } => unsafe { pwrite(fd, pointer, memory_len(op), op.offset) },
        Memory::Vector { iovecs, count } => {
            // SAFETY: the list and its memory are the operation's, which the caller vouches for.
            unsafe { pwritev2(fd, iovecs, count, op.offset, flags) }
        }
        Memory::None => -libc::EINVAL,
    }
}

/// An operation on its way to a worker.
struct Job(RawOp);

// SAFETY: what keeps a `RawOp` on its thread is the pointers to its memory. By the contract of
// `SyncPool::submit` that memory is valid and nobody else's until the completion is given, on
// whichever thread the transfer runs; the mutex orders its accesses after those before the submit.
unsafe impl Send for Job {}

/// A pool of threads that run whole operations with blocking calls. One owner submits and takes.
///
/// Dropping it returns when every job is done, so no thread can touch memory any more.
#[derive(Debug)]
pub(crate) struct SyncPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Submitted and not yet taken. Only the owner counts, so a cell is enough.
    in_flight: Cell<usize>,
}

struct Shared {
    targets: Targets,
    jobs: Mutex<Jobs>,
    /// A job was added, or the pool is closing.
    available: Condvar,
    done: Mutex<Vec<RawCompletion>>,
    wake: Arc<dyn Wake>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("targets", &self.targets)
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    closing: bool,
}

/// Room that the lists of a pool are given at the start; they grow beyond it if need be.
const JOBS_EXPECTED: usize = 256;

impl SyncPool {
    /// Starts `threads` threads, one at least. `wake` is rung when completions can be taken.
    pub(crate) fn start(
        devices: &[Arc<dyn Device>],
        threads: usize,
        wake: Arc<dyn Wake>,
    ) -> Result<Self> {
        let jobs = Jobs {
            waiting: VecDeque::with_capacity(JOBS_EXPECTED),
            closing: false,
        };
        let shared = Arc::new(Shared {
            targets: Targets::new(devices)?,
            jobs: Mutex::new(jobs),
            available: Condvar::new(),
            done: Mutex::new(Vec::with_capacity(JOBS_EXPECTED)),
            wake,
        });
        let mut pool = Self {
            shared,
            threads: Vec::new(),
            in_flight: Cell::new(0),
        };
        for number in 0..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            let thread = thread::Builder::new()
                .name(format!("swath-sync-{number}"))
                .spawn(move || shared.work())
                .map_err(|e| Error::from_io(e, "a thread for blocking I/O did not start"))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Hands an operation to the threads.
    ///
    /// # Safety
    ///
    /// As for [`Queue::submit`].
    ///
    /// # Panics
    ///
    /// When the device is not in the list.
    pub(crate) unsafe fn submit(&self, op: &RawOp) {
        self.shared.targets.check(op.device);
        self.in_flight.set(self.in_flight.get() + 1);
        self.shared.jobs.lock().waiting.push_back(Job(*op));
        self.shared.available.notify_one();
    }

    /// Appends the completions that are there. Never blocks for longer than a list is locked.
    pub(crate) fn take(&self, completions: &mut Vec<RawCompletion>) {
        if self.in_flight.get() == 0 {
            return;
        }
        let before = completions.len();
        completions.append(&mut self.shared.done.lock());
        self.in_flight
            .set(self.in_flight.get() - (completions.len() - before));
    }

    /// How many operations were submitted whose completions were not yet taken.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.get()
    }
}

impl Drop for SyncPool {
    fn drop(&mut self) {
        self.shared.jobs.lock().closing = true;
        self.shared.available.notify_all();
        for thread in self.threads.drain(..) {
            // An error would be the thread's panic, which the module page rules out; even then it
            // has ended and touches nothing.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// What each thread does: job after job, until the pool closes and no job is left.
    fn work(&self) {
        while let Some(Job(op)) = self.next_job() {
            let (fd, kind) = self.targets.at(op.device);
            // SAFETY: `SyncPool::submit` was promised this memory until the completion is given,
            // which is below.
            let result = unsafe { run_blocking(fd, kind, &op) };
            let is_first = {
                let mut done = self.done.lock();
                done.push(RawCompletion {
                    token: op.token,
                    result,
                });
                done.len() == 1
            };
            // Where others are still to be taken, their first has rung already.
            if is_first {
                self.wake.wake();
            }
        }
    }

    fn next_job(&self) -> Option<Job> {
        let mut jobs = self.jobs.lock();
        loop {
            if let Some(job) = jobs.waiting.pop_front() {
                return Some(job);
            }
            if jobs.closing {
                return None;
            }
            self.available.wait(&mut jobs);
        }
    }
}

/// The queue of blocking calls.
///
/// Without threads, `submit` only stores, and the next `poll` or `wait` runs all that is stored,
/// one after the other: "never blocks" then means no longer than these calls take.
#[derive(Debug)]
pub(crate) struct SyncQueue {
    description: QueueDescription,
    capacity: usize,
    bell: Arc<Doorbell>,
    engine: Engine,
}

#[derive(Debug)]
enum Engine {
    Inline {
        targets: Targets,
        queued: Vec<RawOp>,
    },
    Pooled(SyncPool),
}

impl SyncQueue {
    /// A queue over `devices`. `threads` 0: operations run on the caller's thread, within `poll`
    /// and `wait`. `reasons` go into the description.
    pub(crate) fn open(
        devices: &[Arc<dyn Device>],
        options: &QueueOptions,
        threads: usize,
        reasons: Vec<String>,
    ) -> Result<Self> {
        let capacity = usize::try_from(options.depth.max(1)).unwrap_or(usize::MAX);
        let bell = Arc::new(Doorbell::default());
        // More threads than operations would only sleep.
        let threads = threads.min(capacity);
        let (flags, engine) = if threads == 0 {
            let targets = Targets::new(devices)?;
            let queued = Vec::with_capacity(capacity);
            (
                "caller's thread".to_owned(),
                Engine::Inline { targets, queued },
            )
        } else {
            let flags = format!("{threads} thread{}", if threads == 1 { "" } else { "s" });
            (
                flags,
                Engine::Pooled(SyncPool::start(devices, threads, bell.for_done())?),
            )
        };
        let description = QueueDescription {
            backend: Backend::Sync,
            flags,
            reasons,
        };
        Ok(Self {
            description,
            capacity,
            bell,
            engine,
        })
    }

    fn in_flight(&self) -> usize {
        match &self.engine {
            Engine::Inline { queued, .. } => queued.len(),
            Engine::Pooled(pool) => pool.in_flight(),
        }
    }

    /// Whether nothing is in flight and nobody is left who could ring: a sleep would never end.
    fn is_alone(&self) -> bool {
        let own_handles = match &self.engine {
            Engine::Inline { .. } => 1,
            Engine::Pooled(_) => 2,
        };
        self.in_flight() == 0 && Arc::strong_count(&self.bell) == own_handles
    }

    /// Appends what is there; in inline mode: runs what is queued.
    fn collect(&mut self, completions: &mut Vec<RawCompletion>) {
        match &mut self.engine {
            Engine::Inline { targets, queued } => {
                for op in queued.drain(..) {
                    let (fd, kind) = targets.at(op.device);
                    // SAFETY: `submit` was promised this memory until the completion is given,
                    // which is the next line.
                    let result = unsafe { run_blocking(fd, kind, &op) };
                    completions.push(RawCompletion {
                        token: op.token,
                        result,
                    });
                }
            }
            Engine::Pooled(pool) => pool.take(completions),
        }
    }
}

// SAFETY:
// - Memory is touched only by `run_blocking`: on this thread, before the completion is appended;
//   or by a worker of the pool, before it puts the completion on the list that `poll` takes from.
// - Each stored operation or job is run once and its completion pushed once.
// - Operations that were never run are forgotten with the queue; the pool's drop joins its threads.
unsafe impl Queue for SyncQueue {
    fn description(&self) -> &QueueDescription {
        &self.description
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    unsafe fn submit(&mut self, op: &RawOp) {
        assert!(
            self.in_flight() < self.capacity,
            "the queue is full: {} in flight",
            self.capacity
        );
        match &mut self.engine {
            Engine::Inline { targets, queued } => {
                targets.check(op.device);
                queued.push(*op);
            }
            // SAFETY: our caller gives the promise that the pool asks for.
            Engine::Pooled(pool) => unsafe { pool.submit(op) },
        }
    }

    fn poll(&mut self, completions: &mut Vec<RawCompletion>) -> io::Result<()> {
        self.collect(completions);
        Ok(())
    }

    fn wait(&mut self, min: usize, completions: &mut Vec<RawCompletion>) -> io::Result<()> {
        let in_flight = self.in_flight();
        let min = if in_flight > 0 {
            min.min(in_flight)
        } else {
            min
        };
        let target = completions.len() + min;
        loop {
            self.collect(completions);
            if completions.len() >= target {
                return Ok(());
            }
            if self.is_alone() || self.bell.sleep() == Ring::Asked {
                return Ok(());
            }
        }
    }

    fn waker(&mut self) -> Arc<dyn Wake> {
        Arc::clone(&self.bell) as Arc<dyn Wake>
    }

    fn now_ns(&self) -> u64 {
        clock::monotonic_ns()
    }
}
