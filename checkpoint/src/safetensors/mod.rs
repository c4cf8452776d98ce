//! Files in and out of the store: safetensors files, sharded sets of them, any other files.
//!
//! - A file comes from a stranger: its header is bounded and checked whole before a byte of its
//!   data is read.
//! - What goes in comes out the same, byte for byte: headers are kept as they are.
//!
//! How files lie in a checkpoint that [`import()`] made:
//!
//! | tensor | what it is |
//! |---|---|
//! | those of the safetensors files | under their own names, with type and shape |
//! | NAME, U8 | any other file, all of its bytes |
//! | `.swath/header/N`, U8 | the safetensors file N (counted from 0): prefix and header |
//! | `.swath/index/N`, U8 | file N, the index of a sharded set |
//! | `.swath/files`, U8 | JSON: the files in their order, as below |
//!
//! ```json
//! {"version":1,"files":[{"name":"a.safetensors","length":88,"kind":"safetensors","tensor":".swath/header/0"}]}
//! ```
//!
//! `kind` is `safetensors` (the tensor is the file's beginning; the tensors that its header speaks
//! of follow, in the order of their offsets) or `raw` (the tensor is the file). Tensors whose names
//! begin with `.swath/` are left out by listings ([`is_hidden`]); files with such tensors are
//! refused.

mod files;
mod header;
mod shards;

mod source;
mod target;
mod work;

mod plan;

mod export;
mod import;

pub use export::export;
pub use files::{RESERVED_PREFIX, is_hidden};
pub use header::{HEADER_BYTES_MAX, Header, PREFIX_BYTES, TensorInfo};
pub use import::import;
pub use plan::ImportPlan;

use crate::error::Result;

/// How far an import or an export has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileProgress {
    /// Bytes of files that are done.
    pub done_bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
}

/// How to import files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportOptions {
    /// How many threads read and write. Each takes a writer's pool and 1 MiB of memory. Default 4,
    /// which keeps most drives busy.
    pub threads: usize,
    /// Whether every file is kept as it is, as one tensor of bytes, whatever it is called. Default:
    /// no.
    pub raw: bool,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self {
            threads: 4,
            raw: false,
        }
    }
}

/// How to export files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportOptions {
    /// How many threads read and write, 10 at most. Default 4, which keeps most drives busy. However
    /// many there are, they take less than 64 MiB of memory beyond
    /// [`pool_bytes`](crate::StoreOptions::pool_bytes).
    pub threads: usize,
    /// Whether the data is believed without its checksums. Default: no.
    pub trust: bool,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self {
            threads: 4,
            trust: false,
        }
    }
}

/// For [`crate::untrusted`]: the files that the index of a sharded set names.
pub(crate) fn shard_files(json: &[u8]) -> Result<Vec<String>> {
    let map = shards::ShardMap::parse(json)?;
    Ok(map.files().into_iter().map(str::to_owned).collect())
}

/// For [`crate::untrusted`]: a list of files, read and written again.
pub(crate) fn file_list(json: &[u8]) -> Result<Vec<u8>> {
    files::FileList::decode(json)?.encode()
}
