//! A superblock to bytes and back.
//!
//! - [`decode`] takes any 4096 bytes and never panics. It looks at the magic, the version, the
//!   length and the checksum, in this order, and believes no other field before these are right.
//!   Nothing is allocated before the checksum is right, and then at most 128 UUIDs and a name.
//! - [`encode`] writes only what [`decode`] accepts, and checks that it does.
//! - Every single-bit flip of an encoded block is refused.

use std::borrow::Cow;

use uuid::Uuid;

use super::map::{COPY_COUNT, DATA_OFFSET, MemberMap};
use super::{
    BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, FEATURES_COMPAT_KNOWN, FEATURES_INCOMPAT_KNOWN,
    FORMAT_VERSION, NAME_BYTES_MAX, SUPERBLOCK_BYTES, Superblock,
};
use crate::checksum::{self, CHECKSUM_BYTES};
use crate::fields::{Block, bytes_at, is_zero, put, u32_at, u64_at, uuid_at};
use crate::layout::{LAYOUT_RAID0, Layout, MEMBERS_MAX};

/// The first bytes of a superblock. The line end shows damage done by transfers as text.
pub(crate) const MAGIC: [u8; 8] = *b"SWATH\0\r\n";

/// Where the fields are; the table in the [parent module](super) explains them.
mod at {
    use super::{CHECKSUM_BYTES, MAGIC, MEMBERS_MAX, NAME_BYTES_MAX, SUPERBLOCK_BYTES};

    pub(super) const MAGIC_BYTES: usize = 0;
    pub(super) const VERSION: usize = 8;
    pub(super) const LENGTH: usize = 12;
    pub(super) const FEATURES_COMPAT: usize = 16;
    pub(super) const FEATURES_RO_COMPAT: usize = 24;
    pub(super) const FEATURES_INCOMPAT: usize = 32;
    pub(super) const VOLUME_UUID: usize = 40;
    pub(super) const MEMBER_UUID: usize = 56;
    pub(super) const MEMBER_INDEX: usize = 72;
    pub(super) const MEMBER_COUNT: usize = 76;
    pub(super) const CHUNK_BYTES: usize = 80;
    pub(super) const BLOCK_BYTES: usize = 88;
    pub(super) const LAYOUT_ID: usize = 92;
    pub(super) const DATA_OFFSET: usize = 96;
    pub(super) const DATA_BYTES: usize = 104;
    pub(super) const DEVICE_BYTES: usize = 112;
    pub(super) const CREATED_UNIX_S: usize = 120;
    pub(super) const GENERATION: usize = 128;
    pub(super) const COPY_NUMBER: usize = 136;
    pub(super) const COPY_NUMBER_END: usize = 140;
    pub(super) const OWN_OFFSET: usize = 144;
    pub(super) const OWN_OFFSET_END: usize = 152;
    pub(super) const NAME: usize = 192;
    pub(super) const NAME_END: usize = 256;
    pub(super) const MEMBER_UUIDS: usize = 1024;
    pub(super) const MEMBER_UUIDS_END: usize = 3072;
    pub(super) const CHECKSUM: usize = 4092;

    const _: () = {
        assert!(MAGIC_BYTES + MAGIC.len() == VERSION);
        assert!(VERSION + 4 == LENGTH);
        assert!(LENGTH + 4 == FEATURES_COMPAT);
        assert!(FEATURES_COMPAT + 8 == FEATURES_RO_COMPAT);
        assert!(FEATURES_RO_COMPAT + 8 == FEATURES_INCOMPAT);
        assert!(FEATURES_INCOMPAT + 8 == VOLUME_UUID);
        assert!(VOLUME_UUID + 16 == MEMBER_UUID);
        assert!(MEMBER_UUID + 16 == MEMBER_INDEX);
        assert!(MEMBER_INDEX + 4 == MEMBER_COUNT);
        assert!(MEMBER_COUNT + 4 == CHUNK_BYTES);
        assert!(CHUNK_BYTES + 8 == BLOCK_BYTES);
        assert!(BLOCK_BYTES + 4 == LAYOUT_ID);
        assert!(LAYOUT_ID + 4 == DATA_OFFSET);
        assert!(DATA_OFFSET + 8 == DATA_BYTES);
        assert!(DATA_BYTES + 8 == DEVICE_BYTES);
        assert!(DEVICE_BYTES + 8 == CREATED_UNIX_S);
        assert!(CREATED_UNIX_S + 8 == GENERATION);
        assert!(GENERATION + 8 == COPY_NUMBER);
        assert!(COPY_NUMBER + 4 == COPY_NUMBER_END);
        assert!(COPY_NUMBER_END + 4 == OWN_OFFSET);
        assert!(OWN_OFFSET + 8 == OWN_OFFSET_END);
        assert!(OWN_OFFSET_END < NAME);
        assert!(NAME + NAME_BYTES_MAX + 1 == NAME_END);
        assert!(NAME_END < MEMBER_UUIDS);
        assert!(MEMBER_UUIDS + 16 * MEMBERS_MAX as usize == MEMBER_UUIDS_END);
        assert!(MEMBER_UUIDS_END < CHECKSUM);
        assert!(CHECKSUM + CHECKSUM_BYTES == SUPERBLOCK_BYTES);
    };
}

