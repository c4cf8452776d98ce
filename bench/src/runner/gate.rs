//! The start line: lanes get ready on their own threads, then all start at one moment, or none.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Where lanes wait until every one of them is ready.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    missing: u32,
    failed: bool,
    started: Option<Instant>,
}

/// One lane's place at the gate. Dropping it before it is ready lets nobody start, so that a lane
/// that fails or panics never leaves the others waiting.
#[derive(Debug)]
pub(crate) struct Ticket<'gate> {
    gate: &'gate Gate,
    used: bool,
}

impl Gate {
    /// A gate for so many lanes.
    pub(crate) fn new(lanes: u32) -> Self {
        let state = State {
            missing: lanes,
            failed: false,
            started: None,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one lane.
    pub(crate) fn ticket(&self) -> Ticket<'_> {
        Ticket {
            gate: self,
            used: false,
        }
    }

    fn wait_until_decided(&self, mut state: MutexGuard<'_, State>) -> Option<Instant> {
        while state.started.is_none() && !state.failed {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if state.failed { None } else { state.started }
    }

    /// Waits for the start without taking part: the moment it was, or none if a lane failed.
    pub(crate) fn wait(&self) -> Option<Instant> {
        self.wait_until_decided(self.lock())
    }
}

impl Ticket<'_> {
    /// Ready. Waits for the others: the moment all start, or none if one of them failed.
    pub(crate) fn ready(mut self) -> Option<Instant> {
        self.used = true;
        let gate = self.gate;
        let mut state = gate.lock();
        state.missing -= 1;
        if state.missing == 0 && !state.failed {
            state.started = Some(Instant::now());
            gate.changed.notify_all();
        }
        gate.wait_until_decided(state)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.used {
            self.gate.lock().failed = true;
            self.gate.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn all_start_at_one_moment() {
        let gate = Gate::new(3);
        thread::scope(|scope| {
            let lanes: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| gate.ticket().ready().unwrap()))
                .collect();
            let start = gate.wait().unwrap();
            assert!(lanes.into_iter().all(|lane| lane.join().unwrap() == start));
        });
    }

    #[test]
    fn one_that_fails_lets_nobody_start_and_nobody_wait() {
        let gate = Gate::new(2);
        thread::scope(|scope| {
            let ready = scope.spawn(|| gate.ticket().ready());
            drop(gate.ticket());
            assert_eq!(ready.join().unwrap(), None);
            assert_eq!(gate.wait(), None);
        });
    }
}
