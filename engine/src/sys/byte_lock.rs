//! Locks on single bytes, held by an open file description: see fcntl(2), "Open file description
//! locks". The kernel lets go of them when the last descriptor and the last operation in flight of
//! that description are gone, whatever ended its process.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::{Errno, Result};

/// Takes the lock on a byte for this description alone; taking it again is no change. `AGAIN` when
/// another description has it.
pub(crate) fn lock(file: BorrowedFd<'_>, byte: i64) -> Result<()> {
    call(file, libc::F_OFD_SETLK, &mut flock(libc::F_WRLCK, byte, 1))
}

/// Lets go of this description's locks on `length` bytes from `start` on; a length of 0 stands for
/// all that follow.
pub(crate) fn unlock(file: BorrowedFd<'_>, start: i64, length: i64) -> Result<()> {
    call(
        file,
        libc::F_OFD_SETLK,
        &mut flock(libc::F_UNLCK, start, length),
    )
}

/// Whether another description has a lock on any of `length` bytes from `start` on; a length of 0
/// stands for all that follow.
pub(crate) fn is_locked_by_other(file: BorrowedFd<'_>, start: i64, length: i64) -> Result<bool> {
    let mut asked = flock(libc::F_WRLCK, start, length);
    call(file, libc::F_OFD_GETLK, &mut asked)?;
    Ok(libc::c_int::from(asked.l_type) != libc::F_UNLCK)
}

fn flock(kind: libc::c_int, start: i64, length: i64) -> libc::flock {
    libc::flock {
        l_type: kind.try_into().expect("kinds of locks are small numbers"),
        l_whence: libc::SEEK_SET
            .try_into()
            .expect("ways to count are small numbers"),
        l_start: start,
        l_len: length,
        // As these locks ask for.
        l_pid: 0,
    }
}

fn call(file: BorrowedFd<'_>, command: libc::c_int, argument: &mut libc::flock) -> Result<()> {
    // SAFETY: the descriptor is open, and these commands read and write one `flock`, which is
    // borrowed for as long as the call takes.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut *argument) };
    if result < 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    Ok(())
}
