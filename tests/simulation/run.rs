//! [`run`]: one scenario from its creation to its end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use swath_checkpoint::retention::{Candidate, Retention};
use swath_checkpoint::{
    CheckpointInfo, Error, ErrorKind, FormatOptions, Result, Store, StoreOptions, Uuid,
    VerifyOptions,
};
use swath_engine::{HandleOptions, LaneOptions, threads};
use swath_tests::sim::{self, FaultClass, PowerCut, SimPlatform, SimScheduler, Steps, Struck};
use swath_volume::{CreateOptions, OpenOptions, Volume};

use super::client::{Client, content_of};
use super::content::How;
use super::model::{Fate, Model};
use super::scenario::{Cut, Life, Scenario};

/// How often an open is tried while faults are about.
const ATTEMPTS: u32 = 4;

/// How much of what happened is printed.
const LINES: usize = 400;
const OPERATIONS: usize = 80;

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) steps: Steps,
    pub(crate) operations: u64,
    pub(crate) now_ns: u64,
    pub(crate) crashes: u64,
    pub(crate) opens: u64,
    pub(crate) struck: Struck,
    /// How often what ended how.
    pub(crate) ends: BTreeMap<String, u64>,
    /// Whether it ended early: what was lost unseen cannot be opened any more.
    pub(crate) is_lost: bool,
}

/// Why a run failed, and what led to it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) story: String,
}

/// What the clients of a run share.
pub(crate) struct Ground {
    scenario: Scenario,
    /// The platform since the last crash, and the one before.
    platform: Mutex<(SimPlatform, Option<SimPlatform>)>,
    model: Mutex<Model>,
    log: Mutex<Vec<String>>,
    volume_names: Mutex<BTreeSet<String>>,
    /// Saves in the background whose handle is gone.
    unheard: Mutex<Vec<(u64, u64)>>,
    /// Whether something was lost unseen, ever.
    is_damaged: Mutex<bool>,
    /// Whether the kernel refused a queue since the last crash.
    has_refused: AtomicBool,
    /// Whether a write of another process failed: its owner does not hear of it, and goes on.
    has_failed_guest: AtomicBool,
    totals: Mutex<Totals>,
}

/// What platforms before the last crash came to.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    operations: u64,
    pub(crate) crashes: u64,
    pub(crate) opens: u64,
    pub(crate) ends: BTreeMap<String, u64>,
    struck: Struck,
}

impl Totals {
    /// A platform has come to its end.
    pub(crate) fn add(&mut self, platform: &SimPlatform) {
        self.operations += platform.ended();
        self.struck.merge(&platform.struck());
    }

    pub(crate) fn outcome(
        &self,
        scheduler: &SimScheduler,
        platform: &SimPlatform,
        is_lost: bool,
    ) -> Outcome {
        Outcome {
            steps: scheduler.steps(),
            operations: self.operations,
            now_ns: platform.now_ns(),
            crashes: self.crashes,
            opens: self.opens,
            struck: self.struck.clone(),
            ends: self.ends.clone(),
            is_lost,
        }
    }
}

impl Ground {
    pub(crate) fn platform(&self) -> SimPlatform {
        self.platform.lock().0.clone()
    }

    pub(crate) fn paths(&self) -> &[PathBuf] {
        // Made once: a path for each device.
        &self.scenario.paths
    }

