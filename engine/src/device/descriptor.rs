//! From a path to a descriptor: looked at, opened, checked, locked.
//!
//! - Only regular files and block devices get through. A look before the open keeps hands off
//!   things that act when they are opened (a tape that rewinds, a watchdog); the type that counts
//!   is the descriptor's, because the path may change its meaning between the two.
//! - Writers of a block device also claim it with `O_EXCL`, which mounts, md and device mapper do
//!   too; flock(2) then keeps other users of these crates out, of files as well.
//! - Guests of an owner take no such lock: see [`super::guest`]. An owner looks for guests that were
//!   left behind.
//! - All refusals are waited out for a moment. A ring that was closed, or a process that was
//!   killed, lets go of its files only when its last operation has been torn down, and udev locks
//!   a new disk while it looks at it.
//! - A failure at any step closes what was opened.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{
    FileType, FlockOperation, Mode, OFlags, Stat, fcntl_getfl, fcntl_setfl, flock, fstat, major,
    minor, stat,
};
use rustix::io::{Errno, retry_on_intr};

use super::{Access, Identity, Lock, OpenOptions, block, file, guest};
use crate::error::{Error, ErrorKind, Result};

/// How long somebody else may take to let go. Long enough for the tear-down of a ring with a few
/// thousand operations, short enough not to be felt by a person who gets the refusal.
const PATIENCE: Duration = Duration::from_millis(200);
const PATIENCE_STEP: Duration = Duration::from_millis(5);

/// A descriptor that passed every check, and what fstat(2) says of it under the lock.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) descriptor: OwnedFd,
    pub(super) stat: Stat,
    pub(super) identity: Identity,
    /// Whether `O_DIRECT` was accepted; the first transfer may still show that it was a lie.
    pub(super) is_direct: bool,
}

/// Opens and locks what is at `path`.
pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Opened> {
    let seen = retry_on_intr(|| stat(path)).map_err(refusal)?;
    let exclusive = matches!(identity_of(&seen)?, Identity::Block { .. })
        && options.lock == Lock::Own
        && options.access == Access::ReadWrite;

    let (descriptor, is_direct) = open_path(path, options, exclusive, &seen)?;

    let stat = fstat_of(&descriptor)?;
    if identity_of(&stat)? != identity_of(&seen)? {
        // Not tried again: the claim that was made at open may be the wrong one for this device.
        return Err(Error::new(
            ErrorKind::InUse,
            "the path was changed while it was being opened; try again when nobody changes it",
        ));
    }
    // O_NONBLOCK was for a FIFO put in place of the file. On io_uring it would mean that an
    // operation which cannot go on at once fails with EAGAIN.
    fcntl_getfl(&descriptor)
        .and_then(|flags| fcntl_setfl(&descriptor, flags - OFlags::NONBLOCK))
        .map_err(|errno| Error::from_io(errno.into(), "cannot set the descriptor's flags"))?;

    match options.lock {
        Lock::None => {}
        Lock::Own => {
            lock(&descriptor, options.access, &stat)?;
            if options.access == Access::ReadWrite {
                guest::check_none(descriptor.as_fd())?;
            }
        }
        Lock::Guest(seat) => guest::sit(descriptor.as_fd(), seat)?,
    }
    // Size and links are taken under the lock: its last holder may have been making the file.
    let stat = fstat_of(&descriptor)?;
    if stat.st_nlink == 0 {
        return Err(Error::new(
            ErrorKind::NotFound,
            "the file was removed while it was opened",
        ));
    }
    Ok(Opened {
        identity: identity_of(&stat)?,
        descriptor,
        stat,
        is_direct,
    })
}

/// Goes on without direct I/O on a descriptor whose first transfer was refused.
pub(super) fn give_up_direct(descriptor: &OwnedFd) -> Result<()> {
    fcntl_getfl(descriptor)
        .and_then(|flags| fcntl_setfl(descriptor, flags - OFlags::DIRECT))
        .map_err(|errno| Error::from_io(errno.into(), "cannot go on with buffered I/O"))
}

/// The refusal of what cannot do direct I/O, with the way out.
pub(super) fn not_direct(file_system: Option<&str>) -> Error {
    let who = file_system.map_or_else(
        || "the device or its file system does".to_owned(),
        |name| format!("the file system ({name}) does"),
    );
    Error::new(
        ErrorKind::NotDirect,
        format!(
            "{who} not do direct I/O; use a block device or a file on ext4 or XFS, or allow buffered I/O"
        ),
    )
}

/// The open(2) itself: with `O_DIRECT`, or without where that is refused and allowed.
fn open_path(
    path: &Path,
    options: &OpenOptions,
    exclusive: bool,
    seen: &Stat,
) -> Result<(OwnedFd, bool)> {
    let mut flags = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    flags |= match options.access {
        Access::Read => OFlags::RDONLY,
        Access::ReadWrite => OFlags::RDWR,
    };
    flags.set(OFlags::EXCL, exclusive);

    let attempt = |flags| {
        // Only the owner and root may leave the access time alone; a tenth of the speed of small
        // reads is no reason to fail.
        patiently(
            || match rustix::fs::open(path, flags | OFlags::NOATIME, Mode::empty()) {
                Err(Errno::PERM) => rustix::fs::open(path, flags, Mode::empty()),
                other => other,
            },
        )
    };
    match attempt(flags | OFlags::DIRECT) {
        Ok(descriptor) => Ok((descriptor, true)),
        Err(Errno::INVAL | Errno::OPNOTSUPP) if options.allow_buffered => attempt(flags)
            .map(|descriptor| (descriptor, false))
            .map_err(refusal),
        Err(errno @ (Errno::INVAL | Errno::OPNOTSUPP)) => {
            let name = rustix::fs::statfs(path)
                .ok()
                .and_then(|answer| file::file_system(&answer));
            Err(not_direct(name).with_source(std::io::Error::from(errno)))
        }
        Err(Errno::BUSY) => Err(busy(seen)),
        Err(errno) => Err(refusal(errno)),
    }
}

