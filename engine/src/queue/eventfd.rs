//! How a thread that sleeps in the kernel's ring is woken: an eventfd(2) that the ring polls.
//!
//! - *Signalled* says that the descriptor is readable or about to be: while it stands, another
//!   signal costs one atomic exchange and no system call.
//! - *Asked* says that somebody wants the wait to return, as against a helper thread that has
//!   finished something and only wants it looked at.
//! - The sleeper clears the signal first and looks at what it promised afterwards. A signal that
//!   comes between is then either seen by that look or makes the descriptor readable again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use crate::queue::Wake;

/// The wake-up of one sleeping thread. As a [`Wake`] it asks that thread's wait to return.
#[derive(Debug)]
pub(crate) struct EventWake {
    event: OwnedFd,
    signalled: AtomicBool,
    asked: AtomicBool,
}

impl EventWake {
    /// Nobody has signalled yet.
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self {
            event,
            signalled: AtomicBool::new(false),
            asked: AtomicBool::new(false),
        }))
    }

    /// What the ring polls: readable from a signal to the next [`clear`](Self::clear).
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Ends the thread's sleep, without asking its wait to return.
    #[expect(
        clippy::host_endian_bytes,
        reason = "eventfd(2) takes the machine's own order"
    )]
    pub(crate) fn signal(&self) {
        // AcqRel: what the signaller did before is seen by the thread that clears the flag, even
        // where this exchange finds it standing and writes nothing.
        if !self.signalled.swap(true, Ordering::AcqRel) {
            // The counter is 0 or 1 here, so the write cannot find it full; and a descriptor of
            // our own, open as long as we are, cannot be refused.
            let written = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
            debug_assert!(
                written.is_ok(),
                "an eventfd takes a count of 1: {written:?}"
            );
        }
    }

    /// Takes the signal back. May be called without one. The caller looks afterwards at what
    /// signals promise: [`take_asked`](Self::take_asked), and what helper threads have finished.
    ///
    /// The counter is read before the flag falls. The other way round, a signal between the two
    /// would leave the flag standing over an empty counter, and nobody would wake us any more.
    /// This way a signaller that was held up between flag and write wakes us once for nothing.
    pub(crate) fn clear(&self) {
        let mut count = [0_u8; 8];
        // EAGAIN: the counter is 0 already.
        let _ = rustix::io::read(&self.event, &mut count);
        self.signalled.swap(false, Ordering::AcqRel);
    }

    /// Whether a wait was asked to return; answers it.
    pub(crate) fn take_asked(&self) -> bool {
        // The load spares the common case the exclusive cache line.
        self.asked.load(Ordering::Relaxed) && self.asked.swap(false, Ordering::AcqRel)
    }

    /// A handle for helper threads: [`signal`](Self::signal) as a [`Wake`].
    pub(crate) fn for_done(self: &Arc<Self>) -> Arc<dyn Wake> {
        Arc::new(WhenDone(Arc::clone(self)))
    }
}

impl Wake for EventWake {
    fn wake(&self) {
        self.asked.store(true, Ordering::Release);
        self.signal();
    }
}

#[derive(Debug)]
struct WhenDone(Arc<EventWake>);

impl Wake for WhenDone {
    fn wake(&self) {
        self.0.signal();
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(wake: &EventWake) -> bool {
        let mut list = [PollFd::new(&wake.event, PollFlags::IN)];
        poll(
            &mut list,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .unwrap()
            == 1
    }

    #[test]
    fn wakes_are_one_signal_until_cleared() {
        let wake = EventWake::new().unwrap();
        assert!(!is_readable(&wake));
        for _ in 0..3 {
            wake.wake();
        }
        assert!(is_readable(&wake));
        wake.clear();
        assert!(!is_readable(&wake));
        assert!(wake.take_asked());
        assert!(!wake.take_asked());
        wake.wake();
        assert!(is_readable(&wake));
    }

    #[test]
    fn a_helper_signals_without_asking() {
        let wake = EventWake::new().unwrap();
        wake.for_done().wake();
        assert!(is_readable(&wake));
        assert!(!wake.take_asked());
    }
}
