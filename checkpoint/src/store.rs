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

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, MutexGuard};
use swath_volume::{RootClaim, Uuid, Volume, VolumeLane};

use crate::blob;
use crate::catalog::{Catalog, CheckpointEntry, check_metadata};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, ErrorKind, Result};
use crate::extent::{Extent, FreeSpace, UNIT_BYTES};
use crate::index::Index;
use crate::ledger::Closed;
use crate::names::CheckpointName;
use crate::options::StoreOptions;
use crate::place::{BlobPlace, CATALOG_EXTENTS_MAX, StoreHeader};
use crate::retention::{Candidate, Retention};
use crate::session::{BeginOptions, Session};
use crate::turns::{Turns, WaitAtDrop};

/// The checkpoints on one volume. Clones share it.
#[derive(Clone)]
pub struct Store(Arc<Shared>, Option<Arc<WaitAtDrop>>);

struct Shared {
    volume: Volume,
    /// A store that can write is the only one on its volume. None when it only reads.
    _claim: Option<RootClaim>,
    options: StoreOptions,
    state: Mutex<State>,
    /// Held for the whole of a commit: one at a time.
    committing: Mutex<()>,
}

struct State {
    /// The last commit: what the root record leads to.
    catalog: Catalog,
    catalog_extents: Vec<Extent>,
    free: FreeSpace,
    /// What commits freed and is not free yet.
    held: Vec<Held>,
    /// The checkpoints that are open to be read, by their numbers. Pinning makes another entry of
    /// the same checkpoint, so there may be several.
    open: HashMap<u64, Vec<Weak<CheckpointEntry>>>,
}

