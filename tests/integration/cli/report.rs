//! `swath report` and `swath-matrix --html`, as a user runs them.
//!
//! What could go wrong: a report that is not what it seems is shown all the same; a refusal that does
//! not say which file, line and field; a page that is not whole; JSON that fio's readers cannot read.

use std::fs;
use std::path::PathBuf;
use std::process::Command as Process;
use std::sync::OnceLock;

use assert_cmd::Command;
use serde_json::{Value, json};
use swath_tests::binaries::{swath_curve, swath_matrix, swath_threads};
use swath_tests::skipped;

use super::{Rig, done, refused, run, stdout, text};

/// The report of a tiny run of `swath-matrix`, which also wrote a page.
fn tiny() -> &'static (String, String) {
    static REPORT: OnceLock<(String, String)> = OnceLock::new();
    REPORT.get_or_init(|| {
        let rig = Rig::new();
        let (json, html) = (rig.path("r.json"), rig.path("r.html"));
        let output = Command::new(swath_matrix())
            .args([
                "--size",
                "64m",
                "--runtime",
                "50ms",
                "--ramp-time",
                "10ms",
                "--quiet",
            ])
            .args([
                "--bs",
                "4k,64k",
                "--rounds",
                "2",
                "--label",
                "a <tiny> run",
                "--dir",
            ])
            .arg(rig.path(""))
            .arg("--json")
            .arg(&json)
            .arg("--html")
            .arg(&html)
            .output()
            .unwrap();
        done(output);
        let read = |path| fs::read_to_string(path).unwrap();
        (read(json), read(html))
    })
}

/// A file with the report after `edit`.
fn edited(rig: &Rig, name: &str, edit: impl FnOnce(&mut Value)) -> PathBuf {
    let mut value: Value = serde_json::from_str(&tiny().0).unwrap();
    edit(&mut value);
    let path = rig.path(name);
    fs::write(&path, serde_json::to_string_pretty(&value).unwrap()).unwrap();
    path
}

#[test]
fn a_page_has_charts_and_all_that_was_measured() {
    let rig = Rig::new();
    let report = edited(&rig, "a.json", |_| ());
    let page = stdout(&done(run("report", &["--html", "-"], &[report])));
    for page in [&page, &tiny().1] {
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
        assert!(page.contains("a &lt;tiny&gt; run") && !page.contains("<tiny>"));
        assert!(
            page.matches("<svg").count() >= 14,
            "{}",
            page.matches("<svg").count()
        );
        for part in [
            "seq read",
            "rand write",
            "R7725xd",
            "Exact command",
            "--label",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("NaN") && !page.contains("<script") && !page.contains(" src="));
    }
}

#[test]
fn threads_and_curves_have_pages_too() {
    let rig = Rig::new();
    let threads = ["--threads", "1,2", "--bs", "4k,64k"];
    let curve = ["--profile", "4k-randread", "--curve", "50,100"];
    for (program, options, parts) in [
        (
            swath_threads(),
            &threads[..],
            &["Threads by block sizes", "swath-threads"][..],
        ),
        (
            swath_curve(),
            &curve,
            &["Latency against load", "swath-curve", "R6525"],
        ),
    ] {
        let (json, html) = (rig.path("r.json"), rig.path("r.html"));
        let output = Command::new(program)
            .args(["--members", "2", "--size", "16m", "--quiet"])
            .args(["--runtime", "50ms", "--ramp-time", "10ms", "--dir"])
            .arg(rig.path(""))
            .args(options)
            .args(["--json", text(&json), "--html", text(&html)])
            .output()
            .unwrap();
        done(output);
        let made_again = stdout(&done(run("report", &["--html", "-"], &[json])));
        for page in [fs::read_to_string(&html).unwrap(), made_again] {
            for part in parts {
                assert!(page.contains(part), "{part} is not in the page");
            }
            assert!(page.ends_with("</html>\n") && !page.contains("NaN"));
        }
    }
}

