//! [`Submission`]: the caller's half of a job; and the ticket that ties it to the worker's half.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::gate::Gate;
use crate::handle::worker::{Inbox, Job};
use crate::op::Completion;
use crate::scheduler::Scheduler;

/// Where a worker leaves a completion for the caller.
#[derive(Debug)]
pub(super) struct Ticket(Gate<State>);

#[derive(Debug)]
enum State {
    Pending,
    /// A future that was polled, to be woken.
    Polled(Waker),
    Done(Completion),
    Taken,
}

impl Ticket {
    pub(super) fn new(scheduler: Option<Arc<dyn Scheduler>>) -> Self {
        Self::in_state(scheduler, State::Pending)
    }

    fn in_state(scheduler: Option<Arc<dyn Scheduler>>, state: State) -> Self {
        Self(Gate::scheduled_by(scheduler, "a completion", state))
    }

    /// Leaves the completion and wakes whoever waits for it.
    pub(super) fn complete(&self, completion: Completion) {
        let before = std::mem::replace(&mut *self.0.lock(), State::Done(completion));
        self.0.notify_all();
        if let State::Polled(waker) = before {
            wake(waker);
        }
    }

    fn wait(&self) -> Completion {
        let mut state = self.0.lock();
        loop {
            match std::mem::replace(&mut *state, State::Taken) {
                State::Done(completion) => return completion,
                State::Taken => panic!("a submission's completion is taken once"),
                pending => *state = pending,
            }
            state.wait();
        }
    }

    fn poll(&self, waker: &Waker) -> Poll<Completion> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Done(completion) => Poll::Ready(completion),
            State::Taken => panic!("a submission's completion is taken once"),
            State::Pending | State::Polled(_) => {
                *state = State::Polled(waker.clone());
                Poll::Pending
            }
        }
    }
}

/// Wakes a future's task. Its waker is foreign code that runs on a worker's thread, and others wait
/// for that worker: a panic of it ends here.
pub(super) fn wake(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        tracing::error!("a future's waker panicked");
    }
}

/// A request on its way. As a future it gives the [`Completion`] on any executor;
/// [`wait`](Self::wait) blocks for it.
///
/// Dropping it does not stop the operation. A request that found no room yet and was never polled
/// is dropped with it, and has not been started.
#[must_use = "a submission that found no room is only handed over when it is polled or waited for"]
pub struct Submission {
    ticket: Arc<Ticket>,
    /// The job and its inbox, while there was no room.
    waiting: Option<(Job, Arc<Inbox>)>,
}

impl Submission {
    /// A submission that ended before it began, with the completion that says why.
    pub fn ready(completion: Completion) -> Self {
        Self {
            ticket: Arc::new(Ticket::in_state(None, State::Done(completion))),
            waiting: None,
        }
    }

    pub(super) fn queued(ticket: Arc<Ticket>) -> Self {
        Self {
            ticket,
            waiting: None,
        }
    }

    pub(super) fn waiting(ticket: Arc<Ticket>, job: Job, inbox: Arc<Inbox>) -> Self {
        Self {
            ticket,
            waiting: Some((job, inbox)),
        }
    }

    /// Blocks until the request completes.
    ///
    /// # Panics
    ///
    /// When the completion was taken already, by polling it as a future.
    pub fn wait(mut self) -> Completion {
        if let Some((job, inbox)) = self.waiting.take() {
            inbox.push_blocking(job);
        }
        self.ticket.wait()
    }
}

impl Future for Submission {
    type Output = Completion;

    /// # Panics
    ///
    /// When polled again after it gave the completion.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Completion> {
        if let Some((job, inbox)) = self.waiting.take()
            && let Err(job) = inbox.push_or_register(job, context.waker())
        {
            self.waiting = Some((job, inbox));
            return Poll::Pending;
        }
        self.ticket.poll(context.waker())
    }
}

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submission")
            .field("handed_over", &self.waiting.is_none())
            .finish_non_exhaustive()
    }
}