/// Locks against other users of these crates, and whoever else takes part in flock(2).
fn lock(descriptor: &OwnedFd, access: Access, stat: &Stat) -> Result<()> {
    let operation = match access {
        Access::Read => FlockOperation::NonBlockingLockShared,
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    match patiently(|| flock(descriptor, operation)) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(Error::new(
            ErrorKind::InUse,
            lock_holder(stat).unwrap_or_else(|| {
                "in use by another process: another opener holds its lock; stop it, or wait for \
                 it to end"
                    .to_owned()
            }),
        )),
        Err(errno) => Err(Error::from_io(errno.into(), "cannot be locked")),
    }
}

/// Repeats what fails because of somebody else, until it works or patience ends.
pub(super) fn patiently<T>(attempt: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(Errno::BUSY | Errno::WOULDBLOCK) if start.elapsed() < PATIENCE => {
                sleep(PATIENCE_STEP);
            }
            Err(Errno::INTR) => {}
            end => return end,
        }
    }
}

/// Words for who holds a lock, by proc_locks(5); unknown across containers.
fn lock_holder(stat: &Stat) -> Option<String> {
    let place = format!(
        "{:02x}:{:02x}:{}",
        major(stat.st_dev),
        minor(stat.st_dev),
        stat.st_ino
    );
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let process: u32 = locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&place.as_str()))
            .then(|| fields.get(4)?.parse().ok())?
    })?;
    if process == std::process::id() {
        return Some("in use by this process itself: it has the device open already".to_owned());
    }
    let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some(format!(
        "in use by another process: {} (process {process}) holds its lock; stop it, or wait for \
         it to end",
        name.trim_end()
    ))
}

/// The identity of what a member can be; everything else is refused by name.
fn identity_of(stat: &Stat) -> Result<Identity> {
    let what = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            return Ok(Identity::File {
                file_system: stat.st_dev,
                inode: stat.st_ino,
            });
        }
        FileType::BlockDevice => {
            return Ok(Identity::Block {
                number: stat.st_rdev,
            });
        }
        FileType::CharacterDevice => {
            "a character device; of an NVMe drive use the block device, such as /dev/nvme0n1"
        }
        FileType::Directory => "a directory; name a block device or a regular file",
        FileType::Fifo => "a FIFO; name a block device or a regular file",
        FileType::Socket => "a socket; name a block device or a regular file",
        _ => "neither a block device nor a regular file",
    };
    Err(Error::new(
        ErrorKind::InvalidInput,
        format!("this is {what}"),
    ))
}

fn fstat_of(descriptor: &OwnedFd) -> Result<Stat> {
    fstat(descriptor.as_fd()).map_err(|errno| Error::from_io(errno.into(), "fstat failed"))
}

/// The refusal of a block device that somebody has claimed.
fn busy(seen: &Stat) -> Error {
    let message = match block::users(seen.st_rdev) {
        Some(users) => format!("in use: {users}; unmount or stop that first"),
        None => lock_holder(seen).unwrap_or_else(|| {
            "in use: it, or a partition of it, is mounted or used by md, device mapper, swap or \
             another program; unmount or stop that first"
                .to_owned()
        }),
    };
    Error::new(ErrorKind::InUse, message).with_source(std::io::Error::from(Errno::BUSY))
}

/// Words for an error of stat(2) or open(2).
fn refusal(errno: Errno) -> Error {
    let (kind, message) = match errno {
        Errno::NOENT | Errno::NOTDIR => (ErrorKind::NotFound, "there is nothing at this path"),
        Errno::ACCESS => (
            ErrorKind::PermissionDenied,
            "permission denied; run as root, or give your user access (block devices belong to a \
             group, often 'disk')",
        ),
        Errno::PERM => (
            ErrorKind::PermissionDenied,
            "not permitted; this process may be confined (a container's list of devices), or the \
             file immutable or append-only (lsattr tells)",
        ),
        Errno::ROFS => (
            ErrorKind::PermissionDenied,
            "the device or its file system is read-only; it can be opened for reading only",
        ),
        Errno::TXTBSY => (
            ErrorKind::InUse,
            "in use as swap space, or as a program that runs",
        ),
        Errno::WOULDBLOCK => (
            ErrorKind::InUse,
            "in use: another program holds a lease on it",
        ),
        Errno::NXIO | Errno::NODEV => (
            ErrorKind::Gone,
            "there is no device behind this node; is the drive still there?",
        ),
        Errno::NOMEDIUM => (ErrorKind::Gone, "there is no medium in the drive"),
        Errno::MFILE | Errno::NFILE => (
            ErrorKind::Exhausted,
            "too many open files; raise the limit (ulimit -n)",
        ),
        Errno::LOOP => (
            ErrorKind::InvalidInput,
            "symbolic links lead in a circle here",
        ),
        Errno::NAMETOOLONG => (ErrorKind::InvalidInput, "the path is too long"),
        Errno::INVAL => (
            ErrorKind::InvalidInput,
            "this is not a path that can be opened",
        ),
        _ => return Error::from_io(errno.into(), "cannot be opened"),
    };
    Error::new(kind, message).with_source(std::io::Error::from(errno))
}
