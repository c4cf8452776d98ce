//! What is asked of the drives: patterns, cells, and the positions a lane visits.
//!
//! - All arithmetic, no I/O. The same [`Cursor`] drives the volume (one space: all its bytes) and
//!   the bare members (one space for each, visited in turn), so the two sides of a comparison see
//!   the same pattern.
//! - Every position is a multiple of the block size from its space's base and lies wholly inside.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use swath_engine::OpKind;

use crate::error::{Error, Result};
use crate::random::Random;
use crate::size::{format_bytes, format_size};

/// An access pattern, by fio's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Sequential read.
    Read,
    /// Sequential write.
    Write,
    /// Random read.
    RandRead,
    /// Random write.
    RandWrite,
}

impl Pattern {
    /// The four of them, in the order of tables.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::RandRead, Self::RandWrite];

    /// fio's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
        }
    }

    /// Whether it writes.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::RandWrite)
    }

    /// What each of its requests does.
    pub const fn kind(self) -> OpKind {
        if self.is_write() {
            OpKind::Write
        } else {
            OpKind::Read
        }
    }

    /// Whether its offsets are drawn at random.
    pub const fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for Pattern {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|pattern| pattern.name().eq_ignore_ascii_case(name.trim()))
            .ok_or_else(|| {
                Error::usage(format!(
                    "no pattern is called '{name}'; there are read, write, randread and randwrite"
                ))
            })
    }
}

/// One measurement to make: a pattern at a block size with so much in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cell {
    /// The access pattern.
    pub pattern: Pattern,
    /// Bytes of each request.
    pub block_bytes: u64,
    /// Requests in flight on each lane (fio: `iodepth`).
    pub depth: u32,
    /// How many lanes, each a thread of its own (fio: `numjobs`).
    pub lanes: u32,
}

impl Cell {
    /// Memory that all its requests take together.
    pub fn buffer_bytes(&self) -> u64 {
        let requests = u64::from(self.depth) * u64::from(self.lanes);
        self.block_bytes.saturating_mul(requests)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pattern, format_size(self.block_bytes))
    }
}

/// The depth of each lane when nobody asked for one.
///
/// All lanes together keep 128 requests in flight while these are small, and 8 MiB while they are
/// large: drives saturate there and more only adds latency, and lowers bandwidth on some. Volumes
/// of more than four members get proportionally more.
pub fn depth_auto(block_bytes: u64, lanes: u32, members: u32) -> u32 {
    let members = u64::from(members.max(4));
    let by_bytes = (members * (2 << 20)) / block_bytes.max(1);
    let total = by_bytes.clamp(2 * members, 32 * members);
    let per_lane = (total / u64::from(lanes.max(1))).clamp(1, 4096);
    u32::try_from(per_lane).unwrap_or(4096)
}

/// A run of bytes that a workload may visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Which device; 0 for a volume.
    pub device: u32,
    /// The first byte.
    pub base: u64,
    /// How many bytes.
    pub length: u64,
}

/// Where one request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Which device; 0 for a volume.
    pub device: u32,
    /// The first byte.
    pub offset: u64,
}

/// The part of one space that one lane visits, in blocks.
#[derive(Debug, Clone)]
struct Walk {
    device: u32,
    base: u64,
    block_first: u64,
    block_count: u64,
    /// The next block of a sequential walk, counted from `block_first`.
    next: u64,
}

/// Gives a lane its positions, one after the other, for ever.
///
/// Sequential: each lane has a region of its own in every space, walks it from its start and wraps
/// around. Random: every lane draws from the whole space. Several spaces are visited in turn.
#[derive(Debug, Clone)]
pub struct Cursor {
    walks: Vec<Walk>,
    turn: usize,
    block_bytes: u64,
    random: Option<Random>,
}

impl Cursor {
    /// The cursor of lane number `lane` of `cell`.
    ///
    /// # Errors
    ///
    /// A space is too small to give the lane a single block.
    pub fn new(cell: &Cell, spaces: &[Space], lane: u32, seed: u64) -> Result<Self> {
        Self::with_regions(cell, spaces, lane, seed, !cell.pattern.is_random())
    }

