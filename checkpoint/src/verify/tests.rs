use super::*;
use crate::extent::UNIT_BYTES;
use crate::fixtures::{Fixture, Tensor, flip, views};
use crate::index::BLOCK_BYTES;
use crate::retention::Retention;
use crate::session::BeginOptions;

const MIB: usize = 1 << 20;

fn save(fixture: &Fixture, step: u64, tensors: &[Tensor]) {
    let options = BeginOptions::default();
    fixture
        .store
        .save(step, options, &views(tensors), 1)
        .unwrap();
}

fn verify(store: &Store, deep: bool) -> VerifyReport {
    let options = VerifyOptions { deep };
    let report = store.verify(&options, &mut |_| true).unwrap();
    assert!(report.complete);
    report
}

/// Every size that is placed in its own way: packed, whole blocks, and with an end.
fn all_sizes() -> Vec<Tensor> {
    [
        0,
        1,
        4096,
        700_000,
        900_000,
        MIB,
        MIB + 1,
        3 * MIB + 5000,
        9 * MIB,
    ]
    .into_iter()
    .map(Tensor::new)
    .collect()
}

#[test]
fn every_flipped_byte_is_found_at_its_tensor_block_member_and_offset() {
    for (members, chunk_bytes) in [(3, 1 << 20), (2, 64 << 10), (1, 4096)] {
        let fixture = Fixture::new(members, chunk_bytes);
        let tensors = all_sizes();
        save(&fixture, 7, &tensors);
        let total: usize = tensors.iter().map(|tensor| tensor.bytes.len()).sum();
        let clean = verify(&fixture.store, true);
        assert!(clean.is_clean(), "{clean:?}");
        assert_eq!(clean.bytes, total as u64);
        assert_eq!((clean.checkpoints, clean.tensors), (1, 9));

        let checkpoint = fixture.store.get(7).unwrap();
        let mut flipped = Vec::new();
        for tensor in checkpoint.tensors() {
            let middle = tensor.length / 2;
            let borders = [
                0,
                BLOCK_BYTES - 1,
                BLOCK_BYTES,
                middle,
                tensor.length.wrapping_sub(1),
            ];
            let mut offsets: Vec<u64> = borders
                .into_iter()
                .filter(|offset| *offset < tensor.length)
                .collect();
            offsets.sort_unstable();
            offsets.dedup();
            for offset in offsets {
                let place = checkpoint.places(tensor, offset, 1).remove(0);
                flip(&place);
                let report = verify(&fixture.store, true);
                let [damage] = &report.damages[..] else {
                    panic!("{report:?}");
                };
                assert_eq!(damage.checkpoint, Some(7.into()));
                assert_eq!(damage.tensor.as_ref(), Some(&tensor.name));
                assert_eq!(damage.block, Some(offset / BLOCK_BYTES));
                assert!(holds(&damage.places, &place), "{damage}");
                assert!(verify(&fixture.store, false).is_clean());
                flip(&place);
                flipped.push((tensor.name.clone(), offset / BLOCK_BYTES, place));
            }
        }
        assert!(verify(&fixture.store, true).is_clean());

        // All at once: one damage for each block, in order.
        flipped.iter().for_each(|(_, _, place)| flip(place));
        let report = verify(&fixture.store, true);
        let found: Vec<_> = report
            .damages
            .iter()
            .map(|damage| (damage.tensor.clone().unwrap(), damage.block.unwrap()))
            .collect();
        let mut blocks: Vec<_> = flipped
            .iter()
            .map(|(tensor, block, _)| (tensor.clone(), *block))
            .collect();
        blocks.dedup();
        assert_eq!(found, blocks);
    }
}

fn holds(places: &[DevicePlace], inner: &DevicePlace) -> bool {
    places.iter().any(|place| {
        place.path == inner.path
            && place.offset <= inner.offset
            && inner.offset + inner.length <= place.offset + place.length
    })
}

