use proptest::prelude::*;

use super::*;

const STORE: Uuid = Uuid::from_u128(7);

type Change = fn(&mut TensorEntry);

/// A tensor of bytes in the given runs, with checksums that are easy to tell apart.
pub(crate) fn tensor(name: &str, runs: &[(u64, u64)]) -> TensorEntry {
    let length = runs.iter().map(|(_, length)| length).sum();
    TensorEntry {
        name: name.to_owned(),
        dtype: DType::U8,
        shape: vec![length],
        length,
        runs: runs
            .iter()
            .map(|(offset, length)| Run::new(*offset, *length))
            .collect(),
        checksums: (1..)
            .take(usize::try_from(block_count(length)).unwrap())
            .collect(),
    }
}

fn index(tensors: Vec<TensorEntry>) -> Result<Index> {
    Index::new(STORE, 9, tensors)
}

fn sample() -> Index {
    let mut scalar = tensor("scalar", &[(4096, 8)]);
    scalar.dtype = DType::F64;
    scalar.shape = vec![];
    let mut empty = tensor("empty", &[]);
    empty.shape = vec![3, 0, 5];
    index(vec![
        scalar,
        tensor("Ελληνικά", &[(1 << 40, BLOCK_BYTES), (0, 1)]),
        empty,
    ])
    .unwrap()
}

#[test]
fn an_index_reads_back_in_order_of_names() {
    let index = sample();
    let decoded = Index::decode(&index.encode()).unwrap();
    assert_eq!(decoded, index);
    let names: Vec<&str> = decoded.tensors().iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["empty", "scalar", "Ελληνικά"]);
    assert_eq!(decoded.data_bytes(), BLOCK_BYTES + 9);
    assert_eq!(decoded.find("scalar").map(|t| t.length), Some(8));
    assert_eq!(decoded.find("scala"), None);
    decoded.check_owner(STORE, 9).unwrap();
    assert!(decoded.check_owner(STORE, 8).is_err());
    assert!(decoded.check_owner(Uuid::from_u128(8), 9).is_err());
    let none = Index::new(STORE, 1, vec![]).unwrap();
    assert_eq!(Index::decode(&none.encode()).unwrap(), none);
}

