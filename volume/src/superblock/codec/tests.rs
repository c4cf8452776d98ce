//! Superblocks to bytes and back, and every kind of damage told as what it is.

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
