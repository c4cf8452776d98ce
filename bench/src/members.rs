//! File members that a run makes for itself and takes away again.
//!
//! - They lie in a directory of their own, which is removed when [`TemporaryMembers`] is dropped:
//!   at the end, on an error, on a panic, on an interrupt.
//! - The directory holds a locked file, so that what a killed run left behind can be told from
//!   what another run is using; the next run in the same place removes the former. The file gets
//!   its name when it is locked, so there is no moment at which a run in progress looks like one
//!   that was killed.
//! - Space is checked for all members together, before the first byte is written.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statvfs};
use swath_engine::{FileFill, create_file_with};

use crate::error::{Error, ErrorKind, Result};
use crate::interrupt::Interrupt;
use crate::size::format_bytes;

const DIRECTORY_PREFIX: &str = "swath-members-";
const LOCK_NAME: &str = "in-use";
/// What the locked file is called before it is locked. Whoever looks for what was left behind does
/// not look at this name.
const LOCK_NAME_BEFORE: &str = "in-use.new";

/// What a run's own members look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MembersOptions {
    /// The directory to make them in; made if it is not there.
    pub parent: PathBuf,
    /// How many.
    pub count: u32,
    /// Bytes of each.
    pub member_bytes: u64,
    /// What is written to them.
    pub fill: FileFill,
}

impl MembersOptions {
    /// Bytes of all of them.
    pub fn total_bytes(&self) -> u64 {
        self.member_bytes.saturating_mul(u64::from(self.count))
    }

    /// Sees that there is a place for them, and room; writes nothing. Returns how many bytes are
    /// free.
    ///
    /// # Errors
    ///
    /// Files cannot be made there; or [`ErrorKind::NoSpace`], with what is needed and what there
    /// is.
    pub fn check_place(&self) -> Result<u64> {
        let what = format!(
            "{} members of {} need",
            self.count,
            format_bytes(self.member_bytes)
        );
        check_room(&self.parent, self.total_bytes(), &what, "--dir")
    }
}

/// Sees that files of so many bytes can be made in `parent`; writes nothing. Returns how many bytes
/// are free. `what` says whose need it is, `2 members of 1.0 GiB need`, and `option` chooses the
/// place.
///
/// # Errors
///
/// Files cannot be made there; or [`ErrorKind::NoSpace`], with what is needed and what there is.
pub fn check_room(parent: &Path, needed_bytes: u64, what: &str, option: &str) -> Result<u64> {
    let wanted = std::path::absolute(parent).unwrap_or_else(|_| parent.to_path_buf());
    let look = || {
        // The nearest place that is there already: the rest will be made.
        let mut place = wanted.clone();
        while fs::symlink_metadata(&place).is_err() && place.pop() {}
        if !fs::metadata(&place)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        access(&place, Access::WRITE_OK | Access::EXEC_OK)?;
        Ok(statvfs(&place)?)
    };
    let mut told: io::Result<_> = look();
    // A run that ends takes the empty parent with it, at any moment.
    for _ in 0..100 {
        match &told {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => told = look(),
            _ => break,
        }
    }
    let told = told.map_err(|cause| no_place_by(parent, option, cause))?;
    if told.f_blocks == 0 {
        let cause = io::Error::other("its file system does not hold files of ours");
        return Err(no_place_by(parent, option, cause));
    }
    let free_bytes = told.f_bavail.saturating_mul(told.f_frsize);
    if needed_bytes > free_bytes {
        return Err(Error::new(
            ErrorKind::NoSpace,
            format!(
                "{what} {}, but {} has {} free; make them smaller with --size, or choose another \
                 place with {option}",
                format_bytes(needed_bytes),
                parent.display(),
                format_bytes(free_bytes)
            ),
        ));
    }
    Ok(free_bytes)
}

/// File members that exist until this is dropped.
#[derive(Debug)]
pub struct TemporaryMembers {
    directory: PathBuf,
    paths: Vec<PathBuf>,
    interrupt: Interrupt,
    made_parent: bool,
    /// Held so that another run leaves the directory alone.
    _lock: File,
}

impl TemporaryMembers {
    /// Makes them, telling `progress` which one is being written, and how many of its bytes are.
    ///
    /// # Errors
    ///
    /// The directory cannot be made or written, there is no room, or the run was interrupted.
    pub fn make(
        options: &MembersOptions,
        interrupt: &Interrupt,
        progress: &mut dyn FnMut(u32, u64),
    ) -> Result<Self> {
        remove_left_behind(&options.parent);
        options.check_place()?;
        let made_parent = !options.parent.exists();
        let directory =
            make_directory(&options.parent).map_err(|cause| no_place(&options.parent, cause))?;
        interrupt.guard_directory(&directory);
        let lock = match lock_directory(&directory) {
            Ok(lock) => lock,
            Err(cause) => {
                let _ = fs::remove_dir_all(&directory);
                interrupt.release_directory(&directory);
                return Err(no_place(&options.parent, cause));
            }
        };
        let mut members = Self {
            directory,
            paths: Vec::new(),
            made_parent,
            interrupt: interrupt.clone(),
            _lock: lock,
        };
        for number in 0..options.count {
            let path = members.directory.join(format!("member-{number}"));
            let fill = fill_of(options.fill, number);
            make_one(
                &path,
                options.member_bytes,
                fill,
                interrupt,
                &mut |done_bytes| {
                    progress(number, done_bytes);
                },
            )?;
            members.paths.push(path);
        }
        Ok(members)
    }

