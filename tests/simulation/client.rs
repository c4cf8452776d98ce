//! [`Client`]: one thread that uses the store, and holds it to its word.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use swath_checkpoint::{
    AsyncOptions, BeginOptions, Checkpoint, CheckpointInfo, Error, ErrorKind, Lease, Receipt,
    Result, SaveHandle, Store, StoreOptions, TensorView, VerifyOptions, WhenBusy, Writer,
};
use swath_engine::threads;
use swath_volume::{OpenOptions, Volume};

use super::content::{Content, How, Memory, is_located};
use super::model::{Allowed, Fate};
use super::run::Ground;
use super::scenario::{Act, By, Then};

pub(crate) struct Client {
    pub(crate) ground: Arc<Ground>,
    pub(crate) store: Store,
    pub(crate) name: String,
    rng: ChaCha8Rng,
    held: Vec<(Checkpoint, Arc<Content>)>,
    saves: Vec<Save>,
}

/// A save in the background that nobody has waited for.
struct Save {
    handle: SaveHandle,
    step: u64,
    content: u64,
}

impl Client {
    pub(crate) fn new(ground: Arc<Ground>, store: Store, name: String, seed: u64) -> Self {
        Self {
            ground,
            store,
            name,
            rng: ChaCha8Rng::seed_from_u64(seed),
            held: Vec::new(),
            saves: Vec::new(),
        }
    }

    pub(crate) fn run(mut self, acts: &[Act]) {
        for act in acts {
            self.note(act, "begins");
            self.take(act);
        }
        for save in std::mem::take(&mut self.saves) {
            self.hear(&save);
        }
        for (checkpoint, content) in std::mem::take(&mut self.held) {
            let how = How::Whole { is_aligned: true };
            let read = content.check(&checkpoint, how, &mut self.rng);
            self.told(&format!("what was held, {content}"), &read, &[]);
        }
    }

    fn note(&self, what: impl std::fmt::Display, how: &str) {
        self.ground
            .note(format_args!("{}: {what}: {how}", self.name));
    }

    /// Takes note of a result, and makes sure that its error is one that can be.
    fn told<T>(&self, what: &str, result: &Result<T>, expected: &[ErrorKind]) {
        let kind = what.split_whitespace().next().unwrap_or_default();
        let Err(error) = result else {
            self.note(what, "ok");
            self.ground.count(format!("{kind} ok"));
            return;
        };
        self.ground.count(format!("{kind} {:?}", error.kind()));
        self.note(what, &format!("{:?}: {error}", error.kind()));
        self.ground.tolerate(&self.store, what, error, expected);
    }

    /// What became of an operation that changes something.
    fn fate<T>(&self, result: &Result<T>) -> Fate {
        match result {
            Ok(_) => Fate::Done,
            Err(_) if self.is_in_doubt() => Fate::Unknown,
            Err(_) => Fate::NotDone,
        }
    }

    fn is_in_doubt(&self) -> bool {
        self.ground.platform().is_off() || self.store.volume().poisoned().is_some()
    }

    fn allowed(&self, step: u64) -> Allowed {
        self.ground.model().allowed(step)
    }

    fn begin_options(content: &Content, replace: bool) -> BeginOptions {
        BeginOptions {
            metadata: vec![("content".to_owned(), content.id.to_string())],
            replace,
            created_unix_s: Some(content.id),
            ..BeginOptions::default()
        }
    }

