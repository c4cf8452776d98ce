use proptest::prelude::*;

use super::*;

fn parse(json: &str, data_bytes: u64) -> Result<Header> {
    Header::parse(json.as_bytes(), data_bytes)
}

const OFFICIAL: &str = concat!(
    r#"{"__metadata__":{"format":"pt","by":"\"me\"\n"},"#,
    r#""w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"#,
    r#""b":{"dtype":"BF16","shape":[],"data_offsets":[24,26]},"#,
    r#""é2":{"dtype":"U8","shape":[0,7],"data_offsets":[26,26]}}"#,
    "       ",
);

#[test]
fn a_header_of_the_official_library_is_read_and_written_back() {
    let header = parse(OFFICIAL, 26).unwrap();
    let metadata = [("format", "pt"), ("by", "\"me\"\n")].map(|(k, v)| (k.into(), v.into()));
    assert_eq!(header.metadata(), Some(&metadata[..]));
    assert_eq!(
        header.tensors()[0],
        TensorInfo {
            name: "w".into(),
            dtype: DType::F32,
            shape: vec![2, 3],
            begin: 0,
            end: 24
        }
    );
    assert_eq!(header.tensors()[1].length(), 2);
    assert_eq!(header.tensors()[2].name, "é2");
    assert_eq!(header.data_bytes(), 26);
    assert!(header.writes_back(OFFICIAL.as_bytes()));
    assert!(!header.writes_back(OFFICIAL.trim_end().as_bytes()));
    let file = header.encode().unwrap();
    let prefix = file[..8].try_into().unwrap();
    let length = Header::length_from(prefix, file.len() as u64 + 26).unwrap();
    assert_eq!(length, OFFICIAL.len());
    assert_eq!(length % 8, 0);
}

#[test]
fn files_without_tensors_or_metadata_are_files() {
    for json in ["{}      ", r#"{"__metadata__":{}}     "#] {
        let header = parse(json, 0).unwrap();
        assert!(header.tensors().is_empty());
        assert!(header.writes_back(json.as_bytes()));
    }
    assert_eq!(parse("{}", 0).unwrap().metadata(), None);
    // Other white space and another order are read, though not written.
    let header = parse(
        "{ \"a\" : {\"shape\":[1],\n\"data_offsets\":[0,1],\"dtype\":\"I8\"}}\n",
        1,
    );
    assert_eq!(header.unwrap().tensors()[0].dtype, DType::I8);
}

#[test]
fn the_order_of_the_header_need_not_be_that_of_the_data() {
    let json = concat!(
        r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[3,5]},"#,
        r#""empty":{"dtype":"U8","shape":[0],"data_offsets":[3,3]},"#,
        r#""b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}"#,
    );
    let header = parse(json, 5).unwrap();
    let names = |tensors: Vec<&TensorInfo>| -> Vec<String> {
        tensors.iter().map(|tensor| tensor.name.clone()).collect()
    };
    assert_eq!(
        names(header.tensors().iter().collect()),
        ["a", "empty", "b"]
    );
    assert_eq!(names(header.tensors_by_offset()), ["b", "empty", "a"]);
    let file = header.encode().unwrap();
    assert_eq!(file[8..].trim_ascii_end(), json.as_bytes());
}

#[test]
fn lengths_that_cannot_be_are_refused_before_anything_is_read() {
    let length = |length: u64, file: u64| Header::length_from(length.to_le_bytes(), file);
    assert_eq!(length(2, 10).unwrap(), 2);
    assert_eq!(length(100_000_000, 100_000_008).unwrap(), 100_000_000);
    for (header, file) in [
        (100_000_001, u64::MAX),
        (u64::MAX, u64::MAX),
        (3, 10),
        (0, 7),
    ] {
        let error = length(header, file).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{header} of {file}");
    }
    let large = vec![b'{'; 100_000_001];
    assert!(Header::parse(&large, 0).is_err());
}

