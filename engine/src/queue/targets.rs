//! The devices of a queue, by their place in its list: descriptors at hand without a virtual call.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use crate::device::{Device, DeviceKind};
use crate::error::{Error, ErrorKind, Result};

/// The devices a queue serves. Keeps them open.
#[derive(Debug)]
pub(crate) struct Targets {
    /// Parallel to `devices`.
    descriptors: Box<[(RawFd, DeviceKind)]>,
    devices: Box<[Arc<dyn Device>]>,
}

impl Targets {
    /// The `devices`, each of which must have a descriptor.
    pub(crate) fn new(devices: &[Arc<dyn Device>]) -> Result<Self> {
        let descriptors = devices
            .iter()
            .map(|device| match device.descriptor() {
                Some(descriptor) => Ok((descriptor.as_raw_fd(), device.kind())),
                None => Err(Error::new(
                    ErrorKind::Unsupported,
                    "a simulated device needs its own queue",
                )
                .with_path(device.path())),
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            descriptors,
            devices: devices.into(),
        })
    }

    /// The devices themselves.
    pub(crate) fn devices(&self) -> &[Arc<dyn Device>] {
        &self.devices
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.descriptors.len()
    }

    /// Panics unless `device` is a place in the list.
    #[track_caller]
    pub(crate) fn check(&self, device: u32) {
        let place = usize::try_from(device).unwrap_or(usize::MAX);
        assert!(
            place < self.len(),
            "an operation names device {device}, but the queue has {}",
            self.len()
        );
    }

    /// The device in place `device`.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[track_caller]
    #[inline]
    pub(crate) fn at(&self, device: u32) -> (BorrowedFd<'_>, DeviceKind) {
        self.check(device);
        let (descriptor, kind) = self.descriptors[usize::try_from(device).unwrap_or(usize::MAX)];
        // SAFETY: `descriptor` was borrowed from a device that `self.devices` keeps alive and that
        // nobody can change meanwhile, so it is open for as long as `self` is borrowed.
        (unsafe { BorrowedFd::borrow_raw(descriptor) }, kind)
    }

    /// The place of the device with this descriptor.
    pub(crate) fn place_of(&self, descriptor: RawFd) -> Option<u32> {
        let place = self
            .descriptors
            .iter()
            .position(|&(found, _)| found == descriptor)?;
        u32::try_from(place).ok()
    }
}
