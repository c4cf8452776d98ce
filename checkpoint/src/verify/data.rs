//! [`DataCheck`]: every block of one checkpoint's tensors, read and compared with its checksum.
//!
//! - Data is read in the order in which it lies on the volume, in transfers of up to 1 MiB that do
//!   not cross a border of that size, several at once. A transfer may hold many small tensors, or
//!   the end of one block and the beginning of the next.
//! - Where a transfer fails, its 4 KiB units are read one by one, to tell the bad ones from the good.

use std::collections::HashMap;
use std::ops::Range;

use crc32fast::Hasher;
use swath_engine::{BufPool, Completion, LaneOptions, PoolBuf};
use swath_volume::{Volume, VolumeLane};

use crate::blob::usize_of;
use crate::checkpoint::{Checkpoint, places_of};
use crate::error::{DevicePlace, Error, Result};
use crate::extent::{Run, UNIT_BYTES};
use crate::index::BLOCK_BYTES;
use crate::store::Store;
use crate::verify::{Damage, Verifier, is_damage, told};

/// How many units that cannot be read are looked for one by one. A drive may take seconds for each;
/// one that has gone bad all over is told in whole chunks from then on.
const BAD_UNITS_MAX: u64 = 4096;

/// The borders that transfers do not cross.
const WINDOW_BYTES: u64 = BLOCK_BYTES;

/// The means to read data.
pub(super) struct Reading {
    volume: Volume,
    lane: VolumeLane,
    pool: BufPool,
    window: usize,
    bad_units: u64,
}

impl Reading {
    pub(super) fn open(store: &Store) -> Result<Self> {
        let how = store.options();
        let window = how.window().min(how.piece_count());
        let pool = BufPool::new(usize_of(WINDOW_BYTES), window)?;
        let mut lane_options: LaneOptions = how.lane.clone();
        lane_options.queue.pools = vec![pool.clone()];
        lane_options.queue.depth = how.depth.clamp(1, 256) * 2;
        lane_options.statistics = false;
        let lane = store.volume().lane(&lane_options)?;
        Ok(Self {
            volume: store.volume().clone(),
            lane,
            pool,
            window,
            bad_units: 0,
        })
    }

    /// Reads what a transfer that failed was to read once more, a little at a time. Returns the
    /// parts of it that cannot be read.
    fn reread(&mut self, transfer: &Transfer, buffer: &mut PoolBuf) -> Vec<Unreadable> {
        let mut unreadable: Vec<Unreadable> = Vec::new();
        let mut offset = transfer.units.start;
        while offset < transfer.units.end {
            let step_bytes = if self.bad_units < BAD_UNITS_MAX {
                UNIT_BYTES
            } else {
                self.volume.chunk_bytes()
            };
            let end = (offset - offset % step_bytes + step_bytes).min(transfer.units.end);
            let memory = transfer.within(offset..end);
            if let Err(error) = self.lane.read_at(&mut buffer[memory], offset) {
                self.bad_units += 1;
                match unreadable.last_mut() {
                    Some(last) if last.range.end == offset => last.range.end = end,
                    _ => unreadable.push(Unreadable {
                        range: offset..end,
                        error: error.into(),
                    }),
                }
            }
            offset = end;
        }
        unreadable
    }
}

/// Some of the volume that cannot be read, and the error that said so first.
struct Unreadable {
    range: Range<u64>,
    error: Error,
}

/// A run of a tensor, and where in the tensor it begins.
struct Span {
    run: Run,
    position: u64,
    tensor: usize,
}

/// What of a block lies within one window.
struct Part {
    run: Run,
    position: u64,
    tensor: usize,
}

impl Part {
    fn block(&self) -> u64 {
        self.position / BLOCK_BYTES
    }
}

/// Units that are read at once, and the parts that lie in them.
struct Transfer {
    units: Range<u64>,
    parts: Vec<Part>,
}

impl Transfer {
    /// Where in a buffer of the transfer a range of the volume is.
    fn within(&self, range: Range<u64>) -> Range<usize> {
        usize_of(range.start - self.units.start)..usize_of(range.end - self.units.start)
    }
}

/// Runs of tensors cut into parts, and these put together to transfers, in the order of the volume.
struct Transfers {
    spans: std::vec::IntoIter<Span>,
    span: Option<Span>,
}

