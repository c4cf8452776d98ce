//! A checkpoint larger than the memory it is saved with.
//!
//! What could go wrong: memory that grows with the checkpoint.

use std::fs;

use swath_checkpoint::{BeginOptions, DType, ReadOptions};
use swath_engine::{Backend, fill_incompressible};
use swath_tests::checkpoints;
use swath_tests::fixtures::{self, Place};

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
        let folder = Place::Memory.folder().unwrap_or_else(fixtures::folder);
        let members = fixtures::members(folder.path(), 2, 90 << 20);
        let mut options = checkpoints::store_options(Backend::Auto);
        options.pool_bytes = POOL_BYTES;
        let store = swath_checkpoint::Store::format(
            fixtures::volume(&members, 1 << 20),
            &swath_checkpoint::FormatOptions {
                store: options,
                ..swath_checkpoint::FormatOptions::default()
            },
        )
        .unwrap();
        assert_eq!(TENSORS * TENSOR_BYTES as u64, 10 * POOL_BYTES);

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
        drop(session);

        let checkpoint = store.get(1).unwrap();
        let mut reader = checkpoint.reader(ReadOptions::default()).unwrap();
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
        let peak = peak_bytes();
        assert!(
            peak <= POOL_BYTES + (64 << 20),
            "{} MiB for a pool of {}",
            peak >> 20,
            POOL_BYTES >> 20
        );
    });
}
