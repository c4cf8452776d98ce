//! Bare volumes: several clients write bytes next to each other, by every way into a volume, while
//! operations fail and the power does.
//!
//! Each client has a range of bytes of its own. The ranges meet within blocks, so that a block is read,
//! changed and written by two clients at once. What a client has written is what it reads; what was
//! flushed is there after a crash; of what was not, each byte is as it was flushed last, or as any write
//! since made it.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use swath_engine::{AlignedBuf, Geometry, HandleOptions, LaneOptions, OpKind, Request, threads};
use swath_tests::sim::{
    self, Fault, FaultClass, FaultMix, FaultPlan, PowerCut, SimPlatform, SimScheduler,
};
use swath_volume::{CreateOptions, Error, OpenOptions, Result, Uuid, Volume};

use super::run::{Failure, Outcome, Totals, guarded};
use super::scenario::Cut;

/// What the clients share between them.
const BYTES: usize = 400_000;

/// How often an open is tried while faults are about.
const ATTEMPTS: u32 = 4;

#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    chance: u64,
    devices: Vec<(PathBuf, Geometry)>,
    chunk_bytes: u64,
    workers: usize,
    /// Where each client's bytes begin, and where the last one's end.
    borders: Vec<usize>,
    lives: Vec<Life>,
}

#[derive(Debug, Clone)]
struct Life {
    faults: Vec<Fault>,
    clients: Vec<Vec<Act>>,
    cut: Option<Cut>,
}

/// What a client does; ranges are within its own.
#[derive(Debug, Clone)]
enum Act {
    /// By the shared calls, in so many pieces.
    Write {
        range: Range<usize>,
        pieces: usize,
    },
    /// By a lane of its own.
    LaneWrite {
        range: Range<usize>,
    },
    Read {
        range: Range<usize>,
        pieces: usize,
    },
    /// Whole blocks, many at once by a lane of its own.
    Burst {
        range: Range<usize>,
        fua: bool,
    },
    /// Whole blocks, many at once as futures; some are dropped.
    Futures {
        range: Range<usize>,
        dropped: bool,
    },
    Zeroes {
        range: Range<usize>,
    },
    Discard {
        range: Range<usize>,
    },
    Flush,
    CommitRoot {
        number: u64,
    },
    Rename,
    Statistics,
}

impl Scenario {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(!seed);
        let rng = &mut rng;
        let count = rng.random_range(1..=4_usize);
        let devices: Vec<_> = (0..count)
            .map(|index| {
                let block = [512, 4096][rng.random_range(0..2)];
                let geometry = Geometry::uniform((5 << 20) + (1 << 20), block);
                (PathBuf::from(format!("m{index}")), geometry)
            })
            .collect();
        let clients = rng.random_range(1..=3_usize);
        let mut borders: Vec<_> = (1..clients).map(|_| rng.random_range(0..BYTES)).collect();
        borders.extend([0, BYTES]);
        borders.sort_unstable();
        let mut mix = FaultMix {
            last: 1 << rng.random_range(2..8),
            ..FaultMix::NONE
        };
        if rng.random() {
            mix.transparent = rng.random_range(0..8);
            mix.late = rng.random_range(0..4);
        }
        if rng.random_range(0..3) == 0 {
            mix.failing = rng.random_range(0..3);
        }
        let lives = (0..rng.random_range(1..=4))
            .map(|_| Life {
                faults: FaultPlan::draw(rng.random(), &devices, &mix).faults,
                clients: borders
                    .windows(2)
                    .map(|range| {
                        let count = rng.random_range(1..12);
                        (0..count)
                            .map(|_| Act::draw(rng, range[1] - range[0]))
                            .collect()
                    })
                    .collect(),
                cut: (rng.random_range(0..3) > 0).then(|| Cut::draw(rng, 200)),
            })
            .collect();
        Self {
            seed,
            chance: rng.random(),
            devices,
            chunk_bytes: [4096, 65_536][rng.random_range(0..2)],
            workers: rng.random_range(1..3),
            borders,
            lives,
        }
    }

    pub(crate) fn acts(&self) -> usize {
        let clients = self.lives.iter().flat_map(|life| &life.clients);
        clients.map(Vec::len).sum()
    }

    /// This with something left out, the largest things first.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut less = self.clone();
            change(&mut less);
            all.push(less);
        };
        for (l, life) in self.lives.iter().enumerate() {
            add(&|less| drop(less.lives.remove(l)));
            for (c, client) in life.clients.iter().enumerate() {
                if !client.is_empty() {
                    add(&|less| less.lives[l].clients[c].clear());
                }
            }
        }
        for (l, life) in self.lives.iter().enumerate() {
            if life.cut.is_some() {
                add(&|less| less.lives[l].cut = None);
            }
            for f in 0..life.faults.len() {
                add(&|less| drop(less.lives[l].faults.remove(f)));
            }
            for (c, client) in life.clients.iter().enumerate() {
                for a in 0..client.len() {
                    add(&|less| {
                        less.lives[l].clients[c].remove(a);
                    });
                }
            }
        }
        all
    }
}

