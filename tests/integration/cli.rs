//! The `swath` command, run as a user runs it.
//!
//! What could go wrong: a refusal that leaves something behind, or does not say which device and
//! why; an exit code that a script cannot tell apart; bytes that do not come back from odd offsets
//! or through pipes; JSON that does not parse. Each test runs the real program on file members and
//! compares the members' bytes before and after where nothing may have been written.

#![expect(
    clippy::unwrap_used,
    reason = "clippy's leave for tests does not reach their helpers"
)]

mod bytes;
mod checkpoints;
mod create;
mod devices;
mod members;
mod metadata;
mod permissions;
mod report;
mod tune;

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;
use swath_tests::binaries::swath;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A directory for one test, and the members in it.
struct Rig(TempDir);

impl Rig {
    fn new() -> Self {
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    /// A rig with a volume of `count` members of 8 MiB: m0, m1, ...
    fn with_volume(count: usize) -> (Self, Vec<PathBuf>) {
        let rig = Self::new();
        let members = rig.volume("rig", "m", count);
        (rig, members)
    }

    fn volume(&self, name: &str, prefix: &str, count: usize) -> Vec<PathBuf> {
        let members: Vec<PathBuf> = (0..count)
            .map(|index| self.path(format!("{prefix}{index}")))
            .collect();
        done(run(
            "create",
            &["--size", "8m", "--chunk", "64k", "--name", name],
            &members,
        ));
        members
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file of 8 MiB with `bytes` at `offset` and zeroes elsewhere.
    fn file(&self, name: &str, offset: u64, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        let file = fs::File::create(&path).unwrap();
        file.set_len(8 * MIB).unwrap();
        file.write_all_at(bytes, offset).unwrap();
        path
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn command(subcommand: &str, options: &[&str], paths: &[PathBuf]) -> Command {
    let mut command = Command::new(swath());
    command.arg(subcommand).args(options).args(paths);
    command
}

fn run(subcommand: &str, options: &[&str], paths: &[PathBuf]) -> Output {
    command(subcommand, options, paths).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn done(output: Output) -> Output {
    assert!(
        output.status.success(),
        "{}: {}",
        output.status,
        stderr(&output)
    );
    output
}

/// The exit code, and every part of the message, in one line.
#[track_caller]
fn refused(output: &Output, code: i32, parts: &[&str]) {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{message}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    if code == 1 {
        assert!(message.starts_with("swath: error: "), "{message:?}");
        assert_eq!(message.lines().count(), 1, "{message:?}");
    }
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn contents(paths: &[PathBuf]) -> Vec<Vec<u8>> {
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Runs something that must be refused and must not touch `untouched`.
#[track_caller]
fn refused_untouched(untouched: &[PathBuf], output: impl FnOnce() -> Output, parts: &[&str]) {
    let before = contents(untouched);
    refused(&output(), 1, parts);
    assert!(
        before == contents(untouched),
        "a refused command wrote to a member"
    );
}

/// Bytes that differ from place to place and do not repeat with any power of two.
fn pattern(length: usize) -> Vec<u8> {
    let turn = |turn: u8| (0..=250u8).map(move |byte| byte ^ turn);
    (0..=252).cycle().flat_map(turn).take(length).collect()
}

#[test]
fn wrong_command_lines_end_with_code_2_and_do_nothing() {
    let rig = Rig::new();
    let member = [rig.path("m")];
    for (options, part) in [
        (&["--size", "4q"][..], "4q"),
        (&["--size", "5000"], "multiple of 4k"),
        (&["--size", "8m", "--chunk", "5000"], "multiple of 4k"),
        (&["--size", "8m", "--chunk", "0"], "more than zero"),
        (&["--prealloc"], "--size"),
        (&["--count", "2"], "--size"),
        (&["--size", "8m", "--count", "129"], "128"),
        (&["--no-such-option"], "--no-such-option"),
    ] {
        refused(&run("create", options, &member), 2, &[part]);
    }
    for subcommand in ["create", "detail", "examine", "wipe", "read", "write"] {
        refused(&run(subcommand, &[], &[]), 2, &["MEMBER"]);
    }
    refused(&run("read", &["--offset", "4q"], &member), 2, &["4q"]);
    refused(&run("read", &["--json"], &member), 2, &["--output"]);
    assert!(rig.names().is_empty());
}

#[test]
fn help_and_version_are_there() {
    let output = done(run("--version", &[], &[]));
    assert!(output.stdout.starts_with(b"swath "));
    for subcommand in [
        "create", "detail", "devices", "examine", "wipe", "read", "write", "rename",
    ] {
        let output = done(run(subcommand, &["--help"], &[]));
        let help = stdout(&output);
        assert!(help.contains("Example"), "{help}");
    }
}
