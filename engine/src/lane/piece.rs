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
    fua: bool,
    /// Whether the queue has a raw operation of it.
    pub(super) is_queued: bool,
    /// Attempts since the last progress.
    retries: u8,
    /// All of its bytes.
    pub(super) length: u64,
    /// Where the next raw operation begins, and how many bytes are left from there.
    offset: u64,
    remaining: u64,
    memory: PieceMemory,
}

#[derive(Debug)]
enum PieceMemory {
    None,
    Flat {
        pointer: *mut u8,
        registered: Option<u16>,
    },
    Gather(Box<Gather>),
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
    /// A slot's piece before the first one comes.
    pub(super) const fn vacant() -> Self {
        Self {
            parent: 0,
            device: 0,
            kind: OpKind::Flush,
            fua: false,
            is_queued: false,
            retries: 0,
            length: 0,
            offset: 0,
            remaining: 0,
            memory: PieceMemory::None,
        }
    }

    /// Makes it the piece of `parent` that lies at `place`. Its memory is set apart from this, and
    /// is none otherwise.
    #[inline]
    pub(super) fn begin(&mut self, parent: u32, kind: OpKind, fua: bool, place: &Segment) {
        self.parent = parent;
        self.device = place.device;
        self.kind = kind;
        self.fua = fua;
        self.retries = 0;
        self.length = place.length;
        self.offset = place.offset;
        self.remaining = place.length;
    }

    /// Its memory is one run.
    #[inline]
    pub(super) fn set_flat(&mut self, pointer: *mut u8, registered: Option<u16>) {
        self.memory = PieceMemory::Flat {
            pointer,
            registered,
        };
    }

    /// Whether a raw result says that all of it was transferred at once, in one run of memory.
    #[inline]
    pub(super) fn is_done_by(&self, result: i32) -> bool {
        matches!(self.memory, PieceMemory::Flat { .. })
            && u64::try_from(result).is_ok_and(|bytes| bytes == self.length)
    }

    /// Its memory is several runs.
    pub(super) fn set_gather(&mut self, gather: Box<Gather>) {
        self.memory = PieceMemory::Gather(gather);
    }

    /// It has no memory any more, which was one run.
    #[inline]
    pub(super) fn set_no_memory(&mut self) {
        self.memory = PieceMemory::None;
    }

    /// The raw operation for what comes next, as much as the kernel takes at once.
    #[inline]
    pub(super) fn next_op(&self, token: u64) -> RawOp {
        let (length, memory) = match &self.memory {
            PieceMemory::None => (self.remaining, Memory::None),
            PieceMemory::Flat {
                pointer,
                registered,
            } => (
                self.remaining.min(RAW_BYTES_MAX),
                Memory::Flat {
                    pointer: *pointer,
                    registered: *registered,
                },
            ),
            PieceMemory::Gather(gather) => next_vector(&gather.iovecs[gather.first..]),
        };
        RawOp {
            kind: self.kind,
            fua: self.fua,
            device: self.device,
            offset: self.offset,
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
        if !self.kind.has_memory() || bytes == self.remaining {
            return Step::Done;
        }
        assert!(
            bytes < self.remaining,
            "{bytes} bytes were moved where {} were asked",
            self.remaining
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
        if let PieceMemory::Gather(gather) = &self.memory {
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
        self.offset += bytes;
        self.remaining -= bytes;
        let mut left = usize::try_from(bytes).expect("what was transferred fits in memory");
        match &mut self.memory {
            PieceMemory::None => {}
            PieceMemory::Flat { pointer, .. } => *pointer = pointer.wrapping_add(left),
            PieceMemory::Gather(gather) => {
                while left > 0 {
                    let head = &mut gather.iovecs[gather.first];
                    let step = left.min(head.iov_len);
                    head.iov_base = head.iov_base.wrapping_byte_add(step);
                    head.iov_len -= step;
                    left -= step;
                    gather.first += usize::from(head.iov_len == 0);
                }
            }
        }
    }

    /// Ends it. Gives the iovec list back, emptied, to be used again.
    #[inline]
    pub(super) fn end(&mut self) -> Option<Box<Gather>> {
        match std::mem::replace(&mut self.memory, PieceMemory::None) {
            PieceMemory::None | PieceMemory::Flat { .. } => None,
            PieceMemory::Gather(mut gather) => {
                gather.iovecs.clear();
                gather.first = 0;
                Some(gather)
            }
        }
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
            error.with_range(self.offset, self.remaining)
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
