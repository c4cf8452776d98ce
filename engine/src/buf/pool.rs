//! [`BufPool`]: pieces of one arena, handed out and taken back.
//!
//! One arena on huge pages, made once: what a lane's operations use over and over. A queue that is
//! given the pool registers the arena with the kernel, which then need not look its pages up for
//! every transfer.

use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::buf::region::{Region, Residency};
use crate::buf::span::Span;
use crate::error::{Error, ErrorKind, Result};

/// Pieces of one arena, all of one size. Clones share the arena.
#[derive(Clone)]
pub struct BufPool(Arc<Shared>);

struct Shared {
    arena: Region,
    piece_bytes: usize,
    pieces: Box<[Piece]>,
    // The numbers of the pieces nobody holds. Taken last in, first out: the warmest piece first.
    free: Mutex<Vec<u32>>,
}

/// What is known of one piece. It stays here while the piece is held, so that what holds it is one
/// pointer: an operation moves its buffer several times.
// The span first, for `Buffer`.
#[repr(C)]
struct Piece {
    span: Span,
    pool: *const Shared,
    index: u32,
}

// SAFETY: the arena and the lists are plain memory of the process. The one part that is changed
// without the lock is a piece's length, by the value that holds the piece, of which there is one.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl BufPool {
    /// A pool of `count` pieces of `piece_bytes` bytes each, all of it resident: for work that uses
    /// every piece, over and over.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] when `piece_bytes` is not a multiple of 4096, or 4 GiB and
    /// more, or either is zero;
    /// [`ErrorKind::Exhausted`] when the memory is not to be had.
    pub fn new(piece_bytes: usize, count: usize) -> Result<Self> {
        Self::with(piece_bytes, count, Residency::Now)
    }

    /// The same, resident only as far as pieces are used, those that come back before fresh ones:
    /// for work that may need few of many. A queue that registers it makes all of it resident.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn on_demand(piece_bytes: usize, count: usize) -> Result<Self> {
        Self::with(piece_bytes, count, Residency::OnDemand)
    }

    fn with(piece_bytes: usize, count: usize, residency: Residency) -> Result<Self> {
        if piece_bytes == 0
            || !piece_bytes.is_multiple_of(4096)
            || u32::try_from(piece_bytes).is_err()
        {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "pieces of a pool are a multiple of 4096 bytes, below 4 GiB, not {piece_bytes}"
                ),
            ));
        }
        let pieces = u32::try_from(count).ok().filter(|&pieces| pieces > 0);
        let (Some(pieces), Some(bytes)) = (pieces, piece_bytes.checked_mul(count)) else {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("a pool cannot have {count} pieces of {piece_bytes} bytes"),
            ));
        };
        let arena = Region::map(bytes, residency)?;
        let free = Mutex::new((0..pieces).rev().collect());
        Ok(Self(Arc::new_cyclic(|shared| {
            let pieces = (0..pieces).map(|index| Piece {
                span: Span {
                    // SAFETY: `index` is below `count`, so the piece lies within the arena.
                    pointer: unsafe { arena.pointer().add(index as usize * piece_bytes) },
                    length: Cell::new(piece_bytes),
                },
                pool: shared.as_ptr(),
                index,
            });
            Shared {
                pieces: pieces.collect(),
                arena,
                piece_bytes,
                free,
            }
        })))
    }

    /// A piece, or none while all are held. Its bytes are what the last holder left.
    pub fn take(&self) -> Option<PoolBuf> {
        let index = self.0.free.lock().pop()?;
        let piece = &self.0.pieces[index as usize];
        piece.span.length.set(self.0.piece_bytes);
        // The piece's share of the pool, which its drop gives up.
        let _ = Arc::into_raw(Arc::clone(&self.0));
        Some(PoolBuf(NonNull::from(piece)))
    }

    /// Size of each piece in bytes.
    pub fn piece_bytes(&self) -> usize {
        self.0.piece_bytes
    }

    /// How many pieces there are.
    pub fn count(&self) -> usize {
        self.0.pieces.len()
    }

    /// How many pieces nobody holds at this moment.
    pub fn available(&self) -> usize {
        self.0.free.lock().len()
    }

    /// The arena: its first byte and its length.
    pub(crate) fn arena(&self) -> (NonNull<u8>, usize) {
        (self.0.arena.pointer(), self.0.piece_bytes * self.count())
    }
}

