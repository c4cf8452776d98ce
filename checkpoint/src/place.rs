//! Where a blob lies, and where a store begins: [`BlobPlace`], [`StoreHeader`].
//!
//! - The store header is the payload of the volume's root record, which has a checksum, a sequence
//!   and a place on every member of its own. It points to the catalog, which points to the rest.
//! - A place keeps the checksum of its blob. An older blob that lies there still, intact as it is,
//!   is not the one meant, and is told from it.
//! - The extents of a place hold the blob and nothing else: together they are its length in whole
//!   units.
//!
//! The store header, little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `SWSTORE\n` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | zero |
//! | 16 | 16 | UUID of the store |
//! | 32 | 8 | commit: how many commits the store has seen |
//! | 40 | | place of the catalog, up to the end |
//!
//! A place, here and in the catalog:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | length of the blob in bytes |
//! | 8 | 4 | checksum of the blob, as its envelope has it |
//! | 12 | 4 | number of extents |
//! | 16 | 16 each | extents in the order of the blob's bytes: offset, length |

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::codec::{self, BLOB_BYTES_MAX, Cursor, ENVELOPE_BYTES, Writer};
use crate::error::{Error, ErrorKind, Result};
use crate::extent::{Extent, UNIT_BYTES};

/// The most extents the place of a catalog may have, so that the store header fits the root record.
pub const CATALOG_EXTENTS_MAX: usize = 128;

/// The most bytes a store header has.
pub const STORE_HEADER_BYTES_MAX: usize =
    HEADER_BYTES + PLACE_BYTES + EXTENT_BYTES * CATALOG_EXTENTS_MAX;

/// The most extents any list of them may have: what a piece of an index or a catalog may ask for.
pub(crate) const EXTENTS_MAX: usize = 1 << 24;

/// How many bytes an extent, or a run, takes on media.
pub(crate) const EXTENT_BYTES: usize = 16;

const HEADER_BYTES: usize = 40;
const PLACE_BYTES: usize = 16;
const MAGIC: [u8; 8] = *b"SWSTORE\n";
const VERSION: u32 = 1;

// What a root record can carry.
const _: () = assert!(STORE_HEADER_BYTES_MAX <= 3584);

/// Where a catalog or an index lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobPlace {
    /// The extents it lies in, in the order of its bytes.
    pub extents: Vec<Extent>,
    /// How many bytes it has; the rest of the last unit is zero.
    pub length: u64,
    /// The checksum in its envelope.
    pub checksum: u32,
}

impl BlobPlace {
    /// The place of `blob`, an encoded catalog or index, in `extents`.
    ///
    /// # Panics
    ///
    /// When the bytes are not a blob, or do not fill the extents to the last unit.
    pub fn new(extents: Vec<Extent>, blob: &[u8]) -> Self {
        let checksum = codec::stated_checksum(blob).expect("a blob has an envelope");
        let place = Self {
            extents,
            length: blob.len() as u64,
            checksum,
        };
        assert_eq!(place.problem(), None, "a blob in extents of another size");
        place
    }

    /// Whether `blob`, just read from here, is the one that was written. That it is intact is for
    /// its decoder to say.
    pub fn check(&self, blob: &[u8]) -> Result<()> {
        if blob.len() as u64 == self.length && codec::stated_checksum(blob) == Some(self.checksum) {
            Ok(())
        } else {
            Err(Error::damaged(
                "what lies there is not what was written last",
            ))
        }
    }

    /// How many bytes its extents have: its length in whole units.
    pub fn extents_bytes(&self) -> u64 {
        self.length.next_multiple_of(UNIT_BYTES)
    }

