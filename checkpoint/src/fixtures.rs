//! Stores on small files in a directory of their own, for the tests of this crate.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use swath_engine::{FileFill, create_file, fill_incompressible};
use swath_volume::{CreateOptions, OpenOptions as VolumeOptions, Volume};
use tempfile::TempDir;

use crate::blob::usize_of;
use crate::checkpoint::{Checkpoint, ReadOptions, TensorTarget};
use crate::dtype::DType;
use crate::error::DevicePlace;
use crate::names::CheckpointName;
use crate::options::StoreOptions;
use crate::store::{FormatOptions, Store};
use crate::view::TensorView;

/// 32 MiB of data, and 2 MiB at each end.
const MEMBER_BYTES: u64 = 36 << 20;

/// A store and the directory of its members.
pub(crate) struct Fixture {
    pub(crate) store: Store,
    pub(crate) directory: TempDir,
    pub(crate) members: Vec<PathBuf>,
}

impl Fixture {
    pub(crate) fn new(member_count: usize, chunk_bytes: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let members: Vec<PathBuf> = (0..member_count)
            .map(|member| directory.path().join(format!("member-{member}")))
            .collect();
        for member in &members {
            create_file(member, MEMBER_BYTES, FileFill::Unwritten).unwrap();
        }
        let options = CreateOptions {
            chunk_bytes,
            ..CreateOptions::default()
        };
        let volume = Volume::create(&members, &options).unwrap();
        let store = Store::format(volume, &FormatOptions::default()).unwrap();
        Self {
            store,
            directory,
            members,
        }
    }

    /// Closes the store and opens it again.
    pub(crate) fn reopen(self, read_only: bool) -> Self {
        let Self {
            store,
            directory,
            members,
        } = self;
        drop(store);
        let options = VolumeOptions {
            read_only,
            ..VolumeOptions::default()
        };
        let volume = Volume::open(&members, &options).unwrap();
        Self {
            store: Store::open(volume, &StoreOptions::default()).unwrap(),
            directory,
            members,
        }
    }

    /// Makes sure that a checkpoint holds these tensors and no other.
    pub(crate) fn check(&self, name: impl Into<CheckpointName>, tensors: &[Tensor]) {
        let checkpoint = self.store.get(name).unwrap();
        assert_eq!(checkpoint.tensors().len(), tensors.len());
        load(&checkpoint, tensors);
    }
}

fn load(checkpoint: &Checkpoint, tensors: &[Tensor]) {
    let mut memory: Vec<Vec<u8>> = tensors
        .iter()
        .map(|tensor| vec![0xA5; tensor.bytes.len()])
        .collect();
    let targets = tensors
        .iter()
        .zip(&mut memory)
        .map(|(tensor, memory)| TensorTarget {
            name: &tensor.name,
            memory,
        })
        .collect();
    checkpoint.load(targets, 1, ReadOptions::default()).unwrap();
    for (tensor, memory) in tensors.iter().zip(&memory) {
        assert!(tensor.bytes == *memory, "{} is another", tensor.name);
    }
}

/// A tensor of bytes.
#[derive(Debug, Clone)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) shape: [u64; 1],
    pub(crate) bytes: Vec<u8>,
}

impl Tensor {
    /// A tensor of a name and bytes that no other has.
    pub(crate) fn new(length: usize) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut bytes = vec![0; length];
        fill_incompressible(&mut bytes, number, 0);
        Self {
            name: format!("tensor {number:06}"),
            shape: [length as u64],
            bytes,
        }
    }
}

pub(crate) fn views(tensors: &[Tensor]) -> Vec<TensorView<'_>> {
    tensors
        .iter()
        .map(|tensor| TensorView {
            name: &tensor.name,
            dtype: DType::U8,
            shape: &tensor.shape,
            bytes: &tensor.bytes,
        })
        .collect()
}

/// Flips a bit of every byte of a place, behind the store's back. A second time undoes it.
pub(crate) fn flip(place: &DevicePlace) {
    let file: File = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&place.path)
        .unwrap();
    let mut bytes = vec![0; usize_of(place.length)];
    file.read_exact_at(&mut bytes, place.offset).unwrap();
    bytes.iter_mut().for_each(|byte| *byte ^= 0x10);
    file.write_all_at(&bytes, place.offset).unwrap();
    file.sync_all().unwrap();
}