impl Act {
    fn draw(rng: &mut ChaCha8Rng, length: usize) -> Self {
        let most = [600, 9000, 150_000][rng.random_range(0..3)].min(length);
        let range = |rng: &mut ChaCha8Rng| {
            let size = rng.random_range(0..=most);
            // The ends, where others are near, are as likely as the middle.
            let start = match rng.random_range(0..4) {
                0 => 0,
                1 => length - size,
                _ => rng.random_range(0..=length - size),
            };
            start..start + size
        };
        match rng.random_range(0..24) {
            0..6 => Self::Write {
                range: range(rng),
                pieces: rng.random_range(1..4),
            },
            6..8 => Self::LaneWrite { range: range(rng) },
            8..12 => Self::Read {
                range: range(rng),
                pieces: rng.random_range(1..4),
            },
            12..14 => Self::Burst {
                range: range(rng),
                fua: rng.random(),
            },
            14..16 => Self::Futures {
                range: range(rng),
                dropped: rng.random(),
            },
            16 => Self::Zeroes { range: range(rng) },
            17 => Self::Discard { range: range(rng) },
            18..20 => Self::Flush,
            20..22 => Self::CommitRoot {
                number: rng.random(),
            },
            22 => Self::Rename,
            _ => Self::Statistics,
        }
    }
}

/// What a client's bytes may be.
#[derive(Debug)]
struct Bytes {
    /// Where they begin on the volume.
    offset: usize,
    /// As they are read; none: nobody knows.
    current: Vec<Option<u8>>,
    /// As they were at the last flush.
    durable: Vec<Option<u8>>,
    /// What was written since, from the oldest on.
    since: Vec<Written>,
    /// What is or will be written at a time that nobody knows, until the volume is opened again.
    unheard: Vec<Range<usize>>,
    next: u64,
}

#[derive(Debug, Clone)]
struct Written {
    number: u64,
    start: usize,
    /// None: discarded.
    bytes: Vec<Option<u8>>,
    is_complete: bool,
}

impl Bytes {
    fn new(range: Range<usize>) -> Self {
        Self {
            offset: range.start,
            current: vec![None; range.len()],
            durable: vec![None; range.len()],
            since: Vec::new(),
            unheard: Vec::new(),
            next: 0,
        }
    }

    /// A write begins: from here on a crash may show it. Gives its number.
    fn begin(&mut self, start: usize, bytes: Vec<Option<u8>>) -> u64 {
        let number = self.next;
        self.next += 1;
        // Should it fail, nobody knows what is there.
        self.current[start..start + bytes.len()].fill(None);
        self.since.push(Written {
            number,
            start,
            bytes,
            is_complete: false,
        });
        number
    }

    fn complete(&mut self, number: u64) {
        let written = self
            .since
            .iter_mut()
            .find(|written| written.number == number);
        let written = written.expect("no flush takes what is not complete");
        written.is_complete = true;
        let range = written.start..written.start + written.bytes.len();
        self.current[range].copy_from_slice(&written.bytes);
        for range in &self.unheard {
            self.current[range.clone()].fill(None);
        }
    }

