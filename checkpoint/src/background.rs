//! [`Store::save_async`]: a save that returns after a copy, and is written by threads of its own.
//!
//! - The copy is complete when the call returns: what the caller does to the tensors afterwards
//!   cannot be seen in the checkpoint.
//! - Memory is bounded by the snapshot pool, whatever the size of the checkpoint: one that is larger
//!   waits for room while what was copied is written, and the handle tells how long it took.
//! - Saves that are queued are written and committed whole, one after the other, in the order of
//!   their calls.
//! - A save ends in exactly one outcome: committed, failed, or cancelled. A thread that panics is a
//!   failure, and nobody waits for it for ever.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use swath_engine::{Gate, threads};

use crate::error::{Error, ErrorKind, Result};
use crate::names::CheckpointName;
use crate::save::{check_tensors, reserving};
use crate::session::{BeginOptions, Session};
use crate::snapshot::{Copier, Parcel, SnapshotPool};
use crate::store::{CheckpointInfo, Store};
use crate::turns::Turns;
use crate::view::TensorView;

/// How to save in the background.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsyncOptions {
    /// The memory that tensors are copied into, in bytes: whole MiB, at least 4. Default 256 MiB.
    ///
    /// This decides how long [`Store::save_async`] keeps its caller. A checkpoint that fits is
    /// copied at the speed of memory. Of a larger one the rest is copied as fast as the drives make
    /// room: then the call takes about as long as it takes to write all but the last
    /// `snapshot_bytes`. It is used in pieces of 1 MiB: whole blocks of tensors, and small tensors
    /// and the ends of others packed together.
    ///
    /// All saves of a store that ask for the same size share it. It is got from the system when it
    /// is first needed, which can take longer than the copy ([`Store::prepare_saves`] gets it
    /// ahead), and kept as long as the store is open.
    pub snapshot_bytes: u64,
    /// What happens while an earlier save is in flight. Default: [`WhenBusy::Refuse`].
    pub when_busy: WhenBusy,
    /// How many threads write, each with a pool as [`StoreOptions`](crate::StoreOptions) says.
    /// Default 1: what the training leaves, and enough for a few drives.
    pub threads: usize,
}

impl Default for AsyncOptions {
    fn default() -> Self {
        Self {
            snapshot_bytes: 256 << 20,
            when_busy: WhenBusy::Refuse,
            threads: 1,
        }
    }
}

/// What [`Store::save_async`] does while an earlier save is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenBusy {
    /// It fails with [`ErrorKind::Busy`].
    #[default]
    Refuse,
    /// It goes behind the earlier ones. Its tensors are copied at once if there is room; if not,
    /// the call waits for it.
    Queue,
}

/// A save in the background. Dropping it lets the save go on; the store is then the one to ask, by
/// [`Store::finish_saves`].
pub struct SaveHandle {
    job: Arc<Job>,
    stall: Duration,
}

/// What the caller, the handle and the threads of one save share.
struct Job {
    pool: Arc<SnapshotPool>,
    turns: Arc<Turns>,
    ticket: u64,
    /// Set together with the reason in the state; read where the state may not be locked.
    is_stopped: AtomicBool,
    /// Changes with whatever somebody may wait for.
    state: Gate<JobState>,
}

#[derive(Default)]
struct JobState {
    /// What was copied and is to be written.
    parcels: VecDeque<Parcel>,
    is_copied: bool,
    /// Why it is not to go on: the first failure, or that it was cancelled.
    stop: Option<Error>,
    /// It is too late to stop it.
    is_committing: bool,
    outcome: Option<Result<CheckpointInfo>>,
    /// Somebody has heard the outcome.
    is_heard: bool,
    /// Nobody can hear it any more.
    is_abandoned: bool,
}

/// What a thread that writes is to do next.
enum Next {
    Write(Parcel),
    /// Nothing has been copied yet.
    Wait,
    End,
}

