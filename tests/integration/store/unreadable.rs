//! Every live block that the drive cannot give, in turn.
//!
//! What could go wrong: one bad sector that takes more than its block along, that is told as damage of
//! something else or as none, that hides a good copy beside it, or that stops all writing.

use std::path::Path;
use std::sync::Arc;

use swath_checkpoint::index::BLOCK_BYTES;
use swath_checkpoint::{ErrorKind, ReadOptions, VerifyOptions};
use swath_engine::OpKind;
use swath_tests::checkpoints::{self, SimStore, Tensor, assert_holds};
use swath_tests::seed::{Seed, cases};
use swath_tests::sim::Fault;
use swath_volume::superblock::{COPY_COUNT, MemberMap};
use swath_volume::{CopyState, OpenOptions, Volume, examine_on};

use super::bits::{CHUNK_BYTES, blobs, newest, read_only, store, tensors};
use super::damage::place_of;

/// What a drive loses at once, and what of it makes a unit of ours unreadable.
const SECTOR: u64 = 512;
const UNIT: u64 = 4096;

/// One sector of the unit at `offset` cannot be read.
fn lose(sim: &SimStore, member: &Path, offset: u64) {
    let sector = offset + offset / UNIT % (UNIT / SECTOR) * SECTOR;
    let fault = Fault::errno(libc::EIO)
        .of(OpKind::Read)
        .on(member)
        .within(sector..sector + SECTOR);
    sim.platform.inject(fault);
}

#[test]
fn a_superblock_copy_that_cannot_be_read_is_one_of_four() {
    let seed = Seed::new();
    let mut sim = store(&seed);
    sim.die();
    let offsets = MemberMap::new(sim.member_bytes).unwrap().copy_offsets();
    for path in sim.paths.clone() {
        for (copy, offset) in offsets.into_iter().enumerate() {
            lose(&sim, &path, offset);
            let examined = examine_on(&sim.platform, &path).unwrap();
            for (other, state) in examined.copies.iter().enumerate() {
                let is_lost = matches!(state, CopyState::Unreadable { .. });
                assert_eq!(is_lost, other == copy, "copy {copy}: {state:?}");
            }
            for options in [read_only(), OpenOptions::default()] {
                drop(sim.open(&options).unwrap());
            }
            sim.platform.heal();
        }
        // All of them: the volume is refused by the member's path.
        for offset in offsets {
            lose(&sim, &path, offset);
        }
        let error = sim.open(&read_only()).unwrap_err();
        assert!(super::chain(&error).contains(path.to_str().unwrap()));
        assert!(super::chain(&error).contains("unreadable"), "{error:?}");
        sim.platform.heal();
    }
    assert_eq!(COPY_COUNT, offsets.len());
    assert_holds(sim.reopen(), 2, &tensors(2));
}

#[test]
fn a_root_record_that_cannot_be_read_is_one_of_many() {
    let seed = Seed::new();
    let mut sim = store(&seed);
    sim.die();
    let platform = Arc::new(sim.platform.clone());
    let open = |options: &OpenOptions| Volume::open_on(platform.clone(), &sim.paths, options);
    let before = open(&read_only()).unwrap().root().unwrap();
    let places = newest(&sim, before.sequence);
    for (member, offset) in &places {
        lose(&sim, member, *offset);
        assert_eq!(open(&read_only()).unwrap().root().as_ref(), Some(&before));
        sim.platform.heal();
    }
    // All but one, opened for writing.
    let (_, lost) = places.split_last().unwrap();
    for (member, offset) in lost {
        lose(&sim, member, *offset);
    }
    let after = open(&OpenOptions::default()).unwrap().root().unwrap();
    assert_eq!(
        (after.sequence, &after.payload),
        (before.sequence + 1, &before.payload)
    );
    sim.platform.heal();
    // All of them: an acknowledged commit may have been there.
    let places = newest(&sim, after.sequence);
    for (member, offset) in &places {
        lose(&sim, member, *offset);
    }
    open(&OpenOptions::default()).unwrap_err();
    let shown = open(&read_only()).unwrap().root().unwrap();
    assert_eq!(shown, before);
    sim.platform.heal();
    assert_holds(sim.reopen(), 2, &tensors(2));
}

