//! Guests of a volume: other processes that write to it while its owner has it open.
//!
//! The owner is whoever opened the volume for writing. It invites; the guest opens the members with
//! that invitation and may then read and write what lies in the volume, and nothing else: it heals
//! nothing, begins no epoch, and replaces neither superblock nor root record. Which bytes are
//! whose is for owner and guests to agree on.
//!
//! The locks of [`swath_engine::Seat`] see to it that a guest only writes while no other owner has
//! the volume, and not from a seat that its owner has closed. They ask for an epoch that no other
//! owner ever has: that of the root record, which every open for writing raises before it returns.

use std::sync::atomic::Ordering;

use swath_engine::Seat;
use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result};
use crate::root::Record;
use crate::superblock::Superblock;
use crate::volume::{Shared, Volume};

/// An invitation for one process to write to a volume beside its owner. Plain numbers, to be handed
/// over in any form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Guest {
    /// Which volume.
    pub volume_uuid: Uuid,
    /// The epoch of its owner.
    pub epoch: u64,
    /// Which place: for one guest at a time. Never given twice in an epoch.
    pub seat: u64,
}

impl Guest {
    pub(super) fn engine_seat(&self) -> Seat {
        Seat {
            epoch: self.epoch,
            number: self.seat,
        }
    }

    /// Checks that what was found on the members is what it is invited to.
    pub(super) fn check(&self, superblock: &Superblock, newest: Option<&Record>) -> Result<()> {
        if superblock.volume_uuid != self.volume_uuid {
            return Err(Error::new(
                ErrorKind::Foreign,
                format!(
                    "these are the members of volume {}, and the invitation is to {}",
                    superblock.volume_uuid, self.volume_uuid
                ),
            ));
        }
        match newest.map(|newest| newest.root.epoch) {
            Some(epoch) if epoch == self.epoch => Ok(()),
            epoch => Err(Error::new(
                ErrorKind::Stale,
                format!(
                    "the invitation is of epoch {}, and the volume is at {}",
                    self.epoch,
                    epoch.unwrap_or(0)
                ),
            )),
        }
    }
}

impl Volume {
    /// Invites another process to write to the volume beside this one, which is its owner.
    ///
    /// # Errors
    ///
    /// No root record was committed yet; not opened for writing, or as a guest; poisoned; members
    /// on a platform that has no guests.
    pub fn invite(&self) -> Result<Guest> {
        let shared = &*self.0;
        shared.check_writable()?;
        shared.check_is_owner()?;
        let epoch = {
            let newest = shared.root.lock();
            let newest = newest.as_ref().ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidInput,
                    "a volume without a root record has no guests: commit one first",
                )
            })?;
            newest.root.epoch
        };
        for device in &shared.devices {
            device.admit(epoch)?;
        }
        Ok(Guest {
            volume_uuid: self.uuid(),
            epoch,
            seat: shared.seats.fetch_add(1, Ordering::Relaxed) + 1,
        })
    }

    /// Takes an invitation back. When this returns without an error nobody writes by it any more,
    /// and nobody ever will.
    ///
    /// # Errors
    ///
    /// The guest is still there: it has the volume open, or writes in flight. An invitation of
    /// another volume or epoch. Opened as a guest.
    pub fn close_seat(&self, guest: &Guest) -> Result<()> {
        let shared = &*self.0;
        shared.check_is_owner()?;
        let epoch = shared.root.lock().as_ref().map(|newest| newest.root.epoch);
        if guest.volume_uuid != self.uuid() || Some(guest.epoch) != epoch {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "this is not an invitation to the volume as it is open here",
            ));
        }
        for device in &shared.devices {
            device.close_seat(guest.seat)?;
        }
        Ok(())
    }

    /// Whether it was opened as a guest.
    pub fn is_guest(&self) -> bool {
        self.0.guest.is_some()
    }

    /// For a guest: whether the owner that invited it still has the volume open. True of the owner
    /// itself.
    ///
    /// # Errors
    ///
    /// Closed: the owner is gone.
    pub fn check_owner(&self) -> Result<()> {
        if self.is_guest() {
            for device in &self.0.devices {
                device.check_owner()?;
            }
        }
        Ok(())
    }
}

