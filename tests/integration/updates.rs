//! Superblocks: renamed, damaged, healed, erased, and an update that stops in the middle.
//!
//! What could go wrong: an update cut short that leaves a volume nobody can open, or one that is
//! opened with half of it; an acknowledged update that is taken back; a damaged copy that is
//! believed or never repaired.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::RngExt;
use swath_engine::{Geometry, OpKind, threads};
use swath_tests::fixtures::{self, MIB};
use swath_tests::seed::{Seed, cases};
use swath_tests::sim::{Fault, SimPlatform, SimScheduler, Store};
use swath_volume::superblock::{COPY_COUNT, MemberMap, SUPERBLOCK_BYTES};
use swath_volume::{CopyState, CreateOptions, ErrorKind, OpenOptions, Volume, examine, wipe};

const MEMBER_BYTES: u64 = 5 * MIB;

fn create_options() -> CreateOptions {
    CreateOptions {
        name: "old".to_owned(),
        chunk_bytes: 4096,
        ..CreateOptions::default()
    }
}

fn members(count: usize) -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = fixtures::folder();
    let paths = fixtures::members(folder.path(), count, MEMBER_BYTES);
    Volume::create(&paths, &create_options())
        .unwrap()
        .close()
        .unwrap();
    (folder, paths)
}

fn open(paths: &[PathBuf]) -> Volume {
    Volume::open(paths, &OpenOptions::default()).unwrap()
}

fn patch(path: &Path, offset: u64, bytes: &[u8]) {
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .write_all_at(bytes, offset)
        .unwrap();
}

fn copy_offset(copy: usize) -> u64 {
    MemberMap::new(MEMBER_BYTES).unwrap().copy_offset(copy)
}

#[track_caller]
fn assert_all_good(path: &Path, generation: u64) {
    let examination = examine(path).unwrap();
    assert_eq!(
        examination.copies,
        [const { CopyState::Blank }; COPY_COUNT].map(|_| { CopyState::Good { generation } })
    );
}

#[test]
fn a_new_name_is_there_at_once_and_after_a_reopen() {
    let (_folder, paths) = members(3);
    let volume = open(&paths);
    for (turn, name) in (2..).zip(["new", "", &"x".repeat(63)]) {
        volume.rename(name).unwrap();
        assert_eq!((&*volume.name(), volume.generation()), (name, turn));
    }
    drop(volume);
    let volume = open(&paths);
    assert_eq!((volume.name(), volume.generation()), ("x".repeat(63), 4));
    for path in &paths {
        assert_all_good(path, 4);
    }
}

#[test]
fn an_open_volume_can_be_examined() {
    let (_folder, paths) = members(2);
    let volume = open(&paths);
    volume.write_at(b"busy", 0).unwrap();
    for (index, path) in (0..).zip(&paths) {
        let examination = examine(path).unwrap();
        assert_eq!(
            (&examination.path, examination.device_bytes),
            (path, MEMBER_BYTES)
        );
        assert_eq!(examination.device_kind, "file");
        let superblock = examination.superblock.unwrap();
        assert_eq!((superblock.member_index, &*superblock.name), (index, "old"));
        assert_eq!(superblock.volume_uuid, volume.uuid());
        assert_eq!(
            superblock.member_uuid,
            volume.members()[index as usize].uuid
        );
    }
    volume.rename("new").unwrap();
    assert_eq!(examine(&paths[1]).unwrap().superblock.unwrap().name, "new");
}