    /// Their paths.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The directory that holds them.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for TemporaryMembers {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            eprintln!(
                "warning: cannot remove {}: {error}",
                self.directory.display()
            );
        }
        self.interrupt.release_directory(&self.directory);
        // The place goes too if this run made it, and nothing else has come to lie in it.
        if let Some(parent) = self.directory.parent()
            && (self.made_parent || parent.ends_with(DEFAULT_DIRECTORY))
        {
            let _ = fs::remove_dir(parent);
        }
    }
}

/// The name of the directory under cargo's target directory.
const DEFAULT_DIRECTORY: &str = "swath-matrix";

/// Where members go when nobody says: `swath-matrix` under cargo's target directory, which is
/// `CARGO_TARGET_DIR`, or the one this program lies in, or `./target`.
pub fn default_parent() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map(PathBuf::from)
        .or_else(|| {
            let program = std::env::current_exe().ok()?;
            // Cargo marks its target directory for backup programs.
            let target = program
                .ancestors()
                .skip(1)
                .find(|place| place.join("CACHEDIR.TAG").exists());
            target.map(Path::to_path_buf)
        });
    target
        .unwrap_or_else(|| PathBuf::from("target"))
        .join(DEFAULT_DIRECTORY)
}

/// Makes one member; an interrupt stops it and leaves nothing.
fn make_one(
    path: &Path,
    bytes: u64,
    fill: FileFill,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let made = create_file_with(path, bytes, fill, &mut |done_bytes| {
        progress(done_bytes);
        !interrupt.is_set()
    });
    made.map_err(|cause| {
        let kind = match cause.kind() {
            swath_engine::ErrorKind::Interrupted => return Error::interrupted(),
            swath_engine::ErrorKind::NoSpace => ErrorKind::NoSpace,
            _ => ErrorKind::Failed,
        };
        Error::new(kind, "cannot make a member").with_source(cause)
    })
}

