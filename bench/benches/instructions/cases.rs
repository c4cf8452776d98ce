//! What is counted, and how many instructions it may take at the most.
//!
//! - The caller's loop is counted too: about 60 instructions for a request.
//! - A read that lies in one chunk costs the same, whatever the number of members.
//! - The ring's members are files that were reserved and never written, whose reads end within the
//!   system call: how many completions a visit finds does not depend on a drive.

use std::fs;
use std::path::{Path, PathBuf};

use swath_bench::Pattern;
use swath_engine::{Backend, FileFill, Lane, create_file};
use swath_volume::{CreateOptions, Uuid, Volume, VolumeLane};
use tempfile::TempDir;

use crate::null::NullPlatform;
use crate::stream::{Result, Shape, Stream};

/// Bytes of each member: room for superblocks at both ends and a few chunks between.
const MEMBER_BYTES: u64 = 8 << 20;
const CHUNK_BYTES: u64 = 1 << 20;

/// What is below the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Below {
    /// A queue that does nothing: the same count on every kernel.
    Null,
    /// io_uring over files that were reserved and never written.
    Ring,
}

/// What the caller drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Volume,
    Members,
}

/// One thing that is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    below: Below,
    side: Side,
    members: usize,
    chunk_bytes: u64,
    shape: Shape,
    /// The most instructions for each I/O.
    pub(crate) ceiling: f64,
}

const READ_4K: Shape = Shape {
    block_bytes: 4096,
    pattern: Pattern::RandRead,
    batch: 64,
    depth: 128,
};

const WRITE_1M: Shape = Shape {
    block_bytes: 1 << 20,
    pattern: Pattern::Write,
    batch: 8,
    depth: 16,
};

const fn read(name: &'static str, below: Below, side: Side, members: usize, ceiling: f64) -> Case {
    Case {
        name,
        below,
        side,
        members,
        chunk_bytes: CHUNK_BYTES,
        shape: READ_4K,
        ceiling,
    }
}

const fn write(name: &'static str, chunk_bytes: u64, ceiling: f64) -> Case {
    Case {
        name,
        below: Below::Null,
        side: Side::Volume,
        members: 4,
        chunk_bytes,
        shape: WRITE_1M,
        ceiling,
    }
}

/// The ceilings are 5 % above what was measured when they were set, with Rust 1.95 on x86-64 and the
/// release profile, and are lowered with it. In the order of the list, for each request: 267.1,
/// 314.1, 314.1, 318.1; 3365.1, 6616.1; 288.2, 333.2, 340.1.
#[rustfmt::skip]
pub(crate) const CASES: [Case; 9] = [
    read("null: 4k read, 4 bare members", Below::Null, Side::Members, 4, 280.0),
    read("null: 4k read, volume of 1", Below::Null, Side::Volume, 1, 330.0),
    read("null: 4k read, volume of 4", Below::Null, Side::Volume, 4, 330.0),
    read("null: 4k read, volume of 24", Below::Null, Side::Volume, 24, 334.0),
    write("null: 1m write, volume of 4, chunk 256k", 256 << 10, 3533.0),
    write("null: 1m write, volume of 4, chunk 64k", 64 << 10, 6947.0),
    read("ring: 4k read, 4 bare members", Below::Ring, Side::Members, 4, 303.0),
    read("ring: 4k read, volume of 4", Below::Ring, Side::Volume, 4, 350.0),
    read("ring: 4k read, volume of 24", Below::Ring, Side::Volume, 24, 357.0),
];

impl Case {
    /// Runs `count` requests.
    pub(crate) fn run(&self, count: usize) -> Result<()> {
        let (volume, _files) = self.volume()?;
        // A null platform has one kind of queue, whatever it is asked for.
        let backend = Backend::Uring;
        match self.side {
            Side::Volume => Stream::<VolumeLane>::open(&volume, backend, self.shape)?.run(count),
            Side::Members => Stream::<Lane>::open(&volume, backend, self.shape)?.run(count),
        }
    }

    /// Whether it needs io_uring, which not every machine has.
    pub(crate) fn needs_ring(&self) -> bool {
        self.below == Below::Ring
    }

    /// The volume, and the folder of its files, if it has any.
    fn volume(&self) -> Result<(Volume, Option<TempDir>)> {
        let options = CreateOptions {
            chunk_bytes: self.chunk_bytes,
            uuid: Uuid::from_u128(1),
            created_unix_s: 0,
            ..CreateOptions::default()
        };
        match self.below {
            Below::Null => {
                let platform = NullPlatform::new(MEMBER_BYTES);
                let volume = Volume::create_on(platform, &self.paths(Path::new("")), &options)?;
                Ok((volume, None))
            }
            Below::Ring => {
                let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
                fs::create_dir_all(parent)?;
                let folder = tempfile::Builder::new()
                    .prefix("instructions-")
                    .tempdir_in(parent)?;
                let paths = self.paths(folder.path());
                for path in &paths {
                    create_file(path, MEMBER_BYTES, FileFill::Unwritten)?;
                }
                Ok((Volume::create(&paths, &options)?, Some(folder)))
            }
        }
    }

    fn paths(&self, folder: &Path) -> Vec<PathBuf> {
        (0..self.members)
            .map(|index| folder.join(format!("m{index}")))
            .collect()
    }
}
