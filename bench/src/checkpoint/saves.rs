//! Saves and loads of a model, by as many threads as it has ranks, each with a writer or a reader
//! of its own, as a training job would.

use std::thread;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use swath_checkpoint::{
    AsyncOptions, BeginOptions, Checkpoint, FormatOptions, ReadOptions, Store, StoreOptions,
    TensorTarget, TensorView, Writer,
};
use swath_volume::Volume;

use crate::checkpoint::memory::{Batch, MEMORY_BYTES_DEFAULT, Memory, Pages, Source, batches};
use crate::checkpoint::ranks::RankProgram;
use crate::checkpoint::shapes::Model;
use crate::checkpoint::usage::{Sample, measure};
use crate::error::{Error, ErrorKind, Result};
use crate::interrupt::Interrupt;

/// How a model is saved and loaded.
#[derive(Debug, Clone)]
pub struct SaveSettings {
    /// How the store works.
    pub store: StoreOptions,
    /// Threads, or processes.
    pub ranks: usize,
    /// What ranks are that are processes; none: they are threads.
    pub processes: Option<RankProgram>,
    /// What `save_async` copies tensors into, in bytes.
    pub snapshot_bytes: u64,
    /// Where in memory tensors lie: what their pages are.
    pub pages: Pages,
    /// The most memory that all ranks together save from, and that they load into, unless one tensor
    /// is larger.
    pub memory_bytes: u64,
    /// What stops a run early.
    pub interrupt: Interrupt,
}

/// How many tensors a rank puts at once: it looks for an interrupt in between.
const PUT_AT_ONCE: usize = 64;

impl SaveSettings {
    /// One thread, a snapshot of 256 MiB, memory of huge pages.
    pub fn new(interrupt: Interrupt) -> Self {
        Self {
            store: StoreOptions::default(),
            ranks: 1,
            processes: None,
            snapshot_bytes: 256 << 20,
            pages: Pages::default(),
            memory_bytes: MEMORY_BYTES_DEFAULT,
            interrupt,
        }
    }
}

/// Saves and loads one model.
pub(crate) struct Saver<'a> {
    model: &'a Model,
    source: &'a Source,
    settings: &'a SaveSettings,
    /// What each rank has, in order.
    ranks: Vec<Vec<usize>>,
    /// What each rank loads at once.
    plans: Vec<Vec<Batch>>,
    /// What each rank loads into.
    targets: Vec<Memory>,
}

/// What a save was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Saved {
    pub(crate) sample: Sample,
    /// From the call of commit to its return.
    pub(crate) commit_ns: u64,
    /// How often a buffer was used, each time a copy of up to 1 MiB.
    pub(crate) buffers_used: u64,
}

/// How to load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Loading {
    /// Verified, into memory that is there.
    Verified,
    /// Without a look at the checksums.
    Trusted,
    /// Verified, into memory that is got for it, batch by batch.
    New,
    /// Verified, and every byte compared with what was saved.
    Compared,
}

impl<'a> Saver<'a> {
    pub(crate) fn new(
        model: &'a Model,
        source: &'a Source,
        settings: &'a SaveSettings,
    ) -> Result<Self> {
        let ranks: Vec<Vec<usize>> = model
            .ranks(settings.ranks)
            .into_iter()
            .filter(|rank| !rank.is_empty())
            .collect();
        let room_bytes = settings.memory_bytes / ranks.len().max(1) as u64;
        let mut plans = Vec::with_capacity(ranks.len());
        let mut targets = Vec::with_capacity(ranks.len());
        for rank in &ranks {
            let (plan, bytes) = batches(model, rank, room_bytes);
            plans.push(plan);
            targets.push(Memory::new(bytes, settings.pages)?);
        }
        Ok(Self {
            model,
            source,
            settings,
            ranks,
            plans,
            targets,
        })
    }

    /// How much memory loads go into.
    pub(crate) fn target_bytes(&self) -> u64 {
        let lengths = self
            .targets
            .iter()
            .map(|memory| memory.bytes().len() as u64);
        lengths.sum()
    }

