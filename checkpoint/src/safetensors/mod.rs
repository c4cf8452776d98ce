//! Files in the safetensors format, in and out of the store.
//!
//! - A file comes from a stranger: its header is bounded and checked whole before a byte of its
//!   data is read.

mod header;

pub use header::{HEADER_BYTES_MAX, Header, PREFIX_BYTES, TensorInfo};
