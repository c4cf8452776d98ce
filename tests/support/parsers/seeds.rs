//! The inputs that fuzzing begins with, made here and kept in `fuzz/seeds/TARGET/NAME`.
//!
//! - [`write`] makes them anew; `cargo run -p swath-tests --bin seeds` calls it. A test holds the files
//!   to what is made here, so that they follow when a format changes.
//! - A file whose name begins with `found-` is no seed of this generator: a fuzzer made it, and it
//!   reached something new or showed a bug. It stays.
//! - Seeds are small: good inputs of every kind, and such as claim more than there is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use swath_checkpoint::catalog::{Catalog, CheckpointEntry};
use swath_checkpoint::extent::{Extent, Run, UNIT_BYTES};
use swath_checkpoint::index::{BLOCK_BYTES, Index, TensorEntry};
use swath_checkpoint::place::{BlobPlace, StoreHeader};
use swath_checkpoint::safetensors::Header;
use swath_checkpoint::{CheckpointName, DType, Lease, Receipt};
use swath_volume::superblock::{MemberMap, encode};
use swath_volume::untrusted::encode_root_record;
use swath_volume::{ROOT_BYTES_MAX, RootRecord, Superblock, Uuid};

use super::checkpoint::{LEASED, sealed_blob};
use super::patches::change;
use super::volume::{DEVICE_BYTES, superblocks};

/// A seed: its name, and its bytes.
pub type Seed = (String, Vec<u8>);

/// How the names of inputs begin that a fuzzer made.
pub const FOUND: &str = "found-";

/// Where seeds lie.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds")
}

/// The seeds of a target.
///
/// # Panics
///
/// When there is no such target.
pub fn of(target: &str) -> Vec<Seed> {
    match target {
        "superblock" => superblock(),
        "members" => members(),
        "root_record" => root_record(),
        "root_history" => root_history(),
        "signature" => signature(),
        "store_header" => store_header(),
        "catalog" => catalog(),
        "index" => index(),
        "lease" => lease(),
        "names" => names(),
        "safetensors_header" => safetensors_header(),
        "shard_index" => shard_index(),
        "file_list" => file_list(),
        _ => panic!("there is no parser {target:?}"),
    }
}

/// The seeds of a target as they lie in the repository, those of a fuzzer among them, in the order of
/// their names.
///
/// # Errors
///
/// They cannot be read.
pub fn stored(target: &str) -> io::Result<Vec<Seed>> {
    let mut seeds = Vec::new();
    for entry in fs::read_dir(folder().join(target))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        seeds.push((name.into_owned(), fs::read(&path)?));
    }
    seeds.sort();
    Ok(seeds)
}

/// Writes the seeds of all targets, and removes those that are made no more.
///
/// # Errors
///
/// They cannot be written.
pub fn write() -> io::Result<()> {
    for target in super::TARGETS {
        let folder = folder().join(target.name);
        fs::create_dir_all(&folder)?;
        for (name, _) in stored(target.name)? {
            if !name.starts_with(FOUND) {
                fs::remove_file(folder.join(name))?;
            }
        }
        for (name, bytes) in of(target.name) {
            fs::write(folder.join(name), bytes)?;
        }
    }
    Ok(())
}

fn named(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Seed {
    (name.into(), bytes.into())
}

/// A block without the zeroes at its end, its checksum among them: it is put right anyway.
fn trimmed(block: &[u8]) -> Vec<u8> {
    let body = &block[..4092];
    let end = body
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1);
    body[..end].to_vec()
}

/// `seed` with `bytes` at `offset`.
fn with(name: impl Into<String>, seed: &Seed, offset: usize, bytes: &[u8]) -> Seed {
    let mut changed = seed.1.clone();
    changed.resize(changed.len().max(offset + bytes.len()), 0);
    changed[offset..offset + bytes.len()].copy_from_slice(bytes);
    named(name, changed)
}

