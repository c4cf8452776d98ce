//! [`Checkpoint`]: a committed checkpoint, open to be read.

use std::fmt;
use std::sync::Arc;

use swath_volume::Volume;

use crate::blob::usize_of;
use crate::catalog::CheckpointEntry;
use crate::error::{DevicePlace, Error, ErrorKind, Result};
use crate::extent::Run;
use crate::index::{Index, TensorEntry};
use crate::reader::Reader;
use crate::shares::{on_threads, shares};
use crate::store::{CheckpointInfo, Store};

/// How to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Whether what is read is believed without its checksums. Default: no. Parts of a tensor are
    /// read faster then, since only what is wanted is read, and damage goes unseen.
    pub trust: bool,
}

/// A committed checkpoint, open to be read. Clones share it. While one is there, the checkpoint's
/// space is not used again, even when it is removed meanwhile.
#[derive(Clone)]
pub struct Checkpoint {
    pub(crate) store: Store,
    pub(crate) entry: Arc<CheckpointEntry>,
    pub(crate) index: Arc<Index>,
}

/// A tensor and the memory it is read into.
#[derive(Debug)]
pub struct TensorTarget<'a> {
    /// Which tensor.
    pub name: &'a str,
    /// As many bytes as it has.
    pub memory: &'a mut [u8],
}

impl Checkpoint {
    pub(crate) fn open(store: Store, entry: Arc<CheckpointEntry>) -> Result<Self> {
        let named = |error: Error| error.with_checkpoint(&entry.name);
        let bytes = store.read_blob(&entry.index).map_err(named)?;
        let index = Index::decode(&bytes).map_err(named)?;
        index.check_owner(store.uuid(), entry.id).map_err(named)?;
        index.check_places(&entry.extents).map_err(named)?;
        let told = (entry.tensor_count, entry.data_bytes);
        if told != (index.tensors().len() as u64, index.data_bytes()) {
            return Err(named(Error::damaged(
                "the index does not have the tensors that the catalog tells of",
            )));
        }
        Ok(Self {
            store,
            index: Arc::new(index),
            entry,
        })
    }

    /// What it is, in a few numbers.
    pub fn info(&self) -> CheckpointInfo {
        CheckpointInfo::of(&self.entry)
    }

    /// Its tensors, in the order of their names.
    pub fn tensors(&self) -> &[TensorEntry] {
        self.index.tensors()
    }

    /// A tensor.
    ///
    /// # Errors
    ///
    /// No tensor of this name.
    pub fn tensor(&self, name: &str) -> Result<&TensorEntry> {
        self.index.find(name).ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                "the checkpoint has no tensor of this name",
            )
            .with_checkpoint(&self.entry.name)
            .with_tensor(name)
        })
    }

    /// A reader, for the thread that calls this. Any number of threads may have one.
    ///
    /// # Errors
    ///
    /// A lane or buffers that are not to be had.
    pub fn reader(&self, options: ReadOptions) -> Result<Reader> {
        Reader::open(self.clone(), options, 1)
    }

    /// Reads many tensors, on `threads` threads (1: on the caller's own). All of them together have
    /// the memory of one reader, but each has 4 MiB at least.
    ///
    /// # Errors
    ///
    /// The first failure of any; what the memory of the others holds then is not told.
    pub fn load(
        &self,
        targets: Vec<TensorTarget<'_>>,
        threads: usize,
        options: ReadOptions,
    ) -> Result<()> {
        let shares = shares(targets, threads, |target| target.memory.len() as u64);
        // One load has one pool, however many threads it has.
        let readers = shares.len();
        let platform = self.store.volume().platform();
        on_threads(platform, shares, |share| {
            Reader::open(self.clone(), options, readers)?.read_many(share)
        })
    }

    /// Where on the members some bytes of a tensor lie.
    ///
    /// # Panics
    ///
    /// When they reach beyond its end.
    pub fn places(&self, tensor: &TensorEntry, offset: u64, length: u64) -> Vec<DevicePlace> {
        tensor
            .locate(offset, length)
            .flat_map(|run| places_of(self.store.volume(), run))
            .collect()
    }

    #[cold]
    fn damaged(&self, tensor: &TensorEntry, block: u64, found: u32) -> Error {
        let range = tensor.block_range(block);
        let expected = tensor.checksums[usize_of(block)];
        let message = format!(
            "the data is damaged: its checksum is {found:08x} and should be {expected:08x}"
        );
        self.places(tensor, range.start, range.end - range.start)
            .into_iter()
            .fold(
                self.tensor_error(tensor, Error::new(ErrorKind::Damaged, message))
                    .with_block(block),
                Error::with_place,
            )
    }

    /// Refuses a block whose bytes are not what was written.
    #[inline]
    pub(crate) fn check_block(&self, tensor: &TensorEntry, block: u64, found: u32) -> Result<()> {
        if tensor.checksums[usize_of(block)] == found {
            return Ok(());
        }
        Err(self.damaged(tensor, block, found))
    }

    pub(crate) fn tensor_error(&self, tensor: &TensorEntry, error: Error) -> Error {
        error
            .with_checkpoint(&self.entry.name)
            .with_tensor(&tensor.name)
    }
}

/// Where on the members a run of the volume lies.
pub(crate) fn places_of(volume: &Volume, run: Run) -> Vec<DevicePlace> {
    let members = volume.members();
    let mut segments = Vec::new();
    volume.layout().segments(
        run.offset,
        run.length,
        members[0].data_offset,
        &mut segments,
    );
    segments
        .iter()
        .map(|segment| DevicePlace {
            path: members[segment.device as usize].path().to_path_buf(),
            offset: segment.offset,
            length: segment.length,
        })
        .collect()
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint")
            .field("name", &self.entry.name)
            .field("tensors", &self.tensors().len())
            .finish_non_exhaustive()
    }
}
