//! One worker: a thread with a lane, and the inbox in front of it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use slab::Slab;

use crate::buf::Buffers;
use crate::cpu;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::gate::Gate;
use crate::handle::HandleOptions;
use crate::handle::reply::{Reply, reply};
use crate::handle::ticket::{Ticket, wake};
use crate::lane::Lane;
use crate::op::{Completion, OpKind, Request, Segment};
use crate::platform::Platform;
use crate::queue::{QueueDescription, Wake};
use crate::scheduler::Scheduler;
use crate::stats::LaneStats;
use crate::threads::{self, Thread};

/// How often in a row a lane's queue may be refused by the kernel before the worker gives up.
const REFUSALS_MAX: u32 = 1000;

/// A request on its way to a lane.
pub(super) struct Job {
    request: Request,
    segments: Vec<Segment>,
    answer: Answer,
}

impl Job {
    pub(super) fn new(request: Request, segments: Vec<Segment>, ticket: &Arc<Ticket>) -> Self {
        let answer = Answer {
            ticket: Some(Arc::clone(ticket)),
            token: request.token,
            kind: request.kind,
        };
        Self {
            request,
            segments,
            answer,
        }
    }

    /// Ends a job that no worker will run. Its buffers go back.
    fn refuse(self) {
        let Self {
            request,
            mut answer,
            ..
        } = self;
        answer.give(closed(answer.token, answer.kind, request.buffers));
    }
}

/// The promise that a job's ticket gets exactly one completion, whatever becomes of the worker.
struct Answer {
    ticket: Option<Arc<Ticket>>,
    token: u64,
    kind: OpKind,
}

impl Answer {
    fn give(&mut self, completion: Completion) {
        let ticket = self.ticket.take().expect("an answer is given once");
        ticket.complete(Completion {
            token: self.token,
            ..completion
        });
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            self.give(closed(self.token, self.kind, Buffers::none()));
        }
    }
}

fn closed(token: u64, kind: OpKind, buffers: Buffers) -> Completion {
    let error = Error::new(ErrorKind::Closed, "the worker behind the handle has ended");
    Completion {
        token,
        kind,
        buffers,
        result: Err(error.with_operation(kind)),
    }
}

/// The jobs in front of a worker.
pub(super) struct Inbox {
    /// Changes when there is room.
    state: Gate<InboxState>,
    /// The worker sleeps, or is about to, and wants to be woken for a job.
    ///
    /// It is set under the lock, when there was nothing to do, and looked at under the lock by
    /// whoever brings a job; so no job is left lying before a sleeping worker. A worker that is awake
    /// takes it back without the lock: whoever still sees it set wakes it once for nothing.
    is_asleep: AtomicBool,
    capacity: usize,
    waker: Arc<dyn Wake>,
}

#[derive(Default)]
struct InboxState {
    jobs: VecDeque<Job>,
    /// Futures that found no room.
    waiting: Vec<Waker>,
    stats_wanted: Vec<Reply<LaneStats>>,
    /// How often the worker was woken for a job.
    wake_ups: u64,
    closed: bool,
}

impl Inbox {
    /// Hands a job over, or gives it back when there is no room.
    pub(super) fn try_push(&self, job: Job) -> std::result::Result<(), Job> {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            job.refuse();
            return Ok(());
        }
        if state.jobs.len() >= self.capacity {
            return Err(job);
        }
        state.jobs.push_back(job);
        let wake = self.is_asleep.swap(false, Ordering::Relaxed);
        state.wake_ups += u64::from(wake);
        drop(state);
        if wake {
            self.waker.wake();
        }
        Ok(())
    }

    /// As [`try_push`](Self::try_push), but blocks until there is room.
    pub(super) fn push_blocking(&self, job: Job) {
        let mut refused = self.try_push(job);
        while let Err(job) = refused {
            let mut state = self.state.lock();
            // Looked at under the lock that the worker holds when it makes room.
            if state.jobs.len() >= self.capacity && !state.closed {
                state.wait();
            }
            drop(state);
            refused = self.try_push(job);
        }
    }

    /// As [`try_push`](Self::try_push), but has `waker` woken when there is room.
    pub(super) fn push_or_register(&self, job: Job, waker: &Waker) -> std::result::Result<(), Job> {
        let mut refused = self.try_push(job);
        while let Err(job) = refused {
            let mut state = self.state.lock();
            if state.jobs.len() >= self.capacity && !state.closed {
                if !state.waiting.iter().any(|other| other.will_wake(waker)) {
                    state.waiting.push(waker.clone());
                }
                return Err(job);
            }
            drop(state);
            refused = self.try_push(job);
        }
        Ok(())
    }

    /// The worker's statistics; none when it has ended.
    pub(super) fn ask_stats(&self, scheduler: Option<Arc<dyn Scheduler>>) -> Option<LaneStats> {
        let (wanted, awaited) = reply(scheduler, "a worker's statistics");
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        state.stats_wanted.push(wanted);
        drop(state);
        self.waker.wake();
        awaited.wait()
    }

    /// No more jobs. Those that are there still run, unless the worker is gone.
    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.state.notify_all();
        waiting.into_iter().for_each(wake);
        self.waker.wake();
    }
}

