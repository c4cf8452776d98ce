//! Facts of regular files: what file system they lie on, and the drive under it.

use std::os::fd::BorrowedFd;

use rustix::fs::{FsWord, Stat, StatFs, fstatfs};

use super::DeviceKind;
use super::block::{BLOCK_BYTES_MAX, Limits};

/// `TMPFS_MAGIC` and `RAMFS_MAGIC` of linux/magic.h.
const TMPFS: FsWord = 0x0102_1994;
const RAMFS: FsWord = 0x8584_58f6;

/// Whether the file's bytes are kept on a drive or in memory.
pub(super) fn kind(file: BorrowedFd<'_>) -> DeviceKind {
    match fstatfs(file) {
        Ok(answer) if matches!(answer.f_type, TMPFS | RAMFS) => DeviceKind::MemoryFile,
        _ => DeviceKind::File,
    }
}

/// The name of a file system, for messages. See statfs(2).
pub(super) fn file_system(answer: &StatFs) -> Option<&'static str> {
    Some(match answer.f_type {
        TMPFS => "tmpfs",
        RAMFS => "ramfs",
        0xef53 => "ext4",
        0x5846_5342 => "XFS",
        0x9123_683e => "btrfs",
        0xf2f5_2010 => "F2FS",
        0x2fc1_2fc1 => "ZFS",
        0x794c_7630 => "overlayfs",
        0x6573_5546 => "FUSE",
        0x6969 => "NFS",
        0x7371_7368 => "squashfs",
        0x9fa0 => "proc",
        0x6265_6572 => "sysfs",
        _ => return None,
    })
}

/// Size in bytes, as it was at that moment.
pub(super) fn size_bytes(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// The unit the file system writes without reading first, as far as it tells: a power of two.
pub(super) fn physical_block_bytes(stat: &Stat) -> u32 {
    let bytes = u32::try_from(stat.st_blksize).unwrap_or(BLOCK_BYTES_MAX);
    let bytes = bytes.clamp(512, BLOCK_BYTES_MAX);
    // Rounded down: ZFS and network file systems tell anything.
    1 << bytes.ilog2()
}

/// The limits of the drive that the file system lies on, where it lies on one.
pub(super) fn limits(stat: &Stat) -> Limits {
    Limits::of(stat.st_dev)
}
