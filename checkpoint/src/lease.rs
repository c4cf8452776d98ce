//! [`Lease`]: a part of a session's space that another process writes; [`LeaseHolder`] is that
//! process's end of it, and a [`Receipt`] what it hands back.
//!
//! Leases and receipts are plain data (JSON, say); how they travel is the processes' own affair.
//!
//! ```text
//! owner                                      holder
//! session.lease(bytes)      -- Lease -->     lease.open(members, options)
//!                                            holder.writer(), put, finish
//! session.accept(receipt)   <-- Receipt --   holder.finish()
//! session.commit()
//! ```
//!
//! - A lease is for one process at a time. It ends when its receipt is accepted, when it is revoked,
//!   and with its owner; a holder can only write while none of that has happened, and none of it can
//!   happen to a lease that is held. So space that came back is never written to by an old holder:
//!   [`swath_volume::Guest`] says how.
//! - A holder makes its part durable before it gives a receipt, and the commit makes all parts
//!   durable before it refers to any.
//! - Nothing of a lease is on the volume. One that is never returned is free space to whoever opens
//!   the store next.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use swath_engine::Platform;
use swath_volume::{Guest, OpenOptions, Uuid, Volume};

use crate::error::{Error, ErrorKind, Result};
use crate::extent::Extent;
use crate::index::TensorEntry;
use crate::ledger::Ledger;
use crate::names::CheckpointName;
use crate::options::StoreOptions;
use crate::place::StoreHeader;
use crate::session::Session;
use crate::store::{lane_of, usable_bytes};
use crate::writer::Writer;

/// A part of a session's space, for another process to write to. Made by [`Session::lease`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Which lease of its owner it is.
    pub lease_id: u64,
    /// The store.
    pub store_uuid: Uuid,
    /// The volume that the store is on.
    pub volume_uuid: Uuid,
    /// The epoch of the owner: it ends with the owner.
    pub root_epoch: u64,
    /// What the checkpoint will be called.
    pub name: CheckpointName,
    /// The space.
    pub extents: Vec<Extent>,
    /// Whether borrowed memory is read once more after it was written, as the session was told.
    pub verify_source: bool,
    /// Whether the owner has members that cannot do direct I/O.
    pub allow_buffered: bool,
}

/// What the holder of a lease has written. Made by [`LeaseHolder::finish`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Which lease it is for.
    pub lease_id: u64,
    /// The volume.
    pub volume_uuid: Uuid,
    /// The epoch of the owner.
    pub root_epoch: u64,
    /// The tensors, where they are, and what they must hash to.
    pub tensors: Vec<TensorEntry>,
}

/// A lease that this process holds: its way to put tensors into a session of another process.
/// Dropped without [`finish`](Self::finish), it gives nothing back; its owner can revoke it then.
pub struct LeaseHolder {
    lease: Lease,
    ledger: Arc<Ledger>,
}

impl Lease {
    /// How many bytes it has. Of a lease that was damaged on its way this is any number.
    pub fn space_bytes(&self) -> u64 {
        let lengths = self.extents.iter().map(|extent| extent.length);
        lengths.fold(0, u64::saturating_add)
    }

    /// Takes the lease, in the process that will write. `members` are those of the owner's volume,
    /// in any order, or the directory that holds them.
    ///
    /// # Errors
    ///
    /// The owner is gone, or has ended the lease; another process holds it; members that are not
    /// those of the volume, or cannot be opened.
    pub fn open<P: AsRef<Path>>(
        &self,
        members: &[P],
        options: &StoreOptions,
    ) -> Result<LeaseHolder> {
        self.open_by(options, |how| Volume::open(members, how))
    }

    /// As [`open`](Self::open), on devices of `platform`; every path is a device's.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_on<P: AsRef<Path>>(
        &self,
        platform: Arc<dyn Platform>,
        members: &[P],
        options: &StoreOptions,
    ) -> Result<LeaseHolder> {
        self.open_by(options, |how| Volume::open_on(platform, members, how))
    }

    fn open_by(
        &self,
        options: &StoreOptions,
        open: impl FnOnce(&OpenOptions) -> swath_volume::Result<Volume>,
    ) -> Result<LeaseHolder> {
        let how = OpenOptions {
            guest: Some(self.guest()),
            allow_buffered: self.allow_buffered,
            ..OpenOptions::default()
        };
        let volume = open(&how)?;
        self.check(&volume)
            .map_err(|error| error.with_checkpoint(&self.name))?;
        let ledger = Ledger::new(
            self.name.clone(),
            volume,
            options.clone(),
            self.verify_source,
            None,
            self.extents.clone(),
        );
        Ok(LeaseHolder {
            lease: self.clone(),
            ledger: Arc::new(ledger),
        })
    }

    fn guest(&self) -> Guest {
        Guest {
            volume_uuid: self.volume_uuid,
            epoch: self.root_epoch,
            seat: self.lease_id,
        }
    }

    /// It may have been through anything since it was made.
    fn check(&self, volume: &Volume) -> Result<()> {
        self.name.check()?;
        let root = volume.root();
        let root = root.ok_or_else(|| Error::invalid("there is no store on the volume"))?;
        if StoreHeader::decode(&root.payload)?.store_uuid != self.store_uuid {
            return Err(Error::invalid("the lease is of another store"));
        }
        let mut sorted = self.extents.clone();
        sorted.sort_unstable();
        if let Some(problem) = Extent::list_problem(&sorted) {
            return Err(Error::invalid(format!("the lease is damaged: {problem}")));
        }
        if sorted
            .last()
            .is_some_and(|last| last.end() > usable_bytes(volume))
        {
            return Err(Error::invalid(
                "the lease is damaged: it ends beyond the volume",
            ));
        }
        Ok(())
    }
}

