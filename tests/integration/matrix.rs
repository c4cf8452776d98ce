//! `swath-matrix`, run as a user runs it, as small as it gets.
//!
//! What could go wrong: a report that its readers cannot parse, cells left out, members left
//! behind, bad input that starts a run. What it measures is nobody's promise here.

mod precondition;
mod steady;
mod sweep;

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;
use swath_tests::binaries::{swath, swath_matrix};
use swath_tests::fixtures;

/// Two cells of 50 ms on four members of 64 MiB in `folder`, and what else is asked for.
fn tiny(folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(swath_matrix());
    command.args([
        "--size",
        "64m",
        "--runtime",
        "50ms",
        "--ramp-time",
        "10ms",
        "--quiet",
    ]);
    command.arg("--dir").arg(folder).args(more);
    command
}

/// Cells of 30 ms on two members of 16 MiB in `folder`, and what else is asked for.
fn tiniest(folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(swath_matrix());
    let defaults = [
        ["--members", "2"],
        ["--size", "16m"],
        ["--runtime", "30ms"],
        ["--ramp-time", "10ms"],
    ];
    for default in defaults.iter().filter(|it| !more.contains(&it[0])) {
        command.args(default);
    }
    command.args(["--quiet", "--dir"]).arg(folder).args(more);
    command
}

/// What a run that ends well prints: the tables, and the JSON that has standard output for itself.
#[track_caller]
fn json_of(command: &mut Command) -> (String, Value) {
    let output = command.output().unwrap();
    let tables = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{tables}");
    (tables, serde_json::from_slice(&output.stdout).unwrap())
}

/// What a run that ends with this code says of it.
#[track_caller]
fn message_of(command: &mut Command, code: i32) -> String {
    let output = command.output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{message}");
    message
}

/// What `swath report` prints.
#[track_caller]
fn report(options: &[&str], paths: &[&PathBuf]) -> String {
    let mut command = Command::new(swath());
    let output = command
        .arg("report")
        .args(options)
        .args(paths)
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    String::from_utf8(output.stdout).unwrap()
}

/// The object's `keys`, all of them numbers above zero.
#[track_caller]
fn assert_numbers(object: &Value, keys: &[&str]) {
    for key in keys {
        let number = object[*key].as_f64();
        assert!(
            number.is_some_and(|number| number > 0.0),
            "{key} is {} in {object}",
            object[*key]
        );
    }
}

#[test]
fn a_report_has_every_cell_and_field() {
    let folder = fixtures::folder();
    let more = [
        "--bs",
        "4k,1m",
        "--baseline",
        "--chunk",
        "64k",
        "--json",
        "-",
    ];
    let output = tiny(folder.path(), &more).output().unwrap();
    let tables = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{tables}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();

    assert!(report["command"].as_str().unwrap().contains("swath-matrix"));
    assert!(report["version"].is_string() && report["environment"].is_object());
    let volume = &report["volume"];
    assert_eq!(volume["members"].as_array().unwrap().len(), 4);
    assert_eq!(volume["chunk_bytes"], 64 << 10);
    assert!(["uring", "aio", "sync"].contains(&volume["backend"].as_str().unwrap()));
    assert_numbers(volume, &["capacity_bytes"]);

    let cells = report["cells"].as_array().unwrap();
    let mut found: Vec<_> = cells
        .iter()
        .map(|cell| (cell["rw"].as_str().unwrap(), cell["bs"].as_u64().unwrap()))
        .collect();
    found.sort_unstable();
    let patterns = ["randread", "randwrite", "read", "write"];
    let expected: Vec<_> = patterns
        .into_iter()
        .flat_map(|rw| [(rw, 4096), (rw, 1 << 20)])
        .collect();
    assert_eq!(found, expected);
    for cell in cells {
        let counts = [
            "iodepth",
            "numjobs",
            "runtime_ms",
            "ios",
            "bytes",
            "iops",
            "bw_bytes",
        ];
        assert_numbers(cell, &counts);
        assert_numbers(cell, &["cpu_ns_per_io", "baseline_bw_bytes", "efficiency"]);
        assert_numbers(
            &cell["lat_ns"],
            &["mean", "p50", "p99", "p99_9", "p99_99", "max"],
        );
        let bytes = cell["ios"].as_u64().unwrap() * cell["bs"].as_u64().unwrap();
        assert_eq!(cell["bytes"].as_u64(), Some(bytes));
    }
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        0,
        "members were left behind"
    );
}

#[test]
fn bad_input_is_refused_before_anything_is_made() {
    let folder = fixtures::folder();
    for (arguments, part) in [
        (&["--bs", "4q"][..], "4q"),
        (&["--chunk", "5k"], "5k"),
        (&["--size", "1x"], "1x"),
        (&["--rw", "sideways"], "sideways"),
        (&["--backend", "magic"], "magic"),
        (&["--iodepth", "0"], "0"),
        (&["--runtime", "fast"], "fast"),
        (&["--no-such-option"], "--no-such-option"),
    ] {
        let mut command = Command::new(swath_matrix());
        let output = command
            .arg("--dir")
            .arg(folder.path())
            .args(arguments)
            .output()
            .unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(part), "{part:?} is not in {message:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn members_that_carry_something_else_are_refused_and_left_alone() {
    let folder = fixtures::folder();
    let path = fixtures::member(folder.path(), "precious", 8 * fixtures::MIB);
    fs::write(&path, vec![7; 8 << 20]).unwrap();
    let mut command = Command::new(swath_matrix());
    let output = command
        .args(["--runtime", "50ms"])
        .arg(&path)
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("precious"), "{message}");
    assert!(fs::read(&path).unwrap().iter().all(|&byte| byte == 7));
}