#[test]
fn an_examination_tells_each_copy_apart() {
    let (_folder, paths) = members(1);
    patch(&paths[0], copy_offset(1), &[0; SUPERBLOCK_BYTES]);
    patch(&paths[0], copy_offset(2) + 60, &[0xff]);
    patch(&paths[0], copy_offset(3), b"nonsense");
    let before = fs::read(&paths[0]).unwrap();
    let examination = examine(&paths[0]).unwrap();
    assert_eq!(
        examination.copies,
        [
            CopyState::Good { generation: 1 },
            CopyState::Blank,
            CopyState::Damaged {
                reason: "checksum mismatch".to_owned(),
            },
            CopyState::Other,
        ]
    );
    assert!(fs::read(&paths[0]).unwrap() == before);
    let error = examine(paths[0].with_file_name("missing")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn any_copies_but_one_may_be_lost_and_are_healed() {
    for lost in 0..15_u32 {
        let (_folder, paths) = members(2);
        open(&paths).rename("kept").unwrap();
        for copy in (0..COPY_COUNT).filter(|copy| lost >> copy & 1 == 1) {
            patch(
                &paths[lost as usize % 2],
                copy_offset(copy),
                &[0xdb; SUPERBLOCK_BYTES],
            );
        }
        let damaged: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
        let reading = OpenOptions {
            read_only: true,
            ..OpenOptions::default()
        };
        assert_eq!(Volume::open(&paths, &reading).unwrap().name(), "kept");
        let same = paths
            .iter()
            .zip(&damaged)
            .all(|(path, bytes)| fs::read(path).unwrap() == *bytes);
        assert!(same, "a reader repairs nothing");

        let volume = open(&paths);
        assert_eq!((&*volume.name(), volume.generation()), ("kept", 2));
        for path in &paths {
            assert_all_good(path, 2);
        }
    }
}

#[test]
fn a_superblock_in_a_wrong_place_is_not_believed() {
    let (_folder, paths) = members(1);
    let bytes = fs::read(&paths[0]).unwrap();
    let from = copy_offset(0) as usize;
    patch(
        &paths[0],
        copy_offset(2),
        &bytes[from..from + SUPERBLOCK_BYTES],
    );
    let copies = examine(&paths[0]).unwrap().copies;
    let CopyState::Damaged { reason } = &copies[2] else {
        panic!("{copies:?}")
    };
    assert!(reason.contains("belongs at offset 1048576"), "{reason}");
    drop(open(&paths));
    assert_all_good(&paths[0], 1);
}

#[test]
fn a_member_that_has_grown_is_used_as_it_was() {
    let (_folder, paths) = members(2);
    open(&paths).write_at(b"before", 123_456).unwrap();
    let capacity = open(&paths).capacity_bytes();
    File::options()
        .write(true)
        .open(&paths[0])
        .unwrap()
        .set_len(MEMBER_BYTES + 3 * MIB)
        .unwrap();
    // Its copies at the end are not at the end any more, and are still the ones that count.
    patch(&paths[0], copy_offset(0) + 300, &[1]);
    let volume = open(&paths);
    assert_eq!(volume.capacity_bytes(), capacity);
    let mut read = [0; 6];
    volume.read_at(&mut read, 123_456).unwrap();
    assert_eq!(&read, b"before");
    volume.rename("grown").unwrap();
    drop(volume);
    assert_eq!(
        examine(&paths[0]).unwrap().copies[3],
        CopyState::Good { generation: 2 }
    );
    assert_eq!(open(&paths).name(), "grown");
}

#[test]
fn a_wiped_member_is_blank_again_and_the_volume_is_gone() {
    let (_folder, paths) = members(2);
    let uuid = open(&paths).uuid();
    let report = wipe(&paths[0], false).unwrap();
    assert_eq!(
        (report.path, report.volume_uuid),
        (paths[0].clone(), Some(uuid))
    );
    assert_eq!(
        (report.volume_name.as_deref(), report.copies_erased),
        (Some("old"), 4)
    );
    assert_eq!(
        examine(&paths[0]).unwrap().copies,
        [const { CopyState::Blank }; COPY_COUNT]
    );
    let error = Volume::open(&paths, &OpenOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotAMember, "{error}");
    let error = Volume::create(&paths, &create_options()).unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::NotBlank,
        "the other one still carries it"
    );
    wipe(&paths[1], false).unwrap();
    let volume = Volume::create(&paths, &create_options()).unwrap();
    assert_ne!(volume.uuid(), uuid);
}

#[test]
fn a_forced_creation_leaves_nothing_of_an_older_volume() {
    let (_folder, paths) = members(3);
    open(&paths)
        .rename("older, and of a higher generation")
        .unwrap();
    let options = CreateOptions {
        force: true,
        ..create_options()
    };
    let made = Volume::create(&paths[..2], &options).unwrap();
    let uuid = made.uuid();
    drop(made);
    let volume = open(&paths[..2]);
    assert_eq!((volume.uuid(), volume.generation()), (uuid, 1));
    let error = Volume::open(&paths[2..], &OpenOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing, "{error}");
}

/// A simulated volume of three members with some data on it.
fn simulated(seed: u64) -> (SimPlatform, Vec<PathBuf>) {
    let (platform, paths) = SimPlatform::with_members(seed, 3, MEMBER_BYTES);
    let volume = Volume::create_on(Arc::new(platform.clone()), &paths, &create_options()).unwrap();
    volume.write_at(b"data stays", 4000).unwrap();
    volume.flush().unwrap();
    drop(volume);
    platform.take_trace();
    (platform, paths)
}

fn open_on(platform: &SimPlatform, paths: &[PathBuf]) -> swath_volume::Result<Volume> {
    Volume::open_on(Arc::new(platform.clone()), paths, &OpenOptions::default())
}

/// How many operations a whole update takes.
fn operations_of_an_update() -> u64 {
    let (platform, paths) = simulated(1);
    let volume = open_on(&platform, &paths).unwrap();
    platform.take_trace();
    volume.rename("new").unwrap();
    let trace = platform.take_trace();
    let count = |kind| trace.iter().filter(|op| op.kind == kind).count() as u64;
    // Four copies on three members; each of two steps flushes all of them.
    assert_eq!((count(OpKind::Write), count(OpKind::Flush)), (12, 6));
    count(OpKind::Write) + count(OpKind::Flush)
}

/// What opens after a crash, and is the same from then on.
#[track_caller]
fn assert_opens_whole(platform: &SimPlatform, paths: &[PathBuf], what: &str) -> u64 {
    let volume = open_on(platform, paths).unwrap_or_else(|error| panic!("{what}: {error}"));
    let state = (volume.name(), volume.generation());
    assert!(
        state == ("old".to_owned(), 1) || state == ("new".to_owned(), 2),
        "{what}: opened as {state:?}"
    );
    let mut data = [0; 10];
    volume.read_at(&mut data, 4000).unwrap();
    assert_eq!(&data, b"data stays", "{what}");
    drop(volume);
    let again = open_on(platform, paths).unwrap();
    assert_eq!(
        (again.name(), again.generation()),
        state,
        "{what}: it did not stay"
    );
    state.1
}

#[test]
fn an_update_that_stops_at_any_operation_leaves_the_old_or_the_new() {
    let mut seen = [false; 3];
    for turn in 0..u64::from(cases(8)) {
        let seed = Seed::new();
        for stop in 0..operations_of_an_update() {
            let (platform, paths) = simulated(seed.value().wrapping_add(turn));
            let volume = open_on(&platform, &paths).unwrap();
            // Torn at this operation, and nothing after it: as when the power goes.
            platform.inject(Fault::errno(libc::EIO).after(stop));
            let error = volume.rename("new").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Device);
            assert!(
                error.to_string().contains("superblocks were not updated"),
                "{error}"
            );
            assert_eq!(volume.name(), "old", "it was not acknowledged");
            assert_eq!(
                volume.write_at(&[1], 0).unwrap_err().kind(),
                ErrorKind::Poisoned
            );
            drop(volume);
            platform.heal();
            let generation = assert_opens_whole(&platform, &paths, &format!("stopped at {stop}"));
            seen[generation as usize] = true;
        }
    }
    assert_eq!(seen, [false, true, true], "both ends were seen");
}

