//! Tensors made from a number, saved and compared; and stores to save them in.

use std::path::PathBuf;
use std::sync::Arc;

use swath_checkpoint::{
    BeginOptions, Checkpoint, CheckpointInfo, CheckpointName, DType, FormatOptions, ReadOptions,
    Result, Store, StoreOptions,
};
use swath_engine::{AlignedBuf, Backend, HandleOptions, fill_incompressible};
use swath_volume::{CreateOptions, OpenOptions, Volume};

use crate::fixtures;
use crate::sim::SimPlatform;

/// What a member has beside its data: 2 MiB at each end.
pub const MEMBER_ENDS_BYTES: u64 = 4 << 20;

/// A tensor and its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// What its elements are.
    pub dtype: DType,
    /// Its dimensions.
    pub shape: Vec<u64>,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Tensor {
    /// A list of bytes, all of which follow from `mark`.
    pub fn new(name: impl Into<String>, length: usize, mark: u64) -> Self {
        Self::shaped(name, DType::U8, &[length as u64], mark)
    }

    /// A tensor of any type and shape, whose bytes follow from `mark`.
    ///
    /// # Panics
    ///
    /// When the shape is not one.
    pub fn shaped(name: impl Into<String>, dtype: DType, shape: &[u64], mark: u64) -> Self {
        let length = dtype.tensor_bytes(shape).expect("a shape that can be");
        let length = usize::try_from(length).expect("tensors in tests fit in memory");
        let mut bytes = vec![0; length];
        fill_incompressible(&mut bytes, mark, 0);
        Self {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
            bytes,
        }
    }
}

/// Saves tensors as one checkpoint, by one writer.
///
/// # Errors
///
/// Whatever the store says.
pub fn save(
    store: &Store,
    name: impl Into<CheckpointName>,
    tensors: &[Tensor],
) -> Result<CheckpointInfo> {
    save_with(store, name, BeginOptions::default(), tensors)
}

/// Saves tensors as one checkpoint, by one writer, in the place of another of the name.
///
/// # Errors
///
/// Whatever the store says.
pub fn replace(
    store: &Store,
    name: impl Into<CheckpointName>,
    tensors: &[Tensor],
) -> Result<CheckpointInfo> {
    let options = BeginOptions {
        replace: true,
        ..BeginOptions::default()
    };
    save_with(store, name, options, tensors)
}

/// Saves tensors as one checkpoint, by one writer.
///
/// # Errors
///
/// Whatever the store says.
pub fn save_with(
    store: &Store,
    name: impl Into<CheckpointName>,
    options: BeginOptions,
    tensors: &[Tensor],
) -> Result<CheckpointInfo> {
    let session = store.begin(name, options)?;
    let mut writer = session.writer()?;
    for tensor in tensors {
        writer.put(&tensor.name, tensor.dtype, &tensor.shape, &tensor.bytes)?;
    }
    writer.finish()?;
    session.commit()
}

/// What is wrong with a checkpoint that should hold these tensors and no others, in words. Reads
/// into aligned and into unaligned memory.
///
/// # Errors
///
/// It does not hold them.
pub fn compare(checkpoint: &Checkpoint, tensors: &[Tensor]) -> Result<(), String> {
    let mut wanted: Vec<&Tensor> = tensors.iter().collect();
    wanted.sort_by(|a, b| a.name.cmp(&b.name));
    let found = checkpoint.tensors();
    if found.len() != wanted.len() {
        return Err(format!("{} tensors, not {}", found.len(), wanted.len()));
    }
    let mut reader = checkpoint
        .reader(ReadOptions::default())
        .map_err(|error| error.to_string())?;
    for (entry, tensor) in found.iter().zip(wanted) {
        if (&entry.name, entry.dtype, &entry.shape) != (&tensor.name, tensor.dtype, &tensor.shape) {
            return Err(format!("{entry:?} is not {:?}", tensor.name));
        }
        let length = tensor.bytes.len();
        let mut aligned = AlignedBuf::zeroed(length).expect("memory");
        let mut unaligned = vec![0xa5; length + 1];
        for memory in [&mut aligned[..], &mut unaligned[1..]] {
            reader
                .read(&tensor.name, memory)
                .map_err(|error| format!("{error:?}"))?;
            if memory != tensor.bytes {
                return Err(format!("{:?} has other bytes", tensor.name));
            }
        }
    }
    Ok(())
}

/// Makes sure that a store has exactly these checkpoints with these tensors, in the order of their
/// commits.
///
/// # Panics
///
/// When it has not.
#[track_caller]
pub fn assert_store_holds(store: &Store, wanted: &[(CheckpointName, Vec<Tensor>)]) {
    let names: Vec<_> = store.list().into_iter().map(|info| info.name).collect();
    let wanted_names: Vec<_> = wanted.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, wanted_names);
    for (name, tensors) in wanted {
        assert_holds(store, name.clone(), tensors);
    }
}