    /// The memory that each rank saves from, to write the bare volume from: not one at the same
    /// place as another.
    pub(crate) fn sources(&self) -> Vec<&'a [u8]> {
        let bytes = self.source.bytes();
        let unit = 1 << 20;
        let count = self.ranks.len();
        let skip = |rank: usize| bytes.len() / unit * rank / count * unit;
        (0..count).map(|rank| &bytes[skip(rank)..]).collect()
    }

    /// The memory that each rank loads into.
    pub(crate) fn targets_mut(&mut self) -> Vec<&mut [u8]> {
        self.targets.iter_mut().map(Memory::bytes_mut).collect()
    }

    /// An empty store on a volume, whatever was there.
    pub(crate) fn format(&self, volume: &Volume) -> Result<Store> {
        let options = FormatOptions {
            force: true,
            store: self.settings.store.clone(),
            ..FormatOptions::default()
        };
        Store::format(volume.clone(), &options)
            .map_err(|cause| Error::failed("cannot make a store", cause))
    }

    /// The store that is on a volume.
    pub(crate) fn open(&self, volume: &Volume) -> Result<Store> {
        Store::open(volume.clone(), &self.settings.store)
            .map_err(|cause| Error::failed("cannot open the store", cause))
    }

    /// Saves the model as a step, from `begin` to the return of `commit`.
    pub(crate) fn save(&self, store: &Store, step: u64) -> Result<Saved> {
        let (sample, (commit_ns, buffers_used)) = measure(self.model.total_bytes(), || {
            let begin = BeginOptions {
                data_bytes: Some(self.model.total_bytes()),
                ..BeginOptions::default()
            };
            let session = store.begin(step, begin).map_err(cannot_save)?;
            let buffers_used = self.put_all(&|| session.writer())?;
            let began = Instant::now();
            session.commit().map_err(cannot_save)?;
            let commit_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            Ok((commit_ns, buffers_used))
        })?;
        Ok(Saved {
            sample,
            commit_ns,
            buffers_used,
        })
    }

    /// Saves the model as a step in the background, and waits for it. Tells how long the caller was
    /// kept, in nanoseconds.
    pub(crate) fn save_async(&self, store: &Store, step: u64) -> Result<(Sample, u64)> {
        let views: Vec<_> = (0..self.model.tensors().len())
            .map(|place| self.view(place))
            .collect();
        let how = AsyncOptions {
            snapshot_bytes: self.settings.snapshot_bytes,
            threads: self.ranks.len(),
            ..AsyncOptions::default()
        };
        measure(self.model.total_bytes(), || {
            let began = Instant::now();
            let handle = store
                .save_async(step, BeginOptions::default(), &views, &how)
                .map_err(cannot_save)?;
            let stall_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            handle.wait().map_err(cannot_save)?;
            Ok(stall_ns)
        })
    }

    /// A tensor, as it is saved.
    fn view(&self, place: usize) -> TensorView<'_> {
        let tensor = &self.model.tensors()[place];
        TensorView {
            name: &tensor.name,
            dtype: tensor.dtype,
            shape: &tensor.shape,
            bytes: self.source.tensor(place),
        }
    }

    /// Puts all tensors, each rank's by a writer of its own; tells how often they used a buffer.
    pub(crate) fn put_all(
        &self,
        writer: &(dyn Fn() -> swath_checkpoint::Result<Writer> + Sync),
    ) -> Result<u64> {
        let used = on_threads(self.ranks.iter().map(|rank| {
            move || {
                let mut writer = writer().map_err(cannot_save)?;
                for places in rank.chunks(PUT_AT_ONCE) {
                    self.settings.interrupt.check()?;
                    let views: Vec<_> = places.iter().map(|&place| self.view(place)).collect();
                    writer.put_many(&views).map_err(cannot_save)?;
                }
                let used = writer.buffers_used();
                writer.finish().map_err(cannot_save)?;
                Ok(used)
            }
        }))?;
        Ok(used.into_iter().sum())
    }

    /// Loads a step: from looking it up to the last byte in memory.
    pub(crate) fn load(&mut self, store: &Store, step: u64, loading: Loading) -> Result<Sample> {
        let bytes = self.model.total_bytes();
        let (sample, ()) = measure(bytes, || {
            let checkpoint = store.get(step).map_err(cannot_load)?;
            let shares = self.plans.iter().zip(&mut self.targets);
            let (model, source, settings) = (self.model, self.source, self.settings);
            on_threads(shares.map(|(plan, target)| {
                let checkpoint = &checkpoint;
                move || {
                    let loader = Loader {
                        model,
                        source,
                        settings,
                        loading,
                    };
                    loader.load(checkpoint, plan, target)
                }
            }))?;
            Ok(())
        })?;
        Ok(sample)
    }
}