    fn take(&mut self, act: &Act) {
        match act {
            Act::Save {
                step,
                content,
                replace,
                by,
            } => {
                let before = self.begin(*step, content);
                let was_poisoned = self.store.volume().poisoned().is_some();
                let saved = self.save(*step, content, *replace, *by);
                assert!(
                    saved.is_err() || !was_poisoned,
                    "saved on a poisoned volume"
                );
                self.saved(*step, content.id, *replace, &before, &saved);
            }
            Act::SaveAsync {
                step,
                content,
                replace,
                queue,
                threads,
                then,
            } => self.save_async(*step, content, *replace, *queue, *threads, *then),
            Act::SaveByLeases {
                step,
                content,
                replace,
                leases,
                has_quitter,
            } => {
                let before = self.begin(*step, content);
                let saved = self.save_by_leases(*step, content, *replace, *leases, *has_quitter);
                self.saved(*step, content.id, *replace, &before, &saved);
            }
            Act::GiveUp { content } => {
                let gave_up = self.give_up(content);
                self.told("gave up", &gave_up, &[ErrorKind::NoSpace]);
            }
            Act::Read { step, how } => {
                if let Some((checkpoint, content)) = self.open(*step) {
                    let read = content.check(&checkpoint, *how, &mut self.rng);
                    self.told(&format!("read {step}, {content}"), &read, &[]);
                }
            }
            Act::Hold { step } => {
                let opened = self.open(*step);
                self.held.extend(opened);
            }
            Act::LetGo => self.held.clear(),
            Act::Remove { step } => self.remove(*step),
            Act::Pin { step, pinned } => {
                let pinned = self.store.set_pinned(*step, *pinned);
                self.told(
                    "pinned",
                    &pinned,
                    &[ErrorKind::NotFound, ErrorKind::NoSpace],
                );
            }
            Act::Verify { deep } => {
                let options = VerifyOptions { deep: *deep };
                let report = self.store.verify(&options, &mut |_| true);
                self.told("verified", &report, &[]);
                if let Ok(report) = report
                    && !report.is_clean()
                {
                    self.note("damages", &format!("{:?}", report.damages));
                    assert!(
                        self.ground.is_troubled(&self.store),
                        "damage where nothing went wrong: {report:?}"
                    );
                }
            }
            Act::List => self.list(),
            Act::Rename { number } => {
                let name = format!("name {number}");
                self.ground.volume_names().insert(name.clone());
                let renamed = self.store.volume().rename(&name).map_err(Error::from);
                self.told("renamed", &renamed, &[]);
            }
            Act::OpenTwice { read_only } => {
                let options = OpenOptions {
                    read_only: *read_only,
                    ..OpenOptions::default()
                };
                let platform = self.ground.platform();
                let again = Volume::open_on(Arc::new(platform), self.ground.paths(), &options);
                let kind = again.err().map(|error| error.kind());
                self.note("opened twice", &format!("{kind:?}"));
                let is_refused = kind == Some(swath_volume::ErrorKind::InUse);
                let can_fail = kind.is_some() && self.ground.is_troubled(&self.store);
                assert!(
                    is_refused || can_fail,
                    "a volume was opened twice: {kind:?}"
                );
            }
            Act::RefuseVisits { count } => self.ground.refuse_visits(*count),
            Act::FinishSaves => {
                let finished = self.store.finish_saves();
                let expected = [ErrorKind::NoSpace, ErrorKind::AlreadyExists];
                self.told("finished saves", &finished, &expected);
            }
        }
    }

    /// A save begins. What the name may be before.
    fn begin(&self, step: u64, content: &Content) -> Allowed {
        let before = self.allowed(step);
        self.ground
            .model()
            .begin(step, Some(content.id), Some(content));
        before
    }

    /// It ended.
    fn saved(
        &self,
        step: u64,
        content: u64,
        replace: bool,
        before: &Allowed,
        saved: &Result<CheckpointInfo>,
    ) {
        let expected: &[ErrorKind] = if replace {
            &[ErrorKind::NoSpace]
        } else {
            &[ErrorKind::NoSpace, ErrorKind::AlreadyExists]
        };
        self.told(&format!("saved {step}, content {content}"), saved, expected);
        let is_alone = self.allowed(step).is_next(before);
        match saved {
            Ok(_) if is_alone && !replace => {
                assert!(!before.is_there(), "{step} was saved where one was already");
            }
            Err(error) if is_alone && error.kind() == ErrorKind::AlreadyExists => {
                assert!(
                    !before.is_absent(),
                    "{step} was refused where there was none"
                );
            }
            _ => {}
        }
        let fate = self.fate(saved);
        self.ground.model().end(step, Some(content), fate);
    }

    fn save(&self, step: u64, content: &Content, replace: bool, by: By) -> Result<CheckpointInfo> {
        let mut options = Self::begin_options(content, replace);
        let memory = content.memory();
        if let By::Threads(threads) = by {
            let names = content.names();
            return self
                .store
                .save(step, options, &views(content, &names, &memory), threads);
        }
        if by == (By::OneWriter { reserve: true }) {
            options.data_bytes = Some(content.total_bytes());
        }
        let session = self.store.begin(step, options)?;
        let mut writer = session.writer()?;
        for ((shape, name), memory) in content.tensors.iter().zip(content.names()).zip(&memory) {
            if by == By::Streams {
                let mut stream = writer.put_stream(&name, shape.dtype, &shape.dimensions)?;
                for piece in memory.bytes().chunks(77_777) {
                    stream.write(piece)?;
                }
                stream.finish()?;
            } else {
                writer.put(&name, shape.dtype, &shape.dimensions, memory.bytes())?;
            }
        }
        writer.finish()?;
        session.commit()
    }