    /// What a flush that begins now covers.
    fn covered(&self) -> BTreeSet<u64> {
        let complete = self.since.iter().filter(|written| written.is_complete);
        complete.map(|written| written.number).collect()
    }

    fn flushed(&mut self, covered: &BTreeSet<u64>) {
        let Self { since, durable, .. } = self;
        since.retain(|written| {
            if covered.contains(&written.number) {
                let range = written.start..written.start + written.bytes.len();
                durable[range].copy_from_slice(&written.bytes);
                return false;
            }
            true
        });
    }

    /// What may be there when a flush has failed, or after a crash.
    fn may_be(&self, place: usize, byte: u8) -> bool {
        let since = self.since.iter().filter_map(|written| {
            let within = place.checked_sub(written.start)?;
            written.bytes.get(within)
        });
        let mut states = since.chain([&self.durable[place]]);
        states.any(|state| state.is_none_or(|known| known == byte))
    }

    fn check_read(&self, start: usize, bytes: &[u8], is_poisoned: bool) {
        for (place, byte) in bytes.iter().enumerate() {
            let known = self.current[start + place];
            assert!(
                known.is_none_or(|known| known == *byte)
                    || (is_poisoned && self.may_be(start + place, *byte)),
                "WRONG BYTES: byte {} of the volume reads as {byte:#04x}, and was written as {known:#04x?}",
                self.offset + start + place,
            );
        }
    }

    /// What is there after a crash, or when it was opened again.
    fn observe(&mut self, bytes: &[u8]) {
        for (place, byte) in bytes.iter().enumerate() {
            assert!(
                self.may_be(place, *byte),
                "LOST: byte {} of the volume is {byte:#04x}, and was flushed as {:#04x?}",
                self.offset + place,
                self.durable[place],
            );
        }
        self.current = bytes.iter().copied().map(Some).collect();
        self.durable.clone_from(&self.current);
        self.since.clear();
        self.unheard.clear();
    }
}

/// What the clients of a run share.
struct Ground {
    scenario: Scenario,
    paths: Vec<PathBuf>,
    platform: Mutex<(SimPlatform, Option<SimPlatform>)>,
    bytes: Vec<Mutex<Bytes>>,
    /// What the root record may be.
    roots: Mutex<BTreeSet<Option<u64>>>,
    log: Mutex<Vec<String>>,
    totals: Mutex<Totals>,
}

/// Runs a scenario.
pub(crate) fn run(scenario: &Scenario) -> std::result::Result<Outcome, Box<Failure>> {
    let scheduler = SimScheduler::new(scenario.chance);
    let platform = SimPlatform::scheduled(scenario.chance, Some(Arc::clone(&scheduler)));
    for (path, geometry) in &scenario.devices {
        platform.add(path, geometry.clone(), sim::Store::sparse());
    }
    let ranges = scenario.borders.windows(2);
    let ground = Arc::new(Ground {
        scenario: scenario.clone(),
        paths: scenario
            .devices
            .iter()
            .map(|(path, _)| path.clone())
            .collect(),
        platform: Mutex::new((platform, None)),
        bytes: ranges
            .map(|ends| Mutex::new(Bytes::new(ends[0]..ends[1])))
            .collect(),
        roots: Mutex::new(BTreeSet::from([None])),
        log: Mutex::default(),
        totals: Mutex::default(),
    });
    let inner = Arc::clone(&ground);
    let ran = guarded(&scheduler, move || inner.run());
    match ran {
        Ok(()) => {
            let platform = ground.platform();
            ground.totals.lock().add(&platform);
            Ok(ground.totals.lock().outcome(&scheduler, &platform, false))
        }
        Err(message) => Err(Box::new(Failure {
            message,
            story: ground.story(),
        })),
    }
}

impl Ground {
    fn platform(&self) -> SimPlatform {
        self.platform.lock().0.clone()
    }

    fn count(&self, what: String) {
        *self.totals.lock().ends.entry(what).or_default() += 1;
    }

    fn note(&self, line: impl fmt::Display) {
        let now_us = self.platform().now_ns() / 1000;
        self.log.lock().push(format!("{now_us:>9} us  {line}"));
    }

