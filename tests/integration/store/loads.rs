//! Many tensors read at once, by one reader.
//!
//! What could go wrong: bytes that end up in another tensor's memory; a block that is checked before
//! all of its parts came, or not at all; a failure that is told of the wrong tensor, or of another
//! each time; blocks that several tensors share read over and over.

use swath_checkpoint::{Checkpoint, ErrorKind, ReadOptions, Reader, Result, Store, TensorTarget};
use swath_engine::{AlignedBuf, OpKind};
use swath_tests::checkpoints::{self, SimStore, Tensor};
use swath_tests::seed::Seed;
use swath_tests::sim::Fault;

use super::{KIB, MIB};

/// Sizes from nothing to three blocks, beside every border.
fn tensors() -> Vec<Tensor> {
    let sizes = [
        0,
        1,
        511,
        512,
        4096,
        5000,
        64 * KIB,
        MIB - 1,
        MIB,
        MIB + 1,
        MIB + 512,
        MIB + 300 * KIB,
        2 * MIB - 4096,
        2 * MIB,
        2 * MIB + 77,
        3 * MIB - 1,
        3 * MIB,
    ];
    let tensors = (0..).zip(sizes);
    tensors
        .map(|(mark, size)| Tensor::new(format!("{size} bytes"), size, mark))
        .collect()
}

/// A store whose free space lies in pieces, with a checkpoint of these tensors.
fn saved(seed: &Seed, chunk_bytes: u64, tensors: &[Tensor]) -> SimStore {
    let sim = SimStore::new(seed.value(), 3, 13 << 20, chunk_bytes);
    let store = sim.store();
    for step in 10..50 {
        let size = 300 * KIB + step as usize % 7 * 200 * KIB;
        checkpoints::save(store, step, &[Tensor::new("x", size, step)]).unwrap();
    }
    for step in (10..50).step_by(2) {
        store.remove(step).unwrap();
    }
    checkpoints::save(store, 1, tensors).unwrap();
    sim
}

fn memories(tensors: &[Tensor], skew: usize) -> Vec<AlignedBuf> {
    let room = |tensor: &Tensor| AlignedBuf::zeroed(tensor.bytes.len() + skew).unwrap();
    tensors.iter().map(room).collect()
}

fn targets<'a>(
    tensors: &'a [Tensor],
    memories: &'a mut [AlignedBuf],
    skew: usize,
) -> Vec<TensorTarget<'a>> {
    tensors
        .iter()
        .zip(memories)
        .map(|(tensor, memory)| TensorTarget {
            name: &tensor.name,
            memory: &mut memory[skew..],
        })
        .collect()
}

/// Reads all of them with one call and compares them.
fn read_all(reader: &mut Reader, tensors: &[Tensor], skew: usize) -> Result<()> {
    let mut memories = memories(tensors, skew);
    reader.read_many(targets(tensors, &mut memories, skew))?;
    for (tensor, memory) in tensors.iter().zip(&memories) {
        assert!(memory[skew..] == tensor.bytes, "{} is another", tensor.name);
    }
    Ok(())
}

fn open(store: &Store) -> Checkpoint {
    store.get(1).unwrap()
}

#[test]
fn tensors_of_every_size_in_any_pieces_come_to_their_memory() {
    let (seed, tensors) = (Seed::new(), tensors());
    for chunk_bytes in [4 << 10, 64 << 10, 1 << 20, 1_200 << 10] {
        let sim = saved(&seed, chunk_bytes, &tensors);
        let checkpoint = open(sim.store());
        let is_split = |tensor: &&Tensor| checkpoint.tensor(&tensor.name).unwrap().runs.len() > 1;
        assert!(tensors.iter().filter(is_split).count() > 2);
        for trust in [false, true] {
            let mut reader = checkpoint.reader(ReadOptions { trust }).unwrap();
            // Twice in one call, too: nothing says that a tensor is read into one place only.
            let twice: Vec<Tensor> = tensors.iter().chain(&tensors).cloned().collect();
            for skew in [0, 1, 512] {
                read_all(&mut reader, &tensors, skew).unwrap();
                read_all(&mut reader, &twice, skew).unwrap();
            }
            read_all(&mut reader, &[], 0).unwrap();
        }
    }
}

/// Small tensors that lie side by side share transfers, and no part of a large one is read twice.
#[test]
fn what_is_read_at_once_is_read_once() {
    let seed = Seed::new();
    let mut tensors: Vec<Tensor> = (0..500)
        .map(|mark| Tensor::new(format!("small {mark}"), 3000 + mark as usize, mark))
        .collect();
    tensors.push(Tensor::new("large", 3 * MIB + 5, 1000));
    let sim = SimStore::new(seed.value(), 2, 8 << 20, 1 << 20);
    checkpoints::save(sim.store(), 1, &tensors).unwrap();
    let checkpoint = open(sim.store());
    let mut reader = checkpoint.reader(ReadOptions::default()).unwrap();
    let data_bytes = checkpoint.info().data_bytes;
    for skew in [0, 1] {
        sim.platform.take_trace();
        read_all(&mut reader, &tensors, skew).unwrap();
        let trace = sim.platform.take_trace();
        let read: u64 = trace.iter().map(|op| op.length).sum();
        assert!(trace.iter().all(|op| op.kind == OpKind::Read));
        // Units at the ends of transfers may be read once more.
        assert!(
            (data_bytes..data_bytes + (100 << 10)).contains(&read),
            "{read} for {data_bytes}"
        );
        assert!(trace.len() < 16, "{} transfers", trace.len());
    }
}

