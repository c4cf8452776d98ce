//! What real devices promise, on the file systems and loop devices that are to be had here.
//!
//! What needs root, a loop device or a certain file system says so and is skipped where it is not.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

mod creating;
mod facts;
mod opening;
mod written;

use super::*;
use crate::error::{Error, ErrorKind, Result};
use crate::skipped::skipped;

const MIB: u64 = 1 << 20;

/// A folder that is removed with all it holds.
struct Folder(PathBuf);

impl Folder {
    /// On the file system of temporary files, most often that of a disk.
    fn on_disk() -> Self {
        Self::under(&std::env::temp_dir())
    }

    fn in_memory() -> Option<Self> {
        let shm = Path::new("/dev/shm");
        if !shm.is_dir() {
            skipped("no /dev/shm here");
            return None;
        }
        Some(Self::under(shm))
    }

    fn under(parent: &Path) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("swath-device-{}-{count}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path(name);
        create_file(&path, bytes, FileFill::Zeroes).unwrap();
        path
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Descriptors of this process that are open on something in here. Other tests run beside
    /// this one, so all descriptors cannot be counted.
    fn open_descriptors(&self) -> usize {
        fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
            .filter(|target| target.starts_with(&self.0))
            .count()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A loop device over a file; let go of when dropped.
struct Loop {
    path: PathBuf,
    _folder: Folder,
}

impl Loop {
    fn new(sector_bytes: u32, bytes: u64, more: &[&str]) -> Option<Self> {
        Self::holding(&[], sector_bytes, bytes, more)
    }

    fn holding(start: &[u8], sector_bytes: u32, bytes: u64, more: &[&str]) -> Option<Self> {
        let folder = Folder::on_disk();
        let backing = folder.file("backing", bytes.next_multiple_of(4096));
        File::options()
            .write(true)
            .open(&backing)
            .unwrap()
            .write_all_at(start, 0)
            .unwrap();
        let output = Command::new("losetup")
            .args([
                "--find",
                "--show",
                "--sector-size",
                &sector_bytes.to_string(),
            ])
            .args(["--sizelimit", &bytes.to_string()])
            .args(more)
            .arg(&backing)
            .output();
        match output {
            Ok(output) if output.status.success() => {
                let path = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
                Some(Self {
                    path,
                    _folder: folder,
                })
            }
            Ok(output) => {
                skipped(format_args!(
                    "losetup: {}",
                    String::from_utf8_lossy(&output.stderr).trim()
                ));
                None
            }
            Err(error) => {
                skipped(format_args!("no losetup: {error}"));
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.path)
            .status();
    }
}

fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<KernelDevice> {
    KernelDevice::open(path.as_ref(), &options)
}

/// The error of an open that must fail, checked to name the path exactly once.
fn refused(path: impl AsRef<Path>, options: OpenOptions) -> Error {
    let path = path.as_ref();
    let error = open(path, options).expect_err("this open must fail");
    let text = error.to_string();
    assert_eq!(
        text.matches(&path.display().to_string()).count(),
        1,
        "{text}"
    );
    assert_eq!(error.path(), Some(path));
    error
}