struct Loader<'a> {
    model: &'a Model,
    source: &'a Source,
    settings: &'a SaveSettings,
    loading: Loading,
}

impl Loader<'_> {
    fn load(&self, checkpoint: &Checkpoint, plan: &[Batch], target: &mut Memory) -> Result<()> {
        let options = ReadOptions {
            trust: self.loading == Loading::Trusted,
        };
        let mut reader = checkpoint.reader(options).map_err(cannot_load)?;
        for batch in plan {
            self.settings.interrupt.check()?;
            let mut new = None;
            let target = match self.loading {
                Loading::New => {
                    let end = batch.tensors.last().map_or(0, |(_, range)| range.end);
                    new.insert(Memory::new(end as u64, self.settings.pages)?)
                }
                _ => &mut *target,
            };
            let targets = self.targets(batch, target.bytes_mut());
            reader.read_many(targets).map_err(cannot_load)?;
            if self.loading == Loading::Compared {
                self.compare(batch, target.bytes())?;
            }
        }
        Ok(())
    }

    /// The memory of each tensor of a batch.
    fn targets<'m>(&'m self, batch: &Batch, memory: &'m mut [u8]) -> Vec<TensorTarget<'m>> {
        let mut rest = memory;
        let mut end = 0;
        let mut targets = Vec::with_capacity(batch.tensors.len());
        for (place, range) in &batch.tensors {
            let (_, behind) = rest.split_at_mut(range.start - end);
            let (now, later) = behind.split_at_mut(range.len());
            targets.push(TensorTarget {
                name: &self.model.tensors()[*place].name,
                memory: now,
            });
            rest = later;
            end = range.end;
        }
        targets
    }

    fn compare(&self, batch: &Batch, memory: &[u8]) -> Result<()> {
        for (place, range) in &batch.tensors {
            if memory[range.clone()] != *self.source.tensor(*place) {
                return Err(Error::new(
                    ErrorKind::Failed,
                    format!(
                        "tensor {} is not what was saved: every figure of this run is void",
                        self.model.tensors()[*place].name
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// Does all of `works` at once, each on a thread of its own; the first error of any.
fn on_threads<T: Send, W: FnOnce() -> Result<T> + Send>(
    works: impl Iterator<Item = W>,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let threads: Vec<_> = works.map(|work| scope.spawn(work)).collect();
        let outcomes: Vec<Result<T>> = threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect();
        outcomes.into_iter().collect()
    })
}

pub(crate) fn cannot_save(cause: swath_checkpoint::Error) -> Error {
    with_kind("cannot save the checkpoint", cause)
}

fn cannot_load(cause: swath_checkpoint::Error) -> Error {
    with_kind("cannot load the checkpoint", cause)
}

fn with_kind(message: &str, cause: swath_checkpoint::Error) -> Error {
    let kind = match cause.kind() {
        swath_checkpoint::ErrorKind::NoSpace => ErrorKind::NoSpace,
        _ => ErrorKind::Failed,
    };
    Error::new(kind, message).with_source(cause)
}
