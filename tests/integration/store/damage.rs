//! Damage on the members, found and located.
//!
//! What could go wrong: a flipped bit that loads without a word; an error that points elsewhere; one
//! bad block that takes the rest of the checkpoint with it.

use swath_checkpoint::catalog::Catalog;
use swath_checkpoint::extent::Run;
use swath_checkpoint::index::BLOCK_BYTES;
use swath_checkpoint::place::StoreHeader;
use swath_checkpoint::retention::Retention;
use swath_checkpoint::{ErrorKind, ReadOptions, Store, TensorTarget};
use swath_engine::AlignedBuf;
use swath_tests::checkpoints::{self, MEMBER_ENDS_BYTES, SimStore, Tensor, assert_holds};
use swath_tests::seed::Seed;
use swath_volume::OpenOptions;

use super::{KIB, MIB};

const MEMBERS: u64 = 3;

fn tensors() -> Vec<Tensor> {
    let mut tensors = vec![
        Tensor::new("large", 3 * MIB + 5000, 1),
        Tensor::new("block", MIB, 2),
        Tensor::new("odd", MIB + 1, 3),
    ];
    for number in 0..6 {
        tensors.push(Tensor::new(format!("small {number}"), 700 * number + 1, 4));
    }
    tensors
}

/// Where a byte of the volume lies: the stripe map by hand.
pub(super) fn place_of(offset: u64, chunk_bytes: u64) -> (String, u64) {
    let chunk = offset / chunk_bytes;
    let member = chunk % MEMBERS;
    let within = chunk / MEMBERS * chunk_bytes + offset % chunk_bytes;
    (format!("m{member}"), MEMBER_ENDS_BYTES / 2 + within)
}

pub(super) fn flip(sim: &SimStore, path: &str, offset: u64, mask: u8) {
    let byte = sim.platform.peek(path, offset, 1)[0];
    sim.platform.poke(path, offset, &[byte ^ mask]);
}

/// Flips one bit of every block of every tensor, one after the other.
#[test]
fn every_damaged_block_is_found_and_located_and_the_rest_is_read() {
    let seed = Seed::new();
    let (mut rng, tensors) = (seed.rng(), tensors());
    for chunk_bytes in [4 << 10, 64 << 10, 1 << 20] {
        let sim = SimStore::new(seed.value(), MEMBERS as usize, 4 << 20, chunk_bytes);
        let store = sim.store();
        // Free space in pieces, so that tensors lie in several.
        for step in 10..16 {
            checkpoints::save(store, step, &[Tensor::new("x", 300 * KIB, step)]).unwrap();
        }
        for step in [10, 12, 14] {
            store.remove(step).unwrap();
        }
        checkpoints::save(store, 1, &tensors).unwrap();
        let checkpoint = store.get(1).unwrap();
        for tensor in &tensors {
            let entry = checkpoint.tensor(&tensor.name).unwrap();
            for block in 0..entry.block_count() {
                let range = entry.block_range(block);
                let byte = rand::RngExt::random_range(&mut rng, range.clone());
                let run: Vec<Run> = entry.locate(byte, 1).collect();
                let (member, offset) = place_of(run[0].offset, chunk_bytes);
                let mask = 1 << (byte % 8);
                flip(&sim, &member, offset, mask);

                // By a whole read into aligned and unaligned memory, a range, and in parallel.
                let length = tensor.bytes.len();
                let mut memory = AlignedBuf::zeroed(length + 1).unwrap();
                let mut reader = checkpoint.reader(ReadOptions::default()).unwrap();
                let errors = [
                    reader
                        .read(&tensor.name, &mut memory[..length])
                        .unwrap_err(),
                    reader.read(&tensor.name, &mut memory[1..]).unwrap_err(),
                    reader
                        .read_range(&tensor.name, range.start, &mut memory[..1])
                        .unwrap_err(),
                    checkpoint
                        .load(
                            vec![TensorTarget {
                                name: &tensor.name,
                                memory: &mut memory[..length],
                            }],
                            2,
                            ReadOptions::default(),
                        )
                        .unwrap_err(),
                ];
                for error in errors {
                    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
                    assert_eq!(error.checkpoint(), Some("1"));
                    assert_eq!(error.tensor(), Some(tensor.name.as_str()));
                    assert_eq!(error.block(), Some(block));
                    let total: u64 = error.places().iter().map(|place| place.length).sum();
                    assert_eq!(total, range.end - range.start, "{error}");
                    let is_named = error.places().iter().any(|place| {
                        place.path.as_os_str() == member.as_str()
                            && (place.offset..place.offset + place.length).contains(&offset)
                    });
                    assert!(is_named, "{member} at {offset} is not in {error}");
                }

                // The same reader still reads every other block.
                for other in (0..entry.block_count()).filter(|other| *other != block) {
                    let range = entry.block_range(other);
                    let (start, end) = (range.start as usize, range.end as usize);
                    let mut memory = vec![0; end - start];
                    reader
                        .read_range(&tensor.name, range.start, &mut memory)
                        .unwrap();
                    assert!(memory == tensor.bytes[start..end]);
                }
                // Who trusts what is there gets it as it is.
                let mut trusting = checkpoint.reader(ReadOptions { trust: true }).unwrap();
                trusting.read(&tensor.name, &mut memory[..length]).unwrap();
                let mut wanted = tensor.bytes.clone();
                wanted[byte as usize] ^= mask;
                assert!(memory[..length] == wanted);
                flip(&sim, &member, offset, mask);
            }
            // The others are as they were.
            for other in tensors.iter().filter(|other| other.name != tensor.name) {
                let mut memory = vec![0; other.bytes.len()];
                let mut reader = checkpoint.reader(ReadOptions::default()).unwrap();
                reader.read(&other.name, &mut memory).unwrap();
                assert!(memory == other.bytes);
            }
        }
        assert_holds(store, 1, &tensors);
        assert_eq!(BLOCK_BYTES, MIB as u64);
    }
}