#[test]
fn healing_that_stops_at_any_write_can_be_healed() {
    let seed = Seed::new();
    let mut rng = seed.rng();
    for stop in 0..operations_of_an_update() {
        for heal_stop in 0..8 {
            let (platform, paths) = simulated(rng.random());
            let volume = open_on(&platform, &paths).unwrap();
            platform.inject(Fault::errno(libc::EIO).after(stop));
            volume.rename("new").unwrap_err();
            drop(volume);
            platform.heal();
            platform.inject(Fault::errno(libc::EIO).of(OpKind::Write).after(heal_stop));
            // Whether there was so much to heal or not: what comes next is whole.
            let first = open_on(&platform, &paths).map(|volume| volume.generation());
            platform.heal();
            let what = format!("stopped at {stop}, healing at write {heal_stop}");
            let generation = assert_opens_whole(&platform, &paths, &what);
            if let Ok(first) = first {
                assert_eq!(first, generation, "{what}: told one thing, then another");
            }
        }
    }
}

#[test]
fn one_damaged_copy_on_each_member_changes_nothing_about_that() {
    let seed = Seed::new();
    let mut rng = seed.rng();
    for stop in 0..operations_of_an_update() {
        for _ in 0..cases(4) {
            let (platform, paths) = simulated(rng.random());
            let volume = open_on(&platform, &paths).unwrap();
            // Here writes do not tear, for a torn copy is a damaged one too.
            platform.inject(
                Fault::errno(libc::EIO)
                    .of(OpKind::Flush)
                    .after(stop / 6 * 6),
            );
            platform.inject(Fault::short(0).of(OpKind::Write).after(stop));
            let updated = volume.rename("new");
            drop(volume);
            platform.heal();
            for path in &paths {
                let copy = rng.random_range(0..COPY_COUNT);
                let byte = rng.random_range(0..SUPERBLOCK_BYTES as u64);
                let mut damaged = platform.peek(path, copy_offset(copy) + byte, 1);
                damaged[0] ^= 1 << rng.random_range(0..8);
                // Bytes of the version are told as a version that is unknown, not as damage.
                if !(8..12).contains(&byte) {
                    platform.poke(path, copy_offset(copy) + byte, &damaged);
                }
            }
            let what = format!("stopped at {stop}");
            let generation = assert_opens_whole(&platform, &paths, &what);
            assert!(
                updated.is_err() || generation == 2,
                "{what}: an update was taken back"
            );
        }
    }
}

