//! Runs one cell: so many lanes, all started at one moment, for so long, and what they did.
//!
//! ```text
//! Runner::run --spawns--> lane 0 .. lane n-1   (pinned, each with a queue of its own)
//!      |                    |  ready at the gate
//!      |<------- start -----+
//!      | draws progress     |  ramp, then the window that counts
//!      +<--- LaneOutcome ---+  last completion
//! ```

pub(crate) mod gate;
mod lane_loop;
mod pace;
mod pooled;
pub(crate) mod stamp;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use swath_engine::{LaneOptions, LaneStats, QueueDescription, QueueOptions, cpu};
use swath_volume::Volume;

use crate::error::{Error, ErrorKind, Result};
use crate::interrupt::Interrupt;
use crate::latency::{LatencyBins, LatencySummary};
use crate::target::{Side, Target, open_members, open_volume};
use crate::verify::{VerifiedLane, Verifier};
use crate::workload::Cell;
use gate::Gate;
use lane_loop::{LaneOutcome, Shared};

/// How often the watching thread wakes up to draw and to look for an interrupt.
const TICK: Duration = Duration::from_millis(100);

/// Which cores lanes keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinning {
    /// None: they wander.
    Free,
    /// Each lane to a core of its own, as far as there are as many.
    Each,
    /// All of them to this one.
    To(usize),
}

impl Pinning {
    /// The cores that lanes keep to, in turn; none: they wander.
    pub(crate) fn cores(self) -> Vec<usize> {
        match self {
            Self::Free => Vec::new(),
            Self::Each => cpu::available(),
            Self::To(core) => vec![core],
        }
    }
}

/// How cells are run, the same for all of them.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Backend, polling and the like; depth and pools are set for each cell.
    pub queue: QueueOptions,
    /// How long to run before anything counts.
    pub ramp: Duration,
    /// How long to measure.
    pub runtime: Duration,
    /// The most requests handed over at once, and the most completions waited for at once.
    pub batch: u32,
    /// Completions to wait for at once; none: an eighth of the depth, at most a batch.
    pub reap: Option<u32>,
    /// What offsets and data are drawn from.
    pub seed: u64,
    /// Which cores lanes keep to.
    pub pinning: Pinning,
    /// Whether each 4 KiB written is made unlike any other, so that a drive that looks for
    /// duplicates finds none. Without, a lane writes the same incompressible buffers again and
    /// again, as other programs do.
    pub unique_writes: bool,
    /// Whether latencies are kept. Without, a [`Measurement`] has none, and the lane's statistics
    /// cost nothing: as with fio's `gtod_reduce`.
    pub latencies: bool,
    /// What stops a run early.
    pub interrupt: Interrupt,
}

impl RunOptions {
    /// Four seconds after half a second of ramp, in batches of 64, pinned.
    pub fn new(interrupt: Interrupt) -> Self {
        Self {
            queue: QueueOptions::default(),
            ramp: Duration::from_millis(500),
            runtime: Duration::from_secs(4),
            batch: 64,
            reap: None,
            seed: 42,
            pinning: Pinning::Each,
            unique_writes: true,
            latencies: true,
            interrupt,
        }
    }

    fn batch(&self) -> usize {
        self.batch.max(1) as usize
    }

    /// How many completions a lane of this depth waits for. Few: on drives, waiting for a quarter
    /// of 128 costs a third of the IOPS, for they run dry meanwhile; and when software is what
    /// takes the time, more are there anyway than were waited for.
    fn reap_min(&self, depth: usize) -> usize {
        let wanted = self.reap.map_or(depth / 8, |reap| reap as usize);
        wanted.min(self.batch()).min(depth).max(1)
    }

    fn ramp_ns(&self) -> u64 {
        u64::try_from(self.ramp.as_nanos()).unwrap_or(u64::MAX)
    }

