//! [`Reader`]: one thread's way to read a checkpoint.
//!
//! - Every block that is touched is checked before any of its bytes are given out as good, unless
//!   the caller trusts them.
//! - Whole blocks go straight into the caller's memory when that is aligned, many at once, each
//!   checked while others are under way. Everything else goes through a buffer of the pool: parts
//!   of blocks, small tensors, memory that is not aligned.
//! - Small tensors lie packed together: those that a buffer holds already are not read again.

use std::fmt;
use std::ops::Range;

use crc32fast::Hasher;
use swath_engine::{BufPool, Completion, PoolBuf, ScopeCompletion, ScopeMemory};
use swath_volume::VolumeLane;

use crate::blob::usize_of;
use crate::checkpoint::{Checkpoint, ReadOptions, TensorTarget};
use crate::error::{Error, ErrorKind, Result};
use crate::extent::{Run, UNIT_BYTES};
use crate::index::{BLOCK_BYTES, TensorEntry, blocks_touched};
use crate::options::PIECE_BYTES;
use crate::region::Region;

/// One thread's way to read. Made by [`Checkpoint::reader`] on the thread that uses it.
pub struct Reader {
    checkpoint: Checkpoint,
    lane: VolumeLane,
    pool: BufPool,
    window: usize,
    memory_align_bytes: usize,
    trust: bool,
    /// The part of the volume that the last small tensor came from.
    cache: Option<Cache>,
}

/// Some of the volume, in a buffer.
struct Cache {
    range: Range<u64>,
    buffer: PoolBuf,
}

/// A block, or a part of one, on its way through a buffer.
struct Through {
    block: u64,
    /// The bytes of the tensor that will be in the buffer, and where in it they begin.
    bytes: Range<u64>,
    skew: usize,
    runs: Vec<Run>,
}