/// The bytes on media are the format; a change of the code must not change them.
#[test]
fn the_bytes_are_those_of_the_table() {
    let blob = index(vec![tensor("abc", &[(4096, 5), (9, 1)])])
        .unwrap()
        .encode();
    assert_eq!(&blob[..12], b"SWINDEX\n\x01\0\0\0");
    assert_eq!(blob[16..24], (blob.len() as u64).to_le_bytes());
    assert_eq!(&blob[24..40], STORE.as_bytes());
    assert_eq!(
        &blob[40..56],
        [9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    );
    let expected = [[6_u64, 5 << 32 | 1 << 48 | 3, 2, 6, 4096, 5, 9, 1].map(u64::to_le_bytes)];
    assert_eq!(blob[56..120], *expected.as_flattened().as_flattened());
    assert_eq!(&blob[120..], b"\x01\0\0\0abc\0");
}

#[test]
fn every_bit_flip_is_damage() {
    let mut blob = sample().encode();
    for bit in 0..blob.len() * 8 {
        blob[bit / 8] ^= 1 << (bit % 8);
        let error = Index::decode(&blob).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "bit {bit}");
        blob[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn tensors_that_contradict_themselves_are_refused() {
    let good = tensor("a", &[(0, BLOCK_BYTES + 1)]);
    good.check().unwrap();
    let cases: &[(&str, Change)] = &[
        ("empty", |t| t.name.clear()),
        ("4096", |t| t.name = "n".repeat(4097)),
        ("NUL", |t| t.name = "a\0".into()),
        ("shape", |t| t.shape[0] += 1),
        ("shape", |t| t.dtype = DType::U16),
        ("shape", |t| t.length -= 1),
        ("more bytes", |t| t.shape = vec![u64::MAX, 2]),
        ("dimensions", |t| t.shape = vec![1; 65]),
        ("add up", |t| t.runs[0].length -= 1),
        ("add up", |t| t.runs.clear()),
        ("add up", |t| {
            t.runs.push(Run::new(0, 1 << 63));
            t.runs.push(Run::new(0, (1 << 63) - 1));
        }),
        ("is empty", |t| t.runs.push(Run::new(5, 0))),
        ("beyond", |t| t.runs[0].offset = u64::MAX),
        ("beyond", |t| t.runs[0].offset = 1 << 63),
        ("checksums", |t| t.checksums.push(0)),
        ("checksums", |t| t.checksums.truncate(1)),
    ];
    for (expected, change) in cases {
        let mut bad = good.clone();
        change(&mut bad);
        let in_spec = ["empty", "4096", "NUL", "shape", "more bytes", "dimensions"];
        assert_eq!(
            bad.check_spec().is_err(),
            in_spec.contains(expected),
            "{expected}"
        );
        let error = index(vec![bad]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
}

#[test]
fn a_name_twice_is_refused() {
    let error = index(vec![tensor("a", &[]), tensor("b", &[]), tensor("a", &[])]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(error.tensor(), Some("a"));
}

#[test]
fn more_bytes_than_can_be_counted_are_refused() {
    let huge = |name: &str| {
        let mut huge = tensor(name, &[]);
        huge.length = i64::MAX as u64;
        huge
    };
    // Such a tensor needs 8 Ti checksums, so only the sum is looked at here.
    assert_eq!(data_bytes(&[huge("a"), huge("b"), huge("c")]), None);
}

/// What was sealed by a broken or hostile writer has a right checksum, and is looked at again.
#[test]
fn sealed_nonsense_is_damage() {
    let reseal = |change: &dyn Fn(&mut Vec<u8>)| {
        let blob = index(vec![tensor("abc", &[(4096, 6)]), tensor("abd", &[])])
            .unwrap()
            .encode();
        let mut writer = codec::begin(MAGIC, VERSION, 0);
        let mut body = blob[ENVELOPE_BYTES..].to_vec();
        change(&mut body);
        writer.bytes(&body);
        Index::decode(&codec::seal(writer)).map_err(|error| error.kind())
    };
    assert!(reseal(&|_| {}).is_ok());
    // The first tensor begins at 32 of the body, and its name at 32 + 24 + 8 + 16 + 4.
    let name_at = 84;
    let damaged: &[(usize, u8)] = &[
        (24, 1),
        (24, 3),
        (27, 0xff),
        (28, 1),
        (32, 7),
        (39, 0xff),
        (40, 2),
        (41, 0xff),
        (46, 2),
        (47, 0xff),
        (48, 2),
        (51, 0xff),
        (52, 1),
        (56, 7),
        (72, 7),
        (name_at + 2, 0xff),
        (name_at + 2, 0),
        (name_at + 2, b'd'),
        (name_at + 2, b'e'),
        (name_at + 3, 1),
    ];
    for (at, value) in damaged {
        let kind = reseal(&|body| body[*at] = *value).unwrap_err();
        assert_eq!(kind, ErrorKind::Damaged, "{value} at {at}");
    }
    let kind = reseal(&|body| body[44] = 99).unwrap_err();
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(reseal(&|body| body.truncate(100)).is_err());
    assert!(reseal(&|body| body.extend([0; 8])).is_err());
}

#[test]
fn places_within_the_checkpoint_and_apart_are_accepted() {
    let check = |tensors: Vec<TensorEntry>, extents: &[(u64, u64)]| {
        let extents: Vec<Extent> = extents
            .iter()
            .map(|(offset, length)| Extent::new(*offset, *length))
            .collect();
        index(tensors).unwrap().check_places(&extents)
    };
    let packed = || {
        vec![
            tensor("a", &[(8192, 100), (0, 4096)]),
            tensor("b", &[(8292, 5000)]),
            tensor("c", &[]),
        ]
    };
    check(packed(), &[(0, 4096), (8192, 4096), (12288, 4096)]).unwrap();
    check(vec![], &[]).unwrap();
    for extents in [
        &[][..],
        &[(0, 4096)],
        &[(8192, 8192)],
        &[(0, 4096), (8192, 4096)],
        &[(0, 4096), (8192, 4096), (16384, 4096)],
    ] {
        let error = check(packed(), extents).unwrap_err();
        assert!(error.to_string().contains("outside"), "{error}");
    }
    let shared = vec![tensor("a", &[(0, 10)]), tensor("b", &[(9, 1)])];
    let error = check(shared, &[(0, 4096)]).unwrap_err();
    assert!(error.to_string().contains("shares"), "{error}");
}

#[test]
fn ranges_are_located_in_runs_and_blocks() {
    let t = tensor("a", &[(100, 10), (50, 1), (200, 20)]);
    let locate = |offset, length| t.locate(offset, length).collect::<Vec<_>>();
    assert_eq!(locate(0, 31), t.runs);
    assert_eq!(
        locate(9, 3),
        [Run::new(109, 1), Run::new(50, 1), Run::new(200, 1)]
    );
    assert_eq!(locate(11, 20), [Run::new(200, 20)]);
    assert_eq!(locate(31, 0), []);
    assert_eq!(locate(0, 0), []);
    assert_eq!(blocks_touched(0, 0), 0..0);
    assert_eq!(blocks_touched(BLOCK_BYTES - 1, 2), 0..2);
    assert_eq!(blocks_touched(BLOCK_BYTES, BLOCK_BYTES), 1..2);
    let t = tensor("a", &[(0, BLOCK_BYTES + 5)]);
    assert_eq!(t.block_count(), 2);
    assert_eq!(t.block_range(1), BLOCK_BYTES..BLOCK_BYTES + 5);
}

#[test]
#[should_panic(expected = "beyond the end")]
fn nothing_is_located_beyond_the_end() {
    let _ = tensor("a", &[(0, 5)]).locate(5, 1);
}

/// The time is printed, and its limit is far off what a slow machine in a debug build needs.
#[test]
fn a_hundred_thousand_tensors_are_decoded_quickly() {
    let tensors = (0..100_000_u64)
        .map(|i| {
            tensor(
                &format!("model.layers.{i}.self_attn.weight"),
                &[(i * 1024, 1024)],
            )
        })
        .collect();
    let index = index(tensors).unwrap();
    let blob = index.encode();
    let start = std::time::Instant::now();
    let decoded = Index::decode(&blob).unwrap();
    let decode = start.elapsed();
    decoded
        .check_places(&[Extent::new(0, 102_400_000)])
        .unwrap();
    let check = start.elapsed() - decode;
    println!(
        "{} bytes: decoded in {decode:?}, checked in {check:?}",
        blob.len()
    );
    assert_eq!(decoded, index);
    assert!(decode.as_secs() < 5);
}

fn any_tensor() -> impl Strategy<Value = TensorEntry> {
    let dtypes: Vec<DType> = DType::all().filter(|dtype| dtype.bits() >= 8).collect();
    (
        "[^\0]{1,20}",
        prop::sample::select(dtypes),
        prop::collection::vec(0..70_u64, 0..4),
        any::<u32>(),
        prop::collection::vec(any::<u64>(), 0..4),
    )
        .prop_map(|(name, dtype, shape, seed, cuts)| {
            let length = dtype.tensor_bytes(&shape).unwrap();
            let mut ends: Vec<u64> = cuts.iter().map(|cut| cut % (length + 1)).collect();
            ends.extend([0, length]);
            ends.sort_unstable();
            ends.dedup();
            let runs = ends
                .windows(2)
                .map(|w| Run::new(u64::from(seed) + 2 * w[0], w[1] - w[0]));
            let blocks = u32::try_from(block_count(length)).unwrap();
            TensorEntry {
                name,
                dtype,
                shape,
                length,
                runs: runs.collect(),
                checksums: (0..blocks).map(|block| seed ^ block).collect(),
            }
        })
}

proptest! {
    #[test]
    fn what_is_encoded_reads_back(tensors in prop::collection::vec(any_tensor(), 0..12)) {
        let mut names: Vec<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
        names.sort_unstable();
        let unique = names.windows(2).all(|pair| pair[0] != pair[1]);
        match index(tensors.clone()) {
            Ok(index) => {
                prop_assert!(unique);
                prop_assert_eq!(Index::decode(&index.encode()).unwrap(), index);
            }
            Err(error) => {
                prop_assert!(!unique);
                prop_assert_eq!(error.kind(), ErrorKind::AlreadyExists);
            }
        }
    }

    /// Bytes changed at will and sealed again reach every check behind the checksum; whatever
    /// is accepted is what would have been written.
    #[test]
    fn no_bytes_make_it_panic(
        changes in prop::collection::vec((0..200_usize, any::<u8>()), 1..6),
    ) {
        let mut body = sample().encode()[ENVELOPE_BYTES..].to_vec();
        for (at, value) in changes {
            let at = at % body.len();
            body[at] = value;
        }
        let mut writer = codec::begin(MAGIC, VERSION, 0);
        writer.bytes(&body);
        let blob = codec::seal(writer);
        if let Ok(index) = Index::decode(&blob) {
            prop_assert_eq!(index.encode(), blob);
        }
    }

    #[test]
    fn noise_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Index::decode(&bytes).is_err());
    }
}
