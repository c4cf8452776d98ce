//! The private parsers of bytes from elsewhere, within reach of the tests that throw bytes at them.
//!
//! The public ones ([`Catalog::decode`](crate::catalog::Catalog::decode),
//! [`Index::decode`](crate::index::Index::decode),
//! [`StoreHeader::decode`](crate::place::StoreHeader::decode),
//! [`Header::parse`](crate::safetensors::Header::parse), leases and receipts through serde) need no
//! door. What is here is hidden: no promise, nothing that a program needs, and nothing that
//! production code does not run as well. `fuzz/` and `tests/support/parsers.rs` use it.

use crate::error::Result;
use crate::extent::Extent;
use crate::index::TensorEntry;
use crate::lent;
use crate::safetensors;

/// The files that the index of a sharded set names, each once.
///
/// # Errors
///
/// No such index, or one that leads out of its folder.
pub fn shard_files(json: &[u8]) -> Result<Vec<String>> {
    safetensors::shard_files(json)
}

/// The list of files that a checkpoint keeps, written anew.
///
/// # Errors
///
/// No such list.
pub fn file_list(json: &[u8]) -> Result<Vec<u8>> {
    safetensors::file_list(json)
}

/// What a lease of these extents leaves unused when its receipt has these tensors.
///
/// # Errors
///
/// A receipt that cannot be believed.
pub fn unused_of_lease(extents: &[Extent], tensors: &[TensorEntry]) -> Result<Vec<Extent>> {
    lent::unused(extents, tensors)
}
