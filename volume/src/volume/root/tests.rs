//! On real files: what is committed is there after a reopen, whatever is refused changes nothing,
//! and an open finishes what a crash left. The crashes themselves are in `root/recover/tests.rs`.

use std::fs::OpenOptions as FileOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use swath_engine::queue::Queue;
use swath_engine::{
    Access, Device, FileFill, Kernel, Lock, Platform, QueueOptions, Result as EngineResult,
    create_file,
};
use tempfile::TempDir;

use super::*;
use crate::superblock::DEVICE_BYTES_MIN;
use crate::volume::{CreateOptions, OpenOptions};

struct Fixture {
    members: Vec<PathBuf>,
    // Removed with the fixture.
    _directory: TempDir,
}

impl Fixture {
    fn new(member_count: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let members: Vec<_> = (0..member_count)
            .map(|index| directory.path().join(format!("member-{index}")))
            .collect();
        for (index, member) in (0..).zip(&members) {
            // Of unequal size, so that the tails lie at different offsets.
            let bytes = DEVICE_BYTES_MIN + (4096 * index);
            create_file(member, bytes, FileFill::Zeroes).unwrap();
        }
        let options = CreateOptions {
            chunk_bytes: 4096,
            ..CreateOptions::default()
        };
        let volume = Volume::create(&members, &options).unwrap();
        assert_eq!(volume.root(), None);
        Self {
            members,
            _directory: directory,
        }
    }

    fn open(&self) -> Volume {
        Volume::open(&self.members, &OpenOptions::default()).unwrap()
    }

    fn open_read_only(&self) -> Result<Volume> {
        let options = OpenOptions {
            read_only: true,
            ..OpenOptions::default()
        };
        Volume::open(&self.members, &options)
    }

    /// Writes bytes over a slot, as a crash or rot would.
    fn write(&self, member: usize, offset: u64, bytes: &[u8]) {
        write_file(&self.members[member], offset, bytes);
    }
}

fn write_file(path: &Path, offset: u64, bytes: &[u8]) {
    let file = FileOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, offset).unwrap();
    file.sync_all().unwrap();
}

fn facts(record: &RootRecord) -> (u64, u64, &[u8]) {
    (record.epoch, record.sequence, &record.payload)
}

#[test]
fn a_commit_is_there_after_a_reopen_which_raises_the_epoch() {
    for member_count in 1..=4 {
        let fixture = Fixture::new(member_count);
        let volume = fixture.open();
        assert_eq!(volume.root(), None);
        let first = volume.commit_root(b"one").unwrap();
        assert_eq!(facts(&first), (1, 1, &b"one"[..]));
        assert_eq!(volume.root(), Some(first));
        volume.commit_root(b"two").unwrap();
        drop(volume);

        for _ in 0..2 {
            let seen = fixture.open_read_only().unwrap().root().unwrap();
            assert_eq!(facts(&seen), (1, 2, &b"two"[..]), "reading writes nothing");
        }
        let volume = fixture.open();
        assert_eq!(facts(&volume.root().unwrap()), (2, 3, &b"two"[..]));
        let longest = vec![0xab; ROOT_BYTES_MAX];
        let third = volume.commit_root(&longest).unwrap();
        assert_eq!(facts(&third), (2, 4, &longest[..]));
        let empty = volume.commit_root(b"").unwrap();
        assert_eq!(facts(&empty), (2, 5, &b""[..]));
        drop(volume);
        let volume = fixture.open();
        assert_eq!(facts(&volume.root().unwrap()), (3, 6, &b""[..]));
        // More than once round the rings.
        for round in 0..130_u64 {
            volume.commit_root(&round.to_le_bytes()).unwrap();
        }
        drop(volume);
        let last = fixture.open().root().unwrap();
        assert_eq!(facts(&last), (4, 137, &129_u64.to_le_bytes()[..]));
    }
}

#[test]
fn commits_of_several_threads_take_turns() {
    let fixture = Fixture::new(2);
    let volume = fixture.open();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let volume = volume.clone();
            scope.spawn(move || {
                for _ in 0..10 {
                    volume.commit_root(&[thread]).unwrap();
                }
            });
        }
    });
    assert_eq!(volume.root().unwrap().sequence, 40);
    drop(volume);
    assert_eq!(fixture.open().root().unwrap().sequence, 41);
}

