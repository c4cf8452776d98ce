//! [`Writer`]: one thread's way to put tensors into a session.
//!
//! - Tensors of a block (1 MiB) and more have space of their own, from a 4 KiB border on, and go
//!   from the caller's memory to the drives without a copy when that memory is aligned; smaller
//!   ones are packed one after the other through a buffer.
//! - Transfers are cut at chunk borders, so that each is one operation on one member; a bounded
//!   number is in flight, and the drives do not wait for checksums.
//! - The first failure is the session's, whatever the caller does with the error: commit tells it.

mod direct;

use std::fmt;
use std::sync::Arc;

use swath_engine::{BufPool, Completion, LaneOptions, PoolBuf};
use swath_volume::VolumeLane;

use crate::blob::usize_of;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::extent::{Extent, Run, UNIT_BYTES};
use crate::index::{BLOCK_BYTES, TensorEntry};
use crate::ledger::Ledger;
use crate::stream::TensorStream;
use crate::sums::BlockSums;
use crate::transfer::pieces;
use crate::view::TensorView;

/// From this size on a tensor begins on a chunk's border.
const ALIGNED_BYTES_MIN: u64 = 8 * BLOCK_BYTES;

/// How much is copied before it is checksummed: what is still in the core's own cache.
const COPIED_BYTES: usize = 64 << 10;

/// One thread's way into a session. Made by [`Session::writer`](crate::Session::writer) on the
/// thread that uses it.
///
/// [`finish`](Self::finish) it before the session commits; dropping it finishes it too, and leaves
/// an error to the commit.
pub struct Writer {
    lane: VolumeLane,
    pool: BufPool,
    completions: Vec<Completion>,
    window: usize,
    pub(crate) chunk_bytes: u64,
    block_bytes: u64,
    memory_align_bytes: usize,
    pack: Option<Pack>,
    is_finished: bool,
    /// How often a buffer of the pool was used.
    buffers_used: u64,
    /// Last, so that it is dropped after the lane: with the last of its ledger, space is free for
    /// others, and nothing may be in flight to it then.
    pub(crate) ledger: Arc<Ledger>,
}

/// The buffer that small tensors are packed into.
struct Pack {
    buffer: PoolBuf,
    extent: Extent,
    used: u64,
}

impl Writer {
    pub(crate) fn open(ledger: Arc<Ledger>) -> Result<Self> {
        let options = &ledger.options;
        let volume = &ledger.volume;
        let pool = ledger.take_pool()?;
        let mut lane_options: LaneOptions = options.lane.clone();
        // The pool is not registered: that would make all of it resident.
        lane_options.queue.pools.clear();
        lane_options.queue.depth = options.depth.clamp(1, 256) * 2;
        lane_options.statistics = false;
        let lane = volume.lane(&lane_options)?;
        let writer = Self {
            lane,
            pool,
            completions: Vec::new(),
            window: options.window(),
            chunk_bytes: volume.chunk_bytes(),
            block_bytes: u64::from(volume.block_bytes()),
            memory_align_bytes: volume.memory_align_bytes() as usize,
            pack: None,
            is_finished: false,
            buffers_used: 0,
            ledger,
        };
        writer.ledger.opened();
        Ok(writer)
    }

    /// Puts a tensor whose bytes are at hand. Returns when `bytes` is no longer needed.
    ///
    /// The drives have little to do at its end, before the next one begins: see
    /// [`put_many`](Self::put_many).
    ///
    /// # Errors
    ///
    /// A name that is empty, too long, has a NUL byte in it, or is taken; a shape and type that
    /// do not add up to as many bytes; no space; a member that fails. After the last two the
    /// session cannot be committed.
    pub fn put(&mut self, name: &str, dtype: DType, shape: &[u64], bytes: &[u8]) -> Result<()> {
        self.put_many(&[TensorView {
            name,
            dtype,
            shape,
            bytes,
        }])
    }

