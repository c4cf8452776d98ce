//! Superblocks, root records, and what other programs leave on devices.

use swath_volume::superblock::{MemberMap, encode};
use swath_volume::untrusted::encode_root_record;
use swath_volume::{ROOT_BYTES_MAX, RootRecord, Superblock};

use super::super::patches::change;
use super::super::volume::{DEVICE_BYTES, superblocks};
use super::{Seed, named, trimmed, with};

pub(super) fn superblock() -> Vec<Seed> {
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

pub(super) fn members() -> Vec<Seed> {
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

pub(super) fn root_record() -> Vec<Seed> {
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

pub(super) fn root_history() -> Vec<Seed> {
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

pub(super) fn signature() -> Vec<Seed> {
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
