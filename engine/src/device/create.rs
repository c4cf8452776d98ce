//! Making and removing the files that stand in for drives.
//!
//! - A file is made in full or not at all: space is checked before anything is created, and any
//!   error, a stop or a panic removes what was begun.
//! - It is written in full, not only allocated, because first writes into allocated but unwritten
//!   blocks take locks and are about five times slower than rewrites, and a crash may lose an
//!   extended size. [`FileFill::Unwritten`] leaves that out for those who measure it.
//! - When it is there it stays there: the file is synced, then its directory.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    FallocateFlags, FlockOperation, Mode, OFlags, fallocate, fcntl_getfl, fcntl_setfl, flock,
    fsync, ftruncate, statvfs,
};
use rustix::io::{Errno, pwrite, retry_on_intr};

use super::fill::fill_incompressible;
use crate::buf::AlignedBuf;
use crate::error::{Error, ErrorKind, Result};

/// Sizes are a multiple of this, so that the file fits drives of both block sizes.
const UNIT_BYTES: u64 = 4096;

/// Bytes of one write: enough that one at a time keeps a drive busy.
const PIECE_BYTES: usize = 4 << 20;

/// What a new file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileFill {
    /// Zeroes, written.
    #[default]
    Zeroes,
    /// Bytes that neither compress nor repeat, written; see
    /// [`fill_incompressible`].
    Incompressible {
        /// Makes the bytes this seed's own.
        seed: u64,
    },
    /// Nothing: the blocks are allocated and read as zeroes, without being read.
    Unwritten,
}

/// Makes a file of `bytes` at `path`, where nothing may be yet, and puts it on the drive.
///
/// # Errors
///
/// `bytes` is 0 or not a multiple of 4096, something is at the path, too little space, or writing
/// failed. There is no file then, unless there was one before.
pub fn create_file(path: impl AsRef<Path>, bytes: u64, fill: FileFill) -> Result<()> {
    create_file_with(path, bytes, fill, &mut |_| true)
}

/// [`create_file`], which tells `progress` how many bytes are done, first 0, and stops when that
/// returns false.
///
/// # Errors
///
/// As [`create_file`], and [`ErrorKind::Interrupted`] after a stop.
pub fn create_file_with(
    path: impl AsRef<Path>,
    bytes: u64,
    fill: FileFill,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<()> {
    let path = path.as_ref();
    create_at(path, bytes, fill, progress).map_err(|error| error.with_path(path))
}

/// Removes the regular file at `path`, for good: its directory is synced. Links are not followed,
/// and anything else but a regular file is left alone.
///
/// # Errors
///
/// There is no regular file at the path, or it cannot be removed.
pub fn remove_file(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let remove = || {
        let failed = |error| Error::from_io(error, "cannot be removed");
        if !fs::symlink_metadata(path).map_err(failed)?.is_file() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "this is not a regular file, and is not removed",
            ));
        }
        fs::remove_file(path).map_err(failed)?;
        sync_directory(path)
    };
    remove().map_err(|error| error.with_path(path))
}

fn create_at(
    path: &Path,
    bytes: u64,
    fill: FileFill,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<()> {
    if bytes == 0 || !bytes.is_multiple_of(UNIT_BYTES) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("a size of {bytes} bytes is not a multiple of {UNIT_BYTES} above 0"),
        ));
    }
    if fs::symlink_metadata(path).is_ok() {
        return Err(exists());
    }
    check_space(path, bytes)?;

    // Without O_DIRECT: a file system that refuses it would have made the file by then.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = retry_on_intr(|| rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)).map_err(
        |errno| match errno {
            Errno::EXIST => exists(),
            errno => Error::from_io(errno.into(), "cannot be created"),
        },
    )?;
    let mut half_made = HalfMade {
        path: Some(path.to_path_buf()),
    };

    // Nobody shall open it before it is whole. Where locks are unknown, nobody can tell.
    if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return Err(Error::new(
            ErrorKind::InUse,
            "another opener locked the file as it was made",
        ));
    }
    allocate(&file, bytes, fill)?;
    match fill {
        FileFill::Unwritten if !progress(0) => return Err(stopped(0, bytes)),
        FileFill::Unwritten => {}
        FileFill::Zeroes => write(&file, bytes, progress, |_, _| {})?,
        FileFill::Incompressible { seed } => {
            write(&file, bytes, progress, |piece, offset| {
                fill_incompressible(piece, seed, offset);
            })?;
        }
    }
    // Not again after a signal: the kernel tells of lost data once.
    fsync(&file).map_err(|errno| failed(errno, "cannot be synced"))?;
    sync_directory(path)?;
    half_made.path = None;
    Ok(())
}

