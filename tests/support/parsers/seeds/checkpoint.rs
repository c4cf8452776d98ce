//! What a store keeps on its volume, and what processes hand to each other.

use swath_checkpoint::catalog::{Catalog, CheckpointEntry};
use swath_checkpoint::extent::{Extent, Run, UNIT_BYTES};
use swath_checkpoint::index::{BLOCK_BYTES, Index, TensorEntry};
use swath_checkpoint::place::{BlobPlace, StoreHeader};
use swath_checkpoint::{CheckpointName, DType, Lease, Receipt};
use swath_volume::Uuid;

use super::super::checkpoint::{LEASED, sealed_blob};
use super::{Seed, named, with};

fn extents(count: u64) -> Vec<Extent> {
    (0..count)
        .map(|number| Extent::new(2 * number * UNIT_BYTES, UNIT_BYTES))
        .collect()
}

pub(super) fn store_header() -> Vec<Seed> {
    let header = |count: u64, commit| {
        let catalog = BlobPlace {
            extents: extents(count),
            length: count * UNIT_BYTES - 100,
            checksum: 0x1234_5678,
        };
        let header = StoreHeader {
            store_uuid: Uuid::from_u128(7),
            commit,
            catalog,
        };
        header.encode()
    };
    let mut seeds = vec![
        named("one-extent", header(1, 1)),
        named("three-extents", header(3, 2)),
        named("most-extents", header(128, (1 << 63) - 1)),
    ];
    let good = seeds[0].clone();
    let changes: [(&str, usize, &[u8]); 10] = [
        ("next-version", 8, &[2]),
        ("reserved", 12, &[1]),
        ("uuid-zero", 16, &[0; 16]),
        ("commit-zero", 32, &[0; 8]),
        ("commit-too-large", 32, &[0xff; 8]),
        ("claims-length", 40, &u64::MAX.to_le_bytes()),
        ("claims-extents", 52, &u32::MAX.to_le_bytes()),
        ("extent-beyond", 56, &(u64::MAX - 4095).to_le_bytes()),
        ("extent-empty", 64, &[0; 8]),
        ("one-byte-more", 72, &[0]),
    ];
    seeds.extend(changes.map(|(name, offset, bytes)| with(name, &good, offset, bytes)));
    seeds.push(named("of-somebody-else", b"another payload".to_vec()));
    seeds.push(named("cut-short", &good.1[..60]));
    seeds
}

fn entry(id: u64, name: &str, metadata: &[(&str, &str)]) -> CheckpointEntry {
    let first = id * 64 * UNIT_BYTES;
    let at = |unit: u64, units: u64| Extent::new(first + unit * UNIT_BYTES, units * UNIT_BYTES);
    let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    CheckpointEntry {
        id,
        name: name.parse().expect("a name that can be"),
        created_unix_s: 1_700_000_000,
        pinned: id.is_multiple_of(2),
        metadata: metadata.iter().map(text).collect(),
        tensor_count: 3,
        data_bytes: 5000,
        extents: vec![at(0, 2), at(4, 1), at(5, 1)],
        index: BlobPlace {
            extents: vec![at(5, 1), at(4, 1)],
            length: UNIT_BYTES + 1,
            checksum: 0x9abc_def0,
        },
    }
}

