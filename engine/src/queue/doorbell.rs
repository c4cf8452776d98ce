//! How a thread sleeps until another one rings: a mutex and a condition variable.
//!
//! For queues without a kernel ring to sleep on. Two reasons to ring are kept apart: something is
//! *done* (the sleeper looks whether that is enough, and may go back to sleep), and somebody *asked*
//! for the sleeper to return, whatever is done. Neither is forgotten before it was answered.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::queue::Wake;

/// What one thread sleeps on. The bell itself is the handle by which others ask it to return.
#[derive(Debug, Default)]
pub(crate) struct Doorbell {
    rung: Mutex<Rung>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Rung {
    done: bool,
    asked: bool,
}

/// Why [`Doorbell::sleep`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ring {
    /// Something is done.
    Done,
    /// Somebody asked.
    Asked,
}

impl Doorbell {
    /// Sleeps until rung, now or before, and answers that one ring.
    pub(crate) fn sleep(&self) -> Ring {
        let mut rung = self.rung.lock();
        loop {
            if rung.asked {
                rung.asked = false;
                return Ring::Asked;
            }
            if rung.done {
                rung.done = false;
                return Ring::Done;
            }
            self.changed.wait(&mut rung);
        }
    }

    /// A handle that rings to say that something is done.
    pub(crate) fn for_done(self: &Arc<Self>) -> Arc<dyn Wake> {
        Arc::new(WhenDone(Arc::clone(self)))
    }

    fn ring(&self, reason: impl FnOnce(&mut Rung) -> &mut bool) {
        let mut rung = self.rung.lock();
        if !std::mem::replace(reason(&mut rung), true) {
            drop(rung);
            self.changed.notify_one();
        }
    }
}

impl Wake for Doorbell {
    fn wake(&self) {
        self.ring(|rung| &mut rung.asked);
    }
}

#[derive(Debug)]
struct WhenDone(Arc<Doorbell>);

impl Wake for WhenDone {
    fn wake(&self) {
        self.0.ring(|rung| &mut rung.done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_reasons_are_answered_once() {
        let bell = Arc::new(Doorbell::default());
        let done = bell.for_done();
        done.wake();
        done.wake();
        bell.wake();
        assert_eq!(bell.sleep(), Ring::Asked);
        assert_eq!(bell.sleep(), Ring::Done);
        bell.wake();
        assert_eq!(bell.sleep(), Ring::Asked, "a later ring is a new one");
    }

    #[test]
    fn a_sleeper_is_woken_by_another_thread() {
        let bell = Arc::new(Doorbell::default());
        let ringer = Arc::clone(&bell);
        let thread = std::thread::spawn(move || ringer.wake());
        assert_eq!(bell.sleep(), Ring::Asked);
        thread.join().unwrap();
    }
}
