//! [`Piece`]: the part of a request that lies in one run on one device, and how far it has come.

use std::io;
use std::path::Path;

use libc::iovec;

use crate::buf::Buffer;
use crate::error::{Error, ErrorKind};
use crate::lane::check::memory_of;
use crate::op::{OpKind, Segment};
use crate::queue::{Memory, RAW_BYTES_MAX, RAW_IOVECS_MAX, RawOp};

/// How often in a row an operation is tried again that made no progress.
const RETRIES_MAX: u16 = 64;

/// A run of bytes on one device.
#[derive(Debug)]
pub(super) struct Piece {
    /// The request it belongs to.
    pub(super) parent: u32,
    pub(super) device: u32,
    pub(super) kind: OpKind,
    fua: bool,
    /// Attempts since the last progress.
    retries: u16,
    /// All of its bytes.
    pub(super) length: u64,
    /// Where the next raw operation begins, and how many bytes are left from there.
    offset: u64,
    remaining: u64,
    /// The bytes of the raw operation in flight.
    issued: u64,
    memory: PieceMemory,
}

#[derive(Debug)]
enum PieceMemory {
    None,
    Flat {
        pointer: *mut u8,
        registered: Option<u16>,
    },
    /// The runs of memory still to be transferred are those from `first` on.
    Gather {
        iovecs: Vec<iovec>,
        first: usize,
    },
}

/// What a raw completion means for its piece.
#[derive(Debug)]
pub(super) enum Step {
    /// All bytes are transferred.
    Done,
    /// Another raw operation is due.
    Again,
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

impl Piece {
    /// A piece whose memory, if any, is one run that starts at `pointer`.
    #[inline]
    pub(super) fn flat(
        parent: u32,
        kind: OpKind,
        fua: bool,
        segment: &Segment,
        pointer: *mut u8,
        registered: Option<u16>,
    ) -> Self {
        Self {
            memory: PieceMemory::Flat {
                pointer,
                registered,
            },
            ..Self::without_memory(parent, kind, fua, segment)
        }
    }

    #[inline]
    fn without_memory(parent: u32, kind: OpKind, fua: bool, segment: &Segment) -> Self {
        Self {
            parent,
            device: segment.device,
            kind,
            fua,
            retries: 0,
            length: segment.length,
            offset: segment.offset,
            remaining: segment.length,
            issued: 0,
            memory: PieceMemory::None,
        }
    }

    /// The piece of a run of segments that is contiguous on its device, with memory wherever the
    /// segments say. `iovecs` is empty; its memory is used.
    pub(super) fn gather(
        parent: u32,
        kind: OpKind,
        fua: bool,
        run: &[Segment],
        buffers: &mut [Buffer],
        starts: &[u64],
        mut iovecs: Vec<iovec>,
    ) -> Self {
        let whole = Segment {
            length: run.iter().map(|segment| segment.length).sum(),
            ..run[0]
        };
        let piece = Self::without_memory(parent, kind, fua, &whole);
        if !kind.has_memory() {
            return piece;
        }
        for segment in run {
            for (pointer, length) in memory_of(segment, buffers, starts) {
                iovecs.push(iovec {
                    iov_base: pointer.cast(),
                    iov_len: length,
                });
            }
        }
        Self {
            memory: PieceMemory::Gather { iovecs, first: 0 },
            ..piece
        }
    }

    /// The raw operation for what comes next, as much as the kernel takes at once.
    #[inline]
    pub(super) fn next_op(&mut self, token: u64) -> RawOp {
        let (length, memory) = match &mut self.memory {
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
            PieceMemory::Gather { iovecs, first } => next_vector(&iovecs[*first..]),
        };
        self.issued = length;
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
    pub(super) fn advance(&mut self, result: i32, offset_mask: u64) -> Step {
        let Ok(bytes) = u64::try_from(result) else {
            return match -result {
                libc::EAGAIN | libc::EINTR | libc::ECANCELED if self.retries < RETRIES_MAX => {
                    self.retries += 1;
                    Step::Again
                }
                errno => Step::Failed(Failure::Errno(errno)),
            };
        };
        if !self.kind.has_memory() || bytes == self.remaining {
            return Step::Done;
        }
        assert!(
            bytes <= self.issued,
            "the kernel moved {bytes} bytes where {} were asked",
            self.issued
        );
        // A transfer that stopped within a block is done again from the block's start: rewriting
        // or rereading the same bytes changes nothing.
        let whole_blocks = bytes & !offset_mask;
        if whole_blocks > 0 {
            self.retries = 0;
            self.skip(whole_blocks);
            return Step::Again;
        }
        self.retries += 1;
        if bytes == 0 || self.retries > RETRIES_MAX {
            return Step::Failed(Failure::Nothing);
        }
        Step::Again
    }

    /// Moves on by `bytes`.
    fn skip(&mut self, bytes: u64) {
        self.offset += bytes;
        self.remaining -= bytes;
        let mut left = usize::try_from(bytes).expect("what was transferred fits in memory");
        match &mut self.memory {
            PieceMemory::None => {}
            PieceMemory::Flat { pointer, .. } => *pointer = pointer.wrapping_add(left),
            PieceMemory::Gather { iovecs, first } => {
                while left > 0 {
                    let head = &mut iovecs[*first];
                    let step = left.min(head.iov_len);
                    head.iov_base = head.iov_base.wrapping_byte_add(step);
                    head.iov_len -= step;
                    left -= step;
                    *first += usize::from(head.iov_len == 0);
                }
            }
        }
    }

    /// The memory of the iovec list, to be used again.
    pub(super) fn into_iovecs(self) -> Option<Vec<iovec>> {
        match self.memory {
            PieceMemory::Gather { mut iovecs, .. } => {
                iovecs.clear();
                Some(iovecs)
            }
            PieceMemory::None | PieceMemory::Flat { .. } => None,
        }
    }

    /// The error that a failure of this piece is told as.
    #[cold]
    pub(super) fn error(&self, failure: Failure, path: &Path) -> Error {
        let error = match failure {
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
                    libc::EAGAIN | libc::EINTR | libc::ECANCELED => "given up after many attempts",
                    libc::EINVAL => "the device refused the request's alignment or size",
                    _ => "the device reported an error",
                };
                Error::from_io(io::Error::from_raw_os_error(errno), message)
            }
        };
        error
            .with_operation(self.kind)
            .with_path(path)
            .with_range(self.offset, self.remaining)
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