#[test]
fn an_acknowledged_update_survives_whatever_happens_to_the_next() {
    let seed = Seed::new();
    for stop in 0..operations_of_an_update() {
        let (platform, paths) = simulated(seed.value());
        let volume = open_on(&platform, &paths).unwrap();
        volume.rename("acknowledged").unwrap();
        platform.inject(Fault::errno(libc::EIO).after(stop));
        volume.rename("next").unwrap_err();
        drop(volume);
        platform.heal();
        let volume = open_on(&platform, &paths).unwrap();
        let state = (&*volume.name(), volume.generation());
        assert!(
            [("acknowledged", 2), ("next", 3)].contains(&state),
            "at {stop}: {state:?}"
        );
    }
}

#[test]
fn a_creation_that_stops_leaves_nothing_that_opens_or_all_of_it() {
    let seed = Seed::new();
    for stop in 0..operations_of_an_update() {
        let (platform, paths) = SimPlatform::with_members(seed.value(), 3, MEMBER_BYTES);
        platform.inject(Fault::errno(libc::EIO).of(OpKind::Write).after(stop));
        let made = Volume::create_on(Arc::new(platform.clone()), &paths, &create_options());
        assert_eq!(made.is_err(), stop < 12);
        drop(made);
        platform.heal();
        match open_on(&platform, &paths) {
            Ok(volume) => assert_eq!(volume.generation(), 1),
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::NotAMember | ErrorKind::Damaged),
                "at {stop}: {error}"
            ),
        }
        // The way out is to create it again.
        let options = CreateOptions {
            force: true,
            ..create_options()
        };
        Volume::create_on(Arc::new(platform), &paths, &options).unwrap();
    }
}

