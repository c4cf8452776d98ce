//! Memory that direct I/O can use, and who owns it.
//!
//! - [`AlignedBuf`] owns memory of its own; a [`PoolBuf`] is a piece of a [`BufPool`]'s arena,
//!   which a queue can register with the kernel; [`Buffer`] is any of these, or shared
//!   [`Bytes`](bytes::Bytes) for writes.
//! - From 2 MiB on, memory is aligned to 2 MiB and huge pages are asked for
//!   (`MADV_HUGEPAGE`, see madvise(2)): a transfer of 1 MiB is then one piece of physical memory
//!   instead of 256, more than many devices take in one command.
//! - An operation takes its [`Buffers`] by value and its completion gives them back. So safe code
//!   cannot free or change memory that the kernel still uses.

mod aligned;
mod buffer;
mod pool;
mod region;
mod span;

pub use aligned::AlignedBuf;
pub(crate) use buffer::Borrowed;
pub use buffer::{Buffer, Buffers, ScopeMemory};
pub use pool::{BufPool, PoolBuf};