    pub(crate) fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock()
    }

    pub(crate) fn volume_names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.volume_names.lock()
    }

    pub(crate) fn unheard(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.unheard.lock()
    }

    pub(crate) fn count(&self, what: String) {
        *self.totals.lock().ends.entry(what).or_default() += 1;
    }

    pub(crate) fn refuse_visits(&self, count: u32) {
        self.has_refused.store(count > 0, Ordering::Relaxed);
        self.platform().refuse_visits(count);
    }

    pub(crate) fn has_failed_guest(&self) {
        self.has_failed_guest.store(true, Ordering::Relaxed);
    }

    pub(crate) fn note(&self, line: impl std::fmt::Display) {
        let now_us = self.platform().now_ns() / 1000;
        self.log.lock().push(format!("{now_us:>9} us  {line}"));
    }

    /// Whether something has gone wrong that may be told, or was lost unseen.
    pub(crate) fn is_platform_troubled(&self) -> bool {
        let platform = self.platform();
        let struck = platform.struck();
        platform.is_off()
            || self.has_refused.load(Ordering::Relaxed)
            || *self.is_damaged.lock()
            || struck.count(FaultClass::Failing) + struck.count(FaultClass::Silent) > 0
    }

    /// The power has failed: what is there afterwards.
    fn restart(&self, how: PowerCut) {
        let before = self.platform();
        let after = before.take_after().unwrap_or_else(|| match how {
            PowerCut::Power => before.crash(),
            PowerCut::Process => before.crash_keeping(|sector| sector.operation.is_none()),
        });
        self.note_end_of(&before);
        self.totals.lock().crashes += 1;
        self.has_refused.store(false, Ordering::Relaxed);
        *self.platform.lock() = (after, Some(before));
        self.note("---- the devices are back ----");
    }

    fn note_end_of(&self, platform: &SimPlatform) {
        let struck = platform.struck();
        if struck.count(FaultClass::Silent) > 0 {
            *self.is_damaged.lock() = true;
        }
        self.totals.lock().add(platform);
    }

    fn story(&self) -> String {
        let (now, before) = &*self.platform.lock();
        story(&self.scenario, &self.log.lock(), now, before.as_ref())
    }
}

/// What led to a failure, for people.
pub(crate) fn story(
    scenario: &dyn std::fmt::Display,
    log: &[String],
    now: &SimPlatform,
    before: Option<&SimPlatform>,
) -> String {
    let mut story = scenario.to_string();
    let _ = writeln!(story, "what happened:");
    for line in log.iter().skip(log.len().saturating_sub(LINES)) {
        let _ = writeln!(story, "  {line}");
    }
    if let Some(before) = before {
        let _ = writeln!(story, "the last operations before the crash:");
        story.push_str(&before.trace_tail(OPERATIONS / 2));
    }
    let _ = writeln!(story, "the last operations:");
    story.push_str(&now.trace_tail(OPERATIONS));
    story
}

/// Runs `work` on threads of the scheduler. A panic of it is the error.
pub(crate) fn guarded<T: Send + 'static>(
    scheduler: &Arc<SimScheduler>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(|| scheduler.run(work))).map_err(|panic| message_of(&*panic))
}

/// Runs a scenario.
///
/// # Errors
///
/// Something broke its promise.
pub(crate) fn run(scenario: &Scenario) -> Result<Outcome, Box<Failure>> {
    let scheduler = SimScheduler::new(scenario.chance);
    let platform = SimPlatform::scheduled(scenario.chance, Some(Arc::clone(&scheduler)));
    for ((path, geometry), tear_bytes) in scenario.devices.iter().zip(&scenario.tear_bytes) {
        platform.add(path, geometry.clone(), sim::Store::sparse());
        platform.tear_at(path, *tear_bytes);
    }
    let ground = Arc::new(Ground {
        scenario: scenario.clone(),
        platform: Mutex::new((platform, None)),
        model: Mutex::default(),
        log: Mutex::default(),
        volume_names: Mutex::new(BTreeSet::from(["first".to_owned()])),
        unheard: Mutex::default(),
        is_damaged: Mutex::new(false),
        has_refused: AtomicBool::new(false),
        has_failed_guest: AtomicBool::new(false),
        totals: Mutex::default(),
    });
    let inner = Arc::clone(&ground);
    match guarded(&scheduler, move || Main(inner).run()) {
        Ok(is_lost) => {
            let platform = ground.platform();
            ground.note_end_of(&platform);
            let totals = ground.totals.lock();
            Ok(totals.outcome(&scheduler, &platform, is_lost))
        }
        Err(message) => Err(Box::new(Failure {
            message,
            story: ground.story(),
        })),
    }
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_owned())
}

/// The thread that opens, waits for the clients, looks, and crashes.
struct Main(Arc<Ground>);

