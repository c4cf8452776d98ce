//! `swath devices` on the machine that the tests run on, whatever drives it has.

use serde_json::Value;

use super::{done, json, refused, run, stderr};
use swath_tests::skipped;

#[test]
fn the_inventory_of_this_machine_is_printed_and_parses() {
    let text = done(run("devices", &["--all"], &[]));
    let text = String::from_utf8(text.stdout).unwrap();
    let report = json(&run("devices", &["--all", "--json"], &[]));
    assert_eq!(report["command"], "devices");
    let devices = report["devices"].as_array().unwrap();
    assert_eq!(report["summary"]["count"], devices.len());
    let words = if devices.len() == 1 {
        "device"
    } else {
        "devices"
    };
    assert!(
        text.contains(&format!("{} {words}: ", devices.len())),
        "{text}"
    );
    for device in devices {
        let node = device["node"].as_str().unwrap();
        assert!(
            node.starts_with("/dev/") && text.contains(node),
            "{node}: {text}"
        );
        assert!(device["capacity_bytes"].is_u64(), "{device}");
        let states = ["ready", "member", "not_ready", "unknown"];
        assert!(
            states.contains(&device["state"].as_str().unwrap()),
            "{device}"
        );
        assert!(device["warnings"].is_array(), "{device}");
    }
    // Disks are some of them.
    let disks = json(&run("devices", &["--json"], &[]));
    for disk in disks["devices"].as_array().unwrap() {
        assert!(devices.iter().any(|it| it["node"] == disk["node"]));
    }
}

#[test]
fn a_drive_is_shown_in_full_by_its_name() {
    let report = json(&run("devices", &["--json"], &[]));
    let nodes = report["devices"].as_array().unwrap().iter();
    let node = nodes
        .filter_map(|device| device["node"].as_str())
        .find(|node| std::fs::metadata(node).is_ok());
    let Some(node) = node else {
        return skipped("no disk with a node here");
    };
    let output = done(run("devices", &[], &[node.into()]));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with(&format!("{node}:\n")), "{text}");
    assert!(
        text.contains("  Size : ") && text.contains(" State : "),
        "{text}"
    );
}

#[test]
fn what_is_no_block_device_is_refused() {
    let output = run("devices", &[], &["/dev/null".into()]);
    refused(&output, 1, &["/dev/null", "not a block device"]);
    let output = run("devices", &[], &["/dev/nothing-here".into()]);
    refused(&output, 1, &["/dev/nothing-here", "o such file"]);
    let output = run("devices", &["--events", "--all"], &[]);
    refused(&output, 2, &["--events", "--all"]);
    let output = run("devices", &["--rounds", "2"], &[]);
    refused(&output, 2, &["--watch"]);
}

#[test]
fn a_watch_ends_after_its_rounds_with_an_object_for_each() {
    let output = done(run(
        "devices",
        &["--watch", "1", "--rounds", "2", "--json"],
        &[],
    ));
    let reports: Vec<Value> = serde_json::Deserializer::from_slice(&output.stdout)
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(reports.len(), 2);
    assert!(reports[0]["unix_s"].as_u64().unwrap() < reports[1]["unix_s"].as_u64().unwrap());
    assert_eq!(reports[0]["came"].as_array().unwrap().len(), 0);
}

#[test]
fn events_are_listed_or_refused_with_the_way_out() {
    let output = run("devices", &["--events", "--json"], &[]);
    if output.status.success() {
        let report = json(&output);
        for event in report["events"].as_array().unwrap() {
            let kind = event["kind"].as_str().unwrap();
            assert!(kind == "inserted" || kind == "removed", "{event}");
            assert!(event["unix_s"].as_u64().unwrap() > 0, "{event}");
        }
    } else {
        refused(&output, 1, &["/dev/kmsg"]);
        let message = stderr(&output);
        assert!(
            message.contains("run as root") || message.contains("on its host"),
            "{message}"
        );
    }
}