#[test]
fn a_catalog_or_an_index_that_cannot_be_read_is_told_with_its_member() {
    let seed = Seed::new();
    let mut sim = store(&seed);
    let (catalog, index) = blobs(sim.store(), 2);
    let place = |offset| {
        let (member, offset) = place_of(offset, CHUNK_BYTES);
        (Path::new(&member).to_path_buf(), offset)
    };
    let verify = |sim: &SimStore| {
        let options = VerifyOptions { deep: true };
        sim.store().verify(&options, &mut |_| true).unwrap()
    };

    let (member, offset) = place(index.extents[0].offset);
    lose(&sim, &member, offset);
    let error = sim.store().get(2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Volume, "{error}");
    assert_eq!(error.checkpoint(), Some("2"));
    assert!(super::chain(&error).contains(member.to_str().unwrap()));
    assert_holds(sim.store(), 1, &tensors(1));
    let report = verify(&sim);
    assert_eq!(report.damages.len(), 1, "{report:?}");
    assert_eq!(report.damages[0].checkpoint, Some(2.into()));
    assert_eq!(report.damages[0].tensor, None);
    sim.platform.heal();

    let (member, offset) = place(catalog.extents[0].offset);
    lose(&sim, &member, offset);
    let report = verify(&sim);
    assert_eq!(report.damages.len(), 1, "{report:?}");
    assert_eq!(report.damages[0].checkpoint, None);
    sim.die();
    for options in [read_only(), OpenOptions::default()] {
        let error = sim.open(&options).unwrap_err();
        let told = super::chain(&error);
        assert!(told.contains(member.to_str().unwrap()), "{told}");
        assert!(told.contains("catalog"), "{told}");
    }
    sim.platform.heal();
    assert_holds(sim.reopen(), 2, &tensors(2));
}

#[test]
fn data_that_cannot_be_read_costs_its_block_and_is_located_to_the_unit() {
    let seed = Seed::new();
    let sim = store(&seed);
    let store = sim.store();
    let (mut units, mut verified) = (0, 0);
    for step in 1..3 {
        let (checkpoint, tensors) = (store.get(step).unwrap(), tensors(step));
        for tensor in &tensors {
            let entry = checkpoint.tensor(&tensor.name).unwrap();
            let length = tensor.bytes.len() as u64;
            // Each unit that holds some of it, by its first byte there.
            let mut byte = 0;
            while byte < length {
                let run = entry.locate(byte, 1).next().unwrap();
                let (member, offset) = place_of(run.offset, CHUNK_BYTES);
                let unit = offset - offset % UNIT;
                lose(&sim, Path::new(&member), unit);
                let what = format!("{} of {step}, byte {byte}", tensor.name);

                let mut reader = checkpoint.reader(ReadOptions::default()).unwrap();
                let mut memory = vec![0; tensor.bytes.len()];
                let error = reader.read(&tensor.name, &mut memory).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Volume, "{what}: {error}");
                assert_eq!(error.checkpoint(), Some(&*step.to_string()), "{what}");
                assert_eq!(error.tensor(), Some(tensor.name.as_str()), "{what}");
                let told = super::chain(&error);
                assert!(told.contains(&member), "{what}: {told}");

                // Its other blocks, by the same reader.
                for block in (0..entry.block_count()).filter(|block| *block != byte / BLOCK_BYTES) {
                    let range = entry.block_range(block);
                    let wanted = &tensor.bytes[range.start as usize..range.end as usize];
                    let mut memory = vec![0; wanted.len()];
                    reader
                        .read_range(&tensor.name, range.start, &mut memory)
                        .unwrap();
                    assert!(memory == wanted, "{what}");
                }
                if units % (16 / u64::from(cases(1).min(16))) == 0 {
                    let options = VerifyOptions { deep: true };
                    let report = store.verify(&options, &mut |_| true).unwrap();
                    // Small tensors share units.
                    let damage = report
                        .damages
                        .iter()
                        .find(|damage| damage.tensor.as_deref() == Some(tensor.name.as_str()))
                        .unwrap_or_else(|| panic!("{what}: {report:?}"));
                    assert_eq!(damage.checkpoint, Some(step.into()), "{what}");
                    assert_eq!(damage.block, Some(byte / BLOCK_BYTES), "{what}");
                    let [place] = &damage.places[..] else {
                        panic!("{what}: {damage}");
                    };
                    assert_eq!(place.path, Path::new(&member), "{what}");
                    assert_eq!((place.offset, place.length), (unit, UNIT), "{what}");
                    let elsewhere = report
                        .damages
                        .iter()
                        .any(|other| other.places != damage.places);
                    assert!(!elsewhere, "{what}: {report:?}");
                    verified += 1;
                }
                sim.platform.heal();
                units += 1;
                byte += UNIT - offset % UNIT;
            }
        }
    }
    assert!(
        store.volume().poisoned().is_none(),
        "a read poisons nothing"
    );
    for step in 1..3 {
        assert_holds(store, step, &tensors(step));
    }
    // What cannot be read can be written over, and saves go on.
    checkpoints::save(store, 3, &[Tensor::new("next", 70_000, 3)]).unwrap();
    println!("{units} units were lost in turn, {verified} of them verified");
}
