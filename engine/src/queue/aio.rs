//! Linux AIO: the kernel's older asynchronous interface, for where io_uring is not to be had.
//!
//! - `submit` writes one [`Iocb`] into a slab; `poll` and `wait` hand all of them to the kernel in
//!   one io_submit(2). The kernel copies them there and then, so the slab is only a batch: nothing
//!   is kept for an operation in flight but its token, which travels as `aio_data`.
//! - Completions are read from the context's ring in user space where that is possible.
//! - What AIO has no opcode for (discard, write-zeroes) goes to a [`SyncPool`], started when the
//!   first such operation comes.
//! - A blocked `wait` sleeps in io_getevents(2). To be woken there it keeps a poll of an eventfd in
//!   flight: the *alarm*, which has an iocb of its own beyond the capacity and is told from the
//!   operations by that iocb's address. While nobody holds a waker there is no alarm, and the sleep
//!   lasts until as many completions are there as were asked for.
//!
//! A transfer that cannot be asynchronous (buffered, or on tmpfs) happens within io_submit.

use std::cell::UnsafeCell;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::op::OpKind;
use crate::queue::eventfd::EventWake;
use crate::queue::sync::SyncPool;
use crate::queue::targets::Targets;
use crate::queue::{
    Backend, Memory, Queue, QueueDescription, QueueOptions, RawCompletion, RawOp, Wake,
};
use crate::sys::aio::{
    Context, IOCB_CMD_FDSYNC, IOCB_CMD_POLL, IOCB_CMD_PREAD, IOCB_CMD_PREADV, IOCB_CMD_PWRITE,
    IOCB_CMD_PWRITEV, IoEvent, Iocb,
};
use crate::sys::{clock, result_32};

/// How long a sleep lasts that nothing may end: the kernel had no room for an operation, or has
/// no `IOCB_CMD_POLL`.
const SOON: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// The most threads for operations without an opcode. A volume discards on all members at once.
const POOL_THREADS_MAX: usize = 8;

/// The queue over an AIO context.
#[derive(Debug)]
pub(crate) struct AioQueue {
    description: QueueDescription,
    capacity: usize,
    in_flight: usize,
    batch: Batch,
    ring: Ring,
    /// Completions of operations that never reached the kernel.
    refused: Vec<RawCompletion>,
    pool: Option<SyncPool>,
    /// The kernel has no asynchronous fdatasync for a file of ours.
    flush_in_pool: bool,
    targets: Targets,
}

/// Operations queued for the next io_submit.
struct Batch {
    /// The memory that `pointers` lead to: one for each operation, and the alarm's.
    _iocbs: Vec<UnsafeCell<Iocb>>,
    pointers: Vec<*mut Iocb>,
    queued: usize,
    /// The place of the alarm's iocb, behind all others.
    alarm: usize,
}

/// The context with what is in flight on it.
#[derive(Debug)]
struct Ring {
    context: Context,
    in_kernel: usize,
    wake: Arc<EventWake>,
    /// The address of the alarm's iocb, by which its event is known.
    alarm_address: u64,
    alarm_armed: bool,
    alarm_supported: bool,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("queued", &self.queued)
            .finish_non_exhaustive()
    }
}

impl Batch {
    fn new(capacity: usize) -> Self {
        let iocbs: Vec<_> = (0..=capacity)
            .map(|_| UnsafeCell::new(Iocb::default()))
            .collect();
        let pointers = iocbs.iter().map(UnsafeCell::get).collect();
        Self {
            _iocbs: iocbs,
            pointers,
            queued: 0,
            alarm: capacity,
        }
    }

    fn set(&mut self, place: usize, iocb: Iocb) {
        // SAFETY: the pointer leads into `_iocbs`, whose memory stays where it is and is reached
        // only through these pointers, by this thread: the kernel's use of it ended when
        // io_submit returned.
        unsafe { self.pointers[place].write(iocb) };
    }

    fn at(&self, place: usize) -> Iocb {
        // SAFETY: as in `set`; every place was initialised by `new`.
        unsafe { self.pointers[place].read() }
    }

    fn push(&mut self, iocb: Iocb) {
        self.set(self.queued, iocb);
        self.queued += 1;
    }

    /// Forgets the first `count`; the others move to the front.
    fn advance(&mut self, count: usize) {
        for place in count..self.queued {
            let iocb = self.at(place);
            self.set(place - count, iocb);
        }
        self.queued -= count;
    }
}

