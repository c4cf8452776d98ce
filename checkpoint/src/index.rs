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
pub(crate) mod tests;
