//! Every bit of what a store stands on, flipped: superblocks, root records, catalog, index, data.
//!
//! What could go wrong: a flipped bit that is believed; one that costs more than what it hit; a volume
//! that is refused though another copy is whole, or opened for writing though a commit may be lost.
//!
//! The decoders' own tests flip every bit of a block. Here the flips go through opening, examining,
//! reading and verifying, which takes longer: a share of the bits by default, spread over all of
//! them, and every one with `SWATH_CASES=64`. `SWATH_FLIPS=n` flips n bits of data.

use std::env;
use std::path::Path;
use std::sync::Arc;

use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use swath_checkpoint::catalog::Catalog;
use swath_checkpoint::index::BLOCK_BYTES;
use swath_checkpoint::place::{BlobPlace, StoreHeader};
use swath_checkpoint::{ErrorKind, ReadOptions, Store, VerifyOptions};
use swath_tests::checkpoints::{self, SimStore, Tensor, assert_holds};
use swath_tests::seed::{Seed, cases};
use swath_volume::superblock::{COPY_COUNT, MemberMap, SUPERBLOCK_BYTES};
use swath_volume::{CopyState, ErrorKind as VolumeErrorKind, OpenOptions, Volume, examine_on};

use super::damage::{flip, place_of};
use super::{KIB, MIB};

pub(super) const CHUNK_BYTES: u64 = 64 << 10;
const BLOCK_BITS: usize = SUPERBLOCK_BYTES * 8;
/// What a root record and a superblock copy take.
const BLOCK: u64 = SUPERBLOCK_BYTES as u64;

pub(super) fn read_only() -> OpenOptions {
    OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    }
}

/// Bits out of `total`: every one when `SWATH_CASES` allows for it, else so many times `default`, one
/// of each stretch.
fn bits(total: usize, default: u32, rng: &mut ChaCha8Rng) -> Vec<usize> {
    let count = total.min(cases(default) as usize);
    (0..count)
        .map(|part| rng.random_range(part * total / count..(part + 1) * total / count))
        .collect()
}

/// A store of two checkpoints on three members.
pub(super) fn store(seed: &Seed) -> SimStore {
    let sim = SimStore::new(seed.value(), 3, 4 << 20, CHUNK_BYTES);
    for step in 1..3 {
        checkpoints::save(sim.store(), step, &tensors(step)).unwrap();
    }
    sim
}

pub(super) fn tensors(step: u64) -> Vec<Tensor> {
    vec![
        Tensor::new("large", MIB + 300 * KIB, step),
        Tensor::new("middle", 70 * KIB, 10 + step),
        Tensor::new("small", 700, 20 + step),
    ]
}

fn volume(sim: &SimStore, options: &OpenOptions) -> swath_volume::Result<Volume> {
    Volume::open_on(Arc::new(sim.platform.clone()), &sim.paths, options)
}

fn flip_bit(sim: &SimStore, path: &Path, block: u64, bit: usize) {
    let path = path.to_str().unwrap();
    flip(sim, path, block + bit as u64 / 8, 1 << (bit % 8));
}

fn map(sim: &SimStore) -> MemberMap {
    MemberMap::new(sim.member_bytes).unwrap()
}