impl Ring {
    /// Reaps without waiting.
    fn reap(&mut self, completions: &mut Vec<RawCompletion>) -> io::Result<()> {
        let (context, mut sorter) = self.split(completions);
        context.reap(|event| sorter.take(event))
    }

    /// Sleeps until `min` events are there. A signal ends it early, without an error: the caller
    /// looks again anyway.
    fn sleep(
        &mut self,
        min: usize,
        timeout: Option<&libc::timespec>,
        completions: &mut Vec<RawCompletion>,
    ) -> io::Result<()> {
        let (context, mut sorter) = self.split(completions);
        match context.wait(min, timeout, |event| sorter.take(event)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            outcome => outcome,
        }
    }

    fn split<'a>(
        &'a mut self,
        completions: &'a mut Vec<RawCompletion>,
    ) -> (&'a mut Context, Sorter<'a>) {
        let sorter = Sorter {
            completions,
            in_kernel: &mut self.in_kernel,
            wake: &self.wake,
            alarm_address: self.alarm_address,
            alarm_armed: &mut self.alarm_armed,
        };
        (&mut self.context, sorter)
    }
}

/// Tells the alarm's events from the operations'.
struct Sorter<'a> {
    completions: &'a mut Vec<RawCompletion>,
    in_kernel: &'a mut usize,
    wake: &'a EventWake,
    alarm_address: u64,
    alarm_armed: &'a mut bool,
}

impl Sorter<'_> {
    fn take(&mut self, event: IoEvent) {
        if event.obj == self.alarm_address {
            *self.alarm_armed = false;
            self.wake.clear();
        } else {
            *self.in_kernel -= 1;
            let result = result_32(event.res);
            self.completions.push(RawCompletion {
                token: event.data,
                result,
            });
        }
    }
}

impl AioQueue {
    /// A queue over `devices`. `reasons` go into the description.
    pub(crate) fn open(
        devices: &[Arc<dyn Device>],
        options: &QueueOptions,
        reasons: Vec<String>,
    ) -> Result<Self> {
        let targets = Targets::new(devices)?;
        let depth = options.depth.max(1);
        let capacity = usize::try_from(depth).unwrap_or(usize::MAX);
        // One more than the operations: the alarm.
        let context = Context::setup(depth.saturating_add(1)).map_err(setup_error)?;
        let wake = EventWake::new()
            .map_err(|e| Error::from_io(e, "an eventfd to be woken by was refused"))?;
        let how = if context.reaps_in_user_space() {
            "user-space reap"
        } else {
            "io_getevents"
        };
        let flags = format!("io_submit, {how}");
        let batch = Batch::new(capacity);
        let alarm_address = address(batch.pointers[batch.alarm]);
        Ok(Self {
            description: QueueDescription {
                backend: Backend::Aio,
                flags,
                reasons,
            },
            capacity,
            in_flight: 0,
            batch,
            ring: Ring {
                context,
                in_kernel: 0,
                wake,
                alarm_address,
                alarm_armed: false,
                alarm_supported: true,
            },
            refused: Vec::with_capacity(capacity),
            pool: None,
            flush_in_pool: false,
            targets,
        })
    }

    /// The iocb of an operation; `None` if AIO has none for it. `Err`: it cannot be meant.
    fn iocb(&self, op: &RawOp) -> std::result::Result<Option<Iocb>, i32> {
        let opcode = match (op.kind, op.memory) {
            (OpKind::Read, Memory::Flat { .. }) => IOCB_CMD_PREAD,
            (OpKind::Read, Memory::Vector { .. }) => IOCB_CMD_PREADV,
            (OpKind::Write, Memory::Flat { .. }) => IOCB_CMD_PWRITE,
            (OpKind::Write, Memory::Vector { .. }) => IOCB_CMD_PWRITEV,
            (OpKind::Flush, _) if !self.flush_in_pool => IOCB_CMD_FDSYNC,
            (OpKind::Read | OpKind::Write, Memory::None) => return Err(-libc::EINVAL),
            (OpKind::Flush | OpKind::Discard | OpKind::WriteZeroes, _) => return Ok(None),
        };
        let (aio_buf, aio_nbytes, offset) = match op.memory {
            _ if opcode == IOCB_CMD_FDSYNC => (0, 0, 0),
            Memory::Flat { pointer, .. } => (address(pointer), op.length, op.offset),
            Memory::Vector { iovecs, count } => {
                (address(iovecs.cast_mut()), u64::from(count), op.offset)
            }
            Memory::None => return Err(-libc::EINVAL),
        };
        let (descriptor, _) = self.targets.at(op.device);
        Ok(Some(Iocb {
            aio_data: op.token,
            aio_rw_flags: if op.fua && op.kind == OpKind::Write {
                libc::RWF_DSYNC
            } else {
                0
            },
            aio_lio_opcode: opcode,
            aio_fildes: descriptor.as_raw_fd().cast_unsigned(),
            aio_buf,
            aio_nbytes,
            aio_offset: i64::try_from(offset).map_err(|_| -libc::EINVAL)?,
            ..Iocb::default()
        }))
    }