    /// What is wrong with it, if anything is.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        if self.length < ENVELOPE_BYTES as u64 || self.length > BLOB_BYTES_MAX {
            return Some("a blob has a length that none can have");
        }
        if let Some(problem) = self.extents.iter().find_map(|extent| extent.problem()) {
            return Some(problem);
        }
        let total = self
            .extents
            .iter()
            .try_fold(0_u64, |total, extent| total.checked_add(extent.length));
        if total != Some(self.extents_bytes()) {
            return Some("the extents of a blob do not add up to its length");
        }
        let mut sorted = self.extents.clone();
        sorted.sort_unstable();
        Extent::list_problem(&sorted)
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.u64(self.length);
        writer.u32(self.checksum);
        writer.count(self.extents.len());
        write_extents(&self.extents, writer);
    }

    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        let length = cursor.u64()?;
        let checksum = cursor.u32()?;
        let count = cursor.count(EXTENTS_MAX, EXTENT_BYTES)?;
        let place = Self {
            extents: read_extents(cursor, count)?,
            length,
            checksum,
        };
        match place.problem() {
            Some(problem) => Err(cursor.damaged(problem)),
            None => Ok(place),
        }
    }
}

pub(crate) fn write_extents(extents: &[Extent], writer: &mut Writer) {
    for extent in extents {
        writer.u64(extent.offset);
        writer.u64(extent.length);
    }
}

/// The two numbers of an extent or a run.
pub(crate) fn pair(bytes: &[u8; EXTENT_BYTES]) -> (u64, u64) {
    let (words, _) = bytes.as_chunks::<8>();
    (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]))
}

/// Reads `count` extents, a number that the cursor was asked to believe.
pub(crate) fn read_extents(cursor: &mut Cursor<'_>, count: usize) -> Result<Vec<Extent>> {
    cursor.list(count, |bytes| {
        let (offset, length) = pair(bytes);
        Extent::new(offset, length)
    })
}

/// Where a store begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreHeader {
    /// The identity of the store, made when it was formatted.
    pub store_uuid: Uuid,
    /// How many commits the store has seen, this one included.
    pub commit: u64,
    /// Where its catalog lies.
    pub catalog: BlobPlace,
}

impl StoreHeader {
    /// The payload of the root record.
    ///
    /// # Panics
    ///
    /// When the catalog lies in more than [`CATALOG_EXTENTS_MAX`] extents.
    pub fn encode(&self) -> Vec<u8> {
        assert_eq!(self.problem(), None, "a store header that would be refused");
        let mut writer = Writer::bare();
        writer.bytes(&MAGIC);
        writer.u32(VERSION);
        writer.u32(0);
        writer.uuid(self.store_uuid);
        writer.u64(self.commit);
        self.catalog.write(&mut writer);
        writer.into_bare()
    }

    /// Reads the payload of a root record. A payload of somebody else is [`ErrorKind::NoStore`].
    pub fn decode(payload: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("store header", payload);
        if !payload.starts_with(&MAGIC) {
            return Err(Error::new(
                ErrorKind::NoStore,
                "the volume holds no checkpoint store, but something else",
            ));
        }
        cursor.bytes(MAGIC.len())?;
        let version = cursor.u32()?;
        if version != VERSION {
            return Err(codec::unsupported_version("store", version, VERSION));
        }
        cursor.reserved_u32()?;
        let header = Self {
            store_uuid: cursor.uuid()?,
            commit: cursor.u64()?,
            catalog: BlobPlace::read(&mut cursor)?,
        };
        match header.problem() {
            Some(problem) => Err(cursor.damaged(problem)),
            None => cursor.finish().map(|()| header),
        }
    }

