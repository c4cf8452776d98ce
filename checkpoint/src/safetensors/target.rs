//! [`Target`]: the directory that files are exported to.
//!
//! - Nothing there is ever written over, and nothing is followed: a file is made under a temporary
//!   name, and gets its own when it is whole and durable, unless something has that name by then.
//!   Names are single parts of a path, looked up beneath the opened directory.
//! - Files are the owner's alone (mode 0600).
//! - All or nothing: what was made goes away again, the directory too if it was made here, unless
//!   [`Target::publish`] succeeds.
//! - Files are not kept open: there may be thousands.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, ResolveFlags, fallocate, fstatvfs,
    fsync, ftruncate, linkat, openat, openat2, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use uuid::Uuid;

use super::files::file_name_problem;
use crate::error::{Error, ErrorKind, Result};

/// A directory, and the files being made in it.
pub(super) struct Target {
    path: PathBuf,
    directory: OwnedFd,
    /// Whether the directory itself was made here.
    made: bool,
    files: Vec<TargetFile>,
    published: bool,
}

struct TargetFile {
    name: String,
    /// The name it has now, if it has been made.
    now: Option<String>,
}

impl Target {
    /// Opens the directory, or makes it, for files with these names.
    ///
    /// # Errors
    ///
    /// A name that is not a plain one, or there already, as a symbolic link or anything else; a
    /// symbolic link in place of the directory.
    pub(super) fn open(path: &Path, names: Vec<String>) -> Result<Self> {
        for name in &names {
            if let Some(problem) = file_name_problem(name) {
                // Quoted: it may hold anything.
                return Err(Error::damaged(format!(
                    "the file {name:?} is not written: {problem}"
                )));
            }
        }
        // Without a slash at its end, which would lead through a link.
        let path: &Path = &path.components().collect::<PathBuf>();
        let made = match fs::create_dir(path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(io_error(error, "cannot be made", path)),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match openat(CWD, path, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOTDIR | Errno::LOOP) if path.is_symlink() => return Err(exists(path)),
            Err(errno) => {
                if made {
                    let _ = fs::remove_dir(path);
                }
                return Err(io_error(errno.into(), "cannot be written to", path));
            }
        };
        let files = names.into_iter().map(|name| TargetFile { name, now: None });
        let target = Self {
            path: path.to_path_buf(),
            directory,
            made,
            files: files.collect(),
            published: false,
        };
        for file in &target.files {
            target.check_free(&file.name)?;
        }
        Ok(target)
    }

    /// The path a file has in the end.
    pub(super) fn path_of(&self, file: usize) -> PathBuf {
        self.path.join(&self.files[file].name)
    }

    pub(super) fn paths(&self) -> Vec<PathBuf> {
        (0..self.files.len())
            .map(|file| self.path_of(file))
            .collect()
    }

    fn check_free(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        match statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(io_error(errno.into(), "cannot be looked up", &path)),
            Ok(_) => Err(exists(&path)),
        }
    }

    /// Makes a file of this length under a temporary name, its space reserved.
    pub(super) fn make(&mut self, file: usize, length: u64) -> Result<()> {
        let path = self.path_of(file);
        let temporary = format!(".swath-{}.tmp", Uuid::new_v4());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let made = self
            .open_beneath(&temporary, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| io_error(error, "cannot be made", &path))?;
        self.files[file].now = Some(temporary);
        if length == 0 {
            return Ok(());
        }
        let reserved = match fallocate(&made, FallocateFlags::empty(), 0, length) {
            // The file system cannot reserve: a write will tell.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => ftruncate(&made, length),
            reserved => reserved,
        };
        reserved.map_err(|errno| self.write_error(errno.into(), length, &path))
    }

    /// Opens a file that was made, to write to it.
    pub(super) fn open_to_write(&self, file: usize) -> Result<File> {
        self.files[file]
            .now
            .as_deref()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
            .and_then(|name| self.open_beneath(name, OFlags::WRONLY, Mode::empty()))
            .map_err(|error| io_error(error, "cannot be written to", &self.path_of(file)))
    }

    fn open_beneath(&self, name: &str, flags: OFlags, mode: Mode) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let opened = match openat2(&self.directory, name, flags, mode, resolve) {
            // Filtered out, in a container: a plain name that is not followed is as good.
            Err(Errno::NOSYS | Errno::PERM) => openat(&self.directory, name, flags, mode),
            opened => opened,
        };
        Ok(opened?.into())
    }

    /// The error of a write: of `length` bytes, if they did not fit.
    pub(super) fn write_error(&self, error: io::Error, length: u64, path: &Path) -> Error {
        let is_full = matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        );
        let message = match fstatvfs(&self.directory) {
            Ok(space) if is_full => format!(
                "there is too little space: it needs {length} bytes, and the file system has {} \
                 free",
                space.f_bavail.saturating_mul(space.f_frsize)
            ),
            _ => "cannot be written".to_owned(),
        };
        io_error(error, message, path)
    }

    /// Gives every file, whole and durable, its own name.
    pub(super) fn publish(mut self) -> Result<Vec<PathBuf>> {
        for file in 0..self.files.len() {
            let path = self.path_of(file);
            let TargetFile { name, now } = &mut self.files[file];
            let temporary = now.as_mut().expect("every file was made");
            match rename_new(&self.directory, temporary, name) {
                Ok(()) => temporary.clone_from(name),
                Err(Errno::EXIST) => return Err(exists(&path)),
                Err(errno) => return Err(io_error(errno.into(), "cannot be named", &path)),
            }
        }
        let fail = |error| io_error(error, "cannot be made durable", &self.path);
        fsync(&self.directory).map_err(|errno| fail(errno.into()))?;
        if self.made {
            let parent = match self.path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            File::open(parent)
                .and_then(|parent| parent.sync_all())
                .map_err(fail)?;
        }
        self.published = true;
        Ok(self.paths())
    }
}

