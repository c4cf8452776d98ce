//! The catalog of a store: its committed checkpoints, in the order in which they were committed.
//!
//! - A checkpoint that is not here does not exist. The catalog is never changed in place: each
//!   commit writes a new one into free space, and the root record decides which one holds.
//! - Ids are given out when a checkpoint is begun and are never used again; as sessions may end in
//!   another order, they need not be in order here. Names and ids are unique.
//! - A checkpoint lists every extent it occupies, data and index, in order of offset, and its index
//!   lies within these. That the extents of all checkpoints are disjoint, and within the volume, is
//!   checked by [`FreeSpace::new`](crate::extent::FreeSpace::new), which needs all of them anyway.
//! - The catalog names the store and the commit it belongs to, so that an older one, or one of
//!   another store, is not taken for it however intact it is.
//!
//! The body, behind the envelope that `codec.rs` describes, with magic `SWCATLG\n` and version 1:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 24 | 16 | UUID of the store |
//! | 40 | 8 | commit, as in the store header |
//! | 48 | 8 | the next checkpoint's id |
//! | 56 | 4 | number of checkpoints |
//! | 60 | 4 | zero |
//! | 64 | | checkpoints, in the order of their commits |
//!
//! A checkpoint, which begins at a multiple of eight bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | id, not zero |
//! | 8 | 8 | created, seconds since 1970 UTC |
//! | 16 | 8 | number of tensors |
//! | 24 | 8 | bytes of all tensors |
//! | 32 | 8 | step; zero where it has a name |
//! | 40 | 4 | bytes of the name; zero where it has a step |
//! | 44 | 4 | flags: bit 0, pinned; the others zero |
//! | 48 | 4 | number of extents |
//! | 52 | 4 | number of metadata entries |
//! | 56 | 16 each | extents in order of offset: offset, length |
//! | | 16 + 16 each | place of the index, as [`place`](crate::place) draws it |
//! | | | name, UTF-8 |
//! | | | metadata, each: bytes of the key (4), bytes of the value (4), key, value, UTF-8 |
//! | | | zeroes up to a multiple of eight bytes |

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::codec::{self, BLOB_BYTES_MAX, Cursor, ENVELOPE_BYTES, Writer};
use crate::error::{Error, ErrorKind, Result};
use crate::extent::Extent;
use crate::index::TENSORS_MAX;
use crate::names::{CheckpointName, NAME_BYTES_MAX};
use crate::place::{BlobPlace, EXTENT_BYTES, EXTENTS_MAX, read_extents, write_extents};

/// The most checkpoints a store may have at a time.
pub const CHECKPOINTS_MAX: usize = 1 << 20;

/// The most bytes the metadata of one checkpoint may have, keys and values together.
pub const METADATA_BYTES_MAX: usize = 16 << 20;

/// The most that commits and ids of a catalog that is read may have reached: counting on from there
/// does not wrap.
const COUNTER_MAX: u64 = (1 << 63) - 1;

const MAGIC: [u8; 8] = *b"SWCATLG\n";
const VERSION: u32 = 1;
const WHAT: &str = "catalog";
const HEAD_BYTES: usize = 40;
const CHECKPOINT_HEAD_BYTES: usize = 56;
const PLACE_HEAD_BYTES: usize = 16;
const METADATA_HEAD_BYTES: usize = 8;
const FLAG_PINNED: u32 = 1;

/// One committed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointEntry {
    /// Its number in this store.
    pub id: u64,
    /// What it is called.
    pub name: CheckpointName,
    /// When it was begun, in seconds since 1970 UTC.
    pub created_unix_s: u64,
    /// Whether retention leaves it alone.
    pub pinned: bool,
    /// What the caller wanted to be kept with it; the keys are unique, the order is kept.
    pub metadata: Vec<(String, String)>,
    /// How many tensors it has.
    pub tensor_count: u64,
    /// The bytes of all tensors.
    pub data_bytes: u64,
    /// Everything it occupies, data and index, in order of offset.
    pub extents: Vec<Extent>,
    /// Where its index lies, within the extents.
    pub index: BlobPlace,
}