impl InboxState {
    /// The futures to be woken when `count` jobs were taken: as many as there is new room for, in the
    /// order in which they came. All of them once the inbox is empty, for then nobody would come to
    /// wake the rest, and one that was woken may have been given up.
    fn take_waiting(&mut self, count: usize) -> Vec<Waker> {
        let woken = if count > 0 && self.jobs.is_empty() {
            self.waiting.len()
        } else {
            count.min(self.waiting.len())
        };
        self.waiting.drain(..woken).collect()
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// A worker as its handle sees it.
pub(super) struct Worker {
    pub(super) inbox: Arc<Inbox>,
    thread: Option<Thread<()>>,
}

impl Worker {
    pub(super) fn start(
        number: usize,
        platform: &Arc<dyn Platform>,
        devices: &[Arc<dyn Device>],
        options: &HandleOptions,
        core: Option<usize>,
    ) -> Result<(Self, QueueDescription)> {
        let (started, awaited) = reply(platform.scheduler(), "a worker's start");
        let starter = Arc::clone(platform);
        let platform = Arc::clone(platform);
        let devices = devices.to_vec();
        let lane_options = options.lane.clone();
        let backlog = options.backlog;
        let name = format!("swath-lane-{number}");
        let thread = threads::spawn(&*starter, &name, move || {
            // The lane is made here: it belongs to the thread that makes it.
            let opened = core
                .map_or(Ok(()), cpu::pin_to)
                .and_then(|()| Lane::open(&*platform, &devices, &lane_options));
            match opened {
                Ok(mut lane) => {
                    let inbox = Arc::new(Inbox {
                        state: Gate::new(
                            &*platform,
                            "room in front of a worker",
                            InboxState::default(),
                        ),
                        is_asleep: AtomicBool::new(false),
                        capacity: backlog,
                        waker: lane.waker(),
                    });
                    started.give(Ok((Arc::clone(&inbox), lane.description().clone())));
                    Running {
                        lane,
                        answers: Slab::new(),
                        inbox: Closing(inbox),
                    }
                    .run();
                }
                Err(error) => {
                    started.give(Err(error));
                }
            }
        })
        .map_err(|cause| Error::from_io(cause, "a worker thread cannot be started"))?;
        match awaited.wait() {
            Some(Ok((inbox, description))) => Ok((
                Self {
                    inbox,
                    thread: Some(thread),
                },
                description,
            )),
            Some(Err(error)) => Err(error),
            None => Err(Error::new(
                ErrorKind::Closed,
                "a worker thread ended as it started",
            )),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.inbox.close();
        let Some(thread) = self.thread.take() else {
            return;
        };
        // The last handle may be dropped by a future's waker, which runs on a worker's thread.
        if !thread.is_current() && thread.join().is_err() {
            tracing::error!("a worker of a handle panicked");
        }
    }
}

/// A worker as its own thread sees it. The order of the fields is the order of their end: the lane
/// lets go of all memory, then jobs in flight are answered, then those in the inbox.
struct Running {
    lane: Lane,
    answers: Slab<Answer>,
    inbox: Closing,
}

/// Closes the inbox when the worker ends, however it ends, and refuses what is left in it.
struct Closing(Arc<Inbox>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
        let mut state = self.0.state.lock();
        let left = std::mem::take(&mut state.jobs);
        state.stats_wanted.clear();
        drop(state);
        left.into_iter().for_each(Job::refuse);
    }
}

impl Running {
    fn run(mut self) {
        let mut batch = Vec::new();
        let mut completions = Vec::new();
        let mut refusals = 0;
        loop {
            let closed = self.take_jobs(&mut batch);
            if closed && batch.is_empty() && self.lane.in_flight() == 0 {
                return;
            }
            for Job {
                request,
                segments,
                answer,
            } in batch.drain(..)
            {
                let token = self.answers.insert(answer) as u64;
                self.lane.submit(Request { token, ..request }, &segments);
            }
            let visit = if self.may_sleep() {
                let visit = self.lane.wait_or_wake(&mut completions);
                self.inbox.0.is_asleep.store(false, Ordering::Relaxed);
                visit
            } else {
                self.lane.poll(&mut completions).map(drop)
            };
            match visit {
                Ok(()) => refusals = 0,
                Err(error) => {
                    tracing::warn!(%error, "a worker's queue");
                    refusals += 1;
                    if refusals > REFUSALS_MAX {
                        return;
                    }
                }
            }
            for completion in completions.drain(..) {
                let key = usize::try_from(completion.token).expect("a token is a slab's key");
                self.answers.remove(key).give(completion);
            }
        }
    }

    /// Whether there is nothing to do but wait: for completions when the lane is full, else for
    /// either those or a job, which then wakes the worker.
    fn may_sleep(&self) -> bool {
        if self.room() == 0 {
            return true;
        }
        let inbox = &*self.inbox.0;
        let state = inbox.state.lock();
        let is_idle = state.jobs.is_empty() && state.stats_wanted.is_empty() && !state.closed;
        if is_idle {
            inbox.is_asleep.store(true, Ordering::Relaxed);
        }
        // The last jobs of a closed inbox are waited for as those of a full lane.
        is_idle || (state.closed && state.jobs.is_empty() && self.lane.in_flight() > 0)
    }

    /// How many more requests the lane takes at once.
    fn room(&self) -> usize {
        self.lane.depth().saturating_sub(self.lane.in_flight())
    }

    /// Takes as many jobs as the lane has room for. Returns whether the inbox is closed.
    fn take_jobs(&mut self, batch: &mut Vec<Job>) -> bool {
        let room = self.room();
        let inbox = &*self.inbox.0;
        let mut state = inbox.state.lock();
        let stats_wanted = std::mem::take(&mut state.stats_wanted);
        let wake_ups = state.wake_ups;
        let count = room.min(state.jobs.len());
        batch.extend(state.jobs.drain(..count));
        let closed = state.closed;
        let waiting = state.take_waiting(count);
        drop(state);
        // Histograms take a while to copy: nobody who has a job to hand over waits for that.
        for wanted in stats_wanted {
            wanted.give(self.lane.stats().with_wake_ups(wake_ups));
        }
        if count > 0 {
            inbox.state.notify_all();
            waiting.into_iter().for_each(wake);
        }
        closed
    }
}
