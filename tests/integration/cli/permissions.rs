//! What another user may not do is refused by name, and nothing is written.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process;

use swath_tests::binaries::swath;
use swath_tests::skipped;

use super::{done, json, refused, text};

/// Runs the command as a user who is not root.
struct Unprivileged {
    program: PathBuf,
    is_root: bool,
}

impl Unprivileged {
    /// None, with the reason printed, where that cannot be had.
    fn in_directory(directory: &Path) -> Option<Self> {
        let is_root = process::Command::new("id")
            .arg("-u")
            .output()
            .unwrap()
            .stdout
            == b"0\n";
        if !is_root {
            return Some(Self {
                program: swath(),
                is_root,
            });
        }
        // The build folder may be closed to others, so the program comes along. Copied by another
        // process: while this one had it open for writing, a fork elsewhere in this process would
        // keep it busy.
        let program = directory.join("swath");
        let copied = process::Command::new("cp")
            .arg(swath())
            .arg(&program)
            .status()
            .unwrap();
        assert!(copied.success());
        for path in [&program, directory] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let this = Self { program, is_root };
        let works = this
            .command()
            .arg("--version")
            .output()
            .is_ok_and(|o| o.status.success());
        if !works {
            skipped("root without a working setpriv cannot try what others may not do");
        }
        works.then_some(this)
    }

    fn command(&self) -> process::Command {
        if !self.is_root {
            return process::Command::new(&self.program);
        }
        let mut command = process::Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.arg(&self.program);
        command
    }
}

#[test]
fn what_one_has_no_permission_for_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let Some(user) = Unprivileged::in_directory(directory.path()) else {
        return;
    };
    let closed = directory.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    let mut create = user.command();
    create
        .args(["create", "--size", "8m"])
        .arg(closed.join("m"));
    refused(
        &create.output().unwrap(),
        1,
        &[text(&closed), "ermission denied"],
    );
    assert_eq!(fs::read_dir(&closed).unwrap().count(), 0);

    let member = directory.path().join("member");
    fs::write(&member, vec![0; 8 << 20]).unwrap();
    fs::set_permissions(&member, fs::Permissions::from_mode(0o000)).unwrap();
    for subcommand in ["create", "detail", "examine", "read", "wipe"] {
        let output = user
            .command()
            .arg(subcommand)
            .arg(&member)
            .output()
            .unwrap();
        refused(&output, 1, &[text(&member), "ermission denied"]);
    }
    fs::set_permissions(&member, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(fs::read(&member).unwrap() == vec![0; 8 << 20]);
}

#[test]
fn the_inventory_works_for_who_is_not_root() {
    let directory = tempfile::tempdir().unwrap();
    let Some(user) = Unprivileged::in_directory(directory.path()) else {
        return;
    };
    let mut command = user.command();
    let report = json(&done(command.args(["devices", "--json"]).output().unwrap()));
    let devices = report["devices"].as_array().unwrap();
    let with_more = devices.iter().filter(|it| it["needs_root"] == true);
    assert_eq!(report["summary"]["needs_root"], with_more.count());
    for device in devices {
        assert!(device["capacity_bytes"].is_u64(), "{device}");
    }
}
