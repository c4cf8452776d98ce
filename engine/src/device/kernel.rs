//! Real devices: block devices and regular files of this machine.
//!
//! Opening takes these steps; a failure at any of them closes what was opened:
//!
//! ```text
//! descriptor   look, open, check by fstat, lock
//! facts        size and blocks by the descriptor, limits by sysfs
//! align        what direct I/O asks for: reported, then proved by a read of the first block
//! Geometry     put together here; it does not change while the device is open
//! ```

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::align::{self, Alignment, Reported};
use super::block::Limits;
use super::descriptor::{self, Opened};
use super::{Access, Device, DeviceKind, Identity, Lock, OpenOptions, block, file, guest};
use crate::error::{Error, ErrorKind, Result};
use crate::geometry::Geometry;
use crate::platform::Platform;
use crate::queue::{Queue, QueueOptions, open_kernel_queue};

/// The [`Platform`] of real devices.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kernel;

impl Platform for Kernel {
    fn open(&self, path: &Path, options: &OpenOptions) -> Result<Arc<dyn Device>> {
        Ok(Arc::new(KernelDevice::open(path, options)?))
    }

    fn queue(&self, devices: &[Arc<dyn Device>], options: &QueueOptions) -> Result<Box<dyn Queue>> {
        open_kernel_queue(devices, options)
    }
}

/// A block device or regular file that is open and locked. Dropping it lets go of both.
#[derive(Debug)]
pub struct KernelDevice {
    path: PathBuf,
    descriptor: OwnedFd,
    access: Access,
    lock: Lock,
    identity: Identity,
    kind: DeviceKind,
    geometry: Geometry,
    is_direct: bool,
}

impl KernelDevice {
    /// Opens and locks the block device or regular file at `path`, links followed.
    ///
    /// # Errors
    ///
    /// Not found, no permission, in use by another opener, not a block device or regular file,
    /// not capable of direct I/O.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self> {
        Self::open_at(path, options).map_err(|error| error.with_path(path))
    }

    fn open_at(path: &Path, options: &OpenOptions) -> Result<Self> {
        let Opened {
            descriptor,
            stat,
            identity,
            mut is_direct,
        } = descriptor::open(path, options)?;

        let facts = match identity {
            Identity::Block { number } => Facts::of_block(descriptor.as_fd(), number, options)?,
            _ => Facts {
                kind: file::kind(descriptor.as_fd()),
                size_bytes: file::size_bytes(&stat),
                logical_block_bytes: None,
                physical_block_bytes: file::physical_block_bytes(&stat),
                limits: file::limits(&stat),
            },
        };

        let guess = Alignment::of_block(
            facts
                .logical_block_bytes
                .or(facts.limits.logical_block_bytes),
        );
        let mut alignment = guess;
        if is_direct {
            let proved = match align::reported(descriptor.as_fd()) {
                Reported::Alignment(alignment) => Some(alignment),
                Reported::Nothing => Some(guess),
                Reported::NotDirect => None,
            }
            .map_or(Ok(None), |claimed| {
                align::checked(descriptor.as_fd(), claimed, facts.size_bytes)
            })?;
            match proved {
                Some(proved) => alignment = proved,
                None if options.allow_buffered => {
                    descriptor::give_up_direct(&descriptor)?;
                    is_direct = false;
                }
                None => {
                    let answer = rustix::fs::fstatfs(&descriptor).ok();
                    let name = answer.as_ref().and_then(file::file_system);
                    return Err(descriptor::not_direct(name));
                }
            }
        }

        Ok(Self {
            path: path.to_path_buf(),
            descriptor,
            access: options.access,
            lock: options.lock,
            identity,
            kind: facts.kind,
            geometry: facts.geometry(alignment),
            is_direct,
        })
    }

    fn check_is_owner(&self) -> Result<()> {
        if self.lock == Lock::Own && self.access == Access::ReadWrite {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidInput,
            "only who has opened the device for writing, and locked it, can have guests",
        ))
    }

    /// What it was opened for.
    pub fn access(&self) -> Access {
        self.access
    }
}