    fn is_troubled(&self, volume: &Volume) -> bool {
        let platform = self.platform();
        platform.is_off()
            || volume.poisoned().is_some()
            || platform.struck().count(FaultClass::Failing) > 0
    }

    fn bytes(&self, client: usize) -> MutexGuard<'_, Bytes> {
        self.bytes[client].lock()
    }

    /// What a flush that begins now covers, of every client.
    fn covered(&self) -> Vec<BTreeSet<u64>> {
        self.bytes
            .iter()
            .map(|bytes| bytes.lock().covered())
            .collect()
    }

    fn flushed(&self, covered: &[BTreeSet<u64>]) {
        for (bytes, covered) in self.bytes.iter().zip(covered) {
            bytes.lock().flushed(covered);
        }
    }

    fn story(&self) -> String {
        let (now, before) = &*self.platform.lock();
        super::run::story(&self.scenario, &self.log.lock(), now, before.as_ref())
    }

    fn restart(&self, how: PowerCut) {
        let before = self.platform();
        let after = before.take_after().unwrap_or_else(|| match how {
            PowerCut::Power => before.crash(),
            PowerCut::Process => before.crash_keeping(|sector| sector.operation.is_none()),
        });
        let mut totals = self.totals.lock();
        totals.add(&before);
        totals.crashes += 1;
        *self.platform.lock() = (after, Some(before));
        drop(totals);
        self.note("---- the devices are back ----");
    }

    fn handle_options(&self) -> HandleOptions {
        HandleOptions {
            workers: self.scenario.workers,
            backlog: 2,
            ..HandleOptions::default()
        }
    }

    fn run(self: &Arc<Self>) {
        let options = CreateOptions {
            name: "bytes".to_owned(),
            chunk_bytes: self.scenario.chunk_bytes,
            force: false,
            uuid: Uuid::from_u128(u128::from(self.scenario.seed) << 64 | 1),
            created_unix_s: 1,
            handle: self.handle_options(),
        };
        let volume = Volume::create_on(Arc::new(self.platform()), &self.paths, &options);
        drop(volume.unwrap_or_else(|error| panic!("cannot be created: {error:?}")));
        for (number, life) in self.scenario.lives.iter().enumerate() {
            self.note(format_args!("==== life {number} ===="));
            for fault in &life.faults {
                self.platform().inject(fault.clone());
            }
            let volume = self.open();
            self.live(life, &volume);
            match life.cut {
                Some(cut) => {
                    self.note(cut);
                    self.restart(cut.how);
                    drop(volume);
                }
                None => self.close(&volume),
            }
        }
        self.platform().heal();
        self.open();
    }

    fn close(&self, volume: &Volume) {
        let covered = self.covered();
        let closed = volume.clone().close();
        self.note(format_args!("closed: {closed:?}"));
        match closed {
            Ok(()) => self.flushed(&covered),
            Err(error) => assert!(self.is_troubled(volume), "cannot be closed: {error:?}"),
        }
    }

    fn open(&self) -> Volume {
        let options = OpenOptions {
            handle: self.handle_options(),
            ..OpenOptions::default()
        };
        let mut attempts = 0;
        let volume = loop {
            let platform = self.platform();
            let opened = Volume::open_on(Arc::new(platform.clone()), &self.paths, &options)
                .and_then(|volume| self.observe(&volume).map(|()| volume));
            let error = match opened {
                Ok(volume) => break volume,
                Err(error) => error,
            };
            self.note(format_args!("cannot be opened: {error:?}"));
            let failing = platform.struck().count(FaultClass::Failing);
            assert!(failing > 0, "cannot be opened: {error:?}");
            attempts += 1;
            assert!(
                attempts < ATTEMPTS,
                "cannot be opened, though all is well: {error:?}"
            );
            if attempts == ATTEMPTS / 2 {
                platform.heal();
                self.restart(PowerCut::Process);
            }
        };
        self.totals.lock().opens += 1;
        volume
    }

    fn observe(&self, volume: &Volume) -> Result<()> {
        for bytes in &self.bytes {
            let (offset, length) = {
                let bytes = bytes.lock();
                (bytes.offset, bytes.current.len())
            };
            let mut found = vec![0; length];
            let mut lane = volume.lane(&LaneOptions::default())?;
            // Page by page, for memory of the allocator's is aligned by chance.
            let mut page = AlignedBuf::zeroed(16 << 10)?;
            for start in (0..length).step_by(page.len()) {
                let end = (start + page.len()).min(length);
                lane.read_at(&mut page[..end - start], (offset + start) as u64)?;
                found[start..end].copy_from_slice(&page[..end - start]);
            }
            bytes.lock().observe(&found);
        }
        let root = volume.root().map(|root| number_of(&root.payload));
        let mut roots = self.roots.lock();
        assert!(
            roots.contains(&root),
            "the root record is {root:?}, and may be {roots:?}"
        );
        *roots = BTreeSet::from([root]);
        self.note(format_args!("opened, root record {root:?}"));
        Ok(())
    }

    fn live(self: &Arc<Self>, life: &Life, volume: &Volume) {
        let platform = self.platform();
        let failed_before = platform.struck().count_changing();
        if let Some(cut) = life.cut {
            platform.cut_power_after(cut.after, cut.how);
        }
        let clients: Vec<_> = life
            .clients
            .iter()
            .enumerate()
            .map(|(number, acts)| {
                let client = Client {
                    ground: Arc::clone(self),
                    volume: volume.clone(),
                    number,
                };
                let acts = acts.clone();
                let name = format!("client {number}");
                threads::spawn(&platform, &name, move || client.run(&acts)).unwrap()
            })
            .collect();
        let ends: Vec<_> = clients.into_iter().map(threads::Thread::join).collect();
        for end in ends {
            end.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        if !platform.is_off() {
            let has_failed = platform.struck().count_changing() > failed_before;
            assert!(
                volume.poisoned().is_some() || !has_failed,
                "a write failed, and all went on"
            );
            if volume.poisoned().is_none() {
                for bytes in &self.bytes {
                    let bytes = bytes.lock();
                    let mut memory = AlignedBuf::zeroed(bytes.current.len()).unwrap();
                    // The model is nobody else's now, so its lock may be held meanwhile.
                    match volume.read_at(&mut memory, bytes.offset as u64) {
                        Ok(()) => bytes.check_read(0, &memory, false),
                        Err(error) => assert!(self.is_troubled(volume), "at rest: {error:?}"),
                    }
                }
            }
        }
    }
}