#[test]
fn a_tensor_in_many_pieces_is_checked_block_by_block() {
    // Free space in holes of 300 KiB: blocks lie in several runs, and runs hold several blocks.
    let fixture = Fixture::new(2, 64 << 10);
    let small = [Tensor::new(300 << 10)];
    let mut step = 0;
    while fixture.store.space().free_bytes > 2 << 20 {
        save(&fixture, step, &small);
        step += 1;
    }
    let policy = Retention {
        keep_every: Some(2),
        ..Retention::default()
    };
    fixture.store.retain(&policy).unwrap();
    let large = [Tensor::new(20 * MIB + 17)];
    save(&fixture, 1_000_001, &large);
    let checkpoint = fixture.store.get(1_000_001).unwrap();
    let tensor = &checkpoint.tensors()[0];
    assert!(tensor.runs.len() > 50, "{} runs", tensor.runs.len());
    let clean = verify(&fixture.store, true);
    assert!(clean.is_clean(), "{clean:?}");
    for offset in [0, 5 * BLOCK_BYTES + 12345, tensor.length - 1] {
        let place = checkpoint.places(tensor, offset, 1).remove(0);
        flip(&place);
        let report = verify(&fixture.store, true);
        assert_eq!(report.damages.len(), 1, "{report:?}");
        assert_eq!(report.damages[0].block, Some(offset / BLOCK_BYTES));
        assert!(holds(&report.damages[0].places, &place));
        flip(&place);
    }
}

#[test]
fn a_damaged_index_is_one_damage_and_the_rest_goes_on() {
    let fixture = Fixture::new(2, 1 << 20);
    for step in 1..=3 {
        save(&fixture, step, &[Tensor::new(5000), Tensor::new(MIB)]);
    }
    let entry = fixture.store.entries().remove(1);
    let index = entry.index.extents[0];
    let place = places_of(fixture.store.volume(), Run::new(index.offset + 100, 1)).remove(0);
    flip(&place);
    for deep in [false, true] {
        let report = verify(&fixture.store, deep);
        assert_eq!((report.checkpoints, report.tensors), (3, 4));
        let [damage] = &report.damages[..] else {
            panic!("{report:?}");
        };
        assert_eq!(damage.checkpoint, Some(2.into()));
        assert_eq!((&damage.tensor, damage.block), (&None, None));
        assert!(holds(&damage.places, &place));
        assert!(
            damage.message.starts_with("the index is damaged"),
            "{damage}"
        );
    }
}

#[test]
fn a_damaged_catalog_is_found_while_the_store_is_open() {
    let fixture = Fixture::new(3, 64 << 10);
    save(&fixture, 1, &[Tensor::new(5000)]);
    let (extents, outcome) = fixture.store.reread_catalog();
    outcome.unwrap();
    let place = places_of(fixture.store.volume(), Run::new(extents[0].offset + 50, 1)).remove(0);
    flip(&place);
    let report = verify(&fixture.store, true);
    assert_eq!((report.checkpoints, report.bytes), (1, 5000));
    let [damage] = &report.damages[..] else {
        panic!("{report:?}");
    };
    assert_eq!(damage.checkpoint, None);
    assert!(holds(&damage.places, &place));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(
        json["damages"][0]["places"][0]["offset"],
        place.offset / 4096 * 4096
    );
}

#[test]
fn what_cannot_be_read_is_told_to_the_unit_and_the_rest_is_compared() {
    // A member that has lost its end cannot be read from there on.
    for chunk_bytes in [1 << 20, 64 << 10] {
        let fixture = Fixture::new(2, chunk_bytes);
        let tensors = [
            Tensor::new(4 * MIB),
            Tensor::new(900_000),
            Tensor::new(80_000),
        ];
        save(&fixture, 1, &tensors);
        let checkpoint = fixture.store.get(1).unwrap();
        let tensor = checkpoint.tensor(&tensors[0].name).unwrap();
        let cut_at = checkpoint
            .places(tensor, 2 * BLOCK_BYTES + (24 << 10), 1)
            .remove(0);
        let member = std::fs::OpenOptions::new()
            .write(true)
            .open(&cut_at.path)
            .unwrap();
        member.set_len(cut_at.offset).unwrap();

        let report = verify(&fixture.store, true);
        assert!(!report.is_clean());
        let lost = |place: &DevicePlace| {
            place.path == cut_at.path && place.offset + place.length > cut_at.offset
        };
        let mut compared = 0;
        for tensor in checkpoint.tensors() {
            for block in 0..tensor.block_count() {
                let range = tensor.block_range(block);
                let length = range.end - range.start;
                let places = checkpoint.places(tensor, range.start, length);
                let expected: Vec<_> = places.into_iter().filter(|place| lost(place)).collect();
                let damage = report.damages.iter().find(|damage| {
                    damage.tensor.as_ref() == Some(&tensor.name) && damage.block == Some(block)
                });
                if expected.is_empty() {
                    assert_eq!(damage, None);
                    compared += length;
                    continue;
                }
                let damage = damage.unwrap_or_else(|| panic!("block {block}: {report:?}"));
                assert!(damage.message.contains("cannot be read"), "{damage}");
                // All that is lost, in whole units, and nothing of what can be read.
                for place in &damage.places {
                    assert_eq!(place.path, cut_at.path);
                    assert!(place.offset >= cut_at.offset, "{damage}");
                }
                let found: u64 = damage.places.iter().map(|place| place.length).sum();
                let most: u64 = expected
                    .iter()
                    .map(|place| {
                        let start = place.offset.max(cut_at.offset);
                        let end = (place.offset + place.length).next_multiple_of(UNIT_BYTES);
                        end - (start - start % UNIT_BYTES)
                    })
                    .sum();
                assert_eq!(found, most, "{damage}");
            }
        }
        assert_eq!(report.bytes, compared);
    }
}

