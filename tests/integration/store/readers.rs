//! Readers beside saves and removals.
//!
//! What could go wrong: space written over while somebody reads from it; a reader that sees a
//! checkpoint in the making; two that get in each other's way.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use swath_checkpoint::{Checkpoint, ErrorKind, ReadOptions, Store};
use swath_engine::Backend;
use swath_tests::checkpoints::{self, SimStore, Tensor, assert_holds};
use swath_tests::fixtures::{self, Place};
use swath_tests::seed::Seed;

use super::{KIB, MIB};

fn tensors(step: u64) -> Vec<Tensor> {
    vec![
        Tensor::new("large", MIB + 300 * KIB + step as usize % 5000, step),
        Tensor::new("small", 3 * KIB + step as usize % 700, step + 1),
    ]
}

#[track_caller]
fn assert_same(checkpoint: &Checkpoint, step: u64) {
    if let Err(problem) = checkpoints::compare(checkpoint, &tensors(step)) {
        panic!("step {step}: {problem}");
    }
}

/// Saves and removes until all free space was used several times over.
fn churn(store: &Store, first: u64) {
    for step in first..first + 12 {
        checkpoints::save(store, step, &tensors(step)).unwrap();
        store.remove(step).unwrap();
    }
}

fn sim(data_bytes: usize) -> SimStore {
    SimStore::new(Seed::new().value(), 2, (data_bytes / 2) as u64, 64 << 10)
}

#[test]
fn what_is_removed_can_be_read_by_who_has_it_open() {
    let sim = sim(8 * MIB);
    let store = sim.store();
    checkpoints::save(store, 1, &tensors(1)).unwrap();
    checkpoints::save(store, 2, &tensors(2)).unwrap();
    let open = store.get(1).unwrap();
    let mut reader = store
        .get(2)
        .unwrap()
        .reader(ReadOptions::default())
        .unwrap();
    store.remove(1).unwrap();
    checkpoints::replace(store, 2, &tensors(3)).unwrap();
    assert_eq!(store.get(1).unwrap_err().kind(), ErrorKind::NotFound);
    churn(store, 10);
    assert_same(&open, 1);
    let wanted = &tensors(2)[0];
    let mut memory = vec![0; wanted.bytes.len()];
    reader.read("large", &mut memory).unwrap();
    assert!(
        memory == wanted.bytes,
        "a reader's checkpoint was written over"
    );
    assert_holds(store, 2, &tensors(3));
    // They let go, and all of it is free again.
    let held = store.space();
    drop((open, reader));
    churn(store, 30);
    let space = store.space();
    assert!(
        space.free_bytes >= held.free_bytes + (2 << 20),
        "{held:?} became {space:?}"
    );
}

/// Pinning makes another entry of the same checkpoint; who had it open before still counts.
#[test]
fn one_that_was_open_before_it_was_pinned_is_not_written_over() {
    let sim = sim(8 * MIB);
    let store = sim.store();
    checkpoints::save(store, 1, &tensors(1)).unwrap();
    let before = store.get(1).unwrap();
    store.set_pinned(1, true).unwrap();
    let after = store.get(1).unwrap();
    assert!(after.info().pinned && !before.info().pinned);
    drop(after);
    store.remove(1).unwrap();
    churn(store, 10);
    assert_same(&before, 1);
}

#[test]
fn readers_on_threads_see_whole_checkpoints_during_saves_and_removals() {
    let folder = Place::Memory.folder().unwrap_or_else(fixtures::folder);
    let members = fixtures::members(folder.path(), 2, 12 << 20);
    let store = checkpoints::store_on_files(&members, 64 << 10, Backend::Auto);
    checkpoints::save(&store, 0, &tensors(0)).unwrap();
    let (is_over, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let latest = store.latest().expect("there is always one");
                    let step = latest.name.step().unwrap();
                    match store.get(step) {
                        Ok(checkpoint) => assert_same(&checkpoint, step),
                        // It was removed in between.
                        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
                    }
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut step = 0;
        while step < 40 || reads.load(Ordering::Relaxed) < 40 {
            step += 1;
            assert!(step < 5_000, "nobody reads");
            match checkpoints::save(&store, step, &tensors(step)) {
                Ok(_) => {
                    store.remove(step - 1).unwrap();
                }
                Err(error) => {
                    // Readers may hold so much that nothing is free.
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error:?}");
                    step -= 1;
                    thread::yield_now();
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let space = store.space();
    assert_eq!(space.session_bytes, 0, "{space:?}");
}

/// Sessions side by side: the space of one is never the other's, and both become visible.
#[test]
fn sessions_on_threads_do_not_meet() {
    let folder = Place::Memory.folder().unwrap_or_else(fixtures::folder);
    let members = fixtures::members(folder.path(), 3, 16 << 20);
    let store = checkpoints::store_on_files(&members, 64 << 10, Backend::Auto);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..4 {
                    let step = 100 * thread + round;
                    checkpoints::save(store, step, &tensors(step)).unwrap();
                    if round % 2 == 1 {
                        store.remove(step - 1).unwrap();
                    }
                }
            });
        }
    });
    drop(store);
    let store = checkpoints::reopen_on_files(&members, Backend::Auto);
    assert_eq!(store.list().len(), 8);
    for thread in 0..4 {
        for step in [100 * thread + 1, 100 * thread + 3] {
            assert_holds(&store, step, &tensors(step));
        }
    }
}
