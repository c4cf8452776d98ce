//! The slots of a lane: where requests and pieces lie while they are in flight.
//!
//! A slot holds one piece, and the request too when the piece is its first: a request that lies on
//! one device in one run, which most are, takes one slot. Slots are used again and again; the list
//! grows to the most that were ever in flight at once.

use std::mem;
use std::ops::{Index, IndexMut};

use crate::buf::Buffers;
use crate::error::{Error, Result};
use crate::lane::piece::Piece;
use crate::op::{Completion, OpKind, Request};

/// A request in flight.
#[derive(Debug)]
pub(super) struct RequestState {
    pub(super) buffers: Buffers,
    pub(super) token: u64,
    pub(super) started_ns: u64,
    /// Bytes of the pieces that are done.
    pub(super) bytes: u64,
    pub(super) error: Option<Error>,
    /// Pieces that have not ended. 0: this slot holds no request.
    pub(super) pieces_left: u32,
    pub(super) kind: OpKind,
    pub(super) fua: bool,
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
            pieces_left: 0,
            kind: OpKind::Flush,
            fua: false,
            is_split: false,
            is_called: false,
        }
    }

    /// Makes it a request of one piece. A request that ended left no buffers and no error behind.
    #[inline(always)]
    pub(super) fn begin(&mut self, request: Request, started_ns: u64, is_called: bool) {
        debug_assert!(self.error.is_none(), "the last request's error was taken");
        self.buffers = request.buffers;
        self.token = request.token;
        self.started_ns = started_ns;
        self.bytes = 0;
        self.pieces_left = 1;
        self.kind = request.kind;
        self.fua = request.fua;
        self.is_split = false;
        self.is_called = is_called;
    }

    /// Whether it has one piece and goes out with the completions of the visit.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        !self.is_split && !self.is_called
    }

    /// Its completion, which takes the buffers.
    #[inline]
    pub(super) fn end(&mut self, result: Result<u64>) -> Completion {
        Completion {
            token: self.token,
            kind: self.kind,
            buffers: mem::take(&mut self.buffers),
            result,
        }
    }
}

/// One slot.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) request: RequestState,
    pub(super) piece: Piece,
}

/// All slots of a lane.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            slots: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
        }
    }

    /// Takes a slot, to be filled in place.
    #[inline]
    pub(super) fn take(&mut self) -> u32 {
        match self.free.pop() {
            Some(number) => number,
            None => self.grow(),
        }
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        let number = u32::try_from(self.slots.len()).expect("fewer than 2^32 are in flight");
        self.slots.push(Slot {
            request: RequestState::vacant(),
            piece: Piece::vacant(),
        });
        // So that giving a slot back never allocates.
        self.free.reserve(self.slots.len());
        number
    }

    /// Gives a slot back.
    #[inline]
    pub(super) fn release(&mut self, number: u32) {
        self.free.push(number);
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