/// The bytes that no field uses.
const PADDING: [std::ops::Range<usize>; 4] = [
    at::COPY_NUMBER_END..at::OWN_OFFSET,
    at::OWN_OFFSET_END..at::NAME,
    at::NAME_END..at::MEMBER_UUIDS,
    at::MEMBER_UUIDS_END..at::CHECKSUM,
];

/// Why a block is not a superblock that can be used.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Every byte is zero.
    #[error("blank")]
    Blank,
    /// Something else.
    #[error("not a Swath superblock")]
    NotSwath,
    /// A version that is unknown here.
    #[error("unsupported version {found}")]
    Version {
        /// The version it has.
        found: u32,
        /// Whether the checksum is right: then this is what was written, and no damage.
        intact: bool,
    },
    /// Features that a program must know to read the volume, and this one does not.
    #[error("unsupported features {unknown:#x}")]
    Features {
        /// The bits that are unknown here.
        unknown: u64,
    },
    /// A stripe map that is unknown here.
    #[error("unsupported layout {found}")]
    Layout {
        /// The layout it has.
        found: u32,
    },
    /// Damaged: the checksum is wrong.
    #[error("checksum mismatch")]
    Checksum,
    /// Intact, but of another place.
    #[error("belongs at offset {found}, not at {expected}")]
    Misplaced {
        /// Where it was read from.
        expected: u64,
        /// Where it says it belongs.
        found: u64,
    },
    /// A field makes no sense.
    #[error("{name}: {reason}")]
    Field {
        /// Which field.
        name: &'static str,
        /// What is wrong with it.
        reason: Cow<'static, str>,
    },
}

impl DecodeError {
    /// Whether the block is what a newer program wrote, and not damaged.
    pub const fn is_unsupported(&self) -> bool {
        matches!(
            self,
            Self::Version { intact: true, .. } | Self::Features { .. } | Self::Layout { .. }
        )
    }
}

