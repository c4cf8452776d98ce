//! What the shared handle costs beside a lane of one's own: `cargo bench --bench handle`.
//!
//! ```text
//! direct        one thread, its own lane: the I/O alone
//! blocking T    T threads, each calls and waits for its answer: one request of each in flight
//! futures F     one thread, F submissions in flight, awaited in the order of their hand-over
//! ```
//!
//! - 4 KiB reads at random places of files that were reserved and never written, so that what is
//!   measured is software. Every case in turn, several rounds; the middle round is printed.
//! - The hand-over is the CPU time of a request less that of the direct lane with as much in flight
//!   (or the nearest): both ends of it, the caller's and the worker's, and their wake-ups. Wall-clock
//!   time cannot show it where caller and worker run at once.
//! - With more workers than cores to spare, figures say how a busy machine behaves, not how it scales.

use std::collections::VecDeque;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use swath_bench::{
    Error, Interrupt, MembersOptions, Random, Result, TemporaryMembers, default_parent,
    parse_duration, parse_size,
};
use swath_engine::{
    AlignedBuf, Buffer, FileFill, HandleOptions, LaneOptions, QueueOptions, Request, Submission,
    cpu,
};
use swath_volume::{CreateOptions, OpenOptions, Volume};

const BLOCK: usize = 4096;

/// Requests in flight of the direct lane that others are compared with.
const DIRECT_DEPTHS: [usize; 3] = [1, 32, 128];
const THREADS: [usize; 3] = [1, 4, 16];
const FUTURES: [usize; 4] = [1, 32, 256, 1024];

/// The price of a request's way through worker lanes, against a lane of one's own.
#[derive(Debug, Parser)]
struct Options {
    /// How long each case is measured, each round
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_duration)]
    runtime: Duration,

    /// How often; the middle one is printed
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,

    /// Worker lanes to try
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: Vec<u32>,

    /// Where the member files are made, and removed at the end
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// How many members
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=128))]
    members: u32,

    /// Bytes of each
    #[arg(long, value_name = "BYTES", default_value = "256m", value_parser = parse_size)]
    size: u64,

    /// What cargo says to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

/// How requests are handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Direct { depth: usize },
    Blocking { threads: usize },
    Futures { count: usize },
}

impl Way {
    fn in_flight(self) -> usize {
        match self {
            Self::Direct { depth } => depth,
            Self::Blocking { threads } => threads,
            Self::Futures { count } => count,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Direct { depth } => format!("direct, depth {depth}"),
            Self::Blocking { threads } => format!("blocking, threads {threads}"),
            Self::Futures { count } => format!("futures, in flight {count}"),
        }
    }
}

/// What one round of a case gave, for each request.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    wall_ns: f64,
    cpu_ns: f64,
    wake_ups: f64,
}

struct Case {
    workers: u32,
    way: Way,
    rounds: Vec<Round>,
}

fn main() {
    let options = Options::parse();
    if let Err(error) = measure(&options) {
        eprintln!("handle: error: {}", error.chain());
        std::process::exit(i32::from(error.exit_code()));
    }
}

fn measure(options: &Options) -> Result<()> {
    let interrupt = Interrupt::new();
    let members = MembersOptions {
        parent: options.dir.clone().unwrap_or_else(default_parent),
        count: options.members,
        member_bytes: options.size,
        fill: FileFill::Unwritten,
    };
    let members = TemporaryMembers::make(&members, &interrupt, &mut |_, _| ())?;
    let made = Volume::create(members.paths(), &CreateOptions::default());
    made.and_then(Volume::close)
        .map_err(|cause| Error::failed("cannot create a volume", cause))?;

    let direct = DIRECT_DEPTHS.map(|depth| (0, Way::Direct { depth }));
    let shared = options.workers.iter().flat_map(|&workers| {
        let blocking = THREADS.map(|threads| (workers, Way::Blocking { threads }));
        let futures = FUTURES.map(|count| (workers, Way::Futures { count }));
        blocking.into_iter().chain(futures)
    });
    let mut cases: Vec<Case> = direct
        .into_iter()
        .chain(shared)
        .map(|(workers, way)| Case {
            workers,
            way,
            rounds: Vec::new(),
        })
        .collect();
    for round in 0..options.rounds {
        for case in &mut cases {
            interrupt.check()?;
            let volume = open(&members, case.workers)?;
            let seed = u64::from(round);
            case.rounds
                .push(run(&volume, case.way, options.runtime, seed)?);
        }
        eprintln!("round {} of {} is done", round + 1, options.rounds);
    }
    print(&cases, options);
    Ok(())
}

