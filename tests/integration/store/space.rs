//! The space of a store: told, taken, given back, and used up.
//!
//! What could go wrong: a full store found only at the end; space that a failed save keeps; a store
//! so full that nothing can be removed from it; space used while something still needs it.

use swath_checkpoint::{BeginOptions, DType, ErrorKind, SpaceReport, Store};
use swath_tests::checkpoints::{self, SimStore, Tensor, assert_holds, assert_store_holds};
use swath_tests::seed::Seed;

use super::{KIB, MIB};

fn sim(data_bytes: usize) -> SimStore {
    SimStore::new(Seed::new().value(), 2, (data_bytes / 2) as u64, 64 << 10)
}

#[track_caller]
fn assert_adds_up(space: &SpaceReport) {
    let parts = [
        space.checkpoint_bytes,
        space.catalog_bytes,
        space.held_bytes,
        space.session_bytes,
        space.free_bytes,
    ];
    assert_eq!(parts.iter().sum::<u64>(), space.capacity_bytes, "{space:?}");
    assert!(space.largest_free_bytes <= space.free_bytes, "{space:?}");
}

/// A commit without a change, so that what the last one freed is free.
fn settle(store: &Store) {
    checkpoints::save(store, u64::MAX, &[]).unwrap();
    store.remove(u64::MAX).unwrap();
    checkpoints::save(store, u64::MAX, &[]).unwrap();
    store.remove(u64::MAX).unwrap();
}

#[test]
fn the_report_adds_up_and_a_dropped_session_gives_its_space_back() {
    let sim = sim(8 * MIB);
    let store = sim.store();
    let empty = store.space();
    assert_adds_up(&empty);
    assert_eq!(empty.capacity_bytes, 8 << 20);
    assert_eq!((empty.checkpoint_bytes, empty.session_bytes), (0, 0));

    let options = BeginOptions {
        data_bytes: Some(3 << 20),
        ..BeginOptions::default()
    };
    let session = store.begin(1, options).unwrap();
    let reserved = store.space();
    assert_adds_up(&reserved);
    assert_eq!(reserved.session_bytes, 3 << 20);
    let mut writer = session.writer().unwrap();
    let tensor = Tensor::new("a", 4 * MIB + 1, 1);
    writer
        .put("a", DType::U8, &tensor.shape, &tensor.bytes)
        .unwrap();
    let more = store.space();
    assert_adds_up(&more);
    assert!(more.session_bytes > 4 << 20, "{more:?}");
    session.abort();
    // Its writer still has it.
    assert_eq!(store.space(), more);
    drop(writer);
    assert_eq!(store.space(), empty);

    // A commit keeps what its tensors lie in, and gives the rest of a reservation back.
    let options = BeginOptions {
        data_bytes: Some(5 << 20),
        ..BeginOptions::default()
    };
    let info = checkpoints::save_with(store, 2, options, &[tensor]).unwrap();
    let saved = store.space();
    assert_adds_up(&saved);
    assert_eq!(saved.session_bytes, 0);
    assert_eq!(saved.checkpoint_bytes, info.occupied_bytes);
    assert!(info.occupied_bytes <= (4 << 20) + 8192, "{info:?}");
    store.remove(2).unwrap();
    let removed = store.space();
    assert_adds_up(&removed);
    assert_eq!(removed.checkpoint_bytes, 0);
    assert!(removed.held_bytes >= info.occupied_bytes, "{removed:?}");
}

#[test]
fn a_checkpoint_that_is_too_large_is_refused_at_once() {
    let sim = sim(4 * MIB);
    let store = sim.store();
    let before = store.space();
    for bytes in [5 << 20, before.free_bytes, u64::MAX] {
        let options = BeginOptions {
            data_bytes: Some(bytes),
            ..BeginOptions::default()
        };
        let error = store.begin(7, options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert_eq!(error.checkpoint(), Some("7"));
        let message = error.to_string();
        let needed = bytes.checked_next_multiple_of(4096).unwrap_or(bytes);
        assert!(message.contains(&needed.to_string()), "{message}");
        // All that is free, but for what is left to the store's own records.
        let numbers: Vec<u64> = message
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|number| number.parse().ok())
            .collect();
        let have = before.free_bytes - (64 << 10)..=before.free_bytes;
        assert!(
            numbers.iter().any(|number| have.contains(number)),
            "{message} does not say how much is free"
        );
        assert_eq!(store.space(), before);
    }
    checkpoints::save(store, 7, &[Tensor::new("a", 2 * MIB, 1)]).unwrap();
}

