//! What a volume refuses, in which words, and that a refusal leaves every byte as it was.
//!
//! What could go wrong: a volume made over somebody's file system; one opened with a member of
//! another, with an old or a doubled one, and written to; a message that leaves its reader without
//! the path, the reason or the way out.

mod create;
mod open;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use swath_tests::fixtures::{self, MIB};
use swath_volume::superblock::{MemberMap, SUPERBLOCK_BYTES};
use swath_volume::{CreateOptions, Error, ErrorKind, OpenOptions, Volume};
use tempfile::TempDir;

const KIB: u64 = 1 << 10;

const MEMBER_BYTES: u64 = 5 * MIB;

/// A folder with three members; of a volume, or blank.
struct Rig {
    folder: TempDir,
    paths: Vec<PathBuf>,
}

impl Rig {
    fn blank() -> Self {
        let folder = fixtures::folder();
        let paths = fixtures::members(folder.path(), 3, MEMBER_BYTES);
        Self { folder, paths }
    }

    fn with_volume() -> Self {
        let rig = Self::blank();
        fixtures::volume(&rig.paths, 64 * KIB).close().unwrap();
        rig
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Every byte of every file in the folder.
    fn bytes(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files: Vec<_> = fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect();
        files.sort();
        files
    }

    /// Creating is refused, for this reason and in words that hold `parts`; nothing is written.
    #[track_caller]
    fn create_is_refused(
        &self,
        paths: &[PathBuf],
        options: &CreateOptions,
        kind: ErrorKind,
        parts: &[&str],
    ) -> Error {
        let before = self.bytes();
        let error = Volume::create(paths, options).unwrap_err();
        assert!(self.bytes() == before, "a refused creation wrote");
        check(error, kind, parts)
    }

    /// Opening is refused, for this reason and in words that hold `parts`; nothing is written.
    #[track_caller]
    fn open_is_refused(&self, paths: &[PathBuf], kind: ErrorKind, parts: &[&str]) -> Error {
        let before = self.bytes();
        let error = Volume::open(paths, &OpenOptions::default()).unwrap_err();
        assert!(self.bytes() == before, "a refused opening wrote");
        let reading = OpenOptions {
            read_only: true,
            ..OpenOptions::default()
        };
        let of_reader = Volume::open(paths, &reading).unwrap_err();
        assert_eq!(of_reader.kind(), error.kind(), "{of_reader}");
        check(error, kind, parts)
    }
}

#[track_caller]
fn check(error: Error, kind: ErrorKind, parts: &[&str]) -> Error {
    let message = error.to_string();
    assert_eq!(error.kind(), kind, "{message}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    error
}

fn words(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn patch(path: &Path, offset: u64, bytes: &[u8]) {
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .write_all_at(bytes, offset)
        .unwrap();
}

fn create_options() -> CreateOptions {
    CreateOptions {
        chunk_bytes: 64 * KIB,
        ..CreateOptions::default()
    }
}

#[test]
fn names_that_cannot_be_are_refused() {
    let rig = Rig::with_volume();
    let long = "☂".repeat(22);
    let volume = Volume::open(&rig.paths, &OpenOptions::default()).unwrap();
    for (name, why) in [
        (&*long, "longer than 63 bytes"),
        ("a\nb", "control characters"),
    ] {
        let error = volume.rename(name).unwrap_err();
        check(
            error,
            ErrorKind::InvalidInput,
            &["cannot be a volume's name", why],
        );
    }
    drop(volume);
    for (name, why) in [
        (&*long, "longer than 63 bytes"),
        ("a\0b", "control characters"),
    ] {
        let options = CreateOptions {
            name: name.to_owned(),
            force: true,
            ..create_options()
        };
        rig.create_is_refused(&rig.paths, &options, ErrorKind::InvalidInput, &[why]);
    }
}

#[test]
fn a_member_that_is_too_small_or_not_there_is_refused() {
    let rig = Rig::blank();
    let small = fixtures::member(rig.folder.path(), "small", 4 * MIB);
    let paths = [rig.paths[0].clone(), small.clone()];
    let parts = [words(&small), "at least 4198400 bytes", "4194304"];
    rig.create_is_refused(&paths, &create_options(), ErrorKind::InvalidInput, &parts);
    rig.open_is_refused(&[small], ErrorKind::NotAMember, &["not a Swath member"]);

    let missing = rig.path("missing");
    let paths = [rig.paths[0].clone(), missing.clone()];
    let parts = [words(&missing), "there is nothing at this path"];
    rig.create_is_refused(&paths, &create_options(), ErrorKind::NotFound, &parts);
    rig.open_is_refused(&paths, ErrorKind::NotFound, &parts);

    let folder = rig.folder.path().to_path_buf();
    let parts = [words(&folder), "a directory"];
    rig.create_is_refused(
        std::slice::from_ref(&folder),
        &create_options(),
        ErrorKind::InvalidInput,
        &parts,
    );
    let parts = [words(&folder), "no members of a volume in this directory"];
    rig.open_is_refused(std::slice::from_ref(&folder), ErrorKind::NotFound, &parts);
}

#[test]
fn one_device_by_two_paths_is_refused() {
    let rig = Rig::with_volume();
    let (link, hard) = (rig.path("link"), rig.path("hard"));
    symlink(&rig.paths[1], &link).unwrap();
    fs::hard_link(&rig.paths[1], &hard).unwrap();
    for twin in [&rig.paths[1], &link, &hard] {
        let paths = [&rig.paths[0], &rig.paths[1], &rig.paths[2], twin].map(PathBuf::clone);
        let parts = [words(&rig.paths[1]), words(twin), "these are one device"];
        let error = rig.open_is_refused(&paths, ErrorKind::Duplicate, &parts);
        assert_eq!(error.paths().collect::<Vec<_>>(), [&rig.paths[1], twin]);
        let forced = CreateOptions {
            force: true,
            ..create_options()
        };
        rig.create_is_refused(&paths, &forced, ErrorKind::Duplicate, &parts);
    }
    // Named once, by a link, it is as good as by its own path.
    let paths = [&rig.paths[0], &link, &rig.paths[2]];
    Volume::open(&paths, &OpenOptions::default())
        .unwrap()
        .close()
        .unwrap();
}

#[test]
fn any_set_of_members_that_is_not_all_of_them_is_refused() {
    let rig = Rig::with_volume();
    for set in 1..7_u32 {
        let is_in = |index: &usize| set >> index & 1 == 1;
        let paths: Vec<_> = (0..3)
            .filter(is_in)
            .map(|index| rig.paths[index].clone())
            .collect();
        let missing: Vec<_> = (0..3).filter(|index| !is_in(index)).collect();
        let count = format!("needs 3 members and has {}; missing: member", paths.len());
        let error = rig.open_is_refused(&paths, ErrorKind::Missing, &[&count]);
        let message = error.to_string();
        for index in missing {
            assert!(
                message.contains(&format!(" {index} (")),
                "{index} is not in {message:?}"
            );
        }
        for path in &paths {
            assert!(message.contains(words(path)), "{message:?}");
        }
    }
}

#[test]
fn a_blank_device_among_members_is_refused() {
    let rig = Rig::with_volume();
    let blank = fixtures::member(rig.folder.path(), "blank", MEMBER_BYTES);
    let paths = [rig.paths[0].clone(), rig.paths[1].clone(), blank.clone()];
    let parts = [words(&blank), "not a Swath member: blank"];
    rig.open_is_refused(&paths, ErrorKind::NotAMember, &parts);
    let map = MemberMap::new(MEMBER_BYTES).unwrap();
    patch(&blank, map.copy_offset(1), b"something else");
    rig.open_is_refused(
        &paths,
        ErrorKind::NotAMember,
        &[words(&blank), "not a Swath member"],
    );
}

/// Changes a field of every superblock copy, with or without the checksum.
fn change_superblocks(path: &Path, field: u64, bytes: &[u8], seals: bool) {
    let map = MemberMap::new(MEMBER_BYTES).unwrap();
    let file = File::options().read(true).write(true).open(path).unwrap();
    for offset in map.copy_offsets() {
        file.write_all_at(bytes, offset + field).unwrap();
        if seals {
            let mut block = [0; SUPERBLOCK_BYTES];
            file.read_exact_at(&mut block, offset).unwrap();
            let checksum = crc32fast::hash(&block[..SUPERBLOCK_BYTES - 4]);
            let place = offset + SUPERBLOCK_BYTES as u64 - 4;
            file.write_all_at(&checksum.to_le_bytes(), place).unwrap();
        }
    }
}

#[test]
fn a_volume_that_is_open_already_is_in_use() {
    let rig = Rig::with_volume();
    let volume = Volume::open(&rig.paths, &OpenOptions::default()).unwrap();
    let parts = [words(&rig.paths[0]), "in use by this process itself"];
    rig.open_is_refused(&rig.paths, ErrorKind::InUse, &parts);
    let forced = CreateOptions {
        force: true,
        ..create_options()
    };
    rig.create_is_refused(&rig.paths, &forced, ErrorKind::InUse, &parts);
    let error = swath_volume::wipe(&rig.paths[0], true).unwrap_err();
    check(error, ErrorKind::InUse, &parts);
    // Where one member is in use, the others are let go of again.
    let other = fixtures::member(rig.folder.path(), "other", MEMBER_BYTES);
    let paths = [other.clone(), rig.paths[2].clone()];
    rig.create_is_refused(
        &paths,
        &create_options(),
        ErrorKind::InUse,
        &[words(&rig.paths[2])],
    );
    Volume::create(&[other], &create_options()).unwrap();
    volume.write_at(b"still mine", 0).unwrap();
}

#[test]
fn wiping_something_else_is_refused() {
    let rig = Rig::blank();
    let before = rig.bytes();
    let error = swath_volume::wipe(&rig.paths[0], false).unwrap_err();
    check(
        error,
        ErrorKind::NotAMember,
        &[words(&rig.paths[0]), "carries no superblock"],
    );
    assert!(rig.bytes() == before);

    let rig = Rig::with_volume();
    change_superblocks(&rig.paths[0], 8, &[2, 0, 0, 0], true);
    let before = rig.bytes();
    let error = swath_volume::wipe(&rig.paths[0], false).unwrap_err();
    check(
        error,
        ErrorKind::Damaged,
        &[words(&rig.paths[0]), "unknown version", "force it"],
    );
    assert!(rig.bytes() == before);
    assert_eq!(
        swath_volume::wipe(&rig.paths[0], true)
            .unwrap()
            .copies_erased,
        4
    );
}