pub(super) fn catalog() -> Vec<Seed> {
    let of = |entries: Vec<CheckpointEntry>| {
        let mut catalog = Catalog::new(Uuid::from_u128(7));
        for mut entry in entries {
            entry.id = catalog.reserve_id();
            catalog.push(entry).expect("a checkpoint that can be");
            catalog.advance();
        }
        catalog.encode()
    };
    let mut seeds = vec![
        named("empty", of(vec![])),
        named("one-step", of(vec![entry(1, "120", &[])])),
        named(
            "one-name",
            of(vec![entry(
                1,
                "before the merge ☂",
                &[("run", "seven"), ("", "")],
            )]),
        ),
        named(
            "several",
            of(vec![
                entry(1, "1", &[]),
                entry(2, "two", &[("k", "v")]),
                entry(3, "3", &[]),
            ]),
        ),
    ];
    let good = seeds[1].clone();
    // A checkpoint begins at 64.
    let changes: [(&str, usize, &[u8]); 16] = [
        ("next-version", 8, &[2]),
        ("uuid-zero", 24, &[0; 16]),
        ("commit-last", 40, &u64::MAX.to_le_bytes()),
        ("next-id-last", 48, &u64::MAX.to_le_bytes()),
        ("claims-checkpoints", 56, &u32::MAX.to_le_bytes()),
        (
            "claims-a-million-checkpoints",
            56,
            &(1_u32 << 20).to_le_bytes(),
        ),
        ("id-zero", 64, &[0; 8]),
        ("claims-tensors", 80, &u64::MAX.to_le_bytes()),
        ("claims-data", 88, &u64::MAX.to_le_bytes()),
        ("claims-name", 104, &4096_u32.to_le_bytes()),
        ("flags", 108, &[0xfe]),
        ("claims-extents", 112, &(1_u32 << 24).to_le_bytes()),
        ("claims-metadata", 116, &(16_u32 << 20).to_le_bytes()),
        ("extent-wraps", 128, &(u64::MAX - 4095).to_le_bytes()),
        ("claims-index", 168, &(1_u64 << 34).to_le_bytes()),
        ("claims-index-extents", 180, &u32::MAX.to_le_bytes()),
    ];
    seeds.extend(changes.map(|(name, offset, bytes)| with(name, &good, offset, bytes)));
    seeds.push(named("cut-short", &good.1[..100]));
    seeds.push(named("with-its-checksum", sealed_blob(&good.1)));
    // Its metadata begins at 216, behind extents and index: empty keys and values, eight bytes each.
    let mut many = with("many-empty-keys", &good, 116, &300_u32.to_le_bytes());
    many.1.resize(216 + 8 * 300, 0);
    seeds.push(many);
    seeds
}

fn tensor(name: &str, dtype: DType, shape: &[u64], offset: u64) -> TensorEntry {
    let length = dtype.tensor_bytes(shape).expect("a shape that can be");
    let blocks = length.div_ceil(BLOCK_BYTES);
    let runs = match length {
        0 => vec![],
        1 => vec![Run::new(offset, 1)],
        _ => vec![Run::new(offset + length, length - 1), Run::new(offset, 1)],
    };
    TensorEntry {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
        length,
        runs,
        checksums: (0..blocks)
            .map(|block| 0x1111_1111 * block as u32)
            .collect(),
    }
}

pub(super) fn index() -> Vec<Seed> {
    let of = |tensors| {
        let index = Index::new(Uuid::from_u128(7), 9, tensors);
        index.expect("tensors that can be").encode()
    };
    let mut seeds = vec![
        named("empty", of(vec![])),
        named("one-byte", of(vec![tensor("a", DType::U8, &[1], 4096)])),
        named(
            "scalar",
            of(vec![tensor("scalar ☂", DType::F64, &[], 4096)]),
        ),
        named(
            "several",
            of(vec![
                tensor("a", DType::Bf16, &[3, 5], 4096),
                tensor("b", DType::F4, &[2], 8192),
                tensor("none", DType::I64, &[0, 3], 0),
            ]),
        ),
        named(
            "two-blocks",
            of(vec![tensor("t", DType::U8, &[BLOCK_BYTES + 1], 4096)]),
        ),
        named(
            "most-dimensions",
            of(vec![tensor("t", DType::U8, &[1; 64], 4096)]),
        ),
        named(
            "long-name",
            of(vec![tensor(&"n".repeat(4096), DType::U8, &[2], 4096)]),
        ),
    ];
    let good = seeds[1].clone();
    // A tensor begins at 56; its dimension is at 80, its run at 88, its checksum at 104.
    let changes: [(&str, usize, &[u8]); 13] = [
        ("next-version", 8, &[2]),
        ("claims-tensors", 48, &u32::MAX.to_le_bytes()),
        (
            "claims-16-million-tensors",
            48,
            &(1_u32 << 24).to_le_bytes(),
        ),
        ("reserved", 52, &[1]),
        ("claims-blocks", 56, &((1_u64 << 63) - 1).to_le_bytes()),
        ("claims-name", 64, &4096_u32.to_le_bytes()),
        ("other-type", 68, &[99]),
        ("claims-dimensions", 70, &u16::MAX.to_le_bytes()),
        ("claims-runs", 72, &(1_u32 << 24).to_le_bytes()),
        ("dimension-wraps", 80, &(1_u64 << 63).to_le_bytes()),
        ("run-wraps", 88, &u64::MAX.to_le_bytes()),
        ("run-empty", 96, &[0; 8]),
        ("name-not-text", 108, &[0xff]),
    ];
    seeds.extend(changes.map(|(name, offset, bytes)| with(name, &good, offset, bytes)));
    seeds.push(named("cut-short", &good.1[..90]));
    seeds.push(named("with-its-checksum", sealed_blob(&good.1)));
    seeds
}