    fn runtime_ns(&self) -> u64 {
        u64::try_from(self.runtime.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// What one run of a cell gave.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// The window: the longest of all lanes.
    pub window: Duration,
    /// Requests completed within it.
    pub ios: u64,
    /// Bytes moved within it.
    pub bytes: u64,
    /// Latencies of these requests; all zero when they were not kept.
    pub latency: LatencySummary,
    /// The shape of their histogram.
    pub latency_bins: LatencyBins,
    /// The histogram itself, for those who add rounds up.
    pub histogram: Histogram<u64>,
    /// CPU time of the process, helper threads and kernel workers included, the thread that draws
    /// the progress not, for each request.
    pub cpu_ns_per_io: f64,
    /// The queue of the first lane.
    pub queue: QueueDescription,
}

impl Measurement {
    /// Requests a second.
    pub fn iops(&self) -> f64 {
        self.ios as f64 / self.window.as_secs_f64()
    }

    /// Bytes a second.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.window.as_secs_f64()
    }
}

/// Where a round of a cell begins, so that rounds do not all do the same: a drive that has a block in
/// its cache, or writes the same few again and again, is not what it is on the whole volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Origin {
    /// Which round, from 0. Each draws other offsets and data.
    pub round: u32,
    /// How many blocks each lane has visited before: sequential lanes go on from there.
    pub blocks_done: u64,
}

impl Origin {
    fn seed(self, seed: u64) -> u64 {
        // An odd factor, so that no two rounds have one seed.
        seed.wrapping_add(u64::from(self.round).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// Runs cells on one volume.
#[derive(Debug)]
pub struct Runner<'volume> {
    volume: &'volume Volume,
    options: RunOptions,
    is_apart: bool,
    verifier: Option<&'volume Verifier>,
}

impl<'volume> Runner<'volume> {
    /// A runner on `volume`.
    pub fn new(volume: &'volume Volume, options: RunOptions) -> Self {
        Self {
            volume,
            options,
            is_apart: false,
            verifier: None,
        }
    }

    /// Lets every lane stamp what it writes to the volume and check what it reads, each in a region
    /// of its own, so that no two writes meet. The bare members know nothing of this.
    #[must_use]
    pub fn verifying(self, verifier: &'volume Verifier) -> Self {
        Self {
            verifier: Some(verifier),
            ..self.apart()
        }
    }

    /// Lets every lane keep to a region of its own, at random as well.
    #[must_use]
    pub fn apart(self) -> Self {
        Self {
            is_apart: true,
            ..self
        }
    }

    /// How it runs cells.
    pub fn options(&self) -> &RunOptions {
        &self.options
    }

    /// The volume it runs them on.
    pub fn volume(&self) -> &'volume Volume {
        self.volume
    }

    /// Runs `cell` once; `tick` is called about ten times a second with the time since the start.
    ///
    /// A cell that writes is followed by a flush of every member, outside the window.
    ///
    /// # Errors
    ///
    /// A lane cannot be opened, an I/O failed, or the run was interrupted.
    pub fn run(
        &self,
        cell: &Cell,
        side: Side,
        tick: &mut dyn FnMut(Duration),
    ) -> Result<Measurement> {
        self.run_on(cell, side, Origin::default(), tick)
    }

    /// As [`run`](Self::run), from where other rounds have ended.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_on(
        &self,
        cell: &Cell,
        side: Side,
        origin: Origin,
        tick: &mut dyn FnMut(Duration),
    ) -> Result<Measurement> {
        self.options.interrupt.check()?;
        let shared = Shared {
            volume: self.volume,
            options: &self.options,
            cell: *cell,
            side,
            is_apart: self.is_apart,
            seed: origin.seed(self.options.seed),
            blocks_done: origin.blocks_done,
            abort: AtomicBool::new(false),
            watcher_cpu_ns: AtomicU64::new(cpu::thread_cpu_ns()),
        };
        let volume = self.volume;
        let outcomes = match (side, self.verifier) {
            (Side::Volume, None) => {
                run_lanes(&shared, &|options| open_volume(volume, options), tick)
            }
            (Side::Volume, Some(verifier)) => run_lanes(
                &shared,
                &|options| VerifiedLane::open(verifier, volume, options),
                tick,
            ),
            (Side::Members, _) => {
                run_lanes(&shared, &|options| open_members(volume, options), tick)
            }
        }?;
        if cell.pattern.is_write() {
            self.volume
                .flush()
                .map_err(|cause| Error::failed(format!("flush after {cell} failed"), cause))?;
        }
        summarise(cell, outcomes)
    }
}

