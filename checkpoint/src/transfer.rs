//! Where transfers begin and end: runs of a volume cut into pieces that suit its members.
//!
//! A piece never crosses a chunk's border, so each is one operation on one member, as large as the
//! chunk allows; blocks of checksums are cut elsewhere and need not agree with these.

use crate::extent::Run;
use crate::index::BLOCK_BYTES;

/// A piece of a run: where it lies on the volume, and where its bytes are in the run of all runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The first byte on the volume.
    pub(crate) offset: u64,
    /// The first byte among all bytes of the runs.
    pub(crate) position: u64,
    /// How many bytes, at most [`BLOCK_BYTES`].
    pub(crate) length: u64,
}

/// How long a transfer from `offset` on is: to the next border, the end, or [`BLOCK_BYTES`].
pub(crate) fn transfer_bytes(offset: u64, left_bytes: u64, chunk_bytes: u64) -> u64 {
    // Small chunks: whole stripes' worth of them in one transfer, merged on each member.
    let step_bytes = chunk_bytes.max(BLOCK_BYTES);
    let to_border = step_bytes - offset % step_bytes;
    to_border.min(left_bytes).min(BLOCK_BYTES)
}

/// The pieces of `runs`, in order, cut at chunk borders and at [`BLOCK_BYTES`].
pub(crate) fn pieces(runs: &[Run], chunk_bytes: u64) -> impl Iterator<Item = Piece> + '_ {
    let mut position = 0;
    runs.iter().flat_map(move |run| {
        let begin = position;
        position += run.length;
        let run = *run;
        let mut done = 0;
        std::iter::from_fn(move || {
            if done == run.length {
                return None;
            }
            let offset = run.offset + done;
            let length = transfer_bytes(offset, run.length - done, chunk_bytes);
            let piece = Piece {
                offset,
                position: begin + done,
                length,
            };
            done += length;
            Some(piece)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_every_byte_in_order_and_stay_within_a_chunk() {
        const MIB: u64 = 1 << 20;
        let runs = [
            Run::new(4096, 3 * MIB),
            Run::new(9 * MIB, 5000),
            Run::new(20 * MIB + 4096, MIB),
        ];
        for chunk_bytes in [4096, MIB, 2 * MIB] {
            let mut position = 0;
            for piece in pieces(&runs, chunk_bytes) {
                assert_eq!(piece.position, position);
                assert!((1..=BLOCK_BYTES).contains(&piece.length));
                let chunk = chunk_bytes.max(MIB);
                assert_eq!(
                    piece.offset / chunk,
                    (piece.offset + piece.length - 1) / chunk
                );
                position += piece.length;
            }
            assert_eq!(position, runs.iter().map(|run| run.length).sum::<u64>());
        }
    }
}
