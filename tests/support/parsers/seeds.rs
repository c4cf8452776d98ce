//! The inputs that fuzzing begins with, made here and kept in `fuzz/seeds/TARGET/NAME`.
//!
//! - [`write()`] makes them anew; `cargo run -p swath-tests --bin seeds` calls it. A test holds the files
//!   to what is made here, so that they follow when a format changes.
//! - A file whose name begins with `found-` is no seed of this generator: a fuzzer made it, and it
//!   reached something new or showed a bug. It stays.
//! - Seeds are small: good inputs of every kind, and such as claim more than there is.

mod checkpoint;
mod files;
mod volume;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A seed: its name, and its bytes.
pub type Seed = (String, Vec<u8>);

/// How the names of inputs begin that a fuzzer made.
pub const FOUND: &str = "found-";

/// Where seeds lie.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds")
}

/// The seeds of a target.
///
/// # Panics
///
/// When there is no such target.
pub fn of(target: &str) -> Vec<Seed> {
    match target {
        "superblock" => volume::superblock(),
        "members" => volume::members(),
        "root_record" => volume::root_record(),
        "root_history" => volume::root_history(),
        "signature" => volume::signature(),
        "store_header" => checkpoint::store_header(),
        "catalog" => checkpoint::catalog(),
        "index" => checkpoint::index(),
        "lease" => checkpoint::lease(),
        "names" => checkpoint::names(),
        "safetensors_header" => files::safetensors_header(),
        "shard_index" => files::shard_index(),
        "file_list" => files::file_list(),
        _ => panic!("there is no parser {target:?}"),
    }
}

/// The seeds of a target as they lie in the repository, those of a fuzzer among them, in the order of
/// their names.
///
/// # Errors
///
/// They cannot be read.
pub fn stored(target: &str) -> io::Result<Vec<Seed>> {
    let mut seeds = Vec::new();
    for entry in fs::read_dir(folder().join(target))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        seeds.push((name.into_owned(), fs::read(&path)?));
    }
    seeds.sort();
    Ok(seeds)
}

/// Writes the seeds of all targets, and removes those that are made no more.
///
/// # Errors
///
/// They cannot be written.
pub fn write() -> io::Result<()> {
    for target in super::TARGETS {
        let folder = folder().join(target.name);
        fs::create_dir_all(&folder)?;
        for (name, _) in stored(target.name)? {
            if !name.starts_with(FOUND) {
                fs::remove_file(folder.join(name))?;
            }
        }
        for (name, bytes) in of(target.name) {
            fs::write(folder.join(name), bytes)?;
        }
    }
    Ok(())
}

fn named(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Seed {
    (name.into(), bytes.into())
}

/// A block without the zeroes at its end, its checksum among them: it is put right anyway.
fn trimmed(block: &[u8]) -> Vec<u8> {
    let body = &block[..4092];
    let end = body
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1);
    body[..end].to_vec()
}

/// `seed` with `bytes` at `offset`.
fn with(name: impl Into<String>, seed: &Seed, offset: usize, bytes: &[u8]) -> Seed {
    let mut changed = seed.1.clone();
    changed.resize(changed.len().max(offset + bytes.len()), 0);
    changed[offset..offset + bytes.len()].copy_from_slice(bytes);
    named(name, changed)
}
