//! [`Store`]: the checkpoints on one volume.
//!
//! ```text
//! root record (the volume's)  ->  catalog  ->  index of each checkpoint  ->  its tensors' bytes
//! ```
//!
//! Invariants:
//! - A commit writes data, index and catalog into free space, then the root record, which makes
//!   every member durable before and after. Nothing that the last root record leads to is ever
//!   written over, so a crash at any moment leaves the last commit or the one in progress.
//! - Space that a commit frees is used again only after the next commit is durable (should the
//!   newest record be lost on every member, the one before it still leads to whole checkpoints),
//!   and only when nobody reads it any more.
//! - Free space is everything the catalog does not name: computed and checked when the store is
//!   opened, never written down.

mod commit;
mod space;
mod state;

pub use self::space::SpaceReport;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use swath_engine::Gate;
use swath_volume::{RootClaim, Uuid, Volume, VolumeLane};

use crate::blob;
use crate::catalog::{Catalog, CheckpointEntry, check_metadata};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, ErrorKind, Result};
use crate::extent::{Extent, FreeSpace, UNIT_BYTES};
use crate::names::CheckpointName;
use crate::options::StoreOptions;
use crate::place::StoreHeader;
use crate::retention::{Candidate, Retention};
use crate::session::{BeginOptions, Session};
use crate::spare_pools::SparePools;
use crate::store::state::State;
use crate::turns::{Turns, WaitAtDrop};

/// The checkpoints on one volume. Clones share it.
#[derive(Clone)]
pub struct Store(Arc<Shared>, Option<Arc<WaitAtDrop>>);

struct Shared {
    volume: Volume,
    /// A store that can write is the only one on its volume. None when it only reads.
    _claim: Option<RootClaim>,
    options: StoreOptions,
    state: Gate<State>,
    /// Held for the whole of a commit: one at a time.
    committing: Gate<()>,
    spare_pools: SparePools,
}

/// What a committed checkpoint is, in a few numbers.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct CheckpointInfo {
    /// Its number, never used twice in a store.
    pub id: u64,
    /// Its name or step.
    pub name: CheckpointName,
    /// When it was made, in seconds since 1970, UTC.
    pub created_unix_s: u64,
    /// How many tensors it has.
    pub tensor_count: u64,
    /// How many bytes its tensors have.
    pub data_bytes: u64,
    /// How many bytes of the volume it takes.
    pub occupied_bytes: u64,
    /// Whether retention leaves it alone.
    pub pinned: bool,
    /// The caller's own words about it.
    pub metadata: Vec<(String, String)>,
}

impl CheckpointInfo {
    pub(crate) fn of(entry: &CheckpointEntry) -> Self {
        Self {
            id: entry.id,
            name: entry.name.clone(),
            created_unix_s: entry.created_unix_s,
            tensor_count: entry.tensor_count,
            data_bytes: entry.data_bytes,
            occupied_bytes: entry.occupied_bytes(),
            pinned: entry.pinned,
            metadata: entry.metadata.clone(),
        }
    }
}

