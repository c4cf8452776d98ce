//! Takes the states of a scenario's moments, each once, on all cores, and those of the recoveries
//! that follow.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::check::{Care, check};
use super::moments::{Moment, Start, moments};
use super::plan::{Plan, Reach, mix};
use super::scenario::Scenario;

/// What the ends of members hold as a recovery reads them, and, where only the process died, what
/// of it is durable.
type Ends = (u128, Option<u128>);

/// States that one job looks at.
const JOB_STATES: usize = 64;

/// How far to go at one depth: at depth 1 crash the commits, at depth 2 the recoveries of these, and
/// so on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Depth {
    pub(crate) reach: Reach,
    /// The most subsets of one moment; more are sampled.
    pub(crate) sample: u64,
    /// Which states are crashed once more in their recovery: those whose records are of so many
    /// classes each. 0: none.
    pub(crate) deeper_classes: u32,
    /// One in so many of these.
    pub(crate) deeper_one_in: u64,
}

/// What was looked at.
#[derive(Debug)]
pub(crate) struct Count {
    /// Distinct states, by depth.
    pub(crate) states: Vec<u64>,
    /// Moments, by depth.
    pub(crate) moments: Vec<u64>,
    /// Of these, how many had every subset of their sectors looked at.
    pub(crate) exact: Vec<u64>,
    pub(crate) took: Duration,
}

impl Count {
    pub(crate) fn total(&self) -> u64 {
        self.states.iter().sum()
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.took.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = self.total() as f64 / seconds;
        write!(f, "{} states in {seconds:.1} s ({rate:.0}/s)", self.total())?;
        for (depth, states) in self.states.iter().enumerate() {
            write!(
                f,
                "; depth {}: {states} of {} moments, {} of them with every subset",
                depth + 1,
                self.moments[depth],
                self.exact[depth]
            )?;
        }
        Ok(())
    }
}

struct Explorer<'a> {
    scenario: &'a Scenario,
    depths: &'a [Depth],
    jobs: Mutex<Jobs>,
    changed: Condvar,
    /// What is expected of the states that were looked at.
    seen: Vec<Mutex<HashMap<u128, u8>>>,
    /// The ends of members whose recovery was crashed, at each depth: after a power failure, or after
    /// the death of the process, with what was durable then.
    crashed: Vec<Mutex<HashSet<Ends>>>,
    states: Vec<AtomicU64>,
    moments: Vec<AtomicU64>,
    exact: Vec<AtomicU64>,
    failed: AtomicBool,
    failure: Mutex<Option<String>>,
}

#[derive(Default)]
struct Jobs {
    waiting: Vec<Job>,
    under_way: usize,
}

/// Some of the subsets of a moment.
struct Job {
    visit: Arc<Visit>,
    numbers: Vec<u64>,
}

/// A moment and how it was come to.
struct Visit {
    moment: Moment,
    plan: Plan,
    depth: usize,
    /// The crashes before, in words.
    before: String,
}

/// Looks at the states of a scenario to the depths given.
///
/// # Errors
///
/// The first state that does not show what it must, in words.
pub(crate) fn explore(scenario: &Scenario, depths: &[Depth]) -> Result<Count, String> {
    keep_memory();
    let began = Instant::now();
    let counters = || depths.iter().map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    let explorer = Explorer {
        scenario,
        depths,
        jobs: Mutex::default(),
        changed: Condvar::new(),
        seen: (0..64).map(|_| Mutex::default()).collect(),
        crashed: depths.iter().map(|_| Mutex::default()).collect(),
        states: counters(),
        moments: counters(),
        exact: counters(),
        failed: AtomicBool::new(false),
        failure: Mutex::new(None),
    };
    let first = moments(scenario, Start::of(scenario), &scenario.events);
    explorer.visit(first, 0, "");
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| explorer.work());
        }
    });
    if let Some(failure) = explorer.failure.into_inner() {
        return Err(failure);
    }
    let count = |counters: Vec<AtomicU64>| counters.into_iter().map(AtomicU64::into_inner);
    Ok(Count {
        states: count(explorer.states).collect(),
        moments: count(explorer.moments).collect(),
        exact: count(explorer.exact).collect(),
        took: began.elapsed(),
    })
}

/// Each state takes buffers of a quarter of a MiB and gives them back. Without this the allocator
/// asks the kernel for each, which takes as long as all the rest.
fn keep_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: these set two numbers of the allocator, under its own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 256 << 20);
    }
}

