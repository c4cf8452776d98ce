//! A store of format version 1, as it was written once, opened by the program of today.
//!
//! What could go wrong: a change to what is on media that still calls itself version 1.
//!
//! `tests/fixtures/v1/m0.runs` and `m1.runs` are its members without their zeroes: for each run of
//! bytes with less than 16 zeroes in a row its offset (u64), its length (u32), and the bytes; all
//! little-endian. They were made by
//!
//! ```console
//! $ SWATH_WRITE_FIXTURE=1 cargo test -p swath-tests --test integration -- --ignored store::fixture
//! ```
//!
//! and are made again only for a new version of the format, in a folder of its own.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use swath_checkpoint::{BeginOptions, CheckpointName, DType, FormatOptions, ReadOptions, Store};
use swath_engine::Backend;
use swath_tests::checkpoints::{self, Tensor, assert_store_holds};
use swath_tests::fixtures;
use swath_volume::{CreateOptions, OpenOptions, Uuid, Volume};

use super::MIB;

const MEMBER_BYTES: u64 = 6 << 20;
/// So many zeroes end a run.
const GAP: usize = 16;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/v1")
}

fn names() -> [String; 2] {
    ["m0".to_owned(), "m1".to_owned()]
}

/// What it holds. The large tensor is nearly all zeroes, and so costs nothing here.
fn state() -> Vec<(CheckpointName, Vec<Tensor>)> {
    let mut large = Tensor::shaped("layers.0.weight", DType::F16, &[3, 250_000], 0);
    large.bytes.fill(0);
    for (place, byte) in [(0, 1), (MIB - 1, 2), (MIB, 3), (1_499_999, 4)] {
        large.bytes[place] = byte;
    }
    let mut small: Vec<_> = DType::all()
        .zip(1..)
        .map(|(dtype, mark)| Tensor::shaped(dtype.name(), dtype, &[4, 2], mark))
        .collect();
    small.push(Tensor::shaped("scalar ☂", DType::F64, &[], 90));
    small.push(Tensor::shaped("empty", DType::I64, &[0, 3], 91));
    vec![
        ("before the merge".parse().unwrap(), small),
        (120.into(), vec![large, Tensor::new("bias", 5_000, 92)]),
    ]
}

fn metadata() -> Vec<(String, String)> {
    vec![
        ("run".to_owned(), "seven".to_owned()),
        ("naïve".to_owned(), "☂".to_owned()),
    ]
}

fn encode(member: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::new();
    let mut from = 0;
    while let Some(start) = member[from..].iter().position(|byte| *byte != 0) {
        let start = from + start;
        let rest = &member[start..];
        let length = rest
            .windows(GAP)
            .position(|window| window.iter().all(|byte| *byte == 0))
            .unwrap_or(rest.len());
        encoded.extend((start as u64).to_le_bytes());
        encoded.extend((length as u32).to_le_bytes());
        encoded.extend(&rest[..length]);
        from = start + length;
    }
    encoded
}

fn decode(mut encoded: &[u8]) -> Vec<u8> {
    let mut member = vec![0; MEMBER_BYTES as usize];
    while !encoded.is_empty() {
        let (head, rest) = encoded.split_at(12);
        let offset = u64::from_le_bytes(head[..8].try_into().unwrap()) as usize;
        let length = u32::from_le_bytes(head[8..].try_into().unwrap()) as usize;
        let (bytes, rest) = rest.split_at(length);
        member[offset..offset + length].copy_from_slice(bytes);
        encoded = rest;
    }
    member
}

/// The members of the fixture, as files in `target`.
fn unpack(target: &Path) -> Vec<PathBuf> {
    names()
        .iter()
        .map(|name| {
            let path = fixtures::member(target, name, MEMBER_BYTES);
            let encoded = fs::read(folder().join(name).with_extension("runs")).unwrap();
            fs::write(&path, decode(&encoded)).unwrap();
            path
        })
        .collect()
}

#[test]
#[ignore = "writes the fixture; only for a new version of the format"]
fn the_fixture_is_written() {
    assert!(
        env::var_os("SWATH_WRITE_FIXTURE").is_some(),
        "this writes over the fixture: set SWATH_WRITE_FIXTURE=1"
    );
    let target = fixtures::folder();
    let members: Vec<_> = names()
        .iter()
        .map(|name| fixtures::member(target.path(), name, MEMBER_BYTES))
        .collect();
    let options = CreateOptions {
        name: "fixture".to_owned(),
        uuid: Uuid::from_u128(0x1111),
        created_unix_s: 1_700_000_000,
        chunk_bytes: 64 << 10,
        ..CreateOptions::default()
    };
    let volume = Volume::create(&members, &options).unwrap();
    let options = FormatOptions {
        store_uuid: Uuid::from_u128(0x2222),
        ..FormatOptions::default()
    };
    let store = Store::format(volume, &options).unwrap();
    for (number, (name, tensors)) in (0..).zip(state()) {
        let options = BeginOptions {
            metadata: metadata(),
            created_unix_s: Some(1_700_000_000 + number),
            ..BeginOptions::default()
        };
        checkpoints::save_with(&store, name, options, &tensors).unwrap();
    }
    store.set_pinned(120, true).unwrap();
    drop(store);
    fs::create_dir_all(folder()).unwrap();
    for (name, path) in names().iter().zip(&members) {
        let encoded = encode(&fs::read(path).unwrap());
        fs::write(folder().join(name).with_extension("runs"), encoded).unwrap();
    }
}

#[test]
fn a_store_of_version_1_is_read_and_written_on() {
    let target = fixtures::folder();
    let members = unpack(target.path());
    // First as it is, then after it was opened for writing.
    for read_only in [true, false, true] {
        let options = OpenOptions {
            read_only,
            ..OpenOptions::default()
        };
        let volume = Volume::open(&members, &options).unwrap();
        assert_eq!(volume.uuid(), Uuid::from_u128(0x1111));
        let store = Store::open(volume, &checkpoints::store_options(Backend::Auto)).unwrap();
        assert_eq!(store.uuid(), Uuid::from_u128(0x2222));
        assert_store_holds(&store, &state());
        for (number, info) in (0..).zip(store.list()) {
            assert_eq!(info.id, number + 1);
            assert_eq!(info.created_unix_s, 1_700_000_000 + number);
            assert_eq!(info.metadata, metadata());
            assert_eq!(info.pinned, info.name == 120.into());
        }
        let checkpoint = store.get(120).unwrap();
        let entry = checkpoint.tensor("layers.0.weight").unwrap();
        assert_eq!(entry.block_count(), 2);
        let mut reader = checkpoint.reader(ReadOptions::default()).unwrap();
        let mut bytes = [0; 2];
        reader
            .read_range("layers.0.weight", MIB as u64 - 1, &mut bytes)
            .unwrap();
        assert_eq!(bytes, [2, 3]);
    }
    let store = checkpoints::reopen_on_files(&members, Backend::Auto);
    let mut state = state();
    let new = vec![Tensor::new("new", 70_000, 5)];
    checkpoints::save(&store, 121, &new).unwrap();
    state.push((121.into(), new));
    drop(store);
    let store = checkpoints::reopen_on_files(&members, Backend::Auto);
    assert_store_holds(&store, &state);
}
