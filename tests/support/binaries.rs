//! The workspace's own programs, for tests that run them as a user would.
//!
//! Cargo offers a package's binaries only to that package's own tests. So they are built here, once
//! per test process and always by cargo itself, which knows whether they are stale. The build takes
//! the place and the profile of the running test, and resolves features over the whole workspace,
//! so that it finds compiled what the tests already needed.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The `swath` command.
///
/// # Panics
///
/// When it cannot be built.
pub fn swath() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| build("swath")).clone()
}

/// The `swath-matrix` bench.
///
/// # Panics
///
/// When it cannot be built.
pub fn swath_matrix() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| build("swath-matrix")).clone()
}

/// The `swath-checkpoint` bench.
///
/// # Panics
///
/// When it cannot be built.
pub fn swath_checkpoint() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| build("swath-checkpoint")).clone()
}

/// The `swath-compare` bench.
///
/// # Panics
///
/// When it cannot be built.
pub fn swath_compare() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| build("swath-compare")).clone()
}

/// The `swath-threads` bench.
///
/// # Panics
///
/// When it cannot be built.
pub fn swath_threads() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| build("swath-threads")).clone()
}

/// The `swath-curve` bench.
///
/// # Panics
///
/// When it cannot be built.
pub fn swath_curve() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| build("swath-curve")).clone()
}

fn build(binary: &str) -> PathBuf {
    let test = env::current_exe().expect("a running test has a path");
    let (target, profile) =
        place_of(&test).unwrap_or_else(|| panic!("{}: not where cargo puts tests", test.display()));

    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--workspace", "--bin", binary])
        // The folder of the dev profile is called debug, all others by their own name.
        .args([
            "--profile",
            if profile == "debug" { "dev" } else { profile },
        ])
        .arg("--target-dir")
        .arg(target)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .status()
        .unwrap_or_else(|error| panic!("cargo build --bin {binary}: {error}"));
    assert!(status.success(), "cargo build --bin {binary}: {status}");
    target.join(profile).join(binary)
}

/// The target folder and the profile's folder of a test: `TARGET/PROFILE/deps/TEST`.
fn place_of(test: &Path) -> Option<(&Path, &str)> {
    let profile = test.parent()?.parent()?;
    Some((
        profile.parent()?,
        profile.file_name().and_then(OsStr::to_str)?,
    ))
}
