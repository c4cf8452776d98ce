//! The index of a checkpoint: its tensors, where their bytes lie, and what they must hash to.
//!
//! - Tensors are in the order of their names' bytes, and no name is there twice; a lookup is a
//!   binary search.
//! - The length of a tensor is what its shape and type say, its runs add up to that, and there is
//!   one checksum for each [`BLOCK_BYTES`] of it, the last block being shorter. An index that breaks
//!   this is neither written nor believed.
//! - The index names the store and the checkpoint it belongs to, so that one from elsewhere, intact
//!   as it is, is refused.
//! - A large index is decoded in one pass, in time and memory proportional to its bytes.
//!
//! The body, behind the envelope that `codec.rs` describes, with magic `SWINDEX\n` and version 1:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 24 | 16 | UUID of the store |
//! | 40 | 8 | id of the checkpoint |
//! | 48 | 4 | number of tensors |
//! | 52 | 4 | zero |
//! | 56 | | tensors, in order of their names |
//!
//! A tensor, which begins at a multiple of eight bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | length in bytes |
//! | 8 | 4 | bytes of the name |
//! | 12 | 2 | code of the data type |
//! | 14 | 2 | number of dimensions |
//! | 16 | 4 | number of runs |
//! | 20 | 4 | zero |
//! | 24 | 8 each | dimensions, the outermost first |
//! | | 16 each | runs in the order of the tensor's bytes: offset on the volume, length |
//! | | 4 each | CRC-32 of each block of 1 MiB |
//! | | | name, UTF-8 |
//! | | | zeroes up to a multiple of eight bytes |

use std::ops::Range;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::codec::{self, BLOB_BYTES_MAX, Cursor, ENVELOPE_BYTES, Writer};
use crate::dtype::{DType, RANK_MAX};
use crate::error::{Error, ErrorKind, Result};
use crate::extent::{Extent, Run};
use crate::names::{NAME_BYTES_MAX, name_problem};
use crate::place::{EXTENT_BYTES, EXTENTS_MAX, pair};

/// What one checksum of a tensor covers.
pub const BLOCK_BYTES: u64 = 1 << 20;

/// The most tensors a checkpoint may have.
pub const TENSORS_MAX: usize = 1 << 24;

const MAGIC: [u8; 8] = *b"SWINDEX\n";
const VERSION: u32 = 1;
const WHAT: &str = "index";
const HEAD_BYTES: usize = 32;
const TENSOR_HEAD_BYTES: usize = 24;

/// One tensor of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorEntry {
    /// Its name: 1 to 4096 bytes of UTF-8 without NUL.
    pub name: String,
    /// What its elements are.
    pub dtype: DType,
    /// Its dimensions, the outermost first; none for a scalar.
    pub shape: Vec<u64>,
    /// How many bytes it has.
    pub length: u64,
    /// Where these lie on the volume, in their order.
    pub runs: Vec<Run>,
    /// The CRC-32 of each block of [`BLOCK_BYTES`].
    pub checksums: Vec<u32>,
}

impl TensorEntry {
    /// Checks everything that can be known of a tensor without reading it.
    pub fn check(&self) -> Result<()> {
        match self.problem() {
            Some(problem) => Err(Error::invalid(problem).with_tensor(&self.name)),
            None => Ok(()),
        }
    }

    /// Checks what is known before a byte is written: name, type, shape and length.
    pub fn check_spec(&self) -> Result<()> {
        match self.spec_problem() {
            Some(problem) => Err(Error::invalid(problem).with_tensor(&self.name)),
            None => Ok(()),
        }
    }