fn open(members: &TemporaryMembers, workers: u32) -> Result<Volume> {
    let options = OpenOptions {
        read_only: true,
        handle: HandleOptions {
            workers: workers.max(1) as usize,
            ..HandleOptions::default()
        },
        ..OpenOptions::default()
    };
    Volume::open(members.paths(), &options)
        .map_err(|cause| Error::failed("cannot open the volume", cause))
}

fn run(volume: &Volume, way: Way, runtime: Duration, seed: u64) -> Result<Round> {
    // Starts the workers, and is no part of the round.
    read_one(volume, &mut Random::new(seed, 1), new_block()?)?;
    let wake_ups = volume.handle_stats().wake_ups();
    let cpu_ns = cpu::process_cpu_ns();
    let started = Instant::now();
    let count = match way {
        Way::Direct { depth } => direct(volume, depth, runtime, seed)?,
        Way::Blocking { threads } => blocking(volume, threads, runtime, seed)?,
        Way::Futures { count } => futures(volume, count, runtime, seed)?,
    };
    let wall_ns = started.elapsed().as_nanos() as f64;
    let cpu_ns = cpu::process_cpu_ns() - cpu_ns;
    let wake_ups = volume.handle_stats().wake_ups() - wake_ups;
    let count = count.max(1) as f64;
    Ok(Round {
        wall_ns: wall_ns / count,
        cpu_ns: cpu_ns as f64 / count,
        wake_ups: wake_ups as f64 / count,
    })
}

fn new_block() -> Result<Buffer> {
    let block = AlignedBuf::zeroed(BLOCK);
    let block = block.map_err(|cause| Error::failed("no memory for a block", cause))?;
    Ok(block.into())
}

fn place(volume: &Volume, random: &mut Random) -> u64 {
    random.below(volume.capacity_bytes() / BLOCK as u64) * BLOCK as u64
}

fn submit(volume: &Volume, random: &mut Random, block: Buffer) -> Submission {
    volume.submit(Request::read(block, 0), place(volume, random), 0)
}

/// One request, and its buffer back.
fn read_one(volume: &Volume, random: &mut Random, block: Buffer) -> Result<Buffer> {
    buffer_of(submit(volume, random, block).wait())
}

fn buffer_of(completion: swath_engine::Completion) -> Result<Buffer> {
    let buffers = completion.buffers;
    completion
        .result
        .map_err(|cause| Error::failed("a read failed", cause))?;
    Ok(buffers.into_one().expect("a read gives its buffer back"))
}

fn direct(volume: &Volume, depth: usize, runtime: Duration, seed: u64) -> Result<u64> {
    let options = LaneOptions {
        queue: QueueOptions {
            depth: u32::try_from(depth).expect("depths are small"),
            ..QueueOptions::default()
        },
        ..LaneOptions::default()
    };
    let failed = |cause| Error::failed("the direct lane failed", cause);
    let mut lane = volume.lane(&options).map_err(failed)?;
    let mut random = Random::new(seed, 2);
    let until = Instant::now() + runtime;
    let mut completions = Vec::new();
    let mut count = 0;
    for _ in 0..depth {
        lane.read(place(volume, &mut random), new_block()?, 0);
    }
    while Instant::now() < until {
        lane.wait((depth / 16).max(1), &mut completions)
            .map_err(failed)?;
        for completion in completions.drain(..) {
            count += 1;
            lane.read(place(volume, &mut random), buffer_of(completion)?, 0);
        }
    }
    count += lane.in_flight() as u64;
    lane.drain(&mut completions).map_err(failed)?;
    Ok(count)
}