impl Shared {
    /// Refuses a guest what only the owner may do.
    pub(super) fn check_is_owner(&self) -> Result<()> {
        if self.guest.is_none() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InUse,
            "the volume was opened as a guest: only its owner may do this",
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use swath_engine::{FileFill, create_file};

    use super::*;
    use crate::superblock::DEVICE_BYTES_MIN;
    use crate::volume::{CreateOptions, OpenOptions};

    fn members(directory: &tempfile::TempDir) -> Vec<PathBuf> {
        let members = ["a", "b", "c"].map(|name| directory.path().join(name));
        for member in &members {
            create_file(member, DEVICE_BYTES_MIN + (1 << 20), FileFill::Zeroes).unwrap();
        }
        members.to_vec()
    }

    fn as_guest(members: &[PathBuf], guest: Guest) -> Result<Volume> {
        let options = OpenOptions {
            guest: Some(guest),
            ..OpenOptions::default()
        };
        Volume::open(members, &options)
    }

    /// A guest that read one member before an update and another after it was told that the volume
    /// is stale.
    #[test]
    fn a_guest_comes_in_while_the_owner_updates_the_superblocks() {
        let directory = tempfile::tempdir().unwrap();
        let members = members(&directory);
        let owner = Volume::create(&members, &CreateOptions::default()).unwrap();
        owner.commit_root(b"one").unwrap();
        std::thread::scope(|scope| {
            let renames = scope.spawn(|| {
                for number in 0..100 {
                    owner.rename(&format!("name {number}")).unwrap();
                }
            });
            while !renames.is_finished() {
                as_guest(&members, owner.invite().unwrap()).unwrap();
            }
        });
    }

    #[test]
    fn a_guest_writes_data_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let members = members(&directory);
        let owner = Volume::create(&members, &CreateOptions::default()).unwrap();
        let error = owner.invite().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        owner.commit_root(b"one").unwrap();
        let invitation = owner.invite().unwrap();
        let guest = as_guest(&members, invitation).unwrap();
        assert!(guest.is_guest() && !owner.is_guest());
        assert_eq!(guest.root(), owner.root());

        guest.write_at(b"by a guest", 12_345).unwrap();
        guest.flush().unwrap();
        let mut text = [0; 10];
        owner.read_at(&mut text, 12_345).unwrap();
        assert_eq!(&text, b"by a guest");

        for refused in [
            guest.commit_root(b"two").map(drop),
            guest.rename("mine"),
            guest.invite().map(drop),
            guest.close_seat(&invitation),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InUse);
        }
        owner.commit_root(b"two").unwrap();
        guest.check_owner().unwrap();
        let late = as_guest(&members, owner.invite().unwrap()).unwrap();
        assert_eq!(late.root().unwrap().payload, b"two");
    }

    #[test]
    fn an_invitation_is_for_one_and_ends_with_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let members = members(&directory);
        let owner = Volume::create(&members, &CreateOptions::default()).unwrap();
        owner.commit_root(b"one").unwrap();
        let invitation = owner.invite().unwrap();
        let guest = as_guest(&members, invitation).unwrap();
        let kind = |outcome: Result<Volume>| outcome.unwrap_err().kind();
        assert_eq!(kind(as_guest(&members, invitation)), ErrorKind::InUse);
        assert_eq!(
            owner.close_seat(&invitation).unwrap_err().kind(),
            ErrorKind::InUse
        );
        drop(guest);
        owner.close_seat(&invitation).unwrap();
        assert_eq!(kind(as_guest(&members, invitation)), ErrorKind::InUse);

        let second = owner.invite().unwrap();
        assert_ne!(second.seat, invitation.seat);
        let elsewhere = Guest {
            volume_uuid: Uuid::from_u128(1),
            ..second
        };
        assert_eq!(kind(as_guest(&members, elsewhere)), ErrorKind::Foreign);
        assert!(owner.close_seat(&elsewhere).is_err());
        let guest = as_guest(&members, second).unwrap();
        drop(owner);
        assert_eq!(guest.check_owner().unwrap_err().kind(), ErrorKind::Closed);
        // While it is there, nobody else can own the volume; reading it harms nobody.
        let open = |read_only| {
            let options = OpenOptions {
                read_only,
                ..OpenOptions::default()
            };
            Volume::open(&members, &options)
        };
        assert_eq!(kind(open(false)), ErrorKind::InUse);
        open(true).unwrap();
        drop(guest);
        let owner = open(false).unwrap();
        // Of the first owner's epoch, whether this one invites or not.
        assert_eq!(kind(as_guest(&members, second)), ErrorKind::Closed);
        owner.invite().unwrap();
        assert_eq!(kind(as_guest(&members, second)), ErrorKind::Closed);
    }

    #[test]
    fn a_guest_does_not_read_only_and_names_each_member_once() {
        let directory = tempfile::tempdir().unwrap();
        let members = members(&directory);
        let owner = Volume::create(&members, &CreateOptions::default()).unwrap();
        owner.commit_root(b"one").unwrap();
        let options = OpenOptions {
            read_only: true,
            guest: Some(owner.invite().unwrap()),
            ..OpenOptions::default()
        };
        let error = Volume::open(&members, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let twice = [&members[..], &members[..1]].concat();
        let error = as_guest(&twice, owner.invite().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Duplicate);
        let error = as_guest(&members[1..], owner.invite().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Missing);
    }
}
