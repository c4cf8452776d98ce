//! `swath read` and `swath write`: bytes come back, and a range that does not fit is refused.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{self, Stdio};
use std::time::Duration;

use swath_tests::binaries::swath;

use super::{Rig, command, done, json, pattern, refused, refused_untouched, run, stderr, text};

#[test]
fn bytes_come_back_from_odd_offsets_through_pipes() {
    let (_rig, members) = Rig::with_volume(3);
    let capacity = json(&done(run("detail", &["--json"], &members)))["volume"]["capacity_bytes"]
        .as_u64()
        .unwrap();
    let mut model = vec![0; usize::try_from(capacity).unwrap()];
    for (offset, length, bs) in [
        (0, 1, "4m"),
        (1, 4095, "4m"),
        (4095, 2, "4k"),
        (65_535, 200_003, "7"),
        (12_345, 3_000_000, "64k"),
        (777, 5_000_000, "1m"),
    ] {
        let bytes = &pattern(length + offset)[offset..];
        model[offset..offset + length].copy_from_slice(bytes);
        let offset_text = offset.to_string();
        let options = [
            "--offset",
            &offset_text,
            "--bs",
            if bs == "7" { "5000" } else { bs },
        ];
        let output = command("write", &options, &members)
            .write_stdin(bytes)
            .output()
            .unwrap();
        let message = stderr(&done(output));
        assert!(message.contains("written and flushed"), "{message}");

        let length_text = length.to_string();
        let options = ["--offset", &offset_text, "--length", &length_text];
        let output = done(run("read", &options, &members));
        assert!(output.stdout == bytes, "offset {offset}, length {length}");
    }
    let output = done(run("read", &[], &members));
    assert!(
        output.stdout == model,
        "the whole volume differs from what was written"
    );
}

#[test]
fn files_go_in_and_out() {
    let (rig, members) = Rig::with_volume(2);
    let input = rig.path("input");
    fs::write(&input, pattern(1_234_567)).unwrap();
    let options = ["--input", text(&input), "--offset", "999", "--json"];
    let wrote = json(&done(run("write", &options, &members)));
    assert_eq!(wrote["bytes"], 1_234_567);
    let output = rig.path("output");
    let options = [
        "--output",
        text(&output),
        "--offset",
        "999",
        "--length",
        "1234567",
        "--json",
    ];
    let read = json(&done(run("read", &options, &members)));
    assert_eq!(read["bytes"], 1_234_567);
    assert!(fs::read(&input).unwrap() == fs::read(&output).unwrap());
}

#[test]
fn a_range_beyond_the_end_is_refused_before_anything_is_done() {
    let (rig, members) = Rig::with_volume(2);
    let parts = ["beyond the end", text(&members[0])];
    for options in [
        &["--offset", "1g"][..],
        &["--offset", "8m", "--length", "1m"],
        &["--length", "18446744073709551615", "--offset", "1"],
    ] {
        let output = run("read", options, &members);
        refused(&output, 1, &parts);
        assert!(output.stdout.is_empty());
    }
    let input = rig.path("input");
    fs::write(&input, pattern(9 << 20)).unwrap();
    let write = || run("write", &["--input", text(&input)], &members);
    refused_untouched(&members, write, &parts);
    let write = || {
        let options = ["--offset", "6m", "--length", "4m"];
        command("write", &options, &members)
            .write_stdin(pattern(4 << 20))
            .output()
            .unwrap()
    };
    refused_untouched(&members, write, &parts);
    let write = || {
        command("write", &["--offset", "1g"], &members)
            .output()
            .unwrap()
    };
    refused_untouched(&members, write, &parts);
    let write = || {
        run(
            "write",
            &["--input", text(&input), "--length", "10m"],
            &members,
        )
    };
    refused_untouched(&members, write, &[text(&input), "--length"]);
}

#[test]
fn a_pipe_longer_than_the_volume_is_an_error_that_says_how_much_was_written() {
    let (_rig, members) = Rig::with_volume(2);
    let capacity = json(&done(run("detail", &["--json"], &members)))["volume"]["capacity_bytes"]
        .as_u64()
        .unwrap();
    let bytes = pattern(5000);
    let offset = (capacity - 4999).to_string();
    let options = ["--offset", &offset];
    let output = command("write", &options, &members)
        .write_stdin(bytes.clone())
        .output()
        .unwrap();
    refused(&output, 1, &["4999 bytes were written", "more input"]);
    assert!(done(run("read", &options, &members)).stdout == bytes[..4999]);

    let exactly = command("write", &options, &members)
        .write_stdin(&bytes[..4999])
        .output();
    done(exactly.unwrap());
    let options = ["--length", "6000"];
    let output = command("write", &options, &members)
        .write_stdin(bytes)
        .output()
        .unwrap();
    refused(&output, 1, &["5000 of 6000 bytes"]);
}

#[test]
fn a_reader_that_goes_away_ends_read_quietly() {
    let (_rig, members) = Rig::with_volume(2);
    let mut child = process::Command::new(swath())
        .args(["read", "--bs", "64k"])
        .args(&members)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [1; 10];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_slow_writer_into_a_pipe_is_waited_for() {
    let (_rig, members) = Rig::with_volume(2);
    let mut child = process::Command::new(swath())
        .arg("write")
        .args(&members)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes = pattern(3000);
    let mut stdin = child.stdin.take().unwrap();
    for piece in bytes.chunks(1000) {
        stdin.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(stdin);
    done(child.wait_with_output().unwrap());
    assert!(done(run("read", &["--length", "3000"], &members)).stdout == bytes);
}

#[test]
fn read_does_not_empty_a_member_for_its_output() {
    let (_rig, members) = Rig::with_volume(2);
    let read = || run("read", &["--output", text(&members[1])], &members);
    refused_untouched(&members, read, &[text(&members[1]), "member"]);
}
