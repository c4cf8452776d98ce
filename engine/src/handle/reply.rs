//! [`Reply`]: one value that one thread owes another, or the news that it will not come.

use std::sync::Arc;

use crate::gate::Gate;
use crate::scheduler::Scheduler;

/// What is owed. Dropped without a value, it tells that none will come.
pub(super) struct Reply<T>(Arc<Gate<State<T>>>);

/// Who waits for it.
pub(super) struct Awaited<T>(Arc<Gate<State<T>>>);

enum State<T> {
    Owed,
    Given(T),
    Never,
}

pub(super) fn reply<T>(
    scheduler: Option<Arc<dyn Scheduler>>,
    name: &'static str,
) -> (Reply<T>, Awaited<T>) {
    let gate = Arc::new(Gate::scheduled_by(scheduler, name, State::Owed));
    (Reply(Arc::clone(&gate)), Awaited(gate))
}

impl<T> Reply<T> {
    pub(super) fn give(self, value: T) {
        *self.0.lock() = State::Given(value);
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if matches!(*state, State::Owed) {
            *state = State::Never;
        }
        drop(state);
        self.0.notify_all();
    }
}

impl<T> Awaited<T> {
    /// Blocks until the value is given, or none will come.
    pub(super) fn wait(self) -> Option<T> {
        let mut state = self.0.lock();
        loop {
            match std::mem::replace(&mut *state, State::Owed) {
                State::Owed => state.wait(),
                State::Given(value) => return Some(value),
                State::Never => return None,
            }
        }
    }
}