/// One thread that uses the volume.
struct Client {
    ground: Arc<Ground>,
    volume: Volume,
    number: usize,
}

impl Client {
    fn run(self, acts: &[Act]) {
        for (place, act) in acts.iter().enumerate() {
            self.note(act, "begins");
            let was_poisoned = self.volume.poisoned().is_some();
            let result = self.take(act, place as u64);
            self.note(act, &format!("{:?}", result.as_ref().err()));
            let kind = result.as_ref().err().map(Error::kind);
            let name = format!("{act:?}");
            let name = name.split_whitespace().next().unwrap_or_default();
            self.ground.count(format!(
                "{name} {}",
                kind.map_or("ok".to_owned(), |kind| format!("{kind:?}"))
            ));
            match result {
                Ok(()) => {
                    let changes = match act {
                        Act::Read { .. } | Act::Statistics => false,
                        // There may be no whole block in it.
                        Act::Burst { range, .. }
                        | Act::Futures { range, .. }
                        | Act::Zeroes { range }
                        | Act::Discard { range } => !self.blocks(range).is_empty(),
                        _ => true,
                    };
                    assert!(!(was_poisoned && changes), "{act:?} on a poisoned volume");
                }
                Err(error) => {
                    assert!(self.ground.is_troubled(&self.volume), "{act:?}: {error:?}");
                }
            }
        }
    }

    fn note(&self, act: &Act, how: &str) {
        self.ground
            .note(format_args!("client {}: {act:?}: {how}", self.number));
    }