/// A file that is removed unless it was finished.
struct HalfMade {
    path: Option<PathBuf>,
}

impl Drop for HalfMade {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // There is nobody left to tell: the first error is on its way already.
            let _ = fs::remove_file(path);
        }
    }
}

fn check_space(path: &Path, bytes: u64) -> Result<()> {
    let directory = parent(path);
    let answer = statvfs(directory).map_err(|errno| {
        let message = match errno {
            Errno::NOENT | Errno::NOTDIR => "the directory it should lie in does not exist",
            _ => "the directory it should lie in cannot be looked at",
        };
        Error::from_io(errno.into(), message)
    })?;
    let free = answer.f_bavail.saturating_mul(answer.f_frsize);
    if bytes <= free {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::NoSpace,
        format!(
            "too little space: need {}, have {}",
            human(bytes),
            human(free)
        ),
    ))
}

/// Gives the file its size, and all its blocks in as few pieces as can be had.
fn allocate(file: &OwnedFd, bytes: u64, fill: FileFill) -> Result<()> {
    let allocated = retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, bytes));
    match allocated {
        // Writing gives it the blocks as well; only their order on the drive is left to chance.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) if fill != FileFill::Unwritten => {
            retry_on_intr(|| ftruncate(file, bytes))
        }
        other => other,
    }
    .map_err(|errno| match errno {
        Errno::OPNOTSUPP | Errno::NOSYS => failed(
            errno,
            "its file system cannot allocate blocks without writing them",
        ),
        Errno::FBIG => failed(
            errno,
            format!("its file system takes no file of {}", human(bytes)),
        ),
        _ => failed(errno, format!("cannot allocate {}", human(bytes))),
    })
}

/// Writes the whole file, directly where that can be done. `make` fills a piece for its offset.
fn write(
    file: &OwnedFd,
    bytes: u64,
    progress: &mut dyn FnMut(u64) -> bool,
    make: impl Fn(&mut [u8], u64),
) -> Result<()> {
    let mut is_direct = set_direct(file, true).is_ok();
    let mut buf = AlignedBuf::zeroed(PIECE_BYTES)?;
    let mut offset = 0;
    if !progress(offset) {
        return Err(stopped(offset, bytes));
    }
    while offset < bytes {
        let left = usize::try_from(bytes - offset).unwrap_or(usize::MAX);
        let piece = &mut buf[..left.min(PIECE_BYTES)];
        make(piece, offset);
        let mut done = 0;
        while done < piece.len() {
            match retry_on_intr(|| pwrite(file, &piece[done..], offset + done as u64)) {
                Ok(0) => return Err(Error::new(ErrorKind::Device, "a write wrote nothing")),
                Ok(count) => done += count,
                // Refused at the first transfer, or at the odd rest of one that came back short.
                Err(Errno::INVAL) if is_direct => {
                    set_direct(file, false).map_err(|errno| failed(errno, "cannot be written"))?;
                    is_direct = false;
                }
                Err(errno) => {
                    let place = human(offset + done as u64);
                    return Err(failed(errno, format!("writing failed at {place}")));
                }
            }
        }
        offset += done as u64;
        if !progress(offset) {
            return Err(stopped(offset, bytes));
        }
    }
    Ok(())
}

fn set_direct(file: &OwnedFd, direct: bool) -> rustix::io::Result<()> {
    let mut flags = fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, direct);
    fcntl_setfl(file.as_fd(), flags)
}

/// Makes what was done to the entry of `path` in its directory durable.
fn sync_directory(path: &Path) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::open(parent(path), flags, Mode::empty()))
        .and_then(|directory| fsync(&directory))
        .map_err(|errno| failed(errno, "its directory cannot be synced"))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => Path::new("."),
    }
}

fn exists() -> Error {
    Error::new(
        ErrorKind::AlreadyExists,
        "there is something at this path; it is left as it is",
    )
}

fn stopped(done: u64, bytes: u64) -> Error {
    Error::new(
        ErrorKind::Interrupted,
        format!(
            "stopped at {} of {}; the file was removed",
            human(done),
            human(bytes)
        ),
    )
}

fn failed(errno: Errno, message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::from_io(io::Error::from(errno), message)
}

/// A size in the largest binary unit of which there is one.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let power = (bytes.ilog2() / 10) as usize;
    format!(
        "{:.1} {}",
        bytes as f64 / (1_u64 << (10 * power)) as f64,
        UNITS[power - 1]
    )
}
