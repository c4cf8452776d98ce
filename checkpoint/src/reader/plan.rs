//! [`Plan`]: which transfers read some tensors, in the order in which these lie on the volume.
//!
//! - A transfer never crosses a chunk's border, so it is one operation on one member, and has at
//!   most 1 MiB. Borders of blocks and of tensors do not end it: what a checksum covers may come in
//!   several transfers, and one transfer through a buffer may serve many small tensors.
//! - Where the volume's blocks and the memory allow it, bytes go straight into the caller's memory.
//! - Of a block that is wanted in part, all is read, unless it is trusted.
//! - What is held is one [`Piece`] for each run of each tensor, cut up as transfers are made of it.

use std::iter::Peekable;
use std::ops::Range;
use std::vec;

use crate::blob::usize_of;
use crate::extent::UNIT_BYTES;
use crate::index::{BLOCK_BYTES, TensorEntry, blocks_touched};
use crate::options::PIECE_BYTES;
use crate::transfer::transfer_bytes;

/// What lies between two small tensors is read with them up to this size: a transfer more takes
/// longer than that.
const GAP_BYTES_MAX: u64 = 64 << 10;

/// Some bytes of a tensor, and the memory for them.
pub(crate) struct Want<'a, 'env> {
    pub(crate) entry: &'a TensorEntry,
    /// The first of the bytes.
    pub(crate) offset: u64,
    pub(crate) memory: &'env mut [u8],
}

/// What transfers must heed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    pub(super) chunk_bytes: u64,
    pub(super) block_bytes: u64,
    pub(super) memory_align_bytes: usize,
}

/// Bytes of one tensor that lie side by side on the volume.
#[derive(Debug)]
pub(super) struct Piece<'env> {
    /// Which of the tensors, in the plan's order.
    pub(super) tensor: usize,
    /// Where they lie on the volume.
    pub(super) offset: u64,
    pub(super) length: u64,
    /// The first of them in the tensor.
    pub(super) at: u64,
    /// How many bytes of it come before those that are wanted.
    pub(super) skip: usize,
    /// Memory for those that are wanted, which may be fewer, or none.
    pub(super) memory: &'env mut [u8],
}

impl<'env> Piece<'env> {
    /// Takes the first `length` bytes off.
    fn cut(&mut self, length: u64) -> Self {
        let bytes = usize_of(length);
        let wanted = bytes.saturating_sub(self.skip).min(self.memory.len());
        let (now, later) = std::mem::take(&mut self.memory).split_at_mut(wanted);
        let front = Piece {
            tensor: self.tensor,
            offset: self.offset,
            length,
            at: self.at,
            skip: self.skip,
            memory: now,
        };
        self.offset += length;
        self.length -= length;
        self.at += length;
        self.skip = self.skip.saturating_sub(bytes);
        self.memory = later;
        front
    }

    /// Whether it can go straight into its memory.
    fn is_direct(&self, geometry: Geometry) -> bool {
        let is_whole = self.memory.len() as u64 == self.length;
        let is_of_blocks = (self.offset | self.length).is_multiple_of(geometry.block_bytes);
        let address = self.memory.as_ptr().addr();
        is_whole && is_of_blocks && address.is_multiple_of(geometry.memory_align_bytes)
    }

    /// The units that it lies in.
    fn units(&self) -> Range<u64> {
        let start = self.offset - self.offset % UNIT_BYTES;
        start..(self.offset + self.length).next_multiple_of(UNIT_BYTES)
    }
}

/// One transfer.
#[derive(Debug)]
pub(super) enum Transfer<'env> {
    /// Into the memory of a piece.
    Direct(Piece<'env>),
    /// Into a buffer, and from there into the memory of pieces.
    Buffered {
        units: Range<u64>,
        pieces: Vec<Piece<'env>>,
    },
}

impl Transfer<'_> {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Direct(piece) => piece.length,
            Self::Buffered { units, .. } => units.end - units.start,
        }
    }
}

/// The transfers that are left.
pub(super) struct Plan<'env> {
    pieces: Peekable<Pieces<'env>>,
    geometry: Geometry,
}

/// Runs, cut into pieces of one transfer at most.
struct Pieces<'env> {
    runs: vec::IntoIter<Piece<'env>>,
    run: Option<Piece<'env>>,
    chunk_bytes: u64,
}

