//! [`SimPlatform`]: the devices there are, and the hand of the test that moves them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use swath_engine::queue::Queue;
use swath_engine::{
    Device, Error, ErrorKind, Geometry, Identity, OpKind, OpenOptions, Platform, QueueOptions,
    Result,
};

use super::device::{Media, SimDevice, Store};
use super::faults::Fault;
use super::queue::SimQueue;

/// A raw operation as it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traced {
    /// The path its device was added by.
    pub device: PathBuf,
    /// What it did.
    pub kind: OpKind,
    /// Whether it was to be durable at once.
    pub fua: bool,
    /// The first byte on the device.
    pub offset: u64,
    /// How many bytes it was to move.
    pub length: u64,
    /// In how many pieces its memory lay.
    pub memory_pieces: usize,
    /// What the queue gave as its result.
    pub result: i32,
}

/// The platform of simulated devices. Clones share it.
#[derive(Clone)]
pub struct SimPlatform(Arc<World>);

pub(super) struct World {
    pub(super) state: Mutex<State>,
    /// Notified when operations are let go, and when a queue is woken.
    pub(super) moved: Condvar,
}

pub(super) struct State {
    pub(super) rng: ChaCha8Rng,
    pub(super) now_ns: u64,
    pub(super) is_held: bool,
    pub(super) refused_visits: u32,
    pub(super) faults: Vec<Fault>,
    pub(super) trace: Vec<Traced>,
    media: BTreeMap<u64, Media>,
    paths: BTreeMap<PathBuf, u64>,
}

impl State {
    pub(super) fn media(&mut self, number: u64) -> &mut Media {
        self.media
            .get_mut(&number)
            .expect("a device is never removed from its platform")
    }

    /// The path a device was added by.
    pub(super) fn path_of(&self, number: u64) -> &Path {
        let mut paths = self.paths.iter().filter(|&(_, &other)| other == number);
        paths.next().expect("every device has a path").0
    }

    fn at(&mut self, path: impl AsRef<Path>) -> &mut Media {
        let path = path.as_ref();
        let number = *self
            .paths
            .get(path)
            .unwrap_or_else(|| panic!("no {}", path.display()));
        self.media(number)
    }
}

impl SimPlatform {
    /// A platform without devices, all of whose chance comes from `seed`.
    pub fn new(seed: u64) -> Self {
        let state = State {
            rng: ChaCha8Rng::seed_from_u64(seed),
            now_ns: 0,
            is_held: false,
            refused_visits: 0,
            faults: Vec::new(),
            trace: Vec::new(),
            media: BTreeMap::new(),
            paths: BTreeMap::new(),
        };
        Self(Arc::new(World {
            state: Mutex::new(state),
            moved: Condvar::new(),
        }))
    }

    /// A platform with `count` devices of `bytes` and blocks of 512, called `m0`, `m1` and so on.
    pub fn with_members(seed: u64, count: usize, bytes: u64) -> (Self, Vec<PathBuf>) {
        let platform = Self::new(seed);
        let paths: Vec<_> = (0..count)
            .map(|index| PathBuf::from(format!("m{index}")))
            .collect();
        for path in &paths {
            platform.add(path, Geometry::uniform(bytes, 512), Store::sparse());
        }
        (platform, paths)
    }

    /// Adds a device at a new path.
    pub fn add(&self, path: impl AsRef<Path>, geometry: Geometry, store: Store) {
        // Unique in the process, so that a device of another platform is known as such.
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut state = self.0.state.lock();
        let media = Media {
            number,
            geometry,
            store,
            readers: 0,
            has_writer: false,
        };
        state.media.insert(number, media);
        let old = state.paths.insert(path.as_ref().to_path_buf(), number);
        assert!(
            old.is_none(),
            "{} was there already",
            path.as_ref().display()
        );
    }

    /// Adds a device with the size and the bytes of another, as dd makes it.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) {
        let (geometry, store) = {
            let mut state = self.0.state.lock();
            let media = state.at(from);
            (media.geometry.clone(), media.store.clone())
        };
        self.add(to, geometry, store);
    }

    /// Changes the size of a device. Those who have it open learn of it from their operations.
    pub fn resize(&self, path: impl AsRef<Path>, bytes: u64) {
        self.0.state.lock().at(path).geometry.capacity_bytes = bytes;
    }

    /// What is on a device.
    pub fn peek(&self, path: impl AsRef<Path>, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.state.lock().at(path).store.read(offset, &mut bytes);
        bytes
    }

    /// Changes what is on a device.
    pub fn poke(&self, path: impl AsRef<Path>, offset: u64, bytes: &[u8]) {
        self.0.state.lock().at(path).store.write(offset, bytes);
    }

    /// Adds a rule for what goes wrong from now on.
    pub fn inject(&self, fault: Fault) {
        self.0.state.lock().faults.push(fault);
    }

    /// Takes all rules back.
    pub fn heal(&self) {
        self.0.state.lock().faults.clear();
    }

    /// The next `count` visits to a queue are refused as a whole, as a kernel may.
    pub fn refuse_visits(&self, count: u32) {
        self.0.state.lock().refused_visits = count;
    }

    /// Holds back every completion until [`release`](Self::release).
    pub fn hold(&self) {
        self.0.state.lock().is_held = true;
    }

    /// Lets completions go on.
    pub fn release(&self) {
        self.0.state.lock().is_held = false;
        self.0.moved.notify_all();
    }

    /// The operations that ended since this was last called, in the order in which they did.
    pub fn take_trace(&self) -> Vec<Traced> {
        std::mem::take(&mut self.0.state.lock().trace)
    }
}

impl Platform for SimPlatform {
    fn open(&self, path: &Path, options: &OpenOptions) -> Result<Arc<dyn Device>> {
        let mut state = self.0.state.lock();
        let refused = |kind, message: &'static str| Error::new(kind, message).with_path(path);
        let number = *state
            .paths
            .get(path)
            .ok_or_else(|| refused(ErrorKind::NotFound, "there is nothing at this path"))?;
        let media = state.media(number);
        if !media.lock(options) {
            return Err(refused(
                ErrorKind::InUse,
                "in use: another opener holds its lock",
            ));
        }
        Ok(Arc::new(SimDevice {
            world: Arc::clone(&self.0),
            path: path.to_path_buf(),
            number: media.number,
            geometry: media.geometry.clone(),
            options: *options,
        }))
    }

    fn queue(&self, devices: &[Arc<dyn Device>], options: &QueueOptions) -> Result<Box<dyn Queue>> {
        let state = self.0.state.lock();
        let numbers = devices
            .iter()
            .map(|device| match device.identity() {
                Identity::Simulated { number } if state.media.contains_key(&number) => Ok(number),
                _ => Err(
                    Error::new(ErrorKind::InvalidInput, "a device of another platform")
                        .with_path(device.path()),
                ),
            })
            .collect::<Result<Vec<_>>>()?;
        drop(state);
        Ok(Box::new(SimQueue::new(
            Arc::clone(&self.0),
            numbers,
            options.depth as usize,
        )))
    }
}

/// The refusal of a visit.
pub(super) fn refusal() -> io::Error {
    io::Error::from_raw_os_error(libc::EBUSY)
}

impl fmt::Debug for SimPlatform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state.lock();
        f.debug_struct("SimPlatform")
            .field("devices", &state.paths)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}
