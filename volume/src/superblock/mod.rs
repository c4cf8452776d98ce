//! The superblock: what a member says about itself and its volume. Format version 1.
//!
//! One block of 4 KiB, four copies on every member (see [`MemberMap`] for where), little-endian,
//! fixed offsets. UUIDs are 16 bytes in the order in which they are printed.
//!
//! ```text
//! offset bytes field
//!      0     8 magic "SWATH\0\r\n"
//!      8     4 version                 1
//!     12     4 length                  4096
//!     16     8 features, compat        unknown bits: go on
//!     24     8 features, ro_compat     unknown bits: read only
//!     32     8 features, incompat      unknown bits: refuse
//!     40    16 volume UUID
//!     56    16 member UUID             the entry of the table below at the member's index
//!     72     4 member index
//!     76     4 member count            1 to 128
//!     80     8 chunk bytes             a multiple of 4096
//!     88     4 block bytes             512 to 4096, a power of two
//!     92     4 layout id               1: RAID0
//!     96     8 data offset             where the member's data begins: 2 MiB
//!    104     8 data bytes              of each member: whole chunks, the same on all
//!    112     8 device bytes            size of this device when the volume was created
//!    120     8 created                 seconds since 1970, UTC
//!    128     8 generation              counts updates of the superblock, from 1
//!    136     4 copy number             0 to 3
//!    140     4 zero
//!    144     8 own offset              where on the device this copy belongs
//!    152    40 zero
//!    192    64 name                    UTF-8, at most 63 bytes, the rest zero
//!    256   768 zero
//!   1024  2048 member UUIDs            128 entries of 16 bytes; those not used are zero
//!   3072  1020 zero
//!   4092     4 checksum                CRC-32 (IEEE) of bytes 0 to 4091
//! ```
//!
//! - Every byte that no field uses is written as zero and must read as zero.
//! - Magic, version and the checksum's place and kind stay what they are in every later version,
//!   so that an older program can tell an unknown version from a damaged block.
//! - The four copies differ in copy number, own offset and checksum only, except during an update;
//!   the rules for that are in [`assemble`].
//! - A copy knows its own offset: one that was read from, or written to, a wrong place is found.

mod codec;
mod copies;
mod map;

use serde::Serialize;
use uuid::Uuid;

pub use codec::{DecodeError, decode, encode};
pub use copies::{
    Assembly, Candidate, CopyFault, CopyResult, Heal, Rewrite, UPDATE_STEPS, assemble,
};
pub use map::{
    COPY_COUNT, DATA_OFFSET, DEVICE_BYTES_MIN, HEAD_COPY_OFFSET, MemberMap, RING_SLOT_COUNT,
};

/// The size of a superblock.
pub const SUPERBLOCK_BYTES: usize = 4096;

/// The format version written and read here.
pub const FORMAT_VERSION: u32 = 1;

/// The longest name in bytes of UTF-8; one zero byte always follows.
pub const NAME_BYTES_MAX: usize = 63;

/// The blocks that drives have: the smallest and the largest that a volume is made of.
pub(crate) const BLOCK_BYTES_MIN: u32 = 512;
pub(crate) const BLOCK_BYTES_MAX: u32 = 4096;

/// What one copy on one member says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Superblock {
    /// Features that a program need not know to write the volume.
    pub features_compat: u64,
    /// Features that a program must know to write the volume.
    pub features_ro_compat: u64,
    /// Features that a program must know to read the volume.
    pub features_incompat: u64,
    /// The volume.
    pub volume_uuid: Uuid,
    /// The volume's name, for people.
    pub name: String,
    /// This member.
    pub member_uuid: Uuid,
    /// This member's place in the volume.
    pub member_index: u32,
    /// How many bytes sit together on one member.
    pub chunk_bytes: u64,
    /// The volume's logical block: the largest of its members' at creation.
    pub block_bytes: u32,
    /// Which stripe map: [`LAYOUT_RAID0`](crate::LAYOUT_RAID0).
    pub layout_id: u32,
    /// Where this member's data begins.
    pub data_offset: u64,
    /// How many bytes of data this member has.
    pub data_bytes: u64,
    /// The size of this member's device when the volume was created.
    pub device_bytes: u64,
    /// When the volume was created, in seconds since 1970, UTC.
    pub created_unix_s: u64,
    /// Counts updates of the superblock, from 1.
    pub generation: u64,
    /// Which of the member's copies this is.
    pub copy_number: u32,
    /// Where on the device this copy belongs.
    pub own_offset: u64,
    /// Every member's UUID, in index order; as many as the volume has members.
    pub member_uuids: Vec<Uuid>,
}

