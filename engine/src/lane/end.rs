//! How a request ends: what a raw completion means for its piece, and the last piece for its request.

use crate::error::{Error, ErrorKind};
use crate::lane::Lane;
use crate::lane::piece::Step;
use crate::lane::slots::Slot;
use crate::op::{Completion, OpKind};
use crate::queue::RawCompletion;
use crate::stats::Outcome;

impl Lane {
    #[inline]
    pub(super) fn complete(&mut self, raw: RawCompletion, completions: &mut Vec<Completion>) {
        self.queued -= 1;
        let number = u32::try_from(raw.token).expect("a queue gives back the tokens it was given");
        let piece = &mut self.slots[number].piece;
        assert!(
            piece.is_queued,
            "a queue gives one completion for each operation"
        );
        piece.is_queued = false;
        if piece.is_done_by(raw.result) {
            self.end_plain(number, completions);
            return;
        }
        piece.is_plain = false;
        let device = piece.device as usize;
        match piece.advance(raw.result, &self.limits[device]) {
            Step::Done => self.end_piece(number, None, completions),
            Step::Again => self.issue(number),
            Step::Later(pause_ns) => self.postpone(number, pause_ns),
            Step::Failed(failure) => {
                let error = piece.error(failure, &*self.devices[device]);
                self.end_piece(number, Some(error), completions);
            }
        }
    }

    /// Ends a request that was plain to the end, as nearly all are: what
    /// [`end_piece`](Self::end_piece) and [`end_request`](Self::end_request) would do.
    #[inline]
    pub(super) fn end_plain(&mut self, number: u32, completions: &mut Vec<Completion>) {
        let Slot { request, piece, .. } = &mut self.slots[number];
        let bytes = piece.length;
        if let Some(stats) = &mut self.stats {
            let latency_ns = self.now_ns.saturating_sub(request.started_ns);
            stats.record_whole(
                piece.device,
                piece.kind,
                Outcome::Done { bytes, latency_ns },
            );
        }
        // The place first, then the completion into it: with nothing left that could panic, it is
        // never put together on the stack, to be read back at once in wider pieces.
        let count = completions.len();
        let place = completions.spare_capacity_mut().first_mut();
        place
            .expect("room for each completion of a visit was made before the first")
            .write(request.end(piece.kind, Ok(bytes)));
        // SAFETY: the element after the last was written just now.
        unsafe { completions.set_len(count + 1) };
        self.slots.release(number);
        self.requests -= 1;
    }

    /// Ends a piece, and its request when it was the last one.
    #[inline]
    pub(super) fn end_piece(
        &mut self,
        number: u32,
        failure: Option<Error>,
        completions: &mut Vec<Completion>,
    ) {
        let piece = &mut self.slots[number].piece;
        let (parent, device, kind, length) = (piece.parent, piece.device, piece.kind, piece.length);
        if let Some(gather) = piece.end(number) {
            self.spare_gathers.push(gather);
        }
        let request = &mut self.slots[parent].request;
        let latency_ns = self.now_ns.saturating_sub(request.started_ns);
        let outcome = match failure {
            None => {
                request.bytes += length;
                Outcome::Done {
                    bytes: length,
                    latency_ns,
                }
            }
            Some(error) => {
                if let Some(poison) = &self.poison
                    && spoils(kind, request.is_split, error.kind())
                {
                    poison.set(&error);
                }
                // The first failure is the request's; later ones are most often its echo.
                request.error.get_or_insert(error);
                Outcome::Failed
            }
        };
        if let Some(stats) = &mut self.stats {
            if request.is_split {
                stats.record_part(device, kind, outcome);
            } else {
                stats.record_whole(device, kind, outcome);
            }
        }
        request.pieces_left -= 1;
        if request.pieces_left == 0 {
            self.end_request(parent, latency_ns, completions);
        }
        if number != parent {
            self.slots.release(number);
        }
    }

    #[inline]
    pub(super) fn end_request(
        &mut self,
        number: u32,
        latency_ns: u64,
        completions: &mut Vec<Completion>,
    ) {
        let Slot { request, piece, .. } = &mut self.slots[number];
        let kind = piece.kind;
        let result = request.error.take().map_or(Ok(request.bytes), Err);
        if request.is_split
            && let Some(stats) = &mut self.stats
        {
            let outcome = match &result {
                Ok(bytes) => Outcome::Done {
                    bytes: *bytes,
                    latency_ns,
                },
                Err(_) => Outcome::Failed,
            };
            stats.record_split(kind, outcome);
        }
        let completion = request.end(kind, result);
        if request.is_called {
            self.called = Some(completion);
        } else {
            completions.push(completion);
        }
        request.reset();
        self.slots.release(number);
        self.requests -= 1;
    }
}

/// Whether a failure of this kind leaves the device's contents in doubt.
fn spoils(operation: OpKind, is_split: bool, failure: ErrorKind) -> bool {
    match (failure, operation) {
        // The device said that it does not do this: nothing happened, unless another member does.
        (ErrorKind::Unsupported, OpKind::Discard) => false,
        (ErrorKind::Unsupported, OpKind::WriteZeroes) => is_split,
        // A member that is gone takes its part of the volume with it, even for a read.
        (ErrorKind::Gone, _) => true,
        _ => operation.changes_media(),
    }
}