/// A drive may have sent other bytes once. What a buffer holds of small tensors is no reason to say
/// so for ever.
#[test]
fn a_small_tensor_that_was_damaged_is_read_anew_when_it_is_asked_for_again() {
    let sim = SimStore::new(Seed::new().value(), MEMBERS as usize, 4 << 20, 64 << 10);
    let small = Tensor::new("small", 5000, 1);
    checkpoints::save(sim.store(), 1, std::slice::from_ref(&small)).unwrap();
    let checkpoint = sim.store().get(1).unwrap();
    let run = checkpoint.tensor("small").unwrap().runs[0];
    let (member, offset) = place_of(run.offset, 64 << 10);
    let mut reader = checkpoint.reader(ReadOptions::default()).unwrap();
    let mut memory = vec![0; 5000];
    flip(&sim, &member, offset, 1);
    for _ in 0..2 {
        let error = reader.read("small", &mut memory).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    }
    flip(&sim, &member, offset, 1);
    reader.read("small", &mut memory).unwrap();
    assert!(memory == small.bytes);
}

/// The extents of the catalog and of a checkpoint's index, from the root record on.
fn records(store: &Store, step: u64) -> (u64, u64) {
    let root = store.volume().root().unwrap();
    let header = StoreHeader::decode(&root.payload).unwrap();
    let place = header.catalog;
    let mut bytes = vec![0; place.length as usize];
    store
        .volume()
        .read_at(&mut bytes, place.extents[0].offset)
        .unwrap();
    let catalog = Catalog::decode(&bytes).unwrap();
    let entry = catalog.find(&step.into()).unwrap();
    (place.extents[0].offset, entry.index.extents[0].offset)
}