/// Members differ, so that a drive that finds duplicates finds none.
fn fill_of(fill: FileFill, number: u32) -> FileFill {
    match fill {
        FileFill::Incompressible { seed } => FileFill::Incompressible {
            seed: seed.wrapping_add(u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        },
        other => other,
    }
}

fn no_place(parent: &Path, cause: io::Error) -> Error {
    no_place_by(parent, "--dir", cause)
}

fn no_place_by(parent: &Path, option: &str, cause: io::Error) -> Error {
    let message = format!(
        "cannot make a directory in {}; choose another place with {option}",
        parent.display()
    );
    Error::failed(message, cause)
}

/// Makes a directory that was not there in `parent`, which is made as well. Whoever makes it first
/// has it: two runs, or two threads of one, never share.
fn make_directory(parent: &Path) -> io::Result<PathBuf> {
    let process = std::process::id();
    let mut attempts = 0..10_000;
    let mut number = 0_u32;
    loop {
        // A run that ends takes the empty parent with it, at any moment.
        match fs::create_dir_all(parent).map_err(|error| (error.kind(), error)) {
            Ok(()) => {}
            Err((io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound, _))
                if attempts.next().is_some() =>
            {
                continue;
            }
            Err((_, error)) => return Err(error),
        }
        let suffix = match number {
            0 => process.to_string(),
            number => format!("{process}-{number}"),
        };
        let directory = parent.join(format!("{DIRECTORY_PREFIX}{suffix}"));
        match fs::create_dir(&directory).map_err(|error| (error.kind(), error)) {
            Ok(()) => return Ok(directory),
            Err((io::ErrorKind::AlreadyExists, _)) if attempts.next().is_some() => number += 1,
            Err((io::ErrorKind::NotFound, _)) if attempts.next().is_some() => {}
            Err((_, error)) => return Err(error),
        }
    }
}

/// Says that a directory is in use, for as long as the file is open: locked first, and then named.
fn lock_directory(directory: &Path) -> io::Result<File> {
    let before = directory.join(LOCK_NAME_BEFORE);
    let file = File::create(&before)?;
    file.lock()?;
    fs::rename(before, directory.join(LOCK_NAME))?;
    Ok(file)
}

/// Removes what runs that were killed left in `parent`: directories of ours that nobody locks.
fn remove_left_behind(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        if !entry
            .file_name()
            .to_string_lossy()
            .starts_with(DIRECTORY_PREFIX)
        {
            continue;
        }
        // Held until the directory is gone, so that no other run removes it, too.
        if let Some(_lock) = lock_left_behind(&entry.path()) {
            eprintln!(
                "removing {}, left behind by a killed run",
                entry.path().display()
            );
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The lock of a directory that nobody uses. None while somebody does, before it has one, and when
/// it is not the same any more: another run may have removed what was left behind between the look
/// and the lock, and a third one may have made a new directory of that name.
fn lock_left_behind(directory: &Path) -> Option<File> {
    let path = directory.join(LOCK_NAME);
    let lock = File::open(&path).ok()?;
    lock.try_lock().ok()?;
    let (locked, named) = (lock.metadata().ok()?, fs::metadata(path).ok()?);
    let is_same = (locked.dev(), locked.ino()) == (named.dev(), named.ino());
    is_same.then_some(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(parent: &Path) -> MembersOptions {
        MembersOptions {
            parent: parent.to_path_buf(),
            count: 2,
            member_bytes: 1 << 20,
            fill: FileFill::Incompressible { seed: 1 },
        }
    }

    #[test]
    fn members_are_gone_after_the_drop_and_after_a_panic() {
        let parent = tempfile::tempdir().unwrap();
        let mut told = Vec::new();
        let members =
            TemporaryMembers::make(&options(parent.path()), &Interrupt::new(), &mut |n, _| {
                told.push(n);
            })
            .unwrap();
        told.dedup();
        assert_eq!(told, [0, 1]);
        assert!(
            members
                .paths()
                .iter()
                .all(|path| path.metadata().unwrap().len() == 1 << 20)
        );
        let contents = |number: usize| fs::read(&members.paths()[number]).unwrap();
        assert_ne!(contents(0), contents(1));
        let outcome = std::panic::catch_unwind(move || {
            let _members = members;
            panic!("on purpose");
        });
        assert!(outcome.is_err());
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn too_little_room_is_said_before_anything_is_written() {
        let parent = tempfile::tempdir().unwrap();
        let options = MembersOptions {
            member_bytes: 1 << 60,
            ..options(parent.path())
        };
        let error =
            TemporaryMembers::make(&options, &Interrupt::new(), &mut |_, _| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.to_string().contains("need"), "{error}");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_place_that_takes_no_files_is_refused_with_its_path() {
        for parent in ["/proc/no-such-directory", "/dev/null", "/dev/null/below"] {
            let error = options(Path::new(parent)).check_place().unwrap_err();
            let chain = error.chain();
            assert!(chain.contains(parent) && chain.contains("--dir"), "{chain}");
        }
    }

    #[test]
    fn an_interrupt_leaves_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let interrupt = Interrupt::new();
        interrupt.set();
        let options = MembersOptions {
            member_bytes: 256 << 20,
            ..options(parent.path())
        };
        // The flag is looked at while the first member is being made, or before the second.
        let outcome = TemporaryMembers::make(&options, &interrupt, &mut |_, _| ());
        assert!(outcome.is_err_and(|error| error.kind() == ErrorKind::Interrupted));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_unlocked_leftovers_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let dead = parent.path().join("swath-members-1");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(LOCK_NAME), "").unwrap();
        let stranger = parent.path().join("mine");
        fs::create_dir(&stranger).unwrap();
        let live =
            TemporaryMembers::make(&options(parent.path()), &Interrupt::new(), &mut |_, _| ())
                .unwrap();
        assert!(!dead.exists());
        remove_left_behind(parent.path());
        assert!(live.directory().exists() && stranger.exists());
    }

    #[test]
    fn a_directory_whose_lock_is_on_its_way_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        // As far as a run is before the file has its name: locked, and not locked yet.
        for (name, is_locked) in [("swath-members-1", true), ("swath-members-2", false)] {
            let directory = parent.path().join(name);
            fs::create_dir(&directory).unwrap();
            remove_left_behind(parent.path());
            let file = File::create(directory.join(LOCK_NAME_BEFORE)).unwrap();
            if is_locked {
                file.lock().unwrap();
            }
            remove_left_behind(parent.path());
            assert!(directory.join(LOCK_NAME_BEFORE).exists(), "{name}");
        }
    }

    #[test]
    fn a_lock_on_what_another_run_has_removed_and_made_anew_is_no_lock() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("swath-members-1");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join(LOCK_NAME), "").unwrap();
        let first = lock_left_behind(&directory).unwrap();
        // While one holds it, no other gets it; and none gets what is not there any more.
        assert!(lock_left_behind(&directory).is_none());
        fs::remove_dir_all(&directory).unwrap();
        assert!(lock_left_behind(&directory).is_none());
        fs::create_dir(&directory).unwrap();
        let new = lock_directory(&directory).unwrap();
        drop(first);
        assert!(lock_left_behind(&directory).is_none());
        drop(new);
        assert!(lock_left_behind(&directory).is_some());
    }

    #[test]
    fn runs_that_begin_while_others_tidy_up_keep_their_members() {
        let parent = tempfile::tempdir().unwrap();
        // Directories alone: more of them in the time.
        let options = MembersOptions {
            count: 0,
            ..options(&parent.path().join(DEFAULT_DIRECTORY))
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        // Each of them tidies up first.
                        let members =
                            TemporaryMembers::make(&options, &Interrupt::new(), &mut |_, _| ())
                                .unwrap();
                        assert!(members.directory().join(LOCK_NAME).exists());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
