//! An allocator that counts what each thread has, to see how much memory a piece of work takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has more than when it began to measure; less, when it freed others.
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counting.
pub(crate) struct Counting;

/// How many bytes more than before `work` has at a time. What is grown in place counts twice, as it
/// may have to move.
pub(crate) fn peak_of(work: impl FnOnce()) -> usize {
    NOW.set(0);
    PEAK.set(0);
    work();
    usize::try_from(PEAK.get()).unwrap_or(0)
}

fn add(bytes: usize) {
    NOW.set(NOW.get().wrapping_add_unsigned(bytes));
    PEAK.set(PEAK.get().max(NOW.get()));
}

fn sub(bytes: usize) {
    NOW.set(NOW.get().wrapping_sub_unsigned(bytes));
}

// SAFETY: every call goes to the system's allocator as it came; counting touches two cells of this
// thread, which need no allocation and have no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: passed on from the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        sub(layout.size());
        // SAFETY: passed on from the caller.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: passed on from the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        add(new_size);
        sub(layout.size());
        // SAFETY: passed on from the caller.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