impl Transfers {
    fn new(checkpoint: &Checkpoint) -> Self {
        let mut spans = Vec::with_capacity(checkpoint.tensors().len());
        for (number, tensor) in checkpoint.tensors().iter().enumerate() {
            let mut position = 0;
            for run in &tensor.runs {
                spans.push(Span {
                    run: *run,
                    position,
                    tensor: number,
                });
                position += run.length;
            }
        }
        spans.sort_unstable_by_key(|span| span.run.offset);
        let mut spans = spans.into_iter();
        let span = spans.next();
        Self { spans, span }
    }

    /// The next part, if it begins before `end`.
    fn next_part(&mut self, end: u64) -> Option<Part> {
        let span = self.span.as_mut().filter(|span| span.run.offset < end)?;
        let to_window = WINDOW_BYTES - span.run.offset % WINDOW_BYTES;
        let to_block = BLOCK_BYTES - span.position % BLOCK_BYTES;
        let length = span.run.length.min(to_window).min(to_block);
        let part = Part {
            run: Run::new(span.run.offset, length),
            position: span.position,
            tensor: span.tensor,
        };
        span.run = Run::new(span.run.offset + length, span.run.length - length);
        span.position += length;
        if span.run.length == 0 {
            self.span = self.spans.next();
        }
        Some(part)
    }
}

impl Iterator for Transfers {
    type Item = Transfer;

    fn next(&mut self) -> Option<Transfer> {
        let first = self.next_part(u64::MAX)?;
        let start = first.run.offset - first.run.offset % UNIT_BYTES;
        let window_end = start - start % WINDOW_BYTES + WINDOW_BYTES;
        let mut end = first.run.end().next_multiple_of(UNIT_BYTES);
        let mut parts = vec![first];
        // Only units that hold something of the checkpoint are read.
        while let Some(part) = self.next_part((end + 1).min(window_end)) {
            end = end.max(part.run.end().next_multiple_of(UNIT_BYTES));
            parts.push(part);
        }
        Some(Transfer {
            units: start..end,
            parts,
        })
    }
}

/// A block of which not all parts have come.
struct OpenBlock {
    left: u64,
    /// The checksums of its parts, and where in the tensor these begin.
    parts: Vec<(u64, Hasher)>,
    bad: Vec<Run>,
    error: Option<Error>,
}

/// The check of one checkpoint's data.
pub(super) struct DataCheck<'a, 'b> {
    verifier: &'a mut Verifier<'b>,
    reading: &'a mut Reading,
    checkpoint: &'a Checkpoint,
    /// By tensor and block.
    open: HashMap<(usize, u64), OpenBlock>,
    /// What is under way, by token.
    under_way: Vec<Option<Transfer>>,
}

impl<'a, 'b> DataCheck<'a, 'b> {
    pub(super) fn new(
        verifier: &'a mut Verifier<'b>,
        reading: &'a mut Reading,
        checkpoint: &'a Checkpoint,
    ) -> Self {
        let mut under_way = Vec::new();
        under_way.resize_with(reading.window, || None);
        Self {
            verifier,
            reading,
            checkpoint,
            open: HashMap::new(),
            under_way,
        }
    }

    /// Checks everything. False when the caller stops it.
    pub(super) fn run(mut self) -> Result<bool> {
        let name = &self.checkpoint.entry.name;
        let mut transfers = Transfers::new(self.checkpoint);
        let mut completions: Vec<Completion> = Vec::new();
        let mut go_on = true;
        loop {
            while go_on
                && let Some(slot) = self.under_way.iter().position(Option::is_none)
                && let Some(transfer) = transfers.next()
            {
                self.start(slot, transfer);
            }
            if self.reading.lane.in_flight() == 0 {
                return Ok(go_on);
            }
            self.reading.lane.wait(1, &mut completions)?;
            for completion in completions.drain(..) {
                self.take(completion)?;
            }
            go_on = go_on && self.verifier.tell(name);
        }
    }

    fn start(&mut self, slot: usize, transfer: Transfer) {
        let mut buffer = self
            .reading
            .pool
            .take()
            .expect("there is a buffer for each transfer under way");
        buffer.set_len(usize_of(transfer.units.end - transfer.units.start));
        self.reading
            .lane
            .read(transfer.units.start, buffer, slot as u64);
        self.under_way[slot] = Some(transfer);
    }

