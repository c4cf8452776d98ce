//! `swath-curve`, run as a user runs it, as small as it gets.
//!
//! What could go wrong: a report that its readers cannot parse, points left out, a profile that is
//! wrong and runs all the same or is refused without a place, members left behind. What it measures is
//! nobody's promise here; that latencies count from the intended start is shown in simulated time, in
//! the crate.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;
use swath_tests::binaries::swath_curve;
use swath_tests::fixtures;

/// Points of 100 ms on two members of 16 MiB in `folder`, and what else is asked for.
fn tiny(folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(swath_curve());
    let defaults = [
        ["--members", "2"],
        ["--size", "16m"],
        ["--runtime", "100ms"],
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

#[track_caller]
fn assert_point(point: &Value) {
    let rates = [
        "offered_iops",
        "achieved_iops",
        "bw_bytes",
        "ios",
        "cpu_ns_per_io",
    ];
    for key in rates {
        assert!(
            point[key].as_f64().is_some_and(|number| number > 0.0),
            "{key}: {point}"
        );
    }
    for key in ["mean", "p50", "p99", "p99_9", "p99_99", "max"] {
        let number = point["lat_ns"][key].as_f64();
        assert!(number.is_some_and(|number| number > 0.0), "{key}: {point}");
    }
    assert!(
        point["saturated"].is_boolean() && point["unserved"].is_u64(),
        "{point}"
    );
}

#[test]
fn a_report_has_the_four_corners_with_peak_and_points() {
    let folder = fixtures::folder();
    let more = ["--curve", "10,50", "--json", "-"];
    let output = tiny(folder.path(), &more).output().unwrap();
    let tables = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{tables}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["program"], "swath-curve");
    assert_eq!(report["arrivals"], "poisson");
    let workloads = report["workloads"].as_array().unwrap();
    let names: Vec<_> = workloads
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["4k-randread", "4k-randwrite", "64k-read", "64k-write"]
    );
    for workload in workloads {
        assert_point(&workload["peak"]);
        let full = workload["full_iops"].as_f64().unwrap();
        let points = workload["points"].as_array().unwrap();
        assert_eq!(points.len(), 2);
        for (point, percent) in points.iter().zip([10.0, 50.0]) {
            assert_point(point);
            assert_eq!(point["percent"].as_f64(), Some(percent));
            let target = point["target_iops"].as_f64().unwrap();
            assert!((target - full * percent / 100.0).abs() < 0.2, "{point}");
        }
        let name = workload["name"].as_str().unwrap();
        assert!(tables.contains(name), "{name} is not in {tables}");
    }
    assert_nothing_is_left(folder.path());
}

