//! One process that changes its store in every way it knows, killed at any moment, over and over.
//!
//! Some kills come at a moment of chance after the start; most are aimed at a phase, and fall
//! somewhere within the time that such a phase took before.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rand::rngs::ChaCha8Rng;
use rand::{Rng, RngExt};
use swath_engine::Backend;
use swath_tests::checkpoints;
use swath_tests::fixtures::{self, Place};
use swath_tests::seed::Seed;

use super::afterwards::{self, Tally};
use super::process::{Heard, Process, Role, Word};
use super::state::{Account, State};
use super::{kills, saver};

/// When a process is killed.
#[derive(Debug)]
enum Aim {
    /// So long after it was started.
    Start(Duration),
    /// In the phase of this name, the nth time, after this share of the time it takes.
    Phase {
        name: &'static str,
        nth: u32,
        share: f64,
    },
}

const PHASES: [&str; 9] = [
    "opening",
    "writing",
    "committing",
    "saving with threads",
    "copying for the background",
    "writing in the background",
    "writing two in the background",
    "retaining",
    "removing",
];

impl Aim {
    fn new(rng: &mut impl Rng) -> Self {
        if rng.random_range(0..4) == 0 {
            return Self::Start(Duration::from_micros(rng.random_range(1_000..60_000)));
        }
        // Half of them where it matters most.
        let name = if rng.random() {
            "committing"
        } else {
            PHASES[rng.random_range(0..PHASES.len())]
        };
        Self::Phase {
            name,
            nth: rng.random_range(1..3),
            share: rng.random_range(0.0..1.1),
        }
    }
}

/// How long phases take here: a mean that forgets.
#[derive(Debug, Default)]
struct Phases(BTreeMap<String, Duration>);

impl Phases {
    fn took(&mut self, phase: &str, time: Duration) {
        let mean = self.0.entry(phase.to_owned()).or_insert(time);
        *mean = (*mean * 3 + time) / 4;
    }

    fn time_of(&self, phase: &str) -> Duration {
        self.0
            .get(phase)
            .copied()
            .unwrap_or(Duration::from_millis(1))
    }
}

/// What was heard of a process until its end.
struct Watch {
    account: Account,
    /// What it was doing, and since when.
    phase: String,
    since: Instant,
}

impl Watch {
    /// Takes what came. Whether a phase has begun.
    fn hear(&mut self, heard: Heard, phases: &mut Phases) -> bool {
        let Word::Line(line) = heard.word else {
            panic!("it ended by itself while {}", self.phase);
        };
        self.account.hear(&line);
        let next = match line.strip_prefix("phase ") {
            Some(next) => next,
            None if line == "done" => "between changes",
            None => return false,
        };
        phases.took(&self.phase, heard.at - self.since);
        self.phase = next.to_owned();
        self.since = heard.at;
        true
    }
}

/// Listens until the moment has come.
fn listen(lines: &Receiver<Heard>, watch: &mut Watch, aim: &Aim, phases: &mut Phases) {
    let started = Instant::now();
    // An aim that is never met shall not be waited for.
    let mut end = started + Duration::from_secs(2);
    let mut left = 0;
    match aim {
        Aim::Start(after) => end = started + *after,
        Aim::Phase { nth, .. } => left = *nth,
    }
    loop {
        let has_begun = match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(heard) => watch.hear(heard, phases),
            Err(RecvTimeoutError::Timeout) => return,
            Err(RecvTimeoutError::Disconnected) => panic!("nobody is there"),
        };
        if let Aim::Phase { name, share, .. } = aim
            && has_begun
            && watch.phase == *name
            && left > 0
        {
            left -= 1;
            if left == 0 {
                end = watch.since + phases.time_of(name).mul_f64(*share);
            }
        }
    }
}

/// Kills processes on one volume, and looks at it after each.
fn kill_on(role: &Role, kills: u32, rng: &mut ChaCha8Rng, tally: &mut Tally) {
    drop(checkpoints::store_on_files(
        &role.members,
        64 << 10,
        role.backend,
    ));
    let mut state = State::default();
    let mut phases = Phases::default();
    let mut changes = 0;
    for _ in 0..kills {
        let aim = Aim::new(rng);
        let role = Role {
            seed: rng.random(),
            ..role.clone()
        };
        let (to, lines) = channel();
        let mut watch = Watch {
            account: Account::new(state),
            phase: "starting".to_owned(),
            since: Instant::now(),
        };
        let mut process = Process::start(&role, 0, to);
        listen(&lines, &mut watch, &aim, &mut phases);
        process.kill();
        // What it said before.
        for heard in lines {
            if matches!(heard.word, Word::Line(_)) {
                watch.hear(heard, &mut phases);
            }
        }
        process.assert_killed();
        tally.count(format!("killed while {}", watch.phase));
        changes += watch.account.changes;
        let options = role.store_options();
        state = afterwards::check(
            &role.members,
            &options,
            &watch.account,
            saver::tensors,
            tally,
        );
    }
    tally.count(format!(
        "volumes: {} members, {}, {changes} changes acknowledged",
        role.members.len(),
        role.backend
    ));
    assert!(changes > u64::from(kills / 3), "only {changes} changes");
    afterwards::assert_no_space_is_lost(&role.members, &role.store_options());
}

#[test]
fn whenever_it_is_killed_what_was_acknowledged_is_there() {
    let seed = Seed::new();
    let mut rng = seed.rng();
    let mut tally = Tally::default();
    let disk = fixtures::folder();
    let memory = Place::Memory.folder();
    let memory = memory.as_ref().unwrap_or(&disk);
    // Plain calls in memory, where the steps of a commit are close together; rings on a disk, where
    // a flush takes its time.
    let kinds = [
        (1, memory, Backend::Auto),
        (2, &disk, Backend::Auto),
        (3, &disk, Backend::Aio),
        (4, memory, Backend::Uring),
    ];
    let all = kills();
    for (index, (count, folder, backend)) in (0..).zip(kinds) {
        if !fixtures::backends().contains(&backend) && backend != Backend::Auto {
            continue;
        }
        let place = folder.path().join(count.to_string());
        std::fs::create_dir(&place).unwrap();
        let role = Role {
            name: "save for ever".to_owned(),
            members: fixtures::members(&place, count, 14 << 20),
            backend,
            seed: 0,
        };
        let share = all / 4 + u32::from(index < all % 4);
        kill_on(&role, share, &mut rng, &mut tally);
    }
    println!("{all} kills, SWATH_SEED={}:\n{tally}", seed.value());
    if all >= 50 {
        assert!(tally.of("killed while committing") > 0, "{tally}");
        assert!(
            tally.of("outcome: what was in flight is not there") > 0,
            "{tally}"
        );
    }
}