impl LeaseHolder {
    /// The lease.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// A writer, for the thread that calls this. Any number of threads may have one.
    ///
    /// # Errors
    ///
    /// A lane or buffers that are not to be had.
    pub fn writer(&self) -> Result<Writer> {
        Writer::open(Arc::clone(&self.ledger))
    }

    /// Makes what was written durable, closes the volume, and gives the receipt for the owner.
    ///
    /// # Errors
    ///
    /// A writer that is not finished, or has failed; a member that fails; an owner that is gone.
    /// There is no receipt then, now or later: the owner can only revoke the lease.
    pub fn finish(self) -> Result<Receipt> {
        let Self { lease, ledger } = self;
        let tensors = ledger.close()?.tensors;
        make_durable(&ledger)
            .and_then(|()| Ok(ledger.volume.check_owner()?))
            .map_err(|error| ledger.name_error(error))?;
        Ok(Receipt {
            lease_id: lease.lease_id,
            volume_uuid: lease.volume_uuid,
            root_epoch: lease.root_epoch,
            tensors,
        })
    }
}

fn make_durable(ledger: &Ledger) -> Result<()> {
    let mut lane = lane_of(&ledger.volume, &ledger.options)?;
    let mut completions = Vec::with_capacity(1);
    lane.flush(0);
    lane.wait(1, &mut completions)?;
    for completion in completions {
        completion.result?;
    }
    Ok(())
}

impl fmt::Debug for LeaseHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseHolder")
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Sets `bytes` of the checkpoint's space apart, for another process to write to. What it does
    /// not use comes back with the receipt.
    ///
    /// Tensors of 1 MiB and more take whole 4 KiB, smaller ones their bytes alone. Add 1 MiB for
    /// each writer that the process will have.
    ///
    /// # Errors
    ///
    /// No space; the session is committed; members on a platform that has no guests.
    pub fn lease(&self, bytes: u64) -> Result<Lease> {
        let volume = self.store.volume();
        let (guest, extents) = self
            .ledger
            .lend(bytes)
            .map_err(|error| self.ledger.name_error(error))?;
        Ok(Lease {
            lease_id: guest.seat,
            store_uuid: self.store.uuid(),
            volume_uuid: guest.volume_uuid,
            root_epoch: guest.epoch,
            name: self.name().clone(),
            extents,
            verify_source: self.options.verify_source,
            allow_buffered: volume
                .members()
                .iter()
                .any(|member| !member.device.is_direct()),
        })
    }

    /// Takes a lease back with what its holder wrote, which becomes part of the checkpoint.
    ///
    /// What the receipt says of places, names and sizes is checked. Its checksums are not: that
    /// would be to read all that was written. A holder that lies about them damages its own tensors,
    /// which verifying and reading find out.
    ///
    /// # Errors
    ///
    /// A lease that is none of the session's, or was returned or revoked before; a process that still
    /// holds it; tensors outside of the lease, over each other, or with a name that the checkpoint
    /// has already. Nothing of the receipt is taken then, and the lease is still out.
    pub fn accept(&self, receipt: Receipt) -> Result<()> {
        let is_ours = Some(receipt.root_epoch) == self.root_epoch()
            && receipt.volume_uuid == self.store.volume().uuid();
        let outcome = if is_ours {
            self.ledger.accept(receipt.lease_id, receipt.tensors)
        } else {
            Err(Error::new(
                ErrorKind::NotFound,
                "the receipt is of another volume, or of an earlier owner of this one",
            ))
        };
        outcome.map_err(|error| self.ledger.name_error(error))
    }

    /// Takes a lease back with nothing, from a process that will not return it: one that has failed.
    ///
    /// # Errors
    ///
    /// A lease that is none of the session's, or was returned or revoked before. A process that still
    /// holds the lease, or has writes in flight: end it, and try again.
    pub fn revoke(&self, lease_id: u64) -> Result<()> {
        self.ledger
            .revoke(lease_id)
            .map_err(|error| self.ledger.name_error(error))
    }

    fn root_epoch(&self) -> Option<u64> {
        self.store.volume().root().map(|root| root.epoch)
    }
}

#[cfg(test)]
mod tests;