    /// Hands what is queued to the kernel, as far as it has room.
    fn start(&mut self) {
        let mut first = 0;
        while first < self.batch.queued {
            let pointers = &self.batch.pointers[first..self.batch.queued];
            // SAFETY: the pointers lead to iocbs of the batch, which nobody touches during the
            // call. What they describe is the memory of operations whose submitter promised it
            // until the completion; the kernel gives that when it is done, and until then
            // `in_kernel` counts the operation, so that drop waits for it.
            match unsafe { self.ring.context.submit(pointers) } {
                Ok(0) => break,
                Ok(taken) => {
                    first += taken;
                    self.ring.in_kernel += taken;
                }
                // No room: the rest goes in with the next call.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => break,
                Err(error) => {
                    let iocb = self.batch.at(first);
                    first += 1;
                    let errno = error.raw_os_error().unwrap_or(libc::EIO);
                    self.refuse(&iocb, errno);
                }
            }
        }
        if first > 0 {
            self.batch.advance(first);
        }
    }

    /// Ends an operation that io_submit refused. A flush that AIO cannot do goes to the pool, as
    /// do all later ones.
    fn refuse(&mut self, iocb: &Iocb, errno: i32) {
        let is_flush = iocb.aio_lio_opcode == IOCB_CMD_FDSYNC;
        let place = self.targets.place_of(iocb.aio_fildes.cast_signed());
        match place {
            Some(device) if is_flush && errno == libc::EINVAL => {
                self.flush_in_pool = true;
                let flush = RawOp {
                    kind: OpKind::Flush,
                    fua: false,
                    device,
                    offset: 0,
                    length: 0,
                    memory: Memory::None,
                    token: iocb.aio_data,
                };
                // SAFETY: a flush has no memory.
                unsafe { self.submit_to_pool(&flush) };
            }
            _ => self.refused.push(RawCompletion {
                token: iocb.aio_data,
                result: -errno,
            }),
        }
    }

    /// # Safety
    ///
    /// As for [`Queue::submit`].
    unsafe fn submit_to_pool(&mut self, op: &RawOp) {
        if self.pool.is_none() {
            let threads = self.targets.len().min(POOL_THREADS_MAX);
            let wake = self.ring.wake.for_done();
            self.pool = SyncPool::start(self.targets.devices(), threads, wake).ok();
        }
        match &self.pool {
            // SAFETY: our caller gives the promise that the pool asks for.
            Some(pool) => unsafe { pool.submit(op) },
            // A thread could not be started. The next such operation tries again.
            None => {
                self.refused.push(RawCompletion {
                    token: op.token,
                    result: -libc::ENOMEM,
                });
            }
        }
    }

    /// Appends what is there.
    fn collect(&mut self, completions: &mut Vec<RawCompletion>) -> io::Result<()> {
        completions.append(&mut self.refused);
        if let Some(pool) = &self.pool {
            pool.take(completions);
        }
        self.ring.reap(completions)
    }

    /// Whether another thread may have to end our sleep: somebody holds a waker, or the pool works.
    fn is_wakeable(&self) -> bool {
        let in_pool = self.pool.as_ref().map_or(0, SyncPool::in_flight);
        let own_handles = 1 + usize::from(self.pool.is_some());
        let is_held = Arc::strong_count(&self.ring.wake) > own_handles;
        // Acquire: what a holder did before it let go is seen. `waker` is called by this thread
        // only, so nobody becomes a holder while we sleep.
        fence(Ordering::Acquire);
        in_pool > 0 || is_held
    }

