//! The superblock's codec on any superblock and on any bytes.
//!
//! What could go wrong: a field that comes back changed, damage that is believed, bytes that make
//! the decoder panic or accept what the encoder never writes.

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;
use swath_tests::seed::check;
use swath_volume::superblock::{
    COPY_COUNT, DATA_OFFSET, DEVICE_BYTES_MIN, DecodeError, FORMAT_VERSION, MemberMap,
    SUPERBLOCK_BYTES, decode, encode,
};
use swath_volume::{LAYOUT_RAID0, MEMBERS_MAX, Superblock, Uuid};

type Block = [u8; SUPERBLOCK_BYTES];

const BITS: usize = SUPERBLOCK_BYTES * 8;
/// Where the checksum lies.
const CHECKSUM: usize = SUPERBLOCK_BYTES - 4;

/// A superblock that can be, as one of its copies has it.
fn superblocks() -> impl Strategy<Value = Superblock> {
    let identity = (any::<u128>(), 1..=MEMBERS_MAX, any::<u32>(), "\\PC{0,20}");
    let sizes = (
        1..=2048_u64,
        any::<u64>(),
        0..40_u32,
        select(vec![512_u32, 1024, 2048, 4096]),
    );
    let rest = (any::<u64>(), 1..=u64::MAX, 0..COPY_COUNT);
    (identity, sizes, rest).prop_map(|(identity, sizes, rest)| {
        let (volume, count, index, name) = identity;
        let (chunk_blocks, size, shift, block_bytes) = sizes;
        let (created_unix_s, generation, copy_number) = rest;
        let chunk_bytes = chunk_blocks * 4096;
        // No member may make the whole volume as large as 2^63 bytes.
        let device_bytes = DEVICE_BYTES_MIN + chunk_bytes + (size >> 9 >> shift);
        let map = MemberMap::new(device_bytes).unwrap();
        let member_uuids: Vec<_> = (0..count)
            .map(|index| Uuid::from_u128(volume.wrapping_add(index.into()) | 1 << 127))
            .collect();
        let member_index = index % count;
        let mut name = name;
        while name.len() > 63 {
            name.pop();
        }
        Superblock {
            features_compat: 0,
            features_ro_compat: 0,
            features_incompat: 0,
            volume_uuid: Uuid::from_u128(volume | 1),
            name,
            member_uuid: member_uuids[member_index as usize],
            member_index,
            chunk_bytes,
            block_bytes,
            layout_id: LAYOUT_RAID0,
            data_offset: DATA_OFFSET,
            data_bytes: map.data_bytes(chunk_bytes),
            device_bytes,
            created_unix_s,
            generation,
            copy_number: copy_number as u32,
            own_offset: map.copy_offset(copy_number),
            member_uuids,
        }
    })
}

fn encoded(superblock: &Superblock) -> Block {
    encode(superblock, superblock.copy_number, superblock.own_offset)
}

