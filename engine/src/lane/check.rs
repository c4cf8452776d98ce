//! What a request must meet before any of it is started.
//!
//! Everything is checked in user space: unwritten extents and tmpfs take any alignment, and would
//! hide mistakes that a drive answers with `EINVAL`.

use crate::buf::{Buffer, Buffers};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::lane::Lane;
use crate::op::{OpKind, Segment};

/// A device's limits, as masks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    capacity_bytes: u64,
    pub(super) offset_mask: u64,
    pub(super) memory_mask: usize,
}

impl Limits {
    pub(super) fn of(device: &dyn Device) -> Self {
        let geometry = device.geometry();
        if !device.is_direct() {
            // The page cache takes any address and offset.
            let capacity_bytes = geometry.capacity_bytes;
            return Self {
                capacity_bytes,
                offset_mask: 0,
                memory_mask: 0,
            };
        }
        for align in [geometry.offset_align_bytes, geometry.memory_align_bytes] {
            assert!(
                align.is_power_of_two(),
                "a device's alignments are powers of two"
            );
        }
        Self {
            capacity_bytes: geometry.capacity_bytes,
            offset_mask: u64::from(geometry.offset_align_bytes) - 1,
            memory_mask: geometry.memory_align_bytes as usize - 1,
        }
    }

    /// Whether a range is aligned and lies within the device.
    #[inline]
    fn admit(&self, offset: u64, length: u64) -> bool {
        (offset | length) & self.offset_mask == 0
            && offset
                .checked_add(length)
                .is_some_and(|end| end <= self.capacity_bytes)
    }
}

impl Lane {
    /// The first byte of a request that is one run of memory on one device, as most are, and makes
    /// sense; none for every other one, which [`check_in_full`](Self::check_in_full) looks at.
    #[inline(always)]
    pub(super) fn check_whole(
        &self,
        kind: OpKind,
        buffers: &Buffers,
        segment: &Segment,
    ) -> Option<*mut u8> {
        let buffer = buffers.as_one()?;
        let limits = self.limits.get(segment.device as usize)?;
        let (pointer, length, is_writable) = buffer.parts();
        let is_allowed = match kind {
            OpKind::Read => is_writable,
            OpKind::Write => !self.is_poisoned(),
            OpKind::Flush | OpKind::Discard | OpKind::WriteZeroes => false,
        };
        (is_allowed
            && limits.admit(segment.offset, segment.length)
            && length as u64 == segment.length
            && segment.buffer_offset == 0
            && length > 0
            && pointer.addr() & limits.memory_mask == 0)
            .then_some(pointer)
    }

    fn is_poisoned(&self) -> bool {
        self.poison.as_ref().is_some_and(|poison| poison.is_set())
    }

    /// Refuses a request that makes no sense. Leaves in `self.starts` where each buffer begins in
    /// the run of all of them.
    pub(super) fn check_in_full(
        &mut self,
        kind: OpKind,
        buffers: &Buffers,
        segments: &[Segment],
    ) -> Result<()> {
        if kind.changes_media()
            && let Some(refusal) = self.poison.as_ref().and_then(|poison| poison.refusal())
        {
            return Err(refusal);
        }
        let invalid =
            |message: String| Error::new(ErrorKind::InvalidInput, message).with_operation(kind);
        let buffers = buffers.as_slice();
        if !kind.has_memory() && !buffers.is_empty() {
            return Err(invalid("takes no buffers".to_owned()));
        }
        if kind == OpKind::Read && !buffers.iter().all(Buffer::is_writable) {
            return Err(invalid("shared bytes cannot be read into".to_owned()));
        }
        if kind == OpKind::Flush && segments.is_empty() {
            return Err(invalid("names no device".to_owned()));
        }
        self.starts.clear();
        let mut total = 0_u64;
        for buffer in buffers.iter() {
            self.starts.push(total);
            total += buffer.len() as u64;
        }
        let mut covered = 0_u64;
        for segment in segments {
            let Some(limits) = self.limits.get(segment.device as usize) else {
                return Err(invalid(format!(
                    "the lane has no device {}",
                    segment.device
                )));
            };
            self.check_place(kind, limits, segment)?;
            if kind.has_memory() {
                let end = segment.buffer_offset.checked_add(segment.length);
                if end.is_none_or(|end| end > total) {
                    return Err(invalid(format!(
                        "bytes {}+{} do not lie within the buffers' {total}",
                        segment.buffer_offset, segment.length
                    )));
                }
                self.check_memory(kind, limits, segment, buffers)?;
                covered += segment.length;
            }
        }
        if covered != total {
            return Err(invalid(format!(
                "{total} bytes of buffers for {covered} on devices"
            )));
        }
        Ok(())
    }

