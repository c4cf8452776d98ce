//! Random simulation: volumes and stores on simulated devices, used by several clients at once, while
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

use std::env;
use std::panic;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use swath_tests::sim::Struck;

use self::run::{Failure, Outcome, run};
use self::scenario::Scenario;

/// How many seeds are run every day.
const SEEDS: u64 = 300;

/// How long a failure is cut down.
const SHRINK_FOR: Duration = Duration::from_secs(60);

/// Panics are expected, while a failure is cut down.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={value} is not a number")))
}

/// Leaves out of a failing scenario what can be left out.
fn shrink(mut scenario: Scenario, mut failure: Box<Failure>) -> (Scenario, Box<Failure>) {
    let begun = Instant::now();
    IS_QUIET.store(true, Ordering::Relaxed);
    'again: while begun.elapsed() < SHRINK_FOR {
        for smaller in scenario.smaller() {
            if begun.elapsed() >= SHRINK_FOR {
                break 'again;
            }
            if let Err(still) = run(&smaller) {
                (scenario, failure) = (smaller, still);
                continue 'again;
            }
        }
        break;
    }
    IS_QUIET.store(false, Ordering::Relaxed);
    (scenario, failure)
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
}

impl Totals {
    fn add(&mut self, scenario: &Scenario, outcome: &Outcome) {
        self.seeds += 1;
        self.acts += scenario.acts();
        self.operations += outcome.operations;
        self.simulated_ns += u128::from(outcome.now_ns);
        self.crashes += outcome.crashes;
        self.opens += outcome.opens;
        self.lost += u64::from(outcome.is_lost);
        self.switches += outcome.steps.switches;
        self.struck.merge(&outcome.struck);
    }

    fn print(&self, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        println!(
            "{} seeds in {seconds:.1} s: {:.1} simulated hours, {} acts, {} operations ({:.0} a \
             second), {} crashes, {} opens, {} changes of threads, {} ended early",
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
        println!("faults: {}", self.struck);
    }
}

#[test]
fn whatever_happens_a_store_keeps_its_word() {
    let standard = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !IS_QUIET.load(Ordering::Relaxed) {
            standard(info);
        }
    }));
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
            let scenario = Scenario::draw(seed);
            match run(&scenario) {
                Ok(outcome) => totals.lock().add(&scenario, &outcome),
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
    totals.lock().print(begun.elapsed());
    if let Some((scenario, failure)) = failed.into_inner() {
        let seed = scenario.seed;
        println!("SWATH_SEED={seed} fails: {}", failure.message);
        let (_, failure) = shrink(scenario, failure);
        println!("cut down:\n{}", failure.story);
        panic!("SWATH_SEED={seed}: {}", failure.message);
    }
}

#[test]
fn a_seed_is_one_run() {
    let mut digests = Vec::new();
    for seed in (0..40).step_by(5) {
        let scenario = Scenario::draw(seed);
        let [one, two] = [(); 2].map(|()| {
            run(&scenario).unwrap_or_else(|failure| {
                panic!("SWATH_SEED={seed}: {}\n{}", failure.message, failure.story)
            })
        });
        assert_eq!(one, two, "SWATH_SEED={seed} has two outcomes");
        digests.push(one.steps.digest);
    }
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 8, "seeds differ");
}
