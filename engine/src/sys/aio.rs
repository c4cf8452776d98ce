//! Linux AIO as the kernel has it (`linux/aio_abi.h`, io_submit(2)): glibc has no wrappers, and
//! libaio's are a C library for five calls.
//!
//! - The kernel copies an [`Iocb`] when it takes it: after [`Context::submit`] has returned, its
//!   memory is ours again. What it points to (the data) stays the kernel's until the completion.
//!   A list of iovecs is read within the call.
//! - A context's id is the address of its completion ring, mapped into this process. When the ring
//!   says so by its magic, completions are read from it without a system call, as fio, QEMU and
//!   SPDK do. The kernel moves the tail, the reader moves the head; io_getevents(2) moves the head
//!   as well, which is why a context has one owner and both ways take `&mut self`.
//!
//! ```text
//! struct aio_ring:  id nr head tail magic compat incompat header_length | io_event[nr]
//! ```

use std::io;
use std::mem::{offset_of, size_of};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// Read into one run of memory.
pub(crate) const IOCB_CMD_PREAD: u16 = 0;
/// Write from one run of memory.
pub(crate) const IOCB_CMD_PWRITE: u16 = 1;
/// fdatasync(2), since Linux 4.18 on every file.
pub(crate) const IOCB_CMD_FDSYNC: u16 = 3;
/// One wait for readiness of a descriptor, since Linux 4.19.
pub(crate) const IOCB_CMD_POLL: u16 = 5;
/// Read into a list of iovecs.
pub(crate) const IOCB_CMD_PREADV: u16 = 7;
/// Write from a list of iovecs.
pub(crate) const IOCB_CMD_PWRITEV: u16 = 8;

/// Return at once, see [`Context::wait`].
pub(crate) const NOW: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// `struct iocb`: one operation. Fields without a word stay zero.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Iocb {
    /// Comes back as [`IoEvent::data`].
    pub(crate) aio_data: u64,
    /// The kernel writes here when it takes the operation.
    #[cfg(target_endian = "little")]
    pub(crate) aio_key: u32,
    /// `RWF_*` of pwritev2(2).
    pub(crate) aio_rw_flags: i32,
    #[cfg(target_endian = "big")]
    pub(crate) aio_key: u32,
    /// `IOCB_CMD_*`.
    pub(crate) aio_lio_opcode: u16,
    pub(crate) aio_reqprio: i16,
    /// The descriptor.
    pub(crate) aio_fildes: u32,
    /// The address of the memory or of the iovecs; for a poll the events.
    pub(crate) aio_buf: u64,
    /// The length of the memory or the number of iovecs.
    pub(crate) aio_nbytes: u64,
    /// The first byte in the file.
    pub(crate) aio_offset: i64,
    pub(crate) aio_reserved2: u64,
    pub(crate) aio_flags: u32,
    pub(crate) aio_resfd: u32,
}

/// `struct io_event`: the end of one operation.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct IoEvent {
    /// The operation's [`Iocb::aio_data`].
    pub(crate) data: u64,
    /// The address its [`Iocb`] had when it was submitted.
    pub(crate) obj: u64,
    /// Bytes transferred, or a negated error number.
    pub(crate) res: i64,
    res2: i64,
}

/// `struct aio_ring`: the head of the completion ring. The events follow.
#[repr(C)]
struct AioRing {
    id: u32,
    nr: u32,
    head: u32,
    tail: u32,
    magic: u32,
    compat_features: u32,
    incompat_features: u32,
    header_length: u32,
}

const AIO_RING_MAGIC: u32 = 0xa10a_10a1;

const _: () = {
    assert!(size_of::<Iocb>() == 64);
    assert!(offset_of!(Iocb, aio_lio_opcode) == 16);
    assert!(offset_of!(Iocb, aio_buf) == 24);
    assert!(offset_of!(Iocb, aio_offset) == 40);
    assert!(size_of::<IoEvent>() == 32);
    assert!(size_of::<AioRing>() == 32);
};

/// A completion ring that this process may read itself.
#[derive(Debug, Clone, Copy)]
struct Ring {
    header: NonNull<AioRing>,
    /// How many events it has room for; fixed when it is made.
    count: u32,
}

impl Ring {
    /// The ring of the context `id`, if its layout is the one we know.
    fn at(id: usize) -> Option<Self> {
        let header = NonNull::new(ptr::with_exposed_provenance_mut::<AioRing>(id))?;
        // SAFETY: io_setup mapped the ring at the address that it gave as the id, a page at least,
        // readable and writable, and it stays until io_destroy. Only `head` and `tail` change, and
        // no operation has been submitted yet.
        let found = unsafe { header.read() };
        let known = found.magic == AIO_RING_MAGIC
            && found.incompat_features == 0
            && usize::try_from(found.header_length).is_ok_and(|n| n == size_of::<AioRing>())
            && found.nr > 0;
        known.then_some(Self {
            header,
            count: found.nr,
        })
    }