    /// As [`new`](Self::new), for a lane that keeps to its region at random, too.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn apart(cell: &Cell, spaces: &[Space], lane: u32, seed: u64) -> Result<Self> {
        Self::with_regions(cell, spaces, lane, seed, true)
    }

    fn with_regions(
        cell: &Cell,
        spaces: &[Space],
        lane: u32,
        seed: u64,
        has_region: bool,
    ) -> Result<Self> {
        let mut walks = Vec::with_capacity(spaces.len());
        for space in spaces {
            let block_total = space.length / cell.block_bytes;
            let (block_first, block_count) = if has_region {
                lane_region(block_total, lane, cell.lanes)
            } else {
                (0, block_total)
            };
            if block_count == 0 {
                let lanes = if has_region { u64::from(cell.lanes) } else { 1 };
                return Err(Error::usage(format!(
                    "{cell}: a block is larger than the {} that each lane works on; use a smaller \
                     --bs, fewer --numjobs or larger members",
                    format_bytes(space.length / lanes)
                )));
            }
            let Space { device, base, .. } = *space;
            walks.push(Walk {
                device,
                base,
                block_first,
                block_count,
                next: 0,
            });
        }
        let random = cell
            .pattern
            .is_random()
            .then(|| Random::new(seed, u64::from(lane) + 1));
        // Lanes begin on different devices, so that few of them do not crowd the first.
        let turn = usize::try_from(lane).unwrap_or(0) % walks.len().max(1);
        Ok(Self {
            walks,
            turn,
            block_bytes: cell.block_bytes,
            random,
        })
    }

    /// Begins as if so many blocks had been visited. Of no matter at random.
    #[must_use]
    pub fn after(mut self, blocks: u64) -> Self {
        let share = blocks / (self.walks.len() as u64).max(1);
        for walk in &mut self.walks {
            walk.next = share % walk.block_count;
        }
        self
    }

    /// The next position.
    #[inline]
    pub fn next_position(&mut self) -> Position {
        let turn = self.turn;
        self.turn = if turn + 1 == self.walks.len() {
            0
        } else {
            turn + 1
        };
        let walk = &mut self.walks[turn];
        let place = match &mut self.random {
            Some(random) => random.below(walk.block_count),
            None => {
                let place = walk.next;
                walk.next = if place + 1 == walk.block_count {
                    0
                } else {
                    place + 1
                };
                place
            }
        };
        let offset = walk.base + (walk.block_first + place) * self.block_bytes;
        Position {
            device: walk.device,
            offset,
        }
    }
}