/// Spawns the lanes of a cell, each on what `open` opens, watches them, and gathers what they did.
fn run_lanes<T: Target>(
    shared: &Shared<'_>,
    open: &(dyn Fn(&LaneOptions) -> Result<T> + Sync),
    tick: &mut dyn FnMut(Duration),
) -> Result<Vec<LaneOutcome>> {
    let cores = shared.options.pinning.cores();
    on_lanes(
        shared.cell.lanes,
        &cores,
        &|lane, core, ticket| lane_loop::run(shared, lane, core, ticket, open),
        &mut |elapsed| {
            tick(elapsed);
            shared
                .watcher_cpu_ns
                .store(cpu::thread_cpu_ns(), Ordering::Relaxed);
        },
    )
}

/// What one lane does: its number, the core it is to keep to, and its place at the gate. No outcome
/// and no error: it was stopped.
type Entry<'run, T> =
    dyn Fn(u32, Option<usize>, gate::Ticket<'_>) -> Result<Option<T>> + Sync + 'run;

/// Runs `entry` on `lanes` threads, on the `cores` in turn, calls `watch` about ten times a second
/// while they run, and gathers what they give.
pub(crate) fn on_lanes<T: Send>(
    lanes: u32,
    cores: &[usize],
    entry: &Entry<'_, T>,
    watch: &mut dyn FnMut(Duration),
) -> Result<Vec<T>> {
    let gate = Gate::new(lanes);
    let results = thread::scope(|scope| {
        let (running, all_done) = mpsc::channel::<()>();
        let mut threads = Vec::new();
        for (number, lane) in (0..lanes).enumerate() {
            let core = cores.get(number % cores.len().max(1)).copied();
            let (ticket, running) = (gate.ticket(), running.clone());
            let thread = thread::Builder::new()
                .name(format!("lane {lane}"))
                .spawn_scoped(scope, move || {
                    let outcome = entry(lane, core, ticket);
                    drop(running);
                    outcome
                });
            match thread {
                Ok(thread) => threads.push(thread),
                // The ticket went down with the closure, so the lanes that run will not start.
                Err(cause) => return vec![Err(Error::failed("cannot start a thread", cause))],
            }
        }
        drop(running);
        if let Some(start) = gate.wait() {
            while all_done.recv_timeout(TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
                watch(start.elapsed());
            }
        }
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    let mut outcomes = Vec::with_capacity(results.len());
    for result in results {
        outcomes.push(result?);
    }
    // No outcome and no error: stopped before the end.
    outcomes
        .into_iter()
        .collect::<Option<Vec<_>>>()
        .ok_or_else(Error::interrupted)
}

/// Adds up what the lanes of a cell did.
fn summarise(cell: &Cell, outcomes: Vec<LaneOutcome>) -> Result<Measurement> {
    let mut stats = LaneStats::default();
    let mut ios = 0;
    let mut window_ns = 0;
    let mut cpu_ns_mean = 0.0;
    let lanes = outcomes.len() as f64;
    let mut queue = None;
    for outcome in outcomes {
        stats.merge(&outcome.stats);
        ios += outcome.ios;
        window_ns = window_ns.max(outcome.window_ns);
        // Each lane saw the whole process in a window of nearly the same time.
        cpu_ns_mean += outcome.process_cpu_ns as f64 / lanes;
        queue.get_or_insert(outcome.description);
    }
    let (Some(queue), true) = (queue, ios > 0 && window_ns > 0) else {
        return Err(Error::new(
            ErrorKind::Failed,
            format!("{cell}: nothing completed in the time given; use a longer --runtime"),
        ));
    };
    let moved = stats.total(cell.pattern.kind());
    Ok(Measurement {
        window: Duration::from_nanos(window_ns),
        ios,
        bytes: ios.saturating_mul(cell.block_bytes),
        latency: LatencySummary::of(&moved.latency_ns),
        latency_bins: LatencyBins::of(&moved.latency_ns),
        histogram: moved.latency_ns,
        cpu_ns_per_io: cpu_ns_mean / ios as f64,
        queue,
    })
}
