//! [`Turns`]: the saves of one store that go on in the background, and whose turn it is.
//!
//! - One save copies at a time, and the copies are written in the order in which they were made. So
//!   a save whose copy is complete needs nobody's room to end, and those behind it get their room
//!   from it: none waits for a later one.
//! - A save that has left has no thread, no space and no handle of the store any more.
//! - Locks are taken in this order: a job's, then this.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use swath_engine::{Gate, GateGuard, Platform};

use crate::error::{Error, Result};
use crate::snapshot::SnapshotPool;

/// The saves in flight of one store.
pub(crate) struct Turns {
    /// Changes when a save has left, or was told to stop.
    state: Gate<TurnState>,
    /// Held by the save that copies.
    copying: Gate<()>,
}

#[derive(Default)]
struct TurnState {
    next_ticket: u64,
    in_flight: BTreeSet<u64>,
    /// Kept between saves: its memory is mapped and warm.
    pool: Option<Arc<SnapshotPool>>,
    /// The first failure that nobody was there to hear.
    unheard: Option<Error>,
}

impl Turns {
    fn new(platform: &dyn Platform) -> Self {
        Self {
            state: Gate::new(platform, "saves in the background", TurnState::default()),
            copying: Gate::new(platform, "the turn to copy", ()),
        }
    }

    /// The right to copy. With `queue` it waits for whoever copies; else it is refused while any
    /// save is in flight.
    pub(crate) fn copy_turn(&self, queue: bool) -> Option<GateGuard<'_, ()>> {
        if queue {
            return Some(self.copying.lock());
        }
        let turn = self.copying.try_lock()?;
        self.state.lock().in_flight.is_empty().then_some(turn)
    }

    /// The pool of this size. Another size, and it is made anew; saves in flight keep theirs.
    pub(crate) fn pool(&self, platform: &dyn Platform, bytes: u64) -> Arc<SnapshotPool> {
        let mut state = self.state.lock();
        match &state.pool {
            Some(pool) if pool.bytes() == SnapshotPool::bytes_of(bytes) => Arc::clone(pool),
            _ => {
                let pool = Arc::new(SnapshotPool::new(platform, bytes));
                state.pool = Some(Arc::clone(&pool));
                pool
            }
        }
    }

    /// A save begins; it is behind all that began before. The caller has the turn to copy.
    pub(crate) fn enter(&self) -> u64 {
        let mut state = self.state.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.in_flight.insert(ticket);
        ticket
    }

    /// Waits until no earlier save is in flight, or until `is_stopped`.
    pub(crate) fn wait_turn(&self, ticket: u64, is_stopped: impl Fn() -> bool) {
        let mut state = self.state.lock();
        while state.in_flight.first() != Some(&ticket) && !is_stopped() {
            state.wait();
        }
    }

    /// A save has ended.
    pub(crate) fn leave(&self, ticket: u64) {
        self.state.lock().in_flight.remove(&ticket);
        self.state.notify_all();
    }

    /// Makes those who wait look whether they are to stop.
    pub(crate) fn wake(&self) {
        drop(self.state.lock());
        self.state.notify_all();
    }

    /// Keeps the failure of a save whose handle is gone.
    pub(crate) fn keep_unheard(&self, error: &Error) {
        tracing::error!(%error, "a save in the background failed");
        let mut state = self.state.lock();
        state.unheard.get_or_insert_with(|| error.clone());
    }

    /// Waits until no save is in flight, and tells the first failure that nobody heard.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        let mut state = self.state.lock();
        while !state.in_flight.is_empty() {
            state.wait();
        }
        state.unheard.take().map_or(Ok(()), Err)
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns")
            .field("in_flight", &self.state.lock().in_flight.len())
            .finish_non_exhaustive()
    }
}

/// Shared by every handle of a store that a caller has; the threads that save in the background
/// have handles without it. When the last is gone it waits for them, so that a program which drops
/// its store and ends has saved what it began to save.
#[derive(Debug)]
pub(crate) struct WaitAtDrop(Arc<Turns>);

impl WaitAtDrop {
    pub(crate) fn new(platform: &dyn Platform) -> Self {
        Self(Arc::new(Turns::new(platform)))
    }

    pub(crate) fn turns(&self) -> &Arc<Turns> {
        &self.0
    }
}

impl Drop for WaitAtDrop {
    fn drop(&mut self) {
        // What failed and nobody heard has been logged.
        let _ = self.0.wait_idle();
    }
}