#[test]
fn only_so_many_damages_are_listed_and_the_others_counted() {
    let fixture = Fixture::new(1, 1 << 20);
    let tensors: Vec<_> = (0..DAMAGES_MAX + 5).map(|_| Tensor::new(8)).collect();
    save(&fixture, 1, &tensors);
    let entry = fixture.store.entries().remove(0);
    let data = entry.extents[0];
    assert!(data.length >= 8 * tensors.len() as u64);
    flip(
        &places_of(
            fixture.store.volume(),
            Run::new(data.offset, 8 * tensors.len() as u64),
        )[0],
    );
    let report = verify(&fixture.store, true);
    assert_eq!(
        (report.damages.len(), report.damages_left_out),
        (DAMAGES_MAX, 5)
    );
}

#[test]
fn progress_comes_to_the_total_and_can_stop_it() {
    let fixture = Fixture::new(2, 1 << 20).reopen(false);
    for step in 1..=2 {
        save(&fixture, step, &[Tensor::new(5 * MIB), Tensor::new(10)]);
    }
    let fixture = fixture.reopen(true);
    for deep in [false, true] {
        let options = VerifyOptions { deep };
        let mut seen: Vec<VerifyProgress> = Vec::new();
        let mut progress = |progress| {
            seen.push(progress);
            true
        };
        let report = fixture.store.verify(&options, &mut progress).unwrap();
        assert!(report.is_clean() && report.complete);
        assert!(seen.is_sorted_by_key(|it| it.checked_bytes));
        let last = seen.last().unwrap();
        assert_eq!(last.checked_bytes, last.total_bytes);
        assert_eq!(last.checkpoint, 2.into());

        let mut left = 1;
        let mut stop = |_| {
            left -= 1;
            left > 0
        };
        let report = fixture.store.verify(&options, &mut stop).unwrap();
        assert!(!report.complete);
        assert_eq!(report.checkpoints, 1);
    }
}

#[test]
fn checkpoints_may_be_removed_and_saved_meanwhile() {
    let fixture = Fixture::new(2, 1 << 20);
    let store = &fixture.store;
    for step in 1..=3 {
        save(&fixture, step, &[Tensor::new(8 * MIB)]);
    }
    let mut calls = 0;
    let options = VerifyOptions { deep: true };
    let report = store.verify(&options, &mut |progress| {
        calls += 1;
        if calls == 1 {
            assert_eq!(progress.checkpoint, 1.into());
            // The one at hand and the next; then their space is wanted.
            store.remove(1).unwrap();
            store.remove(2).unwrap();
            for step in 4..=6 {
                save(&fixture, step, &[Tensor::new(8 * MIB)]);
            }
        }
        true
    });
    let report = report.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.checkpoints, report.bytes), (2, 16 << 20));
    let after = verify(store, true);
    assert!(after.is_clean());
    assert_eq!(after.checkpoints, 4);
}

#[test]
fn a_checkpoint_at_hand_is_held_though_others_opened_and_pinned_it() {
    // Every commit that changes the entry makes another handle of it; all of them count.
    let fixture = Fixture::new(1, 1 << 20);
    let store = &fixture.store;
    let tensors = [Tensor::new(8 * MIB)];
    save(&fixture, 1, &tensors);
    let held = store.get(1).unwrap();
    store.set_pinned(1, true).unwrap();
    drop(store.get(1).unwrap());
    store.set_pinned(1, false).unwrap();
    store.remove(1).unwrap();
    for step in 2..=3 {
        save(&fixture, step, &[Tensor::new(8 * MIB)]);
    }
    let space = store.space();
    assert!(space.held_bytes >= 8 << 20, "{space:?}");
    let mut memory = vec![0; 8 * MIB];
    let mut reader = held.reader(crate::ReadOptions::default()).unwrap();
    reader.read(&tensors[0].name, &mut memory).unwrap();
    assert!(memory == tensors[0].bytes);
}
