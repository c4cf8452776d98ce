//! After a kill: the volume opens, is whole, and holds what it may; nobody else has it. And which step
//! of a commit was cut, as the root records on the members tell.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use swath_checkpoint::{ErrorKind, Store, StoreOptions, VerifyOptions};
use swath_volume::{OpenOptions, Volume};

use super::state::{Account, Contents, State};

/// Opens the store. A process that was killed lets go of its files a moment later.
pub(super) fn open(members: &[PathBuf], options: &StoreOptions) -> Store {
    let volume = patiently(
        |error: &swath_volume::Error| error.kind() == swath_volume::ErrorKind::InUse,
        || Volume::open(members, &OpenOptions::default()),
    );
    Store::open(volume, options).unwrap_or_else(|error| panic!("{error:?}"))
}

/// Tries again while `attempt` is told that somebody is there still.
pub(super) fn patiently<T, E: fmt::Debug>(
    is_busy: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> T {
    let started = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(error) if is_busy(&error) && started.elapsed() < Duration::from_secs(10) => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// What happened to the processes that were killed.
#[derive(Debug, Default)]
pub(super) struct Tally(BTreeMap<String, u64>);

impl Tally {
    pub(super) fn count(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_default() += 1;
    }

    /// How often something that begins with this happened.
    pub(super) fn of(&self, what: &str) -> u64 {
        let begins = self.0.iter().filter(|(key, _)| key.starts_with(what));
        begins.map(|(_, times)| times).sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, times) in &self.0 {
            writeln!(f, "{times:6} {what}")?;
        }
        Ok(())
    }
}

/// The processes on these members have ended; looks at what they left, and closes it again.
#[track_caller]
pub(super) fn check(
    members: &[PathBuf],
    options: &StoreOptions,
    account: &Account,
    contents: Contents,
    tally: &mut Tally,
) -> State {
    tally.count(format!("root records: {}", cut(members)));
    assert_let_go(members, "a process that was killed");
    let store = open(members, options);
    let found = State::of(&store);
    let is_rolled_forward = account.assert_allows(&found);
    if account.is_in_flight() {
        tally.count(format!(
            "outcome: what was in flight {}",
            if is_rolled_forward {
                "is there"
            } else {
                "is not there"
            }
        ));
    } else {
        tally.count("outcome: nothing was in flight");
    }
    assert_whole(&store);
    found.assert_held_by(&store, contents);
    assert_eq!(store.get(u64::MAX).unwrap_err().kind(), ErrorKind::NotFound);
    drop(store);
    assert_let_go(members, "a store that was dropped");
    found
}

/// Every block is what its checksum says, and every byte of space has one owner.
#[track_caller]
pub(super) fn assert_whole(store: &Store) {
    let options = VerifyOptions { deep: true };
    let report = store.verify(&options, &mut |_| true).unwrap();
    assert!(report.complete && report.is_clean(), "{report:?}");
    let space = store.space();
    assert_eq!((space.session_bytes, space.held_bytes), (0, 0), "{space:?}");
    let occupied: u64 = store.list().iter().map(|info| info.occupied_bytes).sum();
    assert_eq!(occupied, space.checkpoint_bytes);
    assert_eq!(
        space.checkpoint_bytes + space.catalog_bytes + space.free_bytes,
        space.capacity_bytes
    );
}

/// When all checkpoints are removed all space is free again but for the catalog.
#[track_caller]
pub(super) fn assert_no_space_is_lost(members: &[PathBuf], options: &StoreOptions) {
    let store = open(members, options);
    for (step, _) in State::of(&store).0 {
        store.remove(step).unwrap();
    }
    drop(store);
    let space = open(members, options).space();
    assert_eq!(space.free_bytes + space.catalog_bytes, space.capacity_bytes);
}

/// Nobody has the members locked, and this process has no descriptor of them. The kernel tears the
/// rings of a process down a moment after its end.
#[track_caller]
fn assert_let_go(members: &[PathBuf], who: &str) {
    let started = Instant::now();
    loop {
        let left = [locks_on(members), descriptors_of(members)].concat();
        if left.is_empty() {
            return;
        }
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{who} still has {left:?}"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// The lines of `/proc/locks` about these files.
fn locks_on(members: &[PathBuf]) -> Vec<String> {
    let inodes: Vec<String> = members
        .iter()
        .map(|path| {
            let metadata = fs::metadata(path).unwrap();
            let (major, minor) = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
            format!(" {major:02x}:{minor:02x}:{} ", metadata.ino())
        })
        .collect();
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    locks
        .lines()
        .filter(|line| inodes.iter().any(|inode| line.contains(inode)))
        .map(str::to_owned)
        .collect()
}

/// What this process has open of these files.
fn descriptors_of(members: &[PathBuf]) -> Vec<String> {
    fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter(|target| members.contains(target))
        .map(|target| target.display().to_string())
        .collect()
}

// ---- root records, as docs/ON_DISK_FORMAT.md has them ------------------------------------------

const BLOCK_BYTES: usize = 4096;
const RING_BYTES: usize = 64 * BLOCK_BYTES;
/// From the start of a member: 1 MiB and 128 KiB.
const HEAD_RING_OFFSET: u64 = (1 << 20) + (128 << 10);
/// From the end.
const TAIL_BYTES: u64 = 2 << 20;

/// Where the newest record stands, before anybody opens the volume.
fn cut(members: &[PathBuf]) -> &'static str {
    let newest: Vec<[u64; 2]> = members
        .iter()
        .map(|path| {
            let file = fs::File::open(path).unwrap();
            let tail = file.metadata().unwrap().len() - TAIL_BYTES;
            [HEAD_RING_OFFSET, tail].map(|offset| newest_in_ring(&file, offset))
        })
        .collect();
    let sequence = newest.iter().flatten().max().copied().unwrap_or(0);
    let [a, b] = [0, 1].map(|ring| {
        let holding = newest.iter().filter(|rings| rings[ring] == sequence);
        holding.count()
    });
    let all = members.len();
    match (a, b) {
        (a, 0) if a < all => "cut while A was written, on some members",
        (_, 0) => "cut between A and B",
        (_, b) if b < all => "cut while B was written, on some members",
        _ => "A and B everywhere",
    }
}

/// The highest sequence number of a ring's good records.
fn newest_in_ring(file: &fs::File, offset: u64) -> u64 {
    let mut ring = vec![0; RING_BYTES];
    file.read_exact_at(&mut ring, offset).unwrap();
    ring.chunks_exact(BLOCK_BYTES)
        .filter(|block| {
            let (bytes, checksum) = block.split_at(BLOCK_BYTES - 4);
            bytes.starts_with(b"SWROOT\r\n") && crc32fast::hash(bytes).to_le_bytes() == *checksum
        })
        .map(|block| u64::from_le_bytes(block[64..72].try_into().unwrap()))
        .max()
        .unwrap_or(0)
}
