//! `swath-threads`, run as a user runs it, as small as it gets.
//!
//! What could go wrong: a report or a line that its readers cannot parse, cells left out, members
//! left behind, more threads than the volume has regions for. What it measures is nobody's promise
//! here.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;
use swath_tests::binaries::swath_threads;
use swath_tests::fixtures;

/// Cells of 30 ms on two members of 16 MiB in `folder`, and what else is asked for.
fn tiny(folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(swath_threads());
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

#[track_caller]
fn assert_nothing_is_left(folder: &Path) {
    let left: Vec<_> = fs::read_dir(folder).unwrap().flatten().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn a_report_has_every_cell_and_field() {
    let folder = fixtures::folder();
    let more = ["--threads", "1,4", "--bs", "4k,1m", "--json", "-"];
    let output = tiny(folder.path(), &more).output().unwrap();
    let tables = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{tables}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["program"], "swath-threads");
    assert_eq!(report["xfer_type"], "CPUONLY");
    assert_eq!(report["volume"]["members"].as_array().unwrap().len(), 2);
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4 * 2 * 2);
    for cell in cells {
        assert_eq!(cell["iodepth"], 1, "{cell}");
        for key in ["ios", "bytes", "iops", "bw_bytes", "cpu_ns_per_io"] {
            assert!(
                cell[key].as_f64().is_some_and(|number| number > 0.0),
                "{key}: {cell}"
            );
        }
        assert!(
            cell["lat_ns"]["mean"]
                .as_f64()
                .is_some_and(|mean| mean > 0.0),
            "{cell}"
        );
    }
    for part in [
        "read: GiB/s by threads",
        "randwrite: mean latency",
        "CPUONLY",
    ] {
        assert!(tables.contains(part), "{part:?} is not in {tables}");
    }
    assert_nothing_is_left(folder.path());
}

#[test]
fn lines_are_gdsios_and_alone_on_standard_output() {
    let folder = fixtures::folder();
    let more = [
        "--threads",
        "2",
        "--bs",
        "64k",
        "--rw",
        "read,randwrite",
        "--gdsio-line",
    ];
    let output = tiny(folder.path(), &more).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    for (line, io_type) in lines.iter().zip(["READ", "RANDWRITE"]) {
        let begin = format!("IoType: {io_type} XferType: CPUONLY Threads: 2 DataSetSize: ");
        assert!(line.starts_with(&begin), "{line}");
        // As scripts take it apart: words, of which every other one is a value.
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |name: &str| {
            let place = words.iter().position(|word| *word == name);
            words[place.unwrap_or_else(|| panic!("{name}: {line}")) + 1]
        };
        assert_eq!(after("IOSize:"), "64(KiB)");
        assert!(after("DataSetSize:").ends_with("/24576(KiB)"), "{line}");
        for name in ["Throughput:", "Avg_Latency:", "ops:", "total_time"] {
            assert!(
                after(name).parse::<f64>().is_ok_and(|value| value > 0.0),
                "{name} {line}"
            );
        }
        assert!(
            line.contains(" GiB/sec, Avg_Latency: ") && line.ends_with(" secs"),
            "{line}"
        );
    }
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("GiB/s by threads")
    );
}

#[test]
fn more_threads_than_regions_are_refused_with_the_numbers_and_nothing_is_made() {
    let folder = fixtures::folder();
    let more = ["--threads", "1..256", "--bs", "1m"];
    let output = tiny(folder.path(), &more).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    for part in ["32 threads", "32.0 MiB", "24 such regions", "--threads"] {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    assert_nothing_is_left(folder.path());
}

#[test]
fn bad_input_is_refused_before_anything_is_made() {
    let folder = fixtures::folder();
    for (arguments, part) in [
        (&["--bs", "4q"][..], "4q"),
        (&["--threads", "0"], "'0'"),
        (&["--threads", "many"], "many"),
        (&["--threads", "2000"], "2000"),
        (&["--rw", "sideways"], "sideways"),
        (&["--gdsio-line", "--json", "-"], "--gdsio-line"),
        (&["--fill", "unwritten", "--rw", "write"], "unwritten"),
    ] {
        let output = tiny(folder.path(), arguments).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(part), "{part:?} is not in {message:?}");
        assert_nothing_is_left(folder.path());
    }
}

#[test]
fn a_dry_run_tells_the_time_it_takes_and_touches_nothing() {
    let folder = fixtures::folder();
    let more = ["--dry-run", "--threads", "1..4", "--bs", "4k"];
    let output = tiny(folder.path(), &more).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && text.contains("12 cells, about "),
        "{text}"
    );
    assert_nothing_is_left(folder.path());
}