#[test]
fn markdown_is_printed_when_nothing_else_is_asked_for() {
    let rig = Rig::new();
    let report = edited(&rig, "a.json", |_| ());
    let printed = stdout(&done(run("report", &[], std::slice::from_ref(&report))));
    assert!(printed.contains("## Bandwidth, GB/s (GiB/s)"), "{printed}");
    assert!(printed.contains("| 64k |"), "{printed}");
    let page = rig.path("p.html");
    let output = done(run("report", &["--html", text(&page)], &[report]));
    assert_eq!(stdout(&output), "");
    assert!(page.metadata().unwrap().len() > 10_000);
}

#[test]
fn runs_made_alike_are_merged_and_others_refused_by_field() {
    let rig = Rig::new();
    let reads = edited(&rig, "reads.json", |report| {
        let cells = report["cells"].as_array_mut().unwrap();
        cells.retain(|cell| cell["rw"].as_str().unwrap().ends_with("read"));
    });
    let writes = edited(&rig, "writes.json", |report| {
        let cells = report["cells"].as_array_mut().unwrap();
        cells.retain(|cell| cell["rw"].as_str().unwrap().ends_with("write"));
    });
    let printed = stdout(&done(run("report", &[], &[reads.clone(), writes])));
    assert!(
        printed.contains("| bs | read | write | randread | randwrite |"),
        "{printed}"
    );

    let other = edited(&rig, "other.json", |report| {
        report["volume"]["chunk_bytes"] = json!(4096);
    });
    let contents = fs::read_to_string(&other).unwrap();
    let line = contents
        .lines()
        .position(|line| line.contains("\"chunk_bytes\""))
        .unwrap()
        + 1;
    let place = format!("other.json:{line}: field 'volume.chunk_bytes' is '4096'");
    refused(
        &run("report", &[], &[reads, other]),
        1,
        &[&place, "reads.json:"],
    );
}

#[test]
fn two_runs_are_compared_with_the_noise_of_their_rounds() {
    let rig = Rig::new();
    let speed = |name: &str, rate: u64| {
        edited(&rig, name, |report| {
            for cell in report["cells"].as_array_mut().unwrap() {
                cell["bw_bytes"] = json!(rate);
                cell["bw_bytes_rounds"] = json!([rate - 1, rate, rate + 1]);
            }
        })
    };
    let (before, after) = (
        speed("before.json", 1_000_000),
        speed("after.json", 1_500_000),
    );
    let both = [before.clone(), after];
    let printed = stdout(&done(run("report", &["--compare"], &both)));
    assert_eq!(printed.matches("| 1.500 |").count(), 8, "{printed}");
    assert!(
        printed.contains("8 faster and 0 slower beyond the noise"),
        "{printed}"
    );
    let page = stdout(&done(run("report", &["--compare", "--html", "-"], &both)));
    assert!(page.contains("Ratio by block size"));

    let once = edited(&rig, "once.json", |report| {
        for cell in report["cells"].as_array_mut().unwrap() {
            cell["bw_bytes_rounds"] = json!([cell["bw_bytes"]]);
        }
    });
    let printed = stdout(&done(run(
        "report",
        &["--compare"],
        &[before.clone(), once],
    )));
    assert!(printed.contains("one round shows no noise"), "{printed}");

    refused(
        &run("report", &["--compare"], std::slice::from_ref(&before)),
        2,
        &["two reports"],
    );
    let threads = edited(&rig, "threads.json", |report| {
        report["kind"] = json!("threads");
    });
    let output = run("report", &["--compare"], &[before, threads]);
    refused(
        &output,
        1,
        &["threads.json:", "field 'kind' is 'threads'", "before.json:"],
    );
}

