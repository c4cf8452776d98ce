use proptest::prelude::*;

use super::*;
use crate::extent::UNIT_BYTES;

const STORE: Uuid = Uuid::from_u128(7);

type Change = fn(&mut CheckpointEntry);

fn entry(id: u64, name: impl Into<CheckpointName>) -> CheckpointEntry {
    let base = id * (16 << 20);
    CheckpointEntry {
        id,
        name: name.into(),
        created_unix_s: 1_700_000_000,
        pinned: id.is_multiple_of(2),
        metadata: vec![("format".into(), "pt".into()), ("a".into(), String::new())],
        tensor_count: 3,
        data_bytes: 5000,
        extents: vec![
            Extent::new(base, 2 * UNIT_BYTES),
            Extent::new(base + 3 * UNIT_BYTES, UNIT_BYTES),
        ],
        index: BlobPlace {
            extents: vec![Extent::new(base + 3 * UNIT_BYTES, UNIT_BYTES)],
            length: 300,
            checksum: 0x0102_0304,
        },
    }
}

fn catalog(names: &[&str]) -> Catalog {
    let mut catalog = Catalog::new(STORE);
    for name in names {
        let id = catalog.reserve_id();
        let name: CheckpointName = name.parse().unwrap();
        catalog.push(entry(id, 0)).unwrap();
        catalog.checkpoints.last_mut().unwrap().name = name;
    }
    catalog
}

#[test]
fn a_catalog_reads_back() {
    for names in [&[][..], &["7"], &["1", "best so far", "2", "0"]] {
        let mut catalog = catalog(names);
        catalog.advance();
        let decoded = Catalog::decode(&catalog.encode()).unwrap();
        assert_eq!(decoded, catalog);
        decoded.check_owner(STORE, 2).unwrap();
        assert!(decoded.check_owner(STORE, 1).is_err());
        assert!(decoded.check_owner(Uuid::from_u128(8), 2).is_err());
    }
}

/// The bytes on media are the format; a change of the code must not change them.
#[test]
fn the_bytes_are_those_of_the_table() {
    let blob = catalog(&["1", "ab"]).encode();
    assert_eq!(&blob[..12], b"SWCATLG\n\x01\0\0\0");
    assert_eq!(&blob[24..40], STORE.as_bytes());
    let words: Vec<u64> = blob[40..]
        .as_chunks()
        .0
        .iter()
        .map(|w| u64::from_le_bytes(*w))
        .collect();
    assert_eq!(words[..3], [1, 3, 2]);
    let base = 16 << 20;
    let first = [1, 1_700_000_000, 3, 5000, 1, 0, 2 | 2 << 32];
    assert_eq!(words[3..10], first);
    assert_eq!(words[10..14], [base, 8192, base + 12288, 4096]);
    assert_eq!(
        words[14..18],
        [300, 0x0102_0304 | 1 << 32, base + 12288, 4096]
    );
    assert_eq!(
        &blob[184..216],
        b"\x06\0\0\0\x02\0\0\0formatpt\x01\0\0\0\0\0\0\0a\0\0\0\0\0\0\0"
    );
    let second = [2, 1_700_000_000, 3, 5000, 0, 2 | 1 << 32, 2 | 2 << 32];
    assert_eq!(words[22..29], second);
    assert_eq!(&blob[336..338], b"ab");
}