impl Main {
    /// Whether it ended early, since what was lost unseen cannot be opened any more.
    fn run(&self) -> bool {
        let ground = &*self.0;
        let scenario = &ground.scenario;
        let Some(store) = self.create() else {
            return true;
        };
        drop(store);
        for (number, life) in scenario.lives.iter().enumerate() {
            ground.note(format_args!("==== life {number} ===="));
            ground.refuse_visits(0);
            for fault in &life.faults {
                ground.platform().inject(fault.clone());
            }
            let Some(store) = self.open(life) else {
                return true;
            };
            self.live(life, number as u64, store);
        }
        self.end()
    }

    fn store_options(&self) -> StoreOptions {
        let scenario = &self.0.scenario;
        StoreOptions {
            lane: LaneOptions::default(),
            pool_bytes: scenario.pool_bytes,
            depth: scenario.depth,
        }
    }

    fn handle_options() -> HandleOptions {
        HandleOptions {
            workers: 1,
            backlog: 2,
            ..HandleOptions::default()
        }
    }

    /// Makes the volume and the store, over and over until it is there. None: what was lost unseen
    /// is in the way.
    fn create(&self) -> Option<Store> {
        let ground = &*self.0;
        let mut cuts = ground.scenario.creation.iter();
        loop {
            if let Some(cut) = cuts.next() {
                ground.platform().cut_power_after(cut.after, cut.how);
            }
            let made = self.try_create();
            if ground.platform().is_off() {
                drop(made);
                ground.restart(PowerCut::Power);
                continue;
            }
            return Some(made.unwrap_or_else(|error| panic!("cannot be created: {error:?}")));
        }
    }

    fn try_create(&self) -> Result<Store> {
        let ground = &*self.0;
        let seed = ground.scenario.seed;
        let options = CreateOptions {
            name: "first".to_owned(),
            chunk_bytes: ground.scenario.chunk_bytes,
            // What a crash left of the last attempt.
            force: true,
            uuid: Uuid::from_u128(u128::from(seed) << 64 | 1),
            created_unix_s: 1,
            handle: Self::handle_options(),
        };
        let platform = Arc::new(ground.platform());
        let volume = Volume::create_on(platform, ground.paths(), &options)?;
        let options = FormatOptions {
            force: false,
            store_uuid: Uuid::from_u128(u128::from(seed) << 64 | 2),
            store: self.store_options(),
        };
        Store::format(volume, &options)
    }

    fn try_open(&self, order: &[usize], read_only: bool) -> Result<Store> {
        let ground = &*self.0;
        let options = OpenOptions {
            read_only,
            handle: Self::handle_options(),
            ..OpenOptions::default()
        };
        let paths: Vec<_> = order.iter().map(|&place| &ground.paths()[place]).collect();
        let volume = Volume::open_on(Arc::new(ground.platform()), &paths, &options)?;
        ground.totals.lock().opens += 1;
        Store::open(volume, &self.store_options())
    }