#[test]
fn what_is_refused_changes_nothing() {
    let fixture = Fixture::new(2);
    let volume = fixture.open();
    volume.commit_root(b"kept").unwrap();
    let error = volume.commit_root(&[0; ROOT_BYTES_MAX + 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(volume.poisoned().is_none());
    drop(volume);
    let volume = fixture.open_read_only().unwrap();
    let error = volume.commit_root(b"new").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    drop(volume);
    let volume = fixture.open();
    assert_eq!(volume.root().unwrap().payload, b"kept");
    let failure = swath_engine::Error::new(swath_engine::ErrorKind::Device, "broken elsewhere");
    volume.0.poison.set(&failure);
    let error = volume.commit_root(b"new").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    drop(volume);
    let root = fixture.open().root().unwrap();
    assert_eq!(facts(&root), (3, 3, &b"kept"[..]));
}

/// A commit that a crash cut short: record A on one member only.
fn write_record_a(fixture: &Fixture, member: usize, volume: &Volume, record: &Record) {
    let place = RingPlace::new(&volume.0.superblocks.lock()[member], Ring::Head).unwrap();
    let (offset, block) = encode(record, &place);
    fixture.write(member, offset, &block);
}

#[test]
fn an_open_finishes_what_a_crash_left_on_one_member() {
    for member in 0..3 {
        let fixture = Fixture::new(3);
        let volume = fixture.open();
        volume.commit_root(b"old").unwrap();
        let newest = volume.0.root.lock().clone().unwrap();
        let record = newest.successor(b"new".to_vec()).unwrap();
        write_record_a(&fixture, member, &volume, &record);
        drop(volume);
        let root = fixture.open().root().unwrap();
        assert_eq!(facts(&root), (2, 3, &b"new"[..]));
        // What was found stands on every member now.
        let volume = fixture.open_read_only().unwrap();
        let mut lane = metadata::lane(&Kernel, &volume.0.devices).unwrap();
        for rings in read(&mut lane, &volume.0.superblocks.lock()).unwrap() {
            for ring in rings.rings {
                assert_eq!(ring[2].as_ref().unwrap(), &record);
                assert_eq!(ring[3].as_ref().unwrap().root, root);
            }
        }
    }
}

#[test]
fn a_fork_and_an_old_copy_are_refused_and_left_alone() {
    let fixture = Fixture::new(2);
    let volume = fixture.open();
    volume.commit_root(b"before").unwrap();
    drop(volume);
    let old = std::fs::read(&fixture.members[1]).unwrap();
    let volume = fixture.open();
    let newest = volume.0.root.lock().clone().unwrap();
    for (member, payload) in [b"one", b"two"].into_iter().enumerate() {
        let record = newest.successor(payload.to_vec()).unwrap();
        write_record_a(&fixture, member, &volume, &record);
    }
    drop(volume);
    let is_refused = |kind: ErrorKind| {
        let before = std::fs::read(&fixture.members[0]).unwrap();
        let error = Volume::open(&fixture.members, &OpenOptions::default()).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(fixture.open_read_only().unwrap_err().kind(), kind);
        assert_eq!(std::fs::read(&fixture.members[0]).unwrap(), before);
        error
    };
    assert_eq!(is_refused(ErrorKind::Damaged).paths().count(), 2);
    write_file(&fixture.members[1], 0, &old);
    let error = is_refused(ErrorKind::Stale);
    assert_eq!(error.paths().collect::<Vec<_>>(), [&fixture.members[1]]);
}

#[test]
fn a_newest_record_damaged_in_every_copy_is_shown_without_it_for_reading_only() {
    let fixture = Fixture::new(2);
    let volume = fixture.open();
    volume.commit_root(b"one").unwrap();
    volume.commit_root(b"two").unwrap();
    let places: Vec<_> = volume
        .0
        .superblocks
        .lock()
        .iter()
        .flat_map(|superblock| Ring::ALL.map(|ring| RingPlace::new(superblock, ring).unwrap()))
        .collect();
    drop(volume);
    for (copy, place) in places.into_iter().enumerate() {
        assert_eq!(
            fixture.open_read_only().unwrap().root().unwrap().payload,
            b"two"
        );
        fixture.write(copy / 2, place.slot_offset(2) + 300, b"rot");
    }
    let error = Volume::open(&fixture.members, &OpenOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert_eq!(
        fixture.open_read_only().unwrap().root().unwrap().payload,
        b"one"
    );
}

/// A platform that, once broken, serves members by descriptors that cannot be written to.
#[derive(Debug)]
struct Breakable(AtomicBool);

impl Platform for Breakable {
    fn open(
        &self,
        path: &Path,
        options: &swath_engine::OpenOptions,
    ) -> EngineResult<Arc<dyn Device>> {
        Kernel.open(path, options)
    }

    fn queue(
        &self,
        devices: &[Arc<dyn Device>],
        options: &QueueOptions,
    ) -> EngineResult<Box<dyn Queue>> {
        if !self.0.load(Ordering::Relaxed) {
            return Kernel.queue(devices, options);
        }
        let how = swath_engine::OpenOptions {
            access: Access::Read,
            lock: Lock::None,
            allow_buffered: false,
        };
        let devices = devices
            .iter()
            .map(|device| Kernel.open(device.path(), &how))
            .collect::<EngineResult<Vec<_>>>()?;
        Kernel.queue(&devices, options)
    }
}

#[test]
fn a_failed_commit_poisons_and_says_that_reopening_decides() {
    let fixture = Fixture::new(2);
    let platform = Arc::new(Breakable(AtomicBool::new(false)));
    let options = OpenOptions::default();
    let volume = Volume::open_on(platform.clone(), &fixture.members, &options).unwrap();
    volume.commit_root(b"kept").unwrap();
    platform.0.store(true, Ordering::Relaxed);
    let error = volume.commit_root(b"lost").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Device);
    assert!(error.to_string().contains("not known whether"), "{error}");
    assert!(volume.poisoned().is_some());
    platform.0.store(false, Ordering::Relaxed);
    let error = volume.commit_root(b"refused").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    assert!(volume.write_at(b"refused", 0).is_err());
    assert_eq!(volume.root().unwrap().payload, b"kept");
    drop(volume);
    let root = fixture.open().root().unwrap();
    assert_eq!(facts(&root), (2, 2, &b"kept"[..]));
}