impl CheckpointEntry {
    /// How many bytes of the volume it occupies. Only for an entry of a catalog, or one that
    /// [`CheckpointEntry::check`] accepts.
    pub fn occupied_bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.length).sum()
    }

    /// Checks everything that can be known of it without reading its index.
    pub fn check(&self) -> Result<()> {
        match self.problem() {
            Some(problem) => Err(Error::invalid(problem).with_checkpoint(&self.name)),
            None => Ok(()),
        }
    }

    fn problem(&self) -> Option<&'static str> {
        if self.id == 0 {
            return Some("the id is zero");
        }
        if let Some(problem) = self
            .name
            .problem()
            .or_else(|| metadata_problem(&self.metadata))
        {
            return Some(problem);
        }
        if self.tensor_count > TENSORS_MAX as u64 {
            return Some("the checkpoint has too many tensors");
        }
        if self.extents.len() > EXTENTS_MAX {
            return Some("the checkpoint lies in too many extents");
        }
        let problem = Extent::list_problem(&self.extents).or_else(|| self.index.problem());
        if problem.is_some() {
            return problem;
        }
        // Disjoint extents below 2^63 add up to no more than that.
        let room = self.occupied_bytes() - self.index.extents_bytes().min(self.occupied_bytes());
        if self.data_bytes > room {
            return Some("the checkpoint has more bytes than it occupies");
        }
        let merged = Extent::merge(self.extents.clone());
        let holds = |inner: &Extent| {
            let next = merged.partition_point(|extent| extent.end() <= inner.offset);
            let outer = merged.get(next);
            outer.is_some_and(|outer| outer.offset <= inner.offset && inner.end() <= outer.end())
        };
        let inside = self.index.extents.iter().all(holds);
        (!inside).then_some("the index lies outside of the checkpoint")
    }

    fn encoded_bytes(&self) -> usize {
        let metadata = self
            .metadata
            .iter()
            .map(|(key, value)| METADATA_HEAD_BYTES + key.len() + value.len());
        let name_bytes = match &self.name {
            CheckpointName::Step(_) => 0,
            CheckpointName::Name(name) => name.len(),
        };
        let extents = self.extents.len() + self.index.extents.len();
        (CHECKPOINT_HEAD_BYTES
            + PLACE_HEAD_BYTES
            + EXTENT_BYTES * extents
            + name_bytes
            + metadata.sum::<usize>())
        .next_multiple_of(8)
    }

    fn write(&self, writer: &mut Writer) {
        let (step, name) = match &self.name {
            CheckpointName::Step(step) => (*step, ""),
            CheckpointName::Name(name) => (0, name.as_str()),
        };
        writer.u64(self.id);
        writer.u64(self.created_unix_s);
        writer.u64(self.tensor_count);
        writer.u64(self.data_bytes);
        writer.u64(step);
        writer.count(name.len());
        writer.u32(if self.pinned { FLAG_PINNED } else { 0 });
        writer.count(self.extents.len());
        writer.count(self.metadata.len());
        write_extents(&self.extents, writer);
        self.index.write(writer);
        writer.bytes(name.as_bytes());
        for (key, value) in &self.metadata {
            writer.count(key.len());
            writer.count(value.len());
            writer.bytes(key.as_bytes());
            writer.bytes(value.as_bytes());
        }
        writer.pad();
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        let id = cursor.u64()?;
        let created_unix_s = cursor.u64()?;
        let tensor_count = cursor.u64()?;
        let data_bytes = cursor.u64()?;
        let step = cursor.u64()?;
        let name_bytes = cursor.count(NAME_BYTES_MAX, 1)?;
        let flags = cursor.u32()?;
        if flags & !FLAG_PINNED != 0 {
            return Err(cursor.damaged("flags that are unknown here"));
        }
        let extent_count = cursor.count(EXTENTS_MAX, EXTENT_BYTES)?;
        let metadata_count = cursor.count(METADATA_BYTES_MAX, METADATA_HEAD_BYTES)?;
        let extent_count = cursor.believe(extent_count as u64, EXTENTS_MAX, EXTENT_BYTES)?;
        let extents = read_extents(cursor, extent_count)?;
        let index = BlobPlace::read(cursor)?;
        let name = match (cursor.text(name_bytes)?, step) {
            (name, step) if name.is_empty() => CheckpointName::Step(step),
            (name, 0) => CheckpointName::Name(name),
            _ => return Err(cursor.damaged("a checkpoint with both a step and a name")),
        };
        // Not collected: a list that grows has three times its size for a moment.
        let mut metadata = Vec::with_capacity(metadata_count);
        for _ in 0..metadata_count {
            let key_bytes = cursor.count(METADATA_BYTES_MAX, 1)?;
            let value_bytes = cursor.count(METADATA_BYTES_MAX, 1)?;
            metadata.push((cursor.text(key_bytes)?, cursor.text(value_bytes)?));
        }
        cursor.pad()?;
        let entry = Self {
            id,
            name,
            created_unix_s,
            pinned: flags & FLAG_PINNED != 0,
            metadata,
            tensor_count,
            data_bytes,
            extents,
            index,
        };
        match entry.problem() {
            Some(problem) => Err(cursor.damaged(problem).with_checkpoint(&entry.name)),
            None => Ok(entry),
        }
    }
}

