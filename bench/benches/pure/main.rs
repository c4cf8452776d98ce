//! `cargo bench -p swath-bench --bench pure`: the parts that no drive is needed for.
//!
//! The stripe map, the superblock's codec, the checksum, and a lane with its slots: requests pushed
//! and polled over a queue that does nothing. What they cost on a ring, and together, is counted by
//! the bench `instructions`.

#[path = "../support/null.rs"]
mod null;
#[path = "../support/stream.rs"]
mod stream;

use std::hint::black_box;
use std::path::PathBuf;

use criterion::{BenchmarkId, Criterion, Throughput};
use criterion::{criterion_group, criterion_main};
use swath_bench::Pattern;
use swath_engine::{Backend, Lane, fill_incompressible};
use swath_volume::superblock::{DATA_OFFSET, HEAD_COPY_OFFSET, decode, encode};
use swath_volume::{CreateOptions, LAYOUT_RAID0, Layout, Superblock, Uuid, Volume, VolumeLane};

use self::null::NullPlatform;
use self::stream::{Shape, Stream, Way};

const MEMBER_BYTES: u64 = 64 << 20;
const CHUNK_BYTES: u64 = 1 << 20;
const MEMBER_COUNTS: [u32; 3] = [1, 4, 24];

/// Where the bytes of a request lie: in one chunk, which small ones do, and across several.
fn layout(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("layout");
    for members in MEMBER_COUNTS {
        let layout = Layout::new(members, CHUNK_BYTES, 1 << 40).expect("a plain layout");
        let mut segments = Vec::with_capacity(64);
        for (name, offset, length) in [
            ("4k in one chunk", (777 << 20) + 4096, 4096),
            ("1m across two chunks", (777 << 20) + 4096, 1 << 20),
            ("32m across 33 chunks", (777 << 20) + 4096, 32 << 20),
        ] {
            group.bench_function(BenchmarkId::new(name, members), |bencher| {
                bencher.iter(|| {
                    layout.segments(black_box(offset), length, DATA_OFFSET, &mut segments);
                    black_box(&segments);
                });
            });
        }
    }
    group.finish();
}

fn superblock(criterion: &mut Criterion) {
    let superblock = Superblock {
        features_compat: 0,
        features_ro_compat: 0,
        features_incompat: 0,
        volume_uuid: Uuid::from_u128(1),
        name: "a volume".to_owned(),
        member_uuid: Uuid::from_u128(2),
        member_index: 0,
        chunk_bytes: CHUNK_BYTES,
        block_bytes: 512,
        layout_id: LAYOUT_RAID0,
        data_offset: DATA_OFFSET,
        data_bytes: 32 << 20,
        device_bytes: MEMBER_BYTES,
        created_unix_s: 1_700_000_000,
        generation: 1,
        copy_number: 0,
        own_offset: HEAD_COPY_OFFSET,
        member_uuids: (2..26).map(Uuid::from_u128).collect(),
    };
    let block = encode(&superblock, 0, HEAD_COPY_OFFSET);
    decode(&block, HEAD_COPY_OFFSET).expect("what was encoded is a superblock");
    let mut group = criterion.benchmark_group("superblock");
    group.bench_function("encode", |bencher| {
        bencher.iter(|| encode(black_box(&superblock), 0, HEAD_COPY_OFFSET));
    });
    group.bench_function("decode", |bencher| {
        bencher.iter(|| decode(black_box(&block), HEAD_COPY_OFFSET));
    });
    group.finish();
}

/// CRC-32, of metadata's blocks and of data's.
fn checksum(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("crc32");
    for (name, length) in [("4k", 4 << 10), ("1m", 1 << 20)] {
        let mut bytes = vec![0; length];
        fill_incompressible(&mut bytes, 1, 0);
        group.throughput(Throughput::Bytes(length as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| crc32fast::hash(black_box(&bytes)));
        });
    }
    group.finish();
}

/// Requests pushed and polled, their slots taken and given back, with nothing below the lane.
fn lane(criterion: &mut Criterion) {
    push_and_poll::<Lane>(criterion, "lane over bare members, null device");
    push_and_poll::<VolumeLane>(criterion, "lane over a volume, null device");
}

fn push_and_poll<W: Way>(criterion: &mut Criterion, name: &str) {
    let paths: Vec<PathBuf> = (0..4).map(|index| format!("m{index}").into()).collect();
    let platform = NullPlatform::new(MEMBER_BYTES);
    let volume = Volume::create_on(platform, &paths, &CreateOptions::default())
        .expect("a null device takes everything");
    let mut group = criterion.benchmark_group(name);
    for (what, pattern, block_bytes) in [
        ("4k read", Pattern::RandRead, 4 << 10),
        ("1m write", Pattern::Write, 1 << 20),
    ] {
        for batch in [1, 32, 128] {
            let shape = Shape {
                block_bytes,
                pattern,
                batch,
                depth: u32::try_from(batch).expect("a small number"),
            };
            let mut stream = Stream::<W>::open(&volume, Backend::Auto, shape)
                .expect("a null device has room for a lane");
            group.throughput(Throughput::Elements(batch as u64));
            group.bench_function(BenchmarkId::new(what, batch), |bencher| {
                bencher.iter(|| stream.run(batch).expect("a null device fails nothing"));
            });
        }
    }
    group.finish();
}

criterion_group!(pure, layout, superblock, checksum, lane);
criterion_main!(pure);
