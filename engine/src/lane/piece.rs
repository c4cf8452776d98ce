//! [`Piece`]: the part of a request that lies in one run on one device, and how far it has come.

use std::io;

use libc::iovec;

use crate::buf::Buffer;
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::lane::check::{Limits, memory_of};
use crate::op::{OpKind, Segment};
use crate::queue::{Memory, RAW_BYTES_MAX, RAW_IOVECS_MAX, RawOp};

/// How often in a row an operation is tried again that made no progress.
const RETRIES_MAX: u8 = 64;

/// How many of these attempts come at once. Before each of the others there is a pause.
const RETRIES_AT_ONCE: u8 = 8;

/// The first pause, about 4 us, and how often it is doubled, to about 4 ms. Together they take a
/// fifth of a second: long for a device that is short of something, short for who waits.
const PAUSE_NS_MIN: u64 = 1 << 12;
const PAUSE_DOUBLINGS_MAX: u8 = 10;

/// A run of bytes on one device.
#[derive(Debug)]
pub(super) struct Piece {
    /// The slot of the request that it belongs to.
    pub(super) parent: u32,
    pub(super) device: u32,
    pub(super) kind: OpKind,
    pub(super) fua: bool,
    /// Whether one raw operation that moves every byte ends it, and its request with it.
    pub(super) is_plain: bool,
    /// Whether the queue has a raw operation of it.
    pub(super) is_queued: bool,
    /// Attempts since the last progress.
    retries: u8,
    /// Where it lies on the device.
    pub(super) offset: u64,
    pub(super) length: u64,
    /// How many of these bytes are done with.
    done: u64,
    /// None: the request's one buffer, or no memory.
    gather: Option<Box<Gather>>,
}

/// A run of memory, for the kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) pointer: *mut u8,
    pub(super) registered: Option<u16>,
}

/// Memory in several runs.
#[derive(Debug, Default)]
pub(super) struct Gather {
    iovecs: Vec<iovec>,
    /// The runs still to be transferred are those from this one on.
    first: usize,
}

/// What a raw completion means for its piece.
#[derive(Debug)]
pub(super) enum Step {
    /// All bytes are transferred.
    Done,
    /// Another raw operation is due.
    Again,
    /// Another raw operation is due after so many nanoseconds.
    Later(u64),
    Failed(Failure),
}

/// Why a piece ends early.
#[derive(Debug, Clone, Copy)]
pub(super) enum Failure {
    /// The kernel's error number.
    Errno(i32),
    /// No bytes although the range lies within the device.
    Nothing,
}

impl Gather {
    /// Takes down the memory of a run of segments. The list is empty before.
    pub(super) fn collect(&mut self, run: &[Segment], buffers: &[Buffer], starts: &[u64]) {
        for segment in run {
            for (pointer, length) in memory_of(segment, buffers, starts) {
                self.iovecs.push(iovec {
                    iov_base: pointer.cast(),
                    iov_len: length,
                });
            }
        }
    }
}

impl Piece {
    /// The piece of slot `number` before the first one comes.
    pub(super) const fn vacant(number: u32) -> Self {
        Self {
            parent: number,
            device: 0,
            kind: OpKind::Flush,
            fua: false,
            is_plain: true,
            is_queued: false,
            retries: 0,
            offset: 0,
            length: 0,
            done: 0,
            gather: None,
        }
    }

    /// It lies here.
    #[inline(always)]
    pub(super) fn set_place(&mut self, place: &Segment) {
        self.device = place.device;
        self.offset = place.offset;
        self.length = place.length;
    }

    /// Its memory is several runs.
    pub(super) fn set_gather(&mut self, gather: Box<Gather>) {
        self.gather = Some(gather);
    }

    /// Whether it is plain and a raw result says that every byte was transferred.
    #[inline]
    pub(super) fn is_done_by(&self, result: i32) -> bool {
        self.is_plain && u64::try_from(result).is_ok_and(|bytes| bytes == self.length)
    }

    /// How many bytes are left to be done.
    fn remaining(&self) -> u64 {
        self.length - self.done
    }

    /// The raw operation for what comes next, as much as the kernel takes at once. `whole` finds the
    /// rest of the request's one buffer, from so many bytes on.
    pub(super) fn next_op(&self, token: u64, whole: impl FnOnce(u64) -> Run) -> RawOp {
        let (length, memory) = match &self.gather {
            Some(gather) => next_vector(&gather.iovecs[gather.first..]),
            None if self.kind.has_memory() => {
                let Run {
                    pointer,
                    registered,
                } = whole(self.done);
                let memory = Memory::Flat {
                    pointer,
                    registered,
                };
                (self.remaining().min(RAW_BYTES_MAX), memory)
            }
            None => (self.remaining(), Memory::None),
        };
        RawOp {
            kind: self.kind,
            fua: self.fua,
            device: self.device,
            offset: self.offset + self.done,
            length,
            memory,
            token,
        }
    }

    /// Takes the result of the raw operation in flight.
    #[inline]
    pub(super) fn advance(&mut self, result: i32, limits: &Limits) -> Step {
        let Ok(bytes) = u64::try_from(result) else {
            return match -result {
                // A flush is never asked again, whatever the reason: the kernel tells of lost data
                // once, and one that was interrupted may have taken that word with it.
                libc::EAGAIN | libc::EINTR | libc::ECANCELED
                    if self.kind != OpKind::Flush && self.retries < RETRIES_MAX =>
                {
                    self.retry()
                }
                errno => Step::Failed(Failure::Errno(errno)),
            };
        };
        if !self.kind.has_memory() || bytes == self.remaining() {
            return Step::Done;
        }
        assert!(
            bytes < self.remaining(),
            "{bytes} bytes were moved where {} were asked",
            self.remaining()
        );
        let kept = self.kept(bytes, limits);
        if kept > 0 {
            self.retries = 0;
            self.skip(kept);
            return Step::Again;
        }
        if bytes == 0 || self.retries == RETRIES_MAX {
            return Step::Failed(Failure::Nothing);
        }
        self.retry()
    }