/// Checks what a caller wants to be kept with a checkpoint.
pub fn check_metadata(metadata: &[(String, String)]) -> Result<()> {
    metadata_problem(metadata).map_or(Ok(()), |problem| Err(Error::invalid(problem)))
}

fn metadata_problem(metadata: &[(String, String)]) -> Option<&'static str> {
    let bytes: usize = metadata
        .iter()
        .map(|(key, value)| METADATA_HEAD_BYTES + key.len() + value.len())
        .sum();
    if bytes > METADATA_BYTES_MAX {
        return Some("the metadata has more than 16 MiB");
    }
    let keys: HashSet<&str> = metadata.iter().map(|(key, _)| key.as_str()).collect();
    (keys.len() < metadata.len()).then_some("a key of the metadata is there twice")
}

/// The committed checkpoints of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalog {
    store_uuid: Uuid,
    commit: u64,
    next_id: u64,
    checkpoints: Vec<CheckpointEntry>,
}

impl Catalog {
    /// The catalog of a store that has just been formatted: empty, at commit 1.
    ///
    /// # Panics
    ///
    /// When the UUID is zero, which no store has.
    pub fn new(store_uuid: Uuid) -> Self {
        assert!(!store_uuid.is_nil(), "a store has a UUID");
        Self {
            store_uuid,
            commit: 1,
            next_id: 1,
            checkpoints: Vec::new(),
        }
    }

    /// The store it belongs to.
    pub fn store_uuid(&self) -> Uuid {
        self.store_uuid
    }

    /// The commit it belongs to.
    pub fn commit(&self) -> u64 {
        self.commit
    }

    /// Makes it the catalog of the next commit. Call it once for each catalog that is written.
    pub fn advance(&mut self) {
        // At a million commits a second this takes half a million years.
        self.commit += 1;
    }

    /// The id that the next checkpoint may have; a greater one may be used as well.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Gives out an id for a checkpoint that is being written. One that is never committed leaves
    /// a gap, which is no harm.
    pub fn reserve_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// The checkpoints in the order of their commits.
    pub fn checkpoints(&self) -> &[CheckpointEntry] {
        &self.checkpoints
    }

    /// The checkpoint that was committed last.
    pub fn latest(&self) -> Option<&CheckpointEntry> {
        self.checkpoints.last()
    }

    /// The checkpoint of this name.
    pub fn find(&self, name: &CheckpointName) -> Option<&CheckpointEntry> {
        self.checkpoints.iter().rfind(|entry| entry.name == *name)
    }

