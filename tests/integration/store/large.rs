//! A checkpoint larger than the memory it is saved with.
//!
//! What could go wrong: memory that grows with the checkpoint, or with the number of threads.

use std::fs;

use swath_checkpoint::safetensors::{ExportOptions, export};
use swath_checkpoint::{BeginOptions, DType, FormatOptions, ReadOptions, Store, TensorTarget};
use swath_engine::{Backend, fill_incompressible};
use swath_tests::checkpoints;
use swath_tests::fixtures::{self, Place};
use tempfile::TempDir;

use super::MIB;

const POOL_BYTES: u64 = 16 << 20;
const TENSOR_BYTES: usize = 20 * MIB;
const TENSORS: u64 = 8;

/// The most memory this process ever had, in bytes.
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib: u64 = line
        .and_then(|line| line.split_whitespace().nth(1))
        .unwrap()
        .parse()
        .unwrap();
    kib << 10
}

#[test]
fn a_checkpoint_ten_times_the_pool_takes_no_more_memory_than_the_pool() {
    let name = "store::large::a_checkpoint_ten_times_the_pool_takes_no_more_memory_than_the_pool";
    fixtures::in_own_process(name, || {
        let (_folder, store) = store();
        assert_eq!(TENSORS * TENSOR_BYTES as u64, 10 * POOL_BYTES);

        save(&store);
        let checkpoint = store.get(1).unwrap();
        let mut reader = checkpoint.reader(ReadOptions::default()).unwrap();
        let mut piece = vec![0; MIB + 777];
        let mut read = vec![0; piece.len()];
        for tensor in 0..TENSORS {
            let mut left = TENSOR_BYTES;
            while left > 0 {
                let length = left.min(piece.len());
                fill_incompressible(&mut piece[..length], tensor, left as u64);
                let offset = (TENSOR_BYTES - left) as u64;
                reader
                    .read_range(&format!("t{tensor}"), offset, &mut read[..length])
                    .unwrap();
                assert!(
                    read[..length] == piece[..length],
                    "tensor {tensor} at {offset}"
                );
                left -= length;
            }
        }
        assert_peak_is_bounded(0);
    });
}

#[test]
fn many_threads_take_no_more_memory_than_few() {
    let name = "store::large::many_threads_take_no_more_memory_than_few";
    fixtures::in_own_process(name, || {
        let (folder, store) = store();
        save(&store);
        let checkpoint = store.get(1).unwrap();
        for threads in [1, 8, 64] {
            let options = ExportOptions {
                threads,
                ..ExportOptions::default()
            };
            let out = folder.path().join("out");
            export(&checkpoint, &out, &options, &mut |_| true).unwrap();
            fs::remove_dir_all(&out).unwrap();
        }
        assert_peak_is_bounded(0);
        let names: Vec<String> = (0..TENSORS).map(|tensor| format!("t{tensor}")).collect();
        let mut memory = vec![0; names.len() * TENSOR_BYTES];
        let targets = names.iter().zip(memory.chunks_mut(TENSOR_BYTES));
        let targets = targets
            .map(|(name, memory)| TensorTarget { name, memory })
            .collect();
        checkpoint.load(targets, 8, ReadOptions::default()).unwrap();
        assert_peak_is_bounded(memory.len() as u64);
    });
}

/// A store, and the folder of its members.
fn store() -> (TempDir, Store) {
    let folder = Place::Memory.folder().unwrap_or_else(fixtures::folder);
    let members = fixtures::members(folder.path(), 2, 90 << 20);
    let mut options = checkpoints::store_options(Backend::Auto);
    options.pool_bytes = POOL_BYTES;
    let options = FormatOptions {
        store: options,
        ..FormatOptions::default()
    };
    let volume = fixtures::volume(&members, 1 << 20);
    (folder, Store::format(volume, &options).unwrap())
}

/// Saves tensors that come in pieces, as step 1.
fn save(store: &Store) {
    let mut piece = vec![0; MIB + 777];
    let session = store.begin(1, BeginOptions::default()).unwrap();
    let mut writer = session.writer().unwrap();
    for tensor in 0..TENSORS {
        let shape = [TENSOR_BYTES as u64];
        let mut stream = writer
            .put_stream(&format!("t{tensor}"), DType::U8, &shape)
            .unwrap();
        let mut left = TENSOR_BYTES;
        while left > 0 {
            let length = left.min(piece.len());
            fill_incompressible(&mut piece[..length], tensor, left as u64);
            stream.write(&piece[..length]).unwrap();
            left -= length;
        }
        stream.finish().unwrap();
    }
    writer.finish().unwrap();
    session.commit().unwrap();
}

/// Makes sure that this process never had much more memory than its pool and `own_bytes`.
#[track_caller]
fn assert_peak_is_bounded(own_bytes: u64) {
    let peak = peak_bytes();
    assert!(
        peak <= own_bytes + POOL_BYTES + (64 << 20),
        "{} MiB for a pool of {} and {} MiB of its own",
        peak >> 20,
        POOL_BYTES >> 20,
        own_bytes >> 20
    );
}
