//! [`Member`]: one device of a volume, its place and its part of the data.

use std::path::Path;
use std::sync::Arc;

use swath_engine::Device;
use uuid::Uuid;

use crate::superblock::{MemberMap, Superblock};

/// One device of an open volume.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its place in the volume, from 0.
    pub index: u32,
    /// Who it is.
    pub uuid: Uuid,
    /// The device, open and locked.
    pub device: Arc<dyn Device>,
    /// Where its data begins, in bytes.
    pub data_offset: u64,
    /// How many bytes of data it has.
    pub data_bytes: u64,
    /// How many bytes between its data and its tail no volume uses: the rest of a chunk, and what
    /// it has more than the smallest member.
    pub unused_bytes: u64,
}

impl Member {
    pub(crate) fn new(superblock: &Superblock, device: Arc<dyn Device>, map: &MemberMap) -> Self {
        Self {
            index: superblock.member_index,
            uuid: superblock.member_uuid,
            device,
            data_offset: superblock.data_offset,
            data_bytes: superblock.data_bytes,
            unused_bytes: map.unused_bytes(superblock.data_bytes),
        }
    }

    /// The path its device was opened by.
    pub fn path(&self) -> &Path {
        self.device.path()
    }
}