impl Store {
    /// Makes an empty store on a volume.
    ///
    /// # Errors
    ///
    /// The volume has a root record already: a store, or another program's data (unless `force`).
    pub fn format(volume: Volume, options: &FormatOptions) -> Result<Self> {
        refuse_guest(&volume)?;
        let claim = claim(&volume)?;
        if volume.root().is_some() && !options.force {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                "the volume holds a store, or another program's data; force the format to lose it",
            ));
        }
        let catalog = Catalog::new(options.store_uuid);
        let free = FreeSpace::new(usable_bytes(&volume), [])?;
        let store = Self::assemble(
            volume,
            claim,
            options.store.clone(),
            catalog.clone(),
            Vec::new(),
            free,
        );
        {
            let mut committing = store.begin_commit()?;
            store.write_commit(&mut committing, catalog, Vec::new(), 0)?;
        }
        Ok(store)
    }

    /// Opens the store on a volume. On a volume opened for reading only, nothing can be committed.
    ///
    /// # Errors
    ///
    /// No store; a store of a newer version; a catalog that is damaged or does not fit the volume.
    pub fn open(volume: Volume, options: &StoreOptions) -> Result<Self> {
        refuse_guest(&volume)?;
        let claim = claim(&volume)?;
        let Some(root) = volume.root() else {
            return Err(Error::new(
                ErrorKind::NoStore,
                "the volume holds no checkpoint store; format one",
            ));
        };
        let header = StoreHeader::decode(&root.payload)?;
        let capacity_bytes = usable_bytes(&volume);
        // Looked at before anything is read from there.
        FreeSpace::new(capacity_bytes, header.catalog.extents.iter().copied())?;
        let mut lane = lane_of(&volume, options)?;
        let bytes = blob::read(&mut lane, &header.catalog, volume.chunk_bytes())
            .map_err(|error| error.context("the catalog cannot be read"))?;
        let catalog = Catalog::decode(&bytes)?;
        catalog.check_owner(header.store_uuid, header.commit)?;
        let used = catalog
            .extents()
            .chain(header.catalog.extents.iter().copied());
        let free = FreeSpace::new(capacity_bytes, used)?;
        let catalog_extents = header.catalog.extents;
        Ok(Self::assemble(
            volume,
            claim,
            options.clone(),
            catalog,
            catalog_extents,
            free,
        ))
    }

    fn assemble(
        volume: Volume,
        claim: Option<RootClaim>,
        options: StoreOptions,
        catalog: Catalog,
        catalog_extents: Vec<Extent>,
        free: FreeSpace,
    ) -> Self {
        let state = State {
            catalog,
            catalog_extents,
            free,
            held: Vec::new(),
            open: HashMap::new(),
        };
        let platform = volume.platform();
        let turns = WaitAtDrop::new(platform);
        let shared = Shared {
            _claim: claim,
            options,
            state: Gate::new(platform, "the state of the store", state),
            committing: Gate::new(platform, "a commit", ()),
            spare_pools: SparePools::default(),
            volume,
        };
        Self(Arc::new(shared), Some(Arc::new(turns)))
    }

    /// The saves in the background.
    pub(crate) fn turns(&self) -> &Arc<Turns> {
        let waits = self.1.as_ref();
        waits
            .expect("only threads of a save have a handle that does not wait for saves")
            .turns()
    }

    /// A handle for such a thread.
    pub(crate) fn without_waiting(&self) -> Self {
        Self(Arc::clone(&self.0), None)
    }

    /// Buffers of writers that are done.
    pub(crate) fn spare_pools(&self) -> &SparePools {
        &self.0.spare_pools
    }

    /// The volume it is on.
    pub fn volume(&self) -> &Volume {
        &self.0.volume
    }

    /// How it works.
    pub fn options(&self) -> &StoreOptions {
        &self.0.options
    }

    /// Who it is.
    pub fn uuid(&self) -> Uuid {
        self.0.state.lock().catalog.store_uuid()
    }

    /// Begins a checkpoint.
    ///
    /// # Errors
    ///
    /// A name that is taken (unless `replace`d) or not one; opened for reading only; poisoned; less
    /// space than the size that was told: the message says what is needed and what there is.
    pub fn begin(&self, name: impl Into<CheckpointName>, options: BeginOptions) -> Result<Session> {
        let name = name.into();
        let fail = |error: Error| error.with_checkpoint(&name);
        name.check().map_err(fail)?;
        check_metadata(&options.metadata).map_err(fail)?;
        self.check_writable().map_err(fail)?;
        if !options.replace {
            self.0.state.lock().catalog.check_new(&name)?;
        }
        let reserved = match options.data_bytes {
            None | Some(0) => Vec::new(),
            Some(bytes) => {
                let wanted = bytes
                    .checked_next_multiple_of(UNIT_BYTES)
                    .unwrap_or(u64::MAX);
                self.take_space(wanted).map_err(fail)?
            }
        };
        Ok(Session::new(self.clone(), name.clone(), options, reserved))
    }

    /// The newest checkpoint; none while there are none.
    pub fn latest(&self) -> Option<CheckpointInfo> {
        self.0.state.lock().catalog.latest().map(CheckpointInfo::of)
    }

    /// Every checkpoint, in the order of their commits.
    pub fn list(&self) -> Vec<CheckpointInfo> {
        self.0
            .state
            .lock()
            .catalog
            .checkpoints()
            .iter()
            .map(CheckpointInfo::of)
            .collect()
    }

    /// Opens a checkpoint to read it. While it is open, its space is not used again, even when it
    /// is removed.
    ///
    /// # Errors
    ///
    /// No such checkpoint; an index that is damaged.
    pub fn get(&self, name: impl Into<CheckpointName>) -> Result<Checkpoint> {
        let name = name.into();
        // The lock is let go before the error is made, which looks for the newest.
        let entry = self.0.state.lock().open(&name);
        let entry = entry.ok_or_else(|| self.unknown(&name))?;
        Checkpoint::open(self.clone(), entry)
    }

    /// What [`verify`](Self::verify) looks at: every checkpoint that there is now.
    pub(crate) fn entries(&self) -> Vec<CheckpointEntry> {
        self.0.state.lock().catalog.checkpoints().to_vec()
    }

    /// Holds one of these, unless it was removed or replaced meanwhile.
    pub(crate) fn hold(&self, entry: &CheckpointEntry) -> Option<Arc<CheckpointEntry>> {
        let held = self.0.state.lock().open(&entry.name);
        held.filter(|held| held.id == entry.id)
    }

    /// Reads the catalog once more, as an open does, while no commit is under way. Also says where
    /// it lies.
    pub(crate) fn reread_catalog(&self) -> (Vec<Extent>, Result<()>) {
        let _committing = self.0.committing.lock();
        let extents = self.0.state.lock().catalog_extents.clone();
        (extents, self.check_catalog())
    }

    fn check_catalog(&self) -> Result<()> {
        let root = self.0.volume.root();
        let root = root.ok_or_else(|| Error::damaged("the root record is gone"))?;
        let header = StoreHeader::decode(&root.payload)?;
        let catalog = Catalog::decode(&self.read_blob(&header.catalog)?)?;
        catalog.check_owner(header.store_uuid, header.commit)?;
        if catalog == self.0.state.lock().catalog {
            Ok(())
        } else {
            Err(Error::damaged(
                "the catalog on the volume is not the one that was committed",
            ))
        }
    }

    pub(crate) fn unknown(&self, name: &CheckpointName) -> Error {
        let newest = self.latest().map_or_else(
            || "the store has none".to_owned(),
            |latest| format!("the newest is {}", latest.name),
        );
        Error::new(
            ErrorKind::NotFound,
            format!("there is no such checkpoint; {newest}"),
        )
        .with_checkpoint(name)
    }

    /// Removes a checkpoint. Its space is free after the next commit.
    ///
    /// # Errors
    ///
    /// No such checkpoint; as a commit.
    pub fn remove(&self, name: impl Into<CheckpointName>) -> Result<CheckpointInfo> {
        let name = name.into();
        let mut committing = self.begin_commit()?;
        let mut catalog = self.next_catalog();
        let entry = catalog.remove(&name).map_err(|_| self.unknown(&name))?;
        let info = CheckpointInfo::of(&entry);
        self.write_commit(&mut committing, catalog, vec![entry], 0)?;
        Ok(info)
    }

    /// Removes what a policy does not keep, in one commit. Never the newest, and no pinned one.
    ///
    /// # Errors
    ///
    /// As a commit.
    pub fn retain(&self, policy: &Retention) -> Result<Vec<CheckpointInfo>> {
        let mut committing = self.begin_commit()?;
        let mut catalog = self.next_catalog();
        let candidates: Vec<_> = catalog
            .checkpoints()
            .iter()
            .map(|entry| Candidate {
                name: entry.name.clone(),
                pinned: entry.pinned,
                // One whose index cannot be read does not count as one that is kept.
                damaged: Checkpoint::open(self.clone(), Arc::new(entry.clone())).is_err(),
            })
            .collect();
        let removed = policy
            .to_remove(&candidates)?
            .into_iter()
            .map(|place| catalog.remove(&candidates[place].name))
            .collect::<Result<Vec<_>>>()?;
        let infos = removed.iter().map(CheckpointInfo::of).collect();
        if !removed.is_empty() {
            self.write_commit(&mut committing, catalog, removed, 0)?;
        }
        Ok(infos)
    }

    /// Keeps a checkpoint from retention, or lets it go.
    ///
    /// # Errors
    ///
    /// No such checkpoint; as a commit.
    pub fn set_pinned(&self, name: impl Into<CheckpointName>, pinned: bool) -> Result<()> {
        let name = name.into();
        let mut committing = self.begin_commit()?;
        let mut catalog = self.next_catalog();
        catalog
            .set_pinned(&name, pinned)
            .map_err(|_| self.unknown(&name))?;
        self.write_commit(&mut committing, catalog, Vec::new(), 0)
    }

    fn check_writable(&self) -> Result<()> {
        if self.0.volume.is_read_only() {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                "the volume was opened for reading only; open it for writing",
            ));
        }
        self.0.volume.poisoned().map_or(Ok(()), |cause| {
            Err(Error::new(
                ErrorKind::Poisoned,
                "an earlier write or flush failed: nothing can be committed until the volume is \
                 opened again",
            )
            .with_source(cause))
        })
    }
}