impl Explorer<'_> {
    /// Plans the states of some moments.
    fn visit(&self, moments: Vec<Moment>, depth: usize, before: &str) {
        let how = &self.depths[depth];
        let mut jobs = Vec::new();
        for moment in moments {
            let seed = mix(self.scenario.seed ^ moment.event as u64);
            let plan = Plan::new(&moment, &how.reach, seed);
            self.moments[depth].fetch_add(1, Ordering::Relaxed);
            let len = plan.len();
            let numbers: Vec<u64> = if len <= how.sample {
                self.exact[depth].fetch_add(u64::from(plan.is_exact()), Ordering::Relaxed);
                (0..len).collect()
            } else {
                // Nothing kept and the like come first in a plan, and are never left out.
                let some = (0..how.sample).map(|number| mix(seed ^ mix(number)) % len);
                some.chain([0, 1, len - 1]).collect()
            };
            let visit = Arc::new(Visit {
                moment,
                plan,
                depth,
                before: before.to_owned(),
            });
            jobs.extend(numbers.chunks(JOB_STATES).map(|numbers| Job {
                visit: Arc::clone(&visit),
                numbers: numbers.to_vec(),
            }));
        }
        self.jobs.lock().waiting.extend(jobs);
        self.changed.notify_all();
    }

    fn work(&self) {
        loop {
            let job = {
                let mut jobs = self.jobs.lock();
                loop {
                    if self.failed.load(Ordering::Relaxed) {
                        return;
                    }
                    if let Some(job) = jobs.waiting.pop() {
                        jobs.under_way += 1;
                        break job;
                    }
                    if jobs.under_way == 0 {
                        return;
                    }
                    self.changed.wait(&mut jobs);
                }
            };
            for &number in &job.numbers {
                if self.failed.load(Ordering::Relaxed) {
                    break;
                }
                if let Err(failure) = self.look(&job.visit, job.visit.plan.mask(number)) {
                    self.failed.store(true, Ordering::Relaxed);
                    self.failure.lock().get_or_insert(failure);
                }
            }
            self.jobs.lock().under_way -= 1;
            self.changed.notify_all();
        }
    }

    /// Looks at one state, unless that was done before.
    fn look(&self, visit: &Visit, mask: u128) -> Result<(), String> {
        let Visit {
            moment,
            depth,
            before,
            ..
        } = visit;
        let how = &self.depths[*depth];
        let digest = moment.digest(mask);
        let images = moment.state(mask);
        let expected = moment.expected(&images);
        let told = |what: &str| {
            format!(
                "{what}\n  expected: what there was after commit {expected}\n  {:?}, \
                 SWATH_SEED={}\n{before}  the power fails {}",
                self.scenario.kind,
                self.scenario.seed,
                moment.told(mask),
            )
        };
        let low = mix(digest as u64);
        let shard = &self.seen[low as usize % 64];
        let known = shard.lock().insert(digest, expected);
        let is_new = known.is_none();
        if known.is_some_and(|known| known != expected) {
            return Err(told("one state with two outcomes"));
        }
        let goes_deeper = *depth + 1 < self.depths.len()
            && Plan::is_of_classes(moment, mask, how.deeper_classes)
            && mix(low ^ 5).is_multiple_of(how.deeper_one_in);
        // What a recovery writes follows from what it finds at the members' ends.
        let ends = moment.ends_digest(mask);
        let fails = goes_deeper && self.crashed[*depth].lock().insert((ends, None));
        let durable = moment.ends_digest(0);
        let dies = goes_deeper && self.crashed[*depth].lock().insert((ends, Some(durable)));
        let words = moment.told(mask);
        if is_new {
            self.states[*depth].fetch_add(1, Ordering::Relaxed);
        }
        if is_new || fails {
            let care = Care {
                records: fails,
                reads_only: low.is_multiple_of(16),
                goes_on: low % 64 == 1,
                compares_rings: fails || low % 8 == 2,
            };
            let platform = self.scenario.platform(low, &images);
            let events =
                check(self.scenario, &platform, expected, care).map_err(|what| told(&what))?;
            if fails {
                let start = moment.after_power_failure(mask, expected);
                let next = moments(self.scenario, start, &events);
                let before = format!("{before}  the power failed {words}\n");
                self.visit(next, depth + 1, &before);
            }
        }
        if dies {
            let care = Care {
                records: true,
                reads_only: false,
                goes_on: false,
                compares_rings: true,
            };
            let platform = moment.with_cached(self.scenario, mask, low);
            let events = check(self.scenario, &platform, expected, care)
                .map_err(|what| told(&format!("only the process died: {what}")))?;
            let start = moment.after_death(mask, expected);
            let next = moments(self.scenario, start, &events);
            let before = format!("{before}  the process died {words}\n");
            self.visit(next, depth + 1, &before);
        }
        Ok(())
    }
}
