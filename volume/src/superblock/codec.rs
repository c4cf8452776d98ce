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
use crate::layout::{LAYOUT_RAID0, Layout, MEMBERS_MAX};

type Block = [u8; SUPERBLOCK_BYTES];

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

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn put(block: &mut Block, offset: usize, bytes: &[u8]) {
    block[offset..offset + bytes.len()].copy_from_slice(bytes);
}

fn bytes_at<const N: usize>(block: &Block, offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&block[offset..offset + N]);
    bytes
}

fn u32_at(block: &Block, offset: usize) -> u32 {
    u32::from_le_bytes(bytes_at(block, offset))
}

fn u64_at(block: &Block, offset: usize) -> u64 {
    u64::from_le_bytes(bytes_at(block, offset))
}

fn uuid_at(block: &Block, offset: usize) -> Uuid {
    Uuid::from_bytes(bytes_at(block, offset))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;

    fn sample() -> Superblock {
        fixtures::volume(7, 3, 5).remove(1)
    }

    fn sealed(superblock: &Superblock, change: impl FnOnce(&mut Block)) -> Block {
        let mut block = encode(superblock, 0, superblock.own_offset);
        change(&mut block);
        checksum::seal(&mut block);
        block
    }

    fn refused(change: impl FnOnce(&mut Block)) -> DecodeError {
        let superblock = sample();
        decode(&sealed(&superblock, change), superblock.own_offset).unwrap_err()
    }

    #[test]
    fn every_copy_reads_back_as_written() {
        let map = MemberMap::new(fixtures::DEVICE_BYTES).unwrap();
        for members in [1, 2, 5, MEMBERS_MAX] {
            for mut superblock in fixtures::volume(9, members, u64::MAX) {
                for (number, offset) in (0..).zip(map.copy_offsets()) {
                    superblock.copy_number = number;
                    superblock.own_offset = offset;
                    let block = encode(&superblock, number, offset);
                    assert_eq!(decode(&block, offset).as_ref(), Ok(&superblock));
                }
            }
        }
    }

    #[test]
    fn names_up_to_63_bytes_read_back() {
        for name in ["", "a", "Ελληνικά", &"n".repeat(63)] {
            let superblock = Superblock {
                name: name.to_owned(),
                ..sample()
            };
            let block = encode(&superblock, 0, superblock.own_offset);
            assert_eq!(decode(&block, superblock.own_offset).unwrap().name, name);
        }
        assert!(Superblock::name_problem(&"n".repeat(64)).is_some());
        assert!(Superblock::name_problem("a\nb").is_some());
    }

    /// The bytes on media are the format; a change of the code must not change them.
    #[test]
    fn the_bytes_are_those_of_the_table() {
        let superblock = sample();
        let block = encode(&superblock, 0, superblock.own_offset);
        assert_eq!(&block[..16], b"SWATH\0\r\n\x01\0\0\0\0\x10\0\0");
        assert_eq!(&block[16..40], [0; 24]);
        assert_eq!(&block[40..56], superblock.volume_uuid.as_bytes());
        assert_eq!(&block[72..80], [1, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(&block[80..88], (64u64 << 10).to_le_bytes());
        assert_eq!(&block[128..136], 5u64.to_le_bytes());
        assert_eq!(&block[144..152], (1u64 << 20).to_le_bytes());
        assert_eq!(&block[192..213], b"volume 7 generation 5");
        assert_eq!(&block[1040..1056], superblock.member_uuid.as_bytes());
        assert_eq!(
            &block[4092..],
            crc32fast::hash(&block[..4092]).to_le_bytes()
        );
    }

    #[test]
    fn every_single_bit_flip_is_refused() {
        let superblock = sample();
        let mut block = encode(&superblock, 0, superblock.own_offset);
        for bit in 0..SUPERBLOCK_BYTES * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            let error = decode(&block, superblock.own_offset).unwrap_err();
            assert!(
                !error.is_unsupported(),
                "a flip of bit {bit} looks like a newer version"
            );
            block[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(decode(&block, superblock.own_offset).is_ok());
    }

    /// A torn write keeps any of the old and the new 512-byte sectors.
    #[test]
    fn every_tear_between_two_updates_is_refused() {
        let old = Superblock {
            name: "old".into(),
            generation: 4,
            ..sample()
        };
        let new = sample();
        let old_block = encode(&old, 0, old.own_offset);
        let new_block = encode(&new, 0, new.own_offset);
        for kept in 0..256_usize {
            let mut block = old_block;
            for sector in (0..8).filter(|sector| kept & (1 << sector) != 0) {
                let range = sector * 512..(sector + 1) * 512;
                block[range.clone()].copy_from_slice(&new_block[range]);
            }
            match decode(&block, new.own_offset) {
                Ok(found) => assert!(found == old || found == new),
                Err(error) => assert_eq!(error, DecodeError::Checksum),
            }
        }
    }

    #[test]
    fn blank_and_other_content_are_told_apart() {
        assert_eq!(decode(&[0; SUPERBLOCK_BYTES], 0), Err(DecodeError::Blank));
        assert_eq!(
            decode(&[0xe5; SUPERBLOCK_BYTES], 0),
            Err(DecodeError::NotSwath)
        );
    }

    #[test]
    fn a_copy_in_a_wrong_place_is_misplaced() {
        let superblock = sample();
        let block = encode(&superblock, 0, superblock.own_offset);
        let expected = superblock.own_offset + (64 << 10);
        let found = superblock.own_offset;
        assert_eq!(
            decode(&block, expected),
            Err(DecodeError::Misplaced { expected, found })
        );
    }

    #[test]
    fn what_a_newer_program_wrote_is_unsupported_not_damaged() {
        let version = refused(|block| block[at::VERSION] = 2);
        assert_eq!(
            version,
            DecodeError::Version {
                found: 2,
                intact: true
            }
        );
        assert_eq!(version.to_string(), "unsupported version 2");
        let features = refused(|block| block[at::FEATURES_INCOMPAT + 1] = 1);
        assert_eq!(features, DecodeError::Features { unknown: 256 });
        let layout = refused(|block| block[at::LAYOUT_ID] = 9);
        assert_eq!(layout, DecodeError::Layout { found: 9 });
        for error in [version, features, layout] {
            assert!(error.is_unsupported());
        }
    }

    #[test]
    fn unknown_optional_features_are_read_and_may_use_padding() {
        for mask in [at::FEATURES_COMPAT, at::FEATURES_RO_COMPAT] {
            let superblock = sample();
            let block = sealed(&superblock, |block| {
                block[mask] = 4;
                block[4000] = 1;
            });
            let found = decode(&block, superblock.own_offset).unwrap();
            assert_eq!(found.features_compat | found.features_ro_compat, 4);
            assert_eq!(
                found.unknown_ro_compat() != 0,
                mask == at::FEATURES_RO_COMPAT
            );
        }
    }

    #[test]
    fn fields_that_make_no_sense_are_refused_by_name() {
        let cases: &[(&str, usize, u8)] = &[
            ("length", at::LENGTH, 1),
            ("padding", at::COPY_NUMBER_END, 1),
            ("padding", at::OWN_OFFSET_END, 1),
            ("padding", at::NAME_END, 1),
            ("padding", at::MEMBER_UUIDS - 1, 1),
            ("padding", at::MEMBER_UUIDS_END, 1),
            ("padding", at::CHECKSUM - 1, 1),
            ("member index", at::MEMBER_INDEX, 0),
            ("member index", at::MEMBER_INDEX + 3, 0xff),
            ("member index", at::MEMBER_UUID, 0xff),
            ("member count", at::MEMBER_COUNT, 0),
            ("member count", at::MEMBER_COUNT, 129),
            ("member UUIDs", at::MEMBER_COUNT, 2),
            ("member UUIDs", at::MEMBER_COUNT, 4),
            ("layout", at::CHUNK_BYTES, 1),
            ("layout", at::CHUNK_BYTES + 7, 0xff),
            ("layout", at::DATA_BYTES + 7, 0xff),
            ("data bytes", at::DATA_BYTES, 1),
            ("data bytes", at::DATA_BYTES + 5, 1),
            ("block bytes", at::BLOCK_BYTES, 1),
            ("data offset", at::DATA_OFFSET + 4, 1),
            ("device bytes", at::DEVICE_BYTES + 7, 0xff),
            ("generation", at::GENERATION, 0),
            ("copy number", at::COPY_NUMBER, 1),
            ("copy number", at::COPY_NUMBER + 3, 0xff),
            ("name", at::NAME, 0),
            ("name", at::NAME, b'\n'),
            ("name", at::NAME, 0xff),
            ("name", at::NAME_END - 1, b'x'),
        ];
        for &(expected, offset, value) in cases {
            match refused(|block| block[offset] = value) {
                DecodeError::Field { name, .. } => assert_eq!(name, expected, "at {offset}"),
                other => panic!("{expected} at {offset}: {other}"),
            }
        }
    }

    #[test]
    #[should_panic(expected = "read back")]
    fn what_could_not_be_read_is_never_written() {
        let superblock = Superblock {
            generation: 0,
            ..sample()
        };
        encode(&superblock, 0, superblock.own_offset);
    }

    proptest::proptest! {
        /// Bytes changed at will and sealed again reach every check behind the checksum.
        #[test]
        fn no_bytes_make_it_panic(
            changes in proptest::collection::vec((0..4092_usize, proptest::num::u8::ANY), 0..24),
            in_fields in proptest::collection::vec((0..256_usize, proptest::num::u8::ANY), 0..4),
            offset in proptest::num::u64::ANY,
        ) {
            let superblock = sample();
            let block = sealed(&superblock, |block| {
                for (offset, value) in changes.into_iter().chain(in_fields) {
                    block[offset] = value;
                }
            });
            let _ = decode(&block, offset);
            if let Ok(found) = decode(&block, superblock.own_offset)
                && found.features_compat | found.features_ro_compat == 0
            {
                proptest::prop_assert_eq!(encode(&found, 0, superblock.own_offset), block);
            }
        }
    }
}
