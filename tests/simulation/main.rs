//! Random simulation: stores and volumes on simulated devices, used by several clients at once, while
//! operations fail, are torn, lost and late, and the power fails at any moment, also during recovery.
//! A model knows what may be seen.
//!
//! - Everything in a run follows from its seed: what is done, what goes wrong, which thread runs when,
//!   what a crash keeps. `SWATH_SEED=n` repeats one; `SWATH_SEEDS=k` runs k of them, from 0 on.
//! - A run that fails is cut down: parts of it are left out as long as it still fails. What is left is
//!   printed, with all that happened.

#![expect(
    clippy::cast_possible_truncation,
    reason = "sizes in tests fit in memory"
)]
#![expect(
    clippy::unwrap_used,
    reason = "clippy's leave for tests does not reach their helpers"
)]

mod client;
mod content;
mod model;
mod run;
mod scenario;
mod volume;

use std::collections::BTreeMap;
use std::env;
use std::fmt::Display;
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use swath_tests::sim::{FaultClass, Struck};

use self::run::{Failure, Outcome};

/// How many seeds are run every day.
const SEEDS: u64 = 300;

/// How long a failure is cut down.
const SHRINK_FOR: Duration = Duration::from_secs(60);

/// Panics are expected, while a failure is cut down.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// What is simulated.
trait Simulated: Clone + Display + Send {
    /// What some of its acts come to.
    const ENDS: &[&str];
    /// What goes wrong.
    const FAULTS: &[FaultClass];
    fn draw(seed: u64) -> Self;
    fn seed(&self) -> u64;
    fn acts(&self) -> usize;
    fn smaller(&self) -> Vec<Self>;
    fn run(&self) -> Result<Outcome, Box<Failure>>;
}

macro_rules! simulated {
    ($scenario:ty, $run:path, $ends:expr, $faults:expr) => {
        impl Simulated for $scenario {
            const ENDS: &[&str] = &$ends;
            const FAULTS: &[FaultClass] = &$faults;
            fn draw(seed: u64) -> Self {
                Self::draw(seed)
            }
            fn seed(&self) -> u64 {
                self.seed
            }
            fn acts(&self) -> usize {
                self.acts()
            }
            fn smaller(&self) -> Vec<Self> {
                self.smaller()
            }
            fn run(&self) -> Result<Outcome, Box<Failure>> {
                $run(self)
            }
        }
    };
}

simulated!(
    scenario::Scenario,
    run::run,
    [
        "saved ok",
        "saved NoSpace",
        "saved AlreadyExists",
        "saved Cancelled",
        "saved Poisoned",
        "saved Volume",
        "read ok",
        "removed ok",
        "removed NotFound",
        "verified ok",
        "renamed ok",
    ],
    [
        FaultClass::Transparent,
        FaultClass::Late,
        FaultClass::Failing,
        FaultClass::Silent
    ]
);
simulated!(
    volume::Scenario,
    volume::run,
    [
        "Write ok",
        "Write Poisoned",
        "LaneWrite ok",
        "Burst ok",
        "Futures ok",
        "Zeroes ok",
        "Discard ok",
        "Read ok",
        "Flush ok",
        "Flush Poisoned",
        "CommitRoot ok",
    ],
    [
        FaultClass::Transparent,
        FaultClass::Late,
        FaultClass::Failing
    ]
);

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={value} is not a number")))
}

/// Leaves out of a failing scenario what can be left out.
fn shrink<S: Simulated>(mut scenario: S, mut failure: Box<Failure>) -> Box<Failure> {
    let begun = Instant::now();
    IS_QUIET.store(true, Ordering::Relaxed);
    'again: while begun.elapsed() < SHRINK_FOR {
        for smaller in scenario.smaller() {
            if begun.elapsed() >= SHRINK_FOR {
                break 'again;
            }
            if let Err(still) = smaller.run() {
                (scenario, failure) = (smaller, still);
                continue 'again;
            }
        }
        break;
    }
    IS_QUIET.store(false, Ordering::Relaxed);
    failure
}

