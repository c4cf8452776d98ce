//! [`Gate`]: a value behind a lock, and a place to wait for it to change.
//!
//! A mutex and a condition variable in one, for whatever one thread holds or waits for while another
//! does I/O. Where the platform has a [`Scheduler`] both go through it; so a value that is locked
//! while a gate is being locked or waited for is behind a gate itself. Locks that are held for a few
//! instructions and lock nothing else may stay plain.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::platform::Platform;
use crate::scheduler::Scheduler;

/// A value behind a lock, and a place to wait for it to change.
pub struct Gate<T> {
    value: Mutex<T>,
    waiters: Waiters,
}

/// Where threads wait.
enum Waiters {
    /// For the lock: in the mutex itself. For a change: here.
    Kernel(Condvar),
    /// For either, at a place of its own: a change that nobody tells of must not be seen because
    /// the lock was let go.
    Scheduled {
        scheduler: Arc<dyn Scheduler>,
        unlocked: u64,
        changed: u64,
    },
}

/// The right to the value of a [`Gate`]; given up when dropped.
pub struct GateGuard<'a, T> {
    gate: &'a Gate<T>,
    /// None only within a wait.
    guard: Option<MutexGuard<'a, T>>,
}

impl<T> Gate<T> {
    /// A gate for threads of `platform`. Reports say `name` for what is waited for.
    pub fn new(platform: &dyn Platform, name: &'static str, value: T) -> Self {
        Self::scheduled_by(platform.scheduler(), name, value)
    }

    /// As [`new`](Self::new), by the platform's scheduler.
    pub(crate) fn scheduled_by(
        scheduler: Option<Arc<dyn Scheduler>>,
        name: &'static str,
        value: T,
    ) -> Self {
        let waiters = match scheduler {
            None => Waiters::Kernel(Condvar::new()),
            Some(scheduler) => Waiters::Scheduled {
                unlocked: scheduler.place(name),
                changed: scheduler.place(name),
                scheduler,
            },
        };
        Self {
            value: Mutex::new(value),
            waiters,
        }
    }

    /// Waits for the lock and takes it.
    pub fn lock(&self) -> GateGuard<'_, T> {
        if let Waiters::Scheduled { scheduler, .. } = &self.waiters {
            scheduler.pass();
        }
        self.guard(self.lock_value())
    }

    /// Takes the lock if nobody has it.
    pub fn try_lock(&self) -> Option<GateGuard<'_, T>> {
        if let Waiters::Scheduled { scheduler, .. } = &self.waiters {
            scheduler.pass();
        }
        self.value.try_lock().map(|guard| self.guard(guard))
    }

    /// The value, for who has the gate to himself.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Lets every thread that [waits](GateGuard::wait) look again.
    pub fn notify_all(&self) {
        match &self.waiters {
            Waiters::Kernel(condvar) => {
                condvar.notify_all();
            }
            Waiters::Scheduled {
                scheduler, changed, ..
            } => scheduler.wake(*changed),
        }
    }

    fn guard<'a>(&'a self, guard: MutexGuard<'a, T>) -> GateGuard<'a, T> {
        GateGuard {
            gate: self,
            guard: Some(guard),
        }
    }

    fn lock_value(&self) -> MutexGuard<'_, T> {
        match &self.waiters {
            Waiters::Kernel(_) => self.value.lock(),
            Waiters::Scheduled {
                scheduler,
                unlocked,
                ..
            } => loop {
                if let Some(guard) = self.value.try_lock() {
                    break guard;
                }
                scheduler.wait(*unlocked);
            },
        }
    }
}

impl<T> GateGuard<'_, T> {
    /// Gives the lock up, waits until somebody [notifies](Gate::notify_all), and takes it again. It
    /// may return without: look whether what was waited for is there.
    pub fn wait(&mut self) {
        let gate = self.gate;
        match &gate.waiters {
            Waiters::Kernel(condvar) => condvar.wait(self.held()),
            Waiters::Scheduled {
                scheduler,
                unlocked,
                changed,
            } => {
                self.guard = None;
                scheduler.wake(*unlocked);
                scheduler.wait(*changed);
                self.guard = Some(gate.lock_value());
            }
        }
    }
}

impl<T> GateGuard<'_, T> {
    /// Gives the lock up while `work` runs, and takes it again.
    pub fn unlocked<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let gate = self.gate;
        self.guard = None;
        if let Waiters::Scheduled {
            scheduler,
            unlocked,
            ..
        } = &gate.waiters
        {
            scheduler.wake(*unlocked);
        }
        let result = work();
        self.guard = Some(gate.lock_value());
        result
    }
}

impl<'a, T> GateGuard<'a, T> {
    fn held(&mut self) -> &mut MutexGuard<'a, T> {
        self.guard.as_mut().expect("it is held outside of a wait")
    }
}

impl<T> Deref for GateGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().expect("it is held outside of a wait")
    }
}

impl<T> DerefMut for GateGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held()
    }
}

impl<T> Drop for GateGuard<'_, T> {
    fn drop(&mut self) {
        self.guard = None;
        if let Waiters::Scheduled {
            scheduler,
            unlocked,
            ..
        } = &self.gate.waiters
        {
            scheduler.wake(*unlocked);
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Gate<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never waits.
        f.debug_tuple("Gate").field(&self.value).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for GateGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::device::Kernel;

    #[test]
    fn whoever_waits_sees_the_change() {
        let gate = Gate::new(&Kernel, "a number", 0);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut number = gate.lock();
                while *number < 3 {
                    number.wait();
                }
                *number
            });
            for _ in 0..3 {
                *gate.lock() += 1;
                gate.notify_all();
            }
            assert_eq!(waiter.join().unwrap(), 3);
        });
    }

    #[test]
    fn one_has_the_lock_at_a_time() {
        let mut gate = Gate::new(&Kernel, "a number", 1);
        let held = gate.lock();
        assert!(gate.try_lock().is_none());
        assert_eq!(format!("{gate:?}"), "Gate(Mutex { data: <locked> })");
        drop(held);
        *gate.try_lock().unwrap() += 1;
        assert_eq!(*gate.get_mut(), 2);
    }
}