    fn spec_problem(&self) -> Option<&'static str> {
        if let Some(problem) = name_problem(&self.name) {
            return Some(problem);
        }
        match self.dtype.checked_tensor_bytes(&self.shape) {
            Err(problem) => Some(problem),
            Ok(length) if length != self.length => {
                Some("the length is not that of the shape and the data type")
            }
            Ok(_) => None,
        }
    }

    fn problem(&self) -> Option<&'static str> {
        if let Some(problem) = self.spec_problem() {
            return Some(problem);
        }
        if self.runs.len() > EXTENTS_MAX {
            return Some("the tensor lies in too many pieces");
        }
        if let Some(problem) = self.runs.iter().find_map(|run| run.problem()) {
            return Some(problem);
        }
        let total = self
            .runs
            .iter()
            .try_fold(0_u64, |total, run| total.checked_add(run.length));
        if total != Some(self.length) {
            return Some("the pieces of the tensor do not add up to its length");
        }
        if self.checksums.len() as u64 != block_count(self.length) {
            return Some("the number of checksums is not that of the blocks");
        }
        None
    }

    /// How many checksum blocks it has.
    pub fn block_count(&self) -> u64 {
        block_count(self.length)
    }

    /// The bytes of the tensor that a block covers.
    ///
    /// # Panics
    ///
    /// When it has no such block.
    pub fn block_range(&self, block: u64) -> Range<u64> {
        assert!(block < self.block_count(), "no such block");
        let start = block * BLOCK_BYTES;
        start..self.length.min(start + BLOCK_BYTES)
    }

    /// Where the bytes from `offset` for `length` lie on the volume, in their order.
    ///
    /// # Panics
    ///
    /// When they reach beyond its end.
    pub fn locate(&self, offset: u64, length: u64) -> impl Iterator<Item = Run> {
        assert!(
            length <= self.length && offset <= self.length - length,
            "beyond the end of the tensor"
        );
        let mut skip = offset;
        let mut left = length;
        self.runs
            .iter()
            .map_while(move |run| {
                if left == 0 {
                    return None;
                }
                let skipped = skip.min(run.length);
                skip -= skipped;
                let taken = left.min(run.length - skipped);
                left -= taken;
                Some(Run::new(run.offset + skipped, taken))
            })
            .filter(|run| run.length > 0)
    }

    fn encoded_bytes(&self) -> usize {
        (TENSOR_HEAD_BYTES
            + 8 * self.shape.len()
            + EXTENT_BYTES * self.runs.len()
            + 4 * self.checksums.len()
            + self.name.len())
        .next_multiple_of(8)
    }

    fn write(&self, writer: &mut Writer) {
        writer.u64(self.length);
        writer.count(self.name.len());
        writer.u16(self.dtype.code());
        let rank = u16::try_from(self.shape.len()).expect("a checked rank");
        writer.u16(rank);
        writer.count(self.runs.len());
        writer.u32(0);
        for size in &self.shape {
            writer.u64(*size);
        }
        for run in &self.runs {
            writer.u64(run.offset);
            writer.u64(run.length);
        }
        for checksum in &self.checksums {
            writer.u32(*checksum);
        }
        writer.bytes(self.name.as_bytes());
        writer.pad();
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        let length = cursor.u64()?;
        let name_bytes = cursor.count(NAME_BYTES_MAX, 1)?;
        let code = cursor.u16()?;
        let rank = cursor.u16()?;
        let run_count = cursor.count(EXTENTS_MAX, EXTENT_BYTES)?;
        cursor.reserved_u32()?;
        let rank = cursor.believe(rank.into(), RANK_MAX, 8)?;
        let shape = cursor.list(rank, |bytes| u64::from_le_bytes(*bytes))?;
        let run_count = cursor.believe(run_count as u64, EXTENTS_MAX, EXTENT_BYTES)?;
        let runs = cursor.list(run_count, |bytes| {
            let (offset, length) = pair(bytes);
            Run::new(offset, length)
        })?;
        let checksum_count = cursor.believe(block_count(length), usize::MAX, 4)?;
        let checksums = cursor.list(checksum_count, |bytes| u32::from_le_bytes(*bytes))?;
        let name = cursor.text(name_bytes)?;
        cursor.pad()?;
        let Some(dtype) = DType::from_code(code) else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("the data type with code {code} is unknown here"),
            )
            .with_tensor(name));
        };
        let tensor = Self {
            name,
            dtype,
            shape,
            length,
            runs,
            checksums,
        };
        match tensor.problem() {
            Some(problem) => Err(cursor.damaged(problem).with_tensor(tensor.name)),
            None => Ok(tensor),
        }
    }
}

