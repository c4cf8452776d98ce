//! Sweeps of depth and lanes, and what `swath report` makes of them.

use serde_json::Value;
use swath_tests::fixtures::folder;

use super::{json_of, message_of, report, tiniest};

#[test]
fn every_depth_is_measured_with_every_number_of_lanes() {
    let folder = folder();
    let file = folder.path().join("sweep.json");
    let page = folder.path().join("sweep.html");
    let place = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (json, html) = (place(&file), place(&page));
    let more = [
        "--bs",
        "4k",
        "--rw",
        "randread,write",
        "--iodepth",
        "1,2..8",
        "--numjobs",
        "1,2",
        "--json",
        &json,
        "--html",
        &html,
    ];
    let output = tiniest(folder.path(), &more).output().unwrap();
    let tables = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{tables}");
    for part in [
        "randread 4k by depth and lanes: IOPS",
        "p99 x2",
        "within 5 %",
        "write 4k by depth and lanes",
    ] {
        assert!(tables.contains(part), "{part:?} is not in {tables}");
    }
    let value: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let cells = value["cells"].as_array().unwrap();
    let mut found: Vec<_> = cells
        .iter()
        .filter(|cell| cell["rw"] == "randread")
        .map(|cell| {
            (
                cell["numjobs"].as_u64().unwrap(),
                cell["iodepth"].as_u64().unwrap(),
            )
        })
        .collect();
    found.sort_unstable();
    let expected = [1, 2]
        .map(|lanes| [1, 2, 4, 8].map(|depth| (lanes, depth)))
        .concat();
    assert_eq!(found, expected);
    assert_eq!(cells.len(), 16);

    let text = std::fs::read_to_string(&page).unwrap();
    let again = report(&["--html", "-"], &[&file]);
    for page in [text, again] {
        for part in ["What more in flight gives", "IOPS in each field", "2 lanes"] {
            assert!(page.contains(part), "{part:?} is not in the page");
        }
        assert!(page.ends_with("</html>\n") && !page.contains("NaN"));
    }
    let markdown = report(&[], &[&file]);
    assert!(markdown.contains("| depth | x1 | x2 |"), "{markdown}");
    let fio = report(&["--fio-json", "-"], &[&file]);
    let fio: Value = serde_json::from_str(&fio).unwrap();
    let jobs = fio["jobs"].as_array().unwrap();
    let mut names: Vec<_> = jobs.iter().map(|job| job["jobname"].to_string()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 16, "{names:?}");

    // Cells are told apart by depth and lanes: half of them and the other half are all of them.
    let halves = [1, 2].map(|lanes| {
        let mut half = value.clone();
        let cells = half["cells"].as_array_mut().unwrap();
        cells.retain(|cell| cell["numjobs"] == lanes);
        let path = folder.path().join(format!("{lanes}.json"));
        std::fs::write(&path, half.to_string()).unwrap();
        path
    });
    let merged = report(&[], &[&halves[0], &halves[1]]);
    assert!(merged.contains("| depth | x1 | x2 |"), "{merged}");
    let compared = report(&["--compare"], &[&file, &file]);
    assert!(compared.contains("16 cells are in both runs"), "{compared}");
    assert!(compared.contains("| randread | 4k | 2 | 8 |"), "{compared}");
}

#[test]
fn one_depth_and_one_number_of_lanes_look_as_they_always_did() {
    let folder = folder();
    let more = [
        "--bs",
        "4k",
        "--rw",
        "randread",
        "--iodepth",
        "4",
        "--json",
        "-",
    ];
    let output = tiniest(folder.path(), &more).output().unwrap();
    let tables = String::from_utf8(output.stderr).unwrap();
    assert!(
        tables.contains("Latency in microseconds, and CPU time"),
        "{tables}"
    );
    assert!(!tables.contains("by depth"), "{tables}");
}

#[test]
fn automatic_depths_of_several_lanes_are_a_list() {
    let folder = folder();
    let more = [
        "--bs",
        "4k",
        "--rw",
        "randread",
        "--numjobs",
        "1,2",
        "--json",
        "-",
    ];
    let (tables, value) = json_of(&mut tiniest(folder.path(), &more));
    assert!(tables.contains("randread 4k by lanes"), "{tables}");
    let cells = value["cells"].as_array().unwrap();
    let depths: Vec<_> = cells.iter().map(|cell| cell["iodepth"].as_u64()).collect();
    assert_eq!(depths, [Some(128), Some(64)]);
}

#[test]
fn lists_that_make_no_sense_are_refused() {
    let folder = folder();
    for (arguments, part) in [
        (&["--iodepth", "1,0"][..], "depth of 0"),
        (&["--iodepth", "2,1..4"], "depth of 2 is twice"),
        (&["--iodepth", "5000"], "4096"),
        (&["--iodepth", "auto,1"], "'auto'"),
        (&["--numjobs", "0"], "lanes of 0"),
        (&["--numjobs", "2,2"], "lanes of 2 is twice"),
        (&["--numjobs", "many"], "'many'"),
        (
            &[
                "--iodepth",
                "1..4096,3..3072,5..2560,7..3584,9..2304",
                "--numjobs",
                "1..16,3,5,7",
            ],
            "cells are more than the 5000 of a run",
        ),
    ] {
        let message = message_of(&mut tiniest(folder.path(), arguments), 2);
        assert!(message.contains(part), "{part:?} is not in {message:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