/// Lane number `lane`'s share of `block_total` blocks: the first, and how many.
fn lane_region(block_total: u64, lane: u32, lanes: u32) -> (u64, u64) {
    let share = block_total / u64::from(lanes.max(1));
    (share * u64::from(lane), share)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACES: [Space; 2] = [
        Space {
            device: 0,
            base: 2 << 20,
            length: 10 << 20,
        },
        Space {
            device: 1,
            base: 3 << 20,
            length: (10 << 20) + 512,
        },
    ];

    fn cell(pattern: Pattern, block_bytes: u64, lanes: u32) -> Cell {
        Cell {
            pattern,
            block_bytes,
            depth: 8,
            lanes,
        }
    }

    #[test]
    fn every_position_is_aligned_and_inside_its_space() {
        for pattern in Pattern::ALL {
            for block_bytes in [512, 4096, 64 << 10, 1 << 20, 3 << 20] {
                for lane in 0..3 {
                    let cell = cell(pattern, block_bytes, 3);
                    let mut cursor = Cursor::new(&cell, &SPACES, lane, 1).unwrap();
                    for _ in 0..5000 {
                        let position = cursor.next_position();
                        let space = SPACES[position.device as usize];
                        let from_base = position.offset - space.base;
                        assert!(from_base.is_multiple_of(block_bytes));
                        assert!(from_base + block_bytes <= space.length);
                    }
                }
            }
        }
    }

    #[test]
    fn sequential_lanes_visit_their_own_blocks_in_order_and_wrap() {
        let space = [Space {
            device: 0,
            base: 0,
            length: 8 * 4096,
        }];
        let cell = cell(Pattern::Read, 4096, 2);
        let offsets = |lane| {
            let mut cursor = Cursor::new(&cell, &space, lane, 1).unwrap();
            (0..5)
                .map(|_| cursor.next_position().offset / 4096)
                .collect::<Vec<_>>()
        };
        assert_eq!(offsets(0), [0, 1, 2, 3, 0]);
        assert_eq!(offsets(1), [4, 5, 6, 7, 4]);
    }

    #[test]
    fn a_walk_goes_on_where_another_ended() {
        let cell = cell(Pattern::Write, 4096, 1);
        let mut whole = Cursor::new(&cell, &SPACES, 0, 1).unwrap();
        // As often as both spaces have blocks, and a few more.
        for _ in 0..2 * 2560 + 10 {
            whole.next_position();
        }
        let mut later = Cursor::new(&cell, &SPACES, 0, 1)
            .unwrap()
            .after(2 * 2560 + 10);
        for _ in 0..20 {
            assert_eq!(later.next_position(), whole.next_position());
        }
    }

    #[test]
    fn lanes_that_keep_apart_draw_from_their_own_blocks() {
        let space = [Space {
            device: 0,
            base: 4096,
            length: 8 * 4096,
        }];
        let cell = cell(Pattern::RandRead, 4096, 2);
        for lane in 0..2 {
            let mut cursor = Cursor::apart(&cell, &space, lane, 1).unwrap();
            let mut seen = [0; 8];
            for _ in 0..200 {
                let block = cursor.next_position().offset / 4096 - 1;
                seen[usize::try_from(block).unwrap()] += 1;
            }
            let (first, second) = seen.split_at(4);
            let [own, foreign] = if lane == 0 {
                [first, second]
            } else {
                [second, first]
            };
            assert!(own.iter().all(|&count| count > 0), "{seen:?}");
            assert!(foreign.iter().all(|&count| count == 0), "{seen:?}");
        }
    }

    #[test]
    fn spaces_are_visited_in_turn() {
        let mut cursor = Cursor::new(&cell(Pattern::RandRead, 4096, 1), &SPACES, 0, 1).unwrap();
        let devices: Vec<u32> = (0..4).map(|_| cursor.next_position().device).collect();
        assert_eq!(devices, [0, 1, 0, 1]);
    }

    #[test]
    fn random_reaches_the_first_and_the_last_block() {
        let space = [Space {
            device: 0,
            base: 0,
            length: 4 * 4096 + 100,
        }];
        let mut cursor = Cursor::new(&cell(Pattern::RandWrite, 4096, 1), &space, 0, 1).unwrap();
        let mut seen = [false; 4];
        for _ in 0..200 {
            seen[usize::try_from(cursor.next_position().offset / 4096).unwrap()] = true;
        }
        assert_eq!(seen, [true; 4]);
    }

    #[test]
    fn a_block_larger_than_a_lanes_region_is_a_usage_error() {
        let error = Cursor::new(&cell(Pattern::Read, 4 << 20, 3), &SPACES, 0, 1).unwrap_err();
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn automatic_depth_bounds_requests_and_bytes() {
        assert_eq!(depth_auto(4096, 1, 4), 128);
        assert_eq!(depth_auto(64 << 10, 1, 4), 128);
        assert_eq!(depth_auto(128 << 10, 1, 4), 64);
        assert_eq!(depth_auto(1 << 20, 1, 4), 8);
        assert_eq!(depth_auto(8 << 20, 1, 1), 8);
        assert_eq!(depth_auto(4096, 4, 4), 32);
        assert_eq!(depth_auto(1 << 20, 32, 4), 1);
        assert_eq!(depth_auto(1 << 20, 1, 24), 48);
    }

    #[test]
    fn patterns_go_by_fios_names() {
        for pattern in Pattern::ALL {
            assert_eq!(pattern.name().parse::<Pattern>().unwrap(), pattern);
        }
        assert!("rw".parse::<Pattern>().is_err());
    }
}
