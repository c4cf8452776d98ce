//! What waits for a while before it is tried again.
//!
//! A device that says `EAGAIN` to the same operation many times in a row wants time, not attempts: in
//! a loop all attempts would be used up within a millisecond, with a core kept busy meanwhile. So
//! after the first few, each attempt waits for a pause that doubles from one to the next.
//!
//! - Time is the queue's own, so a simulation decides how it goes by.
//! - The others are not held up. A piece that was postponed goes back to the queue by the first visit
//!   after its time; a visit that waits for other operations waits for these.
//! - Only who blocks, and has nothing else in the queue to wait for, sleeps: until the first piece is
//!   due, a few milliseconds at most.

use crate::lane::Lane;

/// A piece between two attempts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Postponed {
    piece: u32,
    due_ns: u64,
}

impl Lane {
    /// Keeps a piece from the queue for a while.
    #[cold]
    pub(super) fn postpone(&mut self, piece: u32, pause_ns: u64) {
        let due_ns = self.queue.now_ns().saturating_add(pause_ns);
        self.postponed.push(Postponed { piece, due_ns });
    }

    /// Lets those go on whose time has come.
    #[cold]
    pub(super) fn resume(&mut self) {
        let now_ns = self.queue.now_ns();
        let backlog = &mut self.backlog;
        self.postponed.retain(|postponed| {
            let is_due = postponed.due_ns <= now_ns;
            if is_due {
                backlog.push_back(postponed.piece);
            }
            !is_due
        });
    }

    /// Sleeps until the first of those that were postponed is due, and lets it go on. For who blocks
    /// and has nothing in the queue. Returns whether there was one.
    #[cold]
    pub(super) fn sleep_until_due(&mut self) -> bool {
        let first = self.postponed.iter().enumerate();
        let Some((place, first)) = first.min_by_key(|(_, postponed)| postponed.due_ns) else {
            return false;
        };
        let (piece, due_ns) = (first.piece, first.due_ns);
        let now_ns = self.queue.now_ns();
        self.queue.pause(due_ns.saturating_sub(now_ns));
        // Not asked again whether it is due: then a clock that stands still would be waited for.
        self.postponed.swap_remove(place);
        self.backlog.push_back(piece);
        true
    }
}
