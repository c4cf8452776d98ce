//! Real things to test on, made in one place: folders, members, loop devices, backends, processes.
//!
//! What this machine lacks is said, by [`skipped()`], and left out.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use swath_engine::{
    Backend, FileFill, HandleOptions, Kernel, Lane, LaneOptions, OpenOptions, Platform,
    QueueOptions, create_file,
};
use swath_volume::{CreateOptions, Volume};
use tempfile::TempDir;

use crate::skipped::skipped;

/// One MiB.
pub const MIB: u64 = 1 << 20;

/// Where files can lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The file system of the target directory: most often that of a disk.
    Disk,
    /// `/dev/shm`: a file system in memory.
    Memory,
}

impl Place {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Disk, Self::Memory];

    /// A new folder there, removed when dropped; none, with a printed reason, where there is no
    /// such place.
    ///
    /// # Panics
    ///
    /// When the folder cannot be made.
    pub fn folder(self) -> Option<TempDir> {
        let parent = match self {
            Self::Disk => disk(),
            Self::Memory => {
                let shm = Path::new("/dev/shm");
                if !shm.is_dir() {
                    skipped("no /dev/shm here");
                    return None;
                }
                shm.to_path_buf()
            }
        };
        let folder = tempfile::Builder::new().prefix("swath-").tempdir_in(parent);
        Some(folder.expect("a folder can be made where tests are built"))
    }
}

/// A folder on the file system of the target directory.
///
/// # Panics
///
/// When it cannot be made.
pub fn folder() -> TempDir {
    Place::Disk.folder().expect("the target directory is there")
}

/// `TARGET/tmp`, as cargo has it for tests; known to a library only by where its test runs:
/// `TARGET/PROFILE/deps/TEST`.
fn disk() -> PathBuf {
    let test = env::current_exe().expect("a running test has a path");
    let target = test
        .ancestors()
        .nth(3)
        .map_or_else(env::temp_dir, |target| target.join("tmp"));
    fs::create_dir_all(&target).expect("a folder can be made where tests are built");
    target
}

/// Makes `count` files of `bytes`, written as zeroes: `m0`, `m1` and so on.
///
/// # Panics
///
/// When one cannot be made.
pub fn members(folder: &Path, count: usize, bytes: u64) -> Vec<PathBuf> {
    (0..count)
        .map(|index| member(folder, &format!("m{index}"), bytes))
        .collect()
}

/// Makes one file of `bytes`, written as zeroes.
///
/// # Panics
///
/// When it cannot be made.
pub fn member(folder: &Path, name: &str, bytes: u64) -> PathBuf {
    let path = folder.join(name);
    create_file(&path, bytes, FileFill::Zeroes).expect("there is room for a small file");
    path
}

/// Creates a volume over `members`, which may carry anything.
///
/// # Panics
///
/// When it cannot be created.
pub fn volume(members: &[PathBuf], chunk_bytes: u64) -> Volume {
    let options = CreateOptions {
        chunk_bytes,
        force: true,
        ..CreateOptions::default()
    };
    Volume::create(members, &options).expect("a volume over files of our own")
}

/// Options for a lane on this backend.
pub fn lane_options(backend: Backend) -> LaneOptions {
    let queue = QueueOptions {
        backend,
        ..QueueOptions::default()
    };
    LaneOptions {
        queue,
        ..LaneOptions::default()
    }
}

/// Options for a shared handle on this backend.
pub fn handle_options(backend: Backend) -> HandleOptions {
    HandleOptions {
        lane: lane_options(backend),
        ..HandleOptions::default()
    }
}

/// Runs `test` with every backend that is to be had here, best first.
///
/// # Panics
///
/// When not even plain reads and writes are to be had.
pub fn for_each_backend(mut test: impl FnMut(Backend)) {
    for backend in backends() {
        test(*backend);
    }
}

/// The backends that are to be had here. Says which are not, and why.
///
/// # Panics
///
/// When not even plain reads and writes are to be had.
pub fn backends() -> &'static [Backend] {
    static FOUND: OnceLock<(Vec<Backend>, Vec<String>)> = OnceLock::new();
    let (found, missing) = FOUND.get_or_init(|| {
        let folder = folder();
        let path = member(folder.path(), "probe", MIB);
        let device = Kernel
            .open(&path, &OpenOptions::read_write())
            .expect("a file of our own");
        let mut missing = Vec::new();
        let mut found = Vec::new();
        for backend in Backend::ALL {
            let devices = std::slice::from_ref(&device);
            match Lane::open(&Kernel, devices, &lane_options(backend)) {
                Ok(_) => found.push(backend),
                Err(error) => missing.push(format!("no {backend} here: {error:?}")),
            }
        }
        (found, missing)
    });
    missing.iter().for_each(skipped);
    assert!(
        found.contains(&Backend::Sync),
        "plain reads and writes work anywhere: {missing:?}"
    );
    found
}

/// A loop device, let go of when dropped.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// A loop device with sectors of `sector_bytes` over the file `backing`; none, with a printed
    /// reason, where none is to be had.
    pub fn over(backing: &Path, sector_bytes: u32) -> Option<Self> {
        let output = Command::new("losetup")
            .args([
                "--find",
                "--show",
                "--sector-size",
                &sector_bytes.to_string(),
            ])
            .arg(backing)
            .output();
        match output {
            Ok(output) if output.status.success() => {
                let path = String::from_utf8_lossy(&output.stdout).trim().into();
                Some(Self { path })
            }
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr);
                skipped(format_args!("no loop device here: {}", why.trim()));
                None
            }
            Err(error) => {
                skipped(format_args!("no losetup here: {error}"));
                None
            }
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let status = Command::new("losetup")
            .arg("--detach")
            .arg(&self.path)
            .status();
        if !status.is_ok_and(|status| status.success()) {
            eprintln!("{} was not let go of", self.path.display());
        }
    }
}

/// Runs `body` in a process of its own, where no other test runs beside it: the test of this name
/// is started anew, alone, and comes here again.
///
/// # Panics
///
/// When it fails there.
pub fn in_own_process(test: &str, body: impl FnOnce()) {
    if is_alone(test) {
        body();
        return;
    }
    let output = alone(test).output().expect("a test can be started again");
    assert!(
        output.status.success(),
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    // What it left out is not seen otherwise.
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        if let Some(reason) = line.strip_prefix("skipped: ") {
            skipped(reason);
        }
    }
}

/// The command that runs the test of this name in a process of its own, where
/// [`is_alone`] holds.
///
/// # Panics
///
/// When the running test cannot be found.
pub fn alone(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("a running test has a path"));
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(ALONE, test);
    command
}

/// Whether this process was started for the test of this name.
pub fn is_alone(test: &str) -> bool {
    env::var_os(ALONE).is_some_and(|name| name == test)
}

const ALONE: &str = "SWATH_TEST_ALONE";
