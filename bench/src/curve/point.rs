//! One point of a curve: a profile's threads on a volume, at a rate or uncapped, for a window.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use swath_engine::{
    BufPool, Completion, LaneOptions, OpKind, PoolBuf, QueueDescription, QueueOptions, cpu,
    fill_incompressible,
};
use swath_volume::{Volume, VolumeLane};

use super::arrivals::{Arrivals, Schedule};
use super::clock::WallClock;
use super::interval::{Board, Intervals, MachineTime, PASS_ON_NS, Totals, header, wall};
use super::open_loop::{Load, OpenLoop, Port, Tally, Watch, Window};
use super::profile::Profile;
use super::requests::{Ask, Requests};
use crate::error::{Error, ErrorKind, Result};
use crate::interrupt::Interrupt;
use crate::random::Random;
use crate::runner::gate::Ticket;
use crate::runner::stamp::Stamp;
use crate::runner::{Pinning, on_lanes};
use crate::target::Side;
use crate::workload::{Cell, Pattern};

/// How points are measured, the same for all of them.
#[derive(Debug, Clone)]
pub struct PointOptions {
    /// Backend, polling and the like; depth and pools are set for each point.
    pub queue: QueueOptions,
    /// How long to run before anything counts.
    pub ramp: Duration,
    /// How long requests are offered that count.
    pub runtime: Duration,
    /// How arrivals are spaced.
    pub arrivals: Arrivals,
    /// What offsets, data and arrivals are drawn from.
    pub seed: u64,
    /// Which cores threads keep to.
    pub pinning: Pinning,
    /// How often to print Vdbench's lines.
    pub interval: Option<Duration>,
    /// What stops a run early.
    pub interrupt: Interrupt,
}

/// What one point gave.
#[derive(Debug)]
pub(super) struct Measured {
    /// Requests meant to start in the window.
    pub(super) offered: u64,
    /// Of these, done.
    pub(super) served: u64,
    /// Done within the window, and their bytes.
    pub(super) done: u64,
    pub(super) bytes: u64,
    pub(super) read_ns: Histogram<u64>,
    pub(super) write_ns: Histogram<u64>,
    pub(super) cpu_ns_per_io: f64,
    pub(super) queue: QueueDescription,
}

/// What the lanes of a point share.
struct Shared<'run> {
    volume: &'run Volume,
    profile: &'run Profile,
    options: &'run PointOptions,
    rate: Option<f64>,
    window: Window,
    board: Option<&'run Board>,
    /// Set when one lane failed, so that the others need not run on.
    abort: AtomicBool,
    /// CPU time of the thread that draws the progress, kept up to date by it.
    watcher_cpu_ns: AtomicU64,
}

struct LaneOutcome {
    tally: Tally,
    process_cpu_ns: u64,
    description: QueueDescription,
}

/// Runs `profile` on `volume` at `rate` requests a second, or as fast as it goes. `watch` is called
/// about ten times a second with the time since the start, and `print` with lines of intervals. A
/// point that writes is followed by a flush, outside the window.
pub(super) fn measure(
    volume: &Volume,
    profile: &Profile,
    rate: Option<f64>,
    options: &PointOptions,
    watch: &mut dyn FnMut(Duration),
    print: &mut dyn FnMut(&str),
) -> Result<Measured> {
    options.interrupt.check()?;
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4);
    let from_ns = ns(options.ramp);
    let window = Window {
        from_ns,
        to_ns: from_ns.saturating_add(ns(options.runtime)),
    };
    let board = Board::default();
    let shared = Shared {
        volume,
        profile,
        options,
        rate,
        window,
        board: options.interval.map(|_| &board),
        abort: AtomicBool::new(false),
        watcher_cpu_ns: AtomicU64::new(cpu::thread_cpu_ns()),
    };
    let cores = options.pinning.cores();
    let mut printer = options
        .interval
        .map(|every| Printer::new(&board, ns(every)));
    let outcomes = on_lanes(
        profile.threads,
        &cores,
        &|lane, core, ticket| run_lane(&shared, lane, core, ticket),
        &mut |elapsed| {
            watch(elapsed);
            if let Some(printer) = &mut printer {
                printer.look(ns(elapsed), window, print);
            }
            let cpu_ns = cpu::thread_cpu_ns();
            shared.watcher_cpu_ns.store(cpu_ns, Ordering::Relaxed);
        },
    );
    if let Some(printer) = &mut printer {
        printer.end(window, print);
    }
    let outcomes = outcomes?;
    if profile.writes() {
        volume.flush().map_err(|cause| {
            Error::failed(format!("the flush after {} failed", profile.name), cause)
        })?;
    }
    summarise(profile, outcomes)
}