    fn bytes(&self) -> MutexGuard<'_, Bytes> {
        self.ground.bytes(self.number)
    }

    fn check_read(&self, start: usize, bytes: &[u8]) {
        let is_poisoned = self.volume.poisoned().is_some();
        self.bytes().check_read(start, bytes, is_poisoned);
    }

    /// Where a range of this client's bytes lies on the volume.
    fn at(&self, start: usize) -> u64 {
        (self.bytes().offset + start) as u64
    }

    /// New bytes for a range, at an address that is a whole page, or not.
    fn fresh(&self, range: &Range<usize>, salt: u64, skip: usize) -> AlignedBuf {
        let mut memory = AlignedBuf::zeroed(range.len() + skip).unwrap();
        let mark = (self.number as u64) << 32 | self.bytes().next << 8 | salt;
        swath_engine::fill_incompressible(&mut memory, mark, 0);
        memory
    }

    fn begin(&self, range: &Range<usize>, bytes: &[u8]) -> u64 {
        let bytes = bytes.iter().copied().map(Some).collect();
        self.bytes().begin(range.start, bytes)
    }

    /// The whole blocks within a range.
    fn blocks(&self, range: &Range<usize>) -> Range<usize> {
        let block = self.volume.block_bytes() as usize;
        let offset = self.bytes().offset;
        let start = (offset + range.start).next_multiple_of(block);
        let end = (offset + range.end) / block * block;
        if start >= end {
            return range.start..range.start;
        }
        start - offset..end - offset
    }

    fn take(&self, act: &Act, salt: u64) -> Result<()> {
        let volume = &self.volume;
        match act {
            Act::Burst { range, .. }
            | Act::Futures { range, .. }
            | Act::Zeroes { range }
            | Act::Discard { range }
                if self.blocks(range).is_empty() => {}
            Act::Write { range, pieces } => {
                let skip = [0, 8][pieces % 2];
                let memory = self.fresh(range, salt, skip);
                let bytes = &memory[skip..];
                let number = self.begin(range, bytes);
                if *pieces == 1 {
                    volume.write_at(bytes, self.at(range.start))?;
                } else {
                    let parts: Vec<_> = cut(bytes, *pieces).map(IoSlice::new).collect();
                    volume.write_vectored_at(&parts, self.at(range.start))?;
                }
                self.bytes().complete(number);
            }
            Act::LaneWrite { range } => {
                let memory = self.fresh(range, salt, 0);
                let number = self.begin(range, &memory);
                let mut lane = volume.lane(&LaneOptions::default())?;
                lane.write_at(&memory, self.at(range.start))?;
                self.bytes().complete(number);
            }
            Act::Read { range, pieces } => {
                let mut memory = AlignedBuf::zeroed(range.len())?;
                let offset = self.at(range.start);
                if *pieces == 1 {
                    volume.read_at(&mut memory, offset)?;
                } else {
                    let size = range.len().div_ceil(*pieces).max(1);
                    let mut parts: Vec<_> = memory.chunks_mut(size).map(IoSliceMut::new).collect();
                    volume.read_vectored_at(&mut parts, offset)?;
                }
                self.check_read(range.start, &memory);
            }
            Act::Burst { range, fua } => self.burst(&self.blocks(range), *fua, salt)?,
            Act::Futures { range, dropped } => {
                self.futures(&self.blocks(range), *dropped, salt)?;
            }
            Act::Zeroes { range } => {
                let range = self.blocks(range);
                let number = self.bytes().begin(range.start, vec![Some(0); range.len()]);
                volume.write_zeroes(self.at(range.start), range.len() as u64)?;
                self.bytes().complete(number);
            }
            Act::Discard { range } => {
                let range = self.blocks(range);
                let number = self.bytes().begin(range.start, vec![None; range.len()]);
                volume.discard(self.at(range.start), range.len() as u64)?;
                self.bytes().complete(number);
            }
            Act::Flush => {
                let covered = self.ground.covered();
                volume.flush()?;
                self.ground.flushed(&covered);
            }
            Act::CommitRoot { number } => {
                let covered = self.ground.covered();
                self.ground.roots.lock().insert(Some(*number));
                volume.commit_root(&number.to_le_bytes())?;
                self.ground.flushed(&covered);
                // Another may have been committed by somebody else meanwhile.
                if self.ground.bytes.len() == 1 {
                    *self.ground.roots.lock() = BTreeSet::from([Some(*number)]);
                }
            }
            Act::Rename => volume.rename(&format!("by client {}", self.number))?,
            Act::Statistics => {
                let stats = volume.handle_stats();
                let errors = stats.total(OpKind::Write).errors;
                assert!(errors == 0 || self.ground.is_troubled(volume));
            }
        }
        Ok(())
    }

    /// Writes whole blocks by a lane, many at once, and reads them back.
    fn burst(&self, range: &Range<usize>, fua: bool, salt: u64) -> Result<()> {
        let mut lane = self.volume.lane(&LaneOptions::default())?;
        let mut begun = Vec::new();
        for part in parts(range, 16 << 10) {
            let memory = self.fresh(&part, salt, 0);
            let number = self.begin(&part, &memory);
            let offset = self.at(part.start);
            if fua {
                lane.write_fua(offset, memory, begun.len() as u64);
            } else {
                lane.write(offset, memory, begun.len() as u64);
            }
            begun.push((number, part));
        }
        let mut ends = Vec::new();
        while ends.len() < begun.len() {
            lane.poll(&mut ends)?;
            lane.wait(1, &mut ends)?;
        }
        for end in ends {
            end.result?;
            let (number, _) = begun[usize::try_from(end.token).unwrap()];
            self.bytes().complete(number);
        }
        for (_, part) in begun {
            let mut memory = AlignedBuf::zeroed(part.len())?;
            lane.read_at(&mut memory, self.at(part.start))?;
            self.check_read(part.start, &memory);
        }
        Ok(())
    }

    /// Writes whole blocks by the shared lanes, many at once.
    fn futures(&self, range: &Range<usize>, dropped: bool, salt: u64) -> Result<()> {
        let mut begun = Vec::new();
        for part in parts(range, 8 << 10) {
            let memory = self.fresh(&part, salt, 0);
            let number = self.begin(&part, &memory);
            let offset = self.at(part.start);
            begun.push((
                number,
                part,
                self.volume.submit(Request::write(memory, 0), offset, 0),
            ));
        }
        let mut outcome = Ok(());
        for (place, (number, part, submission)) in begun.into_iter().enumerate() {
            if dropped && place % 2 == 1 {
                drop(submission);
                self.bytes().unheard.push(part);
                continue;
            }
            let completion = submission.wait();
            assert_eq!(completion.buffers.total_len(), part.len() as u64);
            match completion.result {
                Ok(_) => self.bytes().complete(number),
                Err(error) => outcome = Err(Error::from(error)),
            }
        }
        outcome
    }
}