/// How many checksum blocks a tensor of `length` bytes has.
pub fn block_count(length: u64) -> u64 {
    length.div_ceil(BLOCK_BYTES)
}

/// The numbers of the checksum blocks that the bytes from `offset` for `length` touch.
pub fn blocks_touched(offset: u64, length: u64) -> Range<u64> {
    let first = offset / BLOCK_BYTES;
    if length == 0 {
        return first..first;
    }
    let last = (offset + (length - 1)) / BLOCK_BYTES;
    first..last + 1
}

/// The tensors of one checkpoint, checked and in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    store_uuid: Uuid,
    checkpoint_id: u64,
    tensors: Vec<TensorEntry>,
    data_bytes: u64,
}

impl Index {
    /// The index of these tensors, in any order.
    ///
    /// Refuses a tensor that contradicts itself, and a name that is there twice.
    pub fn new(
        store_uuid: Uuid,
        checkpoint_id: u64,
        mut tensors: Vec<TensorEntry>,
    ) -> Result<Self> {
        for tensor in &tensors {
            tensor.check()?;
        }
        tensors.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        if let Some(pair) = tensors.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                "the checkpoint has a tensor of this name already",
            )
            .with_tensor(&pair[0].name));
        }
        let index = Self {
            store_uuid,
            checkpoint_id,
            data_bytes: data_bytes(&tensors).ok_or_else(|| Error::invalid(TOO_LARGE))?,
            tensors,
        };
        if index.tensors.len() > TENSORS_MAX || index.encoded_bytes() as u64 > BLOB_BYTES_MAX {
            return Err(Error::invalid(TOO_LARGE));
        }
        Ok(index)
    }

    /// The store it belongs to.
    pub fn store_uuid(&self) -> Uuid {
        self.store_uuid
    }

    /// The checkpoint it belongs to.
    pub fn checkpoint_id(&self) -> u64 {
        self.checkpoint_id
    }

    /// The tensors in the order of their names.
    pub fn tensors(&self) -> &[TensorEntry] {
        &self.tensors
    }

    /// The bytes of all tensors together.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// The tensor of this name.
    pub fn find(&self, name: &str) -> Option<&TensorEntry> {
        let place = self
            .tensors
            .binary_search_by(|tensor| tensor.name.as_str().cmp(name));
        place.ok().map(|place| &self.tensors[place])
    }

    /// Checks that every tensor lies within `extents`, and no two share a byte. `extents` must be
    /// in order and disjoint, as the catalog has them.
    pub fn check_places(&self, extents: &[Extent]) -> Result<()> {
        let extents = Extent::merge(extents.to_vec());
        let mut runs: Vec<(Run, &TensorEntry)> = Vec::with_capacity(self.tensors.len());
        for tensor in &self.tensors {
            runs.extend(tensor.runs.iter().map(|run| (*run, tensor)));
        }
        runs.sort_unstable_by_key(|(run, _)| *run);
        let problem = |tensor: &TensorEntry, message: &'static str| {
            Err(Error::damaged(message).with_tensor(&tensor.name))
        };
        let mut extents = extents.iter().peekable();
        let mut end = 0;
        for (run, tensor) in runs {
            if run.offset < end {
                return problem(tensor, "the tensor shares bytes of the volume with another");
            }
            end = run.end();
            while extents
                .next_if(|extent| extent.end() <= run.offset)
                .is_some()
            {}
            let holds = |extent: &&Extent| extent.offset <= run.offset && end <= extent.end();
            if !extents.peek().is_some_and(holds) {
                return problem(tensor, "the tensor lies outside of its checkpoint");
            }
        }
        Ok(())
    }

    /// How many bytes [`Index::encode`] will return.
    pub fn encoded_bytes(&self) -> usize {
        let tensors = self.tensors.iter().map(TensorEntry::encoded_bytes);
        ENVELOPE_BYTES + HEAD_BYTES + tensors.sum::<usize>()
    }

    /// The blob to write.
    pub fn encode(&self) -> Vec<u8> {
        let body_bytes = self.encoded_bytes() - ENVELOPE_BYTES;
        let mut writer = codec::begin(MAGIC, VERSION, body_bytes);
        writer.uuid(self.store_uuid);
        writer.u64(self.checkpoint_id);
        writer.count(self.tensors.len());
        writer.u32(0);
        for tensor in &self.tensors {
            tensor.write(&mut writer);
        }
        let blob = codec::seal(writer);
        assert_eq!(blob.len(), self.encoded_bytes(), "the length was foretold");
        blob
    }

    /// Reads a blob. Whether it is of the right store and checkpoint is [`Index::check_owner`].
    pub fn decode(blob: &[u8]) -> Result<Self> {
        let mut cursor = codec::open(WHAT, MAGIC, VERSION, blob)?;
        let store_uuid = cursor.uuid()?;
        let checkpoint_id = cursor.u64()?;
        let count = cursor.count(TENSORS_MAX, TENSOR_HEAD_BYTES)?;
        cursor.reserved_u32()?;
        let mut tensors: Vec<TensorEntry> = Vec::with_capacity(count);
        for _ in 0..count {
            let tensor = TensorEntry::read(&mut cursor)?;
            if tensors.last().is_some_and(|last| last.name >= tensor.name) {
                return Err(cursor
                    .damaged("the names are out of order or one is there twice")
                    .with_tensor(tensor.name));
            }
            tensors.push(tensor);
        }
        let Some(data_bytes) = data_bytes(&tensors) else {
            return Err(cursor.damaged(TOO_LARGE));
        };
        cursor.finish()?;
        Ok(Self {
            store_uuid,
            checkpoint_id,
            tensors,
            data_bytes,
        })
    }

    /// Checks that it is the index of this checkpoint of this store.
    pub fn check_owner(&self, store_uuid: Uuid, checkpoint_id: u64) -> Result<()> {
        if self.store_uuid == store_uuid && self.checkpoint_id == checkpoint_id {
            Ok(())
        } else {
            Err(Error::damaged(format!(
                "the index is that of checkpoint id {} in store {}",
                self.checkpoint_id, self.store_uuid
            )))
        }
    }
}

