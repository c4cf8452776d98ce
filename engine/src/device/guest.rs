//! Guests: other processes that write to a device while its owner has it open.
//!
//! The owner of a device is whoever opened it for writing: it holds flock(2) alone. For each
//! process that may write beside it, it thinks of a *seat*: a number it never uses twice, told
//! together with its *epoch*, a number that no other owner of the device ever has. The guest opens
//! the device with both. What keeps them in order are two kinds of locks on single bytes, far behind
//! the end of any device. A description's go all at once, when it is closed for the last time:
//!
//! ```text
//! the byte of an epoch   held by the owner, from before it invites anybody until it is gone
//! the byte of a seat     held by the guest who sits there; or, for good, by the owner who closed it
//! ```
//!
//! - *An owner opens:* it takes flock, and then nobody may hold any of these bytes.
//! - *A guest opens:* (1) it takes the byte of its seat, then (2) somebody must hold the byte of its
//!   epoch. If not, it closes the device and has written nothing.
//! - *An owner closes a seat:* it takes the byte. While a guest has it, that is refused.
//!
//! Why no guest ever writes where somebody else may:
//!
//! - *Not after its seat was closed.* At (2) its owner was there, and keeps every byte that it took.
//!   The guest had the byte of the seat, so the owner had not, and cannot have it before the guest
//!   is gone.
//! - *Not beside another owner.* At (2) the byte of its epoch was held, so nobody can have found all
//!   bytes free between the time its owner began to invite and (2). Whoever becomes the owner later
//!   looks for bytes that are held after (2), so after (1), finds this guest and is refused until it
//!   is gone. Owners before were of other epochs.
//! - *Not when its process is dead.* An operation in flight keeps the description open, and so the
//!   seat taken, until it has ended.
//!
//! All this holds among processes that take part, on one host. A guest does not claim a block device
//! with `O_EXCL` (only one can), so while its owner is dead and it is not, mount(8) could.

use std::os::fd::BorrowedFd;

use rustix::io::{Errno, retry_on_intr};

use super::descriptor::patiently;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::byte_lock;

/// A guest's place: handed to it by the owner of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seat {
    /// The epoch of the owner, below 2^61.
    pub epoch: u64,
    /// The number of the seat, below 2^61.
    pub number: u64,
}

/// Where seats begin, and where epochs do.
const SEATS: i64 = 1 << 62;
const EPOCHS: i64 = SEATS + NUMBERS;
const NUMBERS: i64 = 1 << 61;

/// Refuses to be the owner of a device that still has guests of an earlier one.
pub(super) fn check_none(device: BorrowedFd<'_>) -> Result<()> {
    let guests = patiently(|| match byte_lock::is_locked_by_other(device, SEATS, 0) {
        Ok(true) => Err(Errno::WOULDBLOCK),
        // Where there are no such locks there are no guests.
        Ok(false) | Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(()),
        Err(errno) => Err(errno),
    });
    match guests {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(Error::new(
            ErrorKind::InUse,
            "in use: its last owner is gone, and a process that wrote beside it is still there; \
             stop it, or wait for it to end",
        )),
        Err(errno) => Err(failed(errno)),
    }
}

/// Takes a guest's seat, if its owner is there.
pub(super) fn sit(device: BorrowedFd<'_>, seat: Seat) -> Result<()> {
    let byte = seat_byte(seat.number)?;
    match retry_on_intr(|| byte_lock::lock(device, byte)) {
        Ok(()) => check_owner(device, seat.epoch),
        Err(Errno::WOULDBLOCK | Errno::ACCESS) => Err(Error::new(
            ErrorKind::InUse,
            "another process writes in this place already, or the device's owner has closed it",
        )),
        Err(errno) => Err(failed(errno)),
    }
}

/// Lets go of every byte, for an owner or a guest that has nothing in flight any more.
pub(super) fn leave(device: BorrowedFd<'_>) {
    // A ring that was closed may keep the description for a while. Should this fail, the bytes are
    // free when that ends.
    let _ = byte_lock::unlock(device, SEATS, 0);
}

/// Refuses a guest whose owner is gone.
pub(super) fn check_owner(device: BorrowedFd<'_>, epoch: u64) -> Result<()> {
    let byte = byte_of(EPOCHS, epoch)?;
    match retry_on_intr(|| byte_lock::is_locked_by_other(device, byte, 1)) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::new(
            ErrorKind::Closed,
            "the owner that let this process write beside it is gone, or has closed the device",
        )),
        Err(errno) => Err(failed(errno)),
    }
}

/// The owner takes the byte of its epoch.
pub(super) fn admit(device: BorrowedFd<'_>, epoch: u64) -> Result<()> {
    let byte = byte_of(EPOCHS, epoch)?;
    retry_on_intr(|| byte_lock::lock(device, byte)).map_err(failed)
}

/// The owner closes a seat for good. A guest that is just leaving is waited for.
pub(super) fn close_seat(device: BorrowedFd<'_>, number: u64) -> Result<()> {
    let byte = seat_byte(number)?;
    match patiently(|| byte_lock::lock(device, byte)) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK | Errno::ACCESS) => Err(Error::new(
            ErrorKind::InUse,
            "the process that writes in this place is still there; stop it, or wait for it to end",
        )),
        Err(errno) => Err(failed(errno)),
    }
}

fn seat_byte(number: u64) -> Result<i64> {
    byte_of(SEATS, number)
}

fn byte_of(first: i64, number: u64) -> Result<i64> {
    i64::try_from(number)
        .ok()
        .filter(|number| *number < NUMBERS)
        .map(|number| first + number)
        .ok_or_else(|| Error::new(ErrorKind::InvalidInput, "no such seat or epoch"))
}

fn failed(errno: Errno) -> Error {
    Error::from_io(errno.into(), "cannot be locked by fcntl")
}