fn cut(bytes: &[u8], pieces: usize) -> impl Iterator<Item = &[u8]> {
    bytes.chunks(bytes.len().div_ceil(pieces).max(1))
}

fn parts(range: &Range<usize>, size: usize) -> Vec<Range<usize>> {
    let starts = range.clone().step_by(size);
    starts
        .map(|start| start..(start + size).min(range.end))
        .collect()
}

fn number_of(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload.try_into().expect("eight bytes"))
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "SWATH_SEED={} of a volume: {} members, blocks of {:?}, chunks of {}, clients at {:?}",
            self.seed,
            self.devices.len(),
            self.devices
                .iter()
                .map(|(_, geometry)| geometry.logical_block_bytes)
                .collect::<Vec<_>>(),
            self.chunk_bytes,
            self.borders,
        )?;
        for (number, life) in self.lives.iter().enumerate() {
            writeln!(f, "life {number}")?;
            for fault in &life.faults {
                writeln!(f, "  fault: {fault}")?;
            }
            for (number, acts) in life.clients.iter().enumerate() {
                for act in acts {
                    writeln!(f, "  client {number}: {act:?}")?;
                }
            }
            match life.cut {
                Some(cut) => writeln!(f, "  {cut}")?,
                None => writeln!(f, "  closed")?,
            }
        }
        Ok(())
    }
}
