//! [`Handle`]: lanes shared by any number of callers, blocking or asynchronous.
//!
//! ```text
//! callers (any thread, any executor)          workers (one thread each)
//!   Handle::submit --Job--> Inbox (bounded) --> Lane --> devices
//!   Submission <------- Ticket <-------------- completion
//! ```
//!
//! - Send, Sync, Clone; the workers end when the last clone is dropped, after all they were given.
//! - An inbox holds a bounded number of jobs. When it is full, a blocking caller blocks and a
//!   future waits: nobody spins, nothing grows.
//! - A worker is woken only when it sleeps, so one wake-up serves every job that came meanwhile.
//! - The buffers of a job belong to its worker until the completion. Dropping or forgetting a
//!   [`Submission`] changes nothing about that: the operation runs to its end.

mod reply;
mod ticket;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::buf::{Borrowed, Buffers};
use crate::cpu;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::lane::LaneOptions;
use crate::op::{Completion, Request, Segment};
use crate::platform::Platform;
use crate::queue::QueueDescription;
use crate::scheduler::Scheduler;
use crate::stats::LaneStats;

pub use self::ticket::Submission;

use self::ticket::Ticket;
use self::worker::{Job, Worker};

/// What a shared handle is asked to be.
#[derive(Debug, Clone)]
pub struct HandleOptions {
    /// How many worker lanes. Default: one for each core this process may use, at most 4.
    pub workers: usize,
    /// Whether each worker is pinned to a core of its own. Default: no, since the caller's threads
    /// want cores too.
    pub pin: bool,
    /// How many jobs may wait in front of each worker. Default 1024.
    pub backlog: usize,
    /// What each worker's lane is.
    pub lane: LaneOptions,
}

impl Default for HandleOptions {
    fn default() -> Self {
        Self {
            workers: cpu::available().len().clamp(1, 4),
            pin: false,
            backlog: 1024,
            lane: LaneOptions::default(),
        }
    }
}

/// Lanes on threads of their own, shared by any number of callers. The threads end when the last
/// clone is dropped, after all they were given.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

struct Shared {
    workers: Vec<Worker>,
    /// Counts submissions, to deal them out in turn.
    dealt: AtomicUsize,
    description: QueueDescription,
    scheduler: Option<Arc<dyn Scheduler>>,
}

impl Handle {
    /// Starts the workers.
    ///
    /// # Errors
    ///
    /// As [`Lane::open`](crate::Lane::open); a thread that cannot be started or pinned.
    pub fn start(
        platform: &Arc<dyn Platform>,
        devices: &[Arc<dyn Device>],
        options: &HandleOptions,
    ) -> Result<Self> {
        if options.workers == 0 || options.backlog == 0 {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a handle needs at least one worker and a backlog of at least one",
            ));
        }
        let cores = cpu::available();
        let mut workers = Vec::with_capacity(options.workers);
        let mut description = None;
        for number in 0..options.workers {
            let core = if options.pin {
                cores.get(number % cores.len().max(1))
            } else {
                None
            };
            let (worker, described) =
                Worker::start(number, platform, devices, options, core.copied())?;
            workers.push(worker);
            description.get_or_insert(described);
        }
        let description = description.expect("there is at least one worker");
        Ok(Self(Arc::new(Shared {
            workers,
            dealt: AtomicUsize::new(0),
            description,
            scheduler: platform.scheduler(),
        })))
    }

    /// Submits a request; the future (or [`Submission::wait`]) gives its completion.
    ///
    /// It is handed over at once when there is room, else when the future is first polled or
    /// waited for and there is room.
    pub fn submit(&self, request: Request, segments: Vec<Segment>) -> Submission {
        let worker = self.0.dealt.fetch_add(1, Ordering::Relaxed) % self.0.workers.len();
        let ticket = Arc::new(Ticket::new(self.0.scheduler.clone()));
        let job = Job::new(request, segments, &ticket);
        match self.0.workers[worker].inbox.try_push(job) {
            Ok(()) => Submission::queued(ticket),
            Err(job) => Submission::waiting(ticket, job, Arc::clone(&self.0.workers[worker].inbox)),
        }
    }

    /// Submits a request and blocks until it completes. Not to be called by a future's waker: that
    /// runs on a worker's own thread.
    pub fn call(&self, request: Request, segments: Vec<Segment>) -> Completion {
        self.submit(request, segments).wait()
    }

    /// Reads into memory of the caller, who waits.
    ///
    /// # Errors
    ///
    /// As a read's completion.
    pub fn read_blocking(&self, memory: &mut [u8], segments: Vec<Segment>) -> Result<()> {
        // SAFETY: `call` returns only with this request's completion: a worker gives one for every
        // job, even when it ends early, and never before its lane has let go of the memory.
        let buffer = unsafe { Borrowed::writable(memory) };
        self.call(Request::read(buffer, 0), segments)
            .result
            .map(drop)
    }

    /// Writes from memory of the caller, who waits; durable when it returns if `fua` is set.
    ///
    /// # Errors
    ///
    /// As a write's completion.
    pub fn write_blocking(&self, memory: &[u8], fua: bool, segments: Vec<Segment>) -> Result<()> {
        // SAFETY: as in `read_blocking`.
        let buffer = unsafe { Borrowed::read_only(memory) };
        let request = Request {
            fua,
            ..Request::write(buffer, 0)
        };
        self.call(request, segments).result.map(drop)
    }

    /// Reads into several pieces of memory of the caller, who waits.
    ///
    /// # Errors
    ///
    /// As a read's completion.
    pub fn read_vectored_blocking(
        &self,
        memory: &mut [std::io::IoSliceMut<'_>],
        segments: Vec<Segment>,
    ) -> Result<()> {
        // SAFETY: as in `read_blocking`, for each of them.
        let buffers: Vec<_> = memory
            .iter_mut()
            .map(|piece| unsafe { Borrowed::writable(piece) })
            .collect();
        self.call(Request::read(Buffers::from(buffers), 0), segments)
            .result
            .map(drop)
    }

    /// Writes from several pieces of memory of the caller, who waits.
    ///
    /// # Errors
    ///
    /// As a write's completion.
    pub fn write_vectored_blocking(
        &self,
        memory: &[std::io::IoSlice<'_>],
        segments: Vec<Segment>,
    ) -> Result<()> {
        // SAFETY: as in `read_blocking`, for each of them.
        let buffers: Vec<_> = memory
            .iter()
            .map(|piece| unsafe { Borrowed::read_only(piece) })
            .collect();
        self.call(Request::write(Buffers::from(buffers), 0), segments)
            .result
            .map(drop)
    }

    /// What the queues below are, and why they were chosen.
    pub fn description(&self) -> &QueueDescription {
        &self.0.description
    }

    /// What all workers did since they were started.
    pub fn stats(&self) -> LaneStats {
        let mut total = LaneStats::default();
        for worker in &self.0.workers {
            if let Some(stats) = worker.inbox.ask_stats(self.0.scheduler.clone()) {
                total.merge(&stats);
            }
        }
        total
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("workers", &self.0.workers.len())
            .field("queue", &self.0.description)
            .finish_non_exhaustive()
    }
}