#[test]
fn a_flipped_bit_of_one_superblock_copy_is_seen_and_healed() {
    let seed = Seed::new();
    let mut rng = seed.rng();
    let mut sim = store(&seed);
    sim.die();
    let uuid = volume(&sim, &read_only()).unwrap().uuid();
    let path = sim.paths[1].clone();
    let offsets = map(&sim).copy_offsets();
    let flips = bits(COPY_COUNT * BLOCK_BITS, 4096, &mut rng);
    for (number, place) in flips.iter().enumerate() {
        let (copy, bit) = (place / BLOCK_BITS, place % BLOCK_BITS);
        flip_bit(&sim, &path, offsets[copy], bit);
        let examined = examine_on(&sim.platform, &path).unwrap();
        for (other, state) in examined.copies.iter().enumerate() {
            let is_good = matches!(state, CopyState::Good { generation: 1 });
            assert_eq!(is_good, other != copy, "copy {copy}, bit {bit}: {state:?}");
            assert_ne!(*state, CopyState::Blank);
        }
        if number % 8 == 0 {
            let volume = volume(&sim, &read_only()).unwrap();
            assert_eq!(volume.uuid(), uuid, "copy {copy}, bit {bit}");
        }
        if number % 64 == 0 {
            drop(volume(&sim, &OpenOptions::default()).unwrap());
            let examined = examine_on(&sim.platform, &path).unwrap();
            let good = CopyState::Good { generation: 1 };
            assert!(examined.copies.iter().all(|state| *state == good));
        } else {
            flip_bit(&sim, &path, offsets[copy], bit);
        }
    }
    assert_holds(sim.reopen(), 2, &tensors(2));
    println!("{} bits flipped", flips.len());
}

#[test]
fn a_flipped_bit_of_the_last_superblock_copy_is_refused() {
    let seed = Seed::new();
    let mut rng = seed.rng();
    let mut sim = store(&seed);
    sim.die();
    let path = sim.paths[1].clone();
    let offsets = map(&sim).copy_offsets();
    let flips = bits(COPY_COUNT * BLOCK_BITS, 1024, &mut rng);
    for place in &flips {
        let (copy, bit) = (place / BLOCK_BITS, place % BLOCK_BITS);
        let kept: Vec<_> = offsets
            .iter()
            .map(|offset| sim.platform.peek(&path, *offset, SUPERBLOCK_BYTES))
            .collect();
        for other in (0..COPY_COUNT).filter(|other| *other != copy) {
            sim.platform
                .poke(&path, offsets[other], &[0; SUPERBLOCK_BYTES]);
        }
        flip_bit(&sim, &path, offsets[copy], bit);
        // The magic, the version, and everything else.
        let expected = match bit / 8 {
            0..8 => VolumeErrorKind::NotAMember,
            8..12 => VolumeErrorKind::Unsupported,
            _ => VolumeErrorKind::Damaged,
        };
        for options in [read_only(), OpenOptions::default()] {
            let error = volume(&sim, &options).unwrap_err();
            assert_eq!(error.kind(), expected, "copy {copy}, bit {bit}: {error}");
            assert!(error.paths().eq([path.as_path()]));
        }
        let examined = examine_on(&sim.platform, &path).unwrap();
        assert_eq!(examined.superblock, None);
        for (offset, bytes) in offsets.iter().zip(&kept) {
            sim.platform.poke(&path, *offset, bytes);
        }
    }
    assert_holds(sim.reopen(), 2, &tensors(2));
    println!("{} bits flipped", flips.len());
}

/// Where the copies of the newest root record lie: in both rings of every member.
pub(super) fn newest(sim: &SimStore, sequence: u64) -> Vec<(&Path, u64)> {
    let slot = sequence % 64 * BLOCK;
    let map = map(sim);
    let rings = [map.head_ring().start, map.tail_ring().start];
    sim.paths
        .iter()
        .flat_map(|path| rings.map(|ring| (path.as_path(), ring + slot)))
        .collect()
}

