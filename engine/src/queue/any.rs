//! [`AnyQueue`]: a queue of whatever kind, with the ring known by its own type.
//!
//! A lane hands over every operation by itself. Through `dyn Queue` each would be written to memory
//! and read back across the call; with the ring's type known the two are one function. Nothing else
//! differs: the other kinds, a test's own among them, take the same way through the trait.

use std::any::Any;
use std::ops::{Deref, DerefMut};

use crate::op::OpKind;
use crate::queue::uring::UringQueue;
use crate::queue::{Queue, RawOp};

/// A queue, and whether it is the ring.
#[derive(Debug)]
pub(crate) enum AnyQueue {
    Ring(Box<UringQueue>),
    Other(Box<dyn Queue>),
}

impl AnyQueue {
    /// As [`Queue::submit`], for the operation of `kind` that `make` makes. Made where it is used: one
    /// whose address is never taken stays in registers on its way into the ring.
    ///
    /// # Safety
    ///
    /// As [`Queue::submit`].
    #[inline(always)]
    pub(crate) unsafe fn submit(&mut self, kind: OpKind, make: impl FnOnce() -> RawOp) {
        match self {
            // SAFETY: passed on from this function's own contract.
            Self::Ring(ring) => unsafe { ring.start(kind, make) },
            // SAFETY: as above.
            Self::Other(queue) => unsafe { queue.submit(&make()) },
        }
    }
}

impl From<Box<dyn Queue>> for AnyQueue {
    fn from(queue: Box<dyn Queue>) -> Self {
        if !(&*queue as &dyn Any).is::<UringQueue>() {
            return Self::Other(queue);
        }
        let queue: Box<dyn Any> = queue;
        Self::Ring(queue.downcast().expect("its type was looked at just now"))
    }
}

impl Deref for AnyQueue {
    type Target = dyn Queue;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Ring(ring) => &**ring,
            Self::Other(queue) => &**queue,
        }
    }
}

impl DerefMut for AnyQueue {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Ring(ring) => &mut **ring,
            Self::Other(queue) => &mut **queue,
        }
    }
}
