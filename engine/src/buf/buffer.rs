//! [`Buffer`], one run of memory of whatever owner, and [`Buffers`], none, one or many of them.

use std::fmt;
use std::slice;

use bytes::Bytes;

use crate::buf::{AlignedBuf, PoolBuf};

/// One run of memory that an operation owns until it completes.
#[derive(Debug)]
pub struct Buffer(Repr);

#[derive(Debug)]
enum Repr {
    Aligned(AlignedBuf),
    Pooled(PoolBuf),
    // Boxed: it is the rare one, and every operation moves a buffer a few times.
    Shared(Box<Bytes>),
    // Made only by calls of this crate that return after the operation's completion, and taken
    // apart by them: no caller ever holds one.
    Borrowed(Borrowed),
}

/// Memory that a scope's operation gives back.
#[derive(Debug)]
pub enum ScopeMemory<'env> {
    /// What was read into. After an error its bytes are an unknown mix.
    Read(&'env mut [u8]),
    /// What was written from.
    Write(&'env [u8]),
}

/// Memory of a caller that waits for the completion.
pub(crate) struct Borrowed {
    pointer: *mut u8,
    length: usize,
    writable: bool,
}

// SAFETY: the memory is borrowed by a call that blocks until the operation's completion, so it is
// valid, and used by nobody else, on whichever thread the operation runs.
unsafe impl Send for Borrowed {}

impl Borrowed {
    /// Memory to read into.
    ///
    /// # Safety
    ///
    /// The caller keeps `memory` borrowed until the operation that is given this has completed.
    pub(crate) unsafe fn writable(memory: &mut [u8]) -> Buffer {
        let (pointer, length) = (memory.as_mut_ptr(), memory.len());
        Buffer(Repr::Borrowed(Self {
            pointer,
            length,
            writable: true,
        }))
    }

    /// Memory to write from.
    ///
    /// # Safety
    ///
    /// The caller keeps `memory` borrowed until the operation that is given this has completed.
    pub(crate) unsafe fn read_only(memory: &[u8]) -> Buffer {
        let (pointer, length) = (memory.as_ptr().cast_mut(), memory.len());
        Buffer(Repr::Borrowed(Self {
            pointer,
            length,
            writable: false,
        }))
    }
}

impl Borrowed {
    /// The borrow itself.
    ///
    /// # Safety
    ///
    /// The memory is borrowed for `'env`, for changing if it is writable, and the operation that
    /// this was given to has completed.
    pub(crate) unsafe fn into_memory<'env>(self) -> ScopeMemory<'env> {
        if self.writable {
            // SAFETY: by this function's contract.
            ScopeMemory::Read(unsafe { slice::from_raw_parts_mut(self.pointer, self.length) })
        } else {
            // SAFETY: by this function's contract.
            ScopeMemory::Write(unsafe { slice::from_raw_parts(self.pointer, self.length) })
        }
    }
}

impl fmt::Debug for Borrowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Borrowed({} bytes)", self.length)
    }
}

impl Buffer {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Repr::Aligned(buffer) => buffer,
            Repr::Pooled(buffer) => buffer,
            Repr::Shared(buffer) => buffer,
            Repr::Borrowed(_) => unreachable!("borrowed memory never reaches a caller"),
        }
    }

    /// The bytes, to change; none when they are shared.
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        match &mut self.0 {
            Repr::Aligned(buffer) => Some(buffer),
            Repr::Pooled(buffer) => Some(buffer),
            Repr::Shared(_) => None,
            Repr::Borrowed(_) => unreachable!("borrowed memory never reaches a caller"),
        }
    }

    /// How many bytes an operation transfers.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Aligned(buffer) => buffer.len(),
            Repr::Pooled(buffer) => buffer.len(),
            Repr::Shared(buffer) => buffer.len(),
            Repr::Borrowed(buffer) => buffer.length,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The borrow, if it is one.
    pub(crate) fn into_borrowed(self) -> Option<Borrowed> {
        match self.0 {
            Repr::Borrowed(borrowed) => Some(borrowed),
            Repr::Aligned(_) | Repr::Pooled(_) | Repr::Shared(_) => None,
        }
    }

    /// Whether a read may be given this memory.
    pub(crate) fn is_writable(&self) -> bool {
        self.parts().2
    }

    /// The first byte, for the kernel.
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.parts().0
    }

    /// The first byte for the kernel, the length, and whether a read may be given this memory.
    ///
    /// The pointer is valid as long as this value, or what it was moved to, lives: the memory that
    /// a buffer owns never moves.
    #[inline]
    pub(crate) fn parts(&self) -> (*mut u8, usize, bool) {
        match &self.0 {
            Repr::Aligned(buffer) => (buffer.raw(), buffer.len(), true),
            Repr::Pooled(buffer) => (buffer.raw(), buffer.len(), true),
            Repr::Shared(buffer) => (buffer.as_ptr().cast_mut(), buffer.len(), false),
            Repr::Borrowed(buffer) => (buffer.pointer, buffer.length, buffer.writable),
        }
    }
}