#[derive(Default)]
struct Totals {
    seeds: u64,
    acts: usize,
    operations: u64,
    simulated_ns: u128,
    crashes: u64,
    opens: u64,
    lost: u64,
    switches: u64,
    struck: Struck,
    ends: BTreeMap<String, u64>,
}

impl Totals {
    fn add(&mut self, acts: usize, outcome: &Outcome) {
        self.seeds += 1;
        self.acts += acts;
        self.operations += outcome.operations;
        self.simulated_ns += u128::from(outcome.now_ns);
        self.crashes += outcome.crashes;
        self.opens += outcome.opens;
        self.lost += u64::from(outcome.is_lost);
        self.switches += outcome.steps.switches;
        self.struck.merge(&outcome.struck);
        for (end, count) in &outcome.ends {
            *self.ends.entry(end.clone()).or_default() += count;
        }
    }

    fn print(&self, what: &str, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        println!(
            "{what}: {} seeds in {seconds:.1} s: {:.1} simulated hours, {} acts, {} operations \
             ({:.0} a second), {} crashes, {} opens, {} changes of threads, {} ended early",
            self.seeds,
            self.simulated_ns as f64 / 3.6e12,
            self.acts,
            self.operations,
            self.operations as f64 / seconds,
            self.crashes,
            self.opens,
            self.switches,
            self.lost,
        );
        println!("{what}: faults: {}", self.struck);
        println!("{what}: ends: {:?}", self.ends);
    }
}

impl Totals {
    /// All that should happen in so many runs did.
    fn check<S: Simulated>(&self) {
        for end in S::ENDS {
            let has_been = self.ends.contains_key(*end);
            assert!(has_been, "it never came to: {end}");
        }
        for class in S::FAULTS {
            assert!(self.struck.count(*class) > 0, "no fault was {class:?}");
        }
        assert!(self.crashes > self.seeds && self.opens > self.crashes);
        assert!(self.switches > 10 * self.seeds);
    }
}

/// Runs as many seeds as were asked for, on every core.
fn simulate<S: Simulated>(what: &str) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let standard = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.load(Ordering::Relaxed) {
                standard(info);
            }
        }));
    });
    let (first, count) = match number("SWATH_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("SWATH_SEEDS").unwrap_or(SEEDS)),
    };
    let begun = Instant::now();
    let next = AtomicU64::new(first);
    let totals = Mutex::new(Totals::default());
    let failed = Mutex::new(None);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count || failed.lock().is_some() {
                return;
            }
            let scenario = S::draw(seed);
            match scenario.run() {
                Ok(outcome) => totals.lock().add(scenario.acts(), &outcome),
                Err(failure) => {
                    failed.lock().get_or_insert((scenario, failure));
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
        work();
    });
    totals.lock().print(what, begun.elapsed());
    if count >= SEEDS && failed.lock().is_none() {
        totals.lock().check::<S>();
    }
    if let Some((scenario, failure)) = failed.into_inner() {
        let seed = scenario.seed();
        println!("SWATH_SEED={seed} fails: {}\n{scenario}", failure.message);
        let failure = shrink(scenario, failure);
        println!("cut down:\n{}", failure.story);
        panic!("SWATH_SEED={seed} ({what}): {}", failure.message);
    }
}

fn repeat<S: Simulated>(what: &str) {
    let mut digests = Vec::new();
    for seed in (0..40).step_by(5) {
        let scenario = S::draw(seed);
        let [one, two] = [(); 2].map(|()| {
            scenario.run().unwrap_or_else(|failure| {
                panic!(
                    "SWATH_SEED={seed} ({what}): {}\n{}",
                    failure.message, failure.story
                )
            })
        });
        assert_eq!(one, two, "SWATH_SEED={seed} ({what}) has two outcomes");
        digests.push(one.steps.digest);
    }
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 8, "seeds differ");
}

#[test]
fn whatever_happens_a_store_keeps_its_word() {
    simulate::<scenario::Scenario>("stores");
}

#[test]
fn whatever_happens_a_volume_keeps_its_word() {
    simulate::<volume::Scenario>("volumes");
}

#[test]
fn a_seed_is_one_run() {
    repeat::<scenario::Scenario>("stores");
    repeat::<volume::Scenario>("volumes");
}
