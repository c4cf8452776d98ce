//! Tensors of any name, type, shape and size come back as they were saved: whole, in parts, in boxes.
//!
//! What could go wrong: a size beside a border of units, blocks or chunks; a tensor that lies in
//! several pieces of free space; a tail that is cut off; memory that is not aligned; bytes that come
//! in pieces; a box that takes a neighbour's elements.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{TestCaseError, TestCaseResult};
use swath_checkpoint::region::Region;
use swath_checkpoint::{
    BeginOptions, DType, ErrorKind, NAME_BYTES_MAX, ReadOptions, Store, TensorTarget,
};
use swath_engine::{AlignedBuf, Backend};
use swath_tests::checkpoints::{self, SimStore, Tensor};
use swath_tests::fixtures::{self, MIB, Place};
use swath_tests::seed::check;

const MEMBERS_MAX: usize = 4;
const DATA_BYTES: u64 = 24 * MIB;

/// How a tensor is handed over.
#[derive(Debug, Clone)]
enum Way {
    Aligned,
    Unaligned,
    /// In pieces of these lengths, over and over.
    Stream(Vec<usize>),
}

#[derive(Debug, Clone)]
struct Wanted {
    name: String,
    dtype: DType,
    shape: Vec<u64>,
    mark: u64,
    way: Way,
}

#[derive(Debug, Clone)]
struct Case {
    members: usize,
    chunk_bytes: u64,
    /// Checkpoints of so many KiB are saved first, and every other one removed: free space in
    /// pieces.
    holes: Vec<usize>,
    tensors: Vec<Wanted>,
    writers: usize,
    is_reserved: bool,
}

/// Sizes beside every border that matters, up to three blocks.
fn a_size() -> impl Strategy<Value = u64> {
    let border = select(vec![
        0,
        512,
        4096,
        65_536,
        MIB,
        MIB + 4096,
        2 * MIB,
        3 * MIB,
    ]);
    let beside = (border, -1..=1_i64)
        .prop_map(|(border, beside): (u64, i64)| border.saturating_add_signed(beside));
    prop_oneof![
        4 => beside,
        3 => 0..5_000_u64,
        1 => 0..3 * MIB,
    ]
}

/// A shape of about so many bytes.
fn a_shape() -> impl Strategy<Value = (DType, Vec<u64>)> {
    let dtype = select(DType::all().collect::<Vec<_>>());
    (dtype, a_size(), vec(1..5_u64, 0..4)).prop_map(|(dtype, size, inner)| {
        let inner_count: u64 = inner.iter().product();
        let bits = u64::from(dtype.bits()) * inner_count;
        let mut outer = size * 8 / bits;
        // Types of less than a byte fill whole bytes only in some numbers.
        while !(outer * bits).is_multiple_of(8) {
            outer -= 1;
        }
        let mut shape = vec![outer];
        shape.extend(inner);
        (dtype, shape)
    })
}

fn a_name() -> impl Strategy<Value = String> {
    let any = vec(any::<char>().prop_filter("no NUL", |&c| c != '\0'), 1..24)
        .prop_map(|chars| chars.into_iter().collect::<String>());
    prop_oneof![
        4 => "layers\\.[0-9]{1,2}\\.(weight|bias)",
        4 => any,
        1 => select(vec![
            "x".repeat(NAME_BYTES_MAX),
            "☂".repeat(NAME_BYTES_MAX / 3),
            "../../etc/passwd".to_owned(),
            " ".to_owned(),
        ]),
    ]
}

fn a_case() -> impl Strategy<Value = Case> {
    let way = prop_oneof![
        Just(Way::Aligned),
        Just(Way::Unaligned),
        vec(
            prop_oneof![1..100_usize, Just(4096), Just(1 << 20), 1..300_000_usize],
            1..5
        )
        // No million of calls for a large tensor.
        .prop_map(|mut pieces| {
            pieces.push(77_777);
            Way::Stream(pieces)
        }),
    ];
    let tensor =
        (a_name(), a_shape(), any::<u64>(), way).prop_map(|(name, (dtype, shape), mark, way)| {
            Wanted {
                name,
                dtype,
                shape,
                mark,
                way,
            }
        });
    let chunks = select(vec![4096, 12_288, 65_536, 1 << 20]);
    (
        1..=MEMBERS_MAX,
        chunks,
        prop_oneof![1 => Just(Vec::new()), 1 => vec(1..600_usize, 2..14)],
        vec(tensor, 0..7),
        1..4_usize,
        any::<bool>(),
    )
        .prop_map(
            |(members, chunk_bytes, holes, tensors, writers, is_reserved)| Case {
                members,
                chunk_bytes,
                holes,
                tensors,
                writers,
                is_reserved,
            },
        )
}

