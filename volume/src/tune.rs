//! What a volume's drives want: how large transfers, how many in flight. The words and the choosing;
//! the reads are in `volume/tuned`.
//!
//! - All arithmetic, no I/O: what was [`Tried`] comes in, what to use goes out.
//! - Less in flight is better. Beyond the point where drives are busy, more only makes every request
//!   wait longer and takes memory; so the least that comes within [`TOLERANCE`] of the best is taken,
//!   not the best.
//! - One slow moment decides nothing: everything is tried once a round, and the middle round counts.

use std::time::Duration;

use swath_engine::{LaneOptions, QueueDescription, QueueOptions};

use crate::layout::Layout;

/// How far below the best rate the choice may lie: two runs of one setting differ by as much.
pub(crate) const TOLERANCE: f64 = 0.05;

/// How to probe a volume.
#[derive(Debug, Clone)]
pub struct TuneOptions {
    /// About how long the reads take, all of them together. Default half a second; two seconds tell
    /// more of drives that are busy with other things. A drive so slow that one request takes longer
    /// than its share is given the time for it.
    pub runtime: Duration,
    /// How often everything is tried, in turn. The middle one counts. Default 3.
    pub rounds: u32,
    /// The backend and how it runs. Depth and pools are the probe's.
    pub queue: QueueOptions,
}

impl Default for TuneOptions {
    fn default() -> Self {
        Self {
            runtime: Duration::from_millis(500),
            rounds: 3,
            queue: QueueOptions::default(),
        }
    }
}

/// One setting, and the rate that reads reached with it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tried {
    /// Bytes of one request to the volume.
    pub transfer_bytes: u64,
    /// Requests in flight on the whole volume.
    pub depth: u32,
    /// Bytes a second, the middle round's.
    pub bytes_per_s: f64,
}

impl Tried {
    /// Bytes in flight on the whole volume.
    pub fn in_flight_bytes(&self) -> u64 {
        self.transfer_bytes.saturating_mul(u64::from(self.depth))
    }

    /// Requests a second.
    pub fn requests_per_s(&self) -> f64 {
        self.bytes_per_s / self.transfer_bytes as f64
    }
}

/// What answered the reads of a probe, from the most to the least that they tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answered {
    /// The drives: every block was written, and is read past the page cache.
    Drives,
    /// A block device, which does not tell whether it was written. Drives answer reads of blocks that
    /// were discarded, or never written, without their media.
    Unknown,
    /// Some blocks by the drives, and the others, which were never written, by the file system.
    Partly,
    /// The file system: no block was ever written. The rates are those of software.
    Unwritten,
    /// Memory: the members lie in a file system without drives, or are read through the page cache.
    Memory,
}

impl Answered {
    /// What there is to be said against the rates, and what to do about it.
    pub fn caution(self) -> Option<&'static str> {
        match self {
            Self::Drives => None,
            Self::Unknown => Some(
                "a block device does not tell whether its blocks were written; if they were not, \
                 write the volume in full and tune it again",
            ),
            Self::Partly => Some(
                "some blocks were never written and are read without a drive, so the rates are too \
                 good; write the volume in full and tune it again",
            ),
            Self::Unwritten => Some(
                "the blocks were never written, so no drive was asked: this is what the software \
                 does; write the volume in full and tune it again",
            ),
            Self::Memory => {
                Some("the members are read from memory: this says nothing about a drive")
            }
        }
    }
}

/// What to use on a volume, and why.
///
/// Reads alone were tried, for a probe must not change a byte. Drives take writes into a cache of
/// theirs, so that what keeps them busy with reads keeps them busy with writes.
#[derive(Debug, Clone)]
pub struct Tuned {
    /// The large transfers to use.
    pub large: Tried,
    /// How many operations that leaves on each member.
    pub depth_per_member: u32,
    /// The small ones, of one block.
    pub small: Tried,
    /// How many small requests to hand over at once. A rule, not measured: a quarter of what is in
    /// flight, at most 32, from where on a batch costs no less for each.
    pub small_batch: u32,
    /// What answered.
    pub answered: Answered,
    /// Every large transfer that was tried.
    pub large_tried: Vec<Tried>,
    /// Every depth of small ones that was tried.
    pub small_tried: Vec<Tried>,
    /// How the members were asked.
    pub queue: QueueDescription,
}

impl Tuned {
    /// `options`, with a queue as deep as the large transfers need it.
    #[must_use]
    pub fn lane_options(&self, options: LaneOptions) -> LaneOptions {
        let mut options = options;
        options.queue.depth = self.large.depth.max(self.small.depth).clamp(1, DEPTH_MAX);
        options
    }
}

