//! `swath create`: what it makes, what it refuses, and that a refusal leaves nothing behind.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{self, Stdio};
use std::time::{Duration, Instant};

use swath_tests::binaries::swath;

use super::{MIB, Rig, done, json, refused, refused_untouched, run, stderr, stdout, text};

#[test]
fn create_says_what_it_made() {
    let rig = Rig::new();
    let members = [rig.path("a"), rig.path("b")];
    let output = done(run(
        "create",
        &["--size", "8m", "--chunk", "64k", "--name", "made"],
        &members,
    ));
    let shown = stdout(&output);
    for part in [
        "made",
        "raid0",
        "clean",
        "64.0 KiB (65536 bytes)",
        text(&members[1]),
    ] {
        assert!(shown.contains(part), "{part:?} is not in {shown}");
    }
    assert!(
        stderr(&output).is_empty(),
        "nobody watches, so there is no progress"
    );
    assert_eq!(fs::metadata(&members[0]).unwrap().len(), 8 * MIB);
}

#[test]
fn create_makes_members_in_a_directory() {
    let rig = Rig::new();
    let directory = [rig.0.path().to_path_buf()];
    let options = ["--size", "8m", "--count", "3", "--prealloc", "--json"];
    let made = json(&done(run("create", &options, &directory)));
    assert_eq!(made["volume"]["member_count"], 3);
    assert_eq!(rig.names(), ["member-0", "member-1", "member-2"]);
    refused(
        &run("create", &options, &directory),
        1,
        &["member-0", "exists already"],
    );
    refused(
        &run("create", &["--size", "8m"], &directory),
        1,
        &["is a directory", "--count"],
    );
}

#[test]
fn create_tells_what_larger_members_leave_unused() {
    let rig = Rig::new();
    let members = [rig.path("small"), rig.path("large")];
    fs::File::create(&members[0])
        .unwrap()
        .set_len(8 * MIB)
        .unwrap();
    fs::File::create(&members[1])
        .unwrap()
        .set_len(24 * MIB)
        .unwrap();
    let made = json(&done(run(
        "create",
        &["--chunk", "64k", "--json"],
        &members,
    )));
    let unused: Vec<u64> = made["volume"]["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|member| member["unused_bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(unused[1] - unused[0], 16 * MIB);
}

#[test]
fn create_names_a_member_that_is_not_there_and_the_way_out() {
    let rig = Rig::new();
    let members = [rig.path("absent")];
    refused(
        &run("create", &[], &members),
        1,
        &[text(&members[0]), "--size"],
    );
    assert!(rig.names().is_empty());
}

#[test]
fn create_refuses_a_chunk_larger_than_a_member() {
    let rig = Rig::new();
    let members = [rig.file("a", 0, &[]), rig.file("b", 0, &[])];
    refused_untouched(
        &members,
        || run("create", &["--chunk", "16m"], &members),
        &["chunk"],
    );
    let new = [rig.path("new")];
    refused(
        &run("create", &["--chunk", "16m", "--size", "8m"], &new),
        1,
        &["chunk"],
    );
    assert_eq!(
        rig.names(),
        ["a", "b"],
        "a file made by a refused create stayed"
    );
}

#[test]
fn create_refuses_one_member_by_two_names() {
    let rig = Rig::new();
    let member = rig.file("a", 0, &[]);
    let by_symlink = rig.path("by-symlink");
    symlink(&member, &by_symlink).unwrap();
    let by_hard_link = rig.path("by-hard-link");
    fs::hard_link(&member, &by_hard_link).unwrap();
    let by_detour = rig.path("./a");
    for other in [&member, &by_symlink, &by_hard_link, &by_detour] {
        let members = [member.clone(), other.clone()];
        let output = || run("create", &[], &members);
        refused_untouched(&members, output, &[text(&member), text(other), "same"]);
    }
    let new = [rig.path("new"), rig.path("./new")];
    refused(&run("create", &["--size", "8m"], &new), 1, &["new"]);
    assert!(!new[0].exists());
}

#[test]
fn create_refuses_members_that_carry_something() {
    let rig = Rig::new();
    let mut mbr = [0; 512];
    mbr[446 + 4] = 0x83;
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    let clean = rig.file("clean", 0, &[]);
    for (name, offset, bytes) in [
        ("ext4", 1024 + 56, &[0x53, 0xef][..]),
        ("xfs", 0, b"XFSB"),
        ("gpt", 512, b"EFI PART"),
        ("gpt-at-the-end", 8 * MIB - 512, b"EFI PART"),
        ("mbr", 0, &mbr),
        ("unknown", 4096, b"?"),
    ] {
        let members = [clean.clone(), rig.file(name, offset, bytes)];
        let output = || run("create", &["--chunk", "64k"], &members);
        refused_untouched(&members, output, &[text(&members[1]), "force"]);
    }
    let members = [clean, rig.path("ext4")];
    done(run("create", &["--chunk", "64k", "--force"], &members));
    done(run("detail", &[], &members));
}

#[test]
fn create_refuses_a_member_of_another_volume() {
    let (rig, members) = Rig::with_volume(2);
    let mixed = [rig.file("clean", 0, &[]), members[0].clone()];
    refused_untouched(
        &mixed,
        || run("create", &[], &mixed),
        &[text(&members[0]), "force"],
    );
}

#[test]
fn a_create_that_fails_removes_only_the_files_it_made() {
    let rig = Rig::new();
    let members = [rig.path("new"), rig.file("ext4", 1024 + 56, &[0x53, 0xef])];
    refused(&run("create", &["--size", "8m"], &members), 1, &["ext4"]);
    assert_eq!(rig.names(), ["ext4"]);
}

#[test]
fn create_says_need_and_have_before_it_fills_a_disk() {
    let rig = Rig::new();
    let members = [rig.path("a"), rig.path("b")];
    let output = run("create", &["--size", "4p"], &members);
    refused(&output, 1, &["need 8.0 PiB", "has ", text(rig.0.path())]);
    assert!(rig.names().is_empty());
}

#[test]
fn ctrl_c_in_the_middle_of_create_leaves_nothing() {
    let rig = Rig::new();
    let child = process::Command::new(swath())
        .args(["create", "--size", "512m", "--count", "4"])
        .arg(rig.0.path())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while rig.names().is_empty() {
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "no file appeared"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    let killed = process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    refused(&child.wait_with_output().unwrap(), 1, &["interrupted"]);
    assert!(rig.names().is_empty(), "{:?}", rig.names());
}
