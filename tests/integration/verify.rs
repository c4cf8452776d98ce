//! `swath-matrix --verify`, run as a user runs it: members of a few MiB, some cells, and damage.
//!
//! What could go wrong: damage that is not found, or is named at another place; an alarm where
//! nothing is wrong, most of all after a process was killed in the middle of its writes; a journal
//! that is believed though it is of something else.
//!
//! - [`damage`]: a bit, an old block, a block of another place, zeroes; found where they are.
//! - [`killed`]: processes killed over and over, at any moment; `SWATH_KILLS=n` kills n times.
//! - [`refused`]: what is refused, and that it changes nothing.

mod damage;
mod killed;
mod refused;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use swath_tests::binaries::swath_matrix;
use swath_tests::fixtures::{self, MIB};
use swath_volume::Volume;
use tempfile::TempDir;

const UNIT: usize = 4096;

/// A folder with three members, a volume of small chunks on them, and the place of a journal.
struct Rig {
    folder: TempDir,
    members: Vec<PathBuf>,
    journal: PathBuf,
}

/// Where a unit lies.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    path: PathBuf,
    offset: u64,
}

impl Rig {
    fn new() -> Self {
        let folder = fixtures::folder();
        let members = fixtures::members(folder.path(), 3, 8 * MIB);
        fixtures::volume(&members, 64 << 10).close().unwrap();
        let journal = folder.path().join("journal");
        Self {
            folder,
            members,
            journal,
        }
    }

    /// One on which a run has filled the volume and written at random.
    fn written() -> Self {
        let rig = Self::new();
        rig.passes(&["--verify", "--fill", "written", "--destructive"]);
        rig
    }

    /// A run with the journal, as short as it gets, and what else is asked for; the last one counts
    /// where an option stands twice.
    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(swath_matrix());
        command.current_dir(self.folder.path());
        let defaults = [
            ["--bs", "4k,64k"],
            ["--rw", "randwrite,randread"],
            ["--iodepth", "16"],
            ["--runtime", "50ms"],
            ["--ramp-time", "0s"],
            ["--json", "report.json"],
            ["--journal", "journal"],
        ];
        for default in defaults.iter().filter(|it| !more.contains(&it[0])) {
            command.args(default);
        }
        command.arg("--quiet").args(more).args(&self.members);
        command
    }

    /// Runs it. A volume may stay locked for a moment after its process was killed: what the kernel
    /// has in flight holds on to it.
    fn run(&self, more: &[&str]) -> (Output, String) {
        for _ in 0..100 {
            let output = self.command(more).output().unwrap();
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            if !message.contains("in use") {
                return (output, message);
            }
            sleep(Duration::from_millis(50));
        }
        panic!("the volume stays locked");
    }

    /// Runs it and reads what it says of its checks.
    #[track_caller]
    fn passes(&self, more: &[&str]) -> Value {
        let (output, message) = self.run(more);
        let tables = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{more:?}: {message}\n{tables}");
        let verify = self.report()["verify"].clone();
        assert_eq!(verify["wrong_units"], 0, "{verify}");
        assert!(verify["wrong"].as_array().unwrap().is_empty(), "{verify}");
        verify
    }

    /// Only checks: something is wrong, as the report says and the message.
    #[track_caller]
    fn fails(&self, more: &[&str]) -> Value {
        let (output, message) = self.run(more);
        assert_eq!(output.status.code(), Some(1), "{message}");
        let verify = self.report()["verify"].clone();
        let count = verify["wrong_units"].as_u64().unwrap();
        let units = if count == 1 { "unit is" } else { "units are" };
        assert!(
            message.contains(&format!("{count} {units} not what was written")),
            "{message}"
        );
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        for wrong in verify["wrong"].as_array().unwrap() {
            let place = format!("volume offset {}, ", wrong["offset"]);
            assert!(lines.contains(&place), "{place:?} is not in {lines}");
        }
        verify
    }

    fn report(&self) -> Value {
        let bytes = fs::read(self.folder.path().join("report.json")).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Where the unit of that number lies, by the volume's own word.
    fn place(&self, unit: u64) -> Place {
        let options = swath_volume::OpenOptions {
            read_only: true,
            ..swath_volume::OpenOptions::default()
        };
        let volume = Volume::open(&self.members, &options).unwrap();
        let (index, within) = volume.layout().locate(unit * UNIT as u64);
        let member = &volume.members()[index as usize];
        Place {
            path: member.path().to_path_buf(),
            offset: member.data_offset + within,
        }
    }

    /// Generations of every unit by the journal: confirmed, intended.
    fn entries(&self) -> Vec<(u32, u32)> {
        let bytes = fs::read(&self.journal).unwrap();
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        let entries = bytes[4096..].chunks(16);
        entries
            .map(|entry| (number(&entry[..4]), number(&entry[4..8])))
            .collect()
    }

    fn snapshot(&self) -> Vec<Vec<u8>> {
        let members = self.members.iter();
        members.map(|path| fs::read(path).unwrap()).collect()
    }
}

