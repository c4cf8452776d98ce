//! Threads that the platform knows of: [`spawn`] and [`scope`], as in [`std::thread`].
//!
//! Where the platform has a [`Scheduler`] it hears of every thread before it starts, when it starts
//! and when it ends, and whoever joins one waits by it.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::thread;

use crate::platform::Platform;
use crate::scheduler::Scheduler;

/// What the scheduler knows of a thread; nothing where there is none.
#[derive(Clone)]
struct Enlisted(Option<(Arc<dyn Scheduler>, u64)>);

impl Enlisted {
    fn new(scheduler: Option<Arc<dyn Scheduler>>, name: &str) -> Self {
        Self(scheduler.map(|scheduler| {
            let thread = scheduler.announce(name);
            (scheduler, thread)
        }))
    }

    /// What the thread does.
    fn run<T>(self, work: impl FnOnce() -> T) -> T {
        if let Some((scheduler, thread)) = &self.0 {
            scheduler.begin(*thread);
        }
        // After all that the work owns, however it ends.
        let _end = EndOnDrop(self);
        work()
    }

    fn end(&self) {
        if let Some((scheduler, thread)) = &self.0 {
            scheduler.end(*thread);
        }
    }

    fn join(&self) {
        if let Some((scheduler, thread)) = &self.0 {
            scheduler.join(*thread);
        }
    }
}

struct EndOnDrop(Enlisted);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A thread that was started by [`spawn`]. Dropping it lets the thread go on.
pub struct Thread<T> {
    handle: thread::JoinHandle<T>,
    enlisted: Enlisted,
}

impl<T> Thread<T> {
    /// Waits until it has ended, and gives its result, or what it panicked with.
    pub fn join(self) -> thread::Result<T> {
        self.enlisted.join();
        self.handle.join()
    }

    /// Whether it is the calling thread.
    pub fn is_current(&self) -> bool {
        self.handle.thread().id() == thread::current().id()
    }
}

/// Starts a thread.
///
/// # Errors
///
/// The system has no thread to give.
pub fn spawn<T: Send + 'static>(
    platform: &dyn Platform,
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Thread<T>> {
    let enlisted = Enlisted::new(platform.scheduler(), name);
    let running = enlisted.clone();
    let spawned = thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || running.run(work));
    match spawned {
        Ok(handle) => Ok(Thread { handle, enlisted }),
        Err(error) => {
            enlisted.end();
            Err(error)
        }
    }
}

/// A time during which threads may borrow. Made by [`scope`].
pub struct Scope<'scope, 'env> {
    scope: &'scope thread::Scope<'scope, 'env>,
    scheduler: Option<Arc<dyn Scheduler>>,
    started: RefCell<Vec<Enlisted>>,
}

/// A thread that was started in a [`Scope`].
pub struct ScopedThread<'scope, T> {
    handle: thread::ScopedJoinHandle<'scope, T>,
    enlisted: Enlisted,
}

impl<T> ScopedThread<'_, T> {
    /// Waits until it has ended, and gives its result, or what it panicked with.
    pub fn join(self) -> thread::Result<T> {
        self.enlisted.join();
        self.handle.join()
    }
}

/// Runs `work`, which may start threads that borrow from outside it. Returns when all of them have
/// ended.
pub fn scope<'env, T>(
    platform: &dyn Platform,
    work: impl for<'scope> FnOnce(&Scope<'scope, 'env>) -> T,
) -> T {
    thread::scope(|scope| {
        work(&Scope {
            scope,
            scheduler: platform.scheduler(),
            started: RefCell::default(),
        })
    })
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread.
    ///
    /// # Errors
    ///
    /// The system has no thread to give.
    pub fn spawn<T: Send + 'scope>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> io::Result<ScopedThread<'scope, T>> {
        let enlisted = Enlisted::new(self.scheduler.clone(), name);
        let running = enlisted.clone();
        let spawned = thread::Builder::new()
            .name(name.to_owned())
            .spawn_scoped(self.scope, move || running.run(work));
        match spawned {
            Ok(handle) => {
                self.started.borrow_mut().push(enlisted.clone());
                Ok(ScopedThread { handle, enlisted })
            }
            Err(error) => {
                enlisted.end();
                Err(error)
            }
        }
    }
}

impl Drop for Scope<'_, '_> {
    fn drop(&mut self) {
        // The kernel's wait at the end of the scope is one that a scheduler does not see.
        self.started.get_mut().iter().for_each(Enlisted::join);
    }
}

impl<T> std::fmt::Debug for Thread<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Thread({:?})", self.handle.thread().name())
    }
}

impl<T> std::fmt::Debug for ScopedThread<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ScopedThread({:?})", self.handle.thread().name())
    }
}

impl std::fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scope({} threads)", self.started.borrow().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Kernel;

    #[test]
    fn threads_give_their_results_and_their_panics() {
        let thread = spawn(&Kernel, "named", || {
            thread::current().name().map(str::to_owned)
        });
        let thread = thread.unwrap();
        assert!(!thread.is_current());
        assert_eq!(thread.join().unwrap().as_deref(), Some("named"));
        let thread = spawn(&Kernel, "panics", || panic!("on purpose")).unwrap();
        thread.join().unwrap_err();
    }

    #[test]
    fn a_scope_borrows_and_waits() {
        let mut numbers = [1, 2, 3];
        let sum = scope(&Kernel, |scope| {
            let (first, rest) = numbers.split_first_mut().unwrap();
            scope.spawn("unjoined", || *first = 10).unwrap();
            let rest: &[i32] = rest;
            let thread = scope
                .spawn("sum", move || rest.iter().sum::<i32>())
                .unwrap();
            thread.join().unwrap()
        });
        assert_eq!((sum, numbers[0]), (5, 10));
    }
}
