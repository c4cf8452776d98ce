//! `swath-checkpoint`, run as a user runs it, as small as it gets.
//!
//! What could go wrong: a report that its readers cannot parse, phases left out, members or
//! processes left behind, a failure of one process that nobody is told, bad input that starts a run.
//! What it measures is nobody's promise here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use swath_tests::binaries::swath_checkpoint;
use swath_tests::fixtures;

const OURS: [&str; 9] = [
    "raw write, first",
    "save, first",
    "raw write, buffers",
    "raw write",
    "save",
    "raw read, buffers",
    "raw read",
    "load",
    "load, trusted",
];

/// One round of checkpoints of 8 MiB in `folder`, but for what is asked for.
fn tiny(folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(swath_checkpoint());
    let defaults = [
        ["--size", "8m"],
        ["--rounds", "1"],
        ["--saves", "1"],
        ["--members", "2"],
    ];
    for default in defaults.iter().filter(|it| !more.contains(&it[0])) {
        command.args(default);
    }
    command.args(["--quiet", "--dir"]).arg(folder).args(more);
    command
}

/// One that would take hours.
fn long(folder: &Path, more: &[&str]) -> Child {
    let hours = ["--rounds", "1000", "--saves", "50", "--size", "32m"];
    tiny(folder, &[&hours, more].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn report(output: &Output) -> Value {
    let tables = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tables}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn assert_nothing_is_left(folder: &Path) {
    let left: Vec<_> = fs::read_dir(folder).unwrap().flatten().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

fn phases(report: &Value) -> Vec<&str> {
    let phases = report["phases"].as_array().unwrap().iter();
    phases.map(|it| it["phase"].as_str().unwrap()).collect()
}

/// Processes that `parent` started and that run this program or a script for it.
fn children(parent: u32) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let processes = entries.filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
    processes
        .filter(|process| {
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            // The name may have spaces: what follows its bracket has not.
            let fields = stat.rsplit(')').next().unwrap_or_default();
            let mut fields = fields.split_whitespace();
            fields.next() != Some("Z") && fields.next() == Some(&parent.to_string())
        })
        .filter_map(Pid::from_raw)
        .collect()
}

fn is_there(process: Pid) -> bool {
    let path = format!("/proc/{}/stat", process.as_raw_nonzero());
    // A zombie has ended; who is to bury it is not ours to say.
    fs::read_to_string(path).is_ok_and(|stat| !stat.contains(") Z "))
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A run with two processes that are there, and at work.
fn with_processes(folder: &Path) -> (Child, Vec<Pid>) {
    let run = long(folder, &["--ranks", "2", "--processes"]);
    let mut found = Vec::new();
    wait_until("two processes begin", || {
        found = children(run.id());
        found.len() == 2
    });
    // They are the first thing of a run that comes after its members.
    thread::sleep(Duration::from_millis(300));
    (run, found)
}

#[test]
fn a_report_has_every_phase_with_threads_and_with_processes() {
    let folder = fixtures::folder();
    for processes in [false, true] {
        let mut more = vec!["--ranks", "2", "--json", "-"];
        if processes {
            more.push("--processes");
        }
        let report = report(&tiny(folder.path(), &more).output().unwrap());
        let mut expected = OURS.to_vec();
        if !processes {
            expected.insert(5, "save, async");
        }
        assert_eq!(phases(&report), expected);
        assert_eq!(report["processes"], processes);
        assert_eq!(report["ranks"], 2);
        assert_eq!(report["compared"], true);
        assert_eq!(report["interrupted"], false);
        for phase in report["phases"].as_array().unwrap() {
            for key in ["bytes", "bw_bytes", "cpu_s_per_gb"] {
                assert!(phase[key].as_f64().is_some_and(|it| it > 0.0), "{phase}");
            }
            // A pool of 16 MiB for each rank, and little besides.
            let peak = phase["peak_bytes"].as_u64().unwrap_or(0);
            if phase["phase"] != "save, async" {
                assert!(peak < 2 * (16 << 20) + (64 << 20), "{phase}");
            }
        }
        assert!(!report["volume"]["backend"].as_str().unwrap().is_empty());
        assert_nothing_is_left(folder.path());
    }
}

#[test]
fn a_csv_has_a_row_for_each_phase() {
    let folder = fixtures::folder();
    let more = ["--csv", "-", "--label", "one, two"];
    let output = tiny(folder.path(), &more).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("label,program,version,phase,"),
        "{text}"
    );
    assert_eq!(lines.len(), 1 + OURS.len() + 1, "{text}");
    for line in &lines[1..] {
        assert!(line.starts_with("\"one, two\",swath,"), "{line}");
    }
    assert_nothing_is_left(folder.path());
}

#[test]
fn when_a_process_is_killed_the_run_fails_and_says_which() {
    let folder = fixtures::folder();
    let (run, ranks) = with_processes(folder.path());
    kill_process(ranks[1], Signal::KILL).unwrap();
    let output = run.wait_with_output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("the process of rank "), "{message}");
    assert!(message.contains("has ended: signal: 9"), "{message}");
    assert!(!ranks.into_iter().any(is_there));
    assert_nothing_is_left(folder.path());
}

#[test]
fn an_interrupt_leaves_no_process_and_no_member() {
    let folder = fixtures::folder();
    let (run, ranks) = with_processes(folder.path());
    let process = Pid::from_child(&run);
    // As a terminal does: to all of them.
    for process in ranks.iter().chain([&process]) {
        kill_process(*process, Signal::INT).unwrap();
    }
    let output = run.wait_with_output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{message}");
    assert!(message.contains("interrupted"), "{message}");
    assert!(!ranks.into_iter().any(is_there));
    assert_nothing_is_left(folder.path());
}

#[test]
fn processes_end_with_a_run_that_is_killed_and_the_next_tidies_up() {
    let folder = fixtures::folder();
    let (mut run, ranks) = with_processes(folder.path());
    run.kill().unwrap();
    run.wait().unwrap();
    wait_until("the ranks end", || !ranks.iter().copied().any(is_there));
    assert!(fs::read_dir(folder.path()).unwrap().count() > 0);
    report(&tiny(folder.path(), &["--json", "-"]).output().unwrap());
    assert_nothing_is_left(folder.path());
}

#[test]
fn bad_input_is_refused_before_anything_is_made() {
    let folder = fixtures::folder();
    for (code, arguments, part) in [
        (2, &["--size", "0"][..], "size of 0"),
        (2, &["--size", "4q"], "4q"),
        (2, &["--size", "100k"], "--size"),
        (1, &["--size", "1000t"], "free"),
        (2, &["--model", "9b"], "8b, 70b, 405b and 1t"),
        (2, &["--saves", "0"], "saves"),
        (2, &["--ranks", "0"], "ranks"),
        (2, &["--chunk", "5k"], "5k"),
        (2, &["--member-size", "8m"], "--member-size"),
        (2, &["--backend", "magic"], "magic"),
        (2, &["--json", "-", "--csv", "-"], "standard output"),
        (
            1,
            &["--json", "/no-such-directory/report"],
            "/no-such-directory",
        ),
        (
            1,
            &["--peers", "--python", "/no-such-python"],
            "pip install torch",
        ),
        (
            1,
            &["--peers", "--peers-dir", "/proc/nowhere"],
            "--peers-dir",
        ),
    ] {
        let output = tiny(folder.path(), arguments).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        assert!(message.contains(part), "{part:?} is not in {message:?}");
        assert_nothing_is_left(folder.path());
    }
    for (code, member, part) in [
        (1, "/no-such-member", "/no-such-member"),
        (1, "/dev/null", "character device"),
    ] {
        let output = Command::new(swath_checkpoint()).arg(member).output();
        let output = output.unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn every_model_can_be_asked_for() {
    let folder = fixtures::folder();
    for model in ["8b", "70b", "405b", "1t"] {
        let more = [
            "--model",
            model,
            "--full-tensor",
            "--dry-run",
            "--saves",
            "7",
        ];
        let output = tiny(folder.path(), &more).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success());
        assert!(text.contains(&format!("model {model}: 2.0 GiB")), "{text}");
        assert!(text.contains("7 saves"), "{text}");
        let more = ["--model", model, "--json", "-"];
        let report = report(&tiny(folder.path(), &more).output().unwrap());
        assert_eq!(report["model"]["shape"], model);
        assert_nothing_is_left(folder.path());
    }
}

/// A program that does as a Python would that has the script for peers.
fn python(folder: &Path, script: &str) -> PathBuf {
    let path = folder.join("python");
    fs::write(&path, format!("#!/bin/sh\nread setup\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn peers_are_told_with_what_they_read_from() {
    let (folder, place) = (fixtures::folder(), fixtures::folder());
    // A load from the device, one from the page cache, and a peer that fails.
    let script = r#"
        echo '{"python": "3", "peers": [{"name": "torch.save", "version": "1"}, {"name": "bad", "version": "2"}], "missing": [{"name": "torch.dcp", "reason": "no torch"}]}'
        while read ask; do case "$ask" in
            *remove*) echo '{}';;
            *bad*) echo '{"error": "RuntimeError: broken"}';;
            *'"load"'*) echo '{"seconds": 0.5, "cpu_seconds": 0.25, "peak_bytes": 1, "device_ratio": 1.01, "how": "there"}';;
            *load*) echo '{"seconds": 0.5, "cpu_seconds": 0.25, "peak_bytes": 1, "device_ratio": 0.2, "how": "new"}';;
            *) echo '{"seconds": 0.5, "cpu_seconds": 0.25, "peak_bytes": 1, "how": "new file"}';;
        esac; done"#;
    let python = python(place.path(), script);
    let more = [
        "--peers",
        "--python",
        python.to_str().unwrap(),
        "--json",
        "-",
    ];
    let output = tiny(folder.path(), &more).output().unwrap();
    let tables = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = report(&output);
    let peers = report["peers"].as_array().unwrap();
    assert_eq!(peers.len(), 1, "{tables}");
    let found: Vec<_> = peers[0]["phases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["phase"].as_str().unwrap(), it["swath_ratio"].is_number()))
        .collect();
    let expected = [
        ("save, new file", true),
        ("save again", true),
        ("load", true),
        ("load, new memory", false),
    ];
    assert_eq!(found, expected);
    for part in [
        "HOT: 20 %",
        "100 % from the device",
        "not preallocated",
        "no torch",
    ] {
        assert!(tables.contains(part), "{part:?} is not in {tables}");
    }
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("bad is left out: RuntimeError: broken"),
        "{notes}"
    );
    assert!(notes.contains("pip install torch"), "{notes}");
    assert_nothing_is_left(folder.path());
}

#[test]
fn peers_that_are_not_there_are_told_before_the_run_with_how_to_get_them() {
    let (folder, place) = (fixtures::folder(), fixtures::folder());
    for (script, part) in [
        (
            r#"echo '{"python": "3", "peers": [], "missing": [{"name": "torch.save", "reason": "No module named torch"}]}'; cat"#,
            "No module named torch",
        ),
        ("echo Traceback; cat", "Traceback"),
        ("exit 3", "exit status: 3"),
    ] {
        let python = python(place.path(), script);
        let more = ["--peers", "--python", python.to_str().unwrap()];
        let output = tiny(folder.path(), &more).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains(part), "{message}");
        assert!(output.stdout.is_empty());
        assert_nothing_is_left(folder.path());
    }
}