fn superblock() -> Vec<Seed> {
    let map = MemberMap::new(DEVICE_BYTES).expect("a size that a member can have");
    let block = |superblock: &Superblock, copy: u32| {
        trimmed(&encode(superblock, copy, map.copy_offset(copy as usize)))
    };
    let one = superblocks(1, 1).remove(0);
    let mut seeds: Vec<Seed> = (0..4)
        .map(|copy| named(format!("copy-{copy}"), block(&one, copy)))
        .collect();
    let many = superblocks(128, u64::MAX).remove(127);
    seeds.push(named("of-128-members", block(&many, 3)));
    let mut long = one.clone();
    long.name = "☂".repeat(21);
    long.block_bytes = 4096;
    seeds.push(named("long-name", block(&long, 1)));
    let whole = encode(&one, 2, map.copy_offset(2));
    seeds.push(named("with-its-checksum", whole));
    let good = seeds[0].clone();
    let changes: [(&str, usize, &[u8]); 12] = [
        ("next-version", 8, &2_u32.to_le_bytes()),
        ("other-length", 12, &u32::MAX.to_le_bytes()),
        ("compat-feature", 16, &[1]),
        ("ro-compat-feature", 24, &[1]),
        ("incompat-feature", 32, &[1]),
        ("member-of-none", 72, &u32::MAX.to_le_bytes()),
        ("claims-members", 76, &u32::MAX.to_le_bytes()),
        ("huge-chunk", 80, &(1_u64 << 63).to_le_bytes()),
        ("huge-data", 104, &u64::MAX.to_le_bytes()),
        ("huge-device", 112, &((1_u64 << 63) - 1).to_le_bytes()),
        ("name-without-end", 192, &[b'n'; 64]),
        ("padding", 160, &[1]),
    ];
    seeds.extend(changes.map(|(name, offset, bytes)| with(name, &good, offset, bytes)));
    seeds.push(named("other", b"\x55\xaa".to_vec()));
    seeds
}

/// The offset and width of the fields of a superblock that rules over several look at.
const SHARED_FIELDS: [(&str, u16, u8, u64); 10] = [
    ("compat", 16, 8, 1 << 40),
    ("ro-compat", 24, 8, 1),
    ("incompat", 32, 8, 1),
    ("volume", 40, 8, 9),
    ("member-index", 72, 4, 2),
    ("chunk", 80, 8, 4096),
    ("data", 104, 8, 64 << 10),
    ("created", 120, 8, 1),
    ("generation", 128, 8, 6),
    ("name", 192, 4, 0x0064_6c6f),
];

fn members() -> Vec<Seed> {
    let input = |older: u8, there: u8, changes: &[Vec<u8>]| {
        [&[older, there][..], &changes.concat()].concat()
    };
    let all = 0b11_10_01_00;
    let mut seeds = vec![
        named("whole", input(0, 0, &[])),
        named("in-another-order", input(0, 0b11_00_01_10, &[])),
        named("one-missing", input(0, 0b11_11_01_00, &[])),
        named("one-twice", input(0, 0b01_10_01_00, &[])),
        named("update-in-step-1", input(0b11_11_10, all, &[])),
        named("update-in-step-2", input(0b10_10_10, all, &[])),
        named("stale-member", input(0b11_00_00, all, &[])),
        named("torn-copy", input(0, 0, &[change(3, 2000, 8, 1, true)])),
        named("blank-copy", input(0, 0, &[change(5, 0, 0, 0, false)])),
        named(
            "all-copies-of-one-blank",
            input(
                0,
                0,
                &[0, 1, 2, 3].map(|block| change(block, 0, 0, 0, false)),
            ),
        ),
    ];
    for (name, offset, width, value) in SHARED_FIELDS {
        let one = [change(4, offset, width, value, false)];
        seeds.push(named(format!("{name}-of-one-copy"), input(0, 0, &one)));
        let all = [4, 5, 6, 7].map(|block| change(block, offset, width, value, false));
        seeds.push(named(format!("{name}-of-one-member"), input(0, 0, &all)));
    }
    seeds
}

fn root_record() -> Vec<Seed> {
    let member = superblocks(3, 5).remove(1);
    let block = |in_tail, epoch, sequence, length, previous| {
        let payload = (0..length).map(|i: usize| (i % 251) as u8 + 1).collect();
        let record = RootRecord {
            epoch,
            sequence,
            payload,
        };
        let encoded = encode_root_record(&member, in_tail, &record, previous);
        trimmed(&encoded.expect("a member that can be").1[..])
    };
    let largest = (1 << 63) - 1;
    let mut seeds = vec![
        named("first", block(false, 1, 1, 40, 0)),
        named("first-in-tail", block(true, 1, 1, 40, 0)),
        named("empty", block(false, 1, 2, 0, 7)),
        named("full", block(true, 3, 64, ROOT_BYTES_MAX, 7)),
        named("last-there-can-be", block(false, largest, largest, 5, 7)),
    ];
    let good = seeds[0].clone();
    let changes: [(&str, usize, &[u8]); 10] = [
        ("next-version", 8, &[2]),
        ("other-volume", 16, &[9]),
        ("member-of-none", 48, &u32::MAX.to_le_bytes()),
        ("third-ring", 52, &[2]),
        ("epoch-zero", 56, &[0; 8]),
        ("sequence-too-large", 64, &u64::MAX.to_le_bytes()),
        ("own-offset", 72, &[1]),
        ("first-after-another", 80, &[1]),
        ("claims-payload", 84, &u32::MAX.to_le_bytes()),
        ("padding", 300, &[1]),
    ];
    seeds.extend(changes.map(|(name, offset, bytes)| with(name, &good, offset, bytes)));
    seeds
}

