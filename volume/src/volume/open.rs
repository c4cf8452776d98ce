//! Opening a volume: each member finds its place by its own superblock, or the reason is told.

use std::path::Path;
use std::sync::Arc;

use swath_engine::{Device, HandleOptions, Kernel, Platform};

use crate::discover::members_in;
use crate::error::{Error, ErrorKind, Result};
use crate::member::Member;
use crate::metadata;
use crate::root::{newest_of_one_chain, recover};
use crate::superblock::{Candidate, MemberMap, assemble};
use crate::volume::{Guest, Volume, open_devices, root};

/// How to open a volume.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Only to read. Several readers may have it open at once, and nothing is repaired.
    pub read_only: bool,
    /// To write beside the owner, who has the volume open and gave this
    /// [invitation](Volume::invite). Nothing is repaired, and no epoch begins.
    pub guest: Option<Guest>,
    /// Whether buffered I/O is accepted on members that cannot do direct I/O.
    pub allow_buffered: bool,
    /// How the shared calls of the volume are served, once there are any.
    pub handle: HandleOptions,
}

impl Volume {
    /// Opens the volume whose members `paths` are, in any order. A directory stands for the
    /// members in it.
    ///
    /// # Errors
    ///
    /// A member that is missing, named twice, a copy of another, of another volume, out of date,
    /// smaller than it was, of a version or layout unknown here, or in use; root records that do
    /// not fit together; as a guest, an owner that is gone or renames the volume just now. Nothing is
    /// written unless all is well; then, for writing, superblock
    /// copies are healed and the root record, if there is one, is put into a new epoch.
    pub fn open<P: AsRef<Path>>(paths: &[P], options: &OpenOptions) -> Result<Self> {
        Self::open_on(Arc::new(Kernel), &members_in(paths)?, options)
    }

    /// As [`open`](Self::open), on devices of `platform`; every path is a device's.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_on<P: AsRef<Path>>(
        platform: Arc<dyn Platform>,
        paths: &[P],
        options: &OpenOptions,
    ) -> Result<Self> {
        let mut how = match (options.read_only, options.guest) {
            (true, None) => swath_engine::OpenOptions::read_only(),
            (false, None) => swath_engine::OpenOptions::read_write(),
            (false, Some(guest)) => swath_engine::OpenOptions::guest(guest.engine_seat()),
            (true, Some(_)) => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "a guest writes: open the volume either for reading only or as a guest",
                ));
            }
        };
        how.allow_buffered = options.allow_buffered;
        let devices = open_devices(&*platform, paths, &how)?;
        if devices.is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, "no members were named"));
        }
        let mut looks_left = if options.guest.is_some() {
            GUEST_LOOKS
        } else {
            1
        };
        let (candidates, assembly) = loop {
            let candidates = read_candidates(&*platform, &devices)?;
            looks_left -= 1;
            match assemble(&candidates) {
                Ok(assembly) => break (candidates, assembly),
                // The owner updated the superblocks while they were read, one member after another.
                Err(error) if error.kind() == ErrorKind::Stale && looks_left > 0 => {}
                Err(error) => return Err(error),
            }
        };
        if assembly.unknown_ro_compat != 0 && !options.read_only {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the volume has features ({:#x}) that this version cannot write; open it for \
                     reading only",
                    assembly.unknown_ro_compat
                ),
            )
            .with_path(&candidates[assembly.order[0]].path));
        }
        let devices: Vec<_> = assembly
            .order
            .iter()
            .map(|&place| Arc::clone(&devices[place]))
            .collect();
        let mut lane = metadata::lane(&*platform, &devices)?;
        let rings = root::read(&mut lane, &assembly.superblocks)?;
        let newest = if let Some(guest) = options.guest {
            // The owner may be in the middle of a commit: members need not agree.
            let newest = newest_of_one_chain(&rings)?;
            guest.check(&assembly.superblocks[0], newest)?;
            newest.cloned()
        } else if options.read_only {
            recover(&rings)?.read_only()
        } else {
            let (newest, steps) = recover(&rings)?.read_write()?;
            let writes = root::prepare(&steps, &assembly.superblocks)?;
            if !assembly.heal.is_empty() {
                tracing::warn!(heal = ?assembly.heal, "superblock copies are rewritten");
            }
            // Every step is flushed even when there is nothing to write: what was read may not be
            // durable yet, and the next update builds on it. That goes for the root record too.
            metadata::write_steps(&mut lane, &assembly.superblocks, &assembly.heal.steps).map_err(
                |cause| {
                    cause.context(
                        "a superblock copy cannot be rewritten; open the volume for reading only, \
                         and replace the member",
                    )
                },
            )?;
            root::write(&mut lane, &writes).map_err(|cause| {
                cause.context("the root record cannot be renewed, so the volume is not opened")
            })?;
            newest
        };
        drop(lane);
        let members = assembly
            .superblocks
            .iter()
            .zip(devices)
            .map(|(superblock, device)| {
                let map = MemberMap::new(superblock.device_bytes)?;
                Ok(Member::new(superblock, device, &map))
            })
            .collect::<Result<_>>()?;
        let handle = options.handle.clone();
        Self::assemble(
            platform,
            members,
            assembly.superblocks,
            newest,
            options.read_only,
            options.guest,
            handle,
        )
    }
}

/// How often a guest looks at superblocks that seem to be of different times: its owner may be
/// updating them, and is not likely to do it again and again.
const GUEST_LOOKS: u32 = 16;

/// Reads what every device says of itself.
fn read_candidates(platform: &dyn Platform, devices: &[Arc<dyn Device>]) -> Result<Vec<Candidate>> {
    let mut lane = metadata::lane(platform, devices)?;
    Ok((0..)
        .zip(devices)
        .map(|(slot, device)| Candidate {
            path: device.path().to_path_buf(),
            device_bytes: device.geometry().capacity_bytes,
            copies: metadata::read_copies(&mut lane, slot),
        })
        .collect())
}