impl fmt::Debug for BufPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "BufPool({} pieces of {} bytes)",
            self.count(),
            self.piece_bytes()
        )
    }
}

/// A piece of a [`BufPool`]; goes back to it when dropped.
// One word, for `Buffer`.
#[repr(transparent)]
pub struct PoolBuf(NonNull<Piece>);

// SAFETY: a piece is held by one value at a time, and the arena lives as long as the piece.
unsafe impl Send for PoolBuf {}
// SAFETY: a shared reference only allows reading the bytes.
unsafe impl Sync for PoolBuf {}

impl PoolBuf {
    #[inline]
    fn piece(&self) -> &Piece {
        // SAFETY: the pool holds the piece, and this value holds a share of the pool.
        unsafe { self.0.as_ref() }
    }

    /// How many bytes it holds.
    #[inline]
    pub fn len(&self) -> usize {
        self.piece().span.length.get()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn raw(&self) -> *mut u8 {
        self.piece().span.pointer.as_ptr()
    }

    /// The most bytes it can hold: the pool's piece size.
    pub fn capacity(&self) -> usize {
        // SAFETY: this value holds a share of the pool.
        unsafe { &*self.piece().pool }.piece_bytes
    }

    /// Makes it `length` bytes long; operations transfer just these.
    ///
    /// # Panics
    ///
    /// When `length` is more than [`capacity`](Self::capacity).
    pub fn set_len(&mut self, length: usize) {
        assert!(
            length <= self.capacity(),
            "a piece of {} cannot be {length}",
            self.capacity()
        );
        self.piece().span.length.set(length);
    }
}

impl Deref for PoolBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the piece is `piece_bytes` initialised bytes of an arena that this value's share
        // keeps alive, its length is not more, and no other value holds the piece.
        unsafe { std::slice::from_raw_parts(self.raw(), self.len()) }
    }
}

impl DerefMut for PoolBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the exclusive reference makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.raw(), self.len()) }
    }
}

impl AsRef<[u8]> for PoolBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for PoolBuf {
    fn drop(&mut self) {
        let &Piece { pool, index, .. } = self.piece();
        // SAFETY: `take` made a share of the pool into this pointer, for this value alone.
        let pool = unsafe { Arc::from_raw(pool) };
        pool.free.lock().push(index);
    }
}

impl fmt::Debug for PoolBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolBuf({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_disjoint_and_come_back() {
        let pool = BufPool::new(4096, 3).unwrap();
        let mut pieces: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!((pieces.len(), pool.available()), (3, 0));
        for (mark, piece) in (1..).zip(&mut pieces) {
            piece.fill(mark);
        }
        for (mark, piece) in (1..).zip(&pieces) {
            assert!(piece.iter().all(|&byte| byte == mark));
        }
        drop(pieces);
        assert_eq!(pool.available(), 3);
    }

    #[test]
    fn pieces_that_came_back_are_taken_before_fresh_ones() {
        let pool = BufPool::on_demand(4096, 3).unwrap();
        let used = pool.take().unwrap().as_ptr();
        assert_eq!(pool.take().unwrap().as_ptr(), used);
        let mut two: Vec<_> = std::iter::from_fn(|| pool.take()).take(2).collect();
        two.iter_mut().for_each(|piece| piece.fill(7));
        assert!(two.iter().all(|piece| piece.iter().all(|&byte| byte == 7)));
    }

    #[test]
    fn a_piece_outlives_its_pool() {
        let piece = BufPool::new(8192, 1).unwrap().take().unwrap();
        assert_eq!(piece.len(), 8192);
    }

    #[test]
    fn odd_pieces_are_refused() {
        for (piece_bytes, count) in [(0, 1), (1000, 1), (4096, 0), (4096, usize::MAX / 2)] {
            assert!(BufPool::new(piece_bytes, count).is_err());
        }
    }
}
