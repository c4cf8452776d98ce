//! What is written before anything is measured, and to what.

use std::fs;

use assert_cmd::Command;
use swath_tests::binaries::{swath, swath_matrix};
use swath_tests::fixtures::folder;

use super::{json_of, message_of, tiniest};

const READS: [&str; 4] = ["--bs", "4k", "--rw", "randread"];

#[test]
fn the_volume_is_written_over_and_the_report_tells() {
    let folder = folder();
    let more = [&READS[..], &["--precondition=random", "--json", "-"]].concat();
    let (tables, report) = json_of(&mut tiniest(folder.path(), &more));
    let words =
        "then written 2 times over, sequentially in 128k, then once its capacity at random in 4k";
    assert!(tables.contains(words), "{tables}");
    let told = report["environment"]["preconditioning"].as_str().unwrap();
    assert!(told.ends_with(words), "{told}");
    let capacity = report["volume"]["capacity_bytes"].as_u64().unwrap();
    let written = &report["precondition"];
    assert_eq!(written["sequential_bytes"].as_u64(), Some(2 * capacity));
    assert_eq!(written["sequential_passes"], 2);
    assert!(
        written["random_bytes"].as_u64().unwrap() >= capacity,
        "{written}"
    );
    assert_eq!(report["cells"].as_array().unwrap().len(), 1);
}

#[test]
fn random_writes_go_on_until_they_are_steady_or_rounds_are_over() {
    let folder = folder();
    for (criteria, is_steady, rounds) in [
        ("--steady-state=spread:1000%,slope:1000%,window:2", true, 2),
        (
            "--steady-state=spread:0%,slope:0%,window:2,rounds:3",
            false,
            3,
        ),
    ] {
        let more = [
            &READS[..],
            &["--precondition=rand:steady", criteria, "--json", "-"],
        ]
        .concat();
        let (_, report) = json_of(&mut tiniest(folder.path(), &more));
        let written = &report["precondition"];
        assert_eq!(
            written["random_steady"]["is_steady"], is_steady,
            "{written}"
        );
        assert_eq!(written["random_steady"]["rounds"], rounds, "{written}");
        assert_eq!(written["sequential_bytes"], 0);
        let told = report["environment"]["preconditioning"].as_str().unwrap();
        assert_eq!(told.ends_with("until steady"), is_steady, "{told}");
        assert_eq!(told.ends_with("which it never was"), !is_steady, "{told}");
    }
}

#[test]
fn members_that_are_given_are_overwritten_only_when_told_so() {
    let folder = folder();
    let place = folder.path().join("volume");
    fs::create_dir(&place).unwrap();
    let create = ["create", "--name", "v", "--size", "16m", "--count", "2"];
    done(Command::new(swath()).args(create).arg(&place));
    let volume = [0, 1].map(|number| place.join(format!("member-{number}")));
    let before = contents(&volume);
    let start = |more: &[&str]| {
        let mut command = Command::new(swath_matrix());
        let short = [
            "--runtime",
            "30ms",
            "--ramp-time",
            "10ms",
            "--bs",
            "4k",
            "--quiet",
        ];
        command
            .args(short)
            .args(["--rw", "randread"])
            .args(more)
            .args(&volume);
        command
    };
    let message = message_of(&mut start(&["--precondition"]), 2);
    assert!(message.contains("--destructive"), "{message}");
    assert!(message.contains("overwrites the whole volume"), "{message}");
    assert!(contents(&volume) == before, "refused, and written to");

    done(&mut start(&["--precondition=1", "--destructive"]));
    let after = contents(&volume);
    // The data areas, not the superblocks, are other bytes than before, all over.
    for (one, other) in before.iter().zip(&after) {
        let middle = one.len() / 2;
        for place in [4 << 20, middle, middle + 12_345] {
            assert_ne!(one[place..place + 64], other[place..place + 64]);
        }
    }
    done(&mut start(&[]));
}

#[track_caller]
fn done(command: &mut Command) {
    message_of(command, 0);
}

fn contents(paths: &[std::path::PathBuf]) -> Vec<Vec<u8>> {
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_made() {
    let folder = folder();
    for (arguments, part) in [
        (&["--precondition=0"][..], "'0' is no number of passes"),
        (&["--precondition=sideways"], "'sideways'"),
        (&["--precondition=seq:1,seq:2"], "given twice"),
        (
            &["--precondition", "--fill", "unwritten", "--rw", "read"],
            "--fill unwritten",
        ),
    ] {
        let message = message_of(&mut tiniest(folder.path(), arguments), 2);
        assert!(message.contains(part), "{part:?} is not in {message:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    // A value after a blank is read as a member.
    let mut command = Command::new(swath_matrix());
    let message = message_of(command.args(["--precondition", "2"]), 2);
    assert!(message.contains("--precondition=2"), "{message}");
}

#[test]
fn a_dry_run_tells_what_would_be_written() {
    let folder = folder();
    let more = ["--precondition=seq:2,rand:steady", "--dry-run"];
    let output = tiniest(folder.path(), &more).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words =
        "the volume written 2 times over, sequentially in 128k, then at random in 4k until steady";
    assert!(text.contains(words), "{text}");
    assert!(text.contains("besides the time below"), "{text}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
