//! What a checkpoint knows of the files it was made of: [`FileList`].
//!
//! - A checkpoint that was imported has tensors of its own making beside those of the files, all
//!   with names that begin with [`RESERVED_PREFIX`]: the list of the files, and for each safetensors
//!   file its beginning (prefix and header), byte for byte. Together with the tensors they give the
//!   same files again. Listings leave them out: [`is_hidden`].
//! - Headers may be 100 MB each, and so they are tensors (checked and streamed like any other) and
//!   not metadata of the checkpoint.
//! - The list is JSON, and may come from a stranger's volume: it is bounded, and a name that could
//!   lead out of a directory is refused.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// How the names of tensors that an import makes for itself begin. No tensor of a file may be
/// called so.
pub const RESERVED_PREFIX: &str = ".swath/";

/// The tensor that holds the list of files.
pub(super) const LIST_TENSOR: &str = ".swath/files";

/// The most bytes a list of files may have: as many as a header.
pub(super) const LIST_BYTES_MAX: u64 = super::HEADER_BYTES_MAX;

/// The most bytes the name of a file may have on Linux.
const FILE_NAME_BYTES_MAX: usize = 255;

const VERSION: u32 = 1;

/// Whether a tensor is one that an import made for itself, and not one of the caller's.
pub fn is_hidden(tensor: &str) -> bool {
    tensor.starts_with(RESERVED_PREFIX)
}

/// The files a checkpoint was made of, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileList {
    version: u32,
    pub(super) files: Vec<FileEntry>,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileEntry {
    /// Its name, without a directory.
    pub(super) name: String,
    /// How many bytes it has.
    pub(super) length: u64,
    pub(super) kind: FileKind,
    /// The tensor with all its bytes, or with those before its data.
    pub(super) tensor: String,
}

/// What a file is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FileKind {
    /// One tensor has it all.
    Raw,
    /// One tensor has its beginning, and the tensors that this speaks of follow.
    Safetensors,
}

impl FileList {
    pub(super) fn new(files: Vec<FileEntry>) -> Self {
        Self {
            version: VERSION,
            files,
        }
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let bytes = serde_json::to_vec(self).expect("a list of texts can be written to memory");
        if bytes.len() as u64 > LIST_BYTES_MAX {
            return Err(Error::invalid("too many files for one checkpoint"));
        }
        Ok(bytes)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let damaged = |error: serde_json::Error| {
            Error::damaged("the list of files makes no sense").with_source(error)
        };
        // The version first: a newer list may look different.
        let Version { version } = serde_json::from_slice(bytes).map_err(damaged)?;
        if version != VERSION {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("the list of files has version {version}, and {VERSION} is known here"),
            ));
        }
        serde_json::from_slice(bytes).map_err(damaged)
    }
}

/// What is wrong with a file's name, if anything is. What passes names a file of the directory it
/// is looked up in, and nothing else.
pub(super) fn file_name_problem(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("a file's name may not be empty")
    } else if name == "." || name == ".." {
        Some("a file cannot be called . or ..")
    } else if name.contains('/') {
        Some("a file's name may not contain a separator: it must not lead out of its directory")
    } else if name.contains('\0') {
        Some("a file's name may not contain NUL")
    } else if name.len() > FILE_NAME_BYTES_MAX {
        Some("a file's name has at most 255 bytes")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_back_and_a_newer_one_is_told_apart_from_a_damaged_one() {
        let entry = |name: &str, kind| FileEntry {
            name: name.into(),
            length: 7,
            kind,
            tensor: format!("{RESERVED_PREFIX}{name}"),
        };
        let list = FileList::new(vec![
            entry("a.safetensors", FileKind::Safetensors),
            entry("é \"b\"", FileKind::Raw),
        ]);
        assert_eq!(FileList::decode(&list.encode().unwrap()).unwrap(), list);
        let newer = br#"{"version":2,"files":7}"#;
        let error = FileList::decode(newer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        for bad in [
            &b""[..],
            b"{}",
            br#"{"version":1}"#,
            br#"{"version":1,"files":[],"more":1}"#,
            br#"{"version":1,"files":[{"name":"a","length":1,"kind":"link","tensor":"a"}]}"#,
        ] {
            let error = FileList::decode(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged);
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let long = "n".repeat(256);
        for name in [
            "", ".", "..", "/", "../x", "a/b", "/etc/x", "a/", "a\0", &long,
        ] {
            assert!(file_name_problem(name).is_some(), "{name:?}");
        }
        for name in ["a", "...", "..a", "a.b", "-", "a\\b", "é", &long[1..]] {
            assert_eq!(file_name_problem(name), None, "{name:?}");
        }
    }
}
