//! Thin wrappers of system calls that neither the standard library nor rustix has as we need them.
//!
//! - Wrappers keep the kernel's names and link the manual page; what the words mean is said there.
//! - A result is in the kernel's own form where a queue hands it on as it is: a count of bytes, or
//!   a negated error number, in an `i32`.

pub(crate) mod aio;
pub(crate) mod byte_lock;
pub(crate) mod clock;
pub(crate) mod ioctl;
pub(crate) mod transfer;

use std::io;

/// The error number the last failed call of this thread left, negated as the kernel returns it.
fn last_errno_negated() -> i32 {
    -io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// A result of 64 bits in 32. The kernel moves at most `MAX_RW_COUNT` (2 GiB less a page) in one
/// call, so nothing is ever cut; should that change, an error is better than a wrong length.
pub(crate) fn result_32(result: i64) -> i32 {
    i32::try_from(result).unwrap_or(-libc::EOVERFLOW)
}

/// The result of a call that moves no bytes: 0, or the negated error number.
pub(crate) fn result_of(outcome: rustix::io::Result<()>) -> i32 {
    match outcome {
        Ok(()) => 0,
        Err(errno) => -errno.raw_os_error(),
    }
}
