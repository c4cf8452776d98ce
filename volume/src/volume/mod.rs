//! [`Volume`]: an open striped volume, and what every way into it shares.
//!
//! - [`Volume`] itself is shared and cloned freely. Its own calls (bytes at any offset, blocking;
//!   blocks, as futures) go through worker lanes that start with the first of them.
//! - [`VolumeLane`] is the caller's own thread's way in: no hand-over, no locks.
//! - Both map a request by the one [`Layout`], and both stop writing when the one [`Poison`] is
//!   set: by the first failure, on any member, of anything that changes it.

mod bytes;
mod create;
mod guest;
mod lane;
mod open;
mod root;
mod scope;
mod shared;
mod tuned;
mod write_locks;

pub use create::CreateOptions;
pub use guest::Guest;
pub use lane::VolumeLane;
pub use open::OpenOptions;
pub use root::RootClaim;
pub use scope::VolumeScope;

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use swath_engine::{
    Backend, Device, Gate, Handle, HandleOptions, Lane, LaneOptions, Platform, Poison,
    QueueDescription,
};
use uuid::Uuid;

use self::bytes::Alignment;
use self::write_locks::WriteLocks;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::member::Member;
use crate::metadata;
use crate::root::Record;
use crate::superblock::{BLOCK_BYTES_MAX, HEAD_COPY_OFFSET, Superblock};

/// An open volume. Clones share it; it is closed when the last clone and the last lane are gone.
#[derive(Clone)]
pub struct Volume(Arc<Shared>);

/// What every way into a volume shares.
struct Shared {
    platform: Arc<dyn Platform>,
    members: Vec<Member>,
    devices: Vec<Arc<dyn Device>>,
    layout: Layout,
    data_offset: u64,
    align: Alignment,
    is_read_only: bool,
    /// How this process was invited, when it is not the owner.
    guest: Option<Guest>,
    /// How many seats were given to guests.
    seats: AtomicU64,
    poison: Arc<Poison>,
    /// The members' superblocks, in index order, as they are on the devices.
    superblocks: Gate<Vec<Superblock>>,
    /// The newest root record that is known to be committed. Held while a commit is under way.
    root: Gate<Option<Record>>,
    /// Whether somebody has claimed the root record for himself.
    root_is_claimed: AtomicBool,
    write_locks: WriteLocks,
    /// Whether io_uring has been seen to work on all members.
    uring_works: AtomicBool,
    handle_options: HandleOptions,
    handle: OnceLock<Handle>,
    /// Held by whoever starts the handle.
    handle_start: Gate<()>,
}

impl Volume {
    /// Puts a volume together from what `create` or `open` found. Everything is in index order.
    fn assemble(
        platform: Arc<dyn Platform>,
        members: Vec<Member>,
        superblocks: Vec<Superblock>,
        root: Option<Record>,
        is_read_only: bool,
        guest: Option<Guest>,
        handle_options: HandleOptions,
    ) -> Result<Self> {
        let first = &superblocks[0];
        let layout = Layout::new(first.member_count(), first.chunk_bytes, first.data_bytes)?;
        let data_offset = first.data_offset;
        let devices: Vec<_> = members
            .iter()
            .map(|member| Arc::clone(&member.device))
            .collect();
        let align = alignment(first, &devices)?;
        Ok(Self(Arc::new(Shared {
            members,
            devices,
            layout,
            data_offset,
            align,
            is_read_only,
            guest,
            seats: AtomicU64::new(0),
            poison: Arc::new(Poison::new()),
            superblocks: Gate::new(&*platform, "superblocks", superblocks),
            root: Gate::new(&*platform, "the root record", root),
            root_is_claimed: AtomicBool::new(false),
            write_locks: WriteLocks::new(&*platform),
            uring_works: AtomicBool::new(false),
            handle_options,
            handle: OnceLock::new(),
            handle_start: Gate::new(&*platform, "the start of the worker lanes", ()),
            platform,
        })))
    }

    /// Who it is.
    pub fn uuid(&self) -> Uuid {
        self.0.superblocks.lock()[0].volume_uuid
    }

