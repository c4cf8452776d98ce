//! Headers of safetensors files, indexes of sharded sets, lists of files.

use swath_checkpoint::DType;
use swath_checkpoint::safetensors::Header;

use super::{Seed, named};

/// A file's prefix, and a header.
fn with_prefix(json: &str) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat()
}

pub(super) fn safetensors_header() -> Vec<Seed> {
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

pub(super) fn shard_index() -> Vec<Seed> {
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

pub(super) fn file_list() -> Vec<Seed> {
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