    /// Sees to it that the alarm is in flight. False: it cannot be, now or at all.
    fn arm(&mut self) -> bool {
        if !self.ring.alarm_armed && self.ring.alarm_supported {
            let place = self.batch.alarm;
            self.batch.set(
                place,
                Iocb {
                    aio_lio_opcode: IOCB_CMD_POLL,
                    aio_fildes: self.ring.wake.descriptor().as_raw_fd().cast_unsigned(),
                    aio_buf: u64::from(libc::POLLIN.cast_unsigned()),
                    ..Iocb::default()
                },
            );
            // SAFETY: the pointer leads to the alarm's iocb, which nobody touches during the call;
            // a poll has no memory.
            match unsafe {
                self.ring
                    .context
                    .submit(&self.batch.pointers[place..=place])
            } {
                Ok(taken) => self.ring.alarm_armed = taken == 1,
                // No room, or no memory: another time.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                Err(_) => self.ring.alarm_supported = false,
            }
        }
        self.ring.alarm_armed
    }

    /// Goes on until `completions` has the length `target`, or woken.
    fn wait_until(
        &mut self,
        target: usize,
        completions: &mut Vec<RawCompletion>,
    ) -> io::Result<()> {
        loop {
            self.start();
            self.collect(completions)?;
            if completions.len() >= target {
                return Ok(());
            }
            // In this order: a holder that asked and then let go is not overlooked.
            let is_wakeable = self.is_wakeable();
            if self.ring.wake.take_asked() {
                return Ok(());
            }
            let is_idle = self.ring.in_kernel == 0 && self.batch.queued == 0;
            if is_idle && !is_wakeable {
                // Nothing in flight and nobody who could wake us: this sleep would never end.
                return Ok(());
            }
            let is_armed = is_wakeable && self.arm();
            // An alarm counts as an event, so with one the first event has to end the sleep.
            let min = if is_wakeable {
                1
            } else {
                (target - completions.len()).min(self.ring.in_kernel).max(1)
            };
            let is_sure = self.batch.queued == 0 && is_armed == is_wakeable;
            self.ring
                .sleep(min, if is_sure { None } else { Some(&SOON) }, completions)?;
        }
    }
}

/// The address of memory as the kernel's structures hold it.
fn address<T>(pointer: *mut T) -> u64 {
    pointer.expose_provenance() as u64
}

/// Why there is no context.
fn setup_error(error: io::Error) -> Error {
    if error.raw_os_error() == Some(libc::EAGAIN) {
        let message = "io_setup: all of fs.aio-max-nr (sysctl) is taken";
        return Error::new(ErrorKind::Exhausted, message).with_source(error);
    }
    Error::from_io(error, "io_setup was refused: no Linux AIO here")
}

// SAFETY:
// - Memory is touched by the kernel, from io_submit to the event, and by the pool's threads until
//   they have put the completion on their list. Both are appended only after that.
// - An operation is in exactly one place: the batch, the kernel, the pool, or the refused; each
//   hands it on or completes it once.
// - Drop waits for the kernel and for the pool. What is still in the batch never began.
unsafe impl Queue for AioQueue {
    fn description(&self) -> &QueueDescription {
        &self.description
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    unsafe fn submit(&mut self, op: &RawOp) {
        assert!(
            self.in_flight < self.capacity,
            "the queue is full: {} in flight",
            self.capacity
        );
        self.targets.check(op.device);
        self.in_flight += 1;
        match self.iocb(op) {
            Ok(Some(iocb)) => self.batch.push(iocb),
            // SAFETY: our caller gives the promise.
            Ok(None) => unsafe { self.submit_to_pool(op) },
            Err(result) => self.refused.push(RawCompletion {
                token: op.token,
                result,
            }),
        }
    }

    fn poll(&mut self, completions: &mut Vec<RawCompletion>) -> io::Result<()> {
        let before = completions.len();
        self.start();
        let outcome = self.collect(completions);
        self.in_flight -= completions.len() - before;
        outcome
    }

    fn wait(&mut self, min: usize, completions: &mut Vec<RawCompletion>) -> io::Result<()> {
        let before = completions.len();
        let min = if self.in_flight > 0 {
            min.min(self.in_flight)
        } else {
            min
        };
        let outcome = self.wait_until(before + min, completions);
        self.in_flight -= completions.len() - before;
        outcome
    }

    fn waker(&mut self) -> Arc<dyn Wake> {
        Arc::clone(&self.ring.wake) as Arc<dyn Wake>
    }

    fn now_ns(&self) -> u64 {
        clock::monotonic_ns()
    }
}

impl Drop for AioQueue {
    fn drop(&mut self) {
        // The pool's own drop waits for its threads. The context's would wait as well, but only
        // the kernel's word on each operation makes this certain.
        let mut forgotten = Vec::new();
        while self.ring.in_kernel > 0 {
            if self.ring.sleep(1, None, &mut forgotten).is_err() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests;