/// Space that is not free yet.
struct Held {
    extents: Vec<Extent>,
    /// The checkpoint whose space it was; none for a catalog's.
    owner: Option<u64>,
    /// The commit that freed it.
    freed_by: u64,
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

/// How the space of a store is used, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct SpaceReport {
    /// What the volume holds.
    pub capacity_bytes: u64,
    /// What committed checkpoints take, data and index.
    pub checkpoint_bytes: u64,
    /// What the catalog takes.
    pub catalog_bytes: u64,
    /// What the last commit freed and the next one will make free, or a reader still holds.
    pub held_bytes: u64,
    /// What sessions in progress have taken.
    pub session_bytes: u64,
    /// What can be taken now, but for a little that is left to the store's own records.
    pub free_bytes: u64,
    /// The largest run of it.
    pub largest_free_bytes: u64,
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
            let _committing = store.begin_commit()?;
            store.write_commit(catalog, Vec::new(), 0)?;
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
        let shared = Shared {
            volume,
            _claim: claim,
            options,
            state: Mutex::new(state),
            committing: Mutex::new(()),
        };
        Self(Arc::new(shared), Some(Arc::default()))
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
        let _committing = self.begin_commit()?;
        let mut catalog = self.next_catalog();
        let entry = catalog.remove(&name).map_err(|_| self.unknown(&name))?;
        let info = CheckpointInfo::of(&entry);
        self.write_commit(catalog, vec![entry], 0)?;
        Ok(info)
    }

    /// Removes what a policy does not keep, in one commit. Never the newest, and no pinned one.
    ///
    /// # Errors
    ///
    /// As a commit.
    pub fn retain(&self, policy: &Retention) -> Result<Vec<CheckpointInfo>> {
        let _committing = self.begin_commit()?;
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
            self.write_commit(catalog, removed, 0)?;
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
        let _committing = self.begin_commit()?;
        let mut catalog = self.next_catalog();
        catalog
            .set_pinned(&name, pinned)
            .map_err(|_| self.unknown(&name))?;
        self.write_commit(catalog, Vec::new(), 0)
    }

    /// How the space is used.
    pub fn space(&self) -> SpaceReport {
        let state = self.0.state.lock();
        let sum = |extents: &[Extent]| extents.iter().map(|extent| extent.length).sum::<u64>();
        let checkpoint_bytes = state.catalog.extents().map(|extent| extent.length).sum();
        let catalog_bytes = sum(&state.catalog_extents);
        let held_bytes = state.held.iter().map(|held| sum(&held.extents)).sum();
        let capacity_bytes = usable_bytes(&self.0.volume);
        let free_bytes = state.free.free_bytes();
        SpaceReport {
            capacity_bytes,
            checkpoint_bytes,
            catalog_bytes,
            held_bytes,
            session_bytes: capacity_bytes
                - (checkpoint_bytes + catalog_bytes + held_bytes + free_bytes),
            free_bytes,
            largest_free_bytes: state.free.largest_bytes(),
        }
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

    // ---- space -------------------------------------------------------------------------------

    /// Takes `length` bytes of free space, in as few extents as there can be.
    pub(crate) fn take_space(&self, length: u64) -> Result<Vec<Extent>> {
        if let Some(extents) = self.try_take(length) {
            return Ok(extents);
        }
        let (have, held) = self.available_bytes();
        if held > 0 && have + held >= length {
            self.commit_nothing()?;
            if let Some(extents) = self.try_take(length) {
                return Ok(extents);
            }
        }
        let (have, _) = self.available_bytes();
        Err(Error::new(
            ErrorKind::NoSpace,
            format!("the store is too full: {length} bytes are needed, and {have} are free"),
        ))
    }

    /// As [`take_space`](Self::take_space), but when there is less than that, all there is.
    pub(crate) fn take_space_up_to(&self, length: u64) -> Result<Vec<Extent>> {
        self.take_space(length).or_else(|error| {
            if error.kind() != ErrorKind::NoSpace {
                return Err(error);
            }
            if self.available_bytes().1 > 0 {
                self.commit_nothing()?;
            }
            let (have, _) = self.available_bytes();
            Some(have.min(length))
                .filter(|length| *length > 0)
                .and_then(|length| self.try_take(length))
                .ok_or(error)
        })
    }

    /// Commits what there is once more: what the commit before freed is free then.
    fn commit_nothing(&self) -> Result<()> {
        let _committing = self.begin_commit()?;
        self.write_commit(self.next_catalog(), Vec::new(), 0)
    }

    /// What sessions can take now, and what they could after a commit if nobody read it.
    fn available_bytes(&self) -> (u64, u64) {
        let state = self.0.state.lock();
        let held = state.held.iter().flat_map(|held| &held.extents);
        let free = state.free.free_bytes();
        (
            free.saturating_sub(state.reserve_bytes()),
            held.map(|extent| extent.length).sum(),
        )
    }

    /// Takes space for a session.
    fn try_take(&self, length: u64) -> Option<Vec<Extent>> {
        let mut state = self.0.state.lock();
        let left = state.reserve_bytes();
        state.take(length, left, self.0.volume.chunk_bytes())
    }

    /// Gives space back that no commit ever named.
    pub(crate) fn release(&self, extents: Vec<Extent>) {
        let mut state = self.0.state.lock();
        for extent in extents {
            state.free.free(extent);
        }
    }

    // ---- commit ------------------------------------------------------------------------------

    fn begin_commit(&self) -> Result<MutexGuard<'_, ()>> {
        let guard = self.0.committing.lock();
        self.check_writable()?;
        Ok(guard)
    }

    /// The catalog of the next commit, as it is before anything is changed.
    fn next_catalog(&self) -> Catalog {
        let mut catalog = self.0.state.lock().catalog.clone();
        catalog.advance();
        catalog
    }

    /// Makes a session's checkpoint visible.
    pub(crate) fn commit_session(
        &self,
        name: &CheckpointName,
        options: &BeginOptions,
        closed: Closed,
    ) -> Result<CheckpointInfo> {
        let Closed { tensors, taken } = closed;
        // What is taken is given back by whoever fails, as long as nothing can lead to it.
        let mut space = Taken {
            store: self,
            extents: taken,
        };
        let _committing = self.begin_commit()?;
        let mut catalog = self.next_catalog();
        let id = catalog.reserve_id();
        let replaced = if options.replace {
            catalog.remove(name).ok()
        } else {
            None
        };
        let index = Index::new(catalog.store_uuid(), id, tensors)?;
        let runs = index.tensors().iter().flat_map(|tensor| &tensor.runs);
        let used = Extent::covering(runs.copied());
        space.keep_only(&used);
        let place = self.write_blob(&index.encode(), 0)?;
        space.extents.extend(&place.extents);
        let entry = CheckpointEntry {
            id,
            name: name.clone(),
            created_unix_s: options.created_unix_s.unwrap_or_else(now_unix_s),
            pinned: false,
            metadata: options.metadata.clone(),
            tensor_count: index.tensors().len() as u64,
            data_bytes: index.data_bytes(),
            extents: Extent::merge(space.extents.clone()),
            index: place,
        };
        let info = CheckpointInfo::of(&entry);
        catalog.push(entry)?;
        let left = 2 * catalog_bytes(&catalog);
        let written = self.write_commit(catalog, replaced.into_iter().collect(), left);
        if written.is_ok() || self.0.volume.poisoned().is_some() {
            // It is the checkpoint's now; or, after a failure in the last step, perhaps: the next
            // open decides.
            space.extents.clear();
        }
        written.map(|()| info)
    }

    /// Writes a catalog and the root record that leads to it: the atomic event. `removed` are the
    /// checkpoints that it no longer has. At least `left` bytes stay free. The caller holds
    /// `committing`.
    fn write_commit(
        &self,
        catalog: Catalog,
        removed: Vec<CheckpointEntry>,
        left: u64,
    ) -> Result<()> {
        let place = self.write_blob(&catalog.encode(), left)?;
        if place.extents.len() > CATALOG_EXTENTS_MAX {
            let pieces = place.extents.len();
            self.release(place.extents);
            return Err(Error::new(
                ErrorKind::NoSpace,
                format!(
                    "free space is in too small pieces: the catalog would lie in {pieces}, and may \
                     lie in {CATALOG_EXTENTS_MAX}"
                ),
            ));
        }
        let header = StoreHeader {
            store_uuid: catalog.store_uuid(),
            commit: catalog.commit(),
            catalog: place,
        };
        let written = self.0.volume.commit_root(&header.encode());
        let place = header.catalog;
        if let Err(error) = written {
            if self.0.volume.poisoned().is_none() {
                // Refused before anything was written.
                self.release(place.extents);
            }
            return Err(error.into());
        }
        let commit = catalog.commit();
        let mut state = self.0.state.lock();
        state.catalog = catalog;
        state.settle(commit);
        let old = std::mem::replace(&mut state.catalog_extents, place.extents);
        state.held.push(Held {
            extents: old,
            owner: None,
            freed_by: commit,
        });
        state.held.extend(removed.into_iter().map(|entry| Held {
            owner: Some(entry.id),
            extents: entry.extents,
            freed_by: commit,
        }));
        Ok(())
    }

    /// Writes a blob into free space, of which at least `left` bytes stay free.
    fn write_blob(&self, bytes: &[u8], left: u64) -> Result<BlobPlace> {
        let length = (bytes.len() as u64).next_multiple_of(UNIT_BYTES);
        let chunk_bytes = self.0.volume.chunk_bytes();
        let taken = self.0.state.lock().take(length, left, chunk_bytes);
        let extents = taken.ok_or_else(|| {
            Error::new(
                ErrorKind::NoSpace,
                format!("the store is too full: {length} bytes are needed for its own records"),
            )
        })?;
        let written = lane_of(&self.0.volume, &self.0.options).and_then(|mut lane| {
            blob::write(
                &mut lane,
                extents.clone(),
                bytes,
                self.0.volume.chunk_bytes(),
            )
        });
        written.inspect_err(|_| self.release(extents))
    }

    pub(crate) fn read_blob(&self, place: &BlobPlace) -> Result<Vec<u8>> {
        let mut lane = lane_of(&self.0.volume, &self.0.options)?;
        blob::read(&mut lane, place, self.0.volume.chunk_bytes())
    }
}