impl Reader {
    pub(crate) fn open(checkpoint: Checkpoint, options: ReadOptions) -> Result<Self> {
        let store = &checkpoint.store;
        let how = store.options();
        let pool = BufPool::new(PIECE_BYTES, how.piece_count())?;
        let mut lane_options = how.lane.clone();
        lane_options.queue.pools = vec![pool.clone()];
        lane_options.queue.depth = how.depth.clamp(1, 256) * 2;
        lane_options.statistics = false;
        let volume = store.volume();
        let lane = volume.lane(&lane_options)?;
        let memory_align_bytes = volume.memory_align_bytes() as usize;
        let window = how.window().min(how.piece_count() - 1);
        let trust = options.trust;
        Ok(Self {
            checkpoint,
            lane,
            pool,
            window,
            memory_align_bytes,
            trust,
            cache: None,
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
        if memory.len() as u64 != entry.length {
            let message = format!(
                "the tensor has {} bytes, and there is memory for {}",
                entry.length,
                memory.len()
            );
            let error = Error::new(ErrorKind::InvalidInput, message);
            return Err(checkpoint.tensor_error(entry, error));
        }
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

    /// Reads many tensors, in the order in which they lie on the volume.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); the first of any.
    pub fn read_many(&mut self, targets: Vec<TensorTarget<'_>>) -> Result<()> {
        let checkpoint = self.checkpoint.clone();
        let place = |target: &TensorTarget<'_>| {
            let entry = checkpoint.index.find(target.name);
            entry
                .and_then(|entry| entry.runs.first())
                .map_or(0, |run| run.offset)
        };
        let mut targets = targets;
        targets.sort_by_cached_key(place);
        targets
            .into_iter()
            .try_for_each(|target| self.read(target.name, target.memory))
    }

    fn read_entry(&mut self, entry: &TensorEntry, offset: u64, memory: &mut [u8]) -> Result<()> {
        if memory.is_empty() {
            return Ok(());
        }
        if entry.length < BLOCK_BYTES && entry.runs.len() == 1 {
            return self.read_small(entry, offset, memory);
        }
        let end = offset + memory.len() as u64;
        let whole = self.direct_blocks(entry, offset, memory);
        let direct = (whole.start * BLOCK_BYTES)..(whole.end * BLOCK_BYTES);
        if whole.is_empty() {
            return self.read_through(entry, offset, memory);
        }
        let (head, rest) = memory.split_at_mut(usize_of(direct.start - offset));
        let (middle, tail) = rest.split_at_mut(usize_of(direct.end - direct.start));
        self.read_direct(entry, whole, middle)?;
        if !head.is_empty() {
            self.read_through(entry, offset, head)?;
        }
        if !tail.is_empty() {
            debug_assert!(direct.end < end);
            self.read_through(entry, direct.end, tail)?;
        }
        Ok(())
    }

    /// The whole blocks of a range that can be read straight into `memory`.
    fn direct_blocks(&self, entry: &TensorEntry, offset: u64, memory: &[u8]) -> Range<u64> {
        let end = offset + memory.len() as u64;
        let first = offset.div_ceil(BLOCK_BYTES);
        let last = end / BLOCK_BYTES;
        if first >= last {
            return 0..0;
        }
        let skip = usize_of(first * BLOCK_BYTES - offset);
        let is_aligned = memory[skip..]
            .as_ptr()
            .addr()
            .is_multiple_of(self.memory_align_bytes);
        let on_units = entry
            .runs
            .iter()
            .all(|run| run.offset.is_multiple_of(UNIT_BYTES));
        if is_aligned && on_units {
            first..last
        } else {
            0..0
        }
    }

    /// Reads whole blocks into the caller's memory.
    fn read_direct(
        &mut self,
        entry: &TensorEntry,
        blocks: Range<u64>,
        memory: &mut [u8],
    ) -> Result<()> {
        let Self {
            lane,
            checkpoint,
            window,
            trust,
            ..
        } = self;
        let fail = |error: swath_volume::Error| checkpoint.tensor_error(entry, error.into());
        lane.scope(|scope| {
            let mut ends: Vec<ScopeCompletion<'_>> = Vec::with_capacity(*window);
            let mut check = BlockCheck::new(checkpoint, entry, *trust);
            let mut rest = memory;
            for block in blocks {
                let range = entry.block_range(block);
                let mut parts = 0;
                for run in entry.locate(range.start, range.end - range.start) {
                    let (now, later) = std::mem::take(&mut rest).split_at_mut(usize_of(run.length));
                    rest = later;
                    scope.read(run.offset, now, token_of(block, parts));
                    parts += 1;
                }
                check.expect(block, parts);
                let spare = usize::from(scope.in_flight() >= *window);
                scope.wait(spare, &mut ends).map_err(fail)?;
                ends.drain(..).try_for_each(|end| check.take(end))?;
            }
            while scope.in_flight() > 0 {
                scope.wait(1, &mut ends).map_err(fail)?;
                ends.drain(..).try_for_each(|end| check.take(end))?;
            }
            Ok(())
        })
    }

    /// Reads any range through buffers, several blocks at once.
    fn read_through(&mut self, entry: &TensorEntry, offset: u64, memory: &mut [u8]) -> Result<()> {
        let checkpoint = self.checkpoint.clone();
        let fail = |error: Error| checkpoint.tensor_error(entry, error);
        let wanted = offset..offset + memory.len() as u64;
        let mut blocks = blocks_touched(offset, memory.len() as u64);
        let mut under_way: Vec<Through> = Vec::with_capacity(self.window);
        let mut completions: Vec<Completion> = Vec::new();
        let mut outcome = Ok(());
        loop {
            while outcome.is_ok()
                && under_way.len() < self.window
                && let Some(block) = blocks.next()
            {
                let through = self.through(entry, block, &wanted);
                if let [run] = &through.runs[..] {
                    let units = units_of(*run);
                    let mut buffer = self.take_buffer();
                    buffer.set_len(usize_of(units.end - units.start));
                    self.lane.read(units.start, buffer, block);
                    under_way.push(through);
                } else {
                    // A block in several runs, which is rare: read at once, one after the other.
                    outcome = self
                        .read_runs(&through.runs)
                        .and_then(|buffer| {
                            self.take_through(entry, &through, &buffer, &wanted, memory)
                        })
                        .map_err(fail);
                }
            }
            if under_way.is_empty() && (outcome.is_err() || blocks.is_empty()) {
                return outcome;
            }
            if let Err(error) = self.lane.wait(1, &mut completions) {
                // What is still in flight must not come to a later read: it ends with its lane.
                *self = Self::open(checkpoint.clone(), ReadOptions { trust: self.trust })?;
                return Err(fail(error.into()));
            }
            for completion in completions.drain(..) {
                let place = under_way.iter().position(|it| it.block == completion.token);
                let through =
                    under_way.swap_remove(place.expect("a block is under way until it comes"));
                let buffer = completion
                    .buffers
                    .into_one()
                    .expect("a read gives its buffer back");
                let taken = match completion.result {
                    Ok(_) => self.take_through(entry, &through, buffer.as_slice(), &wanted, memory),
                    Err(error) => Err(error.into()),
                };
                outcome = outcome.and(taken.map_err(fail));
            }
        }
    }

    /// What of a block is to be read, and from where.
    fn through(&self, entry: &TensorEntry, block: u64, wanted: &Range<u64>) -> Through {
        let whole = entry.block_range(block);
        let bytes = if self.trust {
            whole.start.max(wanted.start)..whole.end.min(wanted.end)
        } else {
            whole
        };
        let runs: Vec<Run> = entry.locate(bytes.start, bytes.end - bytes.start).collect();
        let first = runs.first().expect("a block has bytes");
        Through {
            block,
            skew: usize_of(first.offset % UNIT_BYTES),
            bytes,
            runs,
        }
    }

    /// Reads the units that runs lie in, one after the other. Runs begin and end on units except
    /// at the ends of what is read, so their bytes then lie one after the other too.
    fn read_runs(&mut self, runs: &[Run]) -> Result<PoolBuf> {
        let mut buffer = self.take_buffer();
        buffer.set_len(buffer.capacity());
        let mut filled = 0;
        for run in runs {
            let units = units_of(*run);
            let length = usize_of(units.end - units.start);
            self.lane
                .read_at(&mut buffer[filled..filled + length], units.start)?;
            filled += length;
        }
        buffer.set_len(filled);
        Ok(buffer)
    }

    /// Checks a block that has come and copies what is wanted of it.
    fn take_through(
        &self,
        entry: &TensorEntry,
        through: &Through,
        buffer: &[u8],
        wanted: &Range<u64>,
        memory: &mut [u8],
    ) -> Result<()> {
        let length = usize_of(through.bytes.end - through.bytes.start);
        let bytes = &buffer[through.skew..through.skew + length];
        if !self.trust {
            self.checkpoint
                .check_block(entry, through.block, crc32fast::hash(bytes))?;
        }
        let from = through.bytes.start.max(wanted.start);
        let to = through.bytes.end.min(wanted.end);
        let source = usize_of(from - through.bytes.start)..usize_of(to - through.bytes.start);
        let target = usize_of(from - wanted.start)..usize_of(to - wanted.start);
        memory[target].copy_from_slice(&bytes[source]);
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
        if !self.trust {
            checkpoint.check_block(entry, 0, crc32fast::hash(bytes))?;
        }
        let from = usize_of(offset);
        memory.copy_from_slice(&bytes[from..from + memory.len()]);
        Ok(())
    }

    /// Reads the volume from some units on, as far as a buffer goes and the checkpoint's own space.
    fn fill_cache(&mut self, units: Range<u64>) -> Result<()> {
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

    /// A buffer of the pool. There is always one: no more than the window are under way, and one
    /// is the cache's.
    fn take_buffer(&mut self) -> PoolBuf {
        self.pool
            .take()
            .expect("a reader's pool has one buffer more than are under way")
    }
}

/// The block that a box's runs were last taken from.
#[derive(Default)]
struct HeldBlock {
    block: Option<u64>,
    bytes: Vec<u8>,
}

/// The checks of blocks that come straight into the caller's memory.
struct BlockCheck<'a> {
    checkpoint: &'a Checkpoint,
    entry: &'a TensorEntry,
    trust: bool,
    /// Blocks in several parts that have not all come.
    split: Vec<SplitBlock>,
}

struct SplitBlock {
    block: u64,
    parts: Vec<Option<Hasher>>,
}

impl<'a> BlockCheck<'a> {
    fn new(checkpoint: &'a Checkpoint, entry: &'a TensorEntry, trust: bool) -> Self {
        Self {
            checkpoint,
            entry,
            trust,
            split: Vec::new(),
        }
    }

    /// A block was started, in so many parts.
    fn expect(&mut self, block: u64, parts: u64) {
        if parts > 1 && !self.trust {
            self.split.push(SplitBlock {
                block,
                parts: vec![None; usize_of(parts)],
            });
        }
    }

    /// Takes a part that has come, and checks its block when it is the last.
    fn take(&mut self, end: ScopeCompletion<'_>) -> Result<()> {
        end.result
            .map_err(|error| self.checkpoint.tensor_error(self.entry, error.into()))?;
        let ScopeMemory::Read(memory) = end.memory else {
            unreachable!("only reads were started")
        };
        if self.trust {
            return Ok(());
        }
        let (block, part) = (end.token >> PART_BITS, end.token & ((1 << PART_BITS) - 1));
        let mut hasher = Hasher::new();
        hasher.update(memory);
        let Some(place) = self.split.iter().position(|split| split.block == block) else {
            return self
                .checkpoint
                .check_block(self.entry, block, hasher.finalize());
        };
        let parts = &mut self.split[place].parts;
        parts[usize_of(part)] = Some(hasher);
        if parts.iter().any(Option::is_none) {
            return Ok(());
        }
        let split = self.split.swap_remove(place);
        let mut whole = Hasher::new();
        split
            .parts
            .iter()
            .flatten()
            .for_each(|part| whole.combine(part));
        self.checkpoint
            .check_block(self.entry, block, whole.finalize())
    }
}

/// A token holds a block's number and a part's: a block has at most 257 parts of whole units.
const PART_BITS: u32 = 12;

fn token_of(block: u64, part: u64) -> u64 {
    block << PART_BITS | part
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