fn make_holes(store: &Store, holes: &[usize]) -> TestCaseResult {
    for (step, kib) in (0..).zip(holes) {
        checkpoints::save(store, step, &[Tensor::new("filler", kib << 10, step)])?;
    }
    for step in (0..holes.len() as u64).step_by(2) {
        store.remove(step)?;
    }
    Ok(())
}

/// Saves the tensors of a case and gives those that were not refused for their name.
fn save(store: &Store, case: &Case) -> Result<Vec<Tensor>, TestCaseError> {
    let tensors: Vec<Tensor> = case
        .tensors
        .iter()
        .map(|wanted| Tensor::shaped(&wanted.name, wanted.dtype, &wanted.shape, wanted.mark))
        .collect();
    let bytes: usize = tensors.iter().map(|tensor| tensor.bytes.len()).sum();
    let options = BeginOptions {
        data_bytes: case.is_reserved.then_some(bytes as u64),
        verify_source: bytes.is_multiple_of(2),
        ..BeginOptions::default()
    };
    let session = store.begin(1_000_000, options)?;
    let mut writers = Vec::new();
    for _ in 0..case.writers {
        writers.push(session.writer()?);
    }
    let mut kept: Vec<Tensor> = Vec::new();
    for (number, (tensor, wanted)) in tensors.into_iter().zip(&case.tensors).enumerate() {
        let writer = &mut writers[number % case.writers];
        let Tensor {
            name,
            dtype,
            shape,
            bytes,
        } = &tensor;
        let put = match &wanted.way {
            Way::Aligned => writer.put(name, *dtype, shape, &AlignedBuf::copy_of(bytes).unwrap()),
            Way::Unaligned => {
                let mut memory = AlignedBuf::zeroed(bytes.len() + 1).unwrap();
                memory[1..].copy_from_slice(bytes);
                writer.put(name, *dtype, shape, &memory[1..])
            }
            Way::Stream(pieces) => writer
                .put_stream(name, *dtype, shape)
                .and_then(|mut stream| {
                    let mut rest = &bytes[..];
                    for length in pieces.iter().cycle() {
                        if rest.is_empty() {
                            break;
                        }
                        let (piece, left) = rest.split_at((*length).min(rest.len()));
                        stream.write(piece)?;
                        rest = left;
                    }
                    stream.finish()
                }),
        };
        if kept.iter().any(|other| other.name == tensor.name) {
            prop_assert_eq!(put.unwrap_err().kind(), ErrorKind::AlreadyExists);
        } else {
            put?;
            kept.push(tensor);
        }
    }
    for writer in writers {
        writer.finish()?;
    }
    let info = session.commit()?;
    let bytes: usize = kept.iter().map(|tensor| tensor.bytes.len()).sum();
    prop_assert_eq!(
        (info.tensor_count, info.data_bytes),
        (kept.len() as u64, bytes as u64)
    );
    Ok(kept)
}

/// Reads some ranges and boxes of each tensor and compares them.
fn check_parts(store: &Store, tensors: &[Tensor]) -> TestCaseResult {
    let checkpoint = store.get(1_000_000)?;
    for trust in [false, true] {
        let mut reader = checkpoint.reader(ReadOptions { trust })?;
        for tensor in tensors {
            let length = tensor.bytes.len();
            let places = [
                0,
                1,
                length / 3,
                length / 2,
                length.saturating_sub(1),
                length,
            ];
            for (&start, &end) in places
                .iter()
                .flat_map(|a| places.iter().map(move |b| (a, b)))
            {
                if start > end || end > length {
                    continue;
                }
                let mut memory = AlignedBuf::zeroed(end - start).unwrap();
                reader.read_range(&tensor.name, start as u64, &mut memory)?;
                prop_assert!(
                    memory[..] == tensor.bytes[start..end],
                    "bytes {start}..{end} of {length} are wrong"
                );
            }
            check_boxes(&mut reader, tensor)?;
        }
    }
    // All at once by one reader, every other one into aligned memory.
    let mut memory: Vec<AlignedBuf> = tensors
        .iter()
        .map(|tensor| AlignedBuf::zeroed(tensor.bytes.len() + 1).unwrap())
        .collect();
    let targets = (0..)
        .zip(memory.iter_mut().zip(tensors))
        .map(|(number, (memory, tensor))| TensorTarget {
            name: &tensor.name,
            memory: &mut memory[number % 2..][..tensor.bytes.len()],
        })
        .collect();
    let mut reader = checkpoint.reader(ReadOptions::default())?;
    reader.read_many(targets)?;
    for (number, (memory, tensor)) in (0..).zip(memory.iter().zip(tensors)) {
        prop_assert!(
            memory[number % 2..][..tensor.bytes.len()] == tensor.bytes,
            "{:?} was read wrong among others",
            tensor.name
        );
    }
    // And on several threads, into memory that is no better aligned than chance has it.
    let mut memory: Vec<Vec<u8>> = tensors
        .iter()
        .map(|tensor| vec![0; tensor.bytes.len()])
        .collect();
    let targets = memory
        .iter_mut()
        .zip(tensors)
        .map(|(memory, tensor)| TensorTarget {
            name: &tensor.name,
            memory,
        })
        .collect();
    checkpoint.load(targets, 3, ReadOptions::default())?;
    for (memory, tensor) in memory.iter().zip(tensors) {
        prop_assert!(
            memory == &tensor.bytes,
            "{:?} was loaded wrong",
            tensor.name
        );
    }
    Ok(())
}