#[test]
fn a_flipped_bit_of_a_root_record_is_outvoted_by_any_whole_copy() {
    let seed = Seed::new();
    let mut rng = seed.rng();
    let mut sim = store(&seed);
    sim.die();
    let root = volume(&sim, &read_only()).unwrap().root().unwrap();
    let copies = newest(&sim, root.sequence);
    let flips = bits(copies.len() * BLOCK_BITS, 1024, &mut rng);
    for place in &flips {
        let (copy, bit) = (place / BLOCK_BITS, place % BLOCK_BITS);
        // The copy alone, and all but another one.
        let whole = (copy + 1) % copies.len();
        for flipped in [
            vec![copy],
            (0..copies.len()).filter(|c| *c != whole).collect(),
        ] {
            for copy in &flipped {
                let (path, offset) = copies[*copy];
                flip_bit(&sim, path, offset, bit);
            }
            let found = volume(&sim, &read_only()).unwrap().root();
            assert_eq!(found.as_ref(), Some(&root), "copies {flipped:?}, bit {bit}");
            for copy in &flipped {
                let (path, offset) = copies[*copy];
                flip_bit(&sim, path, offset, bit);
            }
        }
    }
    println!("{} bits flipped", flips.len());
    // Opened for writing, every copy is whole again: of this record, and of its successor.
    drop(copies);
    for _ in 0..cases(40) {
        let before = volume(&sim, &read_only()).unwrap().root().unwrap();
        let copies = newest(&sim, before.sequence);
        let whole = rng.random_range(0..copies.len());
        for (path, offset) in copies
            .iter()
            .enumerate()
            .filter(|(n, _)| *n != whole)
            .map(|c| *c.1)
        {
            flip_bit(&sim, path, offset, rng.random_range(0..BLOCK_BITS));
        }
        let after = volume(&sim, &OpenOptions::default())
            .unwrap()
            .root()
            .unwrap();
        assert_eq!(
            (after.sequence, after.epoch, &after.payload),
            (before.sequence + 1, before.epoch + 1, &before.payload)
        );
        let blocks: Vec<_> = copies
            .iter()
            .map(|(path, offset)| sim.platform.peek(path, *offset, 40))
            .collect();
        // Magic, version, length and the volume's UUID are the same in all.
        assert!(
            blocks
                .iter()
                .all(|block| block[..32] == blocks[whole][..32])
        );
    }
    assert_holds(sim.reopen(), 2, &tensors(2));
}

#[test]
fn when_every_copy_of_the_newest_root_record_is_flipped_nothing_is_written() {
    let seed = Seed::new();
    let mut rng = seed.rng();
    let mut sim = store(&seed);
    sim.die();
    let root = volume(&sim, &read_only()).unwrap().root().unwrap();
    let copies = newest(&sim, root.sequence);
    let flips = bits(BLOCK_BITS, 512, &mut rng);
    for bit in &flips {
        for (path, offset) in &copies {
            flip_bit(&sim, path, *offset, *bit);
        }
        sim.platform.take_trace();
        let error = volume(&sim, &OpenOptions::default()).unwrap_err();
        assert_eq!(error.kind(), VolumeErrorKind::Damaged, "bit {bit}: {error}");
        let has_written = |op: &swath_tests::sim::Traced| op.kind != swath_engine::OpKind::Read;
        assert!(
            !sim.platform.take_trace().iter().any(has_written),
            "bit {bit}"
        );
        // For reading there is the one before.
        let found = volume(&sim, &read_only()).unwrap().root().unwrap();
        assert_eq!(found.sequence, root.sequence - 1, "bit {bit}");
        for (path, offset) in &copies {
            flip_bit(&sim, path, *offset, *bit);
        }
    }
    println!("{} bits flipped", flips.len());
    assert_holds(sim.reopen(), 2, &tensors(2));
}

/// Where the catalog lies, and the index of a checkpoint.
pub(super) fn blobs(store: &Store, step: u64) -> (BlobPlace, BlobPlace) {
    let root = store.volume().root().unwrap();
    let catalog = StoreHeader::decode(&root.payload).unwrap().catalog;
    let mut bytes = vec![0; catalog.length as usize];
    let offset = catalog.extents[0].offset;
    store.volume().read_at(&mut bytes, offset).unwrap();
    let entries = Catalog::decode(&bytes).unwrap();
    let index = entries.find(&step.into()).unwrap().index.clone();
    (catalog, index)
}

/// Flips a bit of a blob that lies in one extent.
fn flip_in(sim: &SimStore, blob: &BlobPlace, bit: usize) {
    assert_eq!(blob.extents.len(), 1, "small blobs lie in one extent");
    let at = blob.extents[0].offset + bit as u64 / 8;
    let (member, offset) = place_of(at, CHUNK_BYTES);
    flip(sim, &member, offset, 1 << (bit % 8));
}