/// Of several damaged blocks the first on the volume is told, in whichever order they come, and
/// whoever reads the others gets them.
#[test]
fn a_damaged_block_in_the_middle_is_told_and_the_others_are_read() {
    let (seed, tensors) = (Seed::new(), tensors());
    for chunk_bytes in [64 << 10, 1 << 20] {
        let sim = saved(&seed, chunk_bytes, &tensors);
        let checkpoint = open(sim.store());
        let mut reader = checkpoint.reader(ReadOptions::default()).unwrap();
        let damaged = [64 * KIB, MIB + 1, 3 * MIB].map(|size| format!("{size} bytes"));
        for name in &damaged {
            let entry = checkpoint.tensor(name).unwrap();
            let block = entry.block_count() / 2;
            let range = entry.block_range(block);
            let place = &checkpoint.places(entry, range.start, range.end - range.start)[0];
            let flip = || {
                let byte = sim.platform.peek(&place.path, place.offset, 1)[0];
                let bytes = [byte ^ 0x20];
                sim.platform.poke(&place.path, place.offset, &bytes);
            };
            flip();
            for skew in [0, 1] {
                let error = read_all(&mut reader, &tensors, skew).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
                assert_eq!(error.checkpoint(), Some("1"));
                assert_eq!(error.tensor(), Some(name.as_str()));
                assert_eq!(error.block(), Some(block));
                assert!(error.places().contains(place), "{error}");
                let others: Vec<Tensor> = tensors
                    .iter()
                    .filter(|tensor| tensor.name != *name)
                    .cloned()
                    .collect();
                read_all(&mut reader, &others, skew).unwrap();
                let mut memories = memories(&tensors, skew);
                let error = checkpoint
                    .load(
                        targets(&tensors, &mut memories, skew),
                        4,
                        ReadOptions::default(),
                    )
                    .unwrap_err();
                assert_eq!(error.tensor(), Some(name.as_str()));
            }
            flip();
        }
        // All of them at once.
        let mut first = Vec::new();
        for name in &damaged {
            let entry = checkpoint.tensor(name).unwrap();
            let place = &checkpoint.places(entry, 0, 1)[0];
            let byte = sim.platform.peek(&place.path, place.offset, 1)[0];
            sim.platform.poke(&place.path, place.offset, &[byte ^ 0x20]);
            first.push((entry.runs[0].offset, name));
        }
        first.sort();
        for _ in 0..5 {
            let error = read_all(&mut reader, &tensors, 0).unwrap_err();
            assert_eq!(error.tensor(), Some(first[0].1.as_str()), "{error}");
        }
    }
}

#[test]
fn a_member_that_fails_in_the_middle_is_named_and_the_reader_goes_on() {
    let (seed, tensors) = (Seed::new(), tensors());
    let sim = saved(&seed, 64 << 10, &tensors);
    let mut reader = open(sim.store()).reader(ReadOptions::default()).unwrap();
    for after in 0..40 {
        for skew in [0, 1] {
            let fault = Fault::errno(libc::EIO).of(OpKind::Read);
            sim.platform.inject(fault.after(after).times(1));
            let error = read_all(&mut reader, &tensors, skew).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Volume, "{error}");
            assert!(error.tensor().is_some(), "{error}");
            let told = super::chain(&error);
            assert!(["m0", "m1", "m2"].iter().any(|path| told.contains(path)));
            sim.platform.heal();
            read_all(&mut reader, &tensors, skew).unwrap();
        }
    }
    assert!(sim.store().volume().poisoned().is_none());
}

/// A kernel may refuse a visit to a queue. What was under way then comes to no later read.
#[test]
fn a_refused_visit_in_the_middle_leaves_nothing_behind() {
    let (seed, tensors) = (Seed::new(), tensors());
    let sim = saved(&seed, 64 << 10, &tensors);
    let mut reader = open(sim.store()).reader(ReadOptions::default()).unwrap();
    for skew in [0, 1] {
        sim.platform.refuse_visits(1);
        let error = read_all(&mut reader, &tensors, skew).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Volume, "{error}");
        assert!(error.tensor().is_some(), "{error}");
        read_all(&mut reader, &tensors, skew).unwrap();
    }
}

#[test]
fn names_and_lengths_are_looked_at_before_anything_is_read() {
    let (seed, tensors) = (Seed::new(), tensors());
    let sim = saved(&seed, 1 << 20, &tensors);
    let mut reader = open(sim.store()).reader(ReadOptions::default()).unwrap();
    sim.platform.take_trace();
    let mut wrong = tensors.clone();
    let last = wrong.last_mut().unwrap();
    last.bytes.pop();
    let error = read_all(&mut reader, &wrong, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    wrong.last_mut().unwrap().name = "nobody".to_owned();
    let error = read_all(&mut reader, &wrong, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert_eq!(sim.platform.take_trace(), []);
}
