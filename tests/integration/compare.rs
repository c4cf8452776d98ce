//! `swath-compare`, run as a user runs it, as small as it gets.
//!
//! What could go wrong: superblocks that fio writes over, a report that its readers cannot parse, a
//! side left out, members or processes left behind, unlike things compared, a failure of fio that
//! nobody can make sense of. What it measures is nobody's promise here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use swath_tests::binaries::swath_compare;
use swath_tests::fixtures::{self, MIB};
use swath_tests::skipped;
use swath_volume::{OpenOptions, Volume};

/// Two rounds of 50 ms, with as few candidates as there can be.
fn tiny(more: &[&str]) -> Command {
    let mut command = Command::new(swath_compare());
    let short = [
        ["--rounds", "2"],
        ["--runtime", "50ms"],
        ["--ramp-time", "10ms"],
        ["--probe-time", "20ms"],
        ["--iodepth", "2"],
    ];
    for option in short.iter().filter(|it| !more.contains(&it[0])) {
        command.args(option);
    }
    command.arg("--quiet").args(more);
    command
}

/// On two members of 40 MiB that it makes in `folder`.
fn tiny_in(folder: &Path, more: &[&str]) -> Command {
    let mut command = tiny(more);
    command.args(["--members", "2", "--size", "40m", "--dir"]);
    command.arg(folder);
    command
}

fn has_fio() -> bool {
    let found = Command::new("fio").arg("--version").output().is_ok();
    if !found {
        skipped("no fio here");
    }
    found
}

