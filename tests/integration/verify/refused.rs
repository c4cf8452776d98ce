//! What a verifying run refuses.

use std::fs;
use std::process::Command;

use swath_tests::binaries::swath_matrix;
use swath_tests::fixtures::{self, MIB};

use super::{Rig, names};

#[test]
fn options_that_do_not_go_together_are_refused_before_anything_is_made() {
    let rig = Rig::new();
    let before = rig.snapshot();
    let cases: [(&[&str], &str); 8] = [
        (&["--verify", "--bs", "512"], "multiple of that"),
        (
            &["--verify", "--bs", "4k,6k"],
            "6k is not a multiple of that",
        ),
        (&["--verify", "--baseline"], "--baseline"),
        (
            &["--verify", "--precondition", "--destructive"],
            "--precondition writes past",
        ),
        (&["--verify", "--fill", "unwritten"], "--fill unwritten"),
        (&["--verify", "--fill", "written"], "--destructive"),
        (
            &["--verify-only", "--fill", "written"],
            "--verify-only writes nothing",
        ),
        (&["--rw", "read"], "--journal is for"),
    ];
    for (more, part) in cases {
        let (output, message) = rig.run(more);
        assert_eq!(output.status.code(), Some(2), "{more:?}: {message}");
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    for (arguments, part) in [
        (&["--verify", "--journal", "j"][..], "members of your own"),
        (&["--verify-only"], "give --journal FILE"),
    ] {
        let mut command = Command::new(swath_matrix());
        command.current_dir(rig.folder.path()).args(arguments);
        let output = command.output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    assert_eq!(names(rig.folder.path()), ["m0", "m1", "m2"]);
    assert_eq!(rig.snapshot(), before);
}

#[test]
fn where_nothing_is_known_and_nothing_is_written_there_is_nothing_to_check() {
    let rig = Rig::new();
    let (output, message) = rig.run(&["--verify", "--rw", "read"]);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("nothing to check"), "{message}");
    let (output, message) = rig.run(&["--verify-only"]);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("there is no journal journal"), "{message}");
    assert!(!rig.journal.exists());
}

#[test]
fn a_journal_of_another_volume_is_refused_and_neither_is_touched() {
    let rig = Rig::written();
    let other = Rig::new();
    fs::copy(&rig.journal, &other.journal).unwrap();
    let before = other.snapshot();
    for more in [
        &["--verify", "--fill", "written", "--destructive"][..],
        &["--verify-only"],
    ] {
        let (output, message) = other.run(more);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("it is of volume"), "{message}");
        assert!(message.contains("move it away"), "{message}");
    }
    assert_eq!(other.snapshot(), before);

    // Members that carry no volume are not made one that the journal does not know.
    let bare = fixtures::member(rig.folder.path(), "bare", 8 * MIB);
    fs::write(&bare, vec![9; 8 << 20]).unwrap();
    let output = Command::new(swath_matrix())
        .args(["--verify", "--destructive", "--journal"])
        .arg(&rig.journal)
        .arg(&bare)
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("carries none"), "{message}");
    assert!(fs::read(&bare).unwrap().iter().all(|&byte| byte == 9));
}

#[test]
fn a_journal_that_is_damaged_cut_off_or_something_else_is_refused() {
    let rig = Rig::written();
    let good = fs::read(&rig.journal).unwrap();
    let flipped = |byte: usize| {
        let mut bytes = good.clone();
        bytes[byte] ^= 1;
        bytes
    };
    let cases = [
        (flipped(0), "not a journal"),
        (flipped(8), "version 0"),
        (flipped(40), "header is damaged"),
        (flipped(4096 + 16 * 5), "entry of unit 5 is damaged"),
        (good[..good.len() - 16].to_vec(), "bytes and should have"),
        (good[..100].to_vec(), "cut off"),
        (Vec::new(), "cut off"),
    ];
    for (bytes, part) in cases {
        fs::write(&rig.journal, &bytes).unwrap();
        for more in [&["--verify-only"][..], &["--verify"]] {
            let (output, message) = rig.run(more);
            assert_eq!(output.status.code(), Some(1), "{message}");
            assert!(message.contains(part), "{part:?} is not in {message:?}");
            assert!(message.contains("journal"), "{message}");
        }
        assert_eq!(fs::read(&rig.journal).unwrap(), bytes, "{part}");
    }
    // A member by mistake.
    let (output, message) = rig.run(&["--verify", "--journal", "m0"]);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("not a journal"), "{message}");
    fs::write(&rig.journal, &good).unwrap();
    rig.passes(&["--verify-only"]);
}
