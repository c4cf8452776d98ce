//! [`Locks`]: who has a simulated device open, and which guests sit beside its owner.
//!
//! What `flock(2)` and the byte locks of `engine/src/device/guest.rs` are to a real device: one
//! writer or any number of readers; seats that guests take, the epoch that an owner holds.

use std::collections::BTreeMap;

use swath_engine::{Access, Error, ErrorKind, Lock, OpenOptions, Result, Seat};

/// The number of an open device, unique in its world.
pub(super) type Opener = u64;

/// Epochs and seats are below this, as on a real device.
const NUMBERS: u64 = 1 << 61;

/// The locks of one device.
#[derive(Debug, Default)]
pub(super) struct Locks {
    readers: u32,
    owner: Option<Opener>,
    epoch: Option<u64>,
    /// Who holds each seat: a guest, or the owner that has closed it.
    seats: BTreeMap<u64, Opener>,
}

impl Locks {
    /// Lets somebody in as he asks, or says why not.
    pub(super) fn open(&mut self, opener: Opener, options: &OpenOptions) -> Result<()> {
        let in_use = |message: &'static str| Err(Error::new(ErrorKind::InUse, message));
        match (options.lock, options.access) {
            (Lock::None, _) => Ok(()),
            (Lock::Own, _) if self.owner.is_some() => {
                in_use("in use: another opener holds its lock")
            }
            (Lock::Own, Access::Read) => {
                self.readers += 1;
                Ok(())
            }
            (Lock::Own, Access::ReadWrite) if self.readers > 0 => {
                in_use("in use: another opener holds its lock")
            }
            (Lock::Own, Access::ReadWrite) if !self.seats.is_empty() => {
                in_use("in use: its last owner is gone, and a guest of it is still there")
            }
            (Lock::Own, Access::ReadWrite) => {
                self.owner = Some(opener);
                Ok(())
            }
            (Lock::Guest(Seat { epoch, number }), _) => {
                check_number(number)?;
                if self.seats.contains_key(&number) {
                    return in_use("another guest has this seat, or the owner has closed it");
                }
                self.check_owner(epoch)?;
                self.seats.insert(number, opener);
                Ok(())
            }
        }
    }

    /// Somebody goes, with all he holds.
    pub(super) fn close(&mut self, opener: Opener, options: &OpenOptions) {
        if options.lock == Lock::Own && options.access == Access::Read {
            self.readers -= 1;
        }
        if self.owner == Some(opener) {
            self.owner = None;
            self.epoch = None;
        }
        self.seats.retain(|_, holder| *holder != opener);
    }

    /// The owner begins to have guests.
    pub(super) fn admit(&mut self, opener: Opener, epoch: u64) -> Result<()> {
        self.check_is_owner(opener)?;
        check_number(epoch)?;
        self.epoch = Some(epoch);
        Ok(())
    }

    /// The owner closes a seat for good.
    pub(super) fn close_seat(&mut self, opener: Opener, number: u64) -> Result<()> {
        self.check_is_owner(opener)?;
        check_number(number)?;
        match *self.seats.entry(number).or_insert(opener) {
            holder if holder == opener => Ok(()),
            _ => Err(Error::new(
                ErrorKind::InUse,
                "the guest that writes in this place is still there",
            )),
        }
    }

    /// Refuses a guest whose owner is gone.
    pub(super) fn check_owner(&self, epoch: u64) -> Result<()> {
        check_number(epoch)?;
        if self.epoch == Some(epoch) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Closed,
            "the owner that let this guest write beside it is gone",
        ))
    }

    fn check_is_owner(&self, opener: Opener) -> Result<()> {
        if self.owner == Some(opener) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidInput,
            "only who has opened the device for writing can have guests",
        ))
    }
}

fn check_number(number: u64) -> Result<()> {
    if number < NUMBERS {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidInput, "no such seat or epoch"))
}