fn summarise(profile: &Profile, outcomes: Vec<LaneOutcome>) -> Result<Measured> {
    let mut tally = Tally::new()?;
    let lanes = outcomes.len() as f64;
    let mut cpu_ns = 0.0;
    let mut queue = None;
    for outcome in outcomes {
        tally.merge(&outcome.tally)?;
        // Each lane saw the whole process in nearly the same time.
        cpu_ns += outcome.process_cpu_ns as f64 / lanes;
        queue.get_or_insert(outcome.description);
    }
    let (Some(queue), true) = (queue, tally.served > 0 && tally.done > 0) else {
        return Err(Error::new(
            ErrorKind::Failed,
            format!(
                "{}: nothing was done in the time given; use a longer --runtime",
                profile.name
            ),
        ));
    };
    Ok(Measured {
        offered: tally.offered,
        served: tally.served,
        done: tally.done,
        bytes: tally.bytes,
        read_ns: tally.read_ns,
        write_ns: tally.write_ns,
        cpu_ns_per_io: cpu_ns / tally.served as f64,
        queue,
    })
}

fn run_lane(
    shared: &Shared<'_>,
    lane: u32,
    core: Option<usize>,
    ticket: Ticket<'_>,
) -> Result<Option<LaneOutcome>> {
    let outcome = set_up(shared, lane, core).and_then(|make| {
        // A refused start is not this lane's failure: the one that failed tells why.
        let Some(start) = ticket.ready() else {
            return Ok(None);
        };
        measure_lane(shared, make(start)?)
    });
    if outcome.is_err() {
        shared.abort.store(true, Ordering::Relaxed);
    }
    outcome
}

type LaneLoop = OpenLoop<VolumeLane, WallClock>;

/// Gets everything ready; what is left to do is to start the clock.
fn set_up(
    shared: &Shared<'_>,
    lane: u32,
    core: Option<usize>,
) -> Result<impl FnOnce(Instant) -> Result<LaneLoop>> {
    if let Some(core) = core {
        cpu::pin_to(core)
            .map_err(|cause| Error::failed(format!("cannot pin to core {core}"), cause))?;
    }
    let Shared {
        volume,
        profile,
        options,
        rate,
        window,
        ..
    } = *shared;
    let mut random = Random::new(options.seed, u64::from(lane) ^ (1 << 32));
    let (pool, buffers) = buffers(profile, lane, &mut random)?;
    let cell = Cell {
        pattern: Pattern::RandRead,
        block_bytes: profile.block_bytes_max(),
        depth: profile.depth_of(lane),
        lanes: profile.threads,
    };
    // Requests of several sizes do not all begin at a multiple of their own.
    let spare = if profile.sizes.len() > 1 { 2 } else { 1 };
    let queue = QueueOptions {
        depth: (Side::Volume.queue_depth(volume, &cell) * spare).min(4096),
        pools: vec![pool],
        ..options.queue.clone()
    };
    let port = volume
        .lane(&LaneOptions {
            queue,
            statistics: false,
            ..LaneOptions::default()
        })
        .map_err(|cause| Error::failed("cannot open a lane", cause))?;
    let requests = Requests::new(profile, volume.capacity_bytes(), lane, options.seed);
    let load = rate.map_or(Load::Uncapped, |rate| {
        let lanes = (lane, profile.threads);
        Load::Rate(Schedule::new(options.arrivals, rate, lanes, options.seed))
    });
    let stamp = Stamp::new(random.next_u64());
    Ok(move |start| {
        OpenLoop::new(
            port,
            WallClock::since(start),
            (requests, load),
            window,
            (buffers, stamp),
        )
    })
}

/// As many buffers as a lane has requests in flight, and the pool they lie in.
fn buffers(profile: &Profile, lane: u32, random: &mut Random) -> Result<(BufPool, Vec<PoolBuf>)> {
    let no_memory = |cause| {
        Error::new(ErrorKind::NoSpace, "cannot get the memory for the buffers").with_source(cause)
    };
    let bytes = usize::try_from(profile.block_bytes_max())
        .map_err(|_| Error::usage("a request is larger than this machine's address space"))?;
    let count = usize::try_from(profile.depth_of(lane)).unwrap_or(usize::MAX);
    let pool = BufPool::new(bytes.next_multiple_of(4096), count).map_err(no_memory)?;
    let mut buffers = Vec::with_capacity(count);
    while let Some(mut buffer) = pool.take() {
        if profile.writes() {
            buffer.set_len(bytes);
            fill_incompressible(&mut buffer, random.next_u64(), 0);
        }
        buffers.push(buffer);
    }
    Ok((pool, buffers))
}

