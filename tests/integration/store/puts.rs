//! Tensors put by many writers, in great numbers, and without being copied.
//!
//! What could go wrong: a copy where none is needed; names that meet; tensors of one writer in the
//! space of another; checkpoints of nothing; memory of others behind a tensor's end.

use std::env;
use std::thread;

use swath_checkpoint::{
    BeginOptions, CheckpointName, DType, ErrorKind, NAME_BYTES_MAX, ReadOptions,
};
use swath_checkpoint::{TensorTarget, index::BLOCK_BYTES};
use swath_engine::{AlignedBuf, Backend, OpKind};
use swath_tests::checkpoints::{self, SimStore, Tensor, assert_holds};
use swath_tests::fixtures::{self, Place};
use swath_tests::seed::Seed;

use super::{KIB, MIB};

/// Large tensors in aligned memory use no buffer, but one for a tail shorter than a block.
#[test]
fn what_is_aligned_goes_to_the_members_without_a_copy() {
    fixtures::for_each_backend(|backend| {
        let folder = Place::Memory.folder().unwrap_or_else(fixtures::folder);
        let members = fixtures::members(folder.path(), 2, 16 << 20);
        let store = checkpoints::store_on_files(&members, 64 << 10, backend);
        let session = store.begin(1, BeginOptions::default()).unwrap();
        let mut writer = session.writer().unwrap();
        let block = u64::from(store.volume().block_bytes()) as usize;
        let mut tensors = Vec::new();
        for (number, (length, buffers)) in [
            (MIB, 0),
            (3 * MIB, 0),
            (2 * MIB + 5 * block, 0),
            (MIB + 1, 1),
            (2 * MIB + block - 1, 1),
        ]
        .into_iter()
        .enumerate()
        {
            let tensor = Tensor::new(format!("t{number}"), length, number as u64);
            let memory = AlignedBuf::copy_of(&tensor.bytes).unwrap();
            let before = writer.buffers_used();
            writer
                .put(&tensor.name, tensor.dtype, &tensor.shape, &memory)
                .unwrap();
            assert_eq!(
                writer.buffers_used() - before,
                buffers,
                "{length} bytes on {backend}"
            );
            tensors.push(tensor);
        }
        // From other memory, each piece is copied once.
        let tensor = Tensor::new("unaligned", 3 * MIB, 9);
        let mut memory = AlignedBuf::zeroed(3 * MIB + 1).unwrap();
        memory[1..].copy_from_slice(&tensor.bytes);
        let before = writer.buffers_used();
        writer
            .put("unaligned", DType::U8, &tensor.shape, &memory[1..])
            .unwrap();
        assert!((3..=4).contains(&(writer.buffers_used() - before)));
        tensors.push(tensor);
        writer.finish().unwrap();
        session.commit().unwrap();
        assert_holds(&store, 1, &tensors);
    });
}

/// Small tensors are packed: few writes, each large.
#[test]
fn small_tensors_are_written_together() {
    let sim = SimStore::new(Seed::new().value(), 1, 8 << 20, 1 << 20);
    let tensors: Vec<_> = (0..2_000)
        .map(|n| Tensor::new(format!("{n}"), KIB + n % 7, n as u64))
        .collect();
    sim.platform.take_trace();
    checkpoints::save(sim.store(), 1, &tensors).unwrap();
    let trace = sim.platform.take_trace();
    let writes = trace
        .iter()
        .filter(|op| op.kind == OpKind::Write && !sim.is_metadata(op.offset));
    let (count, bytes) = writes.fold((0, 0), |(count, bytes), op| (count + 1, bytes + op.length));
    assert!(count <= 8, "2 MB in {count} writes");
    assert!(bytes < 3 << 20, "{bytes} bytes were written for 2 MB");
    assert_holds(sim.store(), 1, &tensors);
}