    fn head(&self) -> &AtomicU32 {
        // SAFETY: the field lies in the mapped ring and is aligned; kernel and reader both access
        // it atomically from here on.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.header.as_ptr()).head) }
    }

    fn tail(&self) -> &AtomicU32 {
        // SAFETY: as `head`.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.header.as_ptr()).tail) }
    }
}

/// An `aio_context_t` and its completion ring. Dropping it waits for what is in flight.
#[derive(Debug)]
pub(crate) struct Context {
    id: usize,
    ring: Option<Ring>,
    /// Where io_getevents puts events.
    events: Box<[IoEvent]>,
}

impl Context {
    /// See io_setup(2). `events` operations may be in flight.
    pub(crate) fn setup(events: u32) -> io::Result<Self> {
        let mut id: usize = 0;
        // SAFETY: the kernel writes one `aio_context_t`, an unsigned long, to `id`, which is alive
        // and of that size, and which is zero as it must be.
        let code = unsafe { libc::syscall(libc::SYS_io_setup, events, &raw mut id) };
        if code < 0 {
            return Err(io::Error::last_os_error());
        }
        let room = usize::try_from(events).unwrap_or(usize::MAX);
        Ok(Self {
            id,
            ring: Ring::at(id),
            events: vec![IoEvent::default(); room].into(),
        })
    }

    /// Whether completions are read without a system call.
    pub(crate) fn reaps_in_user_space(&self) -> bool {
        self.ring.is_some()
    }

    /// Reads completions by io_getevents only, as where the ring's layout is not known.
    #[cfg(test)]
    pub(crate) fn forget_ring(&mut self) {
        self.ring = None;
    }

    /// See io_submit(2). Returns how many were taken, from the first on; an error is about the
    /// first, or `EAGAIN`: there is no room.
    ///
    /// # Safety
    ///
    /// Each pointer leads to an [`Iocb`] that nobody else touches during the call, and what that
    /// describes is valid: iovecs for the call, data until the completion.
    pub(crate) unsafe fn submit(&self, iocbs: &[*mut Iocb]) -> io::Result<usize> {
        // SAFETY: the list is alive for the call, the caller vouches for what it leads to, and the
        // context is alive as long as `self`.
        let taken =
            unsafe { libc::syscall(libc::SYS_io_submit, self.id, iocbs.len(), iocbs.as_ptr()) };
        usize::try_from(taken).map_err(|_| io::Error::last_os_error())
    }

    /// Hands the events that are there to `take`, without waiting.
    pub(crate) fn reap(&mut self, mut take: impl FnMut(IoEvent)) -> io::Result<()> {
        let Some(ring) = self.ring else {
            return self.wait(0, Some(&NOW), take);
        };
        // Relaxed: nobody but this reader moves the head.
        let mut head = ring.head().load(Ordering::Relaxed);
        // Acquire: the kernel wrote the events before it moved the tail.
        let tail = ring.tail().load(Ordering::Acquire);
        if head >= ring.count || tail >= ring.count {
            // Not what we know of this ring: let the kernel sort it out.
            return self.wait(0, Some(&NOW), take);
        }
        if head == tail {
            return Ok(());
        }
        while head != tail {
            let index = usize::try_from(head).unwrap_or(usize::MAX);
            // SAFETY: `head` is below the ring's count, so the event lies within the mapping,
            // behind the header, whose size was checked. The kernel wrote it before it moved the
            // tail and does not write there again before the head has passed.
            let event = unsafe { ring.header.add(1).cast::<IoEvent>().add(index).read() };
            take(event);
            head += 1;
            if head == ring.count {
                head = 0;
            }
        }
        // Release: the events were read before their room is given back.
        ring.head().store(head, Ordering::Release);
        Ok(())
    }

    /// See io_getevents(2): waits for `min` events, for `timeout` at the most, and hands what
    /// there is to `take`. No timeout: for ever.
    pub(crate) fn wait(
        &mut self,
        min: usize,
        timeout: Option<&libc::timespec>,
        mut take: impl FnMut(IoEvent),
    ) -> io::Result<()> {
        let timeout = timeout.map_or(ptr::null(), ptr::from_ref);
        let min = min.min(self.events.len());
        // SAFETY: the kernel writes at most `events.len()` events to `events`, which is borrowed
        // for ourselves here, and reads `timeout`, which is null or alive for the call.
        let count = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.id,
                min,
                self.events.len(),
                self.events.as_mut_ptr(),
                timeout,
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        self.events.iter().take(count).copied().for_each(&mut take);
        Ok(())
    }
}

impl Drop for Context {
    /// See io_destroy(2): cancels polls and waits for everything else.
    fn drop(&mut self) {
        // SAFETY: the id came from io_setup and is given up here, once. The ring's mapping ends
        // with it, and `self.ring` is not used again.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
    }
}
