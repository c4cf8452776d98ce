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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::extent::UNIT_BYTES;

    const STORE: Uuid = Uuid::from_u128(7);

    type Change = fn(&mut CheckpointEntry);

    fn entry(id: u64, name: impl Into<CheckpointName>) -> CheckpointEntry {
        let base = id * (16 << 20);
        CheckpointEntry {
            id,
            name: name.into(),
            created_unix_s: 1_700_000_000,
            pinned: id.is_multiple_of(2),
            metadata: vec![("format".into(), "pt".into()), ("a".into(), String::new())],
            tensor_count: 3,
            data_bytes: 5000,
            extents: vec![
                Extent::new(base, 2 * UNIT_BYTES),
                Extent::new(base + 3 * UNIT_BYTES, UNIT_BYTES),
            ],
            index: BlobPlace {
                extents: vec![Extent::new(base + 3 * UNIT_BYTES, UNIT_BYTES)],
                length: 300,
                checksum: 0x0102_0304,
            },
        }
    }

    fn catalog(names: &[&str]) -> Catalog {
        let mut catalog = Catalog::new(STORE);
        for name in names {
            let id = catalog.reserve_id();
            let name: CheckpointName = name.parse().unwrap();
            catalog.push(entry(id, 0)).unwrap();
            catalog.checkpoints.last_mut().unwrap().name = name;
        }
        catalog
    }

    #[test]
    fn a_catalog_reads_back() {
        for names in [&[][..], &["7"], &["1", "best so far", "2", "0"]] {
            let mut catalog = catalog(names);
            catalog.advance();
            let decoded = Catalog::decode(&catalog.encode()).unwrap();
            assert_eq!(decoded, catalog);
            decoded.check_owner(STORE, 2).unwrap();
            assert!(decoded.check_owner(STORE, 1).is_err());
            assert!(decoded.check_owner(Uuid::from_u128(8), 2).is_err());
        }
    }

    /// The bytes on media are the format; a change of the code must not change them.
    #[test]
    fn the_bytes_are_those_of_the_table() {
        let blob = catalog(&["1", "ab"]).encode();
        assert_eq!(&blob[..12], b"SWCATLG\n\x01\0\0\0");
        assert_eq!(&blob[24..40], STORE.as_bytes());
        let words: Vec<u64> = blob[40..]
            .as_chunks()
            .0
            .iter()
            .map(|w| u64::from_le_bytes(*w))
            .collect();
        assert_eq!(words[..3], [1, 3, 2]);
        let base = 16 << 20;
        let first = [1, 1_700_000_000, 3, 5000, 1, 0, 2 | 2 << 32];
        assert_eq!(words[3..10], first);
        assert_eq!(words[10..14], [base, 8192, base + 12288, 4096]);
        assert_eq!(
            words[14..18],
            [300, 0x0102_0304 | 1 << 32, base + 12288, 4096]
        );
        assert_eq!(
            &blob[184..216],
            b"\x06\0\0\0\x02\0\0\0formatpt\x01\0\0\0\0\0\0\0a\0\0\0\0\0\0\0"
        );
        let second = [2, 1_700_000_000, 3, 5000, 0, 2 | 1 << 32, 2 | 2 << 32];
        assert_eq!(words[22..29], second);
        assert_eq!(&blob[336..338], b"ab");
    }

    #[test]
    fn every_bit_flip_is_damage() {
        let mut blob = catalog(&["1", "best"]).encode();
        for bit in 0..blob.len() * 8 {
            blob[bit / 8] ^= 1 << (bit % 8);
            let error = Catalog::decode(&blob).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "bit {bit}");
            blob[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn checkpoints_come_and_go() {
        let mut catalog = catalog(&["10", "20", "best"]);
        let best: CheckpointName = "best".parse().unwrap();
        assert_eq!(catalog.latest().map(|e| &e.name), Some(&best));
        assert_eq!(catalog.find(&20.into()).map(|e| e.id), Some(2));
        assert_eq!(
            catalog.check_new(&20.into()).unwrap_err().kind(),
            ErrorKind::AlreadyExists
        );
        assert_eq!(catalog.extents().count(), 6);

        let removed = catalog.remove(&20.into()).unwrap();
        assert_eq!(removed.occupied_bytes(), 3 * UNIT_BYTES);
        let again = catalog.remove(&20.into()).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::NotFound);
        assert_eq!(
            again.to_string(),
            "checkpoint 20: there is no such checkpoint"
        );
        catalog.set_pinned(&best, true).unwrap();
        assert!(catalog.find(&best).unwrap().pinned);
        assert!(catalog.set_pinned(&20.into(), true).is_err());

        // The name is free again; ids in use or never given out are refused.
        for id in [3, 4, u64::MAX >> 30] {
            let error = catalog.push(entry(id, 20)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(catalog.reserve_id(), 4);
        assert_eq!(catalog.reserve_id(), 5);
        catalog.push(entry(5, 30)).unwrap();
        catalog.push(entry(4, 20)).unwrap();
        assert_eq!(catalog.latest().map(|e| e.id), Some(4));
        assert_eq!(Catalog::decode(&catalog.encode()).unwrap(), catalog);
    }

    #[test]
    fn entries_that_contradict_themselves_are_refused() {
        entry(1, 5).check().unwrap();
        let cases: &[(&str, Change)] = &[
            ("id", |e| e.id = 0),
            ("digits", |e| e.name = CheckpointName::Name("12".into())),
            ("empty", |e| e.name = CheckpointName::Name(String::new())),
            ("twice", |e| e.metadata[1].0 = "format".into()),
            ("16 MiB", |e| e.metadata[1].1 = "x".repeat(16 << 20)),
            ("tensors", |e| e.tensor_count = 1 << 25),
            ("overlap", |e| e.extents.swap(0, 1)),
            ("overlap", |e| e.extents[0].length = 4 * UNIT_BYTES),
            ("whole units", |e| e.extents[0].offset += 1),
            ("is empty", |e| e.extents[0].length = 0),
            ("more bytes", |e| e.data_bytes = 2 * UNIT_BYTES + 1),
            ("more bytes", |e| e.data_bytes = u64::MAX),
            ("more bytes", |e| e.extents.clear()),
            ("outside", |e| e.index.extents[0].offset -= UNIT_BYTES),
            ("outside", |e| e.index.extents[0].offset += UNIT_BYTES),
            ("add up", |e| e.index.length = UNIT_BYTES + 1),
            ("length", |e| e.index.length = 23),
            ("length", |e| e.index.length = u64::MAX),
        ];
        for (expected, change) in cases {
            let mut bad = entry(1, 5);
            change(&mut bad);
            let error = bad.check().unwrap_err();
            assert!(error.to_string().contains(expected), "{expected}: {error}");
            let mut catalog = Catalog::new(STORE);
            catalog.reserve_id();
            assert!(catalog.push(bad).is_err());
        }
    }

    /// What was sealed by a broken or hostile writer has a right checksum, and is looked at again.
    /// A count that is at its end would wrap with the next commit, and the store with it.
    #[test]
    fn counters_at_their_end_are_damage() {
        let with = |at: usize, value: u64| {
            let mut body = catalog(&["1"]).encode()[ENVELOPE_BYTES..].to_vec();
            body[at..at + 8].copy_from_slice(&value.to_le_bytes());
            let mut writer = codec::begin(MAGIC, VERSION, 0);
            writer.bytes(&body);
            Catalog::decode(&codec::seal(writer))
        };
        // The commit is at 16 of the body, the next id at 24.
        for at in [16, 24] {
            for value in [COUNTER_MAX + 1, u64::MAX] {
                let kind = with(at, value).unwrap_err().kind();
                assert_eq!(kind, ErrorKind::Damaged, "{value} at {at}");
            }
            let mut last = with(at, COUNTER_MAX).unwrap();
            last.advance();
            last.reserve_id();
        }
    }

    #[test]
    fn sealed_nonsense_is_damage() {
        let names = ["1", "ab", "ac"];
        let reseal = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut body = catalog(&names).encode()[ENVELOPE_BYTES..].to_vec();
            change(&mut body);
            let mut writer = codec::begin(MAGIC, VERSION, 0);
            writer.bytes(&body);
            Catalog::decode(&codec::seal(writer))
        };
        assert!(reseal(&|_| {}).is_ok());
        // The first checkpoint begins at 40 of the body, the second at 192.
        let damaged: &[(usize, u8)] = &[
            (24, 1),
            (24, 3),
            (32, 2),
            (35, 0xff),
            (36, 1),
            (40, 0),
            (40, 2),
            (67, 1),
            (80, 1),
            (83, 0xff),
            (84, 2),
            (88, 1),
            (91, 0xff),
            (92, 3),
            (95, 0xff),
            (97, 1),
            (192, 1),
            (192, 3),
            (192 + 32, 1),
            (192 + 44, 2),
            (192 + 120, b'1'),
        ];
        for (at, value) in damaged {
            let result = reseal(&|body| {
                assert_ne!(body[*at], *value, "nothing changed at {at}");
                body[*at] = *value;
                if *at == 192 + 120 {
                    body[*at + 1] = b'1';
                }
            });
            let kind = result.unwrap_err().kind();
            assert_eq!(kind, ErrorKind::Damaged, "{value} at {at}");
        }
        // The third checkpoint takes the name of the second.
        let at = 192 + 152;
        let twice = reseal(&|body| body[at + 121] = b'b').unwrap_err();
        assert!(twice.to_string().contains("twice"), "{twice}");
        assert!(reseal(&|body| body[16..24].fill(0)).is_err());
        assert!(reseal(&|body| body[..16].fill(0)).is_err());
        assert!(reseal(&|body| body.truncate(300)).is_err());
        assert!(reseal(&|body| body.extend([0; 8])).is_err());
    }

    fn any_entry() -> impl Strategy<Value = CheckpointEntry> {
        let name = prop_oneof![
            any::<u64>().prop_map(CheckpointName::Step),
            "[^\0]{0,20}[^\0-9]".prop_map(CheckpointName::Name),
        ];
        let metadata = prop::collection::hash_map(".{0,9}", ".{0,9}", 0..4);
        let gaps = prop::collection::vec((0..9_u64, 1..9_u64), 1..5);
        (name, metadata, gaps, any::<[u64; 2]>(), any::<bool>()).prop_map(
            |(name, metadata, gaps, [created_unix_s, seed], pinned)| {
                let mut end = 0;
                let mut extents = Vec::new();
                for (gap, length) in gaps {
                    extents.push(Extent::new((end + gap) * UNIT_BYTES, length * UNIT_BYTES));
                    end += gap + length;
                }
                let last = extents[extents.len() - 1];
                let data_bytes: u64 = extents.iter().map(|e| e.length).sum::<u64>() - last.length;
                CheckpointEntry {
                    id: 0,
                    name,
                    created_unix_s,
                    pinned,
                    metadata: metadata.into_iter().collect(),
                    tensor_count: seed % 100,
                    data_bytes: seed % (data_bytes + 1),
                    index: BlobPlace {
                        extents: vec![last],
                        length: last.length - seed % 4000,
                        checksum: 5,
                    },
                    extents,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_encoded_reads_back(entries in prop::collection::vec(any_entry(), 0..8)) {
            let mut catalog = Catalog::new(STORE);
            for mut entry in entries {
                entry.id = catalog.reserve_id();
                let new = catalog.find(&entry.name).is_none();
                prop_assert_eq!(catalog.push(entry).is_ok(), new);
            }
            prop_assert_eq!(Catalog::decode(&catalog.encode()).unwrap(), catalog);
        }

        /// Bytes changed at will and sealed again reach every check behind the checksum; whatever
        /// is accepted is what would have been written.
        #[test]
        fn no_bytes_make_it_panic(
            changes in prop::collection::vec((0..1000_usize, any::<u8>()), 1..6),
        ) {
            let mut body = catalog(&["1", "best", "2"]).encode()[ENVELOPE_BYTES..].to_vec();
            for (at, value) in changes {
                let at = at % body.len();
                body[at] = value;
            }
            let mut writer = codec::begin(MAGIC, VERSION, 0);
            writer.bytes(&body);
            let blob = codec::seal(writer);
            if let Ok(catalog) = Catalog::decode(&blob) {
                prop_assert_eq!(catalog.encode(), blob);
            }
        }

        #[test]
        fn noise_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Catalog::decode(&bytes).is_err());
        }
    }
}
