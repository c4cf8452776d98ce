//! Where things lie on a member: superblock copies, record rings and data, from its size alone.
//!
//! ```text
//! 0                       not ours: firmware and partition tools write here
//! 1 MiB                   superblock copy 0
//! 1 MiB +  64 KiB         superblock copy 1
//! 1 MiB + 128 KiB         record ring, head: 64 slots of 4 KiB
//! 2 MiB                   data
//! tail                    record ring, tail: 64 slots of 4 KiB
//! tail + 512 KiB          superblock copy 2
//! tail + 576 KiB          superblock copy 3
//! tail + 1 MiB            not ours, to the end
//! ```
//!
//! - `tail` is 2 MiB before the end, after the size was rounded down to 4 KiB; so every offset here
//!   is a multiple of 4 KiB.
//! - Data ends before `tail`; the rest of a chunk, and what a smaller member does not have, stays
//!   unused.
//! - The size is the one at creation, which every copy records. On a device that has grown since,
//!   copies 0 and 1 say where 2 and 3 are.

use std::ops::Range;

use super::SUPERBLOCK_BYTES;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{BYTES_MAX, CHUNK_BYTES_UNIT};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// How many copies of its superblock a member has.
pub const COPY_COUNT: usize = 4;

/// Where a member's data begins.
pub const DATA_OFFSET: u64 = 2 * MIB;

/// Where copy 0 lies on every member, whatever its size.
pub const HEAD_COPY_OFFSET: u64 = HEAD_COPY_OFFSETS[0];

/// The smallest device that can be a member: both ends and one chunk of the smallest size.
pub const DEVICE_BYTES_MIN: u64 = DATA_OFFSET + TAIL_BYTES + CHUNK_BYTES_UNIT;

/// How many slots each of a member's two record rings has.
pub const RING_SLOT_COUNT: u64 = 64;

/// Sizes are rounded down to this, so that everything lies on whole blocks of any drive.
const UNIT_BYTES: u64 = 4 * KIB;
const TAIL_BYTES: u64 = 2 * MIB;
const HEAD_COPY_OFFSETS: [u64; 2] = [MIB, MIB + 64 * KIB];
const TAIL_COPY_OFFSETS: [u64; 2] = [512 * KIB, 576 * KIB];
const HEAD_RING_OFFSET: u64 = MIB + 128 * KIB;
const RING_BYTES: u64 = RING_SLOT_COUNT * UNIT_BYTES;

const _: () = {
    assert!(SUPERBLOCK_BYTES as u64 == UNIT_BYTES);
    assert!(HEAD_COPY_OFFSETS[0] >= MIB);
    assert!(HEAD_COPY_OFFSETS[0] + UNIT_BYTES <= HEAD_COPY_OFFSETS[1]);
    assert!(HEAD_COPY_OFFSETS[1] + UNIT_BYTES <= HEAD_RING_OFFSET);
    assert!(HEAD_RING_OFFSET + RING_BYTES <= DATA_OFFSET);
    assert!(RING_BYTES <= TAIL_COPY_OFFSETS[0]);
    assert!(TAIL_COPY_OFFSETS[0] + UNIT_BYTES <= TAIL_COPY_OFFSETS[1]);
    assert!(TAIL_COPY_OFFSETS[1] + UNIT_BYTES + MIB <= TAIL_BYTES);
    assert!(RING_BYTES == 256 * KIB);
};

/// The places on a device of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberMap {
    device_bytes: u64,
    tail_offset: u64,
}

impl MemberMap {
    /// Where the first two copies lie, whatever the device's size.
    pub const HEAD_COPY_OFFSETS: [u64; 2] = HEAD_COPY_OFFSETS;