impl State {
    /// What sessions leave to the catalogs: that of their own commit, and those of two more, so
    /// that something can be removed from a store that is full, and its space made free.
    fn reserve_bytes(&self) -> u64 {
        // A checkpoint more makes the catalog longer.
        3 * (catalog_bytes(&self.catalog) + UNIT_BYTES)
    }

    /// Takes free space, of which at least `left` bytes stay free.
    fn take(&mut self, length: u64, left: u64, prefer_align: u64) -> Option<Vec<Extent>> {
        let wanted = length.checked_add(left)?;
        if wanted > self.free.free_bytes() {
            return None;
        }
        self.free.allocate(length, prefer_align)
    }

    /// A checkpoint's entry, to be held by those who read it.
    fn open(&mut self, name: &CheckpointName) -> Option<Arc<CheckpointEntry>> {
        let entry = self.catalog.find(name)?;
        let open = self.open.entry(entry.id).or_default();
        open.retain(|entry| entry.strong_count() > 0);
        if let Some(same) = open
            .iter()
            .filter_map(Weak::upgrade)
            .find(|open| **open == *entry)
        {
            return Some(same);
        }
        let entry = Arc::new(entry.clone());
        open.push(Arc::downgrade(&entry));
        Some(entry)
    }

    /// Makes free what commits before `commit` freed and nobody reads.
    fn settle(&mut self, commit: u64) {
        let Self {
            held, free, open, ..
        } = self;
        open.retain(|_, entries| {
            entries.retain(|entry| entry.strong_count() > 0);
            !entries.is_empty()
        });
        held.retain(|held| {
            let is_read = held.owner.is_some_and(|owner| open.contains_key(&owner));
            if held.freed_by >= commit || is_read {
                return true;
            }
            held.extents.iter().for_each(|extent| free.free(*extent));
            false
        });
    }
}

/// How much space a catalog takes.
fn catalog_bytes(catalog: &Catalog) -> u64 {
    (catalog.encoded_bytes() as u64).next_multiple_of(UNIT_BYTES)
}

/// Space that belongs to nobody yet; free again when dropped.
struct Taken<'a> {
    store: &'a Store,
    extents: Vec<Extent>,
}

impl Taken<'_> {
    /// Gives back all but `used`, which lies within it.
    fn keep_only(&mut self, used: &[Extent]) {
        let all = std::mem::take(&mut self.extents);
        self.store.release(Extent::minus(all, used));
        self.extents = used.to_vec();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.store.release(std::mem::take(&mut self.extents));
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

fn now_unix_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
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
