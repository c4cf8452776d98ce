//! Creating a volume: everything is checked before anything is written.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use swath_engine::{Device, HandleOptions, Kernel, Lane, Platform};
use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result};
use crate::layout::{CHUNK_BYTES_DEFAULT, LAYOUT_RAID0, Layout, MEMBERS_MAX};
use crate::member::Member;
use crate::metadata;
use crate::superblock::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, DATA_OFFSET, MemberMap, Superblock};
use crate::volume::{Volume, open_devices};

/// What a new volume is to be.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// A name for people: at most 63 bytes of UTF-8 without control characters. Default: empty.
    pub name: String,
    /// How many bytes sit together on one member: a multiple of 4 KiB. Default 1 MiB, so that one
    /// large transfer is one operation on one drive.
    pub chunk_bytes: u64,
    /// Whether to take devices that carry something. Their old signatures are erased.
    pub force: bool,
    /// The volume's UUID. Default: random.
    pub uuid: Uuid,
    /// The time it is created, in seconds since 1970, UTC. Default: now.
    pub created_unix_s: u64,
    /// How the shared calls of the volume are served, once there are any.
    pub handle: HandleOptions,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self {
            name: String::new(),
            chunk_bytes: CHUNK_BYTES_DEFAULT,
            force: false,
            uuid: Uuid::new_v4(),
            created_unix_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            handle: HandleOptions::default(),
        }
    }
}

impl Volume {
    /// Creates a volume over `members`, which are block devices or existing files, in this order,
    /// and opens it for writing.
    ///
    /// Members of unequal size are cut to the smallest, in whole chunks
    /// ([`Member::unused_bytes`] says how much that leaves).
    ///
    /// # Errors
    ///
    /// Nothing is written when: there are no members, or too many, or one twice; the chunk is not
    /// a multiple of 4 KiB or is larger than a member; a device cannot be opened, is in use, or
    /// carries anything (unless forced). A device that fails while it is written leaves a volume
    /// that cannot be opened; create it again, forced.
    pub fn create<P: AsRef<Path>>(members: &[P], options: &CreateOptions) -> Result<Self> {
        Self::create_on(Arc::new(Kernel), members, options)
    }

    /// As [`create`](Self::create), on devices of `platform`.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn create_on<P: AsRef<Path>>(
        platform: Arc<dyn Platform>,
        members: &[P],
        options: &CreateOptions,
    ) -> Result<Self> {
        check_options(members.len(), options)?;
        let devices = open_devices(
            &*platform,
            members,
            &swath_engine::OpenOptions::read_write(),
        )?;
        let maps = devices
            .iter()
            .map(|device| map_of(&**device))
            .collect::<Result<Vec<_>>>()?;
        let superblocks = plan(&devices, &maps, options)?;
        let mut lane = metadata::lane(&*platform, &devices)?;
        if !options.force {
            for (slot, map) in (0..).zip(&maps) {
                check_blank(&mut lane, slot, map)?;
            }
        }
        // From here on devices are written.
        for (slot, map) in (0..).zip(&maps) {
            if options.force {
                for (offset, length) in metadata::signature_areas(map) {
                    metadata::write_zeroes(&mut lane, slot, offset, length)?;
                }
            }
        }
        if options.force {
            metadata::flush(&mut lane)?;
        }
        let steps = metadata::all_copies(&superblocks)?;
        metadata::write_steps(&mut lane, &superblocks, &steps)?;
        drop(lane);
        let members = superblocks
            .iter()
            .zip(devices)
            .zip(&maps)
            .map(|((superblock, device), map)| Member::new(superblock, device, map))
            .collect();
        Self::assemble(
            platform,
            members,
            superblocks,
            // The rings are blank: they lie in the areas that were checked or erased.
            None,
            false,
            None,
            options.handle.clone(),
        )
    }
}

fn check_options(members: usize, options: &CreateOptions) -> Result<()> {
    let refuse = |message: String| Err(Error::new(ErrorKind::InvalidInput, message));
    if members == 0 {
        return refuse("a volume needs at least one member".to_owned());
    }
    if members > MEMBERS_MAX as usize {
        return refuse(format!(
            "a volume has at most {MEMBERS_MAX} members, not {members}"
        ));
    }
    if options.uuid.is_nil() {
        return refuse("a volume's UUID is not all zero: leave it random".to_owned());
    }
    if let Some(problem) = Superblock::name_problem(&options.name) {
        return refuse(format!(
            "'{}' cannot be a volume's name: it is {problem}",
            options.name
        ));
    }
    Ok(())
}

fn map_of(device: &dyn Device) -> Result<MemberMap> {
    MemberMap::new(device.geometry().capacity_bytes).map_err(|error| error.with_path(device.path()))
}

/// The superblocks of the new volume, in index order.
fn plan(
    devices: &[Arc<dyn Device>],
    maps: &[MemberMap],
    options: &CreateOptions,
) -> Result<Vec<Superblock>> {
    let count = u32::try_from(devices.len()).expect("at most 128 members, by check_options");
    let (smallest, device) = maps
        .iter()
        .zip(devices)
        .min_by_key(|(map, _)| map.device_bytes())
        .expect("at least one member, by check_options");
    // A chunk of zero fits any number of times: the layout refuses it, and what else it must.
    let data_bytes = if options.chunk_bytes == 0 {
        0
    } else {
        smallest.data_bytes(options.chunk_bytes)
    };
    Layout::new(count, options.chunk_bytes, data_bytes)
        .map_err(|error| error.with_path(device.path()))?;
    let block_bytes = block_of(devices)?;
    let member_uuids: Vec<_> = (0..count)
        .map(|index| Uuid::new_v5(&options.uuid, format!("member {index}").as_bytes()))
        .collect();
    Ok((0..count)
        .zip(maps)
        .map(|(index, map)| Superblock {
            features_compat: 0,
            features_ro_compat: 0,
            features_incompat: 0,
            volume_uuid: options.uuid,
            name: options.name.clone(),
            member_uuid: member_uuids[index as usize],
            member_index: index,
            chunk_bytes: options.chunk_bytes,
            block_bytes,
            layout_id: LAYOUT_RAID0,
            data_offset: DATA_OFFSET,
            data_bytes,
            device_bytes: map.device_bytes(),
            created_unix_s: options.created_unix_s,
            generation: 1,
            copy_number: 0,
            own_offset: map.copy_offset(0),
            member_uuids: member_uuids.clone(),
        })
        .collect())
}

/// The volume's block: the largest of its members'.
fn block_of(devices: &[Arc<dyn Device>]) -> Result<u32> {
    let mut block_bytes = BLOCK_BYTES_MIN;
    for device in devices {
        let offset_align = device.geometry().offset_align_bytes;
        if offset_align > BLOCK_BYTES_MAX {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "takes only transfers in multiples of {offset_align} bytes; a volume's blocks \
                     are at most {BLOCK_BYTES_MAX}"
                ),
            )
            .with_path(device.path()));
        }
        block_bytes = block_bytes.max(offset_align);
    }
    Ok(block_bytes)
}

/// Refuses a device that carries anything.
fn check_blank(lane: &mut Lane, slot: u32, map: &MemberMap) -> Result<()> {
    match metadata::read_signature(lane, slot, map)? {
        None => Ok(()),
        Some(signature) => Err(Error::new(
            ErrorKind::NotBlank,
            format!(
                "carries {signature}; if that is of no use any more, erase it (wipefs -a, or swath \
                 wipe) or force the creation"
            ),
        )
        .with_path(lane.devices()[slot as usize].path())),
    }
}
