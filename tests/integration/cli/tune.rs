//! `swath tune`: what it prints, and that it leaves a volume as it found it.

use swath_volume::{OpenOptions, Volume};

use super::{Rig, contents, done, json, refused, refused_untouched, run, stdout, text};

const SHORT: [&str; 4] = ["--runtime", "50ms", "--rounds", "1"];

fn with_json() -> Vec<&'static str> {
    [&SHORT[..], &["--json"]].concat()
}

#[test]
fn tune_prints_what_it_tried_and_chose_and_changes_nothing() {
    let (_rig, members) = Rig::with_volume(2);
    let before = contents(&members);
    let shown = stdout(&done(run("tune", &SHORT, &members)));
    for part in [
        "MB/s",
        "IOPS",
        "Transfer Size : ",
        "swath-matrix --rw read --bs ",
    ] {
        assert!(shown.contains(part), "{part:?} is not in {shown}");
    }
    assert_eq!(shown.matches("<- chosen").count(), 2, "{shown}");
    assert!(before == contents(&members), "tune wrote to a member");
}

#[test]
fn tune_as_json_holds_every_setting_and_the_choice_is_among_them() {
    let (_rig, members) = Rig::with_volume(2);
    let report = json(&done(run("tune", &with_json(), &members)));
    for (chosen, tried) in [("large", "large_tried"), ("small", "small_tried")] {
        let tried = report[tried].as_array().unwrap();
        assert!(tried.contains(&report[chosen]), "{report}");
        for one in tried {
            assert!(one["bytes_per_s"].as_f64().unwrap() > 0.0, "{one}");
            assert!(one["depth"].as_u64().unwrap() >= 1, "{one}");
        }
    }
    assert_eq!(report["small"]["transfer_bytes"], 4096);
    assert_eq!(report["members"], 2);
    let line = report["use_it"][1].as_str().unwrap();
    let depth = format!("--iodepth {}", report["small"]["depth"]);
    assert!(
        line.contains(&depth) && line.ends_with(text(&members[1])),
        "{line}"
    );
}

#[test]
fn tune_says_when_no_drive_was_asked() {
    let rig = Rig::new();
    // Preallocated, and never written but for the superblocks.
    let members = [rig.path("p")];
    done(run("create", &["--size", "16m", "--prealloc"], &members));
    let report = json(&done(run("tune", &with_json(), &members)));
    let answered = report["answered"].as_str().unwrap();
    // A file system that does not tell is told as that.
    assert!(
        ["unwritten", "unknown", "memory"].contains(&answered),
        "{report}"
    );
    assert!(report["caution"].is_string(), "{report}");
    let shown = stdout(&done(run("tune", &SHORT, &members)));
    assert!(shown.contains("Caution: "), "{shown}");
}

#[test]
fn tune_refuses_what_it_cannot_measure() {
    let (rig, members) = Rig::with_volume(2);
    for (option, value) in [("--runtime", "0"), ("--runtime", "2q"), ("--rounds", "0")] {
        refused(&run("tune", &[option, value], &members), 2, &[option]);
    }
    let volume = Volume::open(&members, &OpenOptions::default()).unwrap();
    let parts = [text(&members[0]), "in use"];
    refused_untouched(&members, || run("tune", &SHORT, &members), &parts);
    volume.close().unwrap();
    let parts = ["name all members"];
    refused_untouched(&members, || run("tune", &SHORT, &members[..1]), &parts);
    let plain = [rig.file("plain", 0, &[])];
    refused_untouched(&plain, || run("tune", &SHORT, &plain), &[text(&plain[0])]);
}
