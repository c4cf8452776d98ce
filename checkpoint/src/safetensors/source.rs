//! [`Source`]: a file on the host that is about to be imported.
//!
//! - It is looked at twice: when the import is planned, and when its bytes are read. In between it
//!   may be replaced or written to; its [`Stamp`] tells, and the import is refused.
//! - Only regular files have a length to rely on: pipes and devices are refused, and opening one
//!   does not hang.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, CWD, Mode, OFlags, fadvise, openat};

use super::files::{FileKind, file_name_problem};
use crate::error::{Error, ErrorKind, Result};

/// A file, as it was when it was first looked at.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    /// The last part of the path.
    pub(super) name: String,
    pub(super) kind: FileKind,
    /// The tensor with all of it, or with its beginning.
    pub(super) tensor: String,
    pub(super) stamp: Stamp,
}

/// What changes when a file is replaced or written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file: only those can be saved",
            ));
        }
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// Opens a file to read it from one end to the other.
pub(super) fn open(path: &Path) -> Result<(File, Stamp)> {
    let fail = |error: io::Error| Error::from_io(error, "cannot be opened").with_path(path);
    // NONBLOCK: a pipe without a writer is refused, not waited for.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let file = openat(CWD, path, flags, Mode::empty()).map_err(|errno| fail(errno.into()))?;
    let file = File::from(file);
    let stamp = Stamp::of(&file).map_err(fail)?;
    // Advice only: a file system that knows none does as well.
    let _ = fadvise(&file, 0, None, Advice::Sequential);
    Ok((file, stamp))
}

/// The name a file is saved under: the last part of its path.
pub(super) fn name_of(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    let problem = match name {
        None => Some("a file's name must be UTF-8 to be saved"),
        Some(name) => file_name_problem(name),
    };
    match (name, problem) {
        (Some(name), None) => Ok(name.to_owned()),
        (_, problem) => Err(Error::invalid(problem.unwrap_or_default()).with_path(path)),
    }
}

impl Source {
    /// Opens it again.
    pub(super) fn open(&self) -> Result<File> {
        let (file, stamp) = open(&self.path)?;
        self.compare(stamp)?;
        Ok(file)
    }

    /// Refuses it when it is no longer what it was.
    pub(super) fn check_unchanged(&self) -> Result<()> {
        let (_, stamp) = open(&self.path)?;
        self.compare(stamp)
    }

    fn compare(&self, stamp: Stamp) -> Result<()> {
        if stamp == self.stamp {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Changed,
            "the file was changed or replaced while it was being saved",
        )
        .with_path(&self.path))
    }

    /// Reads its bytes from `offset` on.
    pub(super) fn read(&self, file: &File, memory: &mut [u8], offset: u64) -> Result<()> {
        read(file, &self.path, memory, offset)
    }
}

/// Reads bytes of a file that is known to have them.
pub(super) fn read(file: &File, path: &Path, memory: &mut [u8], offset: u64) -> Result<()> {
    file.read_exact_at(memory, offset).map_err(|error| {
        let message = if error.kind() == io::ErrorKind::UnexpectedEof {
            "the file was cut short while it was being read".to_owned()
        } else {
            format!("{} bytes at byte {offset} cannot be read", memory.len())
        };
        Error::from_io(error, message).with_path(path)
    })
}