    /// Puts tensors whose bytes are at hand, and keeps the drives busy from one to the next. Returns
    /// when none of their bytes is needed any more.
    ///
    /// Those that are copied (small ones, and those whose memory is not aligned) go first.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put). When a name or a shape is refused, none of them was put.
    pub fn put_many(&mut self, tensors: &[TensorView<'_>]) -> Result<()> {
        let mut copied = Vec::new();
        let mut direct = Vec::new();
        for view in tensors {
            let bytes = view.bytes;
            match self.claim(view.name, view.dtype, view.shape, bytes.len() as u64) {
                Ok(entry) if self.goes_direct(bytes) => direct.push(Put { entry, bytes }),
                Ok(entry) => copied.push(Put { entry, bytes }),
                Err(error) => {
                    let claimed = copied.iter().chain(&direct);
                    claimed.for_each(|put| self.ledger.disclaim(&put.entry.name));
                    return Err(error);
                }
            }
        }
        for Put { mut entry, bytes } in copied {
            let outcome = if entry.length < BLOCK_BYTES {
                self.pack_in(&mut entry, bytes)
            } else {
                self.put_copied(&mut entry, bytes)
            };
            let outcome = outcome.and_then(|()| self.check_source(&entry, bytes));
            self.settle(entry, outcome)?;
        }
        self.put_direct(direct)
    }

    /// Whether a tensor goes to the drives from the caller's memory.
    fn goes_direct(&self, bytes: &[u8]) -> bool {
        let address = bytes.as_ptr().addr();
        bytes.len() as u64 >= BLOCK_BYTES && address.is_multiple_of(self.memory_align_bytes)
    }

    /// Puts a tensor whose bytes come in pieces, by [`TensorStream::write`].
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put). A stream that is dropped before all bytes came fails the session.
    pub fn put_stream(
        &mut self,
        name: &str,
        dtype: DType,
        shape: &[u64],
    ) -> Result<TensorStream<'_>> {
        let length = dtype
            .tensor_bytes(shape)
            .map_err(|error| self.ledger.tensor_error(name, error))?;
        let mut entry = self.claim(name, dtype, shape, length)?;
        match self.place(&mut entry) {
            Ok(()) => Ok(TensorStream::new(self, entry)),
            Err(error) => Err(self.failed(name, error)),
        }
    }

    /// Begins a large tensor whose blocks any of the session's writers write, in any order, each
    /// with its checksum for the entry. Whoever has the last settles it.
    pub(crate) fn begin_blocks(
        &mut self,
        name: &str,
        dtype: DType,
        shape: &[u64],
        length: u64,
    ) -> Result<TensorEntry> {
        let mut entry = self.claim(name, dtype, shape, length)?;
        entry.checksums = vec![0; usize_of(entry.block_count())];
        match self.place(&mut entry) {
            Ok(()) => Ok(entry),
            Err(error) => Err(self.failed(name, error)),
        }
    }

    /// Starts writing a whole block of such a tensor, from its own buffer where it lies in one run.
    pub(crate) fn write_block(&mut self, runs: &[Run], block: PoolBuf) -> Result<()> {
        match runs {
            [run] => self.write_padded(run.offset, block),
            runs => self.copy_block(runs, &block),
        }
    }

    /// Starts writing a block of such a tensor, through buffers: its bytes are free on return.
    pub(crate) fn copy_block(&mut self, runs: &[Run], bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        for run in runs {
            let (now, later) = rest.split_at(usize_of(run.length));
            rest = later;
            let mut buffer = self.take_buffer()?;
            buffer.set_len(now.len());
            buffer.copy_from_slice(now);
            self.write_padded(run.offset, buffer)?;
        }
        Ok(())
    }

    /// Transfers that are under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.lane.in_flight()
    }

    /// Waits for one of them.
    pub(crate) fn wait_some(&mut self) -> Result<()> {
        self.reap(1)
    }

    /// Writes out what is packed and waits for every transfer.
    ///
    /// # Errors
    ///
    /// A member that failed, in this call or earlier.
    pub fn finish(mut self) -> Result<()> {
        self.finish_in_place()
    }

    /// How often a buffer was used: each is a copy of up to 1 MiB. Tensors that go to the drives
    /// from the caller's memory use none, but for a tail shorter than a block.
    pub fn buffers_used(&self) -> u64 {
        self.buffers_used
    }

    /// Checks a tensor and claims its name.
    fn claim(
        &mut self,
        name: &str,
        dtype: DType,
        shape: &[u64],
        length: u64,
    ) -> Result<TensorEntry> {
        let entry = TensorEntry {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
            length,
            runs: Vec::new(),
            checksums: Vec::new(),
        };
        entry
            .check_spec()
            .map_err(|error| self.ledger.tensor_error(name, error))?;
        self.ledger.claim(name)?;
        Ok(entry)
    }

    /// Reads borrowed memory once more, where that was asked for.
    fn check_source(&self, entry: &TensorEntry, bytes: &[u8]) -> Result<()> {
        if self.ledger.verify_source {
            check_source(bytes, &entry.checksums)
        } else {
            Ok(())
        }
    }

    /// Enters a tensor that is written, or takes note of why it is not.
    pub(crate) fn settle(&mut self, entry: TensorEntry, outcome: Result<()>) -> Result<()> {
        match outcome {
            Ok(()) => {
                self.ledger.enter(entry);
                Ok(())
            }
            Err(error) => Err(self.failed(&entry.name, error)),
        }
    }

    pub(crate) fn failed(&self, tensor: &str, error: Error) -> Error {
        let error = self.ledger.tensor_error(tensor, error);
        self.ledger.fail(&error);
        error
    }

    /// Takes space for a large tensor.
    pub(crate) fn place(&mut self, entry: &mut TensorEntry) -> Result<()> {
        if entry.length == 0 {
            return Ok(());
        }
        // On a chunk's border, where that wastes little: a block is then one operation on one
        // member, when it is written and when it is read.
        let align = if entry.length >= ALIGNED_BYTES_MIN {
            self.chunk_bytes.min(BLOCK_BYTES)
        } else {
            UNIT_BYTES
        };
        let length = entry.length.next_multiple_of(UNIT_BYTES);
        let extents = match (self.ledger.allocate(length, align), self.pack.take()) {
            // The rest of the pack's space is needed now.
            (Err(error), Some(pack)) if error.kind() == ErrorKind::NoSpace => {
                self.close_pack(pack)?;
                self.ledger.allocate(length, align)?
            }
            (extents, pack) => {
                self.pack = pack;
                extents?
            }
        };
        let mut left = entry.length;
        for extent in extents {
            let length = extent.length.min(left);
            left -= length;
            entry.runs.push(Run::new(extent.offset, length));
        }
        Ok(())
    }

    /// Packs a small tensor behind the one before.
    fn pack_in(&mut self, entry: &mut TensorEntry, bytes: &[u8]) -> Result<()> {
        let mut sums = BlockSums::default();
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut pack = match self.pack.take() {
                Some(pack) => pack,
                None => self.open_pack()?,
            };
            let used = usize_of(pack.used);
            let room = usize_of(pack.extent.length) - used;
            let (now, later) = rest.split_at(room.min(rest.len()));
            copy_summed(now, &mut pack.buffer[used..used + now.len()], &mut sums);
            entry
                .runs
                .push(Run::new(pack.extent.offset + pack.used, now.len() as u64));
            pack.used += now.len() as u64;
            rest = later;
            if pack.used == pack.extent.length {
                self.close_pack(pack)?;
            } else {
                self.pack = Some(pack);
            }
        }
        entry.checksums = sums.finish();
        // It may still be in the buffer: commit waits for the writer, and hears of its failure.
        Ok(())
    }

    fn open_pack(&mut self) -> Result<Pack> {
        let extent = self.ledger.allocate_up_to(BLOCK_BYTES)?;
        let mut buffer = self.take_buffer()?;
        buffer.set_len(usize_of(extent.length));
        Ok(Pack {
            buffer,
            extent,
            used: 0,
        })
    }

    fn close_pack(&mut self, mut pack: Pack) -> Result<()> {
        let padded = pack.used.next_multiple_of(UNIT_BYTES);
        pack.buffer.set_len(usize_of(pack.used));
        self.ledger.give_back(Extent::new(
            pack.extent.offset + padded,
            pack.extent.length - padded,
        ));
        self.write_padded(pack.extent.offset, pack.buffer)
    }

    /// Writes a large tensor through buffers: the caller's memory is not aligned.
    fn put_copied(&mut self, entry: &mut TensorEntry, bytes: &[u8]) -> Result<()> {
        self.place(entry)?;
        let mut sums = BlockSums::default();
        for piece in pieces(&entry.runs, self.chunk_bytes) {
            let from = usize_of(piece.position);
            let memory = &bytes[from..from + usize_of(piece.length)];
            let mut buffer = self.take_buffer()?;
            buffer.set_len(memory.len());
            copy_summed(memory, &mut buffer, &mut sums);
            self.write_padded(piece.offset, buffer)?;
        }
        entry.checksums = sums.finish();
        Ok(())
    }

    /// A buffer of the pool; waits for one when all are in flight.
    pub(crate) fn take_buffer(&mut self) -> Result<PoolBuf> {
        self.buffers_used += 1;
        loop {
            if let Some(buffer) = self.pool.take() {
                return Ok(buffer);
            }
            self.reap(1)?;
        }
    }

    /// Starts a write of a buffer, padded with zeroes to whole blocks. Waits first when as many as
    /// may be are in flight: the next buffer is filled while all of them are.
    pub(crate) fn write_padded(&mut self, offset: u64, mut buffer: PoolBuf) -> Result<()> {
        let length = buffer.len();
        buffer.set_len(usize_of((length as u64).next_multiple_of(self.block_bytes)));
        buffer[length..].fill(0);
        while self.lane.in_flight() >= self.window {
            self.reap(1)?;
        }
        self.lane.write(offset, buffer, 0);
        self.reap(0)
    }

    /// Starts what is queued, waits for `min` completions, and tells the first failure.
    fn reap(&mut self, min: usize) -> Result<()> {
        let visit = self.lane.wait(min, &mut self.completions);
        let mut outcome = visit.map(drop).map_err(Error::from);
        for completion in self.completions.drain(..) {
            // The buffer goes back to the pool here.
            if let Err(error) = completion.result {
                outcome = outcome.and(Err(error.into()));
            }
        }
        outcome
    }

    fn finish_in_place(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_finished, true) {
            return Ok(());
        }
        let packed = self
            .pack
            .take()
            .map_or(Ok(()), |pack| self.close_pack(pack));
        let drained = self.reap(self.lane.in_flight());
        let outcome = packed
            .and(drained)
            .map_err(|error| self.ledger.name_error(error));
        if let Err(error) = &outcome {
            self.ledger.fail(error);
        }
        self.ledger.done();
        outcome
    }
}

