//! [`Reader`]: one thread's way to read a checkpoint.
//!
//! - Every block that is touched is checked before any of its bytes are given out as good, unless
//!   the caller trusts them.
//! - However many tensors are read at once, they are one plan of transfers (`plan.rs`), which are
//!   kept under way until it is done (`flow.rs`), each block checked while others come
//!   (`checks.rs`). The queue does not run empty where one tensor ends and another begins.
//! - Whole blocks go straight into the caller's memory when that is aligned. Everything else goes
//!   through a buffer of the pool: parts of blocks, small tensors, memory that is not aligned.
//! - Small tensors lie packed together: those that a buffer holds already are not read again.

mod checks;
mod flow;
mod plan;

use std::fmt;
use std::ops::Range;

use swath_engine::{BufPool, PoolBuf};
use swath_volume::VolumeLane;

use self::checks::Checks;
use self::flow::Flow;
pub(crate) use self::plan::Want;
use self::plan::{Geometry, Plan};
use crate::blob::usize_of;
use crate::checkpoint::{Checkpoint, ReadOptions, TensorTarget};
use crate::error::{Error, ErrorKind, Result};
use crate::extent::{Run, UNIT_BYTES};
use crate::index::{BLOCK_BYTES, TensorEntry};
use crate::options::PIECE_BYTES;
use crate::region::Region;

/// One thread's way to read. Made by [`Checkpoint::reader`] on the thread that uses it.
pub struct Reader {
    checkpoint: Checkpoint,
    lane: VolumeLane,
    pool: BufPool,
    window: usize,
    geometry: Geometry,
    trust: bool,
    /// Whether the lane may have transfers that nobody waits for any more.
    is_adrift: bool,
    /// The part of the volume that the last small tensor came from.
    cache: Option<Cache>,
}

/// Some of the volume, in a buffer.
struct Cache {
    range: Range<u64>,
    buffer: PoolBuf,
}

impl Reader {
    /// A reader with its part of the memory that `readers` of them have together.
    pub(crate) fn open(
        checkpoint: Checkpoint,
        options: ReadOptions,
        readers: usize,
    ) -> Result<Self> {
        let store = &checkpoint.store;
        let how = store.options();
        // Beside those that can be under way only the cache has one.
        let share = how.piece_count() / readers.max(1);
        let buffers = share.min(how.window() + 1).max(BUFFERS_MIN);
        // What others left is used, or given up: it shall not come on top of this reader's.
        let spare = store.spare_pools().take_only();
        let pool = match spare {
            Some(pool) if readers <= 1 => pool,
            _ => BufPool::on_demand(PIECE_BYTES, buffers)?,
        };
        let volume = store.volume();
        let geometry = Geometry {
            chunk_bytes: volume.chunk_bytes(),
            block_bytes: u64::from(volume.block_bytes()),
            memory_align_bytes: volume.memory_align_bytes() as usize,
        };
        Ok(Self {
            lane: open_lane(&checkpoint)?,
            pool,
            window: how.window(),
            geometry,
            trust: options.trust,
            is_adrift: false,
            cache: None,
            checkpoint,
        })
    }

    /// Reads a whole tensor.
    ///
    /// # Errors
    ///
    /// No such tensor; memory of another length; a member that fails; data that is damaged: the
    /// error names block, member and device offset, and the memory holds nothing to be used.
    pub fn read(&mut self, tensor: &str, memory: &mut [u8]) -> Result<()> {
        let checkpoint = self.checkpoint.clone();
        let entry = checkpoint.tensor(tensor)?;
        check_length(&checkpoint, entry, memory)?;
        self.read_entry(entry, 0, memory)
    }