    /// The places on a device of `device_bytes`.
    ///
    /// # Errors
    ///
    /// Smaller than [`DEVICE_BYTES_MIN`], or 2^63 bytes and more.
    pub fn new(device_bytes: u64) -> Result<Self> {
        if device_bytes < DEVICE_BYTES_MIN {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("a member has at least {DEVICE_BYTES_MIN} bytes, this has {device_bytes}"),
            ));
        }
        if device_bytes > BYTES_MAX {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("a member has at most {BYTES_MAX} bytes, this has {device_bytes}"),
            ));
        }
        let tail_offset = device_bytes - device_bytes % UNIT_BYTES - TAIL_BYTES;
        Ok(Self {
            device_bytes,
            tail_offset,
        })
    }

    /// The size it was made for.
    pub const fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    /// Where superblock copy `copy_number` lies.
    ///
    /// # Panics
    ///
    /// When there is no such copy.
    pub const fn copy_offset(&self, copy_number: usize) -> u64 {
        match copy_number {
            0 | 1 => HEAD_COPY_OFFSETS[copy_number],
            2 | 3 => self.tail_offset + TAIL_COPY_OFFSETS[copy_number - 2],
            _ => panic!("a member has four superblock copies"),
        }
    }

    /// Where the superblock copies lie.
    pub fn copy_offsets(&self) -> [u64; COPY_COUNT] {
        std::array::from_fn(|copy_number| self.copy_offset(copy_number))
    }

    /// The record ring near the start.
    pub const fn head_ring(&self) -> Range<u64> {
        HEAD_RING_OFFSET..HEAD_RING_OFFSET + RING_BYTES
    }

    /// The record ring near the end.
    pub const fn tail_ring(&self) -> Range<u64> {
        self.tail_offset..self.tail_offset + RING_BYTES
    }

    /// Where the part behind the data begins.
    pub const fn tail_offset(&self) -> u64 {
        self.tail_offset
    }

    /// How many bytes of data fit, in whole chunks.
    ///
    /// # Panics
    ///
    /// When `chunk_bytes` is 0.
    pub const fn data_bytes(&self, chunk_bytes: u64) -> u64 {
        let room_bytes = self.tail_offset - DATA_OFFSET;
        room_bytes - room_bytes % chunk_bytes
    }

    /// How many bytes between the two ends are left over when `data_bytes` of them are used.
    pub const fn unused_bytes(&self, data_bytes: u64) -> u64 {
        (self.tail_offset - DATA_OFFSET).saturating_sub(data_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_on_any_size() {
        for extra in [
            0,
            1,
            511,
            512,
            4095,
            4096,
            5 * MIB + 17,
            BYTES_MAX - DEVICE_BYTES_MIN,
        ] {
            let device_bytes = DEVICE_BYTES_MIN + extra;
            let map = MemberMap::new(device_bytes).unwrap();
            let data_bytes = map.data_bytes(CHUNK_BYTES_UNIT);
            let copy = |number| map.copy_offset(number)..map.copy_offset(number) + UNIT_BYTES;
            let places = [
                copy(0),
                copy(1),
                map.head_ring(),
                DATA_OFFSET..DATA_OFFSET + data_bytes,
                map.tail_ring(),
                copy(2),
                copy(3),
            ];
            assert!(places[0].start >= MIB);
            for pair in places.windows(2) {
                assert!(pair[0].end <= pair[1].start, "{pair:?} at {device_bytes}");
            }
            assert!(places[6].end + MIB <= device_bytes);
            for place in &places {
                assert!(place.start.is_multiple_of(UNIT_BYTES));
            }
            assert!(data_bytes > 0);
            assert_eq!(map.unused_bytes(data_bytes), 0);
            assert_eq!(map.copy_offsets()[3], map.copy_offset(3));
        }
    }

    #[test]
    fn the_places_are_those_of_the_format() {
        let map = MemberMap::new(16 * MIB + 5).unwrap();
        let kib = map.copy_offsets().map(|offset| offset / KIB);
        assert_eq!(kib, [1024, 1088, 14 * 1024 + 512, 14 * 1024 + 576]);
        assert_eq!(map.head_ring(), 1152 * KIB..1408 * KIB);
        assert_eq!(map.tail_ring(), 14 * MIB..14 * MIB + 256 * KIB);
        assert_eq!(map.data_bytes(5 * MIB), 10 * MIB);
        assert_eq!(map.unused_bytes(10 * MIB), 2 * MIB);
    }

    #[test]
    fn devices_too_small_or_too_large_are_refused() {
        for device_bytes in [0, 4096, DEVICE_BYTES_MIN - 1, BYTES_MAX + 1, u64::MAX] {
            let error = MemberMap::new(device_bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
    }
}