impl<'env> Plan<'env> {
    /// Plans to read `wants`. Pieces name tensors by their place among those that are returned.
    pub(super) fn new<'a>(
        wants: Vec<Want<'a, 'env>>,
        trust: bool,
        geometry: Geometry,
    ) -> (Self, Vec<&'a TensorEntry>) {
        let mut tensors = Vec::with_capacity(wants.len());
        let mut runs = Vec::with_capacity(wants.len());
        for want in wants {
            let entry = want.entry;
            add_runs(want, tensors.len(), trust, &mut runs);
            tensors.push(entry);
        }
        runs.sort_by_key(|run: &Piece<'_>| run.offset);
        let mut runs = runs.into_iter();
        let pieces = Pieces {
            run: runs.next(),
            runs,
            chunk_bytes: geometry.chunk_bytes,
        };
        let plan = Self {
            pieces: pieces.peekable(),
            geometry,
        };
        (plan, tensors)
    }
}

/// Adds the runs of what is to be read for `want`.
fn add_runs<'env>(want: Want<'_, 'env>, tensor: usize, trust: bool, runs: &mut Vec<Piece<'env>>) {
    let Want {
        entry,
        offset,
        mut memory,
    } = want;
    if memory.is_empty() {
        return;
    }
    let end = offset + memory.len() as u64;
    let blocks = blocks_touched(offset, memory.len() as u64);
    let first = entry.block_range(blocks.start);
    let last = entry.block_range(blocks.end - 1);
    let read = if trust {
        offset..end
    } else {
        first.start..last.end
    };
    // A block that is wanted in part goes through a buffer; it ends where the others begin.
    let head_end = if read.start < offset {
        first.end
    } else {
        read.start
    };
    let tail_start = if end < read.end {
        last.start.max(head_end)
    } else {
        read.end
    };
    let ranges = [
        read.start..head_end,
        head_end..tail_start,
        tail_start..read.end,
    ];
    for range in ranges {
        let mut at = range.start;
        for run in entry.locate(range.start, range.end - range.start) {
            let run_end = at + run.length;
            let wanted = end.min(run_end).saturating_sub(offset.max(at));
            let (now, later) = memory.split_at_mut(usize_of(wanted));
            memory = later;
            runs.push(Piece {
                tensor,
                offset: run.offset,
                length: run.length,
                at,
                skip: usize_of(offset.saturating_sub(at)),
                memory: now,
            });
            at = run_end;
        }
    }
}

impl<'env> Iterator for Pieces<'env> {
    type Item = Piece<'env>;

    fn next(&mut self) -> Option<Piece<'env>> {
        let run = self.run.as_mut()?;
        let piece = run.cut(transfer_bytes(run.offset, run.length, self.chunk_bytes));
        if run.length == 0 {
            self.run = self.runs.next();
        }
        Some(piece)
    }
}

impl<'env> Iterator for Plan<'env> {
    type Item = Transfer<'env>;

    fn next(&mut self) -> Option<Transfer<'env>> {
        let geometry = self.geometry;
        let first = self.pieces.next()?;
        if first.is_direct(geometry) {
            return Some(Transfer::Direct(first));
        }
        let mut units = first.units();
        let room_bytes = transfer_bytes(units.start, BLOCK_BYTES, geometry.chunk_bytes);
        let limit = units.start + room_bytes;
        let mut pieces = vec![first];
        // Runs are in order, but those of a tensor that is read twice begin again.
        while let Some(next) = self.pieces.next_if(|next| {
            let more = next.units();
            !next.is_direct(geometry)
                && more.start >= units.start
                && more.start <= units.end + GAP_BYTES_MAX
                && more.end <= limit
        }) {
            units.end = units.end.max(next.units().end);
            pieces.push(next);
        }
        debug_assert!(units.end - units.start <= PIECE_BYTES as u64);
        Some(Transfer::Buffered { units, pieces })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::tests::tensor;

    const MIB: u64 = 1 << 20;

    const GEOMETRY: Geometry = Geometry {
        chunk_bytes: MIB,
        block_bytes: 512,
        memory_align_bytes: 1,
    };

