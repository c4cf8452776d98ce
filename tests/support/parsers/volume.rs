//! What a volume reads from its members: superblocks, root records, whatever was on a device before.

use std::cell::RefCell;

use swath_volume::signature::{Ends, first_nonzero, recognise};
use swath_volume::superblock::{
    Assembly, COPY_COUNT, Candidate, CopyResult, DATA_OFFSET, MemberMap, RING_SLOT_COUNT,
    SUPERBLOCK_BYTES, assemble, decode, encode,
};
use swath_volume::untrusted::{self, Slot};
use swath_volume::{ErrorKind, LAYOUT_RAID0, RootRecord, Superblock, Uuid};

use super::{ERROR_BYTES, Memory, Target, block_of, patches, seal_block, u32_at, u64_at};

type Block = [u8; SUPERBLOCK_BYTES];

pub(super) const DEVICE_BYTES: u64 = 16 << 20;
const CHUNK_BYTES: u64 = 64 << 10;
const OWN_OFFSET_AT: usize = 144;

pub(super) const SUPERBLOCK: Target = Target {
    name: "superblock",
    seal: Some(sealed_block),
    parse: |input| {
        let block = block_of(input);
        decode(&block, u64_at(&block, OWN_OFFSET_AT)).is_ok()
    },
    check: check_superblock,
    memory: Memory {
        unsealed_bytes: ERROR_BYTES,
        // 128 UUIDs and a name; or an error.
        base_bytes: 128 * 16 + ERROR_BYTES,
        factor: 0,
    },
};

pub(super) const MEMBERS: Target = Target {
    name: "members",
    seal: None,
    parse: |input| {
        let (blocks, order) = copies_of(input);
        assemble(&candidates(&blocks, &order)).is_ok()
    },
    check: check_members,
    // The blocks lie in memory, too.
    memory: Memory {
        unsealed_bytes: 0,
        base_bytes: 256 << 10,
        factor: 0,
    },
};

pub(super) const ROOT_RECORD: Target = Target {
    name: "root_record",
    seal: Some(sealed_block),
    parse: |input| {
        let block = block_of(input);
        let (member, slot) = place_of(&block);
        with_volume(|volume| {
            untrusted::root_record(&volume[member], slot, &block).is_ok_and(|found| found.is_ok())
        })
    },
    check: check_root_record,
    memory: Memory {
        unsealed_bytes: ERROR_BYTES,
        // The payload, and the block that it is compared with.
        base_bytes: 2 * 4096 + ERROR_BYTES,
        factor: 0,
    },
};

pub(super) const ROOT_HISTORY: Target = Target {
    name: "root_history",
    seal: None,
    parse: |input| {
        let history = History::of(input);
        untrusted::root_history(&history.members, &history.slots()).is_ok()
    },
    check: check_root_history,
    memory: Memory {
        unsealed_bytes: 0,
        base_bytes: 1 << 20,
        factor: 0,
    },
};

pub(super) const SIGNATURE: Target = Target {
    name: "signature",
    seal: None,
    parse: |input| with_ends(input, |ends| recognise(ends).is_some()),
    check: check_signature,
    memory: Memory {
        unsealed_bytes: 0,
        // A superblock, or a label of 256 bytes with each of them escaped.
        base_bytes: 8 << 10,
        factor: 0,
    },
};

fn sealed_block(input: &[u8]) -> Vec<u8> {
    let mut block = block_of(input);
    seal_block(&mut block);
    block.to_vec()
}