    /// Each process writes a share of the tensors; whoever ends without a receipt is replaced by the
    /// owner.
    fn save_by_leases(
        &self,
        step: u64,
        content: &Content,
        replace: bool,
        leases: usize,
        has_quitter: bool,
    ) -> Result<CheckpointInfo> {
        let session = self
            .store
            .begin(step, Self::begin_options(content, replace))?;
        let mut processes = Vec::new();
        let mut outcome = Ok(());
        for number in 0..leases {
            let places: Vec<_> = (number..content.tensors.len()).step_by(leases).collect();
            let bytes = places
                .iter()
                .map(|&place| content.tensors[place].bytes() as u64 + 4096);
            let lease = match session.lease(bytes.sum::<u64>() + (1 << 20)) {
                Ok(lease) => lease,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            };
            let quits = has_quitter && number == 0;
            let holder = Holder {
                ground: Arc::clone(&self.ground),
                options: self.store.options().clone(),
                content: content.clone(),
                lease: lease.clone(),
                places: places.clone(),
                quits,
            };
            let name = format!("{}'s process {number}", self.name);
            let platform = self.ground.platform();
            let process = threads::spawn(&platform, &name, move || holder.run()).unwrap();
            processes.push((process, lease.lease_id, places));
        }
        let mut left = Vec::new();
        for (process, lease_id, places) in processes {
            let ended = process.join();
            match ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                Ok(Some(receipt)) => outcome = outcome.and(session.accept(receipt)),
                Ok(None) => {
                    left.extend(places);
                    outcome = outcome.and(session.revoke(lease_id));
                }
                Err(error) => {
                    self.note(format_args!("lease {lease_id}"), &format!("{error:?}"));
                    self.ground
                        .tolerate(&self.store, "a lease", &error, &[ErrorKind::NoSpace]);
                    left.extend(places);
                    outcome = outcome.and(session.revoke(lease_id));
                }
            }
        }
        outcome?;
        let mut writer = session.writer()?;
        put(&mut writer, content, &left)?;
        writer.finish()?;
        session.commit()
    }

    fn give_up(&self, content: &Content) -> Result<()> {
        let session = self.store.begin(99, BeginOptions::default())?;
        let mut writer = session.writer()?;
        let memory = content.memory();
        for ((shape, name), memory) in content.tensors.iter().zip(content.names()).zip(&memory) {
            writer.put(&name, shape.dtype, &shape.dimensions, memory.bytes())?;
        }
        drop(writer);
        session.abort();
        Ok(())
    }

    fn save_async(
        &mut self,
        step: u64,
        content: &Content,
        replace: bool,
        queue: bool,
        threads: usize,
        then: Then,
    ) {
        let before = self.begin(step, content);
        let mut memory = content.memory();
        let names = content.names();
        let how = AsyncOptions {
            snapshot_bytes: 0,
            when_busy: if queue {
                WhenBusy::Queue
            } else {
                WhenBusy::Refuse
            },
            threads,
        };
        let started = self.store.save_async(
            step,
            Self::begin_options(content, replace),
            &views(content, &names, &memory),
            &how,
        );
        // What is in the checkpoint must not change with it.
        memory.iter_mut().for_each(Memory::spoil);
        let handle = match started {
            Ok(handle) => handle,
            Err(error) if error.kind() == ErrorKind::Busy => {
                assert!(!queue, "a save that may wait was refused: {error}");
                self.note(format_args!("save {step}"), "busy");
                self.ground
                    .model()
                    .end(step, Some(content.id), Fate::NotDone);
                return;
            }
            Err(error) => {
                self.saved(step, content.id, replace, &before, &Err(error));
                return;
            }
        };
        let save = Save {
            handle,
            step,
            content: content.id,
        };
        match then {
            Then::Wait => self.hear(&save),
            Then::WaitLater => self.saves.push(save),
            Then::Cancel => {
                let is_cancelled = save.handle.cancel();
                self.note(format_args!("cancelled {step}"), &is_cancelled.to_string());
                let outcome = save.handle.wait();
                assert_eq!(is_cancelled, outcome.is_err());
                self.hear(&save);
            }
            Then::Drop => {
                self.note(format_args!("dropped the handle of {step}"), "");
                self.ground.unheard().push((step, content.id));
            }
        }
    }

    /// Waits for a save in the background.
    fn hear(&self, save: &Save) {
        let outcome = save.handle.wait();
        // Whether it was refused or not is for the moment of its commit: nobody knows it.
        let expected = [
            ErrorKind::NoSpace,
            ErrorKind::AlreadyExists,
            ErrorKind::Cancelled,
        ];
        let what = format!(
            "saved {}, content {} in the background",
            save.step, save.content
        );
        self.told(&what, &outcome, &expected);
        let fate = self.fate(&outcome);
        self.ground.model().end(save.step, Some(save.content), fate);
    }

    fn open(&self, step: u64) -> Option<(Checkpoint, Arc<Content>)> {
        let before = self.allowed(step);
        let opened = self.store.get(step);
        let after = self.allowed(step);
        let state = match &opened {
            Ok(checkpoint) => Some(content_of(&checkpoint.info())),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(_) => {
                self.told(&format!("opened {step}"), &opened, &[]);
                return None;
            }
        };
        self.note(format_args!("opened {step}"), &format!("{state:?}"));
        assert!(
            before.admits(&after, state),
            "checkpoint {step} is {state:?}, and may be {before:?}, later {after:?}"
        );
        let content = self.ground.model().content(state?);
        Some((opened.ok()?, content.expect("it was admitted")))
    }

    fn remove(&self, step: u64) {
        let before = self.allowed(step);
        self.ground.model().begin(step, None, None);
        let removed = self.store.remove(step);
        self.told(
            &format!("removed {step}"),
            &removed,
            &[ErrorKind::NotFound, ErrorKind::NoSpace],
        );
        let is_alone = self.allowed(step).is_next(&before);
        match &removed {
            Ok(_) if is_alone => assert!(!before.is_absent(), "{step} was removed from nowhere"),
            Err(error) if is_alone && error.kind() == ErrorKind::NotFound => {
                assert!(!before.is_there(), "{step} was not found, and was there");
            }
            _ => {}
        }
        let fate = self.fate(&removed);
        self.ground.model().end(step, None, fate);
    }

    fn list(&self) {
        let steps: Vec<_> = (0..super::scenario::STEPS)
            .map(|step| (step, self.allowed(step)))
            .collect();
        let list = self.store.list();
        assert!(list.is_sorted_by(|one, two| one.id < two.id), "{list:?}");
        for (step, before) in steps {
            let found = list.iter().find(|info| info.name.step() == Some(step));
            let state = found.map(content_of);
            let after = self.allowed(step);
            assert!(
                before.admits(&after, state),
                "checkpoint {step} is listed as {state:?}, and may be {before:?}, later {after:?}"
            );
        }
        let space = self.store.space();
        self.note("listed", &format!("{} checkpoints, {space:?}", list.len()));
    }
}

