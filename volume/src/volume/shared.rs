//! The calls of [`Volume`] itself: any thread, any number of them, through worker lanes.

use std::io::{IoSlice, IoSliceMut};

use swath_engine::{
    Completion, GateGuard, Handle, LaneStats, OpKind, Request, Segment, Submission,
};

use crate::error::{Error, Result};
use crate::volume::bytes::{self, Blocks};
use crate::volume::write_locks::WriteGuard;
use crate::volume::{Shared, Volume};

impl Volume {
    /// Fills `memory` from any `offset` on, blocking.
    ///
    /// # Errors
    ///
    /// Beyond the end; a member that fails.
    pub fn read_at(&self, memory: &mut [u8], offset: u64) -> Result<()> {
        self.0.layout.check_range(offset, memory.len() as u64)?;
        bytes::read(&mut ByHandle::of(&self.0)?, self.0.align, memory, offset)
    }

    /// Writes `memory` from any `offset` on, blocking; durable after the next
    /// [`flush`](Self::flush). Blocks at the ends that it covers in part are read, changed and
    /// written, apart from other writes by bytes.
    ///
    /// # Errors
    ///
    /// Beyond the end; read-only; poisoned; a member that fails, which poisons the volume.
    pub fn write_at(&self, memory: &[u8], offset: u64) -> Result<()> {
        let _held = self.0.hold_for_write(offset, memory.len() as u64)?;
        bytes::write(&mut ByHandle::of(&self.0)?, self.0.align, memory, offset)
    }