impl Place {
    fn read(&self) -> Vec<u8> {
        let file = fs::File::open(&self.path).unwrap();
        let mut bytes = vec![0; UNIT];
        file.read_exact_at(&mut bytes, self.offset).unwrap();
        bytes
    }

    /// Past the volume, as a fault of the drive.
    fn write(&self, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(&self.path).unwrap();
        file.write_all_at(bytes, self.offset).unwrap();
        file.sync_data().unwrap();
    }

    /// Whether the report names this place.
    fn is_named(&self, wrong: &Value) -> bool {
        wrong["member"] == self.path.display().to_string().as_str()
            && wrong["member_offset"] == self.offset
    }
}

#[track_caller]
fn count(tally: &Value, key: &str) -> u64 {
    let number = tally[key].as_u64();
    number.unwrap_or_else(|| panic!("no {key} in {tally}"))
}

#[test]
fn a_clean_run_checks_every_read_and_everything_at_the_end() {
    let rig = Rig::new();
    let whole = 12 * MIB / UNIT as u64;
    // Nothing is filled: what the first cells read, nobody knows.
    let verify = rig.passes(&["--verify", "--rw", "randread,randwrite"]);
    assert_eq!(verify["unit_bytes"], 4096);
    assert_eq!(verify["journal"], "journal");
    assert!(verify.get("before").is_none(), "{verify}");
    assert!(count(&verify["reads"], "unchecked_units") > 0);
    let known = count(&verify["after"], "checked_units");
    assert!(known > 0);
    assert_eq!(
        known + count(&verify["after"], "unchecked_units"),
        whole,
        "{verify}"
    );
    let report = rig.report();
    assert_eq!(report["cells"].as_array().unwrap().len(), 4);
    let notes = report["notes"].to_string();
    assert!(notes.contains("no measurements"), "{notes}");

    // The next run knows what the first one wrote.
    let next = rig.passes(&[
        "--verify",
        "--fill",
        "written",
        "--destructive",
        "--numjobs",
        "2",
    ]);
    assert_eq!(next["run"], verify["run"]);
    assert_eq!(count(&next["before"], "checked_units"), known);
    assert_eq!(next["open_units"], 0);
    let reads = &next["reads"];
    assert_eq!(count(reads, "unchecked_units"), 0, "all is filled");
    assert!(count(reads, "checked_units") > 0);
    assert_eq!(count(&next["after"], "checked_units"), whole);

    let only = rig.passes(&["--verify-only"]);
    assert_eq!(count(&only["before"], "checked_units"), whole);
    assert!(only.get("after").is_none(), "{only}");
    assert!(rig.report()["cells"].as_array().unwrap().is_empty());
}

#[test]
fn members_of_its_own_are_filled_with_what_reads_can_check_and_removed() {
    let folder = fixtures::folder();
    let output = Command::new(swath_matrix())
        .args(["--verify", "--size", "8m", "--members", "2", "--bs", "16k"])
        .args(["--runtime", "30ms", "--ramp-time", "0s", "--quiet"])
        .args(["--json", "-", "--dir"])
        .arg(folder.path())
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    assert!(message.contains("Data validation"), "{message}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let verify = &report["verify"];
    assert!(verify.get("journal").is_none(), "{verify}");
    assert!(count(&verify["reads"], "checked_units") > 0);
    assert_eq!(count(&verify["reads"], "unchecked_units"), 0);
    assert_eq!(report["cells"][0]["state"], "written");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_run_that_does_not_verify_says_nothing_of_it() {
    let rig = Rig::new();
    let (output, message) = rig.run(&["--journal", "unused", "--rw", "read"]);
    assert_eq!(output.status.code(), Some(2), "{message}");
    let mut command = Command::new(swath_matrix());
    let output = command
        .args(["--bs", "4k", "--rw", "read", "--runtime", "20ms", "-q"])
        .args(["--ramp-time", "0s", "--json", "-"])
        .args(&rig.members)
        .output()
        .unwrap();
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report.get("verify").is_none(), "{report}");
}

/// The files in a folder, by name.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
