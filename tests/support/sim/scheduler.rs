//! [`SimScheduler`]: real threads, one of which runs at a time, in an order that a seed chooses.
//!
//! - A thread that does not run stands still in one of the calls of [`Scheduler`], or in a queue's
//!   poll or wait. The one that runs has the *baton*; it gives it on only there. So everything
//!   between two such calls is one step, and the seed decides the order of the steps.
//! - When nobody can run any more, that is a deadlock: the run ends with a list of who waits for what.
//!   So it does when a thread takes no step for a minute: it waits for something the scheduler does
//!   not know of.
//! - Every step goes into a digest. Two runs of one seed have the same digest, or something decides
//!   that does not follow from the seed.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use swath_engine::Scheduler;

#[cfg(test)]
mod tests;

/// No step for so long in real time: a thread is lost.
const LOST_AFTER: Duration = Duration::from_secs(60);

/// More steps than any run takes that comes to an end.
const STEPS_MAX: u64 = 20_000_000;

thread_local! {
    /// The number of the thread, and of its scheduler.
    static CURRENT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Lets the threads of a simulated platform run, one at a time.
pub struct SimScheduler {
    state: Mutex<State>,
    /// Nobody is left, or nobody can go on.
    over: Condvar,
}

struct State {
    rng: ChaCha8Rng,
    /// How often, of 256 times, another thread may run where it need not.
    eagerness: u32,
    tasks: BTreeMap<u64, Task>,
    /// Who has the baton.
    running: Option<u64>,
    next_task: u64,
    places: Vec<&'static str>,
    now_ns: u64,
    steps: u64,
    switches: u64,
    digest: u64,
    /// Why it does not go on.
    stuck: Option<String>,
}

struct Task {
    name: String,
    state: TaskState,
    /// Told when the baton is its.
    turn: Arc<Condvar>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskState {
    Ready,
    /// At a place, until it is woken.
    Waiting(u64),
    /// Until a moment of simulated time, or until the place is woken.
    Sleeping {
        until_ns: u64,
        place: u64,
    },
    /// Until another has ended.
    Joining(u64),
}

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// How many steps were taken, by all threads.
    pub steps: u64,
    /// How often another thread went on.
    pub switches: u64,
    /// A number for all of it.
    pub digest: u64,
}

impl SimScheduler {
    /// A scheduler all of whose choices come from `seed`: also how often it changes threads.
    pub fn new(seed: u64) -> Arc<Self> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let eagerness = [8, 32, 128, 256][rng.random_range(0..4)];
        Arc::new(Self {
            state: Mutex::new(State {
                rng,
                eagerness,
                tasks: BTreeMap::new(),
                running: None,
                next_task: 0,
                places: Vec::new(),
                now_ns: 0,
                steps: 0,
                switches: 0,
                digest: 0xcbf2_9ce4_8422_2325,
                stuck: None,
            }),
            over: Condvar::new(),
        })
    }

    /// Runs `work` on a thread of its own, and every thread that it starts, until all have ended.
    ///
    /// # Panics
    ///
    /// As `work` does; when nobody can go on, with who waits for what. Threads that wait for ever
    /// are left behind then.
    pub fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let number = self.announce("main");
        self.state.lock().running = Some(number);
        let scheduler = Arc::clone(self);
        let thread = thread::Builder::new()
            .name("main".to_owned())
            .spawn(move || {
                scheduler.begin(number);
                let result = catch_unwind(AssertUnwindSafe(work));
                scheduler.end(number);
                result
            })
            .expect("a thread can be had");
        let mut state = self.state.lock();
        loop {
            if let Some(report) = &state.stuck {
                panic!("{report}");
            }
            if state.tasks.is_empty() {
                break;
            }
            let steps = state.steps;
            let waited = self.over.wait_for(&mut state, LOST_AFTER);
            if waited.timed_out() && state.steps == steps && !state.tasks.is_empty() {
                state.stuck =
                    Some(state.report("a thread waits for what the scheduler does not see"));
            }
        }
        drop(state);
        let result = thread.join().expect("it catches every panic");
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// What was done so far.
    pub fn steps(&self) -> Steps {
        let state = self.state.lock();
        Steps {
            steps: state.steps,
            switches: state.switches,
            digest: state.digest,
        }
    }

    /// Adds something to the digest.
    pub fn note(&self, numbers: &[u64]) {
        self.state.lock().note(numbers);
    }

    /// The name of the thread that runs.
    pub fn running(&self) -> String {
        let state = self.state.lock();
        let task = state.running.and_then(|number| state.tasks.get(&number));
        task.map_or_else(String::new, |task| task.name.clone())
    }

    /// Simulated time, as far as the scheduler knows.
    pub fn now_ns(&self) -> u64 {
        self.state.lock().now_ns
    }

    /// Simulated time has gone on.
    pub fn set_now_ns(&self, now_ns: u64) {
        let mut state = self.state.lock();
        state.now_ns = state.now_ns.max(now_ns);
    }

    /// Blocks the calling thread until a moment of simulated time, or until the place is woken.
    pub fn sleep(&self, until_ns: u64, place: u64) {
        let mut state = self.state.lock();
        let me = state.step(3, until_ns);
        self.block(state, me, TaskState::Sleeping { until_ns, place });
    }

    /// Stops for what a thread waits for, and goes on when the baton comes back.
    fn block(&self, mut state: MutexGuard<'_, State>, me: u64, how: TaskState) {
        state.task(me).state = how;
        let next = state.choose();
        self.hand_over(state, me, next);
    }

    /// Gives the baton to `next`, and waits until it comes back to `me`.
    fn hand_over(&self, mut state: MutexGuard<'_, State>, me: u64, next: Option<u64>) {
        self.give(&mut state, next);
        let turn = Arc::clone(&state.task(me).turn);
        while state.running != Some(me) {
            turn.wait(&mut state);
        }
    }

    fn give(&self, state: &mut State, next: Option<u64>) {
        if state.running != next {
            state.switches += 1;
        }
        state.running = next;
        if let Some(next) = next {
            let task = state.task(next);
            task.state = TaskState::Ready;
            task.turn.notify_all();
            return;
        }
        if !state.tasks.is_empty() && state.stuck.is_none() {
            state.stuck = Some(state.report("deadlock: nobody can go on"));
        }
        self.over.notify_all();
    }
}