/// Reads boxes, and compares them element by element.
fn check_boxes(reader: &mut swath_checkpoint::Reader, tensor: &Tensor) -> TestCaseResult {
    let element = tensor.dtype.bits() as usize / 8;
    if !tensor.dtype.bits().is_multiple_of(8) || tensor.bytes.len() > 3 << 20 {
        return Ok(());
    }
    let halves = Region {
        start: tensor.shape.iter().map(|size| size / 3).collect(),
        size: tensor
            .shape
            .iter()
            .map(|size| (size - size / 3).div_ceil(2))
            .collect(),
    };
    let last = Region {
        start: tensor
            .shape
            .iter()
            .map(|size| size.saturating_sub(1))
            .collect(),
        size: tensor.shape.iter().map(|size| (*size).min(1)).collect(),
    };
    for region in [halves, last, Region::whole(&tensor.shape)] {
        let mut wanted = Vec::new();
        let count: u64 = region.size.iter().product();
        // An odometer over the box.
        let mut at = region.start.clone();
        for _ in 0..count {
            let place = tensor
                .shape
                .iter()
                .zip(&at)
                .fold(0, |place, (size, at)| place * size + at) as usize;
            wanted.extend_from_slice(&tensor.bytes[place * element..(place + 1) * element]);
            for dimension in (0..at.len()).rev() {
                at[dimension] += 1;
                if at[dimension] < region.start[dimension] + region.size[dimension] {
                    break;
                }
                at[dimension] = region.start[dimension];
            }
        }
        let mut memory = vec![0; wanted.len()];
        reader.read_box(&tensor.name, &region, &mut memory)?;
        prop_assert!(
            memory == wanted,
            "{region:?} of {:?} is wrong",
            tensor.shape
        );
    }
    Ok(())
}

fn holds(store: &Store, tensors: &[Tensor]) -> TestCaseResult {
    checkpoints::compare(&store.get(1_000_000)?, tensors).map_err(TestCaseError::fail)?;
    let space = store.space();
    prop_assert_eq!(space.session_bytes, 0, "{:?}", space);
    Ok(())
}

#[test]
fn what_was_saved_on_files_comes_back() {
    // In memory where that can be: this is about bytes, and a disk makes it slow.
    let folder = Place::Memory.folder().unwrap_or_else(fixtures::folder);
    let bytes = DATA_BYTES + checkpoints::MEMBER_ENDS_BYTES;
    let paths = fixtures::members(folder.path(), MEMBERS_MAX, bytes);
    // Each in its turn, but Linux AIO rarely: ending one of its queues waits for all processors, and
    // a store has many.
    let backends: Vec<_> = fixtures::backends()
        .iter()
        .flat_map(|backend| match backend {
            Backend::Aio => vec![*backend],
            _ => vec![*backend; 4],
        })
        .collect();
    let backends = select(backends);
    check(24, (a_case(), backends), |(case, backend)| {
        let members = &paths[..case.members];
        let store = checkpoints::store_on_files(members, case.chunk_bytes, backend);
        make_holes(&store, &case.holes)?;
        let tensors = save(&store, &case)?;
        holds(&store, &tensors)?;
        drop(store);
        let store = checkpoints::reopen_on_files(members, backend);
        holds(&store, &tensors)?;
        check_parts(&store, &tensors)
    });
}

#[test]
fn what_was_saved_on_simulated_devices_comes_back() {
    check(40, (a_case(), any::<u64>()), |(case, seed)| {
        let mut sim = SimStore::new(seed, case.members, DATA_BYTES, case.chunk_bytes);
        make_holes(sim.store(), &case.holes)?;
        let tensors = save(sim.store(), &case)?;
        holds(sim.store(), &tensors)?;
        sim.reopen();
        holds(sim.store(), &tensors)?;
        check_parts(sim.store(), &tensors)
    });
}