fn root_history() -> Vec<Seed> {
    let input = |missing: [u8; 2], changes: &[Vec<u8>]| [&missing[..], &changes.concat()].concat();
    // Blocks 30 to 35 are those of the last record: two of each member.
    let last = |offset, width, value, keeps| {
        (30..36)
            .map(|block| change(block, offset, width, value, keeps))
            .collect::<Vec<_>>()
    };
    vec![
        named("whole", input([0, 0], &[])),
        named("in-step-a", input([0b11_11_10, 0], &[])),
        named("in-step-b", input([0b10_10_10, 0], &[])),
        named("tail-only", input([0b01_01_01, 0], &[])),
        named("one-member-stale", input([0b11_00_00, 0b11_00_00], &[])),
        named("one-member-last", input([0b11_11_00, 0b11_11_11], &[])),
        named("last-damaged", input([0, 0], &last(300, 1, 1, true))),
        named("last-blank", input([0, 0], &last(0, 0, 0, false))),
        named("last-newer-version", input([0, 0], &last(8, 4, 2, false))),
        named("fork", input([0, 0], &[change(35, 256, 8, 1, false)])),
        named("not-the-one-before", input([0, 0], &last(80, 4, 1, false))),
        named("epoch-of-all", input([0, 0], &last(56, 8, 9, false))),
        named("epoch-falls", input([0, 0], &last(56, 8, 1, false))),
        named(
            "epoch-last",
            input([0, 0], &last(56, 8, (1 << 63) - 1, false)),
        ),
        named(
            "sequence-far",
            input([0, 0], &last(64, 8, 64 * 5 + 6, false)),
        ),
        named("sequence-back", input([0, 0], &last(64, 8, 70, false))),
        named(
            "first-damaged",
            input([0, 0], &[change(0, 100, 1, 1, true)]),
        ),
        named("empty-payload", input([0, 0], &last(84, 4, 0, false))),
    ]
}

/// A device of this size with these bytes at these places: negative ones count from the end.
fn device(device_bytes: u64, pieces: &[(i64, &[u8])]) -> Vec<u8> {
    let is_far = |(place, _): &(i64, &[u8])| !(-(384 << 10)..384 << 10).contains(place);
    let most = if pieces.iter().any(is_far) {
        2 << 20
    } else {
        384 << 10
    };
    let mut input = device_bytes.to_le_bytes().to_vec();
    input.push(u8::from(most < 2 << 20));
    let area_bytes = device_bytes.min(most) as i64;
    for &(place, bytes) in pieces {
        for (number, part) in (0..).zip(bytes.chunks(255)) {
            let at = place + 255 * number;
            let (in_tail, at) = if at < 0 {
                (1 << 31, at + area_bytes)
            } else {
                (0, at)
            };
            input.extend((in_tail | at as u32).to_le_bytes());
            input.push(part.len() as u8);
            input.extend(part);
        }
    }
    input
}