/// A process that writes a part of a checkpoint.
struct Holder {
    ground: Arc<Ground>,
    options: StoreOptions,
    content: Content,
    lease: Lease,
    places: Vec<usize>,
    quits: bool,
}

impl Holder {
    /// None: it has ended without a receipt.
    fn run(self) -> Result<Option<Receipt>> {
        let platform = Arc::new(self.ground.platform());
        let holder = self
            .lease
            .open_on(platform, self.ground.paths(), &self.options)?;
        let mut writer = holder.writer()?;
        let written = put(&mut writer, &self.content, &self.places);
        let written = written.and_then(|()| writer.finish());
        if let Err(error) = written {
            // What it wrote to is nobody's, and its owner goes on.
            self.ground.has_failed_guest();
            return Err(error);
        }
        if self.quits {
            return Ok(None);
        }
        let finished = holder.finish().map(Some);
        finished.inspect_err(|_| self.ground.has_failed_guest())
    }
}

fn put(writer: &mut Writer, content: &Content, places: &[usize]) -> Result<()> {
    let (names, memory) = (content.names(), content.memory());
    places.iter().try_for_each(|&place| {
        let shape = &content.tensors[place];
        writer.put(
            &names[place],
            shape.dtype,
            &shape.dimensions,
            memory[place].bytes(),
        )
    })
}

/// The number of the content that a checkpoint says it has.
pub(crate) fn content_of(info: &CheckpointInfo) -> u64 {
    let (_, id) = &info.metadata[0];
    id.parse().expect("a content's number")
}

fn views<'a>(
    content: &'a Content,
    names: &'a [String],
    memory: &'a [Memory],
) -> Vec<TensorView<'a>> {
    (content.tensors.iter().zip(names).zip(memory))
        .map(|((shape, name), memory)| TensorView {
            name,
            dtype: shape.dtype,
            shape: &shape.dimensions,
            bytes: memory.bytes(),
        })
        .collect()
}

impl Ground {
    /// Makes sure that an error is one that was asked for, or has a reason.
    #[track_caller]
    pub(crate) fn tolerate(
        &self,
        store: &Store,
        what: &str,
        error: &Error,
        expected: &[ErrorKind],
    ) {
        assert!(
            is_located(error),
            "{what}: damage without a place: {error:?}"
        );
        if !expected.contains(&error.kind()) {
            assert!(self.is_troubled(store), "{what}: {error:?}");
        }
    }

    /// Whether something has gone wrong that may be told.
    pub(crate) fn is_troubled(&self, store: &Store) -> bool {
        self.is_platform_troubled() || store.volume().poisoned().is_some()
    }
}
