//! What comes from files: safetensors headers, the index of a sharded set, the list of files that an
//! import keeps.

use swath_checkpoint::safetensors::{Header, PREFIX_BYTES};
use swath_checkpoint::untrusted;

use super::{ERROR_BYTES, Memory, Target, u64_at};

/// JSON becomes lists of texts: an empty text of two characters and a comma is 24 bytes in memory,
/// a growing list may have three times its size for a moment, and names are compared in a table.
const JSON_FACTOR: usize = 40;

pub(super) const SAFETENSORS_HEADER: Target = Target {
    name: "safetensors_header",
    seal: None,
    parse: |input| {
        let json = input.get(PREFIX_BYTES..).unwrap_or_default();
        Header::parse(json, data_end(json)).is_ok()
    },
    check: check_header,
    memory: Memory {
        unsealed_bytes: 0,
        base_bytes: 8 * ERROR_BYTES,
        factor: JSON_FACTOR,
    },
};

pub(super) const SHARD_INDEX: Target = Target {
    name: "shard_index",
    seal: None,
    parse: |input| untrusted::shard_files(input).is_ok(),
    check: |input| {
        if let Ok(files) = untrusted::shard_files(input) {
            assert!(files.is_sorted_by(|a, b| a < b), "a file twice");
            for file in files {
                assert_stays_inside(&file);
            }
        }
    },
    memory: Memory {
        unsealed_bytes: 0,
        base_bytes: 8 * ERROR_BYTES,
        factor: JSON_FACTOR,
    },
};

pub(super) const FILE_LIST: Target = Target {
    name: "file_list",
    seal: None,
    parse: |input| untrusted::file_list(input).is_ok(),
    check: |input| {
        if let Ok(again) = untrusted::file_list(input) {
            let third = untrusted::file_list(&again).expect("it was written here");
            assert!(third == again, "it changes when it is written again");
        }
    },
    memory: Memory {
        unsealed_bytes: 0,
        base_bytes: 8 * ERROR_BYTES,
        factor: JSON_FACTOR,
    },
};

fn assert_stays_inside(file: &str) {
    let path = std::path::Path::new("folder").join(file);
    assert_eq!(
        path.parent(),
        Some(std::path::Path::new("folder")),
        "{file:?}"
    );
    assert_eq!(path.file_name(), Some(file.as_ref()), "{file:?}");
}

/// Where the data of the header's last tensor ends: the file is taken to have that much.
fn data_end(json: &[u8]) -> u64 {
    const KEY: &[u8] = b"\"data_offsets\"";
    let mut end = 0;
    let mut rest = json;
    while let Some(at) = rest.windows(KEY.len()).position(|window| window == KEY) {
        rest = &rest[at + KEY.len()..];
        let is_digit = |byte: &u8| byte.is_ascii_digit();
        let close = rest
            .iter()
            .position(|byte| *byte == b']')
            .unwrap_or(rest.len());
        let number = rest[..close]
            .rsplit(|byte| !is_digit(byte))
            .find(|digits| !digits.is_empty())
            .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        end = end.max(number.unwrap_or(0));
    }
    end
}

fn check_header(input: &[u8]) {
    if let Some((prefix, _)) = input.split_first_chunk::<PREFIX_BYTES>() {
        let file_bytes = input.len() as u64;
        if let Ok(length) = Header::length_from(*prefix, file_bytes) {
            assert_eq!(length as u64, u64_at(input, 0));
            assert!(length + PREFIX_BYTES <= input.len());
        }
        let _ = Header::length_from(*prefix, u64::MAX);
    }
    let json = input.get(PREFIX_BYTES..).unwrap_or_default();
    for data_bytes in [0, data_end(json)] {
        let Ok(header) = Header::parse(json, data_bytes) else {
            continue;
        };
        assert_eq!(header.data_bytes(), data_bytes);
        let mut end = 0;
        for tensor in header.tensors_by_offset() {
            assert_eq!(tensor.begin, end);
            assert_eq!(
                tensor.dtype.tensor_bytes(&tensor.shape).ok(),
                Some(tensor.length())
            );
            end = tensor.end;
        }
        assert_eq!(end, data_bytes);
        let file = header
            .encode()
            .expect("no longer than what it was parsed from");
        assert!(file.len().is_multiple_of(8));
        let (prefix, again) = file.split_first_chunk().expect("a file has a prefix");
        assert_eq!(
            Header::length_from(*prefix, file.len() as u64).ok(),
            Some(again.len())
        );
        assert_eq!(
            Header::parse(again, data_bytes).ok().as_ref(),
            Some(&header),
            "what is written reads back otherwise"
        );
        assert!(header.writes_back(again));
        assert_eq!(header.writes_back(json), again == json);
    }
}
