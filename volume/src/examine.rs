//! [`examine`]: what a device carries of a volume, and [`carries`]: what it carries at all, whoever
//! has it open.

use std::path::{Path, PathBuf};

use serde::Serialize;
use swath_engine::{DeviceKind, Kernel, OpenOptions, Platform};

use crate::error::Result;
use crate::metadata;
use crate::signature::Signature;
use crate::superblock::{COPY_COUNT, CopyFault, CopyResult, DecodeError, MemberMap, Superblock};

/// What a device carries of a volume.
#[derive(Debug, Clone, Serialize)]
pub struct Examination {
    /// The device.
    pub path: PathBuf,
    /// Its size in bytes.
    pub device_bytes: u64,
    /// What it is: `file`, `memory file`, `block device` or `simulated`.
    pub device_kind: &'static str,
    /// Its four superblock copies.
    pub copies: [CopyState; COPY_COUNT],
    /// The newest good superblock; none when there is no good copy.
    pub superblock: Option<Superblock>,
}

/// What one superblock copy is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum CopyState {
    /// Intact.
    Good {
        /// The update it is of.
        generation: u64,
    },
    /// Zeroes.
    Blank,
    /// Something else than a superblock.
    Other,
    /// A superblock that cannot be used.
    Damaged {
        /// What is wrong with it.
        reason: String,
    },
    /// The device could not read it.
    Unreadable {
        /// What the device said.
        reason: String,
    },
}

impl CopyState {
    fn of(copy: &CopyResult) -> Self {
        match copy {
            Ok(superblock) => Self::Good {
                generation: superblock.generation,
            },
            Err(CopyFault::Decode(DecodeError::Blank)) => Self::Blank,
            Err(CopyFault::Decode(DecodeError::NotSwath)) => Self::Other,
            Err(CopyFault::Decode(error)) => Self::Damaged {
                reason: error.to_string(),
            },
            Err(CopyFault::Unreadable(error)) => Self::Unreadable {
                reason: error.to_string(),
            },
        }
    }
}

/// Looks at a device. Nothing is locked and nothing is written: it works while the volume is in
/// use, and then shows one moment of it.
///
/// # Errors
///
/// Nothing at the path, no permission, neither a file nor a block device.
pub fn examine(path: impl AsRef<Path>) -> Result<Examination> {
    examine_on(&Kernel, path.as_ref())
}

/// As [`examine`], on a device of `platform`.
///
/// # Errors
///
/// As [`examine`].
pub fn examine_on(platform: &dyn Platform, path: &Path) -> Result<Examination> {
    let device = platform.open(path, &OpenOptions::look())?;
    let device_kind = match device.kind() {
        DeviceKind::File => "file",
        DeviceKind::MemoryFile => "memory file",
        DeviceKind::Block => "block device",
        DeviceKind::Simulated => "simulated",
    };
    let device_bytes = device.geometry().capacity_bytes;
    let mut lane = metadata::lane(platform, &[device])?;
    let copies = metadata::read_copies(&mut lane, 0);
    let states = std::array::from_fn(|copy| CopyState::of(&copies[copy]));
    let superblock = copies
        .into_iter()
        .flatten()
        .max_by_key(|superblock| superblock.generation);
    Ok(Examination {
        path: path.to_path_buf(),
        device_bytes,
        device_kind,
        copies: states,
        superblock,
    })
}

/// What a device carries at either end, for which [`Volume::create`](crate::Volume::create) would
/// refuse it; none when it is blank there. Nothing is locked and nothing is written.
///
/// # Errors
///
/// As [`examine`]; too small to be a member; a device that cannot be read.
pub fn carries(path: impl AsRef<Path>) -> Result<Option<Signature>> {
    carries_on(&Kernel, path.as_ref())
}

/// As [`carries`], on a device of `platform`.
///
/// # Errors
///
/// As [`carries`].
pub fn carries_on(platform: &dyn Platform, path: &Path) -> Result<Option<Signature>> {
    let device = platform.open(path, &OpenOptions::look())?;
    let map =
        MemberMap::new(device.geometry().capacity_bytes).map_err(|error| error.with_path(path))?;
    let mut lane = metadata::lane(platform, &[device])?;
    metadata::read_signature(&mut lane, 0, &map)
}
