//! [`wipe`]: takes a device out of its volume by erasing what the volume left on it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use swath_engine::{Kernel, OpenOptions, Platform};
use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result};
use crate::metadata;
use crate::superblock::{
    COPY_COUNT, CopyFault, CopyResult, DecodeError, MemberMap, SUPERBLOCK_BYTES, Superblock,
};

/// What was erased.
#[derive(Debug, Clone, Serialize)]
pub struct WipeReport {
    /// The device.
    pub path: PathBuf,
    /// The volume it was a member of; none when no copy was good.
    pub volume_uuid: Option<Uuid>,
    /// That volume's name.
    pub volume_name: Option<String>,
    /// How many superblock copies were erased, good and damaged ones. 0: there was none, and the
    /// places were zeroed because that was forced.
    pub copies_erased: u32,
}

/// Erases the superblocks and the record rings of a member. The data stays, and is of no use: the
/// volume cannot be opened any more.
///
/// # Errors
///
/// Not a member (unless `force`d: then damaged superblocks, and those of an unknown version, are
/// erased too); in use; a device that fails.
pub fn wipe(path: impl AsRef<Path>, force: bool) -> Result<WipeReport> {
    wipe_on(&Kernel, path.as_ref(), force)
}

/// As [`wipe`], on a device of `platform`.
///
/// # Errors
///
/// As [`wipe`].
pub fn wipe_on(platform: &dyn Platform, path: &Path, force: bool) -> Result<WipeReport> {
    let device = platform.open(path, &OpenOptions::read_write())?;
    let not_a_member =
        || Error::new(ErrorKind::NotAMember, "carries no superblock of a volume").with_path(path);
    let now = MemberMap::new(device.geometry().capacity_bytes)
        .map_err(|cause| not_a_member().with_source(cause))?;
    let mut lane = metadata::lane(platform, &[Arc::clone(&device)])?;
    let copies = metadata::read_copies(&mut lane, 0);
    let found = copies
        .iter()
        .flatten()
        .max_by_key(|superblock| superblock.generation)
        .cloned();
    if found.is_none() && !force {
        return Err(if copies.iter().any(is_superblock) {
            Error::new(
                ErrorKind::Damaged,
                "its superblocks are damaged or of an unknown version; force it to erase them all \
                 the same",
            )
            .with_path(path)
        } else {
            not_a_member()
        });
    }
    let map = found
        .as_ref()
        .and_then(|found| MemberMap::new(found.device_bytes).ok());
    let map = map
        .filter(|map| map.device_bytes() <= now.device_bytes())
        .unwrap_or(now);
    let copies_erased = copies.iter().filter(|copy| is_superblock(copy)).count();
    for ring in [map.head_ring(), map.tail_ring()] {
        metadata::write_zeroes(&mut lane, 0, ring.start, ring.end - ring.start)?;
    }
    for copy in 0..COPY_COUNT {
        metadata::write_zeroes(&mut lane, 0, map.copy_offset(copy), SUPERBLOCK_BYTES as u64)?;
    }
    metadata::flush(&mut lane)?;
    Ok(WipeReport {
        path: path.to_path_buf(),
        volume_uuid: found.as_ref().map(|found: &Superblock| found.volume_uuid),
        volume_name: found.map(|found| found.name),
        copies_erased: u32::try_from(copies_erased).expect("there are four copies"),
    })
}

/// Whether a copy's place holds a superblock, be it damaged or unreadable.
fn is_superblock(copy: &CopyResult) -> bool {
    !matches!(
        copy,
        Err(CopyFault::Decode(
            DecodeError::Blank | DecodeError::NotSwath
        ))
    )
}