    /// Its name, for people.
    pub fn name(&self) -> String {
        self.0.superblocks.lock()[0].name.clone()
    }

    /// How often its superblocks were updated, from 1.
    pub fn generation(&self) -> u64 {
        self.0.superblocks.lock()[0].generation
    }

    /// When it was created, in seconds since 1970, UTC.
    pub fn created_unix_s(&self) -> u64 {
        self.0.superblocks.lock()[0].created_unix_s
    }

    /// How many bytes sit together on one member.
    pub fn chunk_bytes(&self) -> u64 {
        self.0.layout.chunk_bytes()
    }

    /// How many bytes it holds.
    pub fn capacity_bytes(&self) -> u64 {
        self.0.layout.capacity_bytes()
    }

    /// What offsets and lengths of block-granular operations must be multiples of.
    pub fn block_bytes(&self) -> u32 {
        u32::try_from(self.0.align.block_bytes).expect("a block is at most 4096 bytes")
    }

    /// What the addresses of memory must be multiples of, to be used without a copy.
    pub fn memory_align_bytes(&self) -> u32 {
        u32::try_from(self.0.align.memory_bytes).expect("an alignment is at most a page")
    }

    /// Its members, in index order.
    pub fn members(&self) -> &[Member] {
        &self.0.members
    }

    /// Its stripe map.
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// Whether it was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.0.is_read_only
    }

    /// The failure that stopped all writing, if there was one.
    pub fn poisoned(&self) -> Option<Error> {
        self.0.poison.reason().cloned().map(Error::from)
    }

    /// The platform it is on: who makes threads or gates for work on the volume takes it from here.
    pub fn platform(&self) -> &dyn Platform {
        &*self.0.platform
    }

    /// A lane over the volume, for the thread that calls this.
    ///
    /// The options' poison is not used: the volume has its own.
    ///
    /// # Errors
    ///
    /// As [`Lane::open`].
    pub fn lane(&self, options: &LaneOptions) -> Result<VolumeLane> {
        VolumeLane::open(Arc::clone(&self.0), options)
    }

    /// A lane over the bare members, in index order, for the thread that calls this: what a
    /// benchmark compares with. Segments are the caller's; stay within each member's data.
    ///
    /// # Errors
    ///
    /// As [`Lane::open`].
    pub fn member_lane(&self, options: &LaneOptions) -> Result<Lane> {
        self.0.engine_lane(options)
    }

    /// Gives the volume another name. Updates the superblocks of all members.
    ///
    /// # Errors
    ///
    /// A name that is too long or has control characters; opened for reading only; poisoned; a
    /// member that fails, which poisons the volume.
    pub fn rename(&self, name: &str) -> Result<()> {
        if let Some(problem) = Superblock::name_problem(name) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("'{name}' cannot be a volume's name: it is {problem}"),
            ));
        }
        self.0.check_is_owner()?;
        let mut superblocks = self.0.superblocks.lock();
        // Under the lock: an update that failed a moment ago may have left its generation half
        // written, and nobody may write that generation again.
        self.0.check_writable()?;
        let mut updated = superblocks.clone();
        for superblock in &mut updated {
            name.clone_into(&mut superblock.name);
            superblock.generation = superblock.generation.checked_add(1).ok_or_else(|| {
                Error::new(
                    ErrorKind::Unsupported,
                    "the volume's generations are used up",
                )
            })?;
        }
        let mut lane = metadata::lane(&*self.0.platform, &self.0.devices)?;
        let steps = metadata::all_copies(&updated)?;
        if let Err(error) = metadata::write_steps(&mut lane, &updated, &steps) {
            if let Some(cause) = error.engine_error() {
                self.0.poison.set(cause);
            }
            return Err(error.context("the superblocks were not updated"));
        }
        *superblocks = updated;
        Ok(())
    }

    /// Flushes, if it was opened for writing, and closes this handle to the volume.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush).
    pub fn close(self) -> Result<()> {
        if self.0.is_read_only {
            Ok(())
        } else {
            self.flush()
        }
    }
}