pub(super) fn lease() -> Vec<Seed> {
    let by_step = Lease {
        lease_id: 3,
        store_uuid: Uuid::from_u128(7),
        volume_uuid: Uuid::from_u128(8),
        root_epoch: 5,
        name: CheckpointName::Step(120),
        extents: LEASED.to_vec(),
        verify_source: false,
        allow_buffered: true,
    };
    let mut by_name = by_step.clone();
    by_name.name = CheckpointName::Name("☂ \"x\"\n".to_owned());
    let mut wrapping = by_step.clone();
    wrapping.extents = vec![Extent::new(u64::MAX, u64::MAX); 2];
    let first = LEASED[0].offset;
    let inside = tensor("a", DType::U8, &[100], first);
    let mut wraps = inside.clone();
    wraps.runs = vec![Run::new(u64::MAX, 100)];
    let lease = |lease: &Lease| serde_json::to_vec(lease).expect("a lease is plain data");
    let receipt = |tensors| {
        let receipt = Receipt {
            lease_id: 3,
            volume_uuid: Uuid::from_u128(8),
            root_epoch: 5,
            tensors,
        };
        serde_json::to_vec(&receipt).expect("a receipt is plain data")
    };
    vec![
        named("lease", lease(&by_step)),
        named("lease-by-name", lease(&by_name)),
        named("lease-wraps", lease(&wrapping)),
        named("receipt-empty", receipt(vec![])),
        named("receipt", receipt(vec![inside.clone()])),
        named(
            "receipt-of-two",
            receipt(vec![
                inside.clone(),
                tensor("b", DType::F32, &[2, 2], first + 200),
            ]),
        ),
        named(
            "receipt-across-extents",
            receipt(vec![tensor("b", DType::U8, &[9 * 1024], first)]),
        ),
        named("receipt-overlaps", receipt(vec![inside.clone(), inside])),
        named(
            "receipt-outside",
            receipt(vec![tensor("a", DType::U8, &[100], 0)]),
        ),
        named("receipt-wraps", receipt(vec![wraps])),
        named("deep", "[".repeat(300)),
        named(
            "other-type",
            String::from_utf8(receipt(vec![tensor("a", DType::U8, &[1], first)]))
                .expect("JSON is text")
                .replace("\"U8\"", "\"U9\""),
        ),
    ]
}

pub(super) fn names() -> Vec<Seed> {
    let texts = [
        ("step", "120"),
        ("step-0", "0"),
        ("last-step", "18446744073709551615"),
        ("step-too-large", "18446744073709551616"),
        ("leading-zero", "007"),
        ("name", "before the merge"),
        ("sign", "+5"),
        ("escape", "a\x1b[2J\nb"),
        ("nul", "a\0b"),
        ("greek", "Ελληνικά"),
        ("other-digits", "١٢٣"),
        ("path", "../x"),
        ("type", "BF16"),
        ("type-long", "F8_E4M3FNUZ"),
    ];
    let mut seeds: Vec<Seed> = texts.map(|(name, text)| named(name, text)).into();
    seeds.push(named("long", "n".repeat(4096)));
    seeds.push(named("too-long", "n".repeat(4097)));
    seeds
}