    /// The transfers for ranges of tensors: from where, how long, and for how many pieces through a
    /// buffer. Makes sure that every byte that is wanted is read once, to its place.
    fn transfers(wanted: &[(&TensorEntry, Range<u64>)], trust: bool) -> Vec<(u64, u64, usize)> {
        let mut memory: Vec<Vec<u8>> = wanted
            .iter()
            .map(|(_, range)| vec![0; usize_of(range.end - range.start)])
            .collect();
        let wants = wanted
            .iter()
            .zip(&mut memory)
            .map(|((entry, range), memory)| Want {
                entry,
                offset: range.start,
                memory,
            });
        let (plan, tensors) = Plan::new(wants.collect(), trust, GEOMETRY);
        assert_eq!(tensors.len(), wanted.len());
        let fill = |piece: Piece<'_>| {
            let located: Vec<_> = tensors[piece.tensor]
                .locate(piece.at, piece.length)
                .collect();
            assert_eq!(
                located,
                [crate::extent::Run::new(piece.offset, piece.length)]
            );
            for (byte, at) in piece.memory.iter_mut().zip(piece.at + piece.skip as u64..) {
                *byte += 1 + (at % 100) as u8;
            }
        };
        let transfers = plan.map(|transfer| match transfer {
            Transfer::Direct(piece) => {
                let told = (piece.offset, piece.length, 0);
                fill(piece);
                told
            }
            Transfer::Buffered { units, pieces } => {
                let count = pieces.len();
                pieces.into_iter().for_each(fill);
                (units.start, units.end - units.start, count)
            }
        });
        let transfers = transfers.collect();
        for ((_, range), memory) in wanted.iter().zip(&memory) {
            let is_right = |(byte, at): (&u8, u64)| *byte == 1 + (at % 100) as u8;
            assert!(memory.iter().zip(range.start..).all(is_right), "{range:?}");
        }
        transfers
    }

    #[test]
    fn transfers_end_at_borders_of_chunks_and_not_at_those_of_blocks() {
        let large = tensor("large", &[(3 * MIB - 4096, 2 * MIB + 8192), (MIB, 512)]);
        assert_eq!(
            transfers(&[(&large, 0..large.length)], false),
            [
                (MIB, 512, 0),
                (3 * MIB - 4096, 4096, 0),
                (3 * MIB, MIB, 0),
                (4 * MIB, MIB, 0),
                (5 * MIB, 4096, 0),
            ]
        );
    }

    #[test]
    fn small_tensors_side_by_side_are_read_at_once() {
        let small: Vec<TensorEntry> = [
            (4096, 100),
            (4196, 5000),
            // Near enough, and too far.
            (50_000, 1),
            (200_000, 1),
            (MIB - 1, 1),
            (MIB, 700),
        ]
        .map(|run| tensor("small", &[run]))
        .into();
        let wanted: Vec<_> = small.iter().map(|entry| (entry, 0..entry.length)).collect();
        let expected = [
            (4096, 49_152, 3),
            (196_608, 4096, 1),
            (MIB - 4096, 4096, 1),
            (MIB, 4096, 1),
        ];
        assert_eq!(transfers(&wanted, false), expected);
        let twice: Vec<_> = wanted[..1].iter().chain(&wanted[..1]).cloned().collect();
        assert_eq!(transfers(&twice, false), [(4096, 4096, 2)]);
    }

    #[test]
    fn of_blocks_that_are_wanted_in_part_all_is_read_unless_trusted() {
        let entry = tensor("a", &[(0, 2 * MIB), (8 * MIB, MIB + 100)]);
        let all = [(0, MIB, 1), (MIB, MIB, 0), (8 * MIB, MIB, 1)];
        assert_eq!(transfers(&[(&entry, 5..2 * MIB + 1)], false), all);
        let some = [(0, MIB, 1), (MIB, MIB, 0), (8 * MIB, 4096, 1)];
        assert_eq!(transfers(&[(&entry, 5..2 * MIB + 1)], true), some);
        for range in [7..9, MIB - 1..MIB + 1, 3 * MIB..3 * MIB + 100, 0..0] {
            let verified = transfers(&[(&entry, range.clone())], false);
            let trusted = transfers(&[(&entry, range.clone())], true);
            assert_eq!(verified.len(), trusted.len());
            assert!(trusted.iter().all(|(_, length, _)| *length == 4096));
        }
    }
}
