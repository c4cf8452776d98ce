//! Steady state. Verdicts hang on what rounds give; here criteria are asked for that every window
//! satisfies, and that none does.

use std::time::{Duration, Instant};

use assert_cmd::Command;
use serde_json::Value;
use swath_tests::binaries::swath_matrix;
use swath_tests::fixtures::folder;

use super::{json_of, message_of, report, tiniest};

const CELLS: [&str; 4] = ["--bs", "4k", "--rw", "randread,write"];

#[test]
fn criteria_that_all_satisfy_take_as_many_rounds_as_the_window_has() {
    let folder = folder();
    let all = "--steady-state=spread:1000%,slope:1000%";
    let more = [&CELLS[..], &[all, "--baseline", "--json", "-"]].concat();
    let (tables, value) = json_of(&mut tiniest(folder.path(), &more));
    assert!(
        !tables.contains("NOT STEADY") && tables.contains(" steady "),
        "{tables}"
    );
    assert_eq!(value["steady_state"]["window"], 5);
    assert_eq!(value["steady_state"]["rounds_max"], 25);
    for cell in value["cells"].as_array().unwrap() {
        let steady = &cell["steady"];
        assert_eq!(steady["is_steady"], true, "{cell}");
        assert_eq!(steady["rounds"], 5, "{cell}");
        let rounds = cell["bw_bytes_rounds"].as_array().unwrap();
        assert_eq!(rounds.len(), 5);
        // The numbers are those of all five: the mean of the rounds, as they are equally long.
        let rates: Vec<f64> = rounds.iter().map(|rate| rate.as_f64().unwrap()).collect();
        let mean = rates.iter().sum::<f64>() / 5.0;
        let reported = cell["bw_bytes"].as_f64().unwrap();
        assert!((reported / mean - 1.0).abs() < 0.2, "{reported} {mean}");
        let high = rates.iter().copied().fold(0.0, f64::max);
        let low = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let spread = steady["spread_percent"].as_f64().unwrap();
        assert!(
            ((high - low) / mean * 100.0 - spread).abs() < 0.02,
            "{cell}"
        );
        assert!(cell["runtime_ms"].as_u64().unwrap() >= 5 * 30, "{cell}");
        assert!(cell["efficiency"].as_f64().unwrap() > 0.0, "{cell}");
    }
}

#[test]
fn criteria_that_none_satisfies_end_after_the_last_round_and_it_is_told_everywhere() {
    let folder = folder();
    let path = folder.path().join("never.json");
    let csv = folder.path().join("never.csv");
    let none = "--steady-state=spread:0%,slope:0%,window:3,rounds:4";
    let files = [
        "--json",
        path.to_str().unwrap(),
        "--csv",
        csv.to_str().unwrap(),
    ];
    let more = [&CELLS[..], &[none], &files].concat();
    let output = tiniest(folder.path(), &more).output().unwrap();
    let tables = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{tables}");
    assert_eq!(tables.matches("NOT STEADY").count(), 2, "{tables}");
    assert!(tables.contains(" ! = not steady"), "{tables}");
    let value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for cell in value["cells"].as_array().unwrap() {
        assert_eq!(cell["steady"]["is_steady"], false, "{cell}");
        assert_eq!(cell["steady"]["rounds"], 4, "{cell}");
        assert_eq!(cell["steady"]["window"], 3, "{cell}");
        assert_eq!(
            cell["bw_bytes_rounds"].as_array().unwrap().len(),
            4,
            "{cell}"
        );
    }
    let rows = std::fs::read_to_string(csv).unwrap();
    assert_eq!(rows.matches(",false,4,").count(), 2, "{rows}");

    let page = report(&["--html", "-"], &[&path]);
    for part in [
        "0 of 2 cells became steady",
        "not steady after 4 rounds",
        "given up",
    ] {
        assert!(page.contains(part), "{part:?} is not in the page");
    }
    let markdown = report(&[], &[&path]);
    assert_eq!(markdown.matches("**not steady**").count(), 2, "{markdown}");
    let fio = report(&["--fio-json", "-"], &[&path]);
    let fio: Value = serde_json::from_str(&fio).unwrap();
    assert_eq!(fio["jobs"][0]["steadystate"]["attained"], 0);
}

#[test]
fn a_dry_run_tells_the_least_and_the_most_it_takes() {
    let folder = folder();
    let more = [
        &CELLS[..],
        &["--steady-state", "--runtime", "4s", "--dry-run"],
    ]
    .concat();
    let output = tiniest(folder.path(), &more).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // Two cells of 5 and of 25 rounds, each of 4 s, 10 ms of ramp and some overhead.
    for part in [
        "2 cells of 5 to 25 rounds, 40.5s to 3m 23s",
        "at most 50 measurements",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn criteria_that_make_no_sense_are_refused() {
    let folder = folder();
    for (arguments, part) in [
        (&["--steady-state=iops:20%"][..], "'iops'"),
        (&["--steady-state=window:1"], "window:1"),
        (&["--steady-state=rounds:4"], "never full within 4"),
        (&["--steady-state=spread:-5%"], "spread:-5%"),
        (&["--steady-state", "--rounds", "3"], "--rounds"),
    ] {
        let message = message_of(&mut tiniest(folder.path(), arguments), 2);
        assert!(message.contains(part), "{part:?} is not in {message:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    // A value after a blank is read as a member.
    let mut command = Command::new(swath_matrix());
    let message = message_of(command.args(["--steady-state", "spread:5%"]), 2);
    assert!(message.contains("--steady-state=spread:5%"), "{message}");
}

/// The first cell never gets steady, and would take minutes to find out.
#[test]
fn an_interrupt_keeps_the_rounds_that_there_were() {
    let folder = folder();
    let path = folder.path().join("cut.json");
    let none = "--steady-state=spread:0%,slope:0%,rounds:1000";
    let more = [
        &CELLS[..],
        &[none, "--runtime", "300ms", "--json", path.to_str().unwrap()],
    ];
    let command = tiniest(folder.path(), &more.concat());
    let mut process = std::process::Command::new(swath_matrix());
    process
        .args(command.get_args())
        .stdout(std::process::Stdio::null());
    let mut child = process.spawn().unwrap();
    // Members are there, and then a few rounds.
    let deadline = Instant::now() + Duration::from_secs(60);
    let is_made = |entry: &std::fs::DirEntry| entry.path().is_dir();
    while Instant::now() < deadline {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        if entries.flatten().any(|entry| is_made(&entry)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(3));
    let signal = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(signal.success());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    let value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(value["interrupted"], true);
    let cells = value["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 1, "{value}");
    assert_eq!(cells[0]["steady"]["is_steady"], false);
    assert!(cells[0]["ios"].as_u64().unwrap() > 0);
}
