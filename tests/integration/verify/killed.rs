//! Processes that verify, and are killed.

use std::env;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use rand::RngExt;
use rustix::process::{Pid, Signal, kill_process};
use swath_tests::seed::Seed;

use super::{Rig, UNIT, names};

/// How often to kill.
fn kills() -> u32 {
    env::var("SWATH_KILLS").map_or(8, |count| count.parse().unwrap())
}

/// Starts a run that would write for ever, and ends it after so long.
fn run_and_end(rig: &Rig, more: &[&str], after: Duration, signal: Signal) {
    let mut command = rig.command(more);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    sleep(after);
    kill_process(Pid::from_child(&child), signal).unwrap();
    let status = child.wait().unwrap();
    assert!(!status.success(), "it was over before it was ended");
}

fn open_units(rig: &Rig) -> usize {
    let entries = rig.entries();
    let open = entries
        .iter()
        .filter(|(confirmed, intended)| confirmed != intended);
    open.count()
}

#[test]
fn a_run_killed_at_any_moment_leaves_a_volume_that_passes() {
    let seed = Seed::new();
    let mut rng = seed.rng();
    let rig = Rig::written();
    let ways: [&[&str]; 3] = [
        &[
            "--verify",
            "--bs",
            "4k,64k",
            "--rw",
            "randwrite",
            "--runtime",
            "20s",
        ],
        &[
            "--verify",
            "--bs",
            "128k",
            "--rw",
            "write",
            "--runtime",
            "20s",
            "--numjobs",
            "2",
        ],
        &[
            "--verify",
            "--fill",
            "written",
            "--destructive",
            "--runtime",
            "20s",
        ],
    ];
    let mut open_before = 0;
    for kill in 0..kills() {
        let way = ways[rng.random_range(0..ways.len())];
        let after = Duration::from_millis(rng.random_range(20..900));
        run_and_end(&rig, way, after, Signal::KILL);
        let open = open_units(&rig);
        open_before += open;
        // As often as not the next run finds it as it is, and goes on.
        if rng.random_bool(0.5) {
            let verify = rig.passes(&["--verify-only"]);
            assert_eq!(verify["open_units"], open, "kill {kill}, {way:?}");
            assert_eq!(open_units(&rig), open, "a check changes nothing");
        }
    }
    assert!(open_before > 0, "no kill hit a write");
    let verify = rig.passes(&["--verify", "--rw", "randwrite,randread"]);
    assert!(verify["before"]["checked_units"].as_u64().unwrap() > 0);
    assert!(
        names(rig.folder.path())
            .iter()
            .all(|name| !name.ends_with(".new"))
    );
}

#[test]
fn a_confirmed_unit_that_is_damaged_after_a_kill_is_found_and_an_open_one_is_not_asked_for_more() {
    let rig = Rig::written();
    let old = rig.snapshot();
    let more = [
        "--verify",
        "--bs",
        "64k",
        "--rw",
        "randwrite",
        "--runtime",
        "20s",
    ];
    for _ in 0..20 {
        run_and_end(&rig, &more, Duration::from_millis(700), Signal::KILL);
        if open_units(&rig) > 0 {
            break;
        }
    }
    let entries = rig.entries();
    let find = |is_open| {
        let is_wanted = |(confirmed, intended): &(u32, u32)| {
            *confirmed > 1 && (confirmed != intended) == is_open
        };
        entries.iter().position(is_wanted).unwrap() as u64
    };
    rig.passes(&["--verify-only"]);

    // What was confirmed, and is old again.
    let confirmed = rig.place(find(false));
    let good = confirmed.read();
    let member = rig.members.iter().position(|it| *it == confirmed.path);
    let start = usize::try_from(confirmed.offset).unwrap();
    confirmed.write(&old[member.unwrap()][start..start + UNIT]);
    let verify = rig.fails(&["--verify-only"]);
    assert_eq!(verify["wrong_units"], 1, "{verify}");
    assert_eq!(verify["wrong"][0]["kind"], "stale", "{verify}");
    assert!(confirmed.is_named(&verify["wrong"][0]), "{verify}");
    confirmed.write(&good);

    // What was under way may be old or new, and nothing else.
    let open = rig.place(find(true));
    let mut bytes = open.read();
    bytes[77] ^= 0x80;
    open.write(&bytes);
    let verify = rig.fails(&["--verify"]);
    assert_eq!(verify["wrong_units"], 1, "{verify}");
    assert!(open.is_named(&verify["wrong"][0]), "{verify}");
    let expected = verify["wrong"][0]["expected"].as_str().unwrap();
    assert!(expected.contains("under way"), "{expected}");
}

#[test]
fn a_run_that_is_interrupted_leaves_nothing_open() {
    let rig = Rig::written();
    let more = ["--verify", "--rw", "randwrite", "--runtime", "20s"];
    run_and_end(&rig, &more, Duration::from_millis(900), Signal::INT);
    assert_eq!(open_units(&rig), 0);
    let report = rig.report();
    assert_eq!(report["interrupted"], true);
    assert!(report["verify"].get("after").is_none(), "{report}");
    rig.passes(&["--verify-only"]);
}
