//! [`Buffer`], one run of memory of whatever owner, and [`Buffers`], none, one or many of them.
//!
//! Every operation moves its buffer several times: into the request, into the lane, into the
//! completion, back to the caller. So a buffer is two words that travel in registers, a tag and a
//! pointer, where an `enum` of owners would be taken apart and put together in memory at each step.

use std::fmt;
use std::mem::ManuallyDrop;
use std::num::NonZero;
use std::ptr::{self, NonNull};
use std::slice;

use bytes::Bytes;

use crate::buf::span::Span;
use crate::buf::{AlignedBuf, PoolBuf};

/// One run of memory that an operation owns until it completes.
pub struct Buffer {
    tag: Tag,
    /// What it points to is the tag's to say.
    word: NonNull<()>,
}

/// Whose memory a buffer's word points to: one of the constants below. For borrowed memory, which
/// has no owner to ask, the bits above [`Tag::BITS`] hold the length.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Tag(NonZero<u64>);

impl Tag {
    const BITS: u32 = 3;
    /// An [`AlignedBuf`], which is one word. Like the next it has a span; nothing else has.
    const ALIGNED: Self = Self::of(1);
    /// A [`PoolBuf`], which is one word.
    const POOLED: Self = Self::of(2);
    /// A `Box<Bytes>`. Boxed: it is the rare one.
    const SHARED: Self = Self::of(3);
    // Made only by calls of this crate that return after the operation's completion, and taken
    // apart by them: no caller ever holds one.
    /// The first byte of memory that is borrowed to write from.
    const BORROWED: Self = Self::of(4);
    /// The first byte of memory that is borrowed to read into.
    const BORROWED_MUT: Self = Self::of(5);
    /// A `Box<Vec<Buffer>>`; only within [`Buffers`].
    const MANY: Self = Self::of(6);

    const fn of(number: u64) -> Self {
        Self(NonZero::new(number).expect("tags are not zero"))
    }

    /// Whether the word points to what begins with a [`Span`].
    #[inline]
    fn has_span(self) -> bool {
        self.0 <= Self::POOLED.0
    }

    #[inline]
    fn kind(self) -> u64 {
        self.0.get() & ((1 << Self::BITS) - 1)
    }

    /// The length of borrowed memory.
    #[inline]
    fn length(self) -> usize {
        (self.0.get() >> Self::BITS) as usize
    }

    #[inline]
    fn is(self, kind: Self) -> bool {
        self.kind() == kind.kind()
    }
}