/// `SWATH_TENSORS=100000` for as many.
#[test]
fn a_great_number_of_small_tensors_is_saved_and_loaded() {
    let count = env::var("SWATH_TENSORS").map_or(20_000, |count| count.parse().unwrap());
    let folder = Place::Memory.folder().unwrap_or_else(fixtures::folder);
    // The data, and as much again for the index.
    let bytes = (count as u64 * 2048).next_multiple_of(1 << 20) / 2 + (6 << 20);
    let members = fixtures::members(folder.path(), 2, bytes);
    let store = checkpoints::store_on_files(&members, 1 << 20, Backend::Auto);
    let source = Tensor::new("source", KIB + count, 1).bytes;
    let name = |number: usize| format!("model.layers.{number}.weight");
    let session = store.begin(1, BeginOptions::default()).unwrap();
    thread::scope(|scope| {
        for part in 0..2 {
            let (session, source) = (&session, &source);
            scope.spawn(move || {
                let mut writer = session.writer().unwrap();
                for number in (part..count).step_by(2) {
                    let bytes = &source[number..number + KIB];
                    writer
                        .put(&name(number), DType::F16, &[16, 32], bytes)
                        .unwrap();
                }
                writer.finish().unwrap();
            });
        }
    });
    let info = session.commit().unwrap();
    assert_eq!(
        (info.tensor_count, info.data_bytes),
        (count as u64, (count * KIB) as u64)
    );
    drop((session, store));

    let store = checkpoints::reopen_on_files(&members, Backend::Auto);
    let checkpoint = store.get(1).unwrap();
    let names: Vec<_> = (0..count).map(name).collect();
    let mut memory = vec![0; count * KIB];
    let targets = names
        .iter()
        .zip(memory.chunks_exact_mut(KIB))
        .map(|(name, memory)| TensorTarget { name, memory })
        .collect();
    checkpoint.load(targets, 3, ReadOptions::default()).unwrap();
    for (number, bytes) in memory.chunks_exact(KIB).enumerate() {
        assert!(bytes == &source[number..number + KIB], "tensor {number}");
    }
    let error = checkpoint.tensor(&name(count)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn writers_on_threads_fill_one_checkpoint() {
    fixtures::for_each_backend(|backend| {
        let folder = Place::Memory.folder().unwrap_or_else(fixtures::folder);
        let members = fixtures::members(folder.path(), 3, 16 << 20);
        let store = checkpoints::store_on_files(&members, 4 << 10, backend);
        let options = BeginOptions {
            data_bytes: Some(12 << 20),
            metadata: vec![("rank".to_owned(), "naïve ☂".to_owned())],
            created_unix_s: Some(1_700_000_000),
            ..BeginOptions::default()
        };
        let session = store.begin(5, options).unwrap();
        let tensors: Vec<Vec<Tensor>> = (0..4_u64)
            .map(|thread| {
                [1, 3_000, 40_000, MIB - 1, MIB, MIB + 513]
                    .into_iter()
                    .map(|length| Tensor::new(format!("{thread}/{length}"), length, thread))
                    .collect()
            })
            .collect();
        thread::scope(|scope| {
            for part in &tensors {
                let session = &session;
                scope.spawn(move || {
                    let mut writer = session.writer().unwrap();
                    for tensor in part {
                        let memory = AlignedBuf::copy_of(&tensor.bytes).unwrap();
                        writer
                            .put(&tensor.name, tensor.dtype, &tensor.shape, &memory)
                            .unwrap();
                    }
                    // Dropped, which finishes it.
                });
            }
        });
        session.commit().unwrap();
        let all: Vec<_> = tensors.into_iter().flatten().collect();
        drop((session, store));
        let store = checkpoints::reopen_on_files(&members, backend);
        assert_holds(&store, 5, &all);
        let info = store.latest().unwrap();
        assert_eq!(info.created_unix_s, 1_700_000_000);
        assert_eq!(info.metadata[0].1, "naïve ☂");
        assert_eq!(store.get(5).unwrap().info(), info);
    });
}

#[test]
fn names_of_any_text_and_any_length_are_kept() {
    let mut sim = SimStore::new(Seed::new().value(), 2, 2 << 20, 4 << 10);
    let names = [
        "x".repeat(NAME_BYTES_MAX),
        "☂".repeat(NAME_BYTES_MAX / 3),
        "../../../etc/passwd".to_owned(),
        "tab\tnewline\nbell\u{7}".to_owned(),
        "\u{202e}right to left".to_owned(),
        " ".to_owned(),
        "e\u{301}".to_owned(),
        "é".to_owned(),
    ];
    let tensors: Vec<_> = (1..)
        .zip(&names)
        .map(|(number, name)| Tensor::new(name, number, number as u64))
        .collect();
    for name in &names {
        let name: CheckpointName = name.parse().unwrap();
        checkpoints::save(sim.store(), name, &tensors).unwrap();
    }
    sim.reopen();
    for name in &names {
        let name: CheckpointName = name.parse().unwrap();
        assert_holds(sim.store(), name, &tensors);
    }
}

#[test]
fn a_checkpoint_of_nothing_and_tensors_of_nothing_are_kept() {
    let mut sim = SimStore::new(Seed::new().value(), 2, 2 << 20, 4 << 10);
    let empty = [
        Tensor::shaped("no elements", DType::F32, &[3, 0, 7], 0),
        Tensor::shaped("scalar", DType::F64, &[], 1),
        Tensor::shaped("many ones", DType::U8, &[1; 64], 2),
    ];
    checkpoints::save(sim.store(), 0, &[]).unwrap();
    checkpoints::save(sim.store(), u64::MAX, &empty).unwrap();
    // In pieces of nothing too.
    let session = sim.store().begin(1, BeginOptions::default()).unwrap();
    let mut writer = session.writer().unwrap();
    let mut stream = writer.put_stream("nothing", DType::I64, &[0]).unwrap();
    stream.write(&[]).unwrap();
    stream.finish().unwrap();
    writer.finish().unwrap();
    session.commit().unwrap();
    drop(session);
    sim.reopen();
    assert_holds(sim.store(), 0, &[]);
    assert_holds(sim.store(), u64::MAX, &empty);
    let nothing = Tensor::shaped("nothing", DType::I64, &[0], 0);
    assert_holds(sim.store(), 1, &[nothing]);
    assert_eq!(BLOCK_BYTES, 1 << 20);
}

/// Buffers go from one tensor to the next. What the last one left must not reach a member behind the
/// end of a shorter one: it may be anybody's.
#[test]
fn behind_the_end_of_a_tensor_are_zeroes() {
    let folder = Place::Memory.folder().unwrap_or_else(fixtures::folder);
    let members = fixtures::members(folder.path(), 1, 32 << 20);
    let store = checkpoints::store_on_files(&members, 64 << 10, Backend::Auto);
    let session = store.begin(1, BeginOptions::default()).unwrap();
    let mut writer = session.writer().unwrap();
    // Whatever buffers there are have this in them.
    let old = vec![0xa5; 3 * MIB];
    writer
        .put("old", DType::U8, &[old.len() as u64], &old)
        .unwrap();
    let mut tensors = Vec::new();
    for (number, length) in [MIB + 1, 2 * MIB + 4095, 100].into_iter().enumerate() {
        let tensor = Tensor::new(format!("t{number}"), length, number as u64);
        let shape = [length as u64];
        // By every way through buffers: memory that is not aligned, a tail, a stream, a pack.
        let mut memory = AlignedBuf::zeroed(length + 1).unwrap();
        memory[1..].copy_from_slice(&tensor.bytes);
        writer
            .put(&format!("copied {number}"), DType::U8, &shape, &memory[1..])
            .unwrap();
        memory.set_len(length);
        memory.copy_from_slice(&tensor.bytes);
        writer
            .put(&format!("direct {number}"), DType::U8, &shape, &memory)
            .unwrap();
        let mut stream = writer
            .put_stream(&format!("streamed {number}"), DType::U8, &shape)
            .unwrap();
        stream.write(&tensor.bytes).unwrap();
        stream.finish().unwrap();
        tensors.push(tensor);
    }
    writer.finish().unwrap();
    session.commit().unwrap();
    drop(session);
    drop(store);
    let bytes = std::fs::read(&members[0]).unwrap();
    for tensor in &tensors {
        // The last bytes of the tensor are found by what they are.
        let end = &tensor.bytes[tensor.bytes.len() - 64..];
        let ends: Vec<usize> = (0..=bytes.len() - end.len())
            .filter(|&at| bytes[at] == end[0] && bytes[at..].starts_with(end))
            .map(|at| at + end.len())
            .collect();
        assert!(ends.len() >= 3, "{} is there three times", tensor.name);
        let is_padded = |end: &usize| {
            let behind = &bytes[*end..end.next_multiple_of(4096)];
            behind.iter().all(|byte| *byte == 0)
        };
        // Small ones lie behind each other, and zeroes behind the last.
        if tensor.bytes.len() < MIB {
            assert!(ends.iter().any(is_padded), "{}", tensor.name);
        } else {
            assert!(ends.iter().all(is_padded), "{}", tensor.name);
        }
    }
}