    fn problem(&self) -> Option<&'static str> {
        if self.store_uuid.is_nil() {
            Some("the UUID of the store is zero")
        } else if self.commit == 0 {
            Some("the commit is zero")
        } else if self.catalog.extents.len() > CATALOG_EXTENTS_MAX {
            Some("the catalog lies in too many extents")
        } else {
            self.catalog.problem()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(extents: u64) -> StoreHeader {
        StoreHeader {
            store_uuid: Uuid::from_u128(7),
            commit: 3,
            catalog: BlobPlace {
                extents: (0..extents)
                    .rev()
                    .map(|i| Extent::new(i * 2 * UNIT_BYTES, UNIT_BYTES))
                    .collect(),
                length: extents * UNIT_BYTES - 5,
                checksum: 0x0102_0304,
            },
        }
    }

    #[test]
    fn headers_read_back() {
        for extents in [1, 2, 128] {
            let header = sample(extents);
            let payload = header.encode();
            assert!(payload.len() <= STORE_HEADER_BYTES_MAX);
            assert_eq!(StoreHeader::decode(&payload).unwrap(), header);
        }
        assert_eq!(sample(128).encode().len(), STORE_HEADER_BYTES_MAX);
    }

    /// The bytes on media are the format; a change of the code must not change them.
    #[test]
    fn the_bytes_are_those_of_the_table() {
        let payload = sample(2).encode();
        assert_eq!(&payload[..16], b"SWSTORE\n\x01\0\0\0\0\0\0\0");
        assert_eq!(payload[16..32], *Uuid::from_u128(7).as_bytes());
        assert_eq!(payload[32..40], 3_u64.to_le_bytes());
        assert_eq!(payload[40..48], 8187_u64.to_le_bytes());
        assert_eq!(payload[48..56], [4, 3, 2, 1, 2, 0, 0, 0]);
        assert_eq!(payload[56..64], 8192_u64.to_le_bytes());
        assert_eq!(payload[64..72], 4096_u64.to_le_bytes());
        assert_eq!(payload[72..80], 0_u64.to_le_bytes());
        assert_eq!(payload.len(), 88);
    }

    #[test]
    fn other_payloads_newer_versions_and_damage_are_told_apart() {
        let kind = |payload: &[u8]| StoreHeader::decode(payload).unwrap_err().kind();
        assert_eq!(kind(b""), ErrorKind::NoStore);
        assert_eq!(kind(b"somebody else's record"), ErrorKind::NoStore);
        let payload = sample(2).encode();
        let changed = |at: usize, value: u8| {
            let mut payload = payload.clone();
            payload[at] = value;
            payload
        };
        assert_eq!(kind(&changed(8, 2)), ErrorKind::Unsupported);
        for (at, value) in [
            (12, 1),
            (44, 1),
            (41, 0),
            (52, 1),
            (52, 3),
            (55, 255),
            (57, 0),
            (64, 1),
        ] {
            assert_eq!(kind(&changed(at, value)), ErrorKind::Damaged, "byte {at}");
        }
        for length in 8..payload.len() {
            assert_eq!(
                kind(&payload[..length]),
                ErrorKind::Damaged,
                "{length} bytes"
            );
        }
        let mut longer = payload.clone();
        longer.push(0);
        assert_eq!(kind(&longer), ErrorKind::Damaged);
        let mut nil = payload;
        nil[16..32].fill(0);
        assert_eq!(kind(&nil), ErrorKind::Damaged);
    }

    #[test]
    #[should_panic(expected = "would be refused")]
    fn too_many_extents_are_never_written() {
        sample(129).encode();
    }

    #[test]
    fn another_blob_of_the_same_place_is_not_the_one() {
        let blob = |byte: u8| {
            let mut writer = codec::begin(*b"SWTESTS\n", 1, 8);
            writer.bytes(&[byte; 8]);
            codec::seal(writer)
        };
        let place = BlobPlace::new(vec![Extent::new(0, UNIT_BYTES)], &blob(1));
        place.check(&blob(1)).unwrap();
        for other in [blob(2), blob(1)[..31].to_vec(), Vec::new()] {
            let error = place.check(&other).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            changes in proptest::collection::vec((0..88_usize, proptest::num::u8::ANY), 0..12),
        ) {
            let mut payload = sample(2).encode();
            for (at, value) in changes {
                payload[at] = value;
            }
            if let Ok(header) = StoreHeader::decode(&payload) {
                proptest::prop_assert_eq!(header.encode(), payload);
            }
        }
    }
}
