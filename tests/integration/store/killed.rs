//! A saving process, killed at any moment, over and over.
//!
//! What could go wrong: a checkpoint that was acknowledged and is gone; half of one that is picked as
//! the latest; a volume that cannot be opened any more; space that nobody has.
//!
//! The process that saves is this test, started again; it tells each commit by a line once it has
//! returned. `SWATH_KILLS=n` kills it n times.

use std::collections::BTreeSet;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rand::RngExt;
use swath_checkpoint::retention::Retention;
use swath_checkpoint::{ErrorKind, Store};
use swath_engine::Backend;
use swath_tests::checkpoints::{self, Tensor, assert_holds};
use swath_tests::fixtures::{self, Place};
use swath_tests::seed::Seed;
use swath_volume::{OpenOptions, Volume};

use super::KIB;

const NAME: &str = "store::killed::whenever_it_is_killed_the_last_acknowledged_step_is_there";
const MEMBERS: &str = "SWATH_TEST_MEMBERS";
const KEPT: u64 = 3;

/// What a step holds follows from its number.
fn tensors(step: u64) -> Vec<Tensor> {
    let mut tensors: Vec<_> = (0..5)
        .map(|n| {
            Tensor::new(
                format!("small {n}"),
                (step * 37 % 900) as usize * n,
                step + 1,
            )
        })
        .collect();
    tensors.push(Tensor::new(
        "large",
        1100 * KIB + (step * 1013 % 9000) as usize,
        step,
    ));
    tensors
}

/// Opens the store; a process that was killed lets go of its files a moment later.
fn open(members: &[PathBuf]) -> Store {
    let started = Instant::now();
    loop {
        match Volume::open(members, &OpenOptions::default()) {
            Ok(volume) => {
                return Store::open(volume, &checkpoints::store_options(Backend::Auto)).unwrap();
            }
            Err(error)
                if error.kind() == swath_volume::ErrorKind::InUse
                    && started.elapsed() < Duration::from_secs(10) =>
            {
                thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// The process that is killed: saves the next step, and removes the old ones, for ever.
fn save_for_ever() {
    let members: Vec<PathBuf> = env::split_paths(&env::var_os(MEMBERS).unwrap()).collect();
    let store = open(&members);
    let mut out = std::io::stdout();
    let mut tell = |line: String| {
        // In one piece, and at once.
        out.write_all(line.as_bytes()).unwrap();
        out.flush().unwrap();
    };
    tell("\nbegun\n".to_owned());
    let first = store
        .latest()
        .map_or(0, |info| info.name.step().unwrap() + 1);
    let rule = Retention {
        keep_last: Some(KEPT),
        keep_every: None,
    };
    for step in first.. {
        checkpoints::save(&store, step, &tensors(step)).unwrap();
        tell(format!("acknowledged {step}\n"));
        store.retain(&rule).unwrap();
    }
}

/// Starts a process and kills it after a while. The step that it acknowledged last.
fn save_and_kill(members: &[PathBuf], after: Duration, from_start: bool) -> Option<u64> {
    let mut command: Command = fixtures::alone(NAME);
    let mut child = command
        .env(MEMBERS, env::join_paths(members).unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut begun = true;
    if !from_start {
        begun = lines.by_ref().any(|line| line.unwrap() == "begun");
    }
    thread::sleep(after);
    child.kill().unwrap();
    let last = lines
        .filter_map(|line| line.unwrap().strip_prefix("acknowledged ")?.parse().ok())
        .last();
    let output = child.wait_with_output().unwrap();
    assert!(
        begun && output.status.code().is_none(),
        "it ended by itself, {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    last
}

#[test]
fn whenever_it_is_killed_the_last_acknowledged_step_is_there() {
    if fixtures::is_alone(NAME) {
        return save_for_ever();
    }
    let kills = env::var("SWATH_KILLS").map_or(50, |count| count.parse().unwrap());
    let seed = Seed::new();
    let mut rng = seed.rng();
    let folder = Place::Memory.folder().unwrap_or_else(fixtures::folder);
    let members = fixtures::members(folder.path(), 2, 10 << 20);
    drop(checkpoints::store_on_files(
        &members,
        64 << 10,
        Backend::Auto,
    ));
    let mut acknowledged: Option<u64> = None;
    for kill in 0..kills {
        let after = Duration::from_micros(rng.random_range(1_000..50_000));
        // Most after it has begun; some while it still opens.
        let last = save_and_kill(&members, after, kill % 8 == 0);
        acknowledged = acknowledged.max(last);

        let store = open(&members);
        let latest = store.latest().and_then(|info| info.name.step());
        let in_flight = acknowledged.map_or(0, |step| step + 1);
        assert!(
            latest == acknowledged || latest == Some(in_flight),
            "{latest:?} is the latest after {acknowledged:?} was acknowledged"
        );
        // The one in flight is there, so the next process goes on after it.
        acknowledged = latest;
        let steps: BTreeSet<u64> = store
            .list()
            .iter()
            .filter_map(|info| info.name.step())
            .collect();
        if let Some(latest) = latest {
            let kept: BTreeSet<u64> = (latest.saturating_sub(KEPT - 1)..=latest).collect();
            let one_more: BTreeSet<u64> = (latest.saturating_sub(KEPT)..=latest).collect();
            assert!(
                steps == kept || steps == one_more,
                "{steps:?} are there, the latest is {latest}"
            );
        }
        for step in steps {
            assert_holds(&store, step, &tensors(step));
        }
        let space = store.space();
        assert_eq!((space.session_bytes, space.held_bytes), (0, 0));
        assert_eq!(store.get(u64::MAX).unwrap_err().kind(), ErrorKind::NotFound);
    }
    assert!(acknowledged > Some(kills / 10), "{acknowledged:?}");
}