fn seal(block: &mut Block) {
    let checksum = crc32fast::hash(&block[..CHECKSUM]);
    block[CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn every_superblock_comes_back_as_it_was() {
    check(400, superblocks(), |superblock| {
        prop_assert_eq!(
            decode(&encoded(&superblock), superblock.own_offset),
            Ok(superblock)
        );
        Ok(())
    });
}

#[test]
fn a_superblock_is_refused_in_any_other_place() {
    check(200, (superblocks(), any::<u64>()), |(superblock, place)| {
        prop_assume!(place != superblock.own_offset);
        let misplaced = DecodeError::Misplaced {
            expected: place,
            found: superblock.own_offset,
        };
        prop_assert_eq!(decode(&encoded(&superblock), place), Err(misplaced));
        Ok(())
    });
}

#[test]
fn every_single_flipped_bit_is_found() {
    check(3, superblocks(), |superblock| {
        let mut block = encoded(&superblock);
        for bit in 0..BITS {
            block[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(
                decode(&block, superblock.own_offset).is_err(),
                "bit {}",
                bit
            );
            block[bit / 8] ^= 1 << (bit % 8);
        }
        Ok(())
    });
}

#[test]
fn several_flipped_bits_are_found() {
    check(
        2_000,
        (superblocks(), btree_set(0..BITS, 1..=8)),
        |(superblock, bits)| {
            let mut block = encoded(&superblock);
            for bit in &bits {
                block[bit / 8] ^= 1 << (bit % 8);
            }
            prop_assert!(decode(&block, superblock.own_offset).is_err());
            Ok(())
        },
    );
}

#[test]
fn a_torn_superblock_is_found() {
    let cases = (superblocks(), superblocks(), 1..8_usize);
    check(300, cases, |(old, new, sectors)| {
        let mut block = encoded(&new);
        let same_place = Superblock {
            device_bytes: new.device_bytes,
            ..old
        };
        let (old, torn) = (encoded_anyhow(&same_place, &new), sectors * 512);
        prop_assume!(old[torn..] != block[torn..] && old[..torn] != block[..torn]);
        block[torn..].copy_from_slice(&old[torn..]);
        prop_assert!(decode(&block, new.own_offset).is_err());
        Ok(())
    });
}

/// The older block at the place of a newer one: its fields, with the newer one's sizes and place.
fn encoded_anyhow(old: &Superblock, new: &Superblock) -> Block {
    let old = Superblock {
        chunk_bytes: new.chunk_bytes,
        data_bytes: new.data_bytes,
        copy_number: new.copy_number,
        own_offset: new.own_offset,
        ..old.clone()
    };
    encoded(&old)
}

#[test]
fn any_bytes_are_decoded_without_a_panic() {
    let bytes = vec(any::<u8>(), SUPERBLOCK_BYTES);
    check(
        500,
        (bytes, 0..6_u32, any::<u64>()),
        |(bytes, dressing, place)| {
            let mut block: Block = bytes.try_into().unwrap();
            // Dressed up so far that more and more of the decoder is reached.
            if dressing > 0 {
                block[..8].copy_from_slice(b"SWATH\0\r\n");
            }
            if dressing > 1 {
                block[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
            }
            if dressing > 2 {
                block[12..16].copy_from_slice(&4096_u32.to_le_bytes());
                block[32..40].fill(0);
            }
            if dressing > 3 {
                block[144..152].copy_from_slice(&place.to_le_bytes());
                block[92..96].copy_from_slice(&LAYOUT_RAID0.to_le_bytes());
            }
            if dressing > 4 {
                block[192..256].fill(0);
            }
            if dressing > 0 {
                seal(&mut block);
            }
            prop_assert!(
                decode(&block, place).is_err(),
                "chance does not make a superblock"
            );
            Ok(())
        },
    );
}

#[test]
fn what_is_accepted_is_what_is_written() {
    // A field of any size anywhere, changed to anything, under a right checksum.
    let changes = vec((0..CHECKSUM - 8, 1..=8_usize, any::<u64>()), 1..3);
    check(3_000, (superblocks(), changes), |(superblock, changes)| {
        let mut block = encoded(&superblock);
        for (place, length, value) in changes {
            // Half of the changes hit the fields at the start, which are few among many zeroes.
            let place = if value % 2 == 0 { place % 256 } else { place };
            // Small numbers are where most of the rules are.
            let value = if value % 3 == 0 { value % 200 } else { value };
            block[place..place + length].copy_from_slice(&value.to_le_bytes()[..length]);
        }
        seal(&mut block);
        if let Ok(accepted) = decode(&block, superblock.own_offset)
            && accepted.features_compat == 0
            && accepted.features_ro_compat == 0
        {
            prop_assert!(
                encoded(&accepted) == block,
                "accepted, and never written so"
            );
        }
        Ok(())
    });
}