fn blocking(volume: &Volume, threads: usize, runtime: Duration, seed: u64) -> Result<u64> {
    let total = AtomicU64::new(0);
    let until = Instant::now() + runtime;
    let results: Vec<Result<()>> = thread::scope(|scope| {
        let total = &total;
        let callers = (0..threads as u64).map(|number| {
            scope.spawn(move || {
                let mut random = Random::new(seed, 10 + number);
                let mut block = new_block()?;
                let mut count = 0;
                while Instant::now() < until {
                    block = read_one(volume, &mut random, block)?;
                    count += 1;
                }
                total.fetch_add(count, Ordering::Relaxed);
                Ok(())
            })
        });
        let callers: Vec<_> = callers.collect();
        let joined = callers.into_iter().map(|caller| {
            caller
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        joined.collect()
    });
    results.into_iter().collect::<Result<()>>()?;
    Ok(total.into_inner())
}

fn futures(volume: &Volume, in_flight: usize, runtime: Duration, seed: u64) -> Result<u64> {
    let mut random = Random::new(seed, 3);
    let until = Instant::now() + runtime;
    let parker = Arc::new(Parker::new());
    let waker = Waker::from(Arc::clone(&parker));
    let mut submissions = VecDeque::with_capacity(in_flight);
    for _ in 0..in_flight {
        submissions.push_back(submit(volume, &mut random, new_block()?));
    }
    let mut count = 0;
    while let Some(mut oldest) = submissions.pop_front() {
        let completion = loop {
            match Pin::new(&mut oldest).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(completion) => break completion,
                Poll::Pending => parker.park(),
            }
        };
        count += 1;
        let block = buffer_of(completion)?;
        // Looked at now and then: the clock is no part of a hand-over.
        let is_over = count % 16 == 0 && Instant::now() >= until;
        if is_over {
            break;
        }
        submissions.push_back(submit(volume, &mut random, block));
    }
    for submission in submissions {
        buffer_of(submission.wait())?;
        count += 1;
    }
    Ok(count)
}

/// An executor of one thread: it sleeps until the future that it looks at is done.
struct Parker {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Parker {
    fn new() -> Self {
        Self {
            thread: thread::current(),
            is_woken: AtomicBool::new(false),
        }
    }

    fn park(&self) {
        while !self.is_woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// The middle round of each column.
fn middle(rounds: &[Round], column: impl Fn(&Round) -> f64) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(column).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn print(cases: &[Case], options: &Options) {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header([
        "workers",
        "hand-over",
        "requests/s",
        "wall ns",
        "CPU ns",
        "hand-over ns",
        "wake-ups",
    ]);
    for case in cases {
        let cpu_ns = middle(&case.rounds, |round| round.cpu_ns);
        let wall_ns = middle(&case.rounds, |round| round.wall_ns);
        let is_direct = matches!(case.way, Way::Direct { .. });
        let row = [
            if is_direct {
                "-".to_owned()
            } else {
                case.workers.to_string()
            },
            case.way.name(),
            format!("{:.0}", 1e9 / wall_ns),
            format!("{wall_ns:.0}"),
            format!("{cpu_ns:.0}"),
            if is_direct {
                "-".to_owned()
            } else {
                format!("{:.0}", cpu_ns - direct_cpu_ns(cases, case.way.in_flight()))
            },
            format!("{:.3}", middle(&case.rounds, |round| round.wake_ups)),
        ];
        table.add_row(row);
    }
    for column in [0, 2, 3, 4, 5, 6] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!(
        "4 KiB random reads, {} members, {} rounds of {} ms, {} cores; for each request:",
        options.members,
        options.rounds,
        options.runtime.as_millis(),
        cpu::available().len()
    );
    println!("{table}");
}

/// The CPU time of a direct request with about as much in flight.
fn direct_cpu_ns(cases: &[Case], in_flight: usize) -> f64 {
    let direct = cases
        .iter()
        .filter(|case| matches!(case.way, Way::Direct { .. }));
    direct
        .min_by_key(|case| case.way.in_flight().abs_diff(in_flight))
        .map_or(0.0, |case| middle(&case.rounds, |round| round.cpu_ns))
}