#[test]
fn a_store_that_fills_up_in_the_middle_shows_nothing_and_gives_all_back() {
    let mut sim = sim(8 * MIB);
    let store = sim.store().clone();
    let kept = vec![Tensor::new("kept", MIB + 17, 1)];
    checkpoints::save(&store, 1, &kept).unwrap();
    let before = store.space();
    // Small tensors, large ones, a stream.
    for (way, size) in [(0, 50_000), (0, MIB + MIB / 2), (1, 3 * MIB)] {
        let session = store.begin(2, BeginOptions::default()).unwrap();
        let mut writer = session.writer().unwrap();
        let bytes = vec![7; size];
        let mut refusals = 0;
        for number in 0..300 {
            let (name, shape) = (format!("t{number}"), [size as u64]);
            let put = if way == 0 {
                writer.put(&name, DType::U8, &shape, &bytes)
            } else {
                writer
                    .put_stream(&name, DType::U8, &shape)
                    .and_then(|mut stream| {
                        stream.write(&bytes)?;
                        stream.finish()
                    })
            };
            let Err(error) = put else { continue };
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            assert_eq!(error.tensor(), Some(name.as_str()));
            refusals += 1;
            break;
        }
        assert_eq!(refusals, 1, "the store never filled up");
        writer.finish().unwrap();
        // The caller ignored it; the commit does not.
        let error = session.commit().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        drop(session);
        let after = store.space();
        assert_adds_up(&after);
        assert_eq!(after.session_bytes, 0);
        assert_eq!(
            after.free_bytes + after.held_bytes,
            before.free_bytes + before.held_bytes
        );
        assert_store_holds(&store, &[(1.into(), kept.clone())]);
    }
    let next = vec![Tensor::new("next", 4 * MIB, 2)];
    checkpoints::save(&store, 2, &next).unwrap();
    drop(store);
    assert_store_holds(sim.reopen(), &[(1.into(), kept), (2.into(), next)]);
}

/// What no records would have room beside is refused, and leaves the store as it was.
#[test]
fn a_commit_without_room_for_its_records_is_refused_whole() {
    let sim = sim(2 * MIB);
    let store = sim.store();
    settle(store);
    let before = store.space();
    let free = before.free_bytes as usize;
    for spare in (0..6).map(|units| units * 4096) {
        let options = BeginOptions {
            data_bytes: Some((free - spare) as u64),
            ..BeginOptions::default()
        };
        let tensors = [Tensor::new("all", free - spare, 3)];
        match checkpoints::save_with(store, 1, options, &tensors) {
            Ok(_) => {
                assert_holds(store, 1, &tensors);
                store.remove(1).unwrap_or_else(|error| {
                    panic!("a store with {spare} bytes spare lets nothing go: {error}")
                });
                settle(store);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                assert!(store.list().is_empty());
            }
        }
        assert_eq!(store.space().session_bytes, 0, "{spare}");
    }
    settle(store);
    assert_eq!(store.space().free_bytes, before.free_bytes);
}

/// However full a store is, something can be removed from it, and then there is room.
#[test]
fn a_store_that_is_full_to_the_last_unit_can_be_emptied() {
    let mut sim = sim(2 * MIB);
    let mut step = 0;
    for size in [300 * KIB, 40 * KIB, 4 * KIB, 1] {
        loop {
            let saved = checkpoints::save(sim.store(), step, &[Tensor::new("t", size, step)]);
            match saved {
                Ok(_) => step += 1,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                    break;
                }
            }
            assert!(step < 1000);
        }
    }
    for again in [false, true] {
        if again {
            sim.reopen();
        }
        let store = sim.store();
        let full = store.space();
        store
            .remove(if again { 1 } else { 0 })
            .unwrap_or_else(|error| panic!("nothing can be removed: {error}, {full:?}"));
        let tensors = [Tensor::new("t", 290 * KIB, 99)];
        checkpoints::save(store, 1000 + u64::from(again), &tensors).unwrap();
        assert_holds(store, 1000 + u64::from(again), &tensors);
    }
    let steps: Vec<_> = sim
        .store()
        .list()
        .into_iter()
        .map(|info| info.name)
        .collect();
    for name in steps {
        sim.store().remove(name).unwrap();
    }
    assert!(sim.store().list().is_empty());
}

/// What is removed is free after the next commit; a save that needs it now does not have to wait.
#[test]
fn what_was_removed_has_room_for_the_next_save() {
    for is_reserved in [false, true] {
        let sim = sim(8 * MIB);
        let store = sim.store();
        for step in 0..6 {
            let tensors = [Tensor::new("t", 5 * MIB, step)];
            let options = BeginOptions {
                data_bytes: is_reserved.then_some(5 << 20),
                ..BeginOptions::default()
            };
            checkpoints::save_with(store, step, options, &tensors).unwrap();
            assert_holds(store, step, &tensors);
            store.remove(step).unwrap();
        }
    }
}

/// A store with less room than a buffer still takes what fits.
#[test]
fn a_small_tensor_fits_into_a_little_space() {
    let sim = sim(2 * MIB);
    let store = sim.store();
    settle(store);
    let filler = store.space().free_bytes as usize - 200 * KIB;
    checkpoints::save(store, 0, &[Tensor::new("filler", filler, 0)]).unwrap();
    let mut steps = 0;
    for is_reserved in [true, false] {
        let options = BeginOptions {
            data_bytes: is_reserved.then_some(10_000),
            ..BeginOptions::default()
        };
        let tensors = [
            Tensor::new("a", 3_000, 1),
            Tensor::new("b", 6_999, 2),
            Tensor::new("c", 1, 3),
        ];
        steps += 1;
        checkpoints::save_with(store, steps, options, &tensors)
            .unwrap_or_else(|error| panic!("reserved: {is_reserved}: {error}"));
        assert_holds(store, steps, &tensors);
    }
}