    /// Opens the store for a life; crashes meanwhile. None: it cannot be opened any more, and there
    /// is a reason.
    fn open(&self, life: &Life) -> Option<Store> {
        let ground = &*self.0;
        if life.looks_first {
            match self.try_open(&life.order, true) {
                Ok(store) => {
                    self.look(&store, true);
                    let error = store.remove(0).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error:?}");
                }
                Err(error) => {
                    ground.note(format_args!("opened for reading only: {error:?}"));
                    assert!(
                        ground.is_platform_troubled(),
                        "cannot be opened to read: {error:?}"
                    );
                }
            }
        }
        self.open_through(&life.order, &life.recovery)
    }

    fn open_through(&self, order: &[usize], cuts: &[Cut]) -> Option<Store> {
        let ground = &*self.0;
        let mut cuts = cuts.iter();
        let mut attempts = 0;
        loop {
            if let Some(cut) = cuts.next() {
                ground.platform().cut_power_after(cut.after, cut.how);
            }
            let opened = self.try_open(order, false);
            let platform = ground.platform();
            if platform.is_off() {
                ground.note("opened, and the power failed");
                drop(opened);
                ground.restart(PowerCut::Power);
                continue;
            }
            let error = match opened {
                Ok(store) => {
                    self.look(&store, false);
                    return Some(store);
                }
                Err(error) => error,
            };
            ground.note(format_args!("cannot be opened: {error:?}"));
            let chain = std::iter::successors(Some(&error as &dyn std::error::Error), |error| {
                error.source()
            });
            for cause in chain {
                ground.note(format_args!("  {cause}"));
            }
            assert!(ground.is_platform_troubled(), "cannot be opened: {error:?}");
            attempts += 1;
            if attempts == ATTEMPTS / 2 {
                // Whatever was wrong with the devices is over, and those that were gone are back.
                platform.heal();
                ground.restart(PowerCut::Process);
            }
            if attempts >= ATTEMPTS {
                let is_lost = *ground.is_damaged.lock();
                assert!(
                    is_lost,
                    "cannot be opened, though all is well now: {error:?}"
                );
                return None;
            }
        }
    }

    /// What a store that was just opened shows, against the model.
    fn look(&self, store: &Store, read_only: bool) {
        let ground = &*self.0;
        // Anything that was may be back when something was lost unseen.
        let is_lax =
            *ground.is_damaged.lock() || ground.platform().struck().count(FaultClass::Silent) > 0;
        let shown = shown(&store.list());
        ground.note(format_args!("opened: {shown:?}"));
        // What only reads makes nothing durable: a commit in doubt may be shown and be gone later.
        let observed = ground.model().observe(&shown, is_lax, !read_only);
        observed.unwrap_or_else(|problem| panic!("after it was opened: {problem}"));
        let name = store.volume().name();
        assert!(
            ground.volume_names().contains(&name),
            "the volume is called {name}"
        );
        let space = store.space();
        assert_eq!((space.held_bytes, space.session_bytes), (0, 0), "{space:?}");
        Self::check_space(store);
        let report = store.verify(&VerifyOptions { deep: true }, &mut |_| true);
        match report {
            Ok(report) if report.is_clean() => {}
            other => {
                ground.note(format_args!("verified: {other:?}"));
                assert!(ground.is_troubled(store), "after it was opened: {other:?}");
            }
        }
        assert!(read_only || !store.volume().is_read_only());
    }

    /// The parts of the space add up.
    fn check_space(store: &Store) {
        let space = store.space();
        let list = store.list();
        let occupied: u64 = list.iter().map(|info| info.occupied_bytes).sum();
        assert_eq!(space.checkpoint_bytes, occupied, "{space:?}");
        let parts = occupied
            + space.catalog_bytes
            + space.held_bytes
            + space.session_bytes
            + space.free_bytes;
        assert_eq!(parts, space.capacity_bytes, "{space:?}");
    }

    /// The clients, and the end.
    fn live(&self, life: &Life, number: u64, store: Store) {
        let ground = &*self.0;
        let platform = ground.platform();
        let failed_before = platform.struck().count_changing();
        if let Some(cut) = life.cut {
            platform.cut_power_after(cut.after, cut.how);
        }
        let clients: Vec<_> = (0..)
            .zip(&life.clients)
            .map(|(client, acts)| {
                let name = format!("client {client}");
                let seed = ground.scenario.chance ^ (number * 10 + client);
                let ground = Arc::clone(&self.0);
                let client = Client::new(ground, store.clone(), name.clone(), seed);
                let acts = acts.clone();
                threads::spawn(&platform, &name, move || client.run(&acts)).unwrap()
            })
            .collect();
        let ends: Vec<_> = clients.into_iter().map(threads::Thread::join).collect();
        for end in ends {
            end.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        if let Err(error) = store.finish_saves() {
            let expected = [ErrorKind::NoSpace, ErrorKind::AlreadyExists];
            ground.tolerate(
                &store,
                "the saves that nobody waited for",
                &error,
                &expected,
            );
        }
        for (step, content) in std::mem::take(&mut *ground.unheard()) {
            ground.model().end(step, Some(content), Fate::Unknown);
        }
        let is_poisoned = store.volume().poisoned().is_some();
        if !platform.is_off() {
            let has_failed = platform.struck().count_changing() > failed_before;
            let is_told = ground.has_failed_guest.swap(false, Ordering::Relaxed);
            assert!(
                is_poisoned || is_told || !has_failed,
                "a write failed, and all went on"
            );
            if !is_poisoned {
                self.rest(life, &store);
            }
        }
        match life.cut {
            Some(cut) => {
                ground.note(cut);
                // The end came before so many operations, with the store still open.
                ground.restart(cut.how);
                drop(store);
            }
            None => {
                let closed = store.volume().clone().close().map_err(Error::from);
                ground.note(format_args!("closed: {closed:?}"));
                if let Err(error) = closed {
                    ground.tolerate(&store, "closed", &error, &[]);
                }
                drop(store);
            }
        }
    }

    /// All is well, and nobody does anything: what there is can be told.
    fn rest(&self, life: &Life, store: &Store) {
        let ground = &*self.0;
        let shown_now = shown(&store.list());
        ground.note(format_args!("at rest: {shown_now:?}, {:?}", store.space()));
        let observed = ground.model().observe(&shown_now, false, true);
        observed.unwrap_or_else(|problem| panic!("at rest: {problem}"));
        assert_eq!(store.space().session_bytes, 0, "{:?}", store.space());
        Self::check_space(store);
        let Some(keep_last) = life.retain else { return };
        let policy = Retention {
            keep_last: Some(keep_last),
            keep_every: None,
        };
        let list = store.list();
        let candidates: Vec<_> = list
            .iter()
            .map(|info| Candidate {
                name: info.name.clone(),
                pinned: info.pinned,
                damaged: false,
            })
            .collect();
        let steps: Vec<_> = shown_now.keys().copied().collect();
        for &step in &steps {
            ground.model().begin(step, None, None);
        }
        let retained = store.retain(&policy);
        ground.note(format_args!("retained: {retained:?}"));
        let is_in_doubt = ground.platform().is_off() || store.volume().poisoned().is_some();
        let removed = match &retained {
            Ok(removed) => removed.iter().filter_map(|info| info.name.step()).collect(),
            Err(error) => {
                ground.tolerate(store, "retain", error, &[ErrorKind::NoSpace]);
                Vec::new()
            }
        };
        if retained.is_ok() && !ground.is_troubled(store) {
            let wanted = policy.to_remove(&candidates).unwrap();
            let wanted: Vec<_> = wanted
                .into_iter()
                .filter_map(|place| candidates[place].name.step())
                .collect();
            assert_eq!(removed, wanted, "of {candidates:?}");
        }
        for step in steps {
            let fate = match &retained {
                Ok(_) if removed.contains(&step) => Fate::Done,
                Err(_) if is_in_doubt => Fate::Unknown,
                _ => Fate::NotDone,
            };
            ground.model().end(step, None, fate);
        }
    }

    /// Everything is read once more; then everything is removed, and all space is free again.
    fn end(&self) -> bool {
        let ground = &*self.0;
        ground.note("==== the end ====");
        ground.platform().heal();
        let order: Vec<_> = (0..ground.paths().len()).collect();
        let Some(store) = self.open_through(&order, &[]) else {
            return true;
        };
        let mut rng = ChaCha8Rng::seed_from_u64(ground.scenario.chance);
        for info in store.list() {
            let content = ground.model().content(content_of(&info)).unwrap();
            let checked = store.get(info.name.clone()).and_then(|checkpoint| {
                content.check(&checkpoint, How::Whole { is_aligned: true }, &mut rng)?;
                content.check(&checkpoint, How::Ranges, &mut rng)
            });
            if let Err(error) = checked {
                ground.note(format_args!("read at the end: {error:?}"));
                ground.tolerate(&store, "the end", &error, &[]);
            }
        }
        let has_all = store
            .list()
            .into_iter()
            .try_for_each(|info| store.remove(info.name).map(drop));
        drop(store);
        if let Err(error) = has_all {
            assert_eq!(
                error.kind(),
                ErrorKind::NoSpace,
                "cannot be removed: {error:?}"
            );
            return false;
        }
        let store = self.try_open(&order, false);
        let store = store.unwrap_or_else(|error| panic!("cannot be opened again: {error:?}"));
        let space = store.space();
        assert_eq!(
            space.free_bytes,
            space.capacity_bytes - space.catalog_bytes,
            "{space:?}"
        );
        false
    }
}

fn shown(list: &[CheckpointInfo]) -> BTreeMap<u64, u64> {
    let shown: BTreeMap<_, _> = list
        .iter()
        .map(|info| (info.name.step().expect("a step"), content_of(info)))
        .collect();
    assert_eq!(shown.len(), list.len(), "two of one name: {list:?}");
    shown
}