/// A tensor that is being put.
struct Put<'a> {
    entry: TensorEntry,
    bytes: &'a [u8],
}

/// Copies bytes, and adds to the checksums what was copied, in one pass.
pub(crate) fn copy_summed(from: &[u8], to: &mut [u8], sums: &mut BlockSums) {
    for (from, to) in from.chunks(COPIED_BYTES).zip(to.chunks_mut(COPIED_BYTES)) {
        to.copy_from_slice(from);
        sums.add(to);
    }
}

/// Makes sure that borrowed memory is what was written.
fn check_source(bytes: &[u8], checksums: &[u32]) -> Result<()> {
    let blocks = bytes.chunks(usize_of(BLOCK_BYTES)).zip(checksums);
    for (number, (block, &checksum)) in (0..).zip(blocks) {
        if crc32fast::hash(block) != checksum {
            return Err(Error::new(
                ErrorKind::Changed,
                "the memory was changed while it was being written",
            )
            .with_block(number));
        }
    }
    Ok(())
}

impl Drop for Writer {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.is_finished {
            self.ledger.fail(&Error::new(
                ErrorKind::Other,
                "a thread with a writer panicked",
            ));
        }
        // A failure is the session's from here on.
        let _ = self.finish_in_place();
        self.ledger.keep_pool(&self.pool);
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("session", &self.ledger.name)
            .field("buffers_used", &self.buffers_used)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