/// The superblocks of a volume, in index order, as copy 0 has them at `generation`.
pub(super) fn superblocks(members: u32, generation: u64) -> Vec<Superblock> {
    let map = MemberMap::new(DEVICE_BYTES).expect("a size that a member can have");
    let member_uuids: Vec<_> = (1..=u128::from(members))
        .map(|index| Uuid::from_u128(7 << 64 | index))
        .collect();
    (0..members)
        .zip(&member_uuids)
        .map(|(member_index, member_uuid)| Superblock {
            features_compat: 0,
            features_ro_compat: 0,
            features_incompat: 0,
            volume_uuid: Uuid::from_u128(7),
            name: format!("generation {generation}"),
            member_uuid: *member_uuid,
            member_index,
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

fn check_superblock(input: &[u8]) {
    let block = block_of(input);
    let own_offset = u64_at(&block, OWN_OFFSET_AT);
    if let Ok(superblock) = decode(&block, own_offset) {
        assert_eq!(superblock.own_offset, own_offset);
        assert!(superblock.member_index < superblock.member_count());
        let map = MemberMap::new(superblock.device_bytes).expect("it was checked");
        assert_eq!(map.copy_offset(superblock.copy_number as usize), own_offset);
        assert!(DATA_OFFSET + superblock.data_bytes <= map.tail_offset());
        if superblock.unknown_ro_compat() == 0 {
            let again = encode(&superblock, superblock.copy_number, own_offset);
            if superblock.features_compat == 0 {
                assert!(again == block, "accepted, and never written so");
            }
        }
        let elsewhere = decode(&block, own_offset ^ 4096);
        assert!(elsewhere.is_err(), "good in another place");
    }
    // And where the first copy of every member is.
    let _ = decode(&block, MemberMap::HEAD_COPY_OFFSETS[0]);
}

/// How many members the volume of [`MEMBERS`] and [`ROOT_HISTORY`] has.
pub(super) const MEMBER_COUNT: u32 = 3;

thread_local! {
    /// The copies of all members, of two generations: made once.
    static COPIES: [Vec<Block>; 2] = [4, 5].map(|generation| {
        let map = MemberMap::new(DEVICE_BYTES).expect("a size that a member can have");
        superblocks(MEMBER_COUNT, generation)
            .iter()
            .flat_map(|superblock| (0..COPY_COUNT).map(move |copy| (superblock, copy)))
            .map(|(superblock, copy)| encode(superblock, copy as u32, map.copy_offset(copy)))
            .collect()
    });
    /// The records of the volume: sequence, member and slot, and the block.
    static RECORDS: Vec<(u64, (usize, Slot), Block)> = records();
}

/// Four copies of each of three members with some changes, and which of them are opened.
///
/// The first byte says which copies are of the generation before (bit n: copies 0 and 2, then 1 and
/// 3, of each member), the second which members are there (two bits for each of four).
fn copies_of(input: &[u8]) -> (Vec<Block>, Vec<usize>) {
    let (&[older, there], changes) = input.split_first_chunk::<2>().unwrap_or((&[0, 0], &[]));
    let mut blocks: Vec<Block> = COPIES.with(|[old, new]| {
        (0..old.len())
            .map(|number| {
                let (member, copy) = (number / COPY_COUNT, number % COPY_COUNT);
                let is_older = older >> (2 * member + copy % 2) & 1 == 1;
                if is_older { old[number] } else { new[number] }
            })
            .collect()
    });
    patches::apply(&mut blocks, changes);
    let order = if there == 0 {
        vec![0, 1, 2]
    } else {
        (0..4)
            .map(|place| usize::from(there >> (2 * place) & 3))
            .filter(|member| *member < MEMBER_COUNT as usize)
            .collect()
    };
    (blocks, order)
}

fn candidates(blocks: &[Block], order: &[usize]) -> Vec<Candidate> {
    let map = MemberMap::new(DEVICE_BYTES).expect("a size that a member can have");
    let of = |member: usize| {
        let copies: [CopyResult; COPY_COUNT] = std::array::from_fn(|copy| {
            Ok(decode(
                &blocks[member * COPY_COUNT + copy],
                map.copy_offset(copy),
            )?)
        });
        Candidate {
            path: format!("m{member}").into(),
            device_bytes: DEVICE_BYTES,
            copies,
        }
    };
    order.iter().map(|member| of(*member)).collect()
}

fn check_members(input: &[u8]) {
    let (mut blocks, order) = copies_of(input);
    let Ok(assembly) = assemble(&candidates(&blocks, &order)) else {
        return;
    };
    assert_whole(&assembly, order.len());
    if assembly.unknown_ro_compat != 0 {
        return;
    }
    // What is healed is whole, says the same, and has nothing left to heal.
    for rewrite in assembly.heal.steps.iter().flatten() {
        let superblock = &assembly.superblocks[rewrite.member_index];
        let map = MemberMap::new(superblock.device_bytes).expect("it was checked");
        assert_eq!(map.copy_offset(rewrite.copy_number), rewrite.offset);
        let member = order[assembly.order[rewrite.member_index]];
        let copy = rewrite.copy_number;
        blocks[member * COPY_COUNT + copy] = encode(superblock, copy as u32, rewrite.offset);
    }
    let again = assemble(&candidates(&blocks, &order)).expect("healing makes it whole");
    assert_whole(&again, order.len());
    assert_eq!(again.generation(), assembly.generation());
    assert!(again.heal.is_empty(), "{:?} was healed", assembly.heal);
}

fn assert_whole(assembly: &Assembly, members: usize) {
    assert_eq!(assembly.superblocks.len(), members);
    let mut order = assembly.order.clone();
    order.sort_unstable();
    assert!(order.into_iter().eq(0..members));
    for (index, superblock) in (0..).zip(&assembly.superblocks) {
        assert_eq!(superblock.member_index, index);
        assert_eq!(superblock.member_count() as usize, members);
        assert_eq!(superblock.generation, assembly.generation());
    }
}

/// The volume that the records of [`ROOT_RECORD`] belong to, made once.
fn with_volume<R>(work: impl FnOnce(&[Superblock]) -> R) -> R {
    thread_local! {
        static VOLUME: Vec<Superblock> = superblocks(MEMBER_COUNT, 5);
    }
    VOLUME.with(|volume| work(volume))
}

/// Where a block says it belongs, as far as that can be.
fn place_of(block: &Block) -> (usize, Slot) {
    let slot = Slot {
        in_tail: u32_at(block, 52) == 1,
        number: u64_at(block, 64) % RING_SLOT_COUNT,
    };
    ((u32_at(block, 48) % MEMBER_COUNT) as usize, slot)
}

fn check_root_record(input: &[u8]) {
    let block = block_of(input);
    let (member, slot) = place_of(&block);
    with_volume(|volume| {
        let decode = |member: usize, slot| {
            untrusted::root_record(&volume[member], slot, &block).expect("a member that can be")
        };
        let Ok((record, again)) = decode(member, slot) else {
            return;
        };
        assert!(*again == block, "accepted, and never written so");
        assert_eq!(record.sequence % RING_SLOT_COUNT, slot.number);
        // Nowhere else is it good.
        assert!(decode((member + 1) % volume.len(), slot).is_err());
        let in_tail = !slot.in_tail;
        assert!(decode(member, Slot { in_tail, ..slot }).is_err());
        let number = (slot.number + 1) % RING_SLOT_COUNT;
        assert!(decode(member, Slot { number, ..slot }).is_err());
    });
}

/// How many records the history has before it is changed.
const RECORD_COUNT: u64 = 6;

/// The records, in both rings of every member.
fn records() -> Vec<(u64, (usize, Slot), Block)> {
    let members = superblocks(MEMBER_COUNT, 5);
    let mut records = Vec::new();
    let mut previous = 0;
    for sequence in 1..=RECORD_COUNT {
        let record = RootRecord {
            // Opened for writing at the third and the fifth.
            epoch: sequence.div_ceil(2),
            sequence,
            payload: vec![sequence as u8; 40],
        };
        for (number, member) in members.iter().enumerate() {
            for in_tail in [false, true] {
                let encoded = untrusted::encode_root_record(member, in_tail, &record, previous);
                let (slot, block) = encoded.expect("a member that can be");
                records.push((sequence, (number, slot), *block));
            }
        }
        previous = untrusted::root_link(&record, previous);
    }
    records
}

/// The records of a volume, in both rings of every member, with some changes.
struct History {
    members: Vec<Superblock>,
    blocks: Vec<Block>,
    places: Vec<(usize, Slot)>,
}

impl History {
    /// The first byte says on which members and rings the last record is missing (bit n), the second
    /// the same of the record before.
    fn of(input: &[u8]) -> Self {
        let (&missing, changes) = input.split_first_chunk::<2>().unwrap_or((&[0, 0], &[]));
        let is_missing = |sequence: u64, (member, slot): (usize, Slot)| {
            let bits = missing.get((RECORD_COUNT - sequence) as usize);
            let number = 2 * member + usize::from(slot.in_tail);
            bits.is_some_and(|bits| bits >> number & 1 == 1)
        };
        let (places, mut blocks): (Vec<_>, Vec<_>) = RECORDS.with(|records| {
            let there = records
                .iter()
                .filter(|(sequence, place, _)| !is_missing(*sequence, *place));
            there.map(|(_, place, block)| (*place, *block)).unzip()
        });
        patches::apply(&mut blocks, changes);
        Self {
            members: with_volume(<[Superblock]>::to_vec),
            blocks,
            places,
        }
    }

    fn slots(&self) -> Vec<(usize, Slot, &Block)> {
        let places = self.places.iter().zip(&self.blocks);
        places
            .map(|(&(member, slot), block)| (member, slot, block))
            .collect()
    }
}

fn check_root_history(input: &[u8]) {
    let history = History::of(input);
    let slots = history.slots();
    let newest = slots
        .iter()
        .filter_map(|&(member, slot, block)| {
            let found = untrusted::root_record(&history.members[member], slot, block);
            found.expect("a member that can be").ok()
        })
        .map(|(record, _)| record)
        .max_by_key(|record| (record.epoch, record.sequence));
    match untrusted::root_history(&history.members, &slots) {
        Ok((chosen, may_write)) => {
            assert_eq!(chosen, newest, "not the newest was chosen");
            // Only damage, or counters at their end, are in the way of writing.
            assert!(may_write || !input.is_empty());
        }
        Err(error) => assert!(
            matches!(
                error.kind(),
                ErrorKind::Damaged | ErrorKind::Stale | ErrorKind::Unsupported
            ),
            "{error}"
        ),
    }
}

/// How many bytes at each end are given to [`recognise`]: as many as production code does, or so many
/// that only our own superblocks lie beyond, for which a fuzzer needs a tenth of the time.
const AREA_BYTES: usize = 2 << 20;
const AREA_BYTES_SMALL: usize = 384 << 10;

/// A device with a few bytes that are not zero.
///
/// The input: the device's size (8 bytes), whether the areas are small (1 byte), then pieces, each with its place (4 bytes: the highest bit
/// for the tail, the rest modulo the area), its length (1 byte) and its bytes.
fn with_ends<R>(input: &[u8], work: impl FnOnce(&Ends<'_>) -> R) -> R {
    thread_local! {
        static AREAS: RefCell<[Vec<u8>; 2]> =
            RefCell::new([vec![0; AREA_BYTES], vec![0; AREA_BYTES]]);
    }
    let device_bytes = u64_at(input, 0);
    let is_small = input.get(8).is_some_and(|byte| *byte != 0);
    let most = if is_small {
        AREA_BYTES_SMALL
    } else {
        AREA_BYTES
    };
    let area_bytes = usize::try_from(device_bytes).map_or(most, |all| all.min(most));
    AREAS.with_borrow_mut(|areas| {
        let mut rest = input.get(9..).unwrap_or_default();
        let mut written = Vec::with_capacity(input.len() / 5);
        while let [place @ .., _] = rest.first_chunk::<5>().copied().unwrap_or_default()
            && rest.len() > 5
            && area_bytes > 0
        {
            let place = u32::from_le_bytes(place);
            let at = place as usize % (1 << 31) % area_bytes;
            let length = usize::from(rest[4])
                .min(rest.len() - 5)
                .min(area_bytes - at);
            let area = usize::from(place >> 31 == 1);
            areas[area][at..at + length].copy_from_slice(&rest[5..5 + length]);
            written.push((area, at, length));
            rest = &rest[5 + length..];
        }
        let ends = Ends {
            device_bytes,
            head: &areas[0][..area_bytes],
            tail_offset: device_bytes - area_bytes as u64,
            tail: &areas[1][..area_bytes],
        };
        let result = work(&ends);
        for (area, at, length) in written {
            areas[area][at..at + length].fill(0);
        }
        result
    })
}

fn check_signature(input: &[u8]) {
    with_ends(input, |ends| {
        let is_blank = first_nonzero(ends.head).is_none() && first_nonzero(ends.tail).is_none();
        match recognise(ends) {
            None => assert!(is_blank, "taken for blank"),
            Some(found) => {
                assert!(!is_blank);
                assert!(!found.description().is_empty());
                assert!(
                    !found.description().contains(char::is_control),
                    "{found:?} would reach a terminal"
                );
                assert!(found.offset() < ends.device_bytes);
            }
        }
    });
}
