//! One lane of a cell: a pinned thread with a queue of its own that keeps its depth in flight.
//!
//! - Buffers are taken from the pool once and go round; nothing is allocated for an I/O.
//! - The clock is read once for each batch, and the lane keeps the latencies. A request's runs from
//!   the hand-over of its batch to the moment its completion was in hand, so it holds every wait a
//!   caller would feel, and a request that lies on several members counts once, until its last part
//!   is there.
//! - Data written is incompressible, and a counter in each 4 KiB makes every write unlike any
//!   other, unless the run does without.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use swath_engine::fill_incompressible;
use swath_engine::{
    BufPool, Buffer, Completion, LaneOptions, LaneStats, QueueDescription, QueueOptions, cpu,
};
use swath_volume::Volume;

use super::RunOptions;
use super::gate::Ticket;
use super::pace::{Pace, Phase};
use super::stamp::{STAMP_BYTES, Stamp};
use crate::error::{Error, ErrorKind, Result};
use crate::random::Random;
use crate::target::{Side, Target};
use crate::workload::{Cell, Cursor};

/// What all lanes of a cell share.
#[derive(Debug)]
pub(super) struct Shared<'run> {
    pub(super) volume: &'run Volume,
    pub(super) options: &'run RunOptions,
    pub(super) cell: Cell,
    pub(super) side: Side,
    /// Whether lanes keep to their regions at random, too.
    pub(super) is_apart: bool,
    /// What offsets and data are drawn from, in this round.
    pub(super) seed: u64,
    /// Where sequential lanes begin.
    pub(super) blocks_done: u64,
    /// Set when one lane failed, so that the others need not run on.
    pub(super) abort: AtomicBool,
    /// CPU time of the thread that draws the progress, kept up to date by it.
    pub(super) watcher_cpu_ns: AtomicU64,
}

/// What one lane did in its window.
#[derive(Debug)]
pub(super) struct LaneOutcome {
    pub(super) window_ns: u64,
    pub(super) ios: u64,
    pub(super) stats: LaneStats,
    /// CPU time of the whole process but for the watcher, in this lane's window.
    pub(super) process_cpu_ns: u64,
    pub(super) description: QueueDescription,
}

/// A lane about to run.
struct LaneLoop<'run, T> {
    shared: &'run Shared<'run>,
    target: T,
    cursor: Cursor,
    /// Buffers that are not in flight.
    free: Vec<Buffer>,
    stamp: Stamp,
    reap_min: usize,
}

/// Runs lane number `lane` of a cell, from its set-up to its last completion, on what `open` opens.
pub(super) fn run<T: Target>(
    shared: &Shared<'_>,
    lane: u32,
    core: Option<usize>,
    ticket: Ticket<'_>,
    open: &dyn Fn(&LaneOptions) -> Result<T>,
) -> Result<Option<LaneOutcome>> {
    let outcome = LaneLoop::<T>::set_up(shared, lane, core, open).and_then(|lane_loop| {
        // A refused start is not this lane's failure: the one that failed tells why.
        ticket.ready().map(|start| lane_loop.run(start)).transpose()
    });
    if outcome.is_err() {
        shared.abort.store(true, Ordering::Relaxed);
    }
    outcome.map(Option::flatten)
}

impl<'run, T: Target> LaneLoop<'run, T> {
    fn set_up(
        shared: &'run Shared<'run>,
        lane: u32,
        core: Option<usize>,
        open: &dyn Fn(&LaneOptions) -> Result<T>,
    ) -> Result<Self> {
        if let Some(core) = core {
            cpu::pin_to(core)
                .map_err(|cause| Error::failed(format!("cannot pin to core {core}"), cause))?;
        }
        let Shared {
            volume,
            options,
            cell,
            side,
            ..
        } = shared;
        let spaces = side.spaces(volume);
        let cursor = if shared.is_apart {
            Cursor::apart(cell, &spaces, lane, shared.seed)
        } else {
            Cursor::new(cell, &spaces, lane, shared.seed)
        }?
        .after(shared.blocks_done);
        // Made on this thread, so that the memory lies near its core.
        let (pool, buffers) = buffers(cell)?;
        let target = open(&LaneOptions {
            queue: QueueOptions {
                depth: side.queue_depth(volume, cell),
                pools: vec![pool],
                ..options.queue.clone()
            },
            statistics: options.latencies,
            ..LaneOptions::default()
        })?;
        let mut random = Random::new(shared.seed, u64::from(lane) ^ (1 << 32));
        let mut free = buffers;
        if cell.pattern.is_write() {
            for buffer in &mut free {
                let bytes = buffer.as_mut_slice().unwrap_or_default();
                fill_incompressible(bytes, random.next_u64(), 0);
            }
        }
        let depth = free.len();
        Ok(Self {
            shared,
            target,
            cursor,
            free,
            stamp: Stamp::new(random.next_u64()),
            reap_min: options.reap_min(depth),
        })
    }