/// What a new store is to be.
#[derive(Debug, Clone)]
pub struct FormatOptions {
    /// Whether a root record that is there is replaced.
    pub force: bool,
    /// The store's UUID. Default: random.
    pub store_uuid: Uuid,
    /// How it works, once it is open.
    pub store: StoreOptions,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            force: false,
            store_uuid: Uuid::new_v4(),
            store: StoreOptions::default(),
        }
    }
}

/// Keeps a second store off a volume that this one may write.
fn claim(volume: &Volume) -> Result<Option<RootClaim>> {
    if volume.is_read_only() {
        return Ok(None);
    }
    volume.claim_root().map(Some).map_err(|cause| {
        Error::new(
            ErrorKind::Busy,
            "the volume has a store open that can write",
        )
        .with_source(cause)
    })
}

pub(crate) fn lane_of(volume: &Volume, options: &StoreOptions) -> Result<VolumeLane> {
    let mut lane = options.lane.clone();
    lane.queue.depth = 16;
    lane.statistics = false;
    Ok(volume.lane(&lane)?)
}

/// A guest does not know which space its owner has given out, and to whom.
fn refuse_guest(volume: &Volume) -> Result<()> {
    if volume.is_guest() {
        return Err(Error::invalid(
            "the volume was opened as a guest: write with a lease of its owner's store",
        ));
    }
    Ok(())
}

/// The bytes of a volume in whole units.
pub(crate) fn usable_bytes(volume: &Volume) -> u64 {
    volume.capacity_bytes() - volume.capacity_bytes() % UNIT_BYTES
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("uuid", &self.uuid())
            .field(
                "checkpoints",
                &self.0.state.lock().catalog.checkpoints().len(),
            )
            .finish_non_exhaustive()
    }
}