    /// Reads some bytes of a tensor, from its byte `offset` on.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); bytes beyond the tensor's end.
    pub fn read_range(&mut self, tensor: &str, offset: u64, memory: &mut [u8]) -> Result<()> {
        let checkpoint = self.checkpoint.clone();
        let entry = checkpoint.tensor(tensor)?;
        let end = offset.checked_add(memory.len() as u64);
        if end.is_none_or(|end| end > entry.length) {
            let message = format!(
                "{} bytes from byte {offset} on reach beyond the tensor's {}",
                memory.len(),
                entry.length
            );
            let error = Error::new(ErrorKind::InvalidInput, message);
            return Err(checkpoint.tensor_error(entry, error));
        }
        self.read_entry(entry, offset, memory)
    }

    /// Reads a box of a tensor. `memory` gets the box's elements in row-major order. Only the blocks
    /// that hold some of them are read.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); a box that does not lie within the shape; elements that are not
    /// whole bytes.
    pub fn read_box(&mut self, tensor: &str, region: &Region, memory: &mut [u8]) -> Result<()> {
        let checkpoint = self.checkpoint.clone();
        let entry = checkpoint.tensor(tensor)?;
        let fail = |error: Error| checkpoint.tensor_error(entry, error);
        let runs = region.runs(entry.dtype, &entry.shape).map_err(fail)?;
        if memory.len() != runs.total_bytes() {
            let message = format!(
                "the box has {} bytes, and there is memory for {}",
                runs.total_bytes(),
                memory.len()
            );
            return Err(fail(Error::new(ErrorKind::InvalidInput, message)));
        }
        // Runs ascend in the tensor: a block is read once, and serves every run that it holds.
        let mut held = HeldBlock::default();
        for run in runs {
            let mut done = 0;
            while done < run.length {
                let offset = run.tensor_offset + done as u64;
                let block = offset / BLOCK_BYTES;
                let range = entry.block_range(block);
                if held.block != Some(block) {
                    held.block = None;
                    held.bytes.resize(usize_of(range.end - range.start), 0);
                    self.read_entry(entry, range.start, &mut held.bytes)?;
                    held.block = Some(block);
                }
                let from = usize_of(offset - range.start);
                let length = (held.bytes.len() - from).min(run.length - done);
                let to = run.buffer_offset + done;
                memory[to..to + length].copy_from_slice(&held.bytes[from..from + length]);
                done += length;
            }
        }
        Ok(())
    }

    /// Reads many tensors, in the order in which they lie on the volume and without a pause between
    /// them.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); the first of any. Names and lengths are looked at before anything is
    /// read.
    pub fn read_many(&mut self, targets: Vec<TensorTarget<'_>>) -> Result<()> {
        let checkpoint = self.checkpoint.clone();
        let mut wants = Vec::with_capacity(targets.len());
        for TensorTarget { name, memory } in targets {
            let entry = checkpoint.tensor(name)?;
            check_length(&checkpoint, entry, memory)?;
            wants.push(Want {
                entry,
                offset: 0,
                memory,
            });
        }
        self.read_wants(&checkpoint, wants)
    }

    fn read_entry(&mut self, entry: &TensorEntry, offset: u64, memory: &mut [u8]) -> Result<()> {
        if memory.is_empty() {
            return Ok(());
        }
        if entry.length < BLOCK_BYTES && entry.runs.len() == 1 {
            return self.read_small(entry, offset, memory);
        }
        let checkpoint = self.checkpoint.clone();
        let want = Want {
            entry,
            offset,
            memory,
        };
        self.read_wants(&checkpoint, vec![want])
    }

    /// Reads any bytes of any tensors of the checkpoint.
    pub(crate) fn read_wants(
        &mut self,
        checkpoint: &Checkpoint,
        wants: Vec<Want<'_, '_>>,
    ) -> Result<()> {
        self.settle()?;
        let (plan, tensors) = Plan::new(wants, self.trust, self.geometry);
        let checks = Checks::new(checkpoint, tensors, self.trust);
        let flow = Flow::new(plan, checks, &self.pool, self.window);
        flow.run(&mut self.lane).map_err(|failure| {
            self.is_adrift = failure.is_adrift;
            failure.error
        })
    }

    /// Sees that nothing of an earlier read is under way in the lane. It ends with its lane.
    fn settle(&mut self) -> Result<()> {
        if self.is_adrift {
            self.lane = open_lane(&self.checkpoint)?;
            self.is_adrift = false;
        }
        Ok(())
    }

