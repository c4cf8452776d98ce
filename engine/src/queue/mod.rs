//! The data plane: a [`Queue`] takes raw operations and gives raw completions.
//!
//! - `submit` queues, `poll` never blocks, `wait` may block.
//! - A queue is as plain as the kernel: one raw operation, one result, which may be short, or
//!   `-EAGAIN`. [`Lane`](crate::Lane) is what turns these into whole requests: it owns the
//!   buffers, splits what the kernel caps, continues what came back short, and retries. So every
//!   backend, and every simulated queue, is completed by the same code.
//! - One file for each backend; each passes one and the same test suite.
//!
//! ```text
//! Lane  --RawOp-->  Queue: uring | aio | sync | a test's own  --RawCompletion-->  Lane
//! ```

mod aio;
mod any;
mod auto;
mod doorbell;
mod eventfd;
#[cfg(test)]
mod suite;
mod sync;
mod targets;
mod uring;

pub use auto::{Backend, QueueDescription};

pub(crate) use any::AnyQueue;
pub(crate) use auto::open_kernel_queue;

use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::buf::BufPool;
use crate::op::OpKind;

/// The most bytes one raw operation carries: what Linux moves in one call
/// (`MAX_RW_COUNT`, see "NOTES" of read(2)), rounded down to 1 MiB so that a continued operation
/// keeps its alignment.
pub const RAW_BYTES_MAX: u64 = 0x7ff0_0000;

/// The most pieces of memory one raw operation carries (`UIO_MAXIOV`, see readv(2)).
pub const RAW_IOVECS_MAX: usize = 1024;

/// One operation as the kernel sees it.
#[derive(Debug, Clone, Copy)]
pub struct RawOp {
    /// What to do.
    pub kind: OpKind,
    /// For writes: durable when it completes.
    pub fua: bool,
    /// The device's place in the queue's list.
    pub device: u32,
    /// The first byte on the device.
    pub offset: u64,
    /// How many bytes; at most [`RAW_BYTES_MAX`] where memory is involved.
    pub length: u64,
    /// The memory to move them from or to.
    pub memory: Memory,
    /// Given back with the completion. Anything but `u64::MAX`, which queues keep for themselves.
    pub token: u64,
}

/// The memory of a raw operation.
#[derive(Debug, Clone, Copy)]
pub enum Memory {
    /// None: flush, discard, write-zeroes.
    None,
    /// One run of bytes, as long as the operation.
    Flat {
        /// Its first byte.
        pointer: *mut u8,
        /// The number of the registered buffer that it lies in
        /// (see [`Queue::registered_buffers`]).
        registered: Option<u16>,
    },
    /// Several runs of bytes, together as long as the operation.
    Vector {
        /// The first of them.
        iovecs: *const libc::iovec,
        /// How many, at most [`RAW_IOVECS_MAX`].
        count: u32,
    },
}

/// The end of one raw operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawCompletion {
    /// The operation's token.
    pub token: u64,
    /// Bytes transferred (0 for operations without memory), or a negated error number.
    pub result: i32,
}

/// A queue of raw operations over a fixed list of devices. Used by one thread.
///
/// # Safety
///
/// An implementation promises what keeps [`Lane`](crate::Lane) sound:
/// - it touches an operation's memory (and its iovec list) only between `submit` and the moment
///   `poll` or `wait` gives that operation's completion;
/// - it gives exactly one completion for each operation;
/// - dropping it returns only when no operation can touch memory any more.
pub unsafe trait Queue: Any + Debug {
    /// What this queue is, and why it was chosen.
    fn description(&self) -> &QueueDescription;

    /// The most operations that may be submitted and not yet completed.
    fn capacity(&self) -> usize;

    /// Queues an operation. It may start now, or at the next `poll` or `wait`.
    ///
    /// # Safety
    ///
    /// The operation's memory is valid for the transfer, and nobody else touches it (for writes:
    /// changes it), until its completion is given. The iovec list likewise.
    ///
    /// # Panics
    ///
    /// When [`capacity`](Self::capacity) operations are in flight, or the device is not in the list.
    unsafe fn submit(&mut self, op: &RawOp);

    /// Starts what is queued and appends the completions that are there. Never blocks.
    ///
    /// # Errors
    ///
    /// The kernel refused the queue itself. Operations stay in flight.
    fn poll(&mut self, completions: &mut Vec<RawCompletion>) -> io::Result<()>;

    /// Starts what is queued and blocks until at least `min` completions were appended, or until
    /// woken (see [`waker`](Self::waker)). `min` is at most what is in flight, unless a wake-up
    /// is all that is waited for (`min` of 1 with nothing in flight).
    ///
    /// # Errors
    ///
    /// As [`poll`](Self::poll).
    fn wait(&mut self, min: usize, completions: &mut Vec<RawCompletion>) -> io::Result<()>;

    /// A handle by which other threads make a `wait` return: the one in progress, else the next.
    /// A queue nobody asked this of need not look for wake-ups.
    fn waker(&mut self) -> Arc<dyn Wake>;

    /// The runs of memory that are registered with the kernel, in the order of their numbers.
    /// Each is (first address, length); a piece of memory that lies within one may carry its number.
    /// The queue keeps that memory mapped as long as it lives.
    fn registered_buffers(&self) -> &[(usize, usize)] {
        &[]
    }

    /// Nanoseconds on the clock that latencies are measured by. The zero point is arbitrary.
    fn now_ns(&self) -> u64;

    /// Sleeps for so many nanoseconds of that clock: a few milliseconds at most, while all there is
    /// to do are operations that the device wants to be asked for later.
    fn pause(&mut self, nanoseconds: u64) {
        std::thread::sleep(Duration::from_nanos(nanoseconds));
    }
}

/// Makes a blocked [`Queue::wait`] return.
pub trait Wake: Debug + Send + Sync {
    /// Wakes the queue's thread. Cheap when it was woken already.
    fn wake(&self);
}

/// What a queue is asked to be.
#[derive(Debug, Clone)]
pub struct QueueOptions {
    /// Which backend. Default: [`Backend::Auto`].
    pub backend: Backend,
    /// The most raw operations in flight: 1 to 4096. Default 128.
    pub depth: u32,
    /// io_uring: complete by polling the device instead of by interrupt. Checked on a read of the
    /// block at `probe_offset`; refused where the device has no poll queues.
    pub iopoll: bool,
    /// io_uring: a kernel thread submits, idle after this many milliseconds. Costs a core.
    pub sqpoll_idle_ms: Option<u32>,
    /// Pools whose memory is registered with the kernel, where it can be.
    pub pools: Vec<BufPool>,
    /// sync: how many threads. 0: the caller's own thread, within `poll` and `wait`.
    /// Default: 0 for devices in memory, else the depth, at most 16.
    pub sync_threads: Option<usize>,
    /// Offset of a block that has been written, on every device: what io_uring's probe reads, since
    /// a ring can be set up that then fails on a device. None: it is not probed, because a queue like
    /// this one has worked on these devices.
    pub probe_offset: Option<u64>,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            backend: Backend::Auto,
            depth: 128,
            iopoll: false,
            sqpoll_idle_ms: None,
            pools: Vec::new(),
            sync_threads: None,
            probe_offset: Some(0),
        }
    }
}