/// A program that says it is fio of this version with these engines, and does `otherwise` when it
/// is to run.
fn pretend_fio(folder: &Path, version: &str, engines: &str, otherwise: &str) -> PathBuf {
    let path = folder.join("fio");
    let script = format!(
        "#!/bin/sh\ncase $1 in\n--version) echo {version};;\n--enghelp) echo {engines};;\n\
         *) {otherwise};;\nesac\n"
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn report(output: &Output) -> Value {
    let tables = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tables}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// It ends with `code` and says every one of `parts`.
#[track_caller]
fn assert_refused(mut command: Command, code: i32, parts: &[&str]) {
    let output = command.output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{message}");
    for part in parts {
        assert!(message.contains(part), "'{part}' is not in {message:?}");
    }
}

#[track_caller]
fn assert_nothing_is_left(folder: &Path) {
    let left: Vec<_> = fs::read_dir(folder).unwrap().flatten().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_report_has_both_sides_every_round_and_their_commands() {
    if !has_fio() {
        return;
    }
    let folder = fixtures::folder();
    let more = ["--cells", "4k-randread,1m-write", "--json", "-"];
    let report = report(&tiny_in(folder.path(), &more).output().unwrap());

    assert_eq!(report["state"], "written");
    assert!(
        report["fio"]["version"]
            .as_str()
            .unwrap()
            .starts_with("fio-")
    );
    assert!(number(&report["geometric_mean"]) > 0.0);
    assert!(number(&report["geometric_mean_defaults"]) > 0.0);
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2);
    assert_eq!(
        (&cells[0]["rw"], &cells[0]["bs"]),
        (&"randread".into(), &4096.into())
    );
    assert_eq!(
        (&cells[1]["rw"], &cells[1]["bs"]),
        (&"write".into(), &(1 << 20).into())
    );
    for cell in cells {
        assert_eq!(cell["iodepth"], 2);
        for side in ["swath", "fio", "fio_defaults"] {
            let side = &cell[side];
            assert!(number(&side["iops"]) > 0.0 && number(&side["cpu_ns_per_io"]) > 0.0);
        }
        assert!(number(&cell["ratio"]["median"]) > 0.0);
        let command = cell["fio"]["command"].as_str().unwrap();
        assert!(command.contains("--fixedbufs=1") && command.contains("--iodepth=2"));
        let command = cell["fio_defaults"]["command"].as_str().unwrap();
        assert!(!command.contains("--fixedbufs") && command.contains("--iodepth=2"));
        // Who begins changes.
        let sides = |round: usize| -> Vec<&str> {
            let turns = cell["rounds"][round].as_array().unwrap().iter();
            turns.map(|turn| turn["side"].as_str().unwrap()).collect()
        };
        assert_eq!(sides(0), ["swath", "fio", "fio_defaults"]);
        assert_eq!(sides(1), ["fio", "fio_defaults", "swath"]);
    }
    assert_nothing_is_left(folder.path());
}

#[test]
fn unwritten_members_are_made_and_removed_and_only_the_rival_asked_for_runs() {
    if !has_fio() {
        return;
    }
    let folder = fixtures::folder();
    let csv = folder.path().join("cells.csv");
    let more = [
        "--state",
        "unwritten",
        "--bs",
        "4k",
        "--against",
        "best",
        "--json",
        "-",
    ];
    let mut command = tiny_in(&folder.path().join("members"), &more);
    let report = report(&command.arg("--csv").arg(&csv).output().unwrap());
    assert_eq!(report["state"], "unwritten");
    // The patterns that write are left out.
    let cells = report["cells"].as_array().unwrap();
    let patterns: Vec<_> = cells
        .iter()
        .map(|cell| cell["rw"].as_str().unwrap())
        .collect();
    assert_eq!(patterns, ["read", "randread"]);
    assert!(cells.iter().all(|cell| cell.get("fio_defaults").is_none()));
    assert!(report["geometric_mean_defaults"].is_null());
    assert_eq!(fs::read_to_string(&csv).unwrap().lines().count(), 3);
    assert!(!folder.path().join("members").exists());
}

#[test]
fn a_volume_that_is_given_keeps_its_superblocks() {
    if !has_fio() {
        return;
    }
    let folder = fixtures::folder();
    let members = fixtures::members(folder.path(), 2, 40 * MIB);
    let volume = fixtures::volume(&members, MIB);
    let uuid = volume.uuid();
    let data_begins = volume.members()[0].data_offset as usize;
    let data_ends = data_begins + volume.members()[0].data_bytes as usize;
    drop(volume);
    let ends = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap();
        (bytes[..data_begins].to_vec(), bytes[data_ends..].to_vec())
    };
    let before: Vec<_> = members.iter().map(ends).collect();
    let more = [
        "--cells",
        "1m-write,4k-randwrite",
        "--against",
        "best",
        "--rounds",
        "1",
    ];
    let mut command = tiny(&more);
    let output = command.args(&members).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let after: Vec<_> = members.iter().map(ends).collect();
    assert_ne!(before[0], before[1], "superblocks name their member");
    assert!(
        before == after,
        "what lies beside the data was written over"
    );
    let volume = Volume::open(&members, &OpenOptions::default()).unwrap();
    assert_eq!(volume.uuid(), uuid);
}

#[test]
fn fio_that_is_absent_old_or_without_io_uring_is_refused() {
    let folder = fixtures::folder();
    let with = |fio: &Path| {
        let mut command = tiny_in(&folder.path().join("members"), &[]);
        command.arg("--fio").arg(fio);
        command
    };
    assert_refused(
        with(Path::new("no-such-fio")),
        1,
        &["no-such-fio", "apt install fio"],
    );
    let old = pretend_fio(folder.path(), "fio-3.1", "io_uring", "exit 1");
    assert_refused(with(&old), 1, &["fio-3.1", "newer is needed"]);
    let poor = pretend_fio(folder.path(), "fio-3.33", "libaio", "exit 1");
    assert_refused(with(&poor), 1, &["without io_uring"]);
    assert!(!folder.path().join("members").exists());
}

#[test]
fn unlike_things_are_not_compared() {
    let folder = fixtures::folder();
    let fio = pretend_fio(folder.path(), "fio-3.33", "io_uring", "exit 1");
    let place = folder.path().join("members");
    let with = |more: &[&str]| {
        let mut command = tiny(&[more, &["--members", "2"]].concat());
        command.arg("--dir").arg(&place).arg("--fio").arg(&fio);
        command
    };
    for (more, parts) in [
        (
            &["--state", "unwritten", "--cells", "4k-randwrite"][..],
            &["unwritten", "only read"][..],
        ),
        (&["--state", "unwritten", "--rw", "write"], &["unwritten"]),
        (&["--cells", "4k"], &["4k-randread"]),
        (&["--cells", "4k-read", "--bs", "4k"], &["--bs"]),
        (&["--cpu", "100000"], &["--cpu 100000"]),
        (&["--rounds", "0"], &["0"]),
        (&["--fill"], &["--fill is for a volume that is there"]),
    ] {
        assert_refused(with(more), 2, parts);
    }
    for (more, parts) in [
        (&["--size", "16m"][..], &["caches", "--size"][..]),
        (
            &["--size", "40m", "--chunk", "64k", "--cells", "1m-read"],
            &["several operations"],
        ),
        (
            &["--size", "40m", "--iodepth", "16", "--cells", "1m-read"],
            &["meet each other"],
        ),
        (
            &["--size", "40m", "--state", "tmpfs"],
            &["do not lie in memory"],
        ),
    ] {
        assert_refused(with(more), 1, parts);
        assert!(!place.exists(), "{more:?} left members behind");
    }
}

#[test]
fn members_in_two_states_are_refused_and_left_alone() {
    let folder = fixtures::folder();
    let fio = pretend_fio(folder.path(), "fio-3.33", "io_uring", "exit 1");
    let mut members = fixtures::members(folder.path(), 1, 40 * MIB);
    let unwritten = folder.path().join("unwritten");
    swath_engine::create_file(&unwritten, 40 * MIB, swath_engine::FileFill::Unwritten).unwrap();
    members.push(unwritten);
    drop(fixtures::volume(&members, MIB));
    let run = |more: &[&str]| {
        let mut command = tiny(more);
        command.arg("--fio").arg(&fio).args(&members);
        command
    };
    assert_refused(
        run(&["--cells", "4k-randread"]),
        1,
        &["m0 is written", "unwritten is unwritten"],
    );
    // Filling is what it says, and asks for leave as the matrix does.
    assert_refused(run(&["--fill"]), 1, &["--destructive"]);
    // What carries no volume is not overwritten.
    let precious = fixtures::member(folder.path(), "precious", 40 * MIB);
    let mut command = tiny(&[]);
    command.arg("--fio").arg(&fio).arg(&precious);
    assert_refused(command, 1, &["precious", "no volume"]);
    assert!(fs::read(&precious).unwrap().iter().all(|&byte| byte == 0));
}

#[test]
fn fio_that_fails_is_told_with_its_last_line_and_its_command() {
    let folder = fixtures::folder();
    let fio = pretend_fio(
        folder.path(),
        "fio-3.33",
        "io_uring",
        "echo first >&2; echo 'fio: out of luck' >&2; exit 1",
    );
    let mut command = tiny_in(&folder.path().join("members"), &["--cells", "4k-read"]);
    command.arg("--fio").arg(&fio);
    assert_refused(
        command,
        1,
        &[
            "fio failed: fio: out of luck; its command: ",
            "--rw=read --bs=4096",
        ],
    );
    assert!(!folder.path().join("members").exists());
}

#[test]
fn an_interrupt_ends_fio_too_and_leaves_nothing() {
    let folder = fixtures::folder();
    let sign = folder.path().join("pid");
    let otherwise = format!(
        "echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000",
        sign.display()
    );
    let fio = pretend_fio(folder.path(), "fio-3.33", "io_uring", &otherwise);
    let mut command = tiny_in(&folder.path().join("members"), &["--cells", "4k-read"]);
    let child = command
        .arg("--fio")
        .arg(&fio)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while !sign.exists() {
        assert!(
            began.elapsed() < Duration::from_secs(120),
            "fio was not run"
        );
        thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{message}");
    let fio_process = fs::read_to_string(&sign).unwrap();
    assert!(!Path::new("/proc").join(fio_process.trim()).exists());
    assert!(!folder.path().join("members").exists());
}

#[test]
fn a_dry_run_says_what_would_run_and_touches_nothing() {
    let folder = fixtures::folder();
    let fio = pretend_fio(folder.path(), "fio-3.33", "io_uring", "exit 1");
    let mut command = tiny_in(
        &folder.path().join("members"),
        &["--cells", "all", "--dry-run"],
    );
    let output = command.arg("--fio").arg(&fio).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(
        text.contains("36 cells, 2 rounds of each, about "),
        "{text}"
    );
    assert!(
        text.contains("fio-3.33") && text.contains("nothing was touched"),
        "{text}"
    );
    assert!(!folder.path().join("members").exists());
}
