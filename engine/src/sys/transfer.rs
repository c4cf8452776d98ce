//! Blocking transfers at an offset, over raw memory: pread(2) and preadv2(2) with their siblings.
//!
//! The standard library has these for slices. A queue holds addresses: a slice would claim that
//! nobody else looks at the memory, or that it is initialised, and neither is ours to claim.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys::{last_errno_negated, result_32};

/// The kernel's offset; one beyond 2^63 cannot be meant and is what the kernel calls invalid too.
fn off_t(offset: u64) -> Result<libc::off_t, i32> {
    libc::off_t::try_from(offset).map_err(|_| -libc::EINVAL)
}

/// What a libc call of this family returned, in the kernel's form.
fn kernel_result(returned: isize) -> i32 {
    if returned < 0 {
        last_errno_negated()
    } else {
        result_32(returned as i64)
    }
}

/// See pread(2).
///
/// # Safety
///
/// `length` bytes at `pointer` are writable, and nobody else touches them during the call.
pub(crate) unsafe fn pread(
    fd: BorrowedFd<'_>,
    pointer: *mut u8,
    length: usize,
    offset: u64,
) -> i32 {
    let offset = match off_t(offset) {
        Ok(offset) => offset,
        Err(result) => return result,
    };
    // SAFETY: the caller vouches for the memory; the descriptor is open while it is borrowed.
    kernel_result(unsafe { libc::pread(fd.as_raw_fd(), pointer.cast(), length, offset) })
}

/// See pwrite(2).
///
/// # Safety
///
/// `length` bytes at `pointer` are readable, and nobody changes them during the call.
pub(crate) unsafe fn pwrite(
    fd: BorrowedFd<'_>,
    pointer: *const u8,
    length: usize,
    offset: u64,
) -> i32 {
    let offset = match off_t(offset) {
        Ok(offset) => offset,
        Err(result) => return result,
    };
    // SAFETY: the caller vouches for the memory; the descriptor is open while it is borrowed.
    kernel_result(unsafe { libc::pwrite(fd.as_raw_fd(), pointer.cast(), length, offset) })
}

/// See preadv2(2).
///
/// # Safety
///
/// `iovecs` are `count` valid descriptions of memory that is writable, and nobody else touches the
/// list or the memory during the call.
pub(crate) unsafe fn preadv2(
    fd: BorrowedFd<'_>,
    iovecs: *const libc::iovec,
    count: u32,
    offset: u64,
    flags: libc::c_int,
) -> i32 {
    let (offset, count) = match (off_t(offset), libc::c_int::try_from(count)) {
        (Ok(offset), Ok(count)) => (offset, count),
        _ => return -libc::EINVAL,
    };
    // SAFETY: the caller vouches for list and memory; the descriptor is open while it is borrowed.
    kernel_result(unsafe { libc::preadv2(fd.as_raw_fd(), iovecs, count, offset, flags) })
}

/// See pwritev2(2).
///
/// # Safety
///
/// `iovecs` are `count` valid descriptions of memory that is readable, and nobody changes the list
/// or the memory during the call.
pub(crate) unsafe fn pwritev2(
    fd: BorrowedFd<'_>,
    iovecs: *const libc::iovec,
    count: u32,
    offset: u64,
    flags: libc::c_int,
) -> i32 {
    let (offset, count) = match (off_t(offset), libc::c_int::try_from(count)) {
        (Ok(offset), Ok(count)) => (offset, count),
        _ => return -libc::EINVAL,
    };
    // SAFETY: the caller vouches for list and memory; the descriptor is open while it is borrowed.
    kernel_result(unsafe { libc::pwritev2(fd.as_raw_fd(), iovecs, count, offset, flags) })
}