/// The most operations that a queue takes.
pub(crate) const DEPTH_MAX: u32 = 4096;

/// The large transfers that are tried, in bytes.
const LARGE_BYTES: [u64; 5] = [128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20];

/// How many large transfers are in flight, for each member.
const LARGE_DEPTHS: [u32; 4] = [1, 2, 4, 8];

/// How many small ones.
const SMALL_DEPTHS: [u32; 5] = [1, 4, 16, 32, 64];

/// Memory in flight that is tried at the most: this, and for many members so much for each.
const IN_FLIGHT_BYTES_MAX: u64 = 64 << 20;
const MEMBER_IN_FLIGHT_BYTES_MAX: u64 = 4 << 20;

/// What is to be tried: transfer sizes, each with the depths for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidates {
    pub(crate) transfer_bytes: u64,
    pub(crate) depths: Vec<u32>,
}

impl Candidates {
    /// The large transfers for a volume of this layout, in blocks of `block_bytes`. Where a member
    /// tells the most that it takes at once, no part of a transfer on one member is larger: the
    /// kernel would split it.
    pub(crate) fn large(
        layout: &Layout,
        block_bytes: u64,
        transfer_bytes_max: Option<u64>,
    ) -> Vec<Self> {
        let members = layout.member_count();
        let suits = |transfer_bytes: u64| {
            let part_bytes = transfer_bytes.min(layout.chunk_bytes());
            transfer_bytes <= layout.capacity_bytes()
                && transfer_bytes.is_multiple_of(block_bytes)
                && transfer_bytes_max.is_none_or(|max| part_bytes <= max)
        };
        let in_flight_max =
            IN_FLIGHT_BYTES_MAX.max(MEMBER_IN_FLIGHT_BYTES_MAX * u64::from(members));
        let of_size = |transfer_bytes: u64| Self {
            transfer_bytes,
            depths: LARGE_DEPTHS
                .into_iter()
                .map(|depth| depth * members)
                .filter(|&depth| {
                    depth <= DEPTH_MAX && transfer_bytes * u64::from(depth) <= in_flight_max
                })
                .collect(),
        };
        let found: Vec<_> = LARGE_BYTES
            .into_iter()
            .filter(|&bytes| suits(bytes))
            .map(of_size)
            .filter(|candidates| !candidates.depths.is_empty())
            .collect();
        if found.is_empty() {
            // A volume smaller than the smallest, or a member that takes less.
            let wanted = LARGE_BYTES[0]
                .min(layout.capacity_bytes())
                .min(transfer_bytes_max.unwrap_or(u64::MAX));
            let whole = wanted - wanted % block_bytes;
            return vec![of_size(whole.max(block_bytes))];
        }
        found
    }

    /// The small ones: one block of 4 KiB, or the volume's if that is larger.
    pub(crate) fn small(layout: &Layout, block_bytes: u64) -> Self {
        Self {
            transfer_bytes: block_bytes.max(4096),
            depths: SMALL_DEPTHS
                .into_iter()
                .map(|depth| depth * layout.member_count())
                .filter(|&depth| depth <= DEPTH_MAX)
                .collect(),
        }
    }
}

/// The setting to use: of those within `tolerance` of the best rate the one with the least in flight;
/// of several with as much, the one with the fewest requests, which cost less CPU time. None of none.
pub(crate) fn choose(tried: &[Tried], tolerance: f64) -> Option<Tried> {
    let best = tried.iter().map(|one| one.bytes_per_s).fold(0.0, f64::max);
    let enough = best * (1.0 - tolerance);
    tried
        .iter()
        .filter(|one| one.bytes_per_s >= enough)
        .min_by_key(|one| (one.in_flight_bytes(), one.depth))
        .copied()
}

/// The middle one of `rates`; the lower of two. Zero of none.
pub(crate) fn middle(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    let place = rates.len().saturating_sub(1) / 2;
    rates.get(place).copied().unwrap_or(0.0)
}

/// How many operations `depth` requests of `transfer_bytes` leave on each member.
pub(crate) fn depth_per_member(layout: &Layout, chosen: Tried) -> u32 {
    let members = layout.member_count();
    let parts = chosen.transfer_bytes.div_ceil(layout.chunk_bytes());
    let touched = u32::try_from(parts).unwrap_or(u32::MAX).clamp(1, members);
    chosen.depth.saturating_mul(touched).div_ceil(members)
}

/// How many small requests of `depth` to hand over at once.
pub(crate) fn batch(depth: u32) -> u32 {
    (depth / 4).clamp(1, 32)
}

#[cfg(test)]
mod tests;
