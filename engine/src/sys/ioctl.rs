//! Requests to block devices that are no reads or writes (`linux/fs.h`).

use std::os::fd::BorrowedFd;

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

const BLKDISCARD: Opcode = opcode::none(0x12, 119);
const BLKZEROOUT: Opcode = opcode::none(0x12, 127);

/// Tells the device that a range's contents are no longer needed.
/// `EOPNOTSUPP` where it has no discard.
pub(crate) fn blkdiscard(fd: BorrowedFd<'_>, offset: u64, length: u64) -> rustix::io::Result<()> {
    // SAFETY: BLKDISCARD reads two u64 (first byte, length) from the address it is given, which is
    // what a `Setter` of `[u64; 2]` passes. It writes no memory of this process. On a descriptor
    // that is no block device the kernel answers ENOTTY.
    unsafe { ioctl(fd, Setter::<BLKDISCARD, [u64; 2]>::new([offset, length])) }
}

/// Makes a range read as zeroes, by the device's own command where it has one, else by writing.
pub(crate) fn blkzeroout(fd: BorrowedFd<'_>, offset: u64, length: u64) -> rustix::io::Result<()> {
    // SAFETY: as BLKDISCARD: two u64 are read from the address, nothing is written.
    unsafe { ioctl(fd, Setter::<BLKZEROOUT, [u64; 2]>::new([offset, length])) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_numbers_are_those_of_linux_fs_h() {
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert_eq!(BLKDISCARD, 0x1277);
            assert_eq!(BLKZEROOUT, 0x127f);
        }
    }
}
