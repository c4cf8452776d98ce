//! [`SimPlatform`]: the devices there are, and the hand of the test that moves them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use swath_engine::queue::Queue;
use swath_engine::{
    Device, Error, ErrorKind, Geometry, Identity, OpenOptions, Platform, QueueOptions, Result,
    Scheduler,
};

use super::crash::PowerCut;
use super::device::SimDevice;
use super::faults::{Fault, Struck};
use super::flight::InFlight;
use super::image::Image;
use super::media::{Media, Store};
use super::queue::SimQueue;
use super::record::Event;
use super::scheduler::SimScheduler;
use super::trace::{TRACE_MAX, Trace, Traced};

/// The platform of simulated devices. Clones share it.
#[derive(Clone)]
pub struct SimPlatform(pub(super) Arc<World>);

pub(super) struct World {
    pub(super) state: Mutex<State>,
    /// Notified when operations are let go, and when a queue is woken.
    moved: Condvar,
    /// Who decides which thread runs, and where threads wait for what `moved` tells; none: the
    /// kernel, and there.
    pub(super) scheduler: Option<(Arc<SimScheduler>, u64)>,
}

pub(super) struct State {
    pub(super) rng: ChaCha8Rng,
    pub(super) now_ns: u64,
    pub(super) is_held: bool,
    /// Whether the power has failed.
    pub(super) is_off: bool,
    pub(super) refused_visits: u32,
    pub(super) faults: Vec<Fault>,
    pub(super) trace: Trace,
    pub(super) recording: Option<Vec<Event>>,
    /// By number, which is the order in which they were added.
    pub(super) media: BTreeMap<u64, Media>,
    paths: BTreeMap<PathBuf, u64>,
    /// By the number of their queue.
    pub(super) in_flight: BTreeMap<u64, Vec<InFlight>>,
    /// How many operations have ended.
    pub(super) ended: u64,
    /// How and after how many of them the power is to fail.
    pub(super) cut: Option<(u64, PowerCut)>,
    /// What came back when it had.
    pub(super) after: Option<SimPlatform>,
    /// What went wrong.
    pub(super) struck: Struck,
    /// The numbers that were given out to queues, operations and openers.
    pub(super) queues: u64,
    pub(super) operations: u64,
    openers: u64,
}

impl World {
    /// Tells those who wait for a device to look again.
    pub(super) fn tell(&self) {
        self.moved.notify_all();
        if let Some((scheduler, place)) = &self.scheduler {
            scheduler.wake(*place);
        }
    }

    /// Waits to be told, where there is no scheduler.
    pub(super) fn wait(&self, state: &mut MutexGuard<'_, State>) {
        self.moved.wait(state);
    }
}

impl State {
    pub(super) fn media(&mut self, number: u64) -> &mut Media {
        self.media
            .get_mut(&number)
            .expect("a device is never removed from its platform")
    }

    fn at(&mut self, path: impl AsRef<Path>) -> &mut Media {
        let path = path.as_ref();
        let number = *self
            .paths
            .get(path)
            .unwrap_or_else(|| panic!("no {}", path.display()));
        self.media(number)
    }

    pub(super) fn record(&mut self, event: impl FnOnce() -> Event) {
        if let Some(recording) = &mut self.recording {
            recording.push(event());
        }
    }

    /// Adds a device at a new path.
    pub(super) fn add(&mut self, path: &Path, geometry: Geometry, store: Store) -> &mut Media {
        // Unique in the process, so that a device of another platform is known as such.
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let old = self.paths.insert(path.to_path_buf(), number);
        assert!(old.is_none(), "{} was there already", path.display());
        let media = Media::new(number, path.to_path_buf(), geometry, store);
        self.media.entry(number).or_insert(media)
    }
}

impl SimPlatform {
    /// A platform without devices, all of whose chance comes from `seed`.
    pub fn new(seed: u64) -> Self {
        Self::scheduled(seed, None)
    }