/// A buffer's owner.
enum Owner<'a> {
    Aligned(&'a AlignedBuf),
    Pooled(&'a PoolBuf),
    Shared(&'a Bytes),
    Borrowed { length: usize },
}

// SAFETY: every owner is `Send`; borrowed memory is borrowed by a call that blocks until the
// operation's completion, so it is valid, and used by nobody else, on whichever thread the operation
// runs.
unsafe impl Send for Buffer {}
// SAFETY: every owner is `Sync`, and a shared reference to borrowed memory gives out no bytes.
unsafe impl Sync for Buffer {}

/// Memory that a scope's operation gives back.
#[derive(Debug)]
pub enum ScopeMemory<'env> {
    /// What was read into. After an error its bytes are an unknown mix.
    Read(&'env mut [u8]),
    /// What was written from.
    Write(&'env [u8]),
}

/// Memory of a caller that waits for the completion.
pub(crate) struct Borrowed(Buffer);

impl Borrowed {
    fn of(pointer: *mut u8, length: usize, tag: Tag) -> Buffer {
        let length = length as u64;
        assert!(
            length.leading_zeros() >= Tag::BITS,
            "no memory is that long: {length}"
        );
        Buffer {
            tag: Tag(tag.0 | length << Tag::BITS),
            word: NonNull::new(pointer.cast()).expect("a slice does not lie at address zero"),
        }
    }

    /// Memory to read into.
    ///
    /// # Safety
    ///
    /// The caller keeps `memory` borrowed until the operation that is given this has completed.
    pub(crate) unsafe fn writable(memory: &mut [u8]) -> Buffer {
        Self::of(memory.as_mut_ptr(), memory.len(), Tag::BORROWED_MUT)
    }

    /// Memory to write from.
    ///
    /// # Safety
    ///
    /// The caller keeps `memory` borrowed until the operation that is given this has completed.
    pub(crate) unsafe fn read_only(memory: &[u8]) -> Buffer {
        Self::of(memory.as_ptr().cast_mut(), memory.len(), Tag::BORROWED)
    }

    /// The borrow itself.
    ///
    /// # Safety
    ///
    /// The memory is borrowed for `'env`, for changing if it is writable, and the operation that
    /// this was given to has completed.
    pub(crate) unsafe fn into_memory<'env>(self) -> ScopeMemory<'env> {
        let (pointer, length, writable) = self.0.parts();
        if writable {
            // SAFETY: by this function's contract.
            ScopeMemory::Read(unsafe { slice::from_raw_parts_mut(pointer, length) })
        } else {
            // SAFETY: by this function's contract.
            ScopeMemory::Write(unsafe { slice::from_raw_parts(pointer, length) })
        }
    }
}

impl Buffer {
    /// A buffer of `owner`, which is one word.
    #[inline]
    fn owned<T>(tag: Tag, owner: T) -> Self {
        const { assert!(size_of::<T>() == size_of::<NonNull<()>>()) };
        let owner = ManuallyDrop::new(owner);
        // SAFETY: all owners that have a tag are one pointer that is never null: `AlignedBuf` and
        // `PoolBuf` by `repr(transparent)`, and a `Box`.
        let word = unsafe { ptr::from_ref(&owner).cast::<NonNull<()>>().read() };
        Self { tag, word }
    }

    /// The owner, taken out.
    ///
    /// # Safety
    ///
    /// The buffer was made by [`owned`](Self::owned) of a `T`.
    #[inline]
    unsafe fn into_owner<T>(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: the word is the very value that `owned` was given, and is read once: `self` is
        // not dropped.
        unsafe { ptr::from_ref(&this.word).cast::<T>().read() }
    }

    /// The owner, in place.
    ///
    /// # Safety
    ///
    /// The buffer was made by [`owned`](Self::owned) of a `T`.
    #[inline]
    unsafe fn owner_as<T>(&self) -> &T {
        // SAFETY: the word is the very value that `owned` was given.
        unsafe { &*ptr::from_ref(&self.word).cast::<T>() }
    }

    #[inline]
    fn owner(&self) -> Owner<'_> {
        // SAFETY: for each arm, the tag says what the word was made of.
        unsafe {
            match self.tag {
                Tag::ALIGNED => Owner::Aligned(self.owner_as()),
                Tag::POOLED => Owner::Pooled(self.owner_as()),
                Tag::SHARED => Owner::Shared(self.owner_as::<Box<Bytes>>()),
                Tag::MANY => unreachable!("many buffers are not one"),
                tag => Owner::Borrowed {
                    length: tag.length(),
                },
            }
        }
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self.owner() {
            Owner::Aligned(buffer) => buffer,
            Owner::Pooled(buffer) => buffer,
            Owner::Shared(buffer) => buffer,
            Owner::Borrowed { .. } => unreachable!("borrowed memory never reaches a caller"),
        }
    }

    /// The bytes, to change; none when they are shared.
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        match self.owner() {
            Owner::Aligned(_) | Owner::Pooled(_) => {
                let (pointer, length, _) = self.parts();
                // SAFETY: the owner has this memory alone, all of it initialised, and the exclusive
                // reference to the owner makes this the only access.
                Some(unsafe { slice::from_raw_parts_mut(pointer, length) })
            }
            Owner::Shared(_) => None,
            Owner::Borrowed { .. } => unreachable!("borrowed memory never reaches a caller"),
        }
    }

    /// How many bytes an operation transfers.
    #[inline]
    pub fn len(&self) -> usize {
        self.parts().1
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The borrow, if it is one.
    pub(crate) fn into_borrowed(self) -> Option<Borrowed> {
        self.is_borrowed().then(|| Borrowed(self))
    }

    fn is_borrowed(&self) -> bool {
        self.tag.is(Tag::BORROWED) || self.tag.is(Tag::BORROWED_MUT)
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
        if self.tag.has_span() {
            // SAFETY: the word points to what begins with a span, by its owner's `repr(C)`.
            let span = unsafe { self.word.cast::<Span>().as_ref() };
            return (span.pointer.as_ptr(), span.length.get(), true);
        }
        if self.tag == Tag::SHARED {
            // SAFETY: what this tag is for.
            let bytes = unsafe { self.word.cast::<Bytes>().as_ref() };
            return (bytes.as_ptr().cast_mut(), bytes.len(), false);
        }
        assert!(self.is_borrowed(), "many buffers are not one");
        let is_writable = self.tag.is(Tag::BORROWED_MUT);
        (self.word.as_ptr().cast(), self.tag.length(), is_writable)
    }

    /// The owner, if it is of this kind.
    ///
    /// # Safety
    ///
    /// Buffers with `tag` are [`owned`](Self::owned) by a `T`.
    #[inline]
    unsafe fn try_into_owner<T>(self, tag: Tag) -> Result<T, Self> {
        if self.tag == tag {
            // SAFETY: by this function's contract.
            Ok(unsafe { self.into_owner() })
        } else {
            Err(self)
        }
    }
}

impl Drop for Buffer {
    // By value: a buffer whose address no drop takes, on no way out of a function, can stay in
    // registers.
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: this is the buffer's end, so its word is not used again.
        unsafe { drop_word(self.tag, self.word) };
    }
}

/// Drops the owner that a word was made of.
///
/// # Safety
///
/// Both are those of a buffer, which is not used again.
#[inline(never)]
unsafe fn drop_word(tag: Tag, mut word: NonNull<()>) {
    /// # Safety
    ///
    /// The word was made of a `T`, and is not used again.
    unsafe fn drop_as<T>(word: &mut NonNull<()>) {
        // SAFETY: by this function's contract.
        unsafe { ptr::from_mut(word).cast::<T>().drop_in_place() };
    }
    // SAFETY: for each arm, the tag says what the word was made of. Borrowed memory is not ours to
    // free.
    unsafe {
        match tag {
            Tag::ALIGNED => drop_as::<AlignedBuf>(&mut word),
            Tag::POOLED => drop_as::<PoolBuf>(&mut word),
            Tag::SHARED => drop_as::<Box<Bytes>>(&mut word),
            Tag::MANY => drop_as::<Box<Vec<Buffer>>>(&mut word),
            _ => {}
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner() {
            Owner::Aligned(buffer) => buffer.fmt(f),
            Owner::Pooled(buffer) => buffer.fmt(f),
            Owner::Shared(buffer) => write!(f, "Shared({} bytes)", buffer.len()),
            Owner::Borrowed { length } => write!(f, "Borrowed({length} bytes)"),
        }
    }
}

impl From<AlignedBuf> for Buffer {
    #[inline]
    fn from(buffer: AlignedBuf) -> Self {
        Self::owned(Tag::ALIGNED, buffer)
    }
}

impl From<PoolBuf> for Buffer {
    #[inline]
    fn from(buffer: PoolBuf) -> Self {
        Self::owned(Tag::POOLED, buffer)
    }
}

impl From<Bytes> for Buffer {
    fn from(buffer: Bytes) -> Self {
        Self::owned(Tag::SHARED, Box::new(buffer))
    }
}

impl TryFrom<Buffer> for AlignedBuf {
    type Error = Buffer;

    fn try_from(buffer: Buffer) -> Result<Self, Buffer> {
        // SAFETY: what this tag is for.
        unsafe { buffer.try_into_owner(Tag::ALIGNED) }
    }
}

impl TryFrom<Buffer> for PoolBuf {
    type Error = Buffer;

    fn try_from(buffer: Buffer) -> Result<Self, Buffer> {
        // SAFETY: what this tag is for.
        unsafe { buffer.try_into_owner(Tag::POOLED) }
    }
}

impl TryFrom<Buffer> for Bytes {
    type Error = Buffer;

    /// Owned memory becomes shared bytes without a copy.
    fn try_from(buffer: Buffer) -> Result<Self, Buffer> {
        let buffer = match AlignedBuf::try_from(buffer) {
            Ok(inner) => return Ok(inner.into_bytes()),
            Err(buffer) => buffer,
        };
        let buffer = match PoolBuf::try_from(buffer) {
            Ok(inner) => return Ok(Self::from_owner(inner)),
            Err(buffer) => buffer,
        };
        // SAFETY: what this tag is for.
        unsafe { buffer.try_into_owner::<Box<Self>>(Tag::SHARED) }.map(|inner| *inner)
    }
}

/// None, one or many buffers, taken as one concatenated run of bytes.
#[derive(Default)]
pub struct Buffers(Option<Buffer>);

const _: () = assert!(size_of::<Buffers>() <= 16, "buffers are two words");

impl Buffers {
    /// No memory.
    pub const fn none() -> Self {
        Self(None)
    }

    /// How many bytes all of them hold together.
    #[inline]
    pub fn total_len(&self) -> u64 {
        /// # Safety
        ///
        /// The word is that of [`Tag::MANY`].
        #[cold]
        unsafe fn of_many(word: NonNull<()>) -> u64 {
            // SAFETY: what this tag is for.
            let buffers = unsafe { word.cast::<Vec<Buffer>>().as_ref() };
            buffers.iter().map(|buffer| buffer.len() as u64).sum()
        }
        match &self.0 {
            None => 0,
            // SAFETY: by its tag.
            Some(many) if many.tag == Tag::MANY => unsafe { of_many(many.word) },
            Some(buffer) => buffer.len() as u64,
        }
    }

    /// Each buffer in turn.
    pub fn iter(&self) -> impl Iterator<Item = &Buffer> {
        self.as_slice().iter()
    }

    /// The only buffer; none when there are none or several.
    #[inline]
    pub fn into_one(self) -> Option<Buffer> {
        if self.is_many() {
            return self.into_only();
        }
        self.0
    }

    #[cold]
    fn into_only(self) -> Option<Buffer> {
        let mut buffers = self.into_vec();
        buffers.pop().filter(|_| buffers.is_empty())
    }

    /// All of them.
    pub fn into_vec(self) -> Vec<Buffer> {
        if self.is_many() {
            // SAFETY: what this tag is for.
            let many = self.0.map(|many| unsafe { many.into_owner() });
            return many.map_or_else(Vec::new, |many: Box<Vec<Buffer>>| *many);
        }
        self.0.into_iter().collect()
    }

    /// The buffer when there is just one, not in a list.
    #[inline]
    pub(crate) fn as_one(&self) -> Option<&Buffer> {
        self.0.as_ref().filter(|_| !self.is_many())
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Whether any of it is borrowed from a caller that waits.
    pub(crate) fn is_borrowed(&self) -> bool {
        self.iter().any(Buffer::is_borrowed)
    }

    #[inline]
    fn is_many(&self) -> bool {
        matches!(&self.0, Some(buffer) if buffer.tag == Tag::MANY)
    }

    pub(crate) fn as_slice(&self) -> &[Buffer] {
        match &self.0 {
            None => &[],
            // SAFETY: what this tag is for.
            Some(many) if many.tag == Tag::MANY => unsafe { many.owner_as::<Box<Vec<Buffer>>>() },
            Some(buffer) => slice::from_ref(buffer),
        }
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<B: Into<Buffer>> From<B> for Buffers {
    #[inline]
    fn from(buffer: B) -> Self {
        Self(Some(buffer.into()))
    }
}

impl From<Vec<Buffer>> for Buffers {
    fn from(buffers: Vec<Buffer>) -> Self {
        Self(Some(Buffer::owned(Tag::MANY, Box::new(buffers))))
    }
}
