//! How a store works: queues, buffers and how much memory they take.

use swath_engine::LaneOptions;
use swath_volume::Tuned;

use crate::extent::UNIT_BYTES;
use crate::index::BLOCK_BYTES;

/// How a store works.
///
/// Memory: each writer has a pool of `pool_bytes`, whatever the size of the checkpoint, and each
/// reader one of as much at most; the readers of one load share it. It becomes resident as it is
/// used: tensors whose memory is aligned need little of it. Besides that there is the index
/// of what it works on (about 100 bytes for a tensor and 4 for each MiB of data), and while many
/// tensors are read, as much again. The store keeps the pools of up to 8 writers that are done for
/// the next; a reader takes one of them, and the others are given up.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// What each lane's queue is. Its depth is set by the store.
    pub lane: LaneOptions,
    /// The memory of each writer's or reader's buffers in bytes, at least 4 MiB. Default 16 MiB.
    pub pool_bytes: u64,
    /// How many transfers of up to 1 MiB a writer or reader keeps in flight: 1 to 256. Default 16. A
    /// drive wants one or two of this size at a time: volumes of more than eight are better
    /// [tuned](Self::tuned).
    pub depth: u32,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            lane: LaneOptions::default(),
            pool_bytes: 16 << 20,
            depth: 16,
        }
    }
}

impl StoreOptions {
    /// The defaults, with as much in flight as [`Volume::tuned`](swath_volume::Volume::tuned) found
    /// for the volume, in the store's own transfers of 1 MiB, and memory for it. A writer holds twice
    /// that, so that it fills one half while the drives have the other.
    pub fn tuned(tuned: &Tuned) -> Self {
        let depth = tuned
            .large
            .in_flight_bytes()
            .div_ceil(BLOCK_BYTES)
            .clamp(1, 256);
        let defaults = Self::default();
        Self {
            depth: u32::try_from(depth).expect("at most 256"),
            pool_bytes: defaults.pool_bytes.max(2 * depth * PIECE_BYTES as u64),
            ..defaults
        }
    }

    /// How many buffers of a block and its slack a pool of this size has.
    pub(crate) fn piece_count(&self) -> usize {
        let pieces = self.pool_bytes / PIECE_BYTES as u64;
        usize::try_from(pieces.clamp(3, 1 << 16)).expect("at most 65536")
    }

    /// How many transfers are in flight at once.
    pub(crate) fn window(&self) -> usize {
        self.depth.clamp(1, 256) as usize
    }
}

/// One buffer: a block, and room for what lies beside it in its first and last 4 KiB.
pub(crate) const PIECE_BYTES: usize = (1 << 20) + 8192;

const _: () = assert!(PIECE_BYTES as u64 >= BLOCK_BYTES + 2 * UNIT_BYTES);