impl Superblock {
    /// How many members the volume has.
    pub fn member_count(&self) -> u32 {
        u32::try_from(self.member_uuids.len()).expect("a volume has at most 128 members")
    }

    /// Feature bits that forbid this program to write the volume.
    pub const fn unknown_ro_compat(&self) -> u64 {
        self.features_ro_compat & !FEATURES_RO_COMPAT_KNOWN
    }

    /// What is wrong with a name, if anything: too long, or control characters inside. The words
    /// continue a sentence that ends in "it is".
    pub fn name_problem(name: &str) -> Option<&'static str> {
        if name.len() > NAME_BYTES_MAX {
            return Some("longer than 63 bytes");
        }
        if name.chars().any(char::is_control) {
            return Some("not printable, for it has control characters");
        }
        None
    }

    /// Whether both describe the same member of the same volume, apart from what an update may
    /// change (name, features, generation) and what tells copies apart.
    fn is_same_member(&self, other: &Self) -> bool {
        self.is_same_volume(other)
            && self.member_uuid == other.member_uuid
            && self.member_index == other.member_index
            && self.device_bytes == other.device_bytes
    }

    /// Whether both describe the same volume, apart from what an update may change.
    fn is_same_volume(&self, other: &Self) -> bool {
        self.volume_uuid == other.volume_uuid
            && self.member_uuids == other.member_uuids
            && self.chunk_bytes == other.chunk_bytes
            && self.block_bytes == other.block_bytes
            && self.layout_id == other.layout_id
            && self.data_offset == other.data_offset
            && self.data_bytes == other.data_bytes
            && self.created_unix_s == other.created_unix_s
    }

    /// Whether both say the same of what an update may change, at the same generation.
    fn is_same_update(&self, other: &Self) -> bool {
        self.generation == other.generation
            && self.name == other.name
            // Bits of features that are unknown here are not carried over when a copy is healed.
            && self.features_compat & FEATURES_COMPAT_KNOWN
                == other.features_compat & FEATURES_COMPAT_KNOWN
            && self.features_ro_compat == other.features_ro_compat
            && self.features_incompat == other.features_incompat
    }
}

/// The feature bits known here: none yet.
const FEATURES_COMPAT_KNOWN: u64 = 0;
const FEATURES_RO_COMPAT_KNOWN: u64 = 0;
const FEATURES_INCOMPAT_KNOWN: u64 = 0;

/// One place where tests get superblocks from.
#[cfg(test)]
pub(crate) mod fixtures {
    use super::*;
    use crate::layout::LAYOUT_RAID0;

    pub(crate) const CHUNK_BYTES: u64 = 64 << 10;
    pub(crate) const DEVICE_BYTES: u64 = 16 << 20;

    /// The superblocks of a volume, in index order, as copy 0 has them at `generation`.
    pub(crate) fn volume(volume: u128, members: u32, generation: u64) -> Vec<Superblock> {
        let map = MemberMap::new(DEVICE_BYTES).unwrap();
        let member_uuids: Vec<Uuid> = (0..u128::from(members))
            .map(|index| Uuid::from_u128((volume << 32) + index + 1))
            .collect();
        (0..members)
            .map(|index| Superblock {
                features_compat: 0,
                features_ro_compat: 0,
                features_incompat: 0,
                volume_uuid: Uuid::from_u128(volume),
                name: format!("volume {volume} generation {generation}"),
                member_uuid: member_uuids[index as usize],
                member_index: index,
                chunk_bytes: CHUNK_BYTES,
                block_bytes: 512,
                layout_id: LAYOUT_RAID0,
                data_offset: DATA_OFFSET,
                data_bytes: map.data_bytes(CHUNK_BYTES),
                device_bytes: DEVICE_BYTES,
                created_unix_s: 1_700_000_000,
                generation,
                copy_number: 0,
                own_offset: map.copy_offset(0),
                member_uuids: member_uuids.clone(),
            })
            .collect()
    }
}