/// Makes sure that a checkpoint holds exactly these tensors.
///
/// # Panics
///
/// When it does not.
#[track_caller]
pub fn assert_holds(store: &Store, name: impl Into<CheckpointName>, tensors: &[Tensor]) {
    let name = name.into();
    let checkpoint = store
        .get(name.clone())
        .unwrap_or_else(|error| panic!("checkpoint {name}: {error:?}"));
    if let Err(problem) = compare(&checkpoint, tensors) {
        panic!("checkpoint {name}: {problem}");
    }
}

/// Options of a store that takes little memory, on this backend.
pub fn store_options(backend: Backend) -> StoreOptions {
    StoreOptions {
        lane: fixtures::lane_options(backend),
        pool_bytes: 4 << 20,
        depth: 3,
    }
}

/// Makes a store on a new volume over `members`, which may carry anything.
///
/// # Panics
///
/// When it cannot be made.
pub fn store_on_files(members: &[PathBuf], chunk_bytes: u64, backend: Backend) -> Store {
    let options = CreateOptions {
        chunk_bytes,
        force: true,
        handle: one_worker(backend),
        ..CreateOptions::default()
    };
    let volume = Volume::create(members, &options).expect("a volume over files of our own");
    let options = FormatOptions {
        // A volume that is made over an old one is new, and its root record with it.
        store: store_options(backend),
        ..FormatOptions::default()
    };
    Store::format(volume, &options).expect("a store on a volume of our own")
}

/// Opens the store that `members` carry.
///
/// # Panics
///
/// When it cannot be opened.
pub fn reopen_on_files(members: &[PathBuf], backend: Backend) -> Store {
    let options = OpenOptions {
        handle: one_worker(backend),
        ..OpenOptions::default()
    };
    let volume = Volume::open(members, &options).expect("a volume that was closed");
    Store::open(volume, &store_options(backend)).expect("a store that was there")
}

fn one_worker(backend: Backend) -> HandleOptions {
    HandleOptions {
        workers: 1,
        ..fixtures::handle_options(backend)
    }
}

/// A store on simulated devices, and what it takes to open it again.
#[derive(Debug)]
pub struct SimStore {
    /// The devices.
    pub platform: SimPlatform,
    /// Their paths: `m0`, `m1` and so on.
    pub paths: Vec<PathBuf>,
    /// How many bytes each has.
    pub member_bytes: u64,
    /// The store, while it is open.
    pub store: Option<Store>,
}

impl SimStore {
    /// Makes a store on `members` devices with `data_bytes` of data each.
    ///
    /// # Panics
    ///
    /// When it cannot be made.
    pub fn new(seed: u64, members: usize, data_bytes: u64, chunk_bytes: u64) -> Self {
        let member_bytes = data_bytes + MEMBER_ENDS_BYTES;
        let (platform, paths) = SimPlatform::with_members(seed, members, member_bytes);
        let options = CreateOptions {
            chunk_bytes,
            ..CreateOptions::default()
        };
        let volume = Volume::create_on(Arc::new(platform.clone()), &paths, &options)
            .expect("a volume over new devices");
        let options = FormatOptions {
            store: store_options(Backend::Auto),
            ..FormatOptions::default()
        };
        let store = Store::format(volume, &options).expect("a store on a new volume");
        Self {
            platform,
            paths,
            member_bytes,
            store: Some(store),
        }
    }

    /// The store.
    ///
    /// # Panics
    ///
    /// While it is closed.
    pub fn store(&self) -> &Store {
        self.store.as_ref().expect("the store is open")
    }

    /// Forgets the store without another write, as a process that dies.
    pub fn die(&mut self) {
        self.store = None;
    }

    /// Opens it again.
    ///
    /// # Panics
    ///
    /// When it cannot be opened, or somebody still has it open.
    pub fn reopen(&mut self) -> &Store {
        self.die();
        let store = self
            .open(&OpenOptions::default())
            .expect("a store that was there");
        self.store.insert(store)
    }

    /// Opens it again, or says why not.
    ///
    /// # Errors
    ///
    /// Whatever volume or store say.
    pub fn open(&self, options: &OpenOptions) -> Result<Store> {
        let platform = Arc::new(self.platform.clone());
        let volume = Volume::open_on(platform, &self.paths, options)?;
        Store::open(volume, &store_options(Backend::Auto))
    }

    /// Whether a place on a member belongs to its root records and superblocks.
    pub fn is_metadata(&self, offset: u64) -> bool {
        offset < MEMBER_ENDS_BYTES / 2 || offset >= self.member_bytes - MEMBER_ENDS_BYTES / 2
    }
}