/// The bytes of `superblock` as copy `copy_number`, which belongs at `own_offset`.
///
/// Feature bits of the compat mask that are unknown here are left out: what they stand for is not
/// carried over.
///
/// # Panics
///
/// When the superblock is not one that [`decode`] would accept there.
pub fn encode(superblock: &Superblock, copy_number: u32, own_offset: u64) -> Block {
    let mut written = superblock.clone();
    written.features_compat &= FEATURES_COMPAT_KNOWN;
    written.copy_number = copy_number;
    written.own_offset = own_offset;
    assert!(
        written.name.len() <= NAME_BYTES_MAX,
        "a name has at most {NAME_BYTES_MAX} bytes"
    );
    assert!(
        written.member_uuids.len() <= MEMBERS_MAX as usize,
        "too many members to write down"
    );
    assert_eq!(
        written.unknown_ro_compat(),
        0,
        "an unknown feature forbids writing"
    );

    let mut block = [0; SUPERBLOCK_BYTES];
    put(&mut block, at::MAGIC_BYTES, &MAGIC);
    put(&mut block, at::VERSION, &FORMAT_VERSION.to_le_bytes());
    put(&mut block, at::LENGTH, &LENGTH.to_le_bytes());
    put(
        &mut block,
        at::FEATURES_COMPAT,
        &written.features_compat.to_le_bytes(),
    );
    put(
        &mut block,
        at::FEATURES_RO_COMPAT,
        &written.features_ro_compat.to_le_bytes(),
    );
    put(
        &mut block,
        at::FEATURES_INCOMPAT,
        &written.features_incompat.to_le_bytes(),
    );
    put(&mut block, at::VOLUME_UUID, written.volume_uuid.as_bytes());
    put(&mut block, at::MEMBER_UUID, written.member_uuid.as_bytes());
    put(
        &mut block,
        at::MEMBER_INDEX,
        &written.member_index.to_le_bytes(),
    );
    put(
        &mut block,
        at::MEMBER_COUNT,
        &written.member_count().to_le_bytes(),
    );
    put(
        &mut block,
        at::CHUNK_BYTES,
        &written.chunk_bytes.to_le_bytes(),
    );
    put(
        &mut block,
        at::BLOCK_BYTES,
        &written.block_bytes.to_le_bytes(),
    );
    put(&mut block, at::LAYOUT_ID, &written.layout_id.to_le_bytes());
    put(
        &mut block,
        at::DATA_OFFSET,
        &written.data_offset.to_le_bytes(),
    );
    put(
        &mut block,
        at::DATA_BYTES,
        &written.data_bytes.to_le_bytes(),
    );
    put(
        &mut block,
        at::DEVICE_BYTES,
        &written.device_bytes.to_le_bytes(),
    );
    put(
        &mut block,
        at::CREATED_UNIX_S,
        &written.created_unix_s.to_le_bytes(),
    );
    put(
        &mut block,
        at::GENERATION,
        &written.generation.to_le_bytes(),
    );
    put(&mut block, at::COPY_NUMBER, &copy_number.to_le_bytes());
    put(&mut block, at::OWN_OFFSET, &own_offset.to_le_bytes());
    put(&mut block, at::NAME, written.name.as_bytes());
    for (index, uuid) in written.member_uuids.iter().enumerate() {
        put(&mut block, at::MEMBER_UUIDS + 16 * index, uuid.as_bytes());
    }
    checksum::seal(&mut block);

    let read_back = decode(&block, own_offset);
    assert_eq!(
        read_back.as_ref(),
        Ok(&written),
        "a superblock must read back as it was written"
    );
    block
}

/// The superblock in `block`, which was read from `expected_offset` of a device.
///
/// # Errors
///
/// See [`DecodeError`]. An unknown version is told before the checksum is looked at.
pub fn decode(block: &Block, expected_offset: u64) -> Result<Superblock, DecodeError> {
    check_envelope(block)?;
    let features_incompat = u64_at(block, at::FEATURES_INCOMPAT);
    let unknown = features_incompat & !FEATURES_INCOMPAT_KNOWN;
    if unknown != 0 {
        return Err(DecodeError::Features { unknown });
    }
    let own_offset = u64_at(block, at::OWN_OFFSET);
    if own_offset != expected_offset {
        return Err(DecodeError::Misplaced {
            expected: expected_offset,
            found: own_offset,
        });
    }
    let layout_id = u32_at(block, at::LAYOUT_ID);
    if layout_id != LAYOUT_RAID0 {
        return Err(DecodeError::Layout { found: layout_id });
    }
    let superblock = Superblock {
        features_compat: u64_at(block, at::FEATURES_COMPAT),
        features_ro_compat: u64_at(block, at::FEATURES_RO_COMPAT),
        features_incompat,
        volume_uuid: uuid_at(block, at::VOLUME_UUID),
        name: name(block)?,
        member_uuid: uuid_at(block, at::MEMBER_UUID),
        member_index: u32_at(block, at::MEMBER_INDEX),
        chunk_bytes: u64_at(block, at::CHUNK_BYTES),
        block_bytes: u32_at(block, at::BLOCK_BYTES),
        layout_id,
        data_offset: u64_at(block, at::DATA_OFFSET),
        data_bytes: u64_at(block, at::DATA_BYTES),
        device_bytes: u64_at(block, at::DEVICE_BYTES),
        created_unix_s: u64_at(block, at::CREATED_UNIX_S),
        generation: u64_at(block, at::GENERATION),
        copy_number: u32_at(block, at::COPY_NUMBER),
        own_offset,
        member_uuids: member_uuids(block)?,
    };
    // A feature may have put a meaning on bytes that are padding to this program.
    let features_known = superblock.features_compat & !FEATURES_COMPAT_KNOWN == 0
        && superblock.unknown_ro_compat() == 0;
    if features_known && PADDING.into_iter().any(|range| !is_zero(&block[range])) {
        return Err(field("padding", "not zero"));
    }
    check_fields(&superblock)?;
    Ok(superblock)
}