#[test]
fn what_is_no_report_of_this_version_is_refused_with_file_line_and_field() {
    let rig = Rig::new();
    let file = |name: &str, contents: &str| {
        let path = rig.path(name);
        fs::write(&path, contents).unwrap();
        path
    };
    let newer = edited(&rig, "newer.json", |report| report["format"] = json!(2));
    let older = edited(&rig, "older.json", |report| {
        report.as_object_mut().unwrap().remove("format");
    });
    let wrong = edited(&rig, "wrong.json", |report| {
        report["cells"][1]["iops"] = json!("many");
    });
    let json = &tiny().0;
    for (path, parts) in [
        (
            newer,
            &[
                "newer.json:",
                "field 'format'",
                "has format 2",
                "reads format 1",
            ][..],
        ),
        (
            older,
            &["older.json:", "field 'format' is missing", "measure again"],
        ),
        (wrong, &["wrong.json:", "field 'cells[1].iops'", "\"many\""]),
        (
            file("cut.json", &json[..json.len() / 2]),
            &["cut.json:", "EOF"],
        ),
        (file("a.csv", "label,rw,bs\n"), &["a.csv:1:1"]),
        (file("empty.json", ""), &["empty.json", "empty"]),
        (file("list.json", "[]"), &["list.json:1:"]),
        (
            file("other.json", "{}"),
            &["other.json", "not a report of Swath's"],
        ),
        (rig.path("missing.json"), &["missing.json", "No such file"]),
    ] {
        refused(&run("report", &["--html", "-"], &[path]), 1, parts);
    }
    refused(&run("report", &[], &[]), 2, &["REPORT.json"]);
    let two = ["--html", "-", "--markdown"];
    refused(
        &run("report", &two, &[rig.path("x.json")]),
        2,
        &["standard output"],
    );
    let rating = ["--drive-rating", "fast"];
    refused(
        &run("report", &rating, &[rig.path("x.json")]),
        2,
        &["14,10"],
    );
}

#[test]
fn fio_json_has_a_job_for_each_cell() {
    let rig = Rig::new();
    let report = edited(&rig, "a.json", |_| ());
    let printed = stdout(&done(run(
        "report",
        &["--fio-json", "-"],
        std::slice::from_ref(&report),
    )));
    let value: Value = serde_json::from_str(&printed).unwrap();
    assert!(value["fio version"].as_str().unwrap().starts_with("fio-3."));
    assert_eq!(value["jobs"].as_array().unwrap().len(), 8);
    for job in value["jobs"].as_array().unwrap() {
        let rw = job["job options"]["rw"].as_str().unwrap();
        let direction = if rw.ends_with("read") {
            "read"
        } else {
            "write"
        };
        for key in ["bw", "bw_bytes", "iops", "total_ios", "runtime"] {
            assert!(job[direction][key].as_f64().unwrap() > 0.0, "{key} of {rw}");
        }
        let latency = &job[direction]["clat_ns"];
        assert!(latency["percentile"]["99.900000"].as_u64().unwrap() > 0);
    }
}

/// `fio-plot` is a Python package: where it is found, it draws what was written here.
#[test]
fn fio_plot_draws_it() {
    let found = Process::new("fio-plot").arg("--help").output();
    if !found.is_ok_and(|output| output.status.success()) {
        skipped("there is no fio-plot; 'pip install fio-plot' would give it");
        return;
    }
    let rig = Rig::new();
    let report = edited(&rig, "a.json", |_| ());
    let depth =
        serde_json::from_str::<Value>(&tiny().0).unwrap()["cells"][0]["iodepth"].to_string();
    let folder = format!("{}/", text(&rig.path("fio")));
    done(run("report", &["--fio-json", &folder], &[report]));
    let drawn = |name: &str, options: &[&str]| {
        let picture = rig.path(name);
        let output = Process::new("fio-plot")
            .args([
                "-i",
                &format!("{folder}4k"),
                "-T",
                "swath",
                "-r",
                "randread",
            ])
            .args(["-d", &depth, "-n", "1", "-o", text(&picture)])
            .args(options)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        done(output);
        let bytes = fs::read(&picture).unwrap_or_default();
        assert!(bytes.starts_with(b"\x89PNG"), "{name}: {said}");
    };
    drawn("bars.png", &["-l"]);
    drawn("histogram.png", &["-H"]);
}