impl Device for KernelDevice {
    fn path(&self) -> &Path {
        &self.path
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn kind(&self) -> DeviceKind {
        self.kind
    }

    fn is_direct(&self) -> bool {
        self.is_direct
    }

    fn is_gone(&self) -> bool {
        // Who has it open keeps a drive that was pulled, with no bytes on it.
        self.kind == DeviceKind::Block
            && !matches!(block::size_bytes(self.descriptor.as_fd()), Ok(1..))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.descriptor.as_fd())
    }

    fn admit(&self, epoch: u64) -> Result<()> {
        self.check_is_owner()
            .and_then(|()| guest::admit(self.descriptor.as_fd(), epoch))
            .map_err(|error| error.with_path(&self.path))
    }

    fn close_seat(&self, number: u64) -> Result<()> {
        self.check_is_owner()
            .and_then(|()| guest::close_seat(self.descriptor.as_fd(), number))
            .map_err(|error| error.with_path(&self.path))
    }

    fn check_owner(&self) -> Result<()> {
        match self.lock {
            Lock::Guest(seat) => guest::check_owner(self.descriptor.as_fd(), seat.epoch)
                .map_err(|error| error.with_path(&self.path)),
            Lock::None | Lock::Own => Ok(()),
        }
    }
}

impl Drop for KernelDevice {
    fn drop(&mut self) {
        // Locks are given back here and not by closing: a ring that was closed lets go of its
        // registered files some time later, and the locks with them. Queues hold the devices they
        // serve, so nothing is in flight here. Refused only where there is no lock.
        if self.lock != Lock::None {
            guest::leave(self.descriptor.as_fd());
            let _ = rustix::fs::flock(&self.descriptor, rustix::fs::FlockOperation::Unlock);
        }
    }
}

/// What is known of a device before the alignments are.
struct Facts {
    kind: DeviceKind,
    size_bytes: u64,
    /// None for a file: it has the block that its offsets are aligned to.
    logical_block_bytes: Option<u32>,
    physical_block_bytes: u32,
    limits: Limits,
}

impl Facts {
    fn of_block(device: BorrowedFd<'_>, number: u64, options: &OpenOptions) -> Result<Self> {
        let failed =
            |what: &'static str| move |errno| Error::from_io(std::io::Error::from(errno), what);
        if options.access == Access::ReadWrite
            && block::is_read_only(device).map_err(failed("BLKROGET failed"))?
        {
            return Err(Error::new(
                ErrorKind::PermissionDenied,
                "the device is read-only; it can be opened for reading only (blockdev --setrw \
                 makes it writable where the drive itself is)",
            ));
        }
        let (logical, physical) = block::block_bytes(device).map_err(failed("BLKSSZGET failed"))?;
        if !logical.is_power_of_two() || !(512..=block::BLOCK_BYTES_MAX).contains(&logical) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("its blocks of {logical} bytes are not a power of two from 512 to 65536"),
            ));
        }
        Ok(Self {
            kind: DeviceKind::Block,
            size_bytes: block::size_bytes(device).map_err(failed("BLKGETSIZE64 failed"))?,
            logical_block_bytes: Some(logical),
            physical_block_bytes: physical,
            limits: Limits::of(number),
        })
    }

    fn geometry(&self, alignment: Alignment) -> Geometry {
        let Alignment {
            memory_bytes,
            offset_bytes,
        } = alignment;
        let logical = self.logical_block_bytes.unwrap_or(offset_bytes.max(512));
        // What lies behind the last whole unit of either kind cannot be reached.
        let unit = u64::from(logical.max(offset_bytes));
        Geometry {
            capacity_bytes: self.size_bytes - self.size_bytes % unit,
            logical_block_bytes: logical,
            physical_block_bytes: self.physical_block_bytes.max(logical),
            memory_align_bytes: memory_bytes,
            offset_align_bytes: offset_bytes,
            transfer_bytes_max: self.limits.transfer_bytes_max,
            segments_max: self.limits.segments_max,
            rotational: self.limits.rotational,
            numa_node: self.limits.numa_node,
        }
    }
}
