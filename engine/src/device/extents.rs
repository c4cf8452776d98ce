//! Whether the blocks of a file have been written.
//!
//! A read of blocks that were only allocated touches no drive: it measures software. Reports have
//! to know which it was. The kernel's list of extents tells (`FS_IOC_FIEMAP`, kernel document
//! filesystems/fiemap.rst); tmpfs has no such list, but its holes can be sought (lseek(2)).

use std::os::fd::BorrowedFd;

use rustix::fs::{SeekFrom, seek};
use rustix::io::{Errno, Result};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use super::{Device, DeviceKind};

/// Extents asked for at a time; 56 bytes each, on the stack.
const EXTENTS_PER_CALL: u32 = 64;

/// `FS_IOC_FIEMAP` and its flags, of linux/fs.h and linux/fiemap.h. The number of the call counts
/// the header alone.
const FS_IOC_FIEMAP: Opcode = opcode::read_write::<Header>(b'f', 11);
const FIEMAP_FLAG_SYNC: u32 = 0x1;
const FIEMAP_EXTENT_LAST: u32 = 0x1;
const FIEMAP_EXTENT_UNWRITTEN: u32 = 0x800;

/// How much of a range has been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrittenState {
    /// All of it.
    Written,
    /// Not all of it.
    Partly {
        /// How many bytes were not.
        unwritten_bytes: u64,
    },
    /// None of it: reads return zeroes without asking the drive.
    Unwritten,
    /// It cannot be told: the device is no file, or its file system does not say.
    Unknown,
}

/// How much of the `length` bytes from `offset` on has been written. Blocks allocated but not
/// written, holes, and what lies behind the end of the file count as not written.
///
/// What other programs wrote and the kernel still holds in memory is put on the drive first.
pub fn written_state(device: &dyn Device, offset: u64, length: u64) -> WrittenState {
    let Some(descriptor) = device.descriptor() else {
        return WrittenState::Unknown;
    };
    let Some(end) = offset.checked_add(length) else {
        return WrittenState::Unknown;
    };
    let written = match device.kind() {
        DeviceKind::File => written_by_extents(descriptor, offset, end),
        DeviceKind::MemoryFile => written_by_seeking(descriptor, offset, end),
        DeviceKind::Block | DeviceKind::Simulated => return WrittenState::Unknown,
    };
    match written {
        Err(_) => WrittenState::Unknown,
        Ok(written) if written == length => WrittenState::Written,
        Ok(0) => WrittenState::Unwritten,
        Ok(written) => WrittenState::Partly {
            unwritten_bytes: length - written,
        },
    }
}

/// `struct fiemap` without its array.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Header {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Fiemap {
    header: Header,
    extents: [Extent; EXTENTS_PER_CALL as usize],
}

const _: () = assert!(size_of::<Header>() == 32);
const _: () = assert!(size_of::<Extent>() == 56);
const _: () = assert!(size_of::<Fiemap>() == 32 + 56 * EXTENTS_PER_CALL as usize);

/// Bytes of `start..end` in extents that were written.
fn written_by_extents(file: BorrowedFd<'_>, start: u64, end: u64) -> Result<u64> {
    let mut written = 0;
    let mut position = start;
    let mut flags = FIEMAP_FLAG_SYNC;
    while position < end {
        let mut map = Fiemap {
            header: Header {
                start: position,
                length: end - position,
                flags,
                extent_count: EXTENTS_PER_CALL,
                ..Header::default()
            },
            extents: [Extent::default(); EXTENTS_PER_CALL as usize],
        };
        // SAFETY: FS_IOC_FIEMAP reads the header and writes the header and at most `extent_count`
        // extents behind it, all of which `map` has.
        unsafe { ioctl(file, Updater::<FS_IOC_FIEMAP, Fiemap>::new(&mut map)) }?;
        flags = 0;

        let count = map.header.mapped_extents.min(EXTENTS_PER_CALL) as usize;
        let before = position;
        for extent in &map.extents[..count] {
            let extent_end = extent.logical.saturating_add(extent.length).min(end);
            let from = extent.logical.max(position);
            if extent.flags & FIEMAP_EXTENT_UNWRITTEN == 0 {
                written += extent_end.saturating_sub(from);
            }
            position = position.max(extent_end);
        }
        // No more extents, or an answer that leads nowhere: the rest is a hole.
        let last = map.extents[..count].last();
        if position == before || last.is_none_or(|last| last.flags & FIEMAP_EXTENT_LAST != 0) {
            break;
        }
    }
    Ok(written)
}

/// Bytes of `start..end` outside holes. Moves the descriptor's file position, which nobody uses:
/// every transfer names its offset.
fn written_by_seeking(file: BorrowedFd<'_>, start: u64, end: u64) -> Result<u64> {
    let mut written = 0;
    let mut position = start;
    while position < end {
        // ENXIO: no more data, or the position is at the end of the file.
        let data = match seek(file, SeekFrom::Data(position)) {
            Err(Errno::NXIO) => break,
            other => other?,
        };
        let hole = match seek(file, SeekFrom::Hole(data)) {
            Err(Errno::NXIO) => break,
            other => other?,
        };
        written += hole.min(end).saturating_sub(data);
        position = hole.max(data);
    }
    Ok(written)
}
