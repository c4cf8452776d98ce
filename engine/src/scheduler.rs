//! [`Scheduler`]: who decides which thread runs, where it is not the kernel.
//!
//! Threads of one volume wait for one another: for a commit's turn, for room in a pool, for a
//! worker's answer, for a thread's end. All of these waits go through a [`Gate`](crate::Gate) or
//! [`threads`](crate::threads), and both ask the [`Platform`](crate::Platform) for its scheduler. Real
//! platforms have none, and then they are a mutex, a condition variable and a thread. A simulated
//! one has a scheduler of its own: it lets one thread run at a time and chooses the next by a seed,
//! so that every interleaving can be had again.
//!
//! What a scheduler promises: one of its threads runs at a time, and it changes only within the
//! calls below, never between them. So there is no moment between looking and waiting in which a
//! wake-up could be lost.

use std::fmt::Debug;

/// Lets the threads of a platform run, one at a time.
pub trait Scheduler: Debug + Send + Sync {
    /// A thread of this name is about to be started. Gives its number.
    fn announce(&self, name: &str) -> u64;

    /// The first call on a thread that was announced. Returns when it is its turn.
    fn begin(&self, thread: u64);

    /// The last call on a thread; or the only one for a thread that was announced and could not be
    /// started.
    fn end(&self, thread: u64);

    /// Blocks the calling thread until another has ended.
    fn join(&self, thread: u64);

    /// A number for a new place at which threads wait; `name` says in reports what for.
    fn place(&self, name: &'static str) -> u64;

    /// Blocks the calling thread until the place is woken.
    fn wait(&self, place: u64);

    /// Lets every thread that waits at the place go on when its turn comes.
    fn wake(&self, place: u64);

    /// A moment at which another thread may run first.
    fn pass(&self);
}