/// Gives a file another name, never one that something has.
fn rename_new(directory: &OwnedFd, from: &str, to: &str) -> Result<(), Errno> {
    let at = directory.as_fd();
    match renameat_with(at, from, at, to, RenameFlags::NOREPLACE) {
        // The file system does not know the flag: a second name, and then the first away.
        Err(Errno::INVAL | Errno::NOSYS) => {
            linkat(at, from, at, to, AtFlags::empty())?;
            unlinkat(at, from, AtFlags::empty())
        }
        outcome => outcome,
    }
}

fn io_error(
    error: io::Error,
    message: impl Into<std::borrow::Cow<'static, str>>,
    path: &Path,
) -> Error {
    Error::from_io(error, message).with_path(path)
}

fn exists(path: &Path) -> Error {
    let what = if path.is_symlink() {
        "there is a symbolic link of this name, and it is not followed"
    } else {
        "it exists already, and is not written over"
    };
    Error::new(ErrorKind::AlreadyExists, what).with_path(path)
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.published {
            return;
        }
        // Something failed, and that is told; what cannot be removed stays, under a name that says
        // whose it was.
        for name in self.files.iter().filter_map(|file| file.now.as_deref()) {
            let _ = unlinkat(&self.directory, name, AtFlags::empty());
        }
        if self.made {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn files_appear_whole_or_not_at_all() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("out");
        for publish in [false, true] {
            let mut target = Target::open(&path, vec!["a".into(), "b".into()]).unwrap();
            target.make(0, 5).unwrap();
            target.make(1, 0).unwrap();
            target
                .open_to_write(0)
                .unwrap()
                .write_all(b"bytes")
                .unwrap();
            assert!(!path.join("a").exists());
            if publish {
                let paths = target.publish().unwrap();
                assert_eq!(paths, [path.join("a"), path.join("b")]);
            } else {
                drop(target);
                assert!(!path.exists());
            }
        }
        assert_eq!(names(&path), ["a", "b"]);
        assert_eq!(fs::read(path.join("a")).unwrap(), b"bytes");
        let mode = fs::metadata(path.join("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn nothing_is_written_over_and_nothing_followed() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path();
        fs::write(path.join("there"), "old").unwrap();
        symlink("/nowhere", path.join("link")).unwrap();
        for name in ["there", "link"] {
            let error = Target::open(path, vec![name.into()]).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        }
        // One that comes later is not written over either.
        let mut target = Target::open(path, vec!["first".into(), "late".into()]).unwrap();
        target.make(0, 1).unwrap();
        target.make(1, 1).unwrap();
        fs::write(path.join("late"), "theirs").unwrap();
        let error = target.publish().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(names(path), ["late", "link", "there"]);
        assert_eq!(fs::read(path.join("late")).unwrap(), b"theirs");
        for name in ["../x", "/x", ".."] {
            assert!(Target::open(path, vec![name.into()]).is_err());
        }
    }

    #[test]
    fn a_file_that_does_not_fit_is_refused_with_need_and_have() {
        let root = tempfile::tempdir().unwrap();
        let mut target = Target::open(root.path(), vec!["huge".into()]).unwrap();
        let error = target.make(0, 1 << 50).unwrap_err();
        // Some file systems say that no file can be so large.
        if error.kind() == ErrorKind::NoSpace {
            assert!(error.to_string().contains("1125899906842624"), "{error}");
        } else {
            println!("skipped: {error:?}");
        }
        drop(target);
        assert_eq!(names(root.path()), [""; 0]);
    }
}