    /// Fills several pieces of memory, one after the other, from any `offset` on, blocking.
    ///
    /// # Errors
    ///
    /// As [`read_at`](Self::read_at).
    pub fn read_vectored_at(&self, memory: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        let length = memory.iter().map(|piece| piece.len() as u64).sum();
        self.0.layout.check_range(offset, length)?;
        if length == 0 {
            return Ok(());
        }
        let mut by_handle = ByHandle::of(&self.0)?;
        if memory
            .iter()
            .all(|piece| self.0.align.admits(piece, offset))
        {
            let segments = by_handle.segments(OpKind::Read, offset, length)?;
            return Ok(by_handle.handle.read_vectored_blocking(memory, segments)?);
        }
        let mut offset = offset;
        for piece in memory {
            bytes::read(&mut by_handle, self.0.align, piece, offset)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes several pieces of memory, one after the other, from any `offset` on, blocking.
    ///
    /// # Errors
    ///
    /// As [`write_at`](Self::write_at).
    pub fn write_vectored_at(&self, memory: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let length = memory.iter().map(|piece| piece.len() as u64).sum();
        let is_aligned = memory
            .iter()
            .all(|piece| self.0.align.admits(piece, offset));
        // Where pieces meet within a block, that block is read, changed and written, too.
        let _held = if is_aligned {
            self.0.hold_for_write(offset, length)?
        } else {
            self.0.hold_for_change(offset, length)?
        };
        if length == 0 {
            return Ok(());
        }
        let mut by_handle = ByHandle::of(&self.0)?;
        if is_aligned {
            let segments = by_handle.segments(OpKind::Write, offset, length)?;
            return Ok(by_handle.handle.write_vectored_blocking(memory, segments)?);
        }
        let mut offset = offset;
        for piece in memory {
            bytes::write(&mut by_handle, self.0.align, piece, offset)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// Makes every write that has completed durable, on every member.
    ///
    /// # Errors
    ///
    /// Any member's failure, which poisons the volume: what was written since the last flush is in
    /// doubt.
    pub fn flush(&self) -> Result<()> {
        self.call_without_memory(OpKind::Flush, 0, 0)
    }

    /// Tells the members that a range is no longer needed. What it reads as afterwards is unknown.
    /// On file members it becomes a hole.
    ///
    /// # Errors
    ///
    /// Not whole blocks; beyond the end; read-only; poisoned; not supported by a member; a member
    /// that fails.
    pub fn discard(&self, offset: u64, length: u64) -> Result<()> {
        self.call_without_memory(OpKind::Discard, offset, length)
    }

    /// Makes a range read as zeroes.
    ///
    /// # Errors
    ///
    /// As [`discard`](Self::discard).
    pub fn write_zeroes(&self, offset: u64, length: u64) -> Result<()> {
        self.call_without_memory(OpKind::WriteZeroes, offset, length)
    }

    fn call_without_memory(&self, kind: OpKind, offset: u64, length: u64) -> Result<()> {
        let by_handle = ByHandle::of(&self.0)?;
        let segments = by_handle.segments(kind, offset, length)?;
        let _held = if kind == OpKind::Flush {
            self.0.check_writable()?;
            None
        } else {
            Some(self.0.hold_for_write(offset, length)?)
        };
        let completion = by_handle
            .handle
            .call(Request::without_memory(kind, 0), segments);
        completion.result?;
        Ok(())
    }

    /// Submits a request of whole blocks; the future (or [`Submission::wait`]) gives its
    /// completion, with the buffers. `length` is that of the buffers, if there are any. For a
    /// flush both are ignored.
    ///
    /// It does not take part in the serialisation of [`write_at`](Self::write_at): do not write a
    /// block by this while another writer changes part of it by bytes.
    ///
    /// What is wrong with the request is told by its completion.
    pub fn submit(&self, request: Request, offset: u64, length: u64) -> Submission {
        let length = if request.kind.has_memory() {
            request.buffers.total_len()
        } else {
            length
        };
        let mut segments = Vec::new();
        let refusal = match self.0.map(request.kind, offset, length, &mut segments) {
            Ok(()) => match self.0.handle() {
                Ok(handle) => return handle.submit(request, segments),
                Err(error) => error,
            },
            Err(error) => error,
        };
        let Request {
            kind,
            buffers,
            token,
            ..
        } = request;
        Submission::ready(Completion {
            token,
            kind,
            buffers,
            result: Err(refusal),
        })
    }

    /// What the shared calls did so far; empty before the first.
    pub fn handle_stats(&self) -> LaneStats {
        self.0.handle.get().map(Handle::stats).unwrap_or_default()
    }
}

impl Shared {
    /// The worker lanes, started by the first call that needs them.
    fn handle(&self) -> std::result::Result<&Handle, swath_engine::Error> {
        let _starting = self.handle_start_if_needed();
        if self.handle.get().is_none() {
            let mut options = self.handle_options.clone();
            options.lane = self.lane_options(&options.lane);
            let handle = Handle::start(&self.platform, &self.devices, &options)?;
            self.remember(handle.description(), options.lane.queue.iopoll);
            // Nobody else starts one while the lock is held.
            let _ = self.handle.set(handle);
        }
        Ok(self.handle.get().expect("it was started just now"))
    }

    fn handle_start_if_needed(&self) -> Option<GateGuard<'_, ()>> {
        self.handle
            .get()
            .is_none()
            .then(|| self.handle_start.lock())
    }

    /// Where a request lies on the members: the one mapping function, for every kind.
    ///
    /// # Errors
    ///
    /// Beyond the end; not whole blocks; a change to a volume opened for reading only.
    #[inline]
    pub(super) fn map(
        &self,
        kind: OpKind,
        offset: u64,
        length: u64,
        segments: &mut Vec<Segment>,
    ) -> std::result::Result<(), swath_engine::Error> {
        if kind == OpKind::Flush && !self.is_read_only {
            segments.clear();
            segments.extend((0..self.layout.member_count()).map(Segment::flush));
            return Ok(());
        }
        if !self.layout.contains(offset, length)
            || (offset | length) & (self.align.block_bytes - 1) != 0
            || (self.is_read_only && kind.changes_media())
        {
            return Err(self.refusal(kind, offset, length));
        }
        if kind.has_memory() {
            self.layout
                .segments(offset, length, self.data_offset, segments);
        } else {
            self.layout
                .extents(offset, length, self.data_offset, segments);
        }
        Ok(())
    }

    /// The one segment of a good request within one chunk. None: ask [`map`](Self::map).
    #[inline]
    pub(super) fn map_single(&self, kind: OpKind, offset: u64, length: u64) -> Option<Segment> {
        let is_whole = (offset | length) & (self.align.block_bytes - 1) == 0;
        let is_allowed = kind == OpKind::Read || !self.is_read_only;
        if !is_whole || !is_allowed {
            return None;
        }
        self.layout.single(offset, length, self.data_offset)
    }

    #[cold]
    fn refusal(&self, kind: OpKind, offset: u64, length: u64) -> swath_engine::Error {
        use swath_engine::ErrorKind as Kind;
        let (error_kind, message) = if self.is_read_only && kind.changes_media() {
            (
                Kind::ReadOnly,
                "the volume was opened for reading only; open it for writing".to_owned(),
            )
        } else if self.layout.contains(offset, length) {
            let block = self.align.block_bytes;
            (
                Kind::Misaligned,
                format!("offset and length must be multiples of {block}"),
            )
        } else {
            let capacity = self.layout.capacity_bytes();
            (
                Kind::OutOfBounds,
                format!("beyond the end of the volume, which has {capacity} bytes"),
            )
        };
        swath_engine::Error::new(error_kind, message)
            .with_operation(kind)
            .with_range(offset, length)
    }

    /// Checks that a range can be written by bytes, and keeps others from the blocks it covers in
    /// part.
    pub(super) fn hold_for_write(&self, offset: u64, length: u64) -> Result<WriteGuard<'_>> {
        self.layout.check_range(offset, length)?;
        self.check_writable()?;
        Ok(self
            .write_locks
            .lock(offset..offset + length, self.align.block_bytes))
    }

    /// As [`hold_for_write`](Self::hold_for_write), for a write that may read, change and write any
    /// block of the range.
    fn hold_for_change(&self, offset: u64, length: u64) -> Result<WriteGuard<'_>> {
        self.layout.check_range(offset, length)?;
        self.check_writable()?;
        Ok(self
            .write_locks
            .lock_all(offset..offset + length, self.align.block_bytes))
    }
}

/// Whole blocks, moved by the worker lanes while the caller waits.
struct ByHandle<'a> {
    shared: &'a Shared,
    handle: &'a Handle,
}

impl<'a> ByHandle<'a> {
    fn of(shared: &'a Shared) -> Result<Self> {
        Ok(Self {
            shared,
            handle: shared.handle()?,
        })
    }

    fn segments(&self, kind: OpKind, offset: u64, length: u64) -> Result<Vec<Segment>> {
        let mut segments = Vec::new();
        self.shared
            .map(kind, offset, length, &mut segments)
            .map_err(Error::from)?;
        Ok(segments)
    }
}

impl Blocks for ByHandle<'_> {
    fn read_blocks(&mut self, memory: &mut [u8], offset: u64) -> Result<()> {
        let segments = self.segments(OpKind::Read, offset, memory.len() as u64)?;
        Ok(self.handle.read_blocking(memory, segments)?)
    }

    fn write_blocks(&mut self, memory: &[u8], offset: u64) -> Result<()> {
        let segments = self.segments(OpKind::Write, offset, memory.len() as u64)?;
        Ok(self.handle.write_blocking(memory, false, segments)?)
    }
}
