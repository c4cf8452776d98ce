//! A run of anonymous memory, mapped and unmapped as one.

use std::ptr::{self, NonNull};

use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use crate::error::{Error, Result};

/// The size and alignment of a huge page on x86-64 and (with 4 KiB base pages) arm64.
pub(super) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// When memory is to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Residency {
    /// Before the first use, which then takes no longer than any other.
    Now,
    /// Huge page by huge page, as each is first touched.
    OnDemand,
}

/// A private anonymous mapping, aligned to 2 MiB, zeroed, left out of forked children.
#[derive(Debug)]
pub(super) struct Region {
    pointer: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a region is plain memory that belongs to whoever owns the value; nothing in it is tied
// to the thread that mapped it.
unsafe impl Send for Region {}
// SAFETY: a shared reference gives out the address and the size only.
unsafe impl Sync for Region {}

impl Region {
    /// Maps at least `bytes` bytes (rounded up to 2 MiB), with huge pages where they can be had.
    pub(super) fn map(bytes: usize, residency: Residency) -> Result<Self> {
        let exhausted = |cause: std::io::Error| {
            Error::from_io(cause, format!("no memory for a buffer of {bytes} bytes"))
        };
        let rounded = bytes
            .max(1)
            .checked_next_multiple_of(HUGE_PAGE_BYTES)
            .filter(|rounded| rounded.checked_add(HUGE_PAGE_BYTES).is_some())
            .ok_or_else(|| exhausted(std::io::Error::from_raw_os_error(libc::ENOMEM)))?;
        // A mapping is only page-aligned: take 2 MiB more and give back what sticks out.
        let spare = rounded + HUGE_PAGE_BYTES;
        // SAFETY: a new private mapping at an address the kernel picks touches no existing memory.
        let mapped = unsafe {
            mm::mmap_anonymous(
                ptr::null_mut(),
                spare,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|errno| exhausted(errno.into()))?
        .cast::<u8>();
        let head = mapped.align_offset(HUGE_PAGE_BYTES);
        let start = mapped.wrapping_add(head);
        let tail = HUGE_PAGE_BYTES - head;
        // SAFETY: both runs lie within the mapping just made, outside the part that is kept, and
        // no reference to them exists. A failure leaves address space mapped, nothing worse.
        unsafe {
            if head > 0 {
                let _ = mm::munmap(mapped.cast(), head);
            }
            if tail > 0 {
                let _ = mm::munmap(start.wrapping_add(rounded).cast(), tail);
            }
        }
        let pointer = NonNull::new(start).expect("a mapping is never at address zero");
        let region = Self {
            pointer,
            bytes: rounded,
        };
        region.advise(residency);
        Ok(region)
    }

    /// Asks for huge pages, keeps the memory out of forked children (direct I/O into memory shared
    /// copy-on-write goes astray), and makes it resident where that is wanted now.
    fn advise(&self, residency: Residency) {
        let populate = (residency == Residency::Now).then_some(Advice::LinuxPopulateWrite);
        // All three are hints: without them the memory is slower, not wrong.
        let hints = [Advice::LinuxHugepage, Advice::LinuxDontFork];
        for advice in hints.into_iter().chain(populate) {
            // SAFETY: the range is this region's own mapping; none of these advices changes what
            // it reads as.
            let _ = unsafe { mm::madvise(self.pointer.as_ptr().cast(), self.bytes, advice) };
        }
    }

    /// Takes it apart, to be put together again by [`from_parts`](Self::from_parts).
    pub(super) fn into_parts(self) -> (NonNull<u8>, usize) {
        let region = std::mem::ManuallyDrop::new(self);
        (region.pointer, region.bytes)
    }

    /// The region that was taken apart.
    ///
    /// # Safety
    ///
    /// The parts came from [`into_parts`](Self::into_parts), and are put together once.
    pub(super) unsafe fn from_parts(pointer: NonNull<u8>, bytes: usize) -> Self {
        Self { pointer, bytes }
    }

    pub(super) fn pointer(&self) -> NonNull<u8> {
        self.pointer
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and everything that points into it (a buffer, a
        // pool's pieces) keeps this value alive.
        let result = unsafe { mm::munmap(self.pointer.as_ptr().cast(), self.bytes) };
        debug_assert!(
            result.is_ok(),
            "munmap of a region's own mapping: {result:?}"
        );
    }
}