#[test]
fn a_damaged_index_costs_its_checkpoint_and_no_other() {
    let sim = SimStore::new(Seed::new().value(), 3, 4 << 20, 64 << 10);
    let store = sim.store();
    for step in 1..4 {
        checkpoints::save(store, step, &[Tensor::new("t", 50_000, step)]).unwrap();
    }
    let (_, index) = records(store, 3);
    let (member, offset) = place_of(index + 20, 64 << 10);
    flip(&sim, &member, offset, 4);
    let error = store.get(3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert_eq!(error.checkpoint(), Some("3"));
    assert_holds(store, 1, &[Tensor::new("t", 50_000, 1)]);
    // Nor does it stand in for a good one.
    let rule = Retention {
        keep_last: Some(1),
        keep_every: None,
    };
    let removed: Vec<_> = store
        .retain(&rule)
        .unwrap()
        .into_iter()
        .map(|info| info.name.step())
        .collect();
    assert_eq!(removed, [Some(1)]);
    assert_holds(store, 2, &[Tensor::new("t", 50_000, 2)]);
    // It can be removed without being read.
    store.remove(3).unwrap();
}

#[test]
fn a_damaged_catalog_is_told_and_nothing_is_written() {
    let mut sim = SimStore::new(Seed::new().value(), 3, 4 << 20, 64 << 10);
    checkpoints::save(sim.store(), 1, &[Tensor::new("t", 50_000, 1)]).unwrap();
    let (catalog, _) = records(sim.store(), 1);
    sim.die();
    for byte in [0, 8, 15, 24, 60] {
        let (member, offset) = place_of(catalog + byte, 64 << 10);
        flip(&sim, &member, offset, 0x10);
        for read_only in [true, false] {
            let options = OpenOptions {
                read_only,
                ..OpenOptions::default()
            };
            let error = sim.open(&options).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "byte {byte}: {error}");
            assert!(error.to_string().contains("catalog"), "{error}");
        }
        flip(&sim, &member, offset, 0x10);
    }
    assert_holds(sim.reopen(), 1, &[Tensor::new("t", 50_000, 1)]);
}

#[test]
fn a_member_that_cannot_be_read_is_named() {
    let sim = SimStore::new(Seed::new().value(), 3, 4 << 20, 64 << 10);
    let store = sim.store();
    let tensors = tensors();
    checkpoints::save(store, 1, &tensors).unwrap();
    let checkpoint = store.get(1).unwrap();
    let mut reader = checkpoint.reader(ReadOptions::default()).unwrap();
    for _ in 0..3 {
        for tensor in &tensors[..4] {
            let fault = swath_tests::sim::Fault::errno(libc::EIO)
                .of(swath_engine::OpKind::Read)
                .times(1);
            sim.platform.inject(fault);
            let mut memory = AlignedBuf::zeroed(tensor.bytes.len()).unwrap();
            // What a buffer of the reader holds already is not read again.
            if let Err(error) = reader.read(&tensor.name, &mut memory) {
                assert_eq!(error.kind(), ErrorKind::Volume, "{error}");
                assert_eq!(error.tensor(), Some(tensor.name.as_str()));
                let told = super::chain(&error);
                assert!(told.contains("m0") || told.contains("m1") || told.contains("m2"));
                reader.read(&tensor.name, &mut memory).unwrap();
            }
            assert!(memory[..] == tensor.bytes);
            sim.platform.heal();
        }
    }
    assert!(
        store.volume().poisoned().is_none(),
        "a read poisons nothing"
    );
}

/// A kernel may refuse a visit to a queue for a reason of its own. What was in flight is not lost.
#[test]
fn a_reader_goes_on_after_a_visit_was_refused() {
    let sim = SimStore::new(Seed::new().value(), 3, 4 << 20, 64 << 10);
    let tensors = tensors();
    checkpoints::save(sim.store(), 1, &tensors).unwrap();
    let checkpoint = sim.store().get(1).unwrap();
    let mut reader = checkpoint.reader(ReadOptions::default()).unwrap();
    for tensor in &tensors {
        let length = tensor.bytes.len();
        let mut memory = AlignedBuf::zeroed(length + 1).unwrap();
        for skip in [0, 1] {
            let memory = &mut memory[skip..skip + length];
            sim.platform.refuse_visits(1);
            let outcome = reader.read(&tensor.name, memory);
            sim.platform.refuse_visits(0);
            if outcome.is_err() {
                reader.read(&tensor.name, memory).unwrap();
            }
            assert!(memory == tensor.bytes);
        }
    }
}