fn tensor(fields: &str) -> String {
    format!(r#"{{"a":{{{fields}}}}}"#)
}

#[test]
fn everything_else_is_refused_with_the_reason() {
    let good = r#""dtype":"U8","shape":[4],"data_offsets":[0,4]"#;
    parse(&tensor(good), 4).unwrap();
    let two = |a: &str, b: &str| {
        let of = |range: &str, size: u8| {
            format!(r#"{{"dtype":"U8","shape":[{size}],"data_offsets":[{range}]}}"#)
        };
        format!(r#"{{"a":{},"b":{}}}"#, of(a, 2), of(b, 2))
    };
    parse(&two("0,2", "2,4"), 4).unwrap();
    let long_name = format!(r#"{{"{}":{{{good}}}}}"#, "n".repeat(4097));
    let long_rank = tensor(&good.replace("[4]", &format!("[4{}]", ",1".repeat(64))));
    let cases: &[(&str, &str)] = &[
        ("begin with {", ""),
        ("begin with {", " {}"),
        ("begin with {", "[]"),
        ("begin with {", "\u{feff}{}"),
        ("not what it should be", "{"),
        ("not what it should be", "{}x"),
        ("not what it should be", "{}\0"),
        ("not what it should be", r#"{"a":null}"#),
        ("not what it should be", r#"{"a":[]}"#),
        (
            "duplicate field",
            r#"{"__metadata__":{},"__metadata__":{}}"#,
        ),
        ("not what it should be", r#"{"__metadata__":null}"#),
        ("not what it should be", r#"{"__metadata__":{"a":1}}"#),
        (
            "metadata is there twice",
            r#"{"__metadata__":{"a":"1","a":"1"}}"#,
        ),
        (
            "metadata is there twice",
            r#"{"__metadata__":{"a":"1","\u0061":"2"}}"#,
        ),
        (
            "in the header twice",
            &format!(r#"{{"a":{{{good}}},"a":{{{good}}}}}"#),
        ),
        (
            "in the header twice",
            &format!(r#"{{"a":{{{good}}},"\u0061":{{{good}}}}}"#),
        ),
        (
            "duplicate field",
            &tensor(&format!("{good},\"dtype\":\"U8\"")),
        ),
        ("duplicate field", &tensor(&format!("{good},\"shape\":[4]"))),
        ("unknown field", &tensor(&format!("{good},\"more\":1"))),
        ("missing field", &tensor(r#""dtype":"U8","shape":[4]"#)),
        ("unknown here", &tensor(&good.replace("U8", "U9"))),
        (
            "unknown here",
            &tensor(&good.replace("U8", &"u".repeat(100_000))),
        ),
        ("dimensions", &long_rank),
        (
            "not what it should be",
            &tensor(&good.replace("[4]", "[-4]")),
        ),
        (
            "not what it should be",
            &tensor(&good.replace("[4]", "[4.0]")),
        ),
        (
            "not what it should be",
            &tensor(&good.replace("[4]", "[18446744073709551616]")),
        ),
        (
            "not what it should be",
            &tensor(&good.replace("[0,4]", "[0]")),
        ),
        (
            "not what it should be",
            &tensor(&good.replace("[0,4]", "[0,4,4]")),
        ),
        (
            "is not the 4 bytes",
            &tensor(&good.replace("[0,4]", "[0,5]")),
        ),
        (
            "is not the 4 bytes",
            &tensor(&good.replace("[0,4]", "[4,0]")),
        ),
        ("is not the 5 bytes", &tensor(&good.replace("[4]", "[5]"))),
        (
            "more bytes",
            &tensor(&good.replace("[4]", "[4294967296,4294967296]")),
        ),
        (
            "whole bytes",
            &tensor(r#""dtype":"F4","shape":[3],"data_offsets":[0,2]"#),
        ),
        ("not be empty", &format!(r#"{{"":{{{good}}}}}"#)),
        ("NUL", &format!(r#"{{"\u0000":{{{good}}}}}"#)),
        ("4096", &long_name),
        ("overlaps", &two("0,2", "1,3")),
        ("overlaps", &two("0,2", "0,2")),
        ("hole", &two("0,2", "3,5")),
        ("hole", &two("1,3", "3,5")),
        (
            "cut short",
            &tensor(r#""dtype":"U8","shape":[5],"data_offsets":[0,5]"#),
        ),
        (
            "goes on",
            &tensor(r#""dtype":"U8","shape":[3],"data_offsets":[0,3]"#),
        ),
        ("goes on", "{}"),
    ];
    for (expected, json) in cases {
        let error = parse(json, 4).unwrap_err();
        let text = error.to_string();
        let shown = &json[..json.len().min(80)];
        assert!(text.contains(expected), "{shown}: {text}");
        assert!(
            text.len() < 500,
            "{shown}: a message of {} bytes",
            text.len()
        );
        let unsupported = error.kind() == ErrorKind::Unsupported;
        assert_eq!(unsupported, *expected == "unknown here", "{shown}");
    }
    let long = tensor(&format!("{good},\"{}\":1", "x".repeat(100_000)));
    assert!(parse(&long, 4).unwrap_err().to_string().len() < 500);
    assert!(Header::parse(b"{\"\xff\":1}", 0).is_err());
}

#[test]
fn a_file_is_laid_out_without_holes() {
    let mut tensors = vec![
        ("b".to_owned(), DType::U8, vec![3]),
        ("c".to_owned(), DType::F32, vec![]),
        ("a".to_owned(), DType::F32, vec![2]),
    ];
    Header::sort_for_layout(&mut tensors);
    let header = Header::lay_out(None, tensors).unwrap();
    let ranges: Vec<_> = header
        .tensors()
        .iter()
        .map(|t| (t.name.as_str(), t.begin, t.end))
        .collect();
    assert_eq!(ranges, [("a", 0, 8), ("c", 8, 12), ("b", 12, 15)]);
    let file = header.encode().unwrap();
    assert_eq!(Header::parse(&file[8..], 15).unwrap(), header);
}

#[test]
fn what_no_file_could_hold_is_not_laid_out() {
    let lay_out = |tensors: &[(&str, u64)]| {
        let tensors = tensors
            .iter()
            .map(|(name, size)| ((*name).to_owned(), DType::U8, vec![*size]));
        Header::lay_out(None, tensors).map_err(|error| error.kind())
    };
    let max = i64::MAX as u64;
    assert!(lay_out(&[("a", max), ("b", max)]).is_ok());
    assert_eq!(
        lay_out(&[("a", max), ("b", max), ("c", 2)]),
        Err(ErrorKind::InvalidInput)
    );
    assert_eq!(
        lay_out(&[("__metadata__", 1)]),
        Err(ErrorKind::InvalidInput)
    );
    assert_eq!(lay_out(&[("", 1)]), Err(ErrorKind::InvalidInput));
    assert_eq!(
        lay_out(&[("a", 1), ("a", 1)]),
        Err(ErrorKind::AlreadyExists)
    );
    let twice = vec![("k".to_owned(), String::new()); 2];
    assert!(Header::lay_out(Some(twice), []).is_err());
    let large = vec![("k".to_owned(), "x".repeat(100_000_000))];
    assert!(Header::lay_out(Some(large), []).unwrap().encode().is_err());
}

proptest! {
    #[test]
    fn what_is_laid_out_reads_back(
        metadata in prop::option::of(prop::collection::btree_map(".{0,9}", ".{0,9}", 0..4)),
        tensors in prop::collection::btree_map(
            "[^\0]{1,12}",
            (prop::sample::select(DType::all().filter(|d| d.bits() >= 8).collect::<Vec<_>>()),
             prop::collection::vec(0..9_u64, 0..4)),
            0..8,
        ),
    ) {
        let metadata = metadata.map(|metadata| metadata.into_iter().collect());
        let tensors = tensors.into_iter().map(|(name, (dtype, shape))| (name, dtype, shape));
        let header = Header::lay_out(metadata, tensors).unwrap();
        let file = header.encode().unwrap();
        let parsed = Header::parse(&file[8..], header.data_bytes()).unwrap();
        prop_assert!(parsed.writes_back(&file[8..]));
        prop_assert_eq!(parsed, header);
    }

    /// Whatever is accepted covers the file, and is written so that it reads back.
    #[test]
    fn no_bytes_make_it_panic(
        changes in prop::collection::vec(
            (0..OFFICIAL.len(), prop::sample::select(br#"{}[]",:0123456789u\ "#.to_vec())),
            0..5,
        ),
    ) {
        let mut json = OFFICIAL.as_bytes().to_vec();
        for (at, byte) in changes {
            json[at] = byte;
        }
        if let Ok(header) = Header::parse(&json, 26) {
            let total: u64 = header.tensors().iter().map(TensorInfo::length).sum();
            prop_assert_eq!(total, 26);
            let file = header.encode().unwrap();
            prop_assert_eq!(Header::parse(&file[8..], 26).unwrap(), header);
        }
    }
}
