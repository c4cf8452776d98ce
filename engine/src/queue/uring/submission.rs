//! [`SubmissionRing`]: the submission queue of a ring, its entries written in place.
//!
//! The crate's own `push` takes a finished entry and copies it: 64 bytes written field by field and
//! read back at once in wider pieces, which a CPU cannot forward from its store buffer. Here each
//! field is stored once, where the kernel reads it. Set-up, registration, entering and the
//! completion queue stay the crate's; nothing else pushes.
//!
//! Layout: the two mappings and their offsets are those of io_uring_setup(2), the entry that of
//! io_uring_enter(2).

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use io_uring::IoUring;
use rustix::io_uring::{IORING_OFF_SQ_RING, IORING_OFF_SQES, io_uring_params};
use rustix::mm::{self, MapFlags, ProtFlags};

/// A submission queue entry, by the names it has for reads, writes, fsync and poll. What is not
/// named here stays zero, as the kernel gave it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Entry {
    pub(super) opcode: u8,
    pub(super) flags: u8,
    ioprio: u16,
    pub(super) fd: i32,
    pub(super) offset: u64,
    pub(super) address: u64,
    pub(super) length: u32,
    /// `rw_flags`, `fsync_flags` or `poll32_events`.
    pub(super) op_flags: u32,
    pub(super) user_data: u64,
    /// The number of the registered buffer.
    pub(super) buffer: u16,
    personality: u16,
    rest: [u32; 5],
}

const _: () = assert!(size_of::<Entry>() == 64, "an entry is 64 bytes");

/// The producer's side of a ring's submission queue.
pub(super) struct SubmissionRing {
    entries: Mapping<Entry>,
    /// The page that holds `head` and `tail`.
    ring: Mapping<u8>,
    head_offset: usize,
    tail_offset: usize,
    mask: u32,
    /// Where the next entry goes. Ahead of the kernel's own tail by what is not published.
    tail: u32,
}

impl SubmissionRing {
    /// The submission queue of `ring`, which nobody has pushed to.
    pub(super) fn of(ring: &IoUring) -> io::Result<Self> {
        // SAFETY: `Parameters` is documented as a transparent wrapper of the system's
        // `io_uring_params`, and this is the same structure by another name.
        let params = unsafe { &*ptr::from_ref(ring.params()).cast::<io_uring_params>() };
        let offsets = &params.sq_off;
        let (head_offset, tail_offset) = (offsets.head as usize, offsets.tail as usize);
        let ring_bytes = head_offset.max(tail_offset) + size_of::<AtomicU32>();
        let entries_bytes = params.sq_entries as usize * size_of::<Entry>();
        // SAFETY: the descriptor is the ring's own, which outlives this call.
        let descriptor = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
        let mut this = Self {
            entries: Mapping::of(descriptor, IORING_OFF_SQES, entries_bytes)?,
            ring: Mapping::of(descriptor, IORING_OFF_SQ_RING, ring_bytes)?,
            head_offset,
            tail_offset,
            // A ring's size is a power of two.
            mask: params.sq_entries - 1,
            tail: 0,
        };
        this.tail = this.shared(tail_offset).load(Ordering::Relaxed);
        Ok(this)
    }

    /// The next entry, to be filled in: every field that any other filling of it sets. It is the
    /// kernel's from the next [`publish`](Self::publish) on.
    ///
    /// The caller sees to it that the queue [is not full](Self::is_full).
    #[inline]
    pub(super) fn push(&mut self) -> &mut Entry {
        debug_assert!(!self.is_full(), "the submission queue is full");
        let place = (self.tail & self.mask) as usize;
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the mask keeps the place within the mapping, which was zeroed by the kernel, and
        // zeroes are an entry. The kernel does not read an entry that is not published, and has
        // taken the one that lay here before, as the queue is not full.
        unsafe { &mut *self.entries.pointer.as_ptr().add(place) }
    }

    /// Hands the kernel all that was pushed.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.shared(self.tail_offset)
            .store(self.tail, Ordering::Release);
    }

    /// Whether the kernel has yet to take every entry there is room for.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        let head = self.shared(self.head_offset).load(Ordering::Acquire);
        self.tail.wrapping_sub(head) > self.mask
    }

    /// A word of the ring that is shared with the kernel.
    #[inline]
    fn shared(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the mapping was made to reach beyond both offsets, which the kernel aligned, and
        // both sides use these words as atomics.
        unsafe { &*self.ring.pointer.as_ptr().add(offset).cast::<AtomicU32>() }
    }
}

impl fmt::Debug for SubmissionRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SubmissionRing({} entries)", self.mask + 1)
    }
}

/// Memory that is shared with the kernel.
struct Mapping<T> {
    pointer: NonNull<T>,
    bytes: usize,
}

// SAFETY: a mapping is memory of the process, not of a thread.
unsafe impl<T: Send> Send for Mapping<T> {}

impl<T> Mapping<T> {
    fn of(descriptor: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<Self> {
        let (protection, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::POPULATE,
        );
        // SAFETY: a new mapping at an address the kernel picks touches no existing memory.
        let pointer = unsafe {
            mm::mmap(
                ptr::null_mut(),
                bytes,
                protection,
                flags,
                descriptor,
                offset,
            )
        }?;
        let pointer = NonNull::new(pointer.cast()).expect("a mapping is never at address zero");
        Ok(Self { pointer, bytes })
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no reference into it outlives this value.
        let result = unsafe { mm::munmap(self.pointer.as_ptr().cast(), self.bytes) };
        debug_assert!(result.is_ok(), "munmap of a ring's own mapping: {result:?}");
    }
}
