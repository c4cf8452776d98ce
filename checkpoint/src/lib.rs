//! The checkpoint store: named sets of tensors on one volume, committed atomically, checked when
//! they are read back.
//!
//! A checkpoint has a name or a step number, an [`Index`](index::Index) of its tensors, and their
//! bytes. The committed ones are listed in the [`Catalog`](catalog::Catalog), which the
//! [`StoreHeader`](place::StoreHeader) in the volume's root record points to. Replacing that record
//! is the one event that makes a checkpoint visible.

#![forbid(unsafe_code)]

mod error;

mod dtype;
mod names;

mod codec;
pub mod extent;
pub mod place;

pub mod catalog;
pub mod index;

pub mod region;
pub mod retention;

mod options;
mod spare_pools;
mod transfer;

mod blob;
mod store;

mod lent;

mod ledger;
mod session;
mod stream;
mod sums;
mod view;
mod writer;

mod lease;

mod shares;

mod save;
mod snapshot;
mod turns;

mod background;

mod checkpoint;
mod reader;
mod verify;

pub mod safetensors;

#[doc(hidden)]
pub mod untrusted;

#[cfg(test)]
mod fixtures;

pub use background::{AsyncOptions, SaveHandle, WhenBusy};
pub use checkpoint::{Checkpoint, ReadOptions, TensorTarget};
pub use codec::BLOB_BYTES_MAX;
pub use dtype::{DType, RANK_MAX, TENSOR_BYTES_MAX};
pub use error::{DevicePlace, Error, ErrorKind, Result};
pub use lease::{Lease, LeaseHolder, Receipt};
pub use names::{CheckpointName, NAME_BYTES_MAX};
pub use options::StoreOptions;
pub use reader::Reader;
pub use session::{BeginOptions, Session};
pub use store::{CheckpointInfo, FormatOptions, SpaceReport, Store};
pub use stream::TensorStream;
pub use uuid::Uuid;
pub use verify::{Damage, VerifyOptions, VerifyProgress, VerifyReport};
pub use view::TensorView;
pub use writer::Writer;
