//! `swath detail`, `examine`, `rename` and `wipe`: what is told of a volume, while it is in use
//! too, and what is changed of it.

use std::fs;
use std::os::unix::fs::FileExt as _;

use swath_volume::{OpenOptions, Volume};

use super::{
    MIB, Rig, command, contents, done, json, pattern, refused, refused_untouched, run, stdout, text,
};

#[test]
fn members_are_found_in_any_order_and_in_a_directory() {
    let (rig, members) = Rig::with_volume(3);
    let shuffled = [members[2].clone(), members[0].clone(), members[1].clone()];
    let by_name = json(&done(run("detail", &["--json"], &shuffled)));
    let by_directory = json(&done(run(
        "detail",
        &["--json"],
        &[rig.0.path().to_path_buf()],
    )));
    assert_eq!(by_name, by_directory);
    assert_eq!(by_name["volume"]["state"], "clean");
    assert_eq!(by_name["volume"]["members"][0]["path"], text(&members[0]));
}

#[test]
fn a_volume_in_use_is_shown_and_left_alone() {
    let (_rig, members) = Rig::with_volume(2);
    let idle = json(&done(run("detail", &["--json"], &members)));
    let volume = Volume::open(&members, &OpenOptions::default()).unwrap();

    let mut busy = json(&done(run("detail", &["--json"], &members)));
    assert_eq!(busy["volume"]["state"], "in-use");
    busy["volume"]["state"] = "clean".into();
    assert_eq!(busy, idle);
    done(run("examine", &[], &members));

    let parts = [text(&members[0]), "in use"];
    refused_untouched(&members, || run("read", &[], &members), &parts);
    let write = || {
        command("write", &[], &members)
            .write_stdin("x")
            .output()
            .unwrap()
    };
    refused_untouched(&members, write, &parts);
    refused_untouched(&members, || run("wipe", &[], &members), &parts);
    refused_untouched(&members, || run("create", &["--force"], &members), &parts);
    volume.close().unwrap();
    done(run("detail", &[], &members));
}

#[test]
fn examine_tells_each_copy_apart() {
    let (_rig, members) = Rig::with_volume(1);
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&members[0])
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, MIB + 100).unwrap();
    file.write_all_at(&[!byte[0]], MIB + 100).unwrap();
    let output = done(run("examine", &[], &members));
    let shown = stdout(&output);
    assert_eq!(shown.matches(" : good").count(), 3, "{shown}");
    assert_eq!(shown.matches(" : damaged").count(), 1, "{shown}");
    let examined = json(&done(run("examine", &["--json"], &members)));
    assert_eq!(
        examined["devices"][0]["copies"].as_array().unwrap().len(),
        4
    );
    assert!(examined["devices"][0]["superblock"].is_object());
    // Three good copies are enough.
    done(run("detail", &[], &members));
}

#[test]
fn examine_of_a_plain_file_ends_with_code_1() {
    let rig = Rig::new();
    let plain = [rig.file("plain", 0, &[])];
    let output = run("examine", &["--json"], &plain);
    refused(&output, 1, &[text(&plain[0]), "no superblock"]);
    assert!(json(&output)["devices"][0]["superblock"].is_null());
}

#[test]
fn rename_changes_the_name_and_nothing_else() {
    let (_rig, members) = Rig::with_volume(2);
    let before = json(&done(run("detail", &["--json"], &members)));
    let renamed = json(&done(run("rename", &["--json", "other"], &members)));
    assert_eq!(renamed["name_before"], "rig");
    let mut after = json(&done(run("detail", &["--json"], &members)));
    assert_eq!(after["volume"]["name"], "other");
    assert_eq!(after["volume"]["generation"], renamed["generation"]);
    assert!(after["volume"]["generation"].as_u64() > before["volume"]["generation"].as_u64());
    after["volume"]["name"] = before["volume"]["name"].clone();
    after["volume"]["generation"] = before["volume"]["generation"].clone();
    for member in after["volume"]["members"].as_array_mut().unwrap() {
        member["generation"] = before["volume"]["generation"].clone();
    }
    assert_eq!(after, before);
    let long = "n".repeat(64);
    refused_untouched(&members, || run("rename", &[&long], &members), &["63"]);
}

#[test]
fn wipe_erases_a_volume_and_only_that() {
    let (rig, members) = Rig::with_volume(2);
    let other = rig.volume("other", "o", 2);
    let others = contents(&other);
    let data_before = done(run("read", &["--length", "1m"], &members)).stdout;
    let uuid = json(&done(run("detail", &["--json"], &members)))["volume"]["uuid"].clone();
    let wiped = json(&done(run("wipe", &["--json"], &members)));
    for member in wiped["members"].as_array().unwrap() {
        assert_eq!(member["volume_uuid"], uuid);
        assert_eq!(member["volume_name"], "rig");
        assert_eq!(member["copies_erased"], 4);
    }
    refused(
        &run("detail", &[], &members),
        1,
        &[text(&members[0]), "not a Swath member"],
    );
    assert!(others == contents(&other));

    let data_after = &contents(&members)[0][2 << 20..][..64 << 10];
    assert!(
        data_after == &data_before[..64 << 10],
        "wipe touched the data"
    );
    // Nothing is left that create would refuse.
    done(run("create", &["--chunk", "64k"], &members));
}

#[test]
fn wipe_refuses_what_is_no_member_before_it_erases_any() {
    let (rig, members) = Rig::with_volume(1);
    let plain = rig.file("plain", 1024 + 56, &[0x53, 0xef]);
    let paths = [members[0].clone(), plain.clone()];
    refused_untouched(
        &paths,
        || run("wipe", &[], &paths),
        &[text(&plain), "--force"],
    );
    let twice = [members[0].clone(), members[0].clone()];
    refused_untouched(&twice, || run("wipe", &[], &twice), &["same"]);
    let output = done(run("wipe", &["--force"], &paths));
    let lines = stdout(&output);
    let lines: Vec<_> = lines.lines().collect();
    assert!(
        lines[0].contains("4 superblock copies of volume"),
        "{lines:?}"
    );
    assert!(lines[1].contains("no superblock was there"), "{lines:?}");
    // What was no superblock is not counted as one, whatever was there.
    let noise = rig.file("noise", 1 << 20, &pattern(1 << 20));
    let wiped = json(&done(run("wipe", &["--force", "--json"], &[noise])));
    assert_eq!(wiped["members"][0]["copies_erased"], 0);
    let mut damaged = contents(&rig.volume("damaged", "d", 1)).remove(0);
    for copy in [1 << 20, (1 << 20) + (64 << 10)] {
        damaged[copy + 100] ^= 1;
    }
    let damaged = rig.file("damaged", 0, &damaged);
    let wiped = json(&done(run("wipe", &["--json"], &[damaged])));
    assert_eq!(wiped["members"][0]["copies_erased"], 4);
}
