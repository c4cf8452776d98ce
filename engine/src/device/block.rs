//! Facts of block devices: sizes by ioctl(2), the driver's limits by sysfs, and who uses one.
//!
//! - Sizes and read-only come from the open descriptor, never from a path.
//! - sysfs is found through the device number. Everything from it is a hint: a kernel, a container
//!   or a driver may lack any of its files, and then the hint is `None`.

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{ioctl_blkpbszget, ioctl_blksszget, major, minor};
use rustix::io::Result;
use rustix::ioctl::{Getter, ioctl, opcode};

/// `BLKGETSIZE64` of linux/fs.h. Its type is `size_t` there, but what it writes is 64 bits.
const BLKGETSIZE64: rustix::ioctl::Opcode = opcode::read::<usize>(0x12, 114);
/// `BLKROGET` of linux/fs.h.
const BLKROGET: rustix::ioctl::Opcode = opcode::none(0x12, 94);

/// The largest block size that Linux knows.
pub(super) const BLOCK_BYTES_MAX: u32 = 65536;

/// Size of the device in bytes.
pub(super) fn size_bytes(device: BorrowedFd<'_>) -> Result<u64> {
    // SAFETY: BLKGETSIZE64 writes one u64 to the place it is given.
    unsafe { ioctl(device, Getter::<BLKGETSIZE64, u64>::new()) }
}

/// Whether the device refuses writes.
pub(super) fn is_read_only(device: BorrowedFd<'_>) -> Result<bool> {
    // SAFETY: BLKROGET writes one int to the place it is given.
    unsafe { ioctl(device, Getter::<BLKROGET, i32>::new()) }.map(|flag| flag != 0)
}

/// The logical block and the physical block, in this order, both powers of two.
pub(super) fn block_bytes(device: BorrowedFd<'_>) -> Result<(u32, u32)> {
    let logical = ioctl_blksszget(device)?;
    // Some USB bridges tell nonsense here; no harm is done by believing the logical block instead.
    let physical = ioctl_blkpbszget(device)
        .ok()
        .filter(|bytes| bytes.is_power_of_two() && *bytes <= BLOCK_BYTES_MAX)
        .unwrap_or(logical);
    Ok((logical, physical.max(logical)))
}

/// What the driver and the bus say about a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) logical_block_bytes: Option<u32>,
    pub(super) transfer_bytes_max: Option<u64>,
    pub(super) segments_max: Option<u32>,
    pub(super) rotational: Option<bool>,
    pub(super) numa_node: Option<u32>,
}

impl Limits {
    /// The limits of the block device `number`; nothing is known of a number without a device,
    /// as tmpfs, btrfs and network file systems have one.
    pub(super) fn of(number: u64) -> Self {
        let device = sysfs(number);
        // A partition has no queue of its own: its parent folder is the disk. The link is
        // resolved by the kernel before `..` is taken.
        let Some(queue) = [device.join("queue"), device.join("../queue")]
            .into_iter()
            .find(|folder| folder.is_dir())
        else {
            return Self::default();
        };
        Self {
            logical_block_bytes: number_in(&queue.join("logical_block_size")),
            transfer_bytes_max: number_in::<u64>(&queue.join("max_sectors_kb"))
                .map(|kib| kib.saturating_mul(1024)),
            segments_max: number_in(&queue.join("max_segments")),
            rotational: number_in::<u8>(&queue.join("rotational")).map(|flag| flag != 0),
            numa_node: numa_node(&device),
        }
    }
}

/// The node of the nearest device up the bus that has one: a namespace hangs on a controller, the
/// controller on a PCI function.
pub(crate) fn numa_node(device: &Path) -> Option<u32> {
    let device = fs::canonicalize(device).ok()?;
    device.ancestors().find_map(|folder| {
        // -1 stands for "no node".
        number_in::<i32>(&folder.join("numa_node")).and_then(|node| u32::try_from(node).ok())
    })
}

/// Who keeps the device for himself, as far as the kernel tells: where it is mounted, and which
/// devices (md, device mapper) are built on it.
pub(super) fn users(number: u64) -> Option<String> {
    let text = format!("{}:{}", major(number), minor(number));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut users = users_in(&sysfs(number), &text, &mounts);
    // One is enough to tell what to stop; a container host may have a hundred mounts of one disk.
    users.truncate(3);
    (!users.is_empty()).then(|| users.join(", "))
}

/// The same of the device `number` (`259:0`), whose folder in sysfs is `device`, by what
/// `/proc/self/mountinfo` says.
pub(crate) fn users_in(device: &Path, number: &str, mounts: &str) -> Vec<String> {
    let mut users = Vec::new();
    // Third field: device number; fifth: mount point. See proc_pid_mountinfo(5).
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(2);
        if fields.next() == Some(number)
            && let Some(place) = fields.nth(1)
        {
            users.push(format!("mounted at {place}"));
        }
    }
    for holder in fs::read_dir(device.join("holders"))
        .into_iter()
        .flatten()
        .flatten()
    {
        users.push(format!("part of {}", holder.file_name().display()));
    }
    users
}

fn sysfs(number: u64) -> PathBuf {
    PathBuf::from(format!(
        "/sys/dev/block/{}:{}",
        major(number),
        minor(number)
    ))
}

fn number_in<N: FromStr>(path: &Path) -> Option<N> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipped::skipped;
    use rustix::fs::makedev;

    #[test]
    fn a_number_without_a_device_has_no_limits() {
        assert_eq!(Limits::of(makedev(0, 77)), Limits::default());
        assert_eq!(Limits::of(u64::MAX), Limits::default());
        assert_eq!(users(makedev(0, u32::MAX >> 12)), None);
    }

    #[test]
    fn every_disk_and_partition_here_has_limits() {
        let mut count = 0;
        for entry in fs::read_dir("/sys/dev/block")
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name();
            let Some((major, minor)) = name.to_str().and_then(|name| name.split_once(':')) else {
                continue;
            };
            let limits = Limits::of(makedev(major.parse().unwrap(), minor.parse().unwrap()));
            let block = limits
                .logical_block_bytes
                .expect("every queue has a block size");
            assert!(block.is_power_of_two(), "{name:?}: {limits:?}");
            assert!(
                limits.transfer_bytes_max.is_some_and(|bytes| bytes >= 4096),
                "{limits:?}"
            );
            assert!(limits.rotational.is_some(), "{name:?}: {limits:?}");
            count += 1;
        }
        if count == 0 {
            skipped("no /sys/dev/block here");
        }
    }
}
