//! Members that do not make a volume: each is named, with the reason, by every command that would
//! open it, and none is written to.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::{MIB, Rig, command, done, refused, refused_untouched, run, stdout, text};

/// Every command that opens a volume refuses, with the same words.
#[track_caller]
fn unusable(members: &[PathBuf], parts: &[&str]) {
    refused_untouched(members, || run("read", &["--length", "1"], members), parts);
    let write = || {
        command("write", &[], members)
            .write_stdin("x")
            .output()
            .unwrap()
    };
    refused_untouched(members, write, parts);
    refused_untouched(members, || run("rename", &["other"], members), parts);
    refused_untouched(members, || run("detail", &[], members), parts);
}

#[test]
fn a_missing_member_is_named() {
    let (_rig, members) = Rig::with_volume(3);
    unusable(&members[..2], &["missing"]);
    let output = run("detail", &[], &members[1..]);
    refused(&output, 1, &["missing"]);
    let shown = stdout(&output);
    assert!(shown.contains("FAILED, 1 missing"), "{shown}");
}

#[test]
fn a_foreign_member_is_named() {
    let (rig, members) = Rig::with_volume(2);
    let foreign = rig.volume("foreign", "f", 2);
    unusable(
        &[members[0].clone(), foreign[1].clone()],
        &[text(&foreign[1]), "a member of"],
    );
    unusable(
        &[members[0].clone(), members[1].clone(), foreign[0].clone()],
        &[text(&foreign[0]), "a member of"],
    );
}

#[test]
fn a_device_that_is_no_member_is_named() {
    let (rig, members) = Rig::with_volume(2);
    let plain = rig.file("plain", 0, &[]);
    unusable(
        &[members[0].clone(), plain.clone()],
        &[text(&plain), "not a Swath member"],
    );
}

#[test]
fn a_stale_copy_of_a_member_is_named() {
    let (rig, members) = Rig::with_volume(2);
    let old = rig.path("old");
    fs::copy(&members[1], &old).unwrap();
    done(run("rename", &["renamed"], &members));
    unusable(
        &[members[0].clone(), old.clone()],
        &[text(&old), "old copy"],
    );
}

#[test]
fn a_copy_beside_its_original_is_refused_with_both_paths() {
    let (rig, members) = Rig::with_volume(2);
    let copy = rig.path("copy");
    fs::copy(&members[1], &copy).unwrap();
    let paths = [members[0].clone(), members[1].clone(), copy.clone()];
    unusable(&paths, &[text(&members[1]), text(&copy)]);
    // A copy alone stands in for its original: it is the same member.
    done(run("detail", &[], &[members[0].clone(), copy]));
}

#[test]
fn one_member_by_two_names_is_refused_at_open() {
    let (rig, members) = Rig::with_volume(2);
    let link = rig.path("link");
    symlink(&members[1], &link).unwrap();
    unusable(
        &[members[0].clone(), members[1].clone(), link.clone()],
        &[text(&link)],
    );
}

#[test]
fn a_shrunk_member_is_named() {
    let (_rig, members) = Rig::with_volume(2);
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&members[0])
        .unwrap();
    file.set_len(6 * MIB).unwrap();
    unusable(&members, &[text(&members[0]), "6291456 bytes", "8388608"]);
}

#[test]
fn a_path_that_is_not_there_is_named() {
    let (rig, members) = Rig::with_volume(1);
    let absent = rig.path("absent");
    for subcommand in ["detail", "examine", "read", "wipe"] {
        let paths = [members[0].clone(), absent.clone()];
        refused(&run(subcommand, &[], &paths), 1, &[text(&absent)]);
    }
    let empty = rig.path("empty");
    fs::create_dir(&empty).unwrap();
    for subcommand in ["detail", "examine", "read", "wipe"] {
        refused(
            &run(subcommand, &[], std::slice::from_ref(&empty)),
            1,
            &[text(&empty)],
        );
    }
}