    fn run(mut self, start: Instant) -> Result<Option<LaneOutcome>> {
        let outcome = self.measure(start);
        let mut completions = Vec::new();
        let drained = self.target.drain(&mut completions);
        let outcome = outcome?;
        drained?;
        Ok(outcome)
    }

    /// The loop itself. None: stopped before the window was over.
    fn measure(&mut self, start: Instant) -> Result<Option<LaneOutcome>> {
        let options = self.shared.options;
        let elapsed_ns = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut pace = Pace::new(options.ramp_ns(), options.runtime_ns());
        let mut completions = Vec::with_capacity(self.free.len());
        let mut cpu_began_ns = 0;
        let mut ios = 0;
        loop {
            self.submit_batch();
            if self.free.is_empty() {
                self.target.wait(self.reap_min, &mut completions)?;
            } else {
                // The depth is not reached yet: start what is queued and go on submitting.
                self.target.poll(&mut completions)?;
            }
            ios += completions.len() as u64;
            self.take_back(&mut completions)?;
            let now_ns = elapsed_ns();
            match pace.advance(now_ns) {
                Phase::Ramp | Phase::Measure => {}
                Phase::Begin => {
                    self.target.take_stats();
                    ios = 0;
                    cpu_began_ns = self.process_cpu_ns();
                }
                Phase::End => {
                    return Ok(Some(LaneOutcome {
                        window_ns: pace.window_ns(now_ns),
                        ios,
                        stats: self.target.take_stats(),
                        process_cpu_ns: self.process_cpu_ns().saturating_sub(cpu_began_ns),
                        description: self.target.description().clone(),
                    }));
                }
            }
            if options.interrupt.is_set() || self.shared.abort.load(Ordering::Relaxed) {
                return Ok(None);
            }
        }
    }

    /// Hands over as many requests as there are free buffers, at most a batch.
    #[inline]
    fn submit_batch(&mut self) {
        let is_write = self.shared.cell.pattern.is_write();
        let is_unique = self.shared.options.unique_writes;
        let kept = self.free.len().saturating_sub(self.shared.options.batch());
        for mut buffer in self.free.drain(kept..) {
            let position = self.cursor.next_position();
            if is_write {
                if is_unique {
                    self.stamp.mark(buffer.as_mut_slice().unwrap_or_default());
                }
                self.target.write(position, buffer);
            } else {
                self.target.read(position, buffer);
            }
        }
    }

    /// Takes the buffers of a batch back.
    #[inline]
    fn take_back(&mut self, completions: &mut Vec<Completion>) -> Result<()> {
        for completion in completions.drain(..) {
            completion
                .result
                .map_err(|cause| Error::failed(format!("{} failed", self.shared.cell), cause))?;
            let buffer = completion.buffers.into_one().ok_or_else(|| {
                Error::new(ErrorKind::Failed, "a completion came without its buffer")
            })?;
            self.free.push(buffer);
        }
        Ok(())
    }

    fn process_cpu_ns(&self) -> u64 {
        let watcher = self.shared.watcher_cpu_ns.load(Ordering::Relaxed);
        cpu::process_cpu_ns().saturating_sub(watcher)
    }
}

/// As many buffers as the cell keeps in flight, and the pool they lie in.
fn buffers(cell: &Cell) -> Result<(BufPool, Vec<Buffer>)> {
    let no_memory = |cause| {
        Error::new(ErrorKind::NoSpace, "cannot get the memory for the buffers").with_source(cause)
    };
    let block = usize::try_from(cell.block_bytes)
        .map_err(|_| Error::usage("a block is larger than this machine's address space"))?;
    let piece = block.next_multiple_of(STAMP_BYTES);
    let count = usize::try_from(cell.depth).unwrap_or(usize::MAX);
    let pool = BufPool::new(piece, count).map_err(no_memory)?;
    let mut buffers = Vec::with_capacity(count);
    while let Some(mut buffer) = pool.take() {
        buffer.set_len(block);
        buffers.push(Buffer::from(buffer));
    }
    Ok((pool, buffers))
}