fn measure_lane(shared: &Shared<'_>, mut lane_loop: LaneLoop) -> Result<Option<LaneOutcome>> {
    let mut observer = Observer {
        shared,
        seen: Totals::default(),
        passed_on_ns: 0,
        cpu_began_ns: 0,
    };
    let outcome = lane_loop.run(&mut observer);
    let process_cpu_ns = observer.process_cpu_ns();
    let process_cpu_ns = process_cpu_ns.saturating_sub(observer.cpu_began_ns);
    if let Some(board) = shared.board {
        board.put(&mut observer.seen);
    }
    let mut completions = Vec::new();
    let drained = VolumeLane::drain(&mut lane_loop.port, &mut completions);
    let Some(()) = outcome? else {
        return Ok(None);
    };
    drained.map_err(|cause| Error::failed(QUEUE_FAILED, cause))?;
    let description = lane_loop.port.description().clone();
    Ok(Some(LaneOutcome {
        tally: lane_loop.into_tally(),
        process_cpu_ns,
        description,
    }))
}

/// Watches one lane.
struct Observer<'run> {
    shared: &'run Shared<'run>,
    seen: Totals,
    passed_on_ns: u64,
    cpu_began_ns: u64,
}

impl Observer<'_> {
    fn process_cpu_ns(&self) -> u64 {
        let watcher = self.shared.watcher_cpu_ns.load(Ordering::Relaxed);
        cpu::process_cpu_ns().saturating_sub(watcher)
    }
}

impl Watch for Observer<'_> {
    #[inline]
    fn is_over(&self) -> bool {
        self.shared.options.interrupt.is_set() || self.shared.abort.load(Ordering::Relaxed)
    }

    fn begin(&mut self) {
        self.cpu_began_ns = self.process_cpu_ns();
    }

    #[inline]
    fn done(&mut self, ask: &Ask, latency_ns: u64) {
        if self.shared.board.is_some() {
            self.seen.add(ask.kind, ask.bytes, latency_ns);
        }
    }

    #[inline]
    fn moment(&mut self, now_ns: u64) {
        if let Some(board) = self.shared.board
            && now_ns - self.passed_on_ns >= PASS_ON_NS
        {
            self.passed_on_ns = now_ns;
            board.put(&mut self.seen);
        }
    }
}

/// Prints the lines of one point.
struct Printer<'board> {
    board: &'board Board,
    every_ns: u64,
    intervals: Option<Intervals>,
}

impl<'board> Printer<'board> {
    fn new(board: &'board Board, every_ns: u64) -> Self {
        Self {
            board,
            every_ns,
            intervals: None,
        }
    }

    fn look(&mut self, elapsed_ns: u64, window: Window, print: &mut dyn FnMut(&str)) {
        if !(window.from_ns..window.to_ns).contains(&elapsed_ns) {
            return;
        }
        let intervals = self.intervals.get_or_insert_with(|| {
            print(&header(&wall().0));
            Intervals::new(window.from_ns, MachineTime::now())
        });
        if elapsed_ns - intervals.printed_ns() >= self.every_ns {
            print(&intervals.line(self.board, elapsed_ns, (MachineTime::now(), &wall().1)));
        }
    }

    fn end(&mut self, window: Window, print: &mut dyn FnMut(&str)) {
        if let Some(intervals) = &mut self.intervals {
            print(&intervals.average(self.board, window.to_ns, (MachineTime::now(), &wall().1)));
        }
    }
}

const QUEUE_FAILED: &str = "the queue failed";

impl Port for VolumeLane {
    #[inline]
    fn submit(&mut self, ask: &Ask, buffer: swath_engine::Buffer, token: u64) {
        if ask.kind == OpKind::Read {
            self.read(ask.offset, buffer, token);
        } else {
            self.write(ask.offset, buffer, token);
        }
    }

    #[inline]
    fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<()> {
        let polled = Self::poll(self, completions);
        polled.map_or_else(|cause| Err(Error::failed(QUEUE_FAILED, cause)), |_| Ok(()))
    }

    #[inline]
    fn wait(&mut self, min: usize, completions: &mut Vec<Completion>) -> Result<()> {
        let waited = Self::wait(self, min, completions);
        waited.map_or_else(|cause| Err(Error::failed(QUEUE_FAILED, cause)), |_| Ok(()))
    }
}

/// How long one point takes at the most usual: its ramp, its window, and setting up.
pub(super) fn point_time(options: &PointOptions) -> Duration {
    options.ramp + options.runtime + Duration::from_millis(40)
}