impl State {
    fn task(&mut self, number: u64) -> &mut Task {
        self.tasks
            .get_mut(&number)
            .expect("the thread has not ended")
    }

    fn note(&mut self, numbers: &[u64]) {
        for byte in numbers.iter().flat_map(|number| number.to_le_bytes()) {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// The calling thread takes a step. Gives its number.
    fn step(&mut self, kind: u64, detail: u64) -> u64 {
        let me = CURRENT.get();
        assert!(
            me.is_some() && me == self.running,
            "a thread that the scheduler does not know uses what its threads use"
        );
        let me = me.expect("it was looked at just now");
        self.steps += 1;
        if self.steps > STEPS_MAX {
            panic!("{}", self.report("there is no end in sight"));
        }
        self.note(&[me, kind, detail]);
        me
    }

    /// Who goes on: one of those who can, else whoever sleeps least long.
    fn choose(&mut self) -> Option<u64> {
        let now_ns = self.now_ns;
        let can = |task: &Task| match task.state {
            TaskState::Ready => true,
            TaskState::Sleeping { until_ns, .. } => until_ns <= now_ns,
            TaskState::Waiting(_) | TaskState::Joining(_) => false,
        };
        let count = self.tasks.values().filter(|task| can(task)).count();
        if count > 0 {
            let chosen = self.rng.random_range(0..count);
            let mut able = self.tasks.iter().filter(|(_, task)| can(task));
            return able.nth(chosen).map(|(&number, _)| number);
        }
        let sleepers = self
            .tasks
            .iter()
            .filter_map(|(&number, task)| match task.state {
                TaskState::Sleeping { until_ns, .. } => Some((until_ns, number)),
                _ => None,
            });
        let (until_ns, number) = sleepers.min()?;
        self.now_ns = until_ns;
        Some(number)
    }

    fn wake(&mut self, place: u64) {
        for task in self.tasks.values_mut() {
            match task.state {
                TaskState::Waiting(at) | TaskState::Sleeping { place: at, .. } if at == place => {
                    task.state = TaskState::Ready;
                }
                _ => {}
            }
        }
    }

    /// Who waits for what.
    fn report(&self, what: &str) -> String {
        let mut report = format!("{what}; after {} steps:", self.steps);
        for (&number, task) in &self.tasks {
            let state = match task.state {
                _ if self.running == Some(number) => "runs".to_owned(),
                TaskState::Ready => "could go on".to_owned(),
                TaskState::Waiting(place) => {
                    format!("waits for {} (place {place})", self.places[index(place)])
                }
                TaskState::Sleeping { until_ns, place } => {
                    format!(
                        "waits for {} until {until_ns} ns",
                        self.places[index(place)]
                    )
                }
                TaskState::Joining(other) => {
                    let name = self.tasks.get(&other).map_or("", |other| &other.name);
                    format!("waits for the end of {name} ({other})")
                }
            };
            report.push_str(&format!("\n  {} ({number}) {state}", task.name));
        }
        report
    }
}

fn index(place: u64) -> usize {
    usize::try_from(place).expect("places are few")
}

impl Scheduler for SimScheduler {
    fn announce(&self, name: &str) -> u64 {
        let mut state = self.state.lock();
        let number = state.next_task;
        state.next_task += 1;
        let task = Task {
            name: name.to_owned(),
            state: TaskState::Ready,
            turn: Arc::new(Condvar::new()),
        };
        state.tasks.insert(number, task);
        number
    }

    fn begin(&self, thread: u64) {
        CURRENT.set(Some(thread));
        let mut state = self.state.lock();
        let turn = Arc::clone(&state.task(thread).turn);
        while state.running != Some(thread) {
            turn.wait(&mut state);
        }
    }

    fn end(&self, thread: u64) {
        let mut state = self.state.lock();
        state.tasks.remove(&thread);
        for task in state.tasks.values_mut() {
            if task.state == TaskState::Joining(thread) {
                task.state = TaskState::Ready;
            }
        }
        // One that was never started has no baton to give.
        if state.running == Some(thread) {
            CURRENT.set(None);
            state.note(&[thread, 0]);
            let next = state.choose();
            self.give(&mut state, next);
        }
    }

    fn join(&self, thread: u64) {
        let mut state = self.state.lock();
        let me = state.step(1, thread);
        if state.tasks.contains_key(&thread) {
            self.block(state, me, TaskState::Joining(thread));
        }
    }

    fn place(&self, name: &'static str) -> u64 {
        let mut state = self.state.lock();
        let number = state.places.len() as u64;
        state.places.push(name);
        number
    }

    fn wait(&self, place: u64) {
        let mut state = self.state.lock();
        let me = state.step(2, place);
        self.block(state, me, TaskState::Waiting(place));
    }

    fn wake(&self, place: u64) {
        self.state.lock().wake(place);
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        let me = state.step(4, 0);
        let eagerness = state.eagerness;
        if state.tasks.len() > 1 && state.rng.random_range(0..256) < eagerness {
            let next = state.choose();
            self.hand_over(state, me, next);
        }
    }
}

impl fmt::Debug for SimScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("SimScheduler")
            .field("threads", &state.tasks.len())
            .field("steps", &state.steps)
            .finish_non_exhaustive()
    }
}