#[test]
fn every_bit_flip_is_damage() {
    let mut blob = catalog(&["1", "best"]).encode();
    for bit in 0..blob.len() * 8 {
        blob[bit / 8] ^= 1 << (bit % 8);
        let error = Catalog::decode(&blob).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "bit {bit}");
        blob[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn checkpoints_come_and_go() {
    let mut catalog = catalog(&["10", "20", "best"]);
    let best: CheckpointName = "best".parse().unwrap();
    assert_eq!(catalog.latest().map(|e| &e.name), Some(&best));
    assert_eq!(catalog.find(&20.into()).map(|e| e.id), Some(2));
    assert_eq!(
        catalog.check_new(&20.into()).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    assert_eq!(catalog.extents().count(), 6);

    let removed = catalog.remove(&20.into()).unwrap();
    assert_eq!(removed.occupied_bytes(), 3 * UNIT_BYTES);
    let again = catalog.remove(&20.into()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::NotFound);
    assert_eq!(
        again.to_string(),
        "checkpoint 20: there is no such checkpoint"
    );
    catalog.set_pinned(&best, true).unwrap();
    assert!(catalog.find(&best).unwrap().pinned);
    assert!(catalog.set_pinned(&20.into(), true).is_err());

    // The name is free again; ids in use or never given out are refused.
    for id in [3, 4, u64::MAX >> 30] {
        let error = catalog.push(entry(id, 20)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(catalog.reserve_id(), 4);
    assert_eq!(catalog.reserve_id(), 5);
    catalog.push(entry(5, 30)).unwrap();
    catalog.push(entry(4, 20)).unwrap();
    assert_eq!(catalog.latest().map(|e| e.id), Some(4));
    assert_eq!(Catalog::decode(&catalog.encode()).unwrap(), catalog);
}

#[test]
fn entries_that_contradict_themselves_are_refused() {
    entry(1, 5).check().unwrap();
    let cases: &[(&str, Change)] = &[
        ("id", |e| e.id = 0),
        ("digits", |e| e.name = CheckpointName::Name("12".into())),
        ("empty", |e| e.name = CheckpointName::Name(String::new())),
        ("twice", |e| e.metadata[1].0 = "format".into()),
        ("16 MiB", |e| e.metadata[1].1 = "x".repeat(16 << 20)),
        ("tensors", |e| e.tensor_count = 1 << 25),
        ("overlap", |e| e.extents.swap(0, 1)),
        ("overlap", |e| e.extents[0].length = 4 * UNIT_BYTES),
        ("whole units", |e| e.extents[0].offset += 1),
        ("is empty", |e| e.extents[0].length = 0),
        ("more bytes", |e| e.data_bytes = 2 * UNIT_BYTES + 1),
        ("more bytes", |e| e.data_bytes = u64::MAX),
        ("more bytes", |e| e.extents.clear()),
        ("outside", |e| e.index.extents[0].offset -= UNIT_BYTES),
        ("outside", |e| e.index.extents[0].offset += UNIT_BYTES),
        ("add up", |e| e.index.length = UNIT_BYTES + 1),
        ("length", |e| e.index.length = 23),
        ("length", |e| e.index.length = u64::MAX),
    ];
    for (expected, change) in cases {
        let mut bad = entry(1, 5);
        change(&mut bad);
        let error = bad.check().unwrap_err();
        assert!(error.to_string().contains(expected), "{expected}: {error}");
        let mut catalog = Catalog::new(STORE);
        catalog.reserve_id();
        assert!(catalog.push(bad).is_err());
    }
}

/// What was sealed by a broken or hostile writer has a right checksum, and is looked at again.
/// A count that is at its end would wrap with the next commit, and the store with it.
#[test]
fn counters_at_their_end_are_damage() {
    let with = |at: usize, value: u64| {
        let mut body = catalog(&["1"]).encode()[ENVELOPE_BYTES..].to_vec();
        body[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let mut writer = codec::begin(MAGIC, VERSION, 0);
        writer.bytes(&body);
        Catalog::decode(&codec::seal(writer))
    };
    // The commit is at 16 of the body, the next id at 24.
    for at in [16, 24] {
        for value in [COUNTER_MAX + 1, u64::MAX] {
            let kind = with(at, value).unwrap_err().kind();
            assert_eq!(kind, ErrorKind::Damaged, "{value} at {at}");
        }
        let mut last = with(at, COUNTER_MAX).unwrap();
        last.advance();
        last.reserve_id();
    }
}

#[test]
fn sealed_nonsense_is_damage() {
    let names = ["1", "ab", "ac"];
    let reseal = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut body = catalog(&names).encode()[ENVELOPE_BYTES..].to_vec();
        change(&mut body);
        let mut writer = codec::begin(MAGIC, VERSION, 0);
        writer.bytes(&body);
        Catalog::decode(&codec::seal(writer))
    };
    assert!(reseal(&|_| {}).is_ok());
    // The first checkpoint begins at 40 of the body, the second at 192.
    let damaged: &[(usize, u8)] = &[
        (24, 1),
        (24, 3),
        (32, 2),
        (35, 0xff),
        (36, 1),
        (40, 0),
        (40, 2),
        (67, 1),
        (80, 1),
        (83, 0xff),
        (84, 2),
        (88, 1),
        (91, 0xff),
        (92, 3),
        (95, 0xff),
        (97, 1),
        (192, 1),
        (192, 3),
        (192 + 32, 1),
        (192 + 44, 2),
        (192 + 120, b'1'),
    ];
    for (at, value) in damaged {
        let result = reseal(&|body| {
            assert_ne!(body[*at], *value, "nothing changed at {at}");
            body[*at] = *value;
            if *at == 192 + 120 {
                body[*at + 1] = b'1';
            }
        });
        let kind = result.unwrap_err().kind();
        assert_eq!(kind, ErrorKind::Damaged, "{value} at {at}");
    }
    // The third checkpoint takes the name of the second.
    let at = 192 + 152;
    let twice = reseal(&|body| body[at + 121] = b'b').unwrap_err();
    assert!(twice.to_string().contains("twice"), "{twice}");
    assert!(reseal(&|body| body[16..24].fill(0)).is_err());
    assert!(reseal(&|body| body[..16].fill(0)).is_err());
    assert!(reseal(&|body| body.truncate(300)).is_err());
    assert!(reseal(&|body| body.extend([0; 8])).is_err());
}

fn any_entry() -> impl Strategy<Value = CheckpointEntry> {
    let name = prop_oneof![
        any::<u64>().prop_map(CheckpointName::Step),
        "[^\0]{0,20}[^\0-9]".prop_map(CheckpointName::Name),
    ];
    let metadata = prop::collection::hash_map(".{0,9}", ".{0,9}", 0..4);
    let gaps = prop::collection::vec((0..9_u64, 1..9_u64), 1..5);
    (name, metadata, gaps, any::<[u64; 2]>(), any::<bool>()).prop_map(
        |(name, metadata, gaps, [created_unix_s, seed], pinned)| {
            let mut end = 0;
            let mut extents = Vec::new();
            for (gap, length) in gaps {
                extents.push(Extent::new((end + gap) * UNIT_BYTES, length * UNIT_BYTES));
                end += gap + length;
            }
            let last = extents[extents.len() - 1];
            let data_bytes: u64 = extents.iter().map(|e| e.length).sum::<u64>() - last.length;
            CheckpointEntry {
                id: 0,
                name,
                created_unix_s,
                pinned,
                metadata: metadata.into_iter().collect(),
                tensor_count: seed % 100,
                data_bytes: seed % (data_bytes + 1),
                index: BlobPlace {
                    extents: vec![last],
                    length: last.length - seed % 4000,
                    checksum: 5,
                },
                extents,
            }
        },
    )
}

proptest! {
    #[test]
    fn what_is_encoded_reads_back(entries in prop::collection::vec(any_entry(), 0..8)) {
        let mut catalog = Catalog::new(STORE);
        for mut entry in entries {
            entry.id = catalog.reserve_id();
            let new = catalog.find(&entry.name).is_none();
            prop_assert_eq!(catalog.push(entry).is_ok(), new);
        }
        prop_assert_eq!(Catalog::decode(&catalog.encode()).unwrap(), catalog);
    }

    /// Bytes changed at will and sealed again reach every check behind the checksum; whatever
    /// is accepted is what would have been written.
    #[test]
    fn no_bytes_make_it_panic(
        changes in prop::collection::vec((0..1000_usize, any::<u8>()), 1..6),
    ) {
        let mut body = catalog(&["1", "best", "2"]).encode()[ENVELOPE_BYTES..].to_vec();
        for (at, value) in changes {
            let at = at % body.len();
            body[at] = value;
        }
        let mut writer = codec::begin(MAGIC, VERSION, 0);
        writer.bytes(&body);
        let blob = codec::seal(writer);
        if let Ok(catalog) = Catalog::decode(&blob) {
            prop_assert_eq!(catalog.encode(), blob);
        }
    }

    #[test]
    fn noise_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Catalog::decode(&bytes).is_err());
    }
}