const TOO_LARGE: &str = "the checkpoint has more tensors or bytes than one may have";

fn data_bytes(tensors: &[TensorEntry]) -> Option<u64> {
    tensors
        .iter()
        .try_fold(0_u64, |total, tensor| total.checked_add(tensor.length))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    const STORE: Uuid = Uuid::from_u128(7);

    type Change = fn(&mut TensorEntry);

    /// A tensor of bytes in the given runs, with checksums that are easy to tell apart.
    pub(crate) fn tensor(name: &str, runs: &[(u64, u64)]) -> TensorEntry {
        let length = runs.iter().map(|(_, length)| length).sum();
        TensorEntry {
            name: name.to_owned(),
            dtype: DType::U8,
            shape: vec![length],
            length,
            runs: runs
                .iter()
                .map(|(offset, length)| Run::new(*offset, *length))
                .collect(),
            checksums: (1..)
                .take(usize::try_from(block_count(length)).unwrap())
                .collect(),
        }
    }

    fn index(tensors: Vec<TensorEntry>) -> Result<Index> {
        Index::new(STORE, 9, tensors)
    }

    fn sample() -> Index {
        let mut scalar = tensor("scalar", &[(4096, 8)]);
        scalar.dtype = DType::F64;
        scalar.shape = vec![];
        let mut empty = tensor("empty", &[]);
        empty.shape = vec![3, 0, 5];
        index(vec![
            scalar,
            tensor("Ελληνικά", &[(1 << 40, BLOCK_BYTES), (0, 1)]),
            empty,
        ])
        .unwrap()
    }

    #[test]
    fn an_index_reads_back_in_order_of_names() {
        let index = sample();
        let decoded = Index::decode(&index.encode()).unwrap();
        assert_eq!(decoded, index);
        let names: Vec<&str> = decoded.tensors().iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["empty", "scalar", "Ελληνικά"]);
        assert_eq!(decoded.data_bytes(), BLOCK_BYTES + 9);
        assert_eq!(decoded.find("scalar").map(|t| t.length), Some(8));
        assert_eq!(decoded.find("scala"), None);
        decoded.check_owner(STORE, 9).unwrap();
        assert!(decoded.check_owner(STORE, 8).is_err());
        assert!(decoded.check_owner(Uuid::from_u128(8), 9).is_err());
        let none = Index::new(STORE, 1, vec![]).unwrap();
        assert_eq!(Index::decode(&none.encode()).unwrap(), none);
    }

    /// The bytes on media are the format; a change of the code must not change them.
    #[test]
    fn the_bytes_are_those_of_the_table() {
        let blob = index(vec![tensor("abc", &[(4096, 5), (9, 1)])])
            .unwrap()
            .encode();
        assert_eq!(&blob[..12], b"SWINDEX\n\x01\0\0\0");
        assert_eq!(blob[16..24], (blob.len() as u64).to_le_bytes());
        assert_eq!(&blob[24..40], STORE.as_bytes());
        assert_eq!(
            &blob[40..56],
            [9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
        );
        let expected = [[6_u64, 5 << 32 | 1 << 48 | 3, 2, 6, 4096, 5, 9, 1].map(u64::to_le_bytes)];
        assert_eq!(blob[56..120], *expected.as_flattened().as_flattened());
        assert_eq!(&blob[120..], b"\x01\0\0\0abc\0");
    }

    #[test]
    fn every_bit_flip_is_damage() {
        let mut blob = sample().encode();
        for bit in 0..blob.len() * 8 {
            blob[bit / 8] ^= 1 << (bit % 8);
            let error = Index::decode(&blob).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "bit {bit}");
            blob[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn tensors_that_contradict_themselves_are_refused() {
        let good = tensor("a", &[(0, BLOCK_BYTES + 1)]);
        good.check().unwrap();
        let cases: &[(&str, Change)] = &[
            ("empty", |t| t.name.clear()),
            ("4096", |t| t.name = "n".repeat(4097)),
            ("NUL", |t| t.name = "a\0".into()),
            ("shape", |t| t.shape[0] += 1),
            ("shape", |t| t.dtype = DType::U16),
            ("shape", |t| t.length -= 1),
            ("more bytes", |t| t.shape = vec![u64::MAX, 2]),
            ("dimensions", |t| t.shape = vec![1; 65]),
            ("add up", |t| t.runs[0].length -= 1),
            ("add up", |t| t.runs.clear()),
            ("add up", |t| {
                t.runs.push(Run::new(0, 1 << 63));
                t.runs.push(Run::new(0, (1 << 63) - 1));
            }),
            ("is empty", |t| t.runs.push(Run::new(5, 0))),
            ("beyond", |t| t.runs[0].offset = u64::MAX),
            ("beyond", |t| t.runs[0].offset = 1 << 63),
            ("checksums", |t| t.checksums.push(0)),
            ("checksums", |t| t.checksums.truncate(1)),
        ];
        for (expected, change) in cases {
            let mut bad = good.clone();
            change(&mut bad);
            let in_spec = ["empty", "4096", "NUL", "shape", "more bytes", "dimensions"];
            assert_eq!(
                bad.check_spec().is_err(),
                in_spec.contains(expected),
                "{expected}"
            );
            let error = index(vec![bad]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn a_name_twice_is_refused() {
        let error = index(vec![tensor("a", &[]), tensor("b", &[]), tensor("a", &[])]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(error.tensor(), Some("a"));
    }

    #[test]
    fn more_bytes_than_can_be_counted_are_refused() {
        let huge = |name: &str| {
            let mut huge = tensor(name, &[]);
            huge.length = i64::MAX as u64;
            huge
        };
        // Such a tensor needs 8 Ti checksums, so only the sum is looked at here.
        assert_eq!(data_bytes(&[huge("a"), huge("b"), huge("c")]), None);
    }

    /// What was sealed by a broken or hostile writer has a right checksum, and is looked at again.
    #[test]
    fn sealed_nonsense_is_damage() {
        let reseal = |change: &dyn Fn(&mut Vec<u8>)| {
            let blob = index(vec![tensor("abc", &[(4096, 6)]), tensor("abd", &[])])
                .unwrap()
                .encode();
            let mut writer = codec::begin(MAGIC, VERSION, 0);
            let mut body = blob[ENVELOPE_BYTES..].to_vec();
            change(&mut body);
            writer.bytes(&body);
            Index::decode(&codec::seal(writer)).map_err(|error| error.kind())
        };
        assert!(reseal(&|_| {}).is_ok());
        // The first tensor begins at 32 of the body, and its name at 32 + 24 + 8 + 16 + 4.
        let name_at = 84;
        let damaged: &[(usize, u8)] = &[
            (24, 1),
            (24, 3),
            (27, 0xff),
            (28, 1),
            (32, 7),
            (39, 0xff),
            (40, 2),
            (41, 0xff),
            (46, 2),
            (47, 0xff),
            (48, 2),
            (51, 0xff),
            (52, 1),
            (56, 7),
            (72, 7),
            (name_at + 2, 0xff),
            (name_at + 2, 0),
            (name_at + 2, b'd'),
            (name_at + 2, b'e'),
            (name_at + 3, 1),
        ];
        for (at, value) in damaged {
            let kind = reseal(&|body| body[*at] = *value).unwrap_err();
            assert_eq!(kind, ErrorKind::Damaged, "{value} at {at}");
        }
        let kind = reseal(&|body| body[44] = 99).unwrap_err();
        assert_eq!(kind, ErrorKind::Unsupported);
        assert!(reseal(&|body| body.truncate(100)).is_err());
        assert!(reseal(&|body| body.extend([0; 8])).is_err());
    }

    #[test]
    fn places_within_the_checkpoint_and_apart_are_accepted() {
        let check = |tensors: Vec<TensorEntry>, extents: &[(u64, u64)]| {
            let extents: Vec<Extent> = extents
                .iter()
                .map(|(offset, length)| Extent::new(*offset, *length))
                .collect();
            index(tensors).unwrap().check_places(&extents)
        };
        let packed = || {
            vec![
                tensor("a", &[(8192, 100), (0, 4096)]),
                tensor("b", &[(8292, 5000)]),
                tensor("c", &[]),
            ]
        };
        check(packed(), &[(0, 4096), (8192, 4096), (12288, 4096)]).unwrap();
        check(vec![], &[]).unwrap();
        for extents in [
            &[][..],
            &[(0, 4096)],
            &[(8192, 8192)],
            &[(0, 4096), (8192, 4096)],
            &[(0, 4096), (8192, 4096), (16384, 4096)],
        ] {
            let error = check(packed(), extents).unwrap_err();
            assert!(error.to_string().contains("outside"), "{error}");
        }
        let shared = vec![tensor("a", &[(0, 10)]), tensor("b", &[(9, 1)])];
        let error = check(shared, &[(0, 4096)]).unwrap_err();
        assert!(error.to_string().contains("shares"), "{error}");
    }

    #[test]
    fn ranges_are_located_in_runs_and_blocks() {
        let t = tensor("a", &[(100, 10), (50, 1), (200, 20)]);
        let locate = |offset, length| t.locate(offset, length).collect::<Vec<_>>();
        assert_eq!(locate(0, 31), t.runs);
        assert_eq!(
            locate(9, 3),
            [Run::new(109, 1), Run::new(50, 1), Run::new(200, 1)]
        );
        assert_eq!(locate(11, 20), [Run::new(200, 20)]);
        assert_eq!(locate(31, 0), []);
        assert_eq!(locate(0, 0), []);
        assert_eq!(blocks_touched(0, 0), 0..0);
        assert_eq!(blocks_touched(BLOCK_BYTES - 1, 2), 0..2);
        assert_eq!(blocks_touched(BLOCK_BYTES, BLOCK_BYTES), 1..2);
        let t = tensor("a", &[(0, BLOCK_BYTES + 5)]);
        assert_eq!(t.block_count(), 2);
        assert_eq!(t.block_range(1), BLOCK_BYTES..BLOCK_BYTES + 5);
    }

    #[test]
    #[should_panic(expected = "beyond the end")]
    fn nothing_is_located_beyond_the_end() {
        let _ = tensor("a", &[(0, 5)]).locate(5, 1);
    }

    /// The time is printed, and its limit is far off what a slow machine in a debug build needs.
    #[test]
    fn a_hundred_thousand_tensors_are_decoded_quickly() {
        let tensors = (0..100_000_u64)
            .map(|i| {
                tensor(
                    &format!("model.layers.{i}.self_attn.weight"),
                    &[(i * 1024, 1024)],
                )
            })
            .collect();
        let index = index(tensors).unwrap();
        let blob = index.encode();
        let start = std::time::Instant::now();
        let decoded = Index::decode(&blob).unwrap();
        let decode = start.elapsed();
        decoded
            .check_places(&[Extent::new(0, 102_400_000)])
            .unwrap();
        let check = start.elapsed() - decode;
        println!(
            "{} bytes: decoded in {decode:?}, checked in {check:?}",
            blob.len()
        );
        assert_eq!(decoded, index);
        assert!(decode.as_secs() < 5);
    }

    fn any_tensor() -> impl Strategy<Value = TensorEntry> {
        let dtypes: Vec<DType> = DType::all().filter(|dtype| dtype.bits() >= 8).collect();
        (
            "[^\0]{1,20}",
            prop::sample::select(dtypes),
            prop::collection::vec(0..70_u64, 0..4),
            any::<u32>(),
            prop::collection::vec(any::<u64>(), 0..4),
        )
            .prop_map(|(name, dtype, shape, seed, cuts)| {
                let length = dtype.tensor_bytes(&shape).unwrap();
                let mut ends: Vec<u64> = cuts.iter().map(|cut| cut % (length + 1)).collect();
                ends.extend([0, length]);
                ends.sort_unstable();
                ends.dedup();
                let runs = ends
                    .windows(2)
                    .map(|w| Run::new(u64::from(seed) + 2 * w[0], w[1] - w[0]));
                let blocks = u32::try_from(block_count(length)).unwrap();
                TensorEntry {
                    name,
                    dtype,
                    shape,
                    length,
                    runs: runs.collect(),
                    checksums: (0..blocks).map(|block| seed ^ block).collect(),
                }
            })
    }

    proptest! {
        #[test]
        fn what_is_encoded_reads_back(tensors in prop::collection::vec(any_tensor(), 0..12)) {
            let mut names: Vec<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
            names.sort_unstable();
            let unique = names.windows(2).all(|pair| pair[0] != pair[1]);
            match index(tensors.clone()) {
                Ok(index) => {
                    prop_assert!(unique);
                    prop_assert_eq!(Index::decode(&index.encode()).unwrap(), index);
                }
                Err(error) => {
                    prop_assert!(!unique);
                    prop_assert_eq!(error.kind(), ErrorKind::AlreadyExists);
                }
            }
        }

        /// Bytes changed at will and sealed again reach every check behind the checksum; whatever
        /// is accepted is what would have been written.
        #[test]
        fn no_bytes_make_it_panic(
            changes in prop::collection::vec((0..200_usize, any::<u8>()), 1..6),
        ) {
            let mut body = sample().encode()[ENVELOPE_BYTES..].to_vec();
            for (at, value) in changes {
                let at = at % body.len();
                body[at] = value;
            }
            let mut writer = codec::begin(MAGIC, VERSION, 0);
            writer.bytes(&body);
            let blob = codec::seal(writer);
            if let Ok(index) = Index::decode(&blob) {
                prop_assert_eq!(index.encode(), blob);
            }
        }

        #[test]
        fn noise_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Index::decode(&bytes).is_err());
        }
    }
}