impl Store {
    /// Saves tensors as one checkpoint in the background. Returns when they are copied: they may be
    /// changed then, and the checkpoint will not show it.
    ///
    /// With [`BeginOptions::verify_source`] the tensors are read once more after they were copied,
    /// and the save fails, at [`SaveHandle::wait`], if they were changed meanwhile.
    ///
    /// The store waits for its saves when the last handle of it is dropped (every clone, session and
    /// open checkpoint is one).
    ///
    /// # Errors
    ///
    /// At once, as [`begin`](Store::begin); tensors that contradict themselves, or two of one name;
    /// an earlier save in flight, unless it is to queue; no memory for the snapshot. What fails
    /// later, [`SaveHandle::wait`] tells.
    pub fn save_async(
        &self,
        name: impl Into<CheckpointName>,
        options: BeginOptions,
        tensors: &[TensorView<'_>],
        how: &AsyncOptions,
    ) -> Result<SaveHandle> {
        let begun = Instant::now();
        let name = name.into();
        check_tensors(tensors).map_err(|error| error.with_checkpoint(&name))?;
        let turns = self.turns();
        let Some(_turn) = turns.copy_turn(how.when_busy == WhenBusy::Queue) else {
            return Err(Error::new(
                ErrorKind::Busy,
                "an earlier save is in flight: wait for it, or let this one queue",
            )
            .with_checkpoint(&name));
        };
        let options = reserving(options, tensors);
        let verify_source = options.verify_source;
        let session = self.without_waiting().begin(name.clone(), options)?;
        let platform = self.volume().platform();
        let job = Arc::new(Job {
            pool: turns.pool(platform, how.snapshot_bytes),
            ticket: turns.enter(),
            turns: Arc::clone(turns),
            is_stopped: AtomicBool::new(false),
            state: Gate::new(platform, "a save in the background", JobState::default()),
        });
        let (background, count) = (Arc::clone(&job), how.threads.max(1));
        let spawned = threads::spawn(platform, THREAD, move || {
            run(session, &background, count);
        });
        if let Err(error) = spawned {
            turns.leave(job.ticket);
            return Err(
                Error::from_io(error, "no thread to save in the background").with_checkpoint(&name)
            );
        }
        // Whoever waits for parcels hears of it when this ends by a panic.
        let unwinding = StopOnPanic(&job);
        let copier = Copier::new(
            platform,
            &job.pool,
            verify_source,
            || job.is_stopped(),
            |parcel| job.send(parcel),
        );
        if let Err(error) = copier.copy(tensors) {
            job.stop(error.with_checkpoint(&name));
        }
        job.all_copied();
        drop(unwinding);
        Ok(SaveHandle {
            job,
            stall: begun.elapsed(),
        })
    }

    /// Gets the memory that [`save_async`](Self::save_async) copies tensors into, all of it, so that
    /// the first save does not have to.
    ///
    /// # Errors
    ///
    /// There is not so much.
    pub fn prepare_saves(&self, how: &AsyncOptions) -> Result<()> {
        let platform = self.volume().platform();
        self.turns().pool(platform, how.snapshot_bytes).map()
    }

    /// Waits until no save is in flight in the background.
    ///
    /// # Errors
    ///
    /// The first failure of a save whose handle was dropped before it could tell.
    pub fn finish_saves(&self) -> Result<()> {
        self.turns().wait_idle()
    }
}

/// What its threads are called.
const THREAD: &str = "swath-save";

/// The thread of one save.
fn run(session: Session, job: &Job, count: usize) {
    let mut end = EndOnDrop { job, outcome: None };
    // Named again to be dropped before `end` when this panics: a save that has ended holds nothing.
    let session = session;
    job.turns.wait_turn(job.ticket, || job.is_stopped());
    write_all(&session, job, count);
    let outcome = job.begin_commit().and_then(|()| session.commit());
    drop(session);
    end.outcome = Some(outcome);
}

/// Writes what is copied, on this thread and more. A failure stops the job.
fn write_all(session: &Session, job: &Job, count: usize) {
    let write = || {
        let unwinding = StopOnPanic(job);
        if let Err(error) = write(session, job) {
            job.stop(error);
        }
        drop(unwinding);
    };
    threads::scope(session.store.volume().platform(), |scope| {
        let workers: Vec<_> = (1..count)
            .map_while(|_| {
                scope
                    .spawn(THREAD, write)
                    .map_err(|error| job.stop(Error::from_io(error, "no thread to write with")))
                    .ok()
            })
            .collect();
        write();
        for worker in workers {
            // A panic has stopped the job.
            let _ = worker.join();
        }
    });
    // What was in flight at the end has come back: a queued save may be waiting for it.
    job.pool.wake();
}

fn write(session: &Session, job: &Job) -> Result<()> {
    if job.is_stopped() {
        return Ok(());
    }
    let mut writer = session.writer()?;
    loop {
        // While transfers are under way their memory is waited for, not more work: whoever copies
        // may be waiting for just that.
        match job.next(writer.in_flight() > 0) {
            Next::Write(parcel) => parcel.write(&mut writer)?,
            Next::Wait => writer.wait_some()?,
            Next::End => break,
        }
        job.pool.wake();
    }
    writer.finish()
}

impl Job {
    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Stops it, unless it is stopped, or too late.
    fn stop(&self, reason: Error) {
        let dropped = {
            let mut state = self.state.lock();
            if state.is_committing || state.stop.is_some() {
                return;
            }
            state.stop = Some(reason);
            self.is_stopped.store(true, Ordering::Release);
            std::mem::take(&mut state.parcels)
        };
        drop(dropped);
        self.state.notify_all();
        self.pool.wake();
        self.turns.wake();
    }

