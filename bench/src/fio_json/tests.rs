//! What could go wrong: a key that a reader of fio's JSON needs is missing or in another unit; a
//! number that JSON does not have.

use super::*;
use crate::run::fixture;

/// Keys of `fio --output-format=json`, recorded from fio 3.33: of a job, of a direction, of a
/// latency.
const JOB_KEYS: [&str; 26] = [
    "jobname",
    "groupid",
    "error",
    "eta",
    "elapsed",
    "job options",
    "read",
    "write",
    "trim",
    "sync",
    "job_runtime",
    "usr_cpu",
    "sys_cpu",
    "ctx",
    "majf",
    "minf",
    "iodepth_level",
    "iodepth_submit",
    "iodepth_complete",
    "latency_ns",
    "latency_us",
    "latency_ms",
    "latency_depth",
    "latency_target",
    "latency_percentile",
    "latency_window",
];
const DATA_KEYS: [&str; 23] = [
    "io_bytes",
    "io_kbytes",
    "bw_bytes",
    "bw",
    "iops",
    "runtime",
    "total_ios",
    "short_ios",
    "drop_ios",
    "slat_ns",
    "clat_ns",
    "lat_ns",
    "bw_min",
    "bw_max",
    "bw_agg",
    "bw_mean",
    "bw_dev",
    "bw_samples",
    "iops_min",
    "iops_max",
    "iops_mean",
    "iops_stddev",
    "iops_samples",
];
const LATENCY_KEYS: [&str; 5] = ["min", "max", "mean", "stddev", "N"];

fn written(run: &Run) -> Value {
    let mut bytes = Vec::new();
    write(run, &mut bytes).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

#[track_caller]
fn require(value: &Value, keys: &[&str]) {
    for key in keys {
        assert!(value.get(key).is_some(), "'{key}' is missing in {value}");
    }
}

#[test]
fn every_key_that_fio_writes_is_there() {
    let report = written(&fixture::run());
    require(
        &report,
        &[
            "fio version",
            "timestamp",
            "timestamp_ms",
            "time",
            "global options",
            "jobs",
            "disk_util",
        ],
    );
    assert!(
        report["fio version"]
            .as_str()
            .unwrap()
            .starts_with("fio-3.")
    );
    let jobs = report["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 2);
    for job in jobs {
        require(job, &JOB_KEYS);
        require(
            &job["job options"],
            &["name", "rw", "bs", "iodepth", "numjobs", "runtime"],
        );
        for direction in ["read", "write", "trim"] {
            require(&job[direction], &DATA_KEYS);
            for latency in ["slat_ns", "clat_ns", "lat_ns"] {
                require(&job[direction][latency], &LATENCY_KEYS);
            }
        }
        for (key, levels) in [
            ("latency_ns", 10),
            ("latency_us", 10),
            ("latency_ms", 12),
            ("iodepth_level", 7),
        ] {
            assert_eq!(job[key].as_object().unwrap().len(), levels, "{key}");
        }
    }
}

#[test]
fn numbers_are_in_fios_units_and_in_the_direction_that_moved() {
    let run = fixture::run();
    let report = written(&run);
    let (read, write) = (&report["jobs"][0], &report["jobs"][1]);
    let cell = &run.cells[0];
    assert_eq!(read["read"]["bw_bytes"], cell.bw_bytes);
    assert_eq!(read["read"]["bw"], cell.bw_bytes / 1024);
    assert_eq!(read["read"]["io_kbytes"], cell.bytes / 1024);
    assert_eq!(read["read"]["total_ios"], cell.ios);
    assert_eq!(read["read"]["runtime"], 1000);
    assert_eq!(read["write"]["total_ios"], 0);
    assert_eq!(write["write"]["total_ios"], 12_345);
    assert_eq!(write["read"]["bw"], 0);
    let latency = &read["read"]["clat_ns"];
    assert_eq!(latency["percentile"]["50.000000"], 60_000);
    assert_eq!(latency["percentile"]["99.990000"], 1_999_000);
    assert_eq!(latency["percentile"].as_object().unwrap().len(), 17);
    assert_eq!(latency["bins"]["61439"], 940_500);
    let shares = |key: &str| -> f64 {
        let levels = read[key].as_object().unwrap().values();
        levels.map(|share| share.as_f64().unwrap()).sum()
    };
    let total = shares("latency_ns") + shares("latency_us") + shares("latency_ms");
    assert!((total - 100.0).abs() < 1e-6, "{total}");
    assert_eq!(read["iodepth_level"][">=64"], 100.0);
    assert_eq!(read["job options"]["iodepth"], "128");
    assert_eq!(report["timestamp"], 1_767_225_600);
}

#[test]
fn percentiles_rise() {
    let report = written(&fixture::full("a.json", 1.0, 3));
    for job in report["jobs"].as_array().unwrap() {
        let direction = if job["read"]["total_ios"] == 0 {
            "write"
        } else {
            "read"
        };
        let percentiles = &job[direction]["clat_ns"]["percentile"];
        let values =
            PERCENTILES.map(|percent| percentiles[format!("{percent:.6}")].as_u64().unwrap());
        assert!(values.is_sorted(), "{values:?}");
    }
}

#[test]
fn a_folder_has_one_file_for_each_cell() {
    let folder = tempfile::tempdir().unwrap();
    write_folder(&fixture::run(), folder.path()).unwrap();
    let text = std::fs::read_to_string(folder.path().join("4k/randwrite-128-1.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(report["jobs"][0]["job options"]["rw"], "randwrite");
}

#[test]
fn dates_go_back_to_seconds() {
    assert_eq!(unix_seconds("1970-01-01T00:00:00Z"), Some(0));
    assert_eq!(unix_seconds("2000-02-29T12:34:56Z"), Some(951_827_696));
    assert_eq!(
        unix_seconds("2025-12-31T23:59:59Z, more"),
        Some(1_767_225_599)
    );
    for text in [
        "",
        "yesterday",
        "0000-00-00T00:00:00Z",
        "1960-01-01T00:00:00Z",
    ] {
        assert_eq!(unix_seconds(text), None, "{text}");
    }
}

#[test]
fn a_sweep_has_a_name_for_each_job_and_a_steady_state_fios_words() {
    let swept = written(&fixture::swept(&[1, 2], &[1, 8]));
    assert_eq!(swept["jobs"][0]["jobname"], "write-4k-iodepth1-numjobs1");
    let jobs = swept["jobs"].as_array().unwrap();
    let mut names: Vec<_> = jobs.iter().map(|job| job["jobname"].as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), jobs.len());

    let steady = written(&fixture::steady());
    let state = &steady["jobs"][0]["steadystate"];
    assert_eq!(state["ss"], "bw:20%");
    assert_eq!(state["attained"], 0);
    assert_eq!(steady["jobs"][1]["steadystate"]["attained"], 1);
    assert_eq!(state["data"]["bw"].as_array().unwrap().len(), 5);
    for key in ["duration", "criterion", "max_deviation", "slope"] {
        assert!(!state[key].is_null(), "{key} in {state}");
    }
    assert!(state["data"]["iops_mean"].as_f64().unwrap() > 0.0);
}