#[test]
fn a_flipped_bit_of_the_catalog_is_refused_and_of_what_follows_it_ignored() {
    let seed = Seed::new();
    let mut rng = seed.rng();
    let mut sim = store(&seed);
    let (catalog, _) = blobs(sim.store(), 1);
    // Who has it open goes on, and verifying finds it.
    for bit in bits(catalog.length as usize * 8, 20, &mut rng) {
        flip_in(&sim, &catalog, bit);
        let report = sim
            .store()
            .verify(&VerifyOptions::default(), &mut |_| true)
            .unwrap();
        let [damage] = &report.damages[..] else {
            panic!("bit {bit}: {report:?}");
        };
        assert_eq!((&damage.checkpoint, &damage.tensor), (&None, &None));
        flip_in(&sim, &catalog, bit);
    }
    sim.die();
    let whole_bits = catalog.extents[0].length as usize * 8;
    let catalog_bits = catalog.length as usize * 8;
    let mut flips = bits(catalog_bits, 1024, &mut rng);
    flips.extend(
        bits(whole_bits - catalog_bits, 64, &mut rng)
            .iter()
            .map(|bit| catalog_bits + bit),
    );
    for bit in &flips {
        flip_in(&sim, &catalog, *bit);
        match sim.open(&read_only()) {
            Ok(store) => {
                assert!(*bit >= catalog_bits, "bit {bit} was believed");
                assert_eq!(store.list().len(), 2);
            }
            Err(error) => {
                assert!(
                    *bit < catalog_bits,
                    "bit {bit} is not of the catalog: {error}"
                );
                assert_eq!(error.kind(), ErrorKind::Damaged, "bit {bit}: {error}");
                assert!(error.to_string().contains("catalog"), "{error}");
            }
        }
        flip_in(&sim, &catalog, *bit);
    }
    println!("{} bits flipped", flips.len());
    assert_holds(sim.reopen(), 2, &tensors(2));
}

#[test]
fn a_flipped_bit_of_an_index_costs_its_checkpoint_and_no_other() {
    let seed = Seed::new();
    let mut rng = seed.rng();
    let sim = store(&seed);
    let store = sim.store();
    let (_, index) = blobs(store, 2);
    let flips = bits(index.length as usize * 8, 1024, &mut rng);
    for (number, bit) in flips.iter().enumerate() {
        flip_in(&sim, &index, *bit);
        let error = store.get(2).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "bit {bit}: {error}");
        assert_eq!(error.checkpoint(), Some("2"));
        if number % 32 == 0 {
            assert_holds(store, 1, &tensors(1));
            let options = VerifyOptions { deep: true };
            let report = store.verify(&options, &mut |_| true).unwrap();
            let [damage] = &report.damages[..] else {
                panic!("bit {bit}: {report:?}");
            };
            assert_eq!(damage.checkpoint, Some(2.into()));
            assert_eq!(damage.tensor, None);
            let (member, offset) = place_of(index.extents[0].offset, CHUNK_BYTES);
            assert_eq!(damage.places[0].path, Path::new(&member));
            assert_eq!(damage.places[0].offset, offset);
        }
        flip_in(&sim, &index, *bit);
    }
    println!("{} bits flipped", flips.len());
    assert_holds(store, 2, &tensors(2));
}

/// How many flips of data.
fn data_flips() -> u64 {
    let flips = env::var("SWATH_FLIPS").map(|flips| flips.parse().unwrap());
    flips.unwrap_or_else(|_| cases(3_000).into())
}