/// What must be right before anything else is believed.
fn check_envelope(block: &Block) -> Result<(), DecodeError> {
    if is_zero(block) {
        return Err(DecodeError::Blank);
    }
    if bytes_at(block, at::MAGIC_BYTES) != MAGIC {
        return Err(DecodeError::NotSwath);
    }
    let intact = checksum::is_intact(block);
    let found = u32_at(block, at::VERSION);
    if found != FORMAT_VERSION {
        return Err(DecodeError::Version { found, intact });
    }
    let length = u32_at(block, at::LENGTH);
    if length != LENGTH {
        return Err(field("length", format!("{length}, not {LENGTH}")));
    }
    if intact {
        Ok(())
    } else {
        Err(DecodeError::Checksum)
    }
}

/// Whether the fields make sense one by one and together.
fn check_fields(superblock: &Superblock) -> Result<(), DecodeError> {
    let s = superblock;
    if s.volume_uuid.is_nil() {
        return Err(field("volume UUID", "zero"));
    }
    if s.generation == 0 {
        return Err(field("generation", "zero"));
    }
    if s.member_uuids.get(s.member_index as usize) != Some(&s.member_uuid) {
        return Err(field(
            "member index",
            format!(
                "member {} is not the one that the table has",
                s.member_index
            ),
        ));
    }
    for (index, uuid) in s.member_uuids.iter().enumerate() {
        if uuid.is_nil() || s.member_uuids[..index].contains(uuid) {
            return Err(field(
                "member UUIDs",
                format!("entry {index} is zero or a repetition"),
            ));
        }
    }
    if !s.block_bytes.is_power_of_two()
        || !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&s.block_bytes)
    {
        return Err(field(
            "block bytes",
            format!("{} is not a block size", s.block_bytes),
        ));
    }
    if s.data_offset != DATA_OFFSET {
        return Err(field(
            "data offset",
            format!("{}, not {DATA_OFFSET}", s.data_offset),
        ));
    }
    let map =
        MemberMap::new(s.device_bytes).map_err(|error| field("device bytes", error.to_string()))?;
    let layout = Layout::new(s.member_count(), s.chunk_bytes, s.data_bytes)
        .map_err(|error| field("layout", error.to_string()))?;
    if layout.member_data_bytes() != s.data_bytes {
        return Err(field(
            "data bytes",
            format!("{} are not whole chunks", s.data_bytes),
        ));
    }
    if s.data_bytes > map.data_bytes(s.chunk_bytes) {
        return Err(field(
            "data bytes",
            format!("{} do not fit the device", s.data_bytes),
        ));
    }
    let copy_number = s.copy_number as usize;
    if copy_number >= COPY_COUNT || map.copy_offset(copy_number) != s.own_offset {
        return Err(field(
            "copy number",
            format!(
                "copy {copy_number} is not the one at offset {}",
                s.own_offset
            ),
        ));
    }
    Ok(())
}

fn name(block: &Block) -> Result<String, DecodeError> {
    let bytes = &block[at::NAME..at::NAME_END];
    let end = bytes.iter().position(|byte| *byte == 0);
    let Some((name, rest)) = end.map(|end| bytes.split_at(end)) else {
        return Err(field("name", "not terminated"));
    };
    if !is_zero(rest) {
        return Err(field("name", "not zero behind its end"));
    }
    let Ok(name) = std::str::from_utf8(name) else {
        return Err(field("name", "not UTF-8"));
    };
    match Superblock::name_problem(name) {
        Some(problem) => Err(field("name", problem)),
        None => Ok(name.to_owned()),
    }
}

fn member_uuids(block: &Block) -> Result<Vec<Uuid>, DecodeError> {
    let count = u32_at(block, at::MEMBER_COUNT);
    if count == 0 || count > MEMBERS_MAX {
        return Err(field(
            "member count",
            format!("{count}, not 1 to {MEMBERS_MAX}"),
        ));
    }
    let end = at::MEMBER_UUIDS + 16 * count as usize;
    if !is_zero(&block[end..at::MEMBER_UUIDS_END]) {
        return Err(field("member UUIDs", "more than there are members"));
    }
    Ok((at::MEMBER_UUIDS..end)
        .step_by(16)
        .map(|offset| uuid_at(block, offset))
        .collect())
}

const LENGTH: u32 = 4096;
const _: () = assert!(LENGTH as usize == SUPERBLOCK_BYTES);

fn field(name: &'static str, reason: impl Into<Cow<'static, str>>) -> DecodeError {
    DecodeError::Field {
        name,
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests;
