//! [`VolumeScope`]: whole blocks moved from and to borrowed memory, many at once.

use std::fmt;

use swath_engine::{
    Buffers, Completion, LaneScope, OpKind, Request, ScopeCompletion, ScopeMemory, Segment,
};

use crate::error::Result;
use crate::volume::Shared;

/// A time during which a lane of a volume works on borrowed memory. Made by
/// [`VolumeLane::scope`](crate::VolumeLane::scope).
pub struct VolumeScope<'a, 'lane, 'env> {
    scope: &'a mut LaneScope<'lane, 'env>,
    segments: &'a mut Vec<Segment>,
    shared: &'a Shared,
}

impl<'a, 'lane, 'env> VolumeScope<'a, 'lane, 'env> {
    pub(super) fn new(
        scope: &'a mut LaneScope<'lane, 'env>,
        segments: &'a mut Vec<Segment>,
        shared: &'a Shared,
    ) -> Self {
        Self {
            scope,
            segments,
            shared,
        }
    }

    /// Queues a read of whole blocks into `memory`, aligned as a lane's requests are.
    pub fn read(&mut self, offset: u64, memory: &'env mut [u8], token: u64) {
        let length = memory.len() as u64;
        match self.shared.map(OpKind::Read, offset, length, self.segments) {
            Ok(()) => self.scope.read(memory, self.segments, token),
            Err(refusal) => self.scope.refuse(ScopeMemory::Read(memory), token, refusal),
        }
    }

    /// Queues a write of whole blocks from `memory`, aligned as a lane's requests are.
    pub fn write(&mut self, offset: u64, memory: &'env [u8], token: u64) {
        let length = memory.len() as u64;
        match self
            .shared
            .map(OpKind::Write, offset, length, self.segments)
        {
            Ok(()) => self.scope.write(memory, false, self.segments, token),
            Err(refusal) => self
                .scope
                .refuse(ScopeMemory::Write(memory), token, refusal),
        }
    }

    /// Queues a read of whole blocks into `buffers`, which belong to the request. Its completion
    /// comes with [`wait_for_all`](Self::wait_for_all), or with the lane's next poll after the
    /// scope.
    pub fn read_owned(&mut self, offset: u64, buffers: impl Into<Buffers>, token: u64) {
        let request = Request::read(buffers, token);
        let length = request.buffers.total_len();
        match self.shared.map(OpKind::Read, offset, length, self.segments) {
            Ok(()) => self.scope.submit(request, self.segments),
            Err(refusal) => self.scope.refuse_request(request, refusal),
        }
    }

    /// As [`LaneScope::wait`].
    ///
    /// # Errors
    ///
    /// As [`LaneScope::wait`].
    pub fn wait(
        &mut self,
        min: usize,
        completions: &mut Vec<ScopeCompletion<'env>>,
    ) -> Result<usize> {
        Ok(self.scope.wait(min, completions)?)
    }

    /// As [`LaneScope::wait_for_all`].
    ///
    /// # Errors
    ///
    /// As [`LaneScope::wait_for_all`].
    pub fn wait_for_all(
        &mut self,
        min: usize,
        completions: &mut Vec<ScopeCompletion<'env>>,
        others: &mut Vec<Completion>,
    ) -> Result<usize> {
        Ok(self.scope.wait_for_all(min, completions, others)?)
    }

    /// As [`LaneScope::in_flight`].
    pub fn in_flight(&self) -> usize {
        self.scope.in_flight()
    }
}

impl fmt::Debug for VolumeScope<'_, '_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeScope")
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