impl Shared {
    /// Options for a lane of this volume: its poison, and a probe of blocks that are written.
    fn lane_options(&self, options: &LaneOptions) -> LaneOptions {
        let mut options = options.clone();
        options.poison = Some(Arc::clone(&self.poison));
        options.queue.probe_offset = self.probe_offset(options.queue.iopoll);
        options
    }

    fn engine_lane(&self, options: &LaneOptions) -> Result<Lane> {
        let lane = Lane::open(&*self.platform, &self.devices, &self.lane_options(options))?;
        self.remember(lane.description(), options.queue.iopoll);
        Ok(lane)
    }

    /// Where a queue's probe reads: a block that is written. None once a plain ring worked: to ask
    /// every member again for every lane takes longer than the rest of its opening.
    fn probe_offset(&self, is_iopoll: bool) -> Option<u64> {
        let is_known = !is_iopoll && self.uring_works.load(Ordering::Relaxed);
        (!is_known).then_some(HEAD_COPY_OFFSET)
    }

    /// Takes note of a queue that opened on all members.
    fn remember(&self, queue: &QueueDescription, is_iopoll: bool) {
        if queue.backend == Backend::Uring && !is_iopoll {
            self.uring_works.store(true, Ordering::Relaxed);
        }
    }

    /// Refuses what changes a volume that is read-only or poisoned.
    fn check_writable(&self) -> Result<()> {
        if self.is_read_only {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                "the volume was opened for reading only; open it for writing",
            ));
        }
        self.poison
            .refusal()
            .map_or(Ok(()), |refusal| Err(refusal.into()))
    }
}

/// The block of the volume: the largest of its members'. A member that wants larger ones now than
/// when the volume was created (another drive, another file system) cannot be used.
///
/// A block is also no smaller than the alignment of memory: a chunk's border may fall on any block of
/// a request, and what lies behind it in memory is a transfer of its own.
fn alignment(superblock: &Superblock, devices: &[Arc<dyn Device>]) -> Result<Alignment> {
    for device in devices {
        let offset_align = device.geometry().offset_align_bytes;
        if offset_align > superblock.block_bytes {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the volume has blocks of {} bytes, and the device takes only multiples of \
                     {offset_align}: it was copied to a device of another kind",
                    superblock.block_bytes
                ),
            )
            .with_path(device.path()));
        }
    }
    let mut memory_align = 1;
    for device in devices {
        let its_align = device.geometry().memory_align_bytes;
        if its_align > BLOCK_BYTES_MAX {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "takes only memory at multiples of {its_align} bytes; a volume's blocks are at \
                     most {BLOCK_BYTES_MAX}"
                ),
            )
            .with_path(device.path()));
        }
        memory_align = memory_align.max(its_align);
    }
    Ok(Alignment {
        block_bytes: u64::from(superblock.block_bytes.max(memory_align)),
        memory_bytes: memory_align as usize,
    })
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume")
            .field("uuid", &self.uuid())
            .field("members", &self.0.members.len())
            .field("chunk_bytes", &self.chunk_bytes())
            .field("capacity_bytes", &self.capacity_bytes())
            .finish_non_exhaustive()
    }
}

/// Opens each path and refuses the same device twice.
fn open_devices<P: AsRef<Path>>(
    platform: &dyn Platform,
    paths: &[P],
    options: &swath_engine::OpenOptions,
) -> Result<Vec<Arc<dyn Device>>> {
    let mut devices: Vec<Arc<dyn Device>> = Vec::with_capacity(paths.len());
    for path in paths {
        let path = path.as_ref();
        let opened = platform.open(path, options);
        // Our own lock is in the way when a device is named twice: that is told as what it is.
        let identity = match &opened {
            Ok(device) => Some(device.identity()),
            Err(error) if error.kind() == swath_engine::ErrorKind::InUse => platform
                .open(path, &swath_engine::OpenOptions::look())
                .ok()
                .map(|device| device.identity()),
            Err(_) => None,
        };
        let twin = devices
            .iter()
            .find(|device| Some(device.identity()) == identity);
        if let Some(twin) = twin {
            return Err(Error::new(
                ErrorKind::Duplicate,
                "these are one device: name each member once",
            )
            .with_path(twin.path())
            .with_path(path));
        }
        devices.push(opened?);
    }
    Ok(devices)
}
