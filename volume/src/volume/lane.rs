//! [`VolumeLane`]: one thread's own way into a volume, in whole blocks.

use std::fmt;
use std::sync::Arc;

use swath_engine::{
    Buffers, Completion, Lane, LaneOptions, LaneStats, OpKind, QueueDescription, Request, Segment,
};

use crate::error::Result;
use crate::volume::bytes::{self, Blocks};
use crate::volume::scope::VolumeScope;
use crate::volume::{Shared, Volume};

/// A thread's own queue over a volume: push requests, poll completions. Made by
/// [`Volume::lane`](Volume::lane) on the thread that uses it.
///
/// Offsets and lengths are multiples of the volume's [block](Volume::block_bytes), memory is
/// aligned ([`Volume::memory_align_bytes`]). A request that is not, or that lies beyond the end,
/// comes back with an error as its completion, and has not been started. Lanes do not take part in
/// the serialisation of [`Volume::write_at`]: do not write a block by a lane while another writer
/// changes part of it by bytes.
pub struct VolumeLane {
    lane: Lane,
    /// The segments of the request at hand; kept for its memory.
    segments: Vec<Segment>,
    shared: Arc<Shared>,
}

impl VolumeLane {
    pub(super) fn open(shared: Arc<Shared>, options: &LaneOptions) -> Result<Self> {
        let lane = shared.engine_lane(options)?;
        Ok(Self {
            lane,
            segments: Vec::new(),
            shared,
        })
    }

    /// Queues a request at `offset`. `length` is that of the buffers, if there are any. For a
    /// flush both are ignored.
    #[inline(always)]
    pub fn submit(&mut self, request: Request, offset: u64, length: u64) {
        if request.kind.has_memory()
            && let Some(segment) =
                self.shared
                    .map_single(request.kind, offset, request.buffers.total_len())
        {
            self.lane.submit(request, &[segment]);
        } else {
            self.submit_in_full(request, offset, length);
        }
    }

    #[inline(never)]
    fn submit_in_full(&mut self, request: Request, offset: u64, length: u64) {
        let length = if request.kind.has_memory() {
            request.buffers.total_len()
        } else {
            length
        };
        match self
            .shared
            .map(request.kind, offset, length, &mut self.segments)
        {
            Ok(()) => self.lane.submit(request, &self.segments),
            Err(refusal) => self.lane.refuse(request, refusal),
        }
    }

    /// Queues a read into `buffers`.
    #[inline(always)]
    pub fn read(&mut self, offset: u64, buffers: impl Into<Buffers>, token: u64) {
        self.submit(Request::read(buffers, token), offset, 0);
    }

    /// Queues a write from `buffers`.
    #[inline(always)]
    pub fn write(&mut self, offset: u64, buffers: impl Into<Buffers>, token: u64) {
        self.submit(Request::write(buffers, token), offset, 0);
    }

    /// Queues a write that is durable when it completes.
    pub fn write_fua(&mut self, offset: u64, buffers: impl Into<Buffers>, token: u64) {
        self.submit(Request::write_fua(buffers, token), offset, 0);
    }

    /// Queues a flush of every member. It covers the writes whose completions were seen before.
    pub fn flush(&mut self, token: u64) {
        self.submit(Request::without_memory(OpKind::Flush, token), 0, 0);
    }

    /// Queues a discard.
    pub fn discard(&mut self, offset: u64, length: u64, token: u64) {
        self.submit(
            Request::without_memory(OpKind::Discard, token),
            offset,
            length,
        );
    }

    /// Queues zeroes to be written.
    pub fn write_zeroes(&mut self, offset: u64, length: u64, token: u64) {
        self.submit(
            Request::without_memory(OpKind::WriteZeroes, token),
            offset,
            length,
        );
    }

    /// As [`Lane::poll`].
    ///
    /// # Errors
    ///
    /// As [`Lane::poll`].
    pub fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<usize> {
        Ok(self.lane.poll(completions)?)
    }

    /// As [`Lane::wait`].
    ///
    /// # Errors
    ///
    /// As [`Lane::wait`].
    pub fn wait(&mut self, min: usize, completions: &mut Vec<Completion>) -> Result<usize> {
        Ok(self.lane.wait(min, completions)?)
    }

    /// As [`Lane::drain`].
    ///
    /// # Errors
    ///
    /// As [`Lane::drain`].
    pub fn drain(&mut self, completions: &mut Vec<Completion>) -> Result<()> {
        Ok(self.lane.drain(completions)?)
    }

    /// Fills `memory` from any `offset` on, blocking.
    ///
    /// # Errors
    ///
    /// Beyond the end; a member that fails.
    pub fn read_at(&mut self, memory: &mut [u8], offset: u64) -> Result<()> {
        self.shared
            .layout
            .check_range(offset, memory.len() as u64)?;
        let align = self.shared.align;
        bytes::read(self, align, memory, offset)
    }

    /// Writes `memory` from any `offset` on, blocking. Blocks at the ends that it covers in part
    /// are read, changed and written, apart from other writes by bytes.
    ///
    /// # Errors
    ///
    /// Beyond the end; read-only; poisoned; a member that fails.
    pub fn write_at(&mut self, memory: &[u8], offset: u64) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let _held = shared.hold_for_write(offset, memory.len() as u64)?;
        bytes::write(self, shared.align, memory, offset)
    }

    /// Runs `work`, which may start any number of operations on memory borrowed from outside it.
    /// Returns when all of them have completed. As [`Lane::scope`].
    pub fn scope<'env, T>(&mut self, work: impl FnOnce(&mut VolumeScope<'_, '_, 'env>) -> T) -> T {
        let Self {
            lane,
            segments,
            shared,
        } = self;
        lane.scope(|scope| work(&mut VolumeScope::new(scope, segments, shared)))
    }

    /// Requests that have not completed, and completions not yet polled.
    pub fn in_flight(&self) -> usize {
        self.lane.in_flight()
    }

    /// The most raw operations that are in flight at once.
    pub fn depth(&self) -> usize {
        self.lane.depth()
    }

    /// What the queue below is, and why it was chosen.
    pub fn description(&self) -> &QueueDescription {
        self.lane.description()
    }

    /// What this lane did, by request and by member.
    pub fn stats(&self) -> LaneStats {
        self.lane.stats()
    }

    /// What this lane did since this was last called.
    pub fn take_stats(&mut self) -> LaneStats {
        self.lane.take_stats()
    }

    /// As [`Lane::now_ns`].
    pub fn now_ns(&self) -> u64 {
        self.lane.now_ns()
    }

    /// The volume it belongs to.
    pub fn volume(&self) -> Volume {
        Volume(Arc::clone(&self.shared))
    }
}

impl Blocks for VolumeLane {
    fn read_blocks(&mut self, memory: &mut [u8], offset: u64) -> Result<()> {
        self.shared.map(
            OpKind::Read,
            offset,
            memory.len() as u64,
            &mut self.segments,
        )?;
        Ok(self.lane.read_blocking(memory, &self.segments)?)
    }

    fn write_blocks(&mut self, memory: &[u8], offset: u64) -> Result<()> {
        self.shared.map(
            OpKind::Write,
            offset,
            memory.len() as u64,
            &mut self.segments,
        )?;
        Ok(self.lane.write_blocking(memory, false, &self.segments)?)
    }
}

impl fmt::Debug for VolumeLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeLane")
            .field("lane", &self.lane)
            .finish_non_exhaustive()
    }
}