    /// Every extent of every checkpoint.
    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        self.checkpoints
            .iter()
            .flat_map(|entry| entry.extents.iter().copied())
    }

    /// Checks that a checkpoint of this name could be added.
    pub fn check_new(&self, name: &CheckpointName) -> Result<()> {
        name.check()?;
        if self.find(name).is_some() {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                "there is a checkpoint of this name already",
            )
            .with_checkpoint(name));
        }
        if self.checkpoints.len() == CHECKPOINTS_MAX {
            return Err(Error::new(
                ErrorKind::NoSpace,
                format!("the store has {CHECKPOINTS_MAX} checkpoints, the most there may be"),
            ));
        }
        Ok(())
    }

    /// Adds a checkpoint as the latest. Its id must have been reserved.
    pub fn push(&mut self, entry: CheckpointEntry) -> Result<()> {
        entry.check()?;
        self.check_new(&entry.name)?;
        let id_in_use = self.checkpoints.iter().any(|e| e.id == entry.id);
        if id_in_use || entry.id >= self.next_id {
            return Err(Error::invalid("the id was not reserved, or is in use")
                .with_checkpoint(&entry.name));
        }
        if (self.encoded_bytes() + entry.encoded_bytes()) as u64 > BLOB_BYTES_MAX {
            return Err(Error::new(ErrorKind::NoSpace, "the catalog is full"));
        }
        self.checkpoints.push(entry);
        Ok(())
    }

    /// Takes a checkpoint out.
    pub fn remove(&mut self, name: &CheckpointName) -> Result<CheckpointEntry> {
        let place = self.checkpoints.iter().position(|e| e.name == *name);
        place
            .map(|place| self.checkpoints.remove(place))
            .ok_or_else(|| no_such(name))
    }

    /// Pins a checkpoint, or lets it go.
    pub fn set_pinned(&mut self, name: &CheckpointName, pinned: bool) -> Result<()> {
        let entry = self.checkpoints.iter_mut().find(|e| e.name == *name);
        entry.ok_or_else(|| no_such(name))?.pinned = pinned;
        Ok(())
    }

    /// How many bytes [`Catalog::encode`] will return.
    pub fn encoded_bytes(&self) -> usize {
        let entries = self.checkpoints.iter().map(CheckpointEntry::encoded_bytes);
        ENVELOPE_BYTES + HEAD_BYTES + entries.sum::<usize>()
    }

    /// The blob to write.
    pub fn encode(&self) -> Vec<u8> {
        let body_bytes = self.encoded_bytes() - ENVELOPE_BYTES;
        let mut writer = codec::begin(MAGIC, VERSION, body_bytes);
        writer.uuid(self.store_uuid);
        writer.u64(self.commit);
        writer.u64(self.next_id);
        writer.count(self.checkpoints.len());
        writer.u32(0);
        for entry in &self.checkpoints {
            entry.write(&mut writer);
        }
        let blob = codec::seal(writer);
        assert_eq!(blob.len(), self.encoded_bytes(), "the length was foretold");
        blob
    }

    /// Reads a blob. Whether it is of the right store and commit is [`Catalog::check_owner`].
    pub fn decode(blob: &[u8]) -> Result<Self> {
        let mut cursor = codec::open(WHAT, MAGIC, VERSION, blob)?;
        let store_uuid = cursor.uuid()?;
        let commit = cursor.u64()?;
        let next_id = cursor.u64()?;
        if store_uuid.is_nil() || commit == 0 || next_id == 0 {
            return Err(cursor.damaged("the UUID, the commit or the next id is zero"));
        }
        if commit.max(next_id) > COUNTER_MAX {
            return Err(cursor.damaged("the commit or the next id is beyond any that there can be"));
        }
        let least = CHECKPOINT_HEAD_BYTES + PLACE_HEAD_BYTES;
        let count = cursor.count(CHECKPOINTS_MAX, least)?;
        cursor.reserved_u32()?;
        let mut checkpoints: Vec<CheckpointEntry> = Vec::with_capacity(count);
        for _ in 0..count {
            let entry = CheckpointEntry::read(&mut cursor)?;
            if entry.id >= next_id {
                return Err(cursor
                    .damaged("the id was never given out")
                    .with_checkpoint(&entry.name));
            }
            checkpoints.push(entry);
        }
        let mut names = HashSet::with_capacity(count);
        let mut ids = HashSet::with_capacity(count);
        let mut is_new = |entry: &CheckpointEntry| {
            let new_name = names.insert(entry.name.clone());
            ids.insert(entry.id) && new_name
        };
        if let Some(twice) = checkpoints.iter().find(|entry| !is_new(entry)) {
            return Err(cursor
                .damaged("the name or the id is there twice")
                .with_checkpoint(&twice.name));
        }
        cursor.finish()?;
        Ok(Self {
            store_uuid,
            commit,
            next_id,
            checkpoints,
        })
    }

    /// Checks that it is the catalog of this commit of this store.
    pub fn check_owner(&self, store_uuid: Uuid, commit: u64) -> Result<()> {
        if self.store_uuid == store_uuid && self.commit == commit {
            Ok(())
        } else {
            Err(Error::damaged(format!(
                "the catalog is that of commit {} of store {}",
                self.commit, self.store_uuid
            )))
        }
    }
}

fn no_such(name: &CheckpointName) -> Error {
    Error::new(ErrorKind::NotFound, "there is no such checkpoint").with_checkpoint(name)
}

#[cfg(test)]
mod tests;
