//! [`SimDevice`]: a simulated device that is open and locked.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use swath_engine::{Device, DeviceKind, Geometry, Identity, Lock, OpenOptions, Result};

use super::locks::{Locks, Opener};
use super::platform::World;

/// A simulated device that is open; lets go of its locks when dropped.
#[derive(Debug)]
pub struct SimDevice {
    pub(super) world: Arc<World>,
    pub(super) path: PathBuf,
    pub(super) number: u64,
    pub(super) opener: Opener,
    pub(super) geometry: Geometry,
    pub(super) options: OpenOptions,
}

impl SimDevice {
    fn locks<T>(&self, work: impl FnOnce(&mut Locks) -> T) -> T {
        work(&mut self.world.state.lock().media(self.number).locks)
    }
}

impl Device for SimDevice {
    fn path(&self) -> &Path {
        &self.path
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> Identity {
        Identity::Simulated {
            number: self.number,
        }
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Simulated
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn is_gone(&self) -> bool {
        let mut state = self.world.state.lock();
        state.is_off || state.media(self.number).is_gone
    }

    fn admit(&self, epoch: u64) -> Result<()> {
        self.locks(|locks| locks.admit(self.opener, epoch))
            .map_err(|error| error.with_path(&self.path))
    }

    fn close_seat(&self, number: u64) -> Result<()> {
        self.locks(|locks| locks.close_seat(self.opener, number))
            .map_err(|error| error.with_path(&self.path))
    }

    fn check_owner(&self) -> Result<()> {
        let Lock::Guest(seat) = self.options.lock else {
            return Ok(());
        };
        self.locks(|locks| locks.check_owner(seat.epoch))
            .map_err(|error| error.with_path(&self.path))
    }
}

impl Drop for SimDevice {
    fn drop(&mut self) {
        self.locks(|locks| locks.close(self.opener, &self.options));
    }
}