    /// As [`new`](Self::new), for threads that `scheduler` runs.
    pub fn scheduled(seed: u64, scheduler: Option<Arc<SimScheduler>>) -> Self {
        let state = State {
            rng: ChaCha8Rng::seed_from_u64(seed),
            now_ns: 0,
            is_held: false,
            is_off: false,
            refused_visits: 0,
            faults: Vec::new(),
            trace: Trace::new(TRACE_MAX),
            recording: None,
            media: BTreeMap::new(),
            paths: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            ended: 0,
            cut: None,
            after: None,
            struck: Struck::default(),
            queues: 0,
            operations: 0,
            openers: 0,
        };
        Self(Arc::new(World {
            state: Mutex::new(state),
            moved: Condvar::new(),
            scheduler: scheduler.map(|scheduler| {
                let place = scheduler.place("the devices");
                (scheduler, place)
            }),
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

    // ---- devices -----------------------------------------------------------------------------

    /// Adds a device at a new path.
    pub fn add(&self, path: impl AsRef<Path>, geometry: Geometry, store: Store) {
        self.0.state.lock().add(path.as_ref(), geometry, store);
    }

    /// Adds a device with the size and the bytes of another, as dd makes it.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) {
        let mut state = self.0.state.lock();
        let media = state.at(from);
        let (geometry, image) = (media.geometry.clone(), media.current().clone());
        state.add(to.as_ref(), geometry, Store::Kept(image));
    }

    /// The devices, in the order in which they were added.
    pub fn devices(&self) -> Vec<(PathBuf, Geometry)> {
        let state = self.0.state.lock();
        state
            .media
            .values()
            .map(|media| (media.path.clone(), media.geometry.clone()))
            .collect()
    }

    /// Changes the size of a device. Those who have it open learn of it from their operations.
    pub fn resize(&self, path: impl AsRef<Path>, bytes: u64) {
        self.0.state.lock().at(path).geometry.capacity_bytes = bytes;
    }

    /// What a device writes as a whole or not at all: 512 bytes or its block, unless told
    /// otherwise. A drive with blocks of 4096 bytes may tear at 512.
    ///
    /// # Panics
    ///
    /// When it is neither 512 nor 4096.
    pub fn tear_at(&self, path: impl AsRef<Path>, bytes: u64) {
        assert!(bytes == 512 || bytes == 4096, "a sector of {bytes} bytes");
        self.0.state.lock().at(path).tear_bytes = bytes;
    }

    /// What is on a device, as a read sees it.
    pub fn peek(&self, path: impl AsRef<Path>, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let mut state = self.0.state.lock();
        state.at(path).current().read(offset, &mut bytes);
        bytes
    }

    /// Changes what is on a device, durably.
    pub fn poke(&self, path: impl AsRef<Path>, offset: u64, bytes: &[u8]) {
        self.0.state.lock().at(path).poke(offset, bytes);
    }

    /// Changes what is on a device as a write does that was acknowledged and not flushed: as whoever
    /// wrote before, and died, has left it.
    pub fn poke_cached(&self, path: impl AsRef<Path>, offset: u64, bytes: &[u8]) {
        let mut guard = self.0.state.lock();
        let state = &mut *guard;
        let number = state.at(path).number;
        let media = state.media.get_mut(&number).expect("it was found just now");
        media.write(offset, bytes, false, &mut state.rng);
    }

    /// All that a device holds, as a read sees it. Costs nothing.
    pub fn image(&self, path: impl AsRef<Path>) -> Image {
        self.0.state.lock().at(path).current().clone()
    }

    /// What a crash would leave at the least: what is durable. Costs nothing.
    pub fn durable_image(&self, path: impl AsRef<Path>) -> Image {
        self.0.state.lock().at(path).durable().clone()
    }

    /// Whether a device has nothing in its cache that a crash could take.
    pub fn is_clean(&self, path: impl AsRef<Path>) -> bool {
        self.0.state.lock().at(path).is_clean()
    }

    // ---- what goes wrong ---------------------------------------------------------------------

    /// Adds a rule for what goes wrong from now on.
    pub fn inject(&self, fault: Fault) {
        self.0.state.lock().faults.push(fault);
    }

    /// Takes all rules back. A device that is gone stays gone.
    pub fn heal(&self) {
        self.0.state.lock().faults.clear();
    }

    /// Pulls a device out: what is in flight and all that follows ends with `ENODEV`.
    pub fn pull(&self, path: impl AsRef<Path>) {
        self.0.state.lock().at(path).is_gone = true;
        self.0.tell();
    }

    /// The power fails as soon as `operations` have ended from now on; see
    /// [`take_after`](Self::take_after).
    pub fn cut_power_after(&self, operations: u64, how: PowerCut) {
        let mut state = self.0.state.lock();
        state.cut = Some((state.ended + operations, how));
    }

    /// Whether the power has failed.
    pub fn is_off(&self) -> bool {
        self.0.state.lock().is_off
    }

    /// What came back after the power failed as it was [told to](Self::cut_power_after).
    pub fn take_after(&self) -> Option<Self> {
        self.0.state.lock().after.take()
    }

    /// The next `count` visits to a queue are refused as a whole, as a kernel may.
    pub fn refuse_visits(&self, count: u32) {
        self.0.state.lock().refused_visits = count;
    }

    /// Holds back every completion until [`release`](Self::release).
    pub fn hold(&self) {
        self.0.state.lock().is_held = true;
    }

    /// Holds back the completions of one device until [`release`](Self::release).
    pub fn hang(&self, path: impl AsRef<Path>) {
        self.0.state.lock().at(path).is_hung = true;
    }

    /// Lets completions go on.
    pub fn release(&self) {
        let mut state = self.0.state.lock();
        state.is_held = false;
        for media in state.media.values_mut() {
            media.is_hung = false;
        }
        self.0.tell();
    }

    // ---- what happened -----------------------------------------------------------------------

    /// Simulated time: nanoseconds since the platform was made.
    pub fn now_ns(&self) -> u64 {
        self.0.state.lock().now_ns
    }

    /// How many operations have ended.
    pub fn ended(&self) -> u64 {
        self.0.state.lock().ended
    }

    /// How often something went wrong.
    pub fn struck(&self) -> Struck {
        self.0.state.lock().struck.clone()
    }

    /// The operations that ended since this was last called, in the order in which they did; the
    /// last 131,072 of them unless told otherwise.
    pub fn take_trace(&self) -> Vec<Traced> {
        self.0.state.lock().trace.take()
    }

    /// Remembers at most `max` operations.
    pub fn limit_trace(&self, max: usize) {
        self.0.state.lock().trace.limit(max);
    }

    /// The last `count` operations, one a line, for people.
    pub fn trace_tail(&self, count: usize) -> String {
        self.0.state.lock().trace.tail(count)
    }

    /// Keeps everything that happens from now on, bytes included.
    pub fn record(&self) {
        self.0.state.lock().recording = Some(Vec::new());
    }

    /// Adds a mark of the test's own to what is kept.
    pub fn mark(&self, words: &'static str) {
        self.0.state.lock().record(|| Event::Mark(words));
    }

    /// What was kept; nothing is kept from now on.
    pub fn take_recording(&self) -> Vec<Event> {
        let mut state = self.0.state.lock();
        state.recording.take().unwrap_or_default()
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
        state.openers += 1;
        let (opener, is_off) = (state.openers, state.is_off);
        let media = state.media(number);
        if is_off || media.is_gone {
            return Err(refused(ErrorKind::Gone, "the device is gone"));
        }
        let opened = media.locks.open(opener, options);
        opened.map_err(|error| error.with_path(path))?;
        Ok(Arc::new(SimDevice {
            world: Arc::clone(&self.0),
            path: path.to_path_buf(),
            number,
            opener,
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

    fn scheduler(&self) -> Option<Arc<dyn Scheduler>> {
        let (scheduler, _) = self.0.scheduler.as_ref()?;
        Some(Arc::clone(scheduler) as Arc<dyn Scheduler>)
    }
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