    /// Whether a segment is a range of its device.
    fn check_place(&self, kind: OpKind, limits: &Limits, segment: &Segment) -> Result<()> {
        let at_place = |kind_of_error, message: String| {
            Err(Error::new(kind_of_error, message)
                .with_operation(kind)
                .with_path(self.devices[segment.device as usize].path())
                .with_range(segment.offset, segment.length))
        };
        if (segment.length == 0) != (kind == OpKind::Flush) {
            return at_place(ErrorKind::InvalidInput, "no bytes are named".to_owned());
        }
        if (segment.offset | segment.length) & limits.offset_mask != 0 {
            let align = limits.offset_mask + 1;
            return at_place(
                ErrorKind::Misaligned,
                format!("offset and length must be multiples of {align}"),
            );
        }
        if !limits.admit(segment.offset, segment.length) {
            return at_place(
                ErrorKind::OutOfBounds,
                format!("the device ends at {}", limits.capacity_bytes),
            );
        }
        Ok(())
    }

    /// Whether the memory of a segment is aligned, buffer by buffer.
    fn check_memory(
        &self,
        kind: OpKind,
        limits: &Limits,
        segment: &Segment,
        buffers: &[Buffer],
    ) -> Result<()> {
        for (pointer, length) in memory_of(segment, buffers, &self.starts) {
            if pointer.addr() & limits.memory_mask != 0 || length as u64 & limits.offset_mask != 0 {
                return Err(Error::new(
                    ErrorKind::Misaligned,
                    format!(
                        "memory at {pointer:p}, {length} bytes, must start at a multiple of {} and \
                         be a multiple of {} long",
                        limits.memory_mask + 1,
                        limits.offset_mask + 1
                    ),
                )
                .with_operation(kind)
                .with_path(self.devices[segment.device as usize].path())
                .with_range(segment.offset, segment.length));
            }
        }
        Ok(())
    }
}

/// The runs of memory that a segment's bytes lie in: first byte and length, in order.
///
/// `starts` holds where each buffer begins in the run of all of them. The segment lies within them.
pub(super) fn memory_of<'a>(
    segment: &Segment,
    buffers: &'a [Buffer],
    starts: &'a [u64],
) -> impl Iterator<Item = (*mut u8, usize)> + 'a {
    let (begin, end) = (
        segment.buffer_offset,
        segment.buffer_offset + segment.length,
    );
    let first = starts
        .partition_point(|&start| start <= begin)
        .saturating_sub(1);
    buffers[first..]
        .iter()
        .zip(&starts[first..])
        .take_while(move |&(_, &start)| start < end)
        .filter_map(move |(buffer, &start)| {
            let stop = (start + buffer.len() as u64).min(end);
            let from = begin.max(start);
            // An empty buffer has no bytes of the segment.
            let length = usize::try_from(stop.checked_sub(from)?)
                .ok()
                .filter(|&n| n > 0)?;
            let skip = usize::try_from(from - start).ok()?;
            Some((buffer.pointer().wrapping_add(skip), length))
        })
}
