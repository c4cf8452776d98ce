//! How a request begins: its slot, its pieces, and their raw operations for the queue.
//!
//! Most requests are one piece, and go from the caller's registers into the queue by
//! [`start_whole`](Lane::start_whole). The others, and those that make no sense, take the long way.

use crate::error::Result;
use crate::lane::Lane;
use crate::lane::piece::Run;
use crate::lane::slots::Slot;
use crate::op::{Completion, Request, Segment};
use crate::queue::{Memory, RAW_BYTES_MAX, RawOp};

impl Lane {
    #[inline(never)]
    pub(super) fn submit_in_full(&mut self, request: Request, segments: &[Segment]) {
        if let Err(completion) = self.start_in_full(request, segments) {
            self.ready.push_back(*completion);
        }
    }

    /// Starts a request and returns its slot's number, or the completion of one that ends at once.
    pub(super) fn start(
        &mut self,
        request: Request,
        segments: &[Segment],
    ) -> std::result::Result<u32, Box<Completion>> {
        if let [segment] = segments
            && let Some(pointer) = self.check_whole(request.kind, &request.buffers, segment)
        {
            return Ok(self.start_whole(request, segment, pointer));
        }
        self.start_in_full(request, segments)
    }

    /// Starts a request that [`check_whole`](Self::check_whole) let pass.
    #[inline(always)]
    pub(super) fn start_whole(
        &mut self,
        request: Request,
        segment: &Segment,
        pointer: *mut u8,
    ) -> u32 {
        let (kind, fua) = (request.kind, request.fua);
        self.look_at_clock();
        self.requests += 1;
        let (number, slot) = self.slots.take();
        slot.begin(request, self.now_ns);
        slot.piece.set_place(segment);
        if self.queued == self.capacity || !self.backlog.is_empty() {
            self.wait_for_room(number);
            return number;
        }
        slot.piece.is_queued = true;
        let registered = registered_number(&self.registered, pointer);
        // What `next_op` would say of a piece at its start.
        let op = || RawOp {
            kind,
            fua,
            device: segment.device,
            offset: segment.offset,
            length: segment.length.min(RAW_BYTES_MAX),
            memory: Memory::Flat {
                pointer,
                registered,
            },
            token: u64::from(number),
        };
        // SAFETY: as in `hand_over_next`.
        unsafe { self.queue.submit(kind, op) };
        self.queued += 1;
        number
    }

    /// Starts any other request, or tells why it makes no sense.
    #[inline(never)]
    pub(super) fn start_in_full(
        &mut self,
        request: Request,
        segments: &[Segment],
    ) -> std::result::Result<u32, Box<Completion>> {
        if let Err(error) = self.check_in_full(request.kind, &request.buffers, segments) {
            return ended(request, Err(error));
        }
        if segments.is_empty() {
            return ended(request, Ok(0));
        }
        self.look_at_clock();
        self.requests += 1;
        let (number, slot) = self.slots.take();
        slot.begin(request, self.now_ns);
        self.fan_out(number, segments);
        Ok(number)
    }

    /// Reads the clock, unless it was read since the last visit to the queue.
    #[inline]
    pub(super) fn look_at_clock(&mut self) {
        if self.now_is_old {
            self.read_clock();
        }
    }

    #[cold]
    pub(super) fn read_clock(&mut self) {
        self.now_ns = self.queue.now_ns();
        self.now_is_old = false;
    }

    /// Makes one piece of each run of segments that is contiguous on its device. The first lies in
    /// the request's own slot, `parent`.
    pub(super) fn fan_out(&mut self, parent: u32, segments: &[Segment]) {
        let runs = segments.chunk_by(Segment::is_continued_by);
        // Counted first: a piece may not end before the request knows how many there are.
        let count = runs.clone().count();
        let Slot { request, piece, .. } = &mut self.slots[parent];
        request.pieces_left = u32::try_from(count).expect("fewer than 2^32 pieces fit in memory");
        request.is_split = count > 1;
        let (kind, fua) = (piece.kind, piece.fua);
        for (place, run) in runs.enumerate() {
            let number = if place == 0 {
                parent
            } else {
                self.slots.take().0
            };
            let whole = Segment {
                length: run.iter().map(|part| part.length).sum(),
                ..run[0]
            };
            if kind.has_memory() {
                let mut gather = self.spare_gathers.pop().unwrap_or_default();
                let buffers = self.slots[parent].request.buffers.as_slice();
                gather.collect(run, buffers, &self.starts);
                self.slots[number].piece.set_gather(gather);
            }
            let piece = &mut self.slots[number].piece;
            piece.parent = parent;
            piece.kind = kind;
            piece.fua = fua;
            piece.is_plain = false;
            piece.set_place(&whole);
            self.issue(number);
        }
    }

    /// Hands a piece's next raw operation to the queue, or lets it wait for room.
    pub(super) fn issue(&mut self, number: u32) {
        if self.queued < self.capacity && self.backlog.is_empty() {
            self.hand_over_next(number);
        } else {
            self.wait_for_room(number);
        }
    }

    #[cold]
    pub(super) fn wait_for_room(&mut self, number: u32) {
        self.backlog.push_back(number);
    }

    /// Hands over the next raw operation of the piece in slot `number`.
    pub(super) fn hand_over_next(&mut self, number: u32) {
        let Slot { request, piece, .. } = &mut self.slots[number];
        let op = piece.next_op(u64::from(number), |done| {
            let buffer = request.buffers.as_one();
            let buffer =
                buffer.expect("a piece without a list of runs has its request's one buffer");
            let done = usize::try_from(done).expect("what was transferred fits in memory");
            let pointer = buffer.pointer().wrapping_add(done);
            let registered = registered_number(&self.registered, pointer);
            Run {
                pointer,
                registered,
            }
        });
        piece.is_queued = true;
        // SAFETY: the operation's memory belongs to buffers that lie in the slot of the piece's
        // request, and its iovec list to the piece's own slot. Both are emptied only in `end_piece`
        // and `end_plain`, after the queue gave this operation's completion; `drop` waits for all
        // of them, and a lane that is forgotten keeps its slots for ever. The checks made sure that
        // reads go to memory nobody else has, and that every range lies within its buffer.
        unsafe { self.queue.submit(op.kind, || op) };
        // Counted afterwards: an operation that was never taken is not waited for.
        self.queued += 1;
    }
}

/// The end of a request that is not started.
#[cold]
fn ended(request: Request, result: Result<u64>) -> std::result::Result<u32, Box<Completion>> {
    Err(Box::new(request.end(result)))
}

/// The number of the registered run that `pointer` lies in. Most often there is one run.
#[inline]
fn registered_number(registered: &[(usize, usize)], pointer: *const u8) -> Option<u16> {
    let holds = |&(start, length): &(usize, usize)| pointer.addr().wrapping_sub(start) < length;
    let (first, others) = registered.split_first()?;
    if holds(first) {
        return Some(0);
    }
    let found = others.iter().position(holds)?;
    u16::try_from(found + 1).ok()
}
