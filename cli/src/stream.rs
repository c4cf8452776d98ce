//! Bytes from a source to a sink with a few pieces between them, so that neither waits for the
//! other as long as both keep up.
//!
//! - Pieces end at multiples of the piece size, whatever the first offset: all but the first and
//!   the last are aligned, and whole stripes when the piece size is.
//! - The source runs on a thread of its own. When the sink fails that thread is left behind: it may
//!   be blocked in a read from a pipe that nobody writes to, and ends with the process.
//! - The end of the source is said in so many words. A channel that closes without it means that
//!   the source's thread panicked, and is never taken for the end.

use std::sync::mpsc;
use std::thread;

use swath_engine::AlignedBuf;

use crate::failure::{Context, Failure, Result};

/// One piece is filled, one is emptied, and one waits for whoever is faster.
const PIECES_IN_FLIGHT: usize = 3;

/// Pieces grow to whole stripes up to this size.
const PIECE_BYTES_MAX: u64 = 64 << 20;

/// The smallest piece that keeps members busy.
const PIECE_BYTES_MIN: u64 = 4 << 20;

/// The size of pieces where none was asked for: whole stripes and at least 4 MiB, so that every
/// member has work; with very wide stripes 64 MiB.
pub(crate) fn piece_bytes(stripe_bytes: u64) -> u64 {
    let whole = stripe_bytes.saturating_mul(PIECE_BYTES_MIN.div_ceil(stripe_bytes.max(1)));
    whole.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX)
}

/// A range cut into pieces.
#[derive(Debug, Clone)]
struct Pieces {
    next: u64,
    end: u64,
    piece_bytes: u64,
}

impl Iterator for Pieces {
    /// Offset and length.
    type Item = (u64, usize);

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.end {
            return None;
        }
        let offset = self.next;
        let to_border = self.piece_bytes - offset % self.piece_bytes;
        let length = to_border.min(self.end - offset);
        self.next += length;
        Some((
            offset,
            usize::try_from(length).expect("a piece fits in memory"),
        ))
    }
}

/// What the source's thread hands over.
enum Filled {
    Piece {
        offset: u64,
        length: usize,
        buffer: AlignedBuf,
    },
    End,
}

/// Moves the range from `offset` to `end`: `fill` gets each piece's offset and memory and says how
/// much it filled (less than all of it: the source has ended), `empty` gets what was filled.
/// Returns how many bytes went through.
pub(crate) fn pump(
    offset: u64,
    end: u64,
    piece_bytes: u64,
    mut fill: impl FnMut(u64, &mut [u8]) -> Result<usize> + Send + 'static,
    mut empty: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<u64> {
    let pieces = Pieces {
        next: offset,
        end,
        piece_bytes,
    };
    let buffer_bytes = usize::try_from(piece_bytes.min(end - offset))?;
    let (give_back, spare) = mpsc::channel::<AlignedBuf>();
    for _ in 0..PIECES_IN_FLIGHT {
        let buffer = AlignedBuf::zeroed(buffer_bytes.max(1))
            .context(|| format!("memory for {PIECES_IN_FLIGHT} pieces of {piece_bytes} bytes"))?;
        give_back.send(buffer).expect("the receiver is alive");
    }

    let (hand_over, filled) = mpsc::sync_channel::<Result<Filled>>(PIECES_IN_FLIGHT);
    let source = thread::Builder::new()
        .name("swath-source".to_owned())
        .spawn(move || {
            for (offset, length) in pieces {
                // Either channel closes when the sink has failed; there is nobody left to tell.
                let Ok(mut buffer) = spare.recv() else { return };
                let outcome = fill(offset, &mut buffer[..length]);
                let is_last = !matches!(outcome, Ok(filled) if filled == length);
                let message = outcome.map(|length| Filled::Piece {
                    offset,
                    length,
                    buffer,
                });
                if hand_over.send(message).is_err() {
                    return;
                }
                if is_last {
                    break;
                }
            }
            let _ = hand_over.send(Ok(Filled::End));
        })?;

    let mut moved = 0;
    loop {
        match filled.recv() {
            Ok(Ok(Filled::Piece {
                offset,
                length,
                buffer,
            })) => {
                empty(offset, &buffer[..length])?;
                moved += length as u64;
                // The source may have ended already; then the buffer has no further use.
                let _ = give_back.send(buffer);
            }
            Ok(Ok(Filled::End)) => return Ok(moved),
            Ok(Err(failure)) => return Err(failure),
            Err(mpsc::RecvError) => {
                return match source.join() {
                    Err(panic) => std::panic::resume_unwind(panic),
                    Ok(()) => Err(Failure::new("the source ended without a word")),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(offset: u64, end: u64, piece_bytes: u64, source_bytes: u64) -> (u64, Vec<u8>) {
        let mut left = source_bytes;
        let mut seen = Vec::new();
        let moved = pump(
            offset,
            end,
            piece_bytes,
            move |offset, memory| {
                let length = memory.len().min(usize::try_from(left).unwrap());
                for (at, byte) in (offset..).zip(&mut memory[..length]) {
                    *byte = (at % 251) as u8;
                }
                left -= length as u64;
                Ok(length)
            },
            |_, bytes| {
                seen.extend_from_slice(bytes);
                Ok(())
            },
        );
        (moved.unwrap(), seen)
    }

    #[test]
    fn every_byte_goes_through_once_and_in_order() {
        for (offset, end) in [(0, 0), (0, 1), (7, 7), (5, 100), (16, 32), (17, 4099)] {
            let (moved, seen) = through(offset, end, 16, u64::MAX);
            assert_eq!(moved, end - offset);
            let want: Vec<u8> = (offset..end).map(|at| (at % 251) as u8).collect();
            assert_eq!(seen, want, "{offset}..{end}");
        }
    }

    #[test]
    fn a_source_that_ends_early_ends_the_range() {
        for source_bytes in [0, 1, 15, 16, 17, 50] {
            assert_eq!(through(3, 1000, 16, source_bytes).0, source_bytes);
        }
    }

    #[test]
    fn pieces_end_at_borders() {
        let pieces: Vec<_> = Pieces {
            next: 10,
            end: 70,
            piece_bytes: 32,
        }
        .collect();
        assert_eq!(pieces, [(10, 22), (32, 32), (64, 6)]);
    }

    #[test]
    fn errors_of_either_side_come_out() {
        let bad = |_: u64, _: &mut [u8]| Err(Failure::new("no source"));
        assert!(pump(0, 10, 4, bad, |_, _| Ok(())).is_err());
        let good = |_: u64, memory: &mut [u8]| Ok(memory.len());
        assert!(pump(0, 1000, 4, good, |_, _| Err(Failure::new("no sink"))).is_err());
    }

    #[test]
    fn pieces_are_whole_stripes() {
        const MIB: u64 = 1 << 20;
        for (stripe, piece) in [
            (4096, 4 * MIB),
            (3 * MIB, 6 * MIB),
            (4 * MIB, 4 * MIB),
            (24 * MIB, 24 * MIB),
            (1 << 40, 64 * MIB),
        ] {
            assert_eq!(piece_bytes(stripe), piece, "{stripe}");
        }
    }
}