    /// Takes a parcel to be written.
    fn send(&self, parcel: Parcel) {
        let mut state = self.state.lock();
        if state.stop.is_none() {
            state.parcels.push_back(parcel);
            drop(state);
            self.state.notify_all();
        }
    }

    /// No more parcels will come.
    fn all_copied(&self) {
        self.state.lock().is_copied = true;
        self.state.notify_all();
    }

    /// The next parcel. Waits for one, unless there is other work to do.
    fn next(&self, has_other_work: bool) -> Next {
        let mut state = self.state.lock();
        loop {
            if state.stop.is_some() {
                return Next::End;
            }
            if let Some(parcel) = state.parcels.pop_front() {
                return Next::Write(parcel);
            }
            if state.is_copied {
                return Next::End;
            }
            if has_other_work {
                return Next::Wait;
            }
            state.wait();
        }
    }

    /// From here on it is not stopped.
    fn begin_commit(&self) -> Result<()> {
        let mut state = self.state.lock();
        if let Some(reason) = &state.stop {
            return Err(reason.clone());
        }
        state.is_committing = true;
        Ok(())
    }

    fn end(&self, outcome: Result<CheckpointInfo>) {
        let mut state = self.state.lock();
        if let Err(error) = &outcome
            && state.is_abandoned
            && error.kind() != ErrorKind::Cancelled
        {
            self.turns.keep_unheard(error);
        }
        // Whoever hears of it may begin the next.
        self.turns.leave(self.ticket);
        state.outcome = Some(outcome);
        drop(state);
        self.state.notify_all();
        self.pool.wake();
    }
}

/// Ends a job, with whatever has come of it.
struct EndOnDrop<'a> {
    job: &'a Job,
    outcome: Option<Result<CheckpointInfo>>,
}

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        let outcome = self.outcome.take().unwrap_or_else(|| {
            // Nobody is to wait for threads that are gone.
            self.job.stop(panicked());
            Err(panicked())
        });
        self.job.end(outcome);
    }
}

/// Stops a job when a thread of it panics.
struct StopOnPanic<'a>(&'a Job);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop(panicked());
        }
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::Other, "a thread of the save panicked")
}

impl SaveHandle {
    /// Waits until the save has ended. It may be asked again.
    ///
    /// # Errors
    ///
    /// Whatever failed, as [`Store::save`]; or that it was cancelled. Nothing of the checkpoint is
    /// visible then, and its space is free; [`Session::commit`] tells the one exception.
    pub fn wait(&self) -> Result<CheckpointInfo> {
        let mut state = self.job.state.lock();
        loop {
            if let Some(outcome) = state.outcome.clone() {
                state.is_heard = true;
                return outcome;
            }
            state.wait();
        }
    }

    /// Whether the save has ended: [`wait`](Self::wait) returns at once then.
    pub fn is_done(&self) -> bool {
        self.job.state.lock().outcome.is_some()
    }

    /// Cancels the save, and waits until it has ended. True when it was not committed: nothing of it
    /// is visible then, and its space is free. False when it was too late.
    pub fn cancel(&self) -> bool {
        self.job.stop(Error::new(
            ErrorKind::Cancelled,
            "the save was cancelled: nothing of it is visible",
        ));
        self.wait().is_err()
    }

    /// How long the caller was held: the time that [`Store::save_async`] took.
    /// [`AsyncOptions::snapshot_bytes`] says what decides it.
    pub fn stall(&self) -> Duration {
        self.stall
    }
}

impl Drop for SaveHandle {
    fn drop(&mut self) {
        let mut state = self.job.state.lock();
        state.is_abandoned = true;
        if let Some(Err(error)) = &state.outcome
            && !state.is_heard
        {
            self.job.turns.keep_unheard(error);
        }
    }
}

impl fmt::Debug for SaveHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaveHandle")
            .field("is_done", &self.is_done())
            .field("stall", &self.stall)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