fn signature() -> Vec<Seed> {
    const MD: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
    const ZFS: [u8; 8] = 0x00ba_b10c_u64.to_le_bytes();
    let md = |version: u8, label: &[u8]| [&MD[..], &[version, 0, 0, 0], &[0; 24], label].concat();
    let of = |pieces: &[(i64, &[u8])]| device(DEVICE_BYTES, pieces);
    let map = MemberMap::new(DEVICE_BYTES).expect("a size that a member can have");
    let ours = superblocks(2, 3).remove(1);
    let own = encode(&ours, 0, map.copy_offset(0));
    let end = encode(&ours, 3, map.copy_offset(3));
    let end_at = map.copy_offset(3) as i64 - DEVICE_BYTES as i64;
    let labelled = |magic: &[u8], at: usize, label: &[u8]| {
        let mut bytes = magic.to_vec();
        bytes.resize(at, 0);
        bytes.extend(label);
        bytes
    };
    vec![
        named("blank", of(&[])),
        named("nothing", device(0, &[])),
        named("one-byte", device(1, &[(0, &[1])])),
        named("as-large-as-can-be", device(u64::MAX, &[(5, &[1])])),
        named("last-byte", of(&[(-1, &[1])])),
        // Its padding is zero anyway: the first 3072 bytes and the checksum.
        named(
            "ours",
            of(&[(1 << 20, &own[..1100]), ((1 << 20) + 4092, &own[4092..])]),
        ),
        named("ours-damaged", of(&[(1 << 20, &own[..300])])),
        named(
            "ours-at-the-end",
            of(&[(end_at, &end[..1100]), (end_at + 4092, &end[4092..])]),
        ),
        named("md-1.1", of(&[(0, &md(1, b"array\x1b[2J"))])),
        named("md-1.2", of(&[(4096, &md(1, b"host:0"))])),
        named("md-1.0", of(&[(-8192, &md(1, b""))])),
        named("md-0.90", of(&[(-65536, &md(0, b""))])),
        named("gpt", of(&[(512, b"EFI PART")])),
        named("gpt-backup", of(&[(-512, b"EFI PART")])),
        named(
            "mbr",
            of(&[(446, &[0x80, 0, 0, 0, 0x83]), (510, &[0x55, 0xaa])]),
        ),
        named("boot-sector", of(&[(510, &[0x55, 0xaa])])),
        named("ntfs", of(&[(3, b"NTFS    "), (510, &[0x55, 0xaa])])),
        named("fat", of(&[(82, b"FAT32"), (510, &[0x55, 0xaa])])),
        named(
            "ext4",
            of(&[
                (1080, &[0x53, 0xef]),
                (1120, &[0x40]),
                (1144, b"root\"\n\xff"),
            ]),
        ),
        named("ext2", of(&[(1080, &[0x53, 0xef])])),
        named("zfs", of(&[(128 << 10, &ZFS)])),
        named("zfs-at-the-end", of(&[(-(128 << 10), &ZFS)])),
        named("xfs", of(&[(0, &labelled(b"XFSB", 108, b"scratch\x07"))])),
        named(
            "btrfs",
            of(&[(0x1_0040, &labelled(b"_BHRfS_M", 0xeb, &[0xfe; 200]))]),
        ),
        named("luks", of(&[(0, b"LUKS\xba\xbe")])),
        named("lvm", of(&[(512, &labelled(b"LABELONE", 24, b"LVM2 001"))])),
        named("swap", of(&[(4086, b"SWAPSPACE2")])),
        named("iso", of(&[(32769, b"CD001")])),
    ]
}

fn extents(count: u64) -> Vec<Extent> {
    (0..count)
        .map(|number| Extent::new(2 * number * UNIT_BYTES, UNIT_BYTES))
        .collect()
}