#[test]
fn a_shipped_profile_can_be_copied_edited_and_run_with_vdbenchs_lines() {
    let folder = fixtures::folder();
    let shown = Command::new(swath_curve())
        .args(["--show-profile", "oltp"])
        .output()
        .unwrap();
    assert!(shown.status.success());
    let text = String::from_utf8(shown.stdout).unwrap();
    let edited = text
        .replace("name = \"oltp\"", "name = \"mine\"")
        .replace("threads = 1", "threads = 2");
    assert_ne!(edited, text);
    let path = folder.path().join("mine.toml");
    fs::write(&path, edited).unwrap();
    let members = fixtures::folder();
    let csv = folder.path().join("points.csv");
    let more = [
        "--rate",
        "500",
        "--curve",
        "100",
        "--arrivals",
        "even",
        "--interval",
        "100ms",
    ];
    let more = [&more[..], &["--runtime", "500ms"]].concat();
    let mut command = tiny(members.path(), &more);
    command.arg("--profile").arg(&path).arg("--csv").arg(&csv);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    // 500 a second for half a second, evenly.
    let rows = fs::read_to_string(&csv).unwrap();
    let row: Vec<&str> = rows.lines().nth(1).unwrap().split(',').collect();
    assert_eq!(
        row[1..9],
        ["mine", "false", "2", "64", "written", "100", "500", "500"]
    );
    for part in ["mine: 70% reads", "1024**2", "sys+u", "avg_1-"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert_nothing_is_left(members.path());
}

#[test]
fn a_profile_that_is_wrong_is_refused_with_file_line_and_field() {
    let folder = fixtures::folder();
    let good = Command::new(swath_curve())
        .args(["--show-profile", "sql-80-20"])
        .output()
        .unwrap();
    let good = String::from_utf8(good.stdout).unwrap();
    let line_of = |part: &str| {
        1 + good
            .lines()
            .position(|line| line.starts_with(part))
            .unwrap()
    };
    let path = folder.path().join("wrong.toml");
    let members = fixtures::folder();
    for (from, to, line, part) in [
        (
            "percent = 90",
            "percent = 80",
            line_of("percent = 10"),
            "sizes.percent: the shares add up to 90",
        ),
        (
            "threads = 1",
            "thread = 1",
            line_of("threads"),
            "unknown field `thread`",
        ),
        (
            "threads = 1",
            "threads = 1\nrate = 0",
            line_of("threads") + 1,
            "rate: at a rate of 0",
        ),
        (
            "threads = 1\noutstanding = 64",
            "threads = 256\noutstanding = 256\n",
            line_of("threads"),
            "threads: 256 threads",
        ),
        (
            "read_percent = 80",
            "read_percent = 180",
            line_of("read_percent"),
            "read_percent: 180",
        ),
    ] {
        assert!(good.contains(from), "{from}");
        // Of 128 KiB each there are fewer regions than 256.
        let wrong = good.replacen(from, to, 1).replace("\"64k\"", "\"128k\"");
        fs::write(&path, wrong).unwrap();
        let output = tiny(members.path(), &["--profile"])
            .arg(&path)
            .output()
            .unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{to}: {message}");
        let place = format!("wrong.toml:{line}: {part}");
        assert!(message.contains(&place), "{place:?} is not in {message:?}");
        assert_nothing_is_left(members.path());
    }
}

#[test]
fn bad_input_is_refused_before_anything_is_made() {
    let folder = fixtures::folder();
    for (arguments, part) in [
        (&["--profile", "no-such-profile"][..], "no-such-profile"),
        (&["--rate", "0"], "rate of 0"),
        (&["--curve", "0,50"], "0,50"),
        (&["--arrivals", "late"], "late"),
        (&["--runtime", "0"], "no time"),
        (&["--show-profile", "nothing"], "nothing"),
        (&["--fill", "unwritten", "--profile", "oltp"], "unwritten"),
    ] {
        let output = tiny(folder.path(), arguments).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(part), "{part:?} is not in {message:?}");
        assert_nothing_is_left(folder.path());
    }
}

#[test]
fn profiles_are_listed_and_a_dry_run_touches_nothing() {
    let listed = Command::new(swath_curve())
        .arg("--list-profiles")
        .output()
        .unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    for name in [
        "4k-randread",
        "oltp",
        "sql-90-10",
        "oracle",
        "vdi-boot",
        "vdi-login",
    ] {
        assert!(text.contains(name), "{name} is not in {text}");
    }
    assert!(text.contains("(approximation)"), "{text}");
    let folder = fixtures::folder();
    let output = tiny(folder.path(), &["--dry-run"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && text.contains("52 points, about "),
        "{text}"
    );
    assert_nothing_is_left(folder.path());
}

#[test]
fn members_that_carry_something_else_are_refused_and_left_alone() {
    let folder = fixtures::folder();
    let path = fixtures::member(folder.path(), "precious", 8 * fixtures::MIB);
    fs::write(&path, vec![7; 8 << 20]).unwrap();
    let output = Command::new(swath_curve()).arg(&path).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("precious"), "{message}");
    assert!(fs::read(&path).unwrap().iter().all(|&byte| byte == 7));
}