    /// Reads a tensor of one block in one run, out of the part of the volume around it.
    fn read_small(&mut self, entry: &TensorEntry, offset: u64, memory: &mut [u8]) -> Result<()> {
        let checkpoint = self.checkpoint.clone();
        let run = entry.runs[0];
        let units = units_of(run);
        let is_held = self
            .cache
            .as_ref()
            .is_some_and(|held| held.range.start <= units.start && units.end <= held.range.end);
        if !is_held {
            self.fill_cache(units)
                .map_err(|error| checkpoint.tensor_error(entry, error))?;
        }
        let held = self.cache.as_ref().expect("it was filled just now");
        let from = usize_of(run.offset - held.range.start);
        let bytes = &held.buffer[from..from + usize_of(run.length)];
        if !self.trust
            && let Err(error) = checkpoint.check_block(entry, 0, crc32fast::hash(bytes))
        {
            // Whoever tries again wants to know what the drives say then.
            self.cache = None;
            return Err(error);
        }
        let from = usize_of(offset);
        memory.copy_from_slice(&bytes[from..from + memory.len()]);
        Ok(())
    }

    /// Reads the volume from some units on, as far as a buffer goes and the checkpoint's own space.
    fn fill_cache(&mut self, units: Range<u64>) -> Result<()> {
        self.settle()?;
        let own = self
            .checkpoint
            .entry
            .extents
            .iter()
            .find(|extent| (extent.offset..extent.end()).contains(&units.start));
        let own_end = own.map_or(units.end, |extent| extent.end());
        let end = (units.start + BLOCK_BYTES).min(own_end).max(units.end);
        let mut buffer = match self.cache.take() {
            Some(held) => held.buffer,
            None => self.take_buffer(),
        };
        buffer.set_len(usize_of(end - units.start));
        self.lane.read_at(&mut buffer, units.start)?;
        self.cache = Some(Cache {
            range: units.start..end,
            buffer,
        });
        Ok(())
    }

    /// A buffer of the pool. There is always one while nothing is under way: another is the
    /// cache's.
    fn take_buffer(&mut self) -> PoolBuf {
        self.pool
            .take()
            .expect("a reader's pool has one buffer more than its cache")
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.cache = None;
        let store = &self.checkpoint.store;
        if self.pool.count() == store.options().piece_count() {
            store.spare_pools().keep(&self.pool);
        }
    }
}

/// Two for what is under way, and one for the cache: a pool of fewer takes no less memory, which
/// comes in pages of 2 MiB.
pub(crate) const BUFFERS_MIN: usize = 3;

fn open_lane(checkpoint: &Checkpoint) -> Result<VolumeLane> {
    let store = &checkpoint.store;
    let how = store.options();
    let mut options = how.lane.clone();
    // The pool is not registered: that would make all of it resident.
    options.queue.pools.clear();
    options.queue.depth = how.depth.clamp(1, 256) * 2;
    options.statistics = false;
    Ok(store.volume().lane(&options)?)
}

fn check_length(checkpoint: &Checkpoint, entry: &TensorEntry, memory: &[u8]) -> Result<()> {
    if memory.len() as u64 == entry.length {
        return Ok(());
    }
    let message = format!(
        "the tensor has {} bytes, and there is memory for {}",
        entry.length,
        memory.len()
    );
    let error = Error::new(ErrorKind::InvalidInput, message);
    Err(checkpoint.tensor_error(entry, error))
}

/// The block that a box's runs were last taken from.
#[derive(Default)]
struct HeldBlock {
    block: Option<u64>,
    bytes: Vec<u8>,
}

/// The units that a run lies in.
fn units_of(run: Run) -> Range<u64> {
    let start = run.offset - run.offset % UNIT_BYTES;
    start..run.end().next_multiple_of(UNIT_BYTES)
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("checkpoint", &self.checkpoint)
            .field("trust", &self.trust)
            .finish_non_exhaustive()
    }
}
