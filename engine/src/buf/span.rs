//! [`Span`]: where an owner's bytes lie, at one place in every owner.

use std::cell::Cell;
use std::ptr::NonNull;

/// The run of memory of an [`AlignedBuf`](super::AlignedBuf) or a [`PoolBuf`](super::PoolBuf). What
/// either points to begins with one, so that a [`Buffer`](super::Buffer) need not ask which it is.
pub(super) struct Span {
    pub(super) pointer: NonNull<u8>,
    /// Changed by the one that holds the memory.
    pub(super) length: Cell<usize>,
}
