//! The words of an operation: its kind, the request, where its bytes lie, and its completion.
//!
//! - A [`Request`] takes its buffers by value; the [`Completion`] gives them back, on success and
//!   on error, exactly once.
//! - [`Segment`]s say where the bytes of a request lie. One device: one segment. A striped volume:
//!   one for each chunk, grouped by device. The engine merges neighbours that are contiguous on
//!   their device into one vectored operation.

use std::fmt;

use crate::buf::Buffers;
use crate::error::Error;

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Device to memory.
    Read,
    /// Memory to device; durable only after a flush, or when FUA was asked for.
    Write,
    /// Makes every write that completed before this was submitted durable.
    Flush,
    /// The contents are no longer needed (NVMe: deallocate). What a later read returns is unknown.
    Discard,
    /// Later reads return zeroes; durable only after a flush.
    WriteZeroes,
}

impl OpKind {
    /// Every kind, in the order of [`OpKind::index`].
    pub const ALL: [Self; 5] = [
        Self::Read,
        Self::Write,
        Self::Flush,
        Self::Discard,
        Self::WriteZeroes,
    ];

    /// A small number for tables: 0 to 4.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether a failure leaves the device's contents in doubt: everything but a read.
    pub const fn changes_media(self) -> bool {
        !matches!(self, Self::Read)
    }

    /// Whether the operation moves bytes from or to memory.
    pub const fn has_memory(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

impl fmt::Display for OpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::WriteZeroes => "write-zeroes",
        })
    }
}

/// One operation, handed over by value.
#[derive(Debug)]
pub struct Request {
    /// What to do.
    pub kind: OpKind,
    /// For writes: durable when it completes (forced unit access; `RWF_DSYNC` of pwritev2(2)).
    pub fua: bool,
    /// The memory to read into or write from; none for flush, discard and write-zeroes.
    pub buffers: Buffers,
    /// The caller's own number, given back with the completion.
    pub token: u64,
}

impl Request {
    /// A read into `buffers`.
    pub fn read(buffers: impl Into<Buffers>, token: u64) -> Self {
        Self {
            kind: OpKind::Read,
            fua: false,
            buffers: buffers.into(),
            token,
        }
    }

    /// A write from `buffers`.
    pub fn write(buffers: impl Into<Buffers>, token: u64) -> Self {
        Self {
            kind: OpKind::Write,
            fua: false,
            buffers: buffers.into(),
            token,
        }
    }

    /// A write that is durable when it completes.
    pub fn write_fua(buffers: impl Into<Buffers>, token: u64) -> Self {
        Self {
            fua: true,
            ..Self::write(buffers, token)
        }
    }

    /// An operation without memory: flush, discard or write-zeroes.
    pub fn without_memory(kind: OpKind, token: u64) -> Self {
        Self {
            kind,
            fua: false,
            buffers: Buffers::none(),
            token,
        }
    }
}

impl Request {
    /// Its completion.
    pub(crate) fn end(self, result: Result<u64, Error>) -> Completion {
        Completion {
            token: self.token,
            kind: self.kind,
            buffers: self.buffers,
            result,
        }
    }
}

/// Where a run of a request's bytes lies on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The device's place in the list that its lane was made with.
    pub device: u32,
    /// The first byte on the device.
    pub offset: u64,
    /// The first byte within the request's buffers, taken as one concatenated run of bytes.
    pub buffer_offset: u64,
    /// How many bytes; 0 only for a flush.
    pub length: u64,
}

impl Segment {
    /// The segment of a request that lies on one device in one piece.
    pub const fn whole(device: u32, offset: u64, length: u64) -> Self {
        Self {
            device,
            offset,
            buffer_offset: 0,
            length,
        }
    }

    /// The segment of a flush of one device.
    pub const fn flush(device: u32) -> Self {
        Self::whole(device, 0, 0)
    }

    /// Whether `next` continues this segment on the same device.
    pub const fn is_continued_by(&self, next: &Self) -> bool {
        self.device == next.device && self.offset + self.length == next.offset
    }
}

/// The end of one request.
#[derive(Debug)]
pub struct Completion {
    /// The request's token.
    pub token: u64,
    /// The request's kind.
    pub kind: OpKind,
    /// The request's buffers, given back.
    pub buffers: Buffers,
    /// How many bytes were transferred, discarded or zeroed, always the full length; or the first
    /// error of any part.
    pub result: Result<u64, Error>,
}