fn store_header() -> Vec<Seed> {
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

fn catalog() -> Vec<Seed> {
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

fn index() -> Vec<Seed> {
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

fn lease() -> Vec<Seed> {
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

fn names() -> Vec<Seed> {
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

/// A file's prefix, and a header.
fn with_prefix(json: &str) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat()
}

fn safetensors_header() -> Vec<Seed> {
    let laid_out = |metadata: Option<Vec<(String, String)>>, names: &[(&str, DType, &[u64])]| {
        let tensors = names
            .iter()
            .map(|(name, dtype, shape)| ((*name).to_owned(), *dtype, shape.to_vec()));
        let header = Header::lay_out(metadata, tensors.collect::<Vec<_>>());
        header
            .and_then(|header| header.encode())
            .expect("tensors that can be")
    };
    let metadata = vec![
        ("format".to_owned(), "pt".to_owned()),
        ("\u{1} \"☂\\".to_owned(), String::new()),
    ];
    let plain = |shape: &str, begin: &str, end: &str| {
        format!(r#"{{"a":{{"dtype":"U8","shape":{shape},"data_offsets":[{begin},{end}]}}}}"#)
    };
    let texts = [
        ("spaces", " { } ".to_owned()),
        ("padded", format!("{}   ", plain("[2]", "0", "2"))),
        ("other-order", r#"{"b":{"data_offsets":[1,2],"shape":[1],"dtype":"U8"},"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}"#.to_owned()),
        ("key-twice", r#"{"a":{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}}"#.to_owned()),
        ("tensor-twice", r#"{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#.to_owned()),
        ("metadata-twice", r#"{"__metadata__":{},"__metadata__":{}}"#.to_owned()),
        ("hole", plain("[1]", "1", "2")),
        ("backwards", plain("[1]", "2", "1")),
        ("wraps", plain("[18446744073709551615,2]", "0", "18446744073709551615")),
        ("dimensions", plain(&format!("[{}0]", "0,".repeat(400)), "0", "0")),
        ("number-too-large", plain("[1e400]", "0", "1")),
        ("deep", format!(r#"{{"a":{}"#, "[".repeat(300))),
        ("escaped-name", r#"{"\u0041\ud83d\ude00\n":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}"#.to_owned()),
        ("half-a-character", r#"{"\ud83d":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}"#.to_owned()),
        ("unknown-field", r#"{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1],"x":1}}"#.to_owned()),
        ("many-keys", format!(r#"{{"__metadata__":{{{}"z":""}}}}"#, r#""":"","#.repeat(300))),
        ("many-tensors", format!("{{{}", r#""":{"dtype":"","shape":[],"data_offsets":[0,0]},"#.repeat(60))),
    ];
    let mut seeds = vec![
        named("empty", laid_out(None, &[])),
        named("one", laid_out(None, &[("a", DType::F32, &[2, 3])])),
        named(
            "several",
            laid_out(
                Some(metadata),
                &[
                    ("w", DType::Bf16, &[4, 4]),
                    ("s", DType::U8, &[]),
                    ("e", DType::I64, &[0, 3]),
                    ("f", DType::F4, &[2]),
                ],
            ),
        ),
        named("claims-length", [0xff; 16]),
    ];
    seeds.extend(texts.map(|(name, text)| named(name, with_prefix(&text))));
    seeds
}

fn shard_index() -> Vec<Seed> {
    let texts = [
        ("two-files", r#"{"metadata":{"total_size":3},"weight_map":{"a":"1.safetensors","b":"2.safetensors","c":"1.safetensors"}}"#.to_owned()),
        ("empty", r#"{"weight_map":{}}"#.to_owned()),
        ("parent", r#"{"weight_map":{"a":".."}}"#.to_owned()),
        ("above", r#"{"weight_map":{"a":"../x"}}"#.to_owned()),
        ("absolute", r#"{"weight_map":{"a":"/etc/passwd"}}"#.to_owned()),
        ("escaped-separator", r#"{"weight_map":{"a":"..\u002fx"}}"#.to_owned()),
        ("nul", r#"{"weight_map":{"a":"x\u0000"}}"#.to_owned()),
        ("no-name", r#"{"weight_map":{"a":""}}"#.to_owned()),
        ("twice", r#"{"weight_map":{"a":"x","a":"y"}}"#.to_owned()),
        ("map-twice", r#"{"weight_map":{"a":"x"},"weight_map":{}}"#.to_owned()),
        ("number", r#"{"weight_map":{"a":1}}"#.to_owned()),
        ("list", r#"[{"a":"x"}]"#.to_owned()),
        ("no-map", r#"{"metadata":{}}"#.to_owned()),
        ("deep", format!(r#"{{"metadata":{}"#, "[".repeat(300))),
        ("long-name", format!(r#"{{"weight_map":{{"a":"{}"}}}}"#, "n".repeat(256))),
        ("many", format!(r#"{{"weight_map":{{{}"z":""}}}}"#, (0..200).map(|n| format!(r#""{n}":"f","#)).collect::<String>())),
    ];
    texts.map(|(name, text)| named(name, text)).into()
}

fn file_list() -> Vec<Seed> {
    let texts = [
        ("empty", r#"{"version":1,"files":[]}"#.to_owned()),
        ("two", r#"{"version":1,"files":[{"name":"a.safetensors","length":88,"kind":"safetensors","tensor":".swath/header/0"},{"name":"é \"b\"","length":0,"kind":"raw","tensor":"b"}]}"#.to_owned()),
        ("next-version", r#"{"version":2,"files":7}"#.to_owned()),
        ("no-version", r#"{"files":[]}"#.to_owned()),
        ("more", r#"{"version":1,"files":[],"more":1}"#.to_owned()),
        ("kind", r#"{"version":1,"files":[{"name":"a","length":1,"kind":"link","tensor":"a"}]}"#.to_owned()),
        ("length", r#"{"version":1,"files":[{"name":"a","length":18446744073709551616,"kind":"raw","tensor":"a"}]}"#.to_owned()),
        ("version-twice", r#"{"version":1,"version":1,"files":[]}"#.to_owned()),
        ("as-lists", r#"[1,[["a",1,"raw","a"]]]"#.to_owned()),
        ("deep", "[".repeat(300)),
        ("many", format!(r#"{{"version":1,"files":[{}"#, r#"{"name":"","length":0,"kind":"raw","tensor":""},"#.repeat(60))),
    ];
    texts.map(|(name, text)| named(name, text)).into()
}