impl From<AlignedBuf> for Buffer {
    fn from(buffer: AlignedBuf) -> Self {
        Self(Repr::Aligned(buffer))
    }
}

impl From<PoolBuf> for Buffer {
    fn from(buffer: PoolBuf) -> Self {
        Self(Repr::Pooled(buffer))
    }
}

impl From<Bytes> for Buffer {
    fn from(buffer: Bytes) -> Self {
        Self(Repr::Shared(Box::new(buffer)))
    }
}

impl TryFrom<Buffer> for AlignedBuf {
    type Error = Buffer;

    fn try_from(buffer: Buffer) -> Result<Self, Buffer> {
        match buffer.0 {
            Repr::Aligned(inner) => Ok(inner),
            other => Err(Buffer(other)),
        }
    }
}

impl TryFrom<Buffer> for PoolBuf {
    type Error = Buffer;

    fn try_from(buffer: Buffer) -> Result<Self, Buffer> {
        match buffer.0 {
            Repr::Pooled(inner) => Ok(inner),
            other => Err(Buffer(other)),
        }
    }
}

impl TryFrom<Buffer> for Bytes {
    type Error = Buffer;

    /// Owned memory becomes shared bytes without a copy.
    fn try_from(buffer: Buffer) -> Result<Self, Buffer> {
        match buffer.0 {
            Repr::Shared(inner) => Ok(*inner),
            Repr::Aligned(inner) => Ok(inner.into_bytes()),
            Repr::Pooled(inner) => Ok(Self::from_owner(inner)),
            Repr::Borrowed(inner) => Err(Buffer(Repr::Borrowed(inner))),
        }
    }
}

/// None, one or many buffers, taken as one concatenated run of bytes.
#[derive(Debug)]
pub struct Buffers(pub(crate) BuffersRepr);

#[derive(Debug)]
pub(crate) enum BuffersRepr {
    None,
    One(Buffer),
    Many(Vec<Buffer>),
}

impl Buffers {
    /// No memory.
    pub const fn none() -> Self {
        Self(BuffersRepr::None)
    }

    /// How many bytes all of them hold together.
    #[inline]
    pub fn total_len(&self) -> u64 {
        match &self.0 {
            BuffersRepr::None => 0,
            BuffersRepr::One(buffer) => buffer.len() as u64,
            BuffersRepr::Many(buffers) => buffers.iter().map(|buffer| buffer.len() as u64).sum(),
        }
    }

    /// Each buffer in turn.
    pub fn iter(&self) -> impl Iterator<Item = &Buffer> {
        self.as_slice().iter()
    }

    /// The only buffer; none when there are none or several.
    #[inline]
    pub fn into_one(self) -> Option<Buffer> {
        match self.0 {
            BuffersRepr::One(buffer) => Some(buffer),
            BuffersRepr::Many(mut buffers) if buffers.len() == 1 => buffers.pop(),
            BuffersRepr::None | BuffersRepr::Many(_) => None,
        }
    }

    /// All of them.
    pub fn into_vec(self) -> Vec<Buffer> {
        match self.0 {
            BuffersRepr::None => Vec::new(),
            BuffersRepr::One(buffer) => vec![buffer],
            BuffersRepr::Many(buffers) => buffers,
        }
    }

    /// Whether any of it is borrowed from a caller that waits.
    pub(crate) fn is_borrowed(&self) -> bool {
        self.iter()
            .any(|buffer| matches!(buffer.0, Repr::Borrowed(_)))
    }

    fn as_slice(&self) -> &[Buffer] {
        match &self.0 {
            BuffersRepr::None => &[],
            BuffersRepr::One(buffer) => slice::from_ref(buffer),
            BuffersRepr::Many(buffers) => buffers,
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [Buffer] {
        match &mut self.0 {
            BuffersRepr::None => &mut [],
            BuffersRepr::One(buffer) => slice::from_mut(buffer),
            BuffersRepr::Many(buffers) => buffers,
        }
    }
}

impl<B: Into<Buffer>> From<B> for Buffers {
    fn from(buffer: B) -> Self {
        Self(BuffersRepr::One(buffer.into()))
    }
}

impl From<Vec<Buffer>> for Buffers {
    fn from(buffers: Vec<Buffer>) -> Self {
        Self(BuffersRepr::Many(buffers))
    }
}
