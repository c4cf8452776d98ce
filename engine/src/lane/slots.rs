//! The slots of a lane: where requests and pieces lie while they are in flight.
//!
//! A slot holds one piece, and the request too when the piece is its first: a request that lies on
//! one device in one run, which most are, takes one slot. Slots are used again and again; the list
//! grows to the most that were ever in flight at once.
//!
//! Most requests are *plain*: one operation on one run of memory, all of whose bytes move at once.
//! A slot that is free says of everything but the request's own words what is right for a plain one,
//! so beginning and ending such a request leaves it alone. Whoever makes something else of a request
//! puts that back when it ends.

use std::mem::{self, ManuallyDrop};
use std::ops::{Index, IndexMut};

use crate::buf::Buffers;
use crate::error::{Error, Result};
use crate::lane::piece::Piece;
use crate::op::{Completion, OpKind, Request};

/// A request in flight. Its kind is that of its first piece.
#[derive(Debug)]
pub(super) struct RequestState {
    pub(super) buffers: Buffers,
    pub(super) token: u64,
    pub(super) started_ns: u64,
    /// Bytes of the pieces that are done.
    pub(super) bytes: u64,
    pub(super) error: Option<Error>,
    /// Pieces that have not ended.
    pub(super) pieces_left: u32,
    /// Whether it has more than one piece.
    pub(super) is_split: bool,
    /// Whether `call` waits for it.
    pub(super) is_called: bool,
}

impl RequestState {
    const fn vacant() -> Self {
        Self {
            buffers: Buffers::none(),
            token: 0,
            started_ns: 0,
            bytes: 0,
            error: None,
            pieces_left: 1,
            is_split: false,
            is_called: false,
        }
    }

    /// Ends it, plain or not.
    #[inline]
    pub(super) fn end(&mut self, kind: OpKind, result: Result<u64>) -> Completion {
        Completion {
            token: self.token,
            kind,
            buffers: mem::take(&mut self.buffers),
            result,
        }
    }

    /// Makes it one that a plain request can begin in. Its buffers were taken.
    pub(super) fn reset(&mut self) {
        *self = Self::vacant();
    }
}

/// One slot. Two cache lines, so that a slot's number becomes its address by a shift.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Slot {
    pub(super) request: RequestState,
    pub(super) piece: Piece,
    /// The number of the next free slot, while this one is free.
    next_free: u32,
}

const _: () = assert!(size_of::<Slot>() == 128, "a slot is two cache lines");

impl Slot {
    /// Puts a request into it: whole, if nothing else is said before it ends.
    #[inline(always)]
    pub(super) fn begin(&mut self, request: Request, started_ns: u64) {
        // Nothing is there to be dropped: a free slot has no buffers.
        debug_assert!(
            self.request.buffers.is_none(),
            "the last buffers were taken"
        );
        let _ = ManuallyDrop::new(mem::replace(&mut self.request.buffers, request.buffers));
        self.request.token = request.token;
        self.request.started_ns = started_ns;
        self.piece.kind = request.kind;
        self.piece.fua = request.fua;
    }
}

/// All slots of a lane.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// The free slot that is used next, the one that became free last. [`NONE`]: all are in use.
    first_free: u32,
}

/// No slot.
const NONE: u32 = u32::MAX;

impl Slots {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            slots: Vec::with_capacity(capacity),
            first_free: NONE,
        }
    }

    /// Takes a slot, to be filled in place.
    #[inline]
    pub(super) fn take(&mut self) -> (u32, &mut Slot) {
        if self.first_free == NONE {
            self.grow();
        }
        let number = self.first_free;
        let slot = &mut self.slots[number as usize];
        self.first_free = slot.next_free;
        (number, slot)
    }

    #[cold]
    fn grow(&mut self) {
        let number = u32::try_from(self.slots.len()).unwrap_or(NONE);
        assert!(number != NONE, "fewer than 2^32 - 1 are in flight");
        self.slots.push(Slot {
            request: RequestState::vacant(),
            piece: Piece::vacant(number),
            next_free: NONE,
        });
        self.first_free = number;
    }

    /// Gives a slot back.
    #[inline]
    pub(super) fn release(&mut self, number: u32) {
        self.slots[number as usize].next_free = self.first_free;
        self.first_free = number;
    }
}

impl Index<u32> for Slots {
    type Output = Slot;

    #[inline]
    fn index(&self, number: u32) -> &Slot {
        &self.slots[number as usize]
    }
}

impl IndexMut<u32> for Slots {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut Slot {
        &mut self.slots[number as usize]
    }
}