#[test]
fn a_flipped_bit_of_data_is_never_given_out_and_always_located() {
    let seed = Seed::new();
    let mut rng = seed.rng();
    let sim = store(&seed);
    let store = sim.store();
    let all: Vec<_> = [1, 2]
        .map(|step| (step, tensors(step), store.get(step).unwrap()))
        .into();
    let mut readers: Vec<_> = all
        .iter()
        .map(|(_, _, checkpoint)| checkpoint.reader(ReadOptions::default()).unwrap())
        .collect();
    let flips = data_flips();
    for number in 0..flips {
        let which = rng.random_range(0..all.len());
        let (step, tensors, checkpoint) = &all[which];
        // Any byte of the checkpoint; every tenth time of a small tensor, which has few of them.
        let total: usize = tensors.iter().map(|tensor| tensor.bytes.len()).sum();
        let mut at = rng.random_range(0..total);
        if number % 10 == 0 {
            at = rng.random_range(tensors[0].bytes.len()..total);
        }
        let mut tensor = &tensors[0];
        for next in &tensors[1..] {
            if at >= tensor.bytes.len() {
                at -= tensor.bytes.len();
                tensor = next;
            }
        }
        let entry = checkpoint.tensor(&tensor.name).unwrap();
        let byte = at as u64;
        let mask = 1 << rng.random_range(0..8);
        let run = entry.locate(byte, 1).next().unwrap();
        let (member, offset) = place_of(run.offset, CHUNK_BYTES);
        flip(&sim, &member, offset, mask);

        // Any range of its block, this byte in it or not.
        let block = byte / BLOCK_BYTES;
        let range = entry.block_range(block);
        let start = rng.random_range(range.clone());
        let end = rng.random_range(start + 1..=range.end);
        let mut memory = vec![0; (end - start) as usize];
        // What a reader has of small tensors it does not read again.
        if entry.length < BLOCK_BYTES {
            readers[which] = checkpoint.reader(ReadOptions::default()).unwrap();
        }
        let error = readers[which]
            .read_range(&tensor.name, start, &mut memory)
            .unwrap_err();
        let what = format!("flip {number}, of {member} at {offset}");
        assert_eq!(error.kind(), ErrorKind::Damaged, "{what}: {error}");
        assert_eq!(error.checkpoint(), Some(&*step.to_string()), "{what}");
        assert_eq!(error.tensor(), Some(tensor.name.as_str()), "{what}");
        assert_eq!(error.block(), Some(block), "{what}");
        let covers = |places: &[swath_checkpoint::DevicePlace]| {
            places.iter().any(|place| {
                place.path == Path::new(&member)
                    && (place.offset..place.offset + place.length).contains(&offset)
            })
        };
        assert!(covers(error.places()), "{what}: {error}");

        // What is elsewhere is read.
        let other = &tensors[rng.random_range(0..tensors.len())];
        let other_block =
            rng.random_range(0..checkpoint.tensor(&other.name).unwrap().block_count());
        if (&other.name, other_block) != (&tensor.name, block) {
            let range = checkpoint
                .tensor(&other.name)
                .unwrap()
                .block_range(other_block);
            let wanted = &other.bytes[range.start as usize..range.end as usize];
            if (other.bytes.len() as u64) < BLOCK_BYTES {
                readers[which] = checkpoint.reader(ReadOptions::default()).unwrap();
            }
            let mut memory = vec![0; wanted.len()];
            readers[which]
                .read_range(&other.name, range.start, &mut memory)
                .unwrap();
            assert!(memory == wanted, "{what}");
        }
        if number % 100 == 0 {
            let options = VerifyOptions { deep: true };
            let report = store.verify(&options, &mut |_| true).unwrap();
            let [damage] = &report.damages[..] else {
                panic!("{what}: {report:?}");
            };
            assert_eq!(damage.checkpoint, Some((*step).into()), "{what}");
            assert_eq!(
                damage.tensor.as_deref(),
                Some(tensor.name.as_str()),
                "{what}"
            );
            assert_eq!(damage.block, Some(block), "{what}");
            assert!(covers(&damage.places), "{what}: {damage}");
        }
        flip(&sim, &member, offset, mask);
    }
    for (step, tensors, _) in &all {
        assert_holds(store, *step, tensors);
    }
    println!("{flips} bits flipped");
}
