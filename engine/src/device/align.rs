//! What direct I/O asks of addresses and offsets: what the kernel says, and whether it is true.
//!
//! - statx(2) tells since Linux 6.1 (`STATX_DIOALIGN`), for memory and offsets apart. Where it does
//!   not, the logical block of the drive is the best guess, and 4096 where that is not known.
//! - `O_DIRECT` may be accepted at open and refused at the first transfer, and a file system may
//!   need more than its drive does. So the first block is read with the least alignment that is
//!   claimed; what is refused is tried once more with 4096 for both.
//! - A read of blocks that were never written touches no drive and accepts anything: a check that
//!   passes is no proof on a file of holes. Members are written in full when they are made.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::{Errno, pread, retry_on_intr};

use super::block::BLOCK_BYTES_MAX;
use crate::buf::AlignedBuf;
use crate::error::Result;

/// What is right everywhere but on devices with larger blocks.
const SAFE_BYTES: u32 = 4096;

/// The largest alignment of memory that is believed: a page, which every buffer here begins at.
const MEMORY_BYTES_MAX: u32 = 4096;

/// The alignments of direct I/O on one descriptor, powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Alignment {
    pub(super) memory_bytes: u32,
    pub(super) offset_bytes: u32,
}

impl Alignment {
    /// That of a drive with this logical block; 4096 where it is not known.
    pub(super) fn of_block(block_bytes: Option<u32>) -> Self {
        let offset_bytes = block_bytes
            .filter(|bytes| is_offset(*bytes))
            .unwrap_or(SAFE_BYTES);
        Self {
            memory_bytes: offset_bytes.min(MEMORY_BYTES_MAX),
            offset_bytes,
        }
    }

    fn or_safe(self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.max(SAFE_BYTES),
            offset_bytes: self.offset_bytes.max(SAFE_BYTES),
        }
    }
}

/// What statx(2) says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reported {
    /// These.
    Alignment(Alignment),
    /// There is no direct I/O on this file.
    NotDirect,
    /// Nothing: the kernel or the file system is older than the question.
    Nothing,
}

/// Asks the kernel.
pub(super) fn reported(device: BorrowedFd<'_>) -> Reported {
    let Ok(answer) = statx(device, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return Reported::Nothing;
    };
    if answer.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Reported::Nothing;
    }
    match (answer.stx_dio_mem_align, answer.stx_dio_offset_align) {
        (0, _) | (_, 0) => Reported::NotDirect,
        (memory_bytes, offset_bytes) if is_memory(memory_bytes) && is_offset(offset_bytes) => {
            Reported::Alignment(Alignment {
                memory_bytes,
                offset_bytes,
            })
        }
        _ => Reported::Nothing,
    }
}

fn is_memory(bytes: u32) -> bool {
    bytes.is_power_of_two() && bytes <= MEMORY_BYTES_MAX
}

fn is_offset(bytes: u32) -> bool {
    bytes.is_power_of_two() && bytes <= BLOCK_BYTES_MAX
}

/// The alignment that a read of the first block proved: `claimed`, else 4096, else none, when
/// direct I/O is refused altogether. A device too small to read from is believed.
pub(super) fn checked(
    device: BorrowedFd<'_>,
    claimed: Alignment,
    size_bytes: u64,
) -> Result<Option<Alignment>> {
    if is_accepted(device, claimed, size_bytes)? {
        return Ok(Some(claimed));
    }
    let safe = claimed.or_safe();
    Ok((safe != claimed && is_accepted(device, safe, size_bytes)?).then_some(safe))
}

/// Reads one unit from offset 0 to the worst address that `alignment` allows.
fn is_accepted(device: BorrowedFd<'_>, alignment: Alignment, size_bytes: u64) -> Result<bool> {
    if size_bytes < u64::from(alignment.offset_bytes) {
        return Ok(true);
    }
    let skip = alignment.memory_bytes as usize;
    let length = alignment.offset_bytes as usize;
    let mut buf = AlignedBuf::zeroed(skip + length)?;
    match retry_on_intr(|| pread(device, &mut buf[skip..skip + length], 0)) {
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(false),
        // Only a refusal is of interest: a drive that fails this block may be good elsewhere, and
        // whoever needs the block will be told when it is read.
        Ok(_) | Err(_) => Ok(true),
    }
}
