//! The control plane of a device: what it is, how it was opened, who it is.
//!
//! A device is opened once by path, checked by descriptor after the open, locked, and kept. Bytes
//! move through a [`Queue`](crate::queue::Queue), never through a device.

mod align;
pub(crate) mod block;
mod create;
mod descriptor;
mod extents;
mod file;
mod fill;
mod guest;
mod kernel;
#[cfg(test)]
mod tests;

pub use create::{FileFill, create_file, create_file_with, remove_file};
pub use extents::{WrittenState, written_state};
pub use fill::fill_incompressible;
pub use guest::Seat;
pub use kernel::{Kernel, KernelDevice};

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::geometry::Geometry;

/// A device that is open and locked.
pub trait Device: Debug + Send + Sync {
    /// The path it was opened by, for messages. It is never opened again by it.
    fn path(&self) -> &Path;

    /// Its sizes, alignments and limits, as they were when it was opened.
    fn geometry(&self) -> &Geometry;

    /// Who it is, whatever the path: two opens of one device have equal identities.
    fn identity(&self) -> Identity;

    /// What it is.
    fn kind(&self) -> DeviceKind;

    /// Whether transfers go past the page cache. False only when buffered I/O was asked for.
    fn is_direct(&self) -> bool;

    /// Whether it has gone away since it was opened, as far as can be told. Asked only after an
    /// operation failed.
    fn is_gone(&self) -> bool {
        false
    }

    /// The descriptor that the kernel's queues use; none for a simulated device.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// For its owner: from now on those to whom it gave a [`Seat`] of this epoch can open the device
    /// beside it. No owner of the device, earlier or later, may use the same epoch.
    ///
    /// # Errors
    ///
    /// This platform has no guests.
    fn admit(&self, epoch: u64) -> Result<()> {
        let _ = epoch;
        Err(no_guests())
    }

    /// For its owner: nobody writes from this seat any more, and nobody ever will.
    ///
    /// # Errors
    ///
    /// In use: the guest is still there.
    fn close_seat(&self, number: u64) -> Result<()> {
        let _ = number;
        Err(no_guests())
    }

    /// For a guest: whether its owner is still there.
    ///
    /// # Errors
    ///
    /// The owner is gone.
    fn check_owner(&self) -> Result<()> {
        Err(no_guests())
    }
}

fn no_guests() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "this device cannot be written to by several processes",
    )
}

/// Who a device is. Equal for two paths, links or hard links to one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Identity {
    /// A regular file: its file system's device number and its inode.
    File {
        /// Device number of the file system.
        file_system: u64,
        /// Inode number.
        inode: u64,
    },
    /// A block device: its own device number.
    Block {
        /// Device number, as stat(2) has it in `st_rdev`.
        number: u64,
    },
    /// A simulated device.
    Simulated {
        /// A number that its maker keeps unique.
        number: u64,
    },
}

/// What a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// A regular file on a disk's file system.
    File,
    /// A regular file on a file system in memory (tmpfs, ramfs).
    MemoryFile,
    /// A block device.
    Block,
    /// A device of a test.
    Simulated,
}

/// How to open a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// What the opener will do.
    pub access: Access,
    /// How to keep others away.
    pub lock: Lock,
    /// Whether buffered I/O is accepted where direct I/O is not to be had. Default: no.
    pub allow_buffered: bool,
}

impl OpenOptions {
    /// For reading and writing, locked against every other opener.
    pub const fn read_write() -> Self {
        Self {
            access: Access::ReadWrite,
            lock: Lock::Own,
            allow_buffered: false,
        }
    }

    /// For reading and writing beside an owner, who gave the seat.
    pub const fn guest(seat: Seat) -> Self {
        Self {
            access: Access::ReadWrite,
            lock: Lock::Guest(seat),
            allow_buffered: false,
        }
    }

    /// For reading, locked against writers.
    pub const fn read_only() -> Self {
        Self {
            access: Access::Read,
            lock: Lock::Own,
            allow_buffered: false,
        }
    }

    /// For a look at what is there, whoever has it open.
    pub const fn look() -> Self {
        Self {
            access: Access::Read,
            lock: Lock::None,
            allow_buffered: true,
        }
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::read_write()
    }
}

/// How an opener keeps others away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lock {
    /// Not at all.
    None,
    /// Writers against everybody, readers against writers.
    Own,
    /// By the lock of an owner, who has the device open for writing and gave this seat. Others who
    /// write know where: that is for owner and guests to agree on.
    Guest(Seat),
}

/// What an opener will do with a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Read only.
    Read,
    /// Read and write.
    ReadWrite,
}