    /// One more attempt: the first few at once, the others after a pause.
    fn retry(&mut self) -> Step {
        self.retries += 1;
        match self.retries.checked_sub(RETRIES_AT_ONCE + 1) {
            None => Step::Again,
            Some(pauses) => Step::Later(PAUSE_NS_MIN << pauses.min(PAUSE_DOUBLINGS_MAX)),
        }
    }

    /// How many of `bytes` that were moved need not be moved again: those before the last place at
    /// which the device takes both the offset and the address of what follows. Rewriting or
    /// rereading the same bytes changes nothing.
    fn kept(&self, bytes: u64, limits: &Limits) -> u64 {
        let mut start = 0;
        if let Some(gather) = &self.gather {
            // Each run begins at such a place.
            for iovec in &gather.iovecs[gather.first..] {
                let end = start + iovec.iov_len as u64;
                if end > bytes {
                    break;
                }
                start = end;
            }
        }
        start + ((bytes - start) & !(limits.offset_mask | limits.memory_mask as u64))
    }

    /// Moves on by `bytes`.
    fn skip(&mut self, bytes: u64) {
        self.done += bytes;
        let Some(gather) = &mut self.gather else {
            return;
        };
        let mut left = usize::try_from(bytes).expect("what was transferred fits in memory");
        while left > 0 {
            let head = &mut gather.iovecs[gather.first];
            let step = left.min(head.iov_len);
            head.iov_base = head.iov_base.wrapping_byte_add(step);
            head.iov_len -= step;
            left -= step;
            gather.first += usize::from(head.iov_len == 0);
        }
    }

    /// Ends it, as the piece of slot `number`. Gives the iovec list back, emptied, to be used again.
    /// Its kind stays: it is the request's too.
    pub(super) fn end(&mut self, number: u32) -> Option<Box<Gather>> {
        self.parent = number;
        self.is_plain = true;
        self.retries = 0;
        self.done = 0;
        let mut gather = self.gather.take()?;
        gather.iovecs.clear();
        gather.first = 0;
        Some(gather)
    }

    /// The error that a failure of this piece is told as.
    #[cold]
    pub(super) fn error(&self, failure: Failure, device: &dyn Device) -> Error {
        let error = match failure {
            // Looked at first: for a drive that was pulled Linux answers as for one of no size, with
            // no bytes for a read, ENOSPC for a write and EINVAL for a discard.
            _ if device.is_gone() => {
                let error = Error::new(ErrorKind::Gone, "the device is gone");
                match failure {
                    Failure::Errno(errno) => error.with_source(io::Error::from_raw_os_error(errno)),
                    Failure::Nothing => error,
                }
            }
            Failure::Nothing if self.kind == OpKind::Read => Error::new(
                ErrorKind::Truncated,
                "the device ended before the range did: it is shorter than when it was opened",
            ),
            Failure::Nothing => Error::new(ErrorKind::Device, "the device took no bytes"),
            Failure::Errno(errno) => {
                let message = match errno {
                    libc::ENODEV | libc::ENXIO => "the device is gone",
                    libc::ENOSPC | libc::EDQUOT => "no space is left for this file member",
                    libc::EOPNOTSUPP => "the device does not support this",
                    libc::EAGAIN | libc::EINTR | libc::ECANCELED if self.kind == OpKind::Flush => {
                        "broken off, and a flush is not asked again: what was written before it may \
                         be lost"
                    }
                    libc::EAGAIN | libc::EINTR | libc::ECANCELED => "given up after many attempts",
                    libc::EINVAL => "the device refused the request's alignment or size",
                    _ => "the device reported an error",
                };
                let cause = io::Error::from_raw_os_error(errno);
                match errno {
                    // Their own kinds speak of a call that was refused before it began. This was
                    // an operation under way, and what it did is not known.
                    libc::EAGAIN | libc::EINTR | libc::ECANCELED | libc::EINVAL | libc::EBUSY => {
                        Error::new(ErrorKind::Device, message).with_source(cause)
                    }
                    _ => Error::from_io(cause, message),
                }
            }
        };
        let error = error.with_operation(self.kind).with_path(device.path());
        if self.kind == OpKind::Flush {
            error
        } else {
            error.with_range(self.offset + self.done, self.remaining())
        }
    }
}

/// As many of `iovecs` as one raw operation takes, and their bytes.
fn next_vector(iovecs: &[iovec]) -> (u64, Memory) {
    let mut count = 0_u32;
    let mut bytes = 0_u64;
    for iovec in iovecs.iter().take(RAW_IOVECS_MAX) {
        let with_this = bytes + iovec.iov_len as u64;
        if with_this > RAW_BYTES_MAX {
            break;
        }
        bytes = with_this;
        count += 1;
    }
    match (count, iovecs) {
        // One run, or the first of one that alone is more than the kernel takes at once.
        (0 | 1, [first, ..]) => (
            (first.iov_len as u64).min(RAW_BYTES_MAX),
            Memory::Flat {
                pointer: first.iov_base.cast(),
                registered: None,
            },
        ),
        _ => (
            bytes,
            Memory::Vector {
                iovecs: iovecs.as_ptr(),
                count,
            },
        ),
    }
}
