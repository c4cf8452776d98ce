//! [`Checks`]: blocks compared with their checksums, whatever parts they come in and in which order.

use std::collections::HashMap;

use crc32fast::Hasher;

use crate::blob::usize_of;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::index::{BLOCK_BYTES, TensorEntry};

/// Bytes that are hashed are copied while they are in the processor's caches.
const STEP_BYTES: usize = 32 << 10;

/// The checks of some tensors.
pub(super) struct Checks<'a> {
    checkpoint: &'a Checkpoint,
    tensors: Vec<&'a TensorEntry>,
    trust: bool,
    /// Blocks of which some came, by tensor and number.
    begun: HashMap<(usize, u64), Begun>,
}

/// A block of which some came.
struct Begun {
    /// How many bytes have not.
    left: u64,
    /// Where in the tensor each part begins, and its checksum in the making.
    parts: Vec<(u64, Hasher)>,
}

impl<'a> Checks<'a> {
    pub(super) fn new(
        checkpoint: &'a Checkpoint,
        tensors: Vec<&'a TensorEntry>,
        trust: bool,
    ) -> Self {
        Self {
            checkpoint,
            tensors,
            trust,
            begun: HashMap::new(),
        }
    }

    /// Takes bytes of a tensor that came straight into its memory.
    pub(super) fn take(&mut self, tensor: usize, at: u64, bytes: &[u8]) -> Result<()> {
        if self.trust {
            return Ok(());
        }
        self.take_parts(tensor, at, bytes, |hasher, part, _| hasher.update(part))
    }

    /// Takes bytes of a tensor that came into a buffer, and copies those behind the first `skip`
    /// into `memory`, as many as it has room for.
    pub(super) fn take_copy(
        &mut self,
        tensor: usize,
        at: u64,
        bytes: &[u8],
        skip: usize,
        memory: &mut [u8],
    ) -> Result<()> {
        if self.trust {
            if !memory.is_empty() {
                memory.copy_from_slice(&bytes[skip..skip + memory.len()]);
            }
            return Ok(());
        }
        let wanted = skip..skip + memory.len();
        self.take_parts(tensor, at, bytes, |hasher, part, from| {
            let mut from = from;
            for step in part.chunks(STEP_BYTES) {
                hasher.update(step);
                let first = from.max(wanted.start);
                let last = (from + step.len()).min(wanted.end);
                if first < last {
                    memory[first - skip..last - skip]
                        .copy_from_slice(&step[first - from..last - from]);
                }
                from += step.len();
            }
        })
    }

    /// Gives `work` each part of `bytes` that is of one block, and where in `bytes` it begins.
    fn take_parts(
        &mut self,
        tensor: usize,
        at: u64,
        bytes: &[u8],
        mut work: impl FnMut(&mut Hasher, &[u8], usize),
    ) -> Result<()> {
        let mut done = 0;
        let mut outcome = Ok(());
        while done < bytes.len() {
            let begin = at + done as u64;
            let block = begin / BLOCK_BYTES;
            let room = usize_of((block + 1) * BLOCK_BYTES - begin);
            let length = room.min(bytes.len() - done);
            let mut hasher = Hasher::new();
            work(&mut hasher, &bytes[done..done + length], done);
            outcome = outcome.and(self.end_part(tensor, block, begin, length as u64, hasher));
            done += length;
        }
        outcome
    }

    /// Checks a block when this was all that was missing of it.
    fn end_part(
        &mut self,
        tensor: usize,
        block: u64,
        begin: u64,
        length: u64,
        hasher: Hasher,
    ) -> Result<()> {
        let entry = self.tensors[tensor];
        let range = entry.block_range(block);
        if length == range.end - range.start {
            return self.checkpoint.check_block(entry, block, hasher.finalize());
        }
        let key = (tensor, block);
        let begun = self.begun.entry(key).or_insert_with(|| Begun {
            left: range.end - range.start,
            parts: Vec::with_capacity(2),
        });
        begun.left -= length;
        begun.parts.push((begin, hasher));
        if begun.left > 0 {
            return Ok(());
        }
        let mut parts = self.begun.remove(&key).map_or(Vec::new(), |it| it.parts);
        parts.sort_unstable_by_key(|(begin, _)| *begin);
        let mut whole = Hasher::new();
        parts.iter().for_each(|(_, part)| whole.combine(part));
        self.checkpoint.check_block(entry, block, whole.finalize())
    }

    /// An error, as one of a tensor.
    pub(super) fn error(&self, tensor: usize, error: impl Into<Error>) -> Error {
        self.checkpoint
            .tensor_error(self.tensors[tensor], error.into())
    }
}
