//! [`AlignedBuf`]: memory of one's own, aligned for direct I/O.

use std::alloc::{self, Layout};
use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytes::Bytes;

use crate::buf::region::{HUGE_PAGE_BYTES, Region, Residency};
use crate::buf::span::Span;
use crate::error::{Error, ErrorKind, Result};

/// The alignment of every buffer: no device that Linux drives asks for more.
const ALIGN_BYTES: usize = 4096;

/// Memory aligned for direct I/O, owned, zeroed when made.
///
/// The address is a multiple of 4096; from 2 MiB on it is a multiple of 2 MiB and huge pages are
/// asked for.
///
/// ```
/// let mut buffer = swath_engine::AlignedBuf::zeroed(8192)?;
/// buffer[..5].copy_from_slice(b"swath");
/// assert_eq!(buffer.len(), 8192);
/// # Ok::<(), swath_engine::Error>(())
/// ```
// One word, for `Buffer`.
#[repr(transparent)]
pub struct AlignedBuf(Box<Parts>);

// The span first, for `Buffer`.
#[repr(C)]
struct Parts {
    span: Span,
    /// From 2 MiB on the memory is a mapping of its own, below it is of the heap.
    capacity: usize,
}

// SAFETY: the buffer owns its memory alone; nothing about it is tied to a thread.
unsafe impl Send for AlignedBuf {}
// SAFETY: a shared reference only allows reading the bytes.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// A buffer of `length` bytes, all zero.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Exhausted`] when the memory is not to be had.
    pub fn zeroed(length: usize) -> Result<Self> {
        if length >= HUGE_PAGE_BYTES {
            let (pointer, capacity) = Region::map(length, Residency::Now)?.into_parts();
            return Ok(Self::of(pointer, length, capacity));
        }
        let capacity = length.max(1);
        let layout = heap_layout(capacity);
        // SAFETY: the layout's size is not zero.
        let pointer = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).ok_or_else(|| {
            Error::new(
                ErrorKind::Exhausted,
                format!("no memory for a buffer of {length} bytes"),
            )
        })?;
        Ok(Self::of(pointer, length, capacity))
    }

    fn of(pointer: NonNull<u8>, length: usize, capacity: usize) -> Self {
        let length = Cell::new(length);
        let span = Span { pointer, length };
        Self(Box::new(Parts { span, capacity }))
    }

    /// A buffer that holds a copy of `bytes`.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    pub fn copy_of(bytes: &[u8]) -> Result<Self> {
        let mut buffer = Self::zeroed(bytes.len())?;
        buffer.copy_from_slice(bytes);
        Ok(buffer)
    }

    /// How many bytes it holds.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.span.length.get()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most bytes it can hold.
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// Makes it `length` bytes long; operations transfer just these. Bytes that come into view are
    /// what they were.
    ///
    /// # Panics
    ///
    /// When `length` is more than [`capacity`](Self::capacity).
    pub fn set_len(&mut self, length: usize) {
        assert!(
            length <= self.capacity(),
            "a buffer of {} cannot be {length}",
            self.capacity()
        );
        self.0.span.length.set(length);
    }

    /// The same memory as shared, immutable bytes, without a copy. A buffer of these can be
    /// written to several places at once.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `pointer` is valid for `capacity` initialised bytes, and `length` is not more.
        unsafe {
            std::slice::from_raw_parts(self.0.span.pointer.as_ptr(), self.0.span.length.get())
        }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the exclusive reference makes this the only access.
        unsafe {
            std::slice::from_raw_parts_mut(self.0.span.pointer.as_ptr(), self.0.span.length.get())
        }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.0.capacity >= HUGE_PAGE_BYTES {
            // SAFETY: pointer and capacity came out of `into_parts`, and this is their only owner.
            drop(unsafe { Region::from_parts(self.0.span.pointer, self.0.capacity) });
        } else {
            // SAFETY: the pointer came from `alloc_zeroed` with this very layout.
            unsafe { alloc::dealloc(self.0.span.pointer.as_ptr(), heap_layout(self.0.capacity)) };
        }
    }
}

fn heap_layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, ALIGN_BYTES)
        .expect("less than 2 MiB, aligned to a power of two, is a layout")
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.0.span.length.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_aligned_and_zeroed() {
        for length in [
            0,
            1,
            512,
            4096,
            4097,
            HUGE_PAGE_BYTES - 1,
            HUGE_PAGE_BYTES,
            5 << 20,
        ] {
            let buffer = AlignedBuf::zeroed(length).unwrap();
            let align = if length >= HUGE_PAGE_BYTES {
                HUGE_PAGE_BYTES
            } else {
                ALIGN_BYTES
            };
            assert_eq!(buffer.as_ptr().addr() % align, 0);
            assert_eq!(buffer.len(), length);
            assert!(buffer.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn bytes_share_the_memory_without_a_copy() {
        let buffer = AlignedBuf::copy_of(b"shared").unwrap();
        let address = buffer.as_ptr();
        let bytes = buffer.into_bytes();
        assert_eq!(&bytes[..], b"shared");
        assert_eq!(bytes.as_ptr(), address);
    }

    #[test]
    fn a_size_that_no_machine_has_is_an_error() {
        assert_eq!(
            AlignedBuf::zeroed(usize::MAX).unwrap_err().kind(),
            ErrorKind::Exhausted
        );
    }
}