    fn take(&mut self, completion: Completion) -> Result<()> {
        let transfer = self.under_way[usize_of(completion.token)]
            .take()
            .expect("a transfer is under way until it comes");
        let buffer = completion.buffers.into_one();
        let buffer = buffer.and_then(|buffer| PoolBuf::try_from(buffer).ok());
        let mut buffer = buffer.expect("a read gives its buffer back");
        let unreadable = match completion.result {
            Ok(_) => Vec::new(),
            Err(error) => {
                let error = Error::from(error);
                if !is_damage(&error) {
                    return Err(error);
                }
                self.reading.reread(&transfer, &mut buffer)
            }
        };
        for part in &transfer.parts {
            self.verifier.checked_bytes += part.run.length;
            let range = part.run.offset..part.run.end();
            let bytes = &buffer[transfer.within(range)];
            self.take_part(part, bytes, &unreadable)?;
        }
        Ok(())
    }

    fn take_part(&mut self, part: &Part, bytes: &[u8], unreadable: &[Unreadable]) -> Result<()> {
        let tensor = &self.checkpoint.tensors()[part.tensor];
        let whole = tensor.block_range(part.block());
        let block_bytes = whole.end - whole.start;
        let mut bad = unreadable
            .iter()
            .filter(|it| it.range.start < part.run.end() && part.run.offset < it.range.end)
            .peekable();
        if part.run.length == block_bytes && bad.peek().is_none() {
            self.compare(part.tensor, part.block(), crc32fast::hash(bytes));
            return Ok(());
        }
        let key = (part.tensor, part.block());
        let block = self.open.entry(key).or_insert_with(|| OpenBlock {
            left: block_bytes,
            parts: Vec::new(),
            bad: Vec::new(),
            error: None,
        });
        block.left -= part.run.length;
        for it in bad {
            // Exhausted memory, say, is no damage of the drive's.
            if !is_damage(&it.error) {
                return Err(it.error.clone());
            }
            // Whole units, which is what the drive cannot give.
            let start = part.run.offset - part.run.offset % UNIT_BYTES;
            let start = start.max(it.range.start);
            let end = part.run.end().next_multiple_of(UNIT_BYTES);
            let end = end.min(it.range.end);
            block.bad.push(Run::new(start, end - start));
            block.error.get_or_insert_with(|| it.error.clone());
        }
        let mut hasher = Hasher::new();
        hasher.update(bytes);
        block.parts.push((part.position, hasher));
        if block.left == 0 {
            let block = self.open.remove(&key).expect("it is there");
            self.close_block(key, block);
        }
        Ok(())
    }

    fn close_block(&mut self, (tensor, number): (usize, u64), mut block: OpenBlock) {
        if let Some(error) = block.error {
            let volume = self.checkpoint.store.volume();
            let bad = block.bad.into_iter();
            let places = bad.flat_map(|run| places_of(volume, run)).collect();
            self.add(tensor, number, places, told("data", &error));
            return;
        }
        block.parts.sort_unstable_by_key(|(position, _)| *position);
        let mut whole = Hasher::new();
        for (_, part) in &block.parts {
            whole.combine(part);
        }
        self.compare(tensor, number, whole.finalize());
    }

    fn compare(&mut self, tensor: usize, block: u64, found: u32) {
        let entry = &self.checkpoint.tensors()[tensor];
        let range = entry.block_range(block);
        let length = range.end - range.start;
        self.verifier.report.bytes += length;
        let expected = entry.checksums[usize_of(block)];
        if found != expected {
            let places = self.checkpoint.places(entry, range.start, length);
            let message =
                format!("the data is damaged: its checksum is {found:08x}, not {expected:08x}");
            self.add(tensor, block, places, message);
        }
    }

    fn add(&mut self, tensor: usize, block: u64, places: Vec<DevicePlace>, message: String) {
        self.verifier.add(Damage {
            checkpoint: Some(self.checkpoint.entry.name.clone()),
            tensor: Some(self.checkpoint.tensors()[tensor].name.clone()),
            block: Some(block),
            places,
            message,
        });
    }
}