/// What could go wrong: two updates that take one generation, or one that goes on from superblocks
/// which another has left half written. The scheduler tries one order of the two threads after the
/// other.
#[test]
fn of_two_renames_at_once_none_goes_on_from_one_that_failed() {
    // The writes of one update, and of two.
    let (one, two) = (12, 24);
    for turn in 0..u64::from(cases(60)) {
        let seed = Seed::new().value().wrapping_add(turn);
        let stop = turn % (two + 1);
        let scheduler = SimScheduler::new(seed);
        let platform = SimPlatform::scheduled(seed, Some(Arc::clone(&scheduler)));
        let paths: Vec<PathBuf> = (0..3).map(|index| format!("m{index}").into()).collect();
        for path in &paths {
            platform.add(path, Geometry::uniform(MEMBER_BYTES, 512), Store::sparse());
        }
        scheduler.run(move || {
            let shared = Arc::new(platform.clone());
            let volume = Volume::create_on(shared, &paths, &create_options()).unwrap();
            let fault = Fault::errno(libc::EIO).of(OpKind::Write);
            platform.inject(fault.after(stop).times(1));
            let ends = threads::scope(&platform, |scope| {
                let rename = |name: &'static str| {
                    let volume = volume.clone();
                    scope.spawn(name, move || volume.rename(name)).unwrap()
                };
                let both = [rename("a"), rename("b")];
                both.map(|thread| thread.join().unwrap())
            });
            let done = ends.iter().filter(|end| end.is_ok()).count() as u64;
            assert_eq!(done, stop / one, "stopped at {stop}: {ends:?}");
            let of_kind = |kind| {
                let errors = ends.iter().filter_map(|end| end.as_ref().err());
                errors.filter(|error| error.kind() == kind).count()
            };
            let failed = usize::from(stop < two);
            assert_eq!(of_kind(ErrorKind::Device), failed, "{ends:?}");
            assert_eq!(of_kind(ErrorKind::Poisoned), usize::from(stop < one));
            assert_eq!(volume.generation(), 1 + done);
            let name = volume.name();
            drop(volume);

            platform.heal();
            let again = open_on(&platform, &paths).unwrap();
            let is_rolled_forward = again.generation() == 2 + done;
            assert!(is_rolled_forward || again.name() == name);
            assert!(again.generation() == 1 + done || (failed == 1 && is_rolled_forward));
        });
    }
}

/// What could go wrong: a volume that is written to although one of its superblock copies cannot be
/// made good, so that the next update, which needs all four, fails half way; or one that cannot be
/// read any more because of it.
#[test]
fn a_copy_that_cannot_be_rewritten_stops_writing_and_not_reading() {
    for copy in 0..COPY_COUNT {
        let (platform, paths) = simulated(Seed::new().value());
        let fault = Fault::errno(libc::EIO).of(OpKind::Write).on("m1");
        platform.inject(fault);
        for _ in 0..2 {
            // Each time anew: a write that fails may have been done all the same.
            platform.poke("m1", copy_offset(copy), &[0xff; SUPERBLOCK_BYTES]);
            let error = open_on(&platform, &paths).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Device, "{error}");
            let told = error.to_string();
            assert!(told.contains("cannot be rewritten"), "{told}");
            assert!(told.contains("reading only"), "{told}");
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.contains("m1"), "{cause}");
        }
        let options = OpenOptions {
            read_only: true,
            ..OpenOptions::default()
        };
        let volume = Volume::open_on(Arc::new(platform.clone()), &paths, &options).unwrap();
        let mut data = [0; 10];
        volume.read_at(&mut data, 4000).unwrap();
        assert_eq!(&data, b"data stays");
        drop(volume);
        // On a drive that takes it again, all is well.
        platform.heal();
        assert_opens_whole(&platform, &paths, "healed");
    }
}
