//! What a lane drives: the volume through its stripe map, or the bare members side by side.
//!
//! One trait, so that both sides of a comparison run through the same loop, compiled for each; and a
//! run that verifies, whose lanes have more to do, through it as well.

use swath_engine::QueueDescription;
use swath_engine::{Buffer, Completion, Lane, LaneOptions, LaneStats, Request, Segment};
use swath_volume::{Volume, VolumeLane};

use crate::error::{Error, Result};
use crate::workload::{Cell, Position, Space};

/// Which of the two is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The volume, through its stripe map.
    Volume,
    /// The bare members, driven in turn by the same lanes at the same total depth.
    Members,
}

impl Side {
    /// The spaces a workload visits on this side.
    pub fn spaces(self, volume: &Volume) -> Vec<Space> {
        match self {
            Self::Volume => vec![Space {
                device: 0,
                base: 0,
                length: volume.capacity_bytes(),
            }],
            Self::Members => (0..)
                .zip(volume.members())
                .map(|(device, member)| Space {
                    device,
                    base: member.data_offset,
                    length: member.data_bytes,
                })
                .collect(),
        }
    }

    /// How many raw operations the queue must hold so that `cell` keeps its depth.
    pub(crate) fn queue_depth(self, volume: &Volume, cell: &Cell) -> u32 {
        let operations_per_request = match self {
            Self::Volume => fan_out(
                cell.block_bytes,
                volume.chunk_bytes(),
                volume.members().len(),
            ),
            Self::Members => 1,
        };
        cell.depth
            .saturating_mul(operations_per_request)
            .clamp(1, 4096)
    }
}

/// On how many members a request of `block_bytes` lies at most.
fn fan_out(block_bytes: u64, chunk_bytes: u64, members: usize) -> u32 {
    let chunks = if chunk_bytes.is_multiple_of(block_bytes) {
        1
    } else if block_bytes.is_multiple_of(chunk_bytes) {
        block_bytes / chunk_bytes
    } else {
        block_bytes / chunk_bytes + 2
    };
    let members = u64::try_from(members).unwrap_or(u64::MAX);
    u32::try_from(chunks.min(members)).unwrap_or(u32::MAX)
}

/// One lane's way to what it measures.
pub(crate) trait Target {
    /// Queues a read.
    fn read(&mut self, position: Position, buffer: Buffer);

    /// Queues a write.
    fn write(&mut self, position: Position, buffer: Buffer);

    /// Starts what is queued and takes the completions that are there.
    fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<usize>;

    /// Starts what is queued and waits for at least `min` completions.
    fn wait(&mut self, min: usize, completions: &mut Vec<Completion>) -> Result<usize>;

    /// Waits until nothing is in flight.
    fn drain(&mut self, completions: &mut Vec<Completion>) -> Result<()>;

    /// What was done since this was last called.
    fn take_stats(&mut self) -> LaneStats;

    /// The queue at work.
    fn description(&self) -> &QueueDescription;
}

const QUEUE_FAILED: &str = "the queue failed";

/// Opens a lane of the volume, on the thread that will use it.
pub(crate) fn open_volume(volume: &Volume, options: &LaneOptions) -> Result<VolumeLane> {
    volume
        .lane(options)
        .map_err(|cause| Error::failed("cannot open a lane", cause))
}

/// Opens a lane of its bare members, on the thread that will use it.
pub(crate) fn open_members(volume: &Volume, options: &LaneOptions) -> Result<Lane> {
    volume
        .member_lane(options)
        .map_err(|cause| Error::failed("cannot open a lane", cause))
}

impl Target for VolumeLane {
    #[inline]
    fn read(&mut self, position: Position, buffer: Buffer) {
        Self::read(self, position.offset, buffer, 0);
    }

    #[inline]
    fn write(&mut self, position: Position, buffer: Buffer) {
        Self::write(self, position.offset, buffer, 0);
    }

    #[inline]
    fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<usize> {
        Self::poll(self, completions).map_err(|cause| Error::failed(QUEUE_FAILED, cause))
    }

    #[inline]
    fn wait(&mut self, min: usize, completions: &mut Vec<Completion>) -> Result<usize> {
        Self::wait(self, min, completions).map_err(|cause| Error::failed(QUEUE_FAILED, cause))
    }

    fn drain(&mut self, completions: &mut Vec<Completion>) -> Result<()> {
        Self::drain(self, completions).map_err(|cause| Error::failed(QUEUE_FAILED, cause))
    }

    fn take_stats(&mut self) -> LaneStats {
        Self::take_stats(self)
    }

    fn description(&self) -> &QueueDescription {
        Self::description(self)
    }
}

impl Target for Lane {
    #[inline]
    fn read(&mut self, position: Position, buffer: Buffer) {
        let segment = whole(position, &buffer);
        self.submit(Request::read(buffer, 0), &[segment]);
    }

    #[inline]
    fn write(&mut self, position: Position, buffer: Buffer) {
        let segment = whole(position, &buffer);
        self.submit(Request::write(buffer, 0), &[segment]);
    }

    #[inline]
    fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<usize> {
        Self::poll(self, completions).map_err(|cause| Error::failed(QUEUE_FAILED, cause))
    }

    #[inline]
    fn wait(&mut self, min: usize, completions: &mut Vec<Completion>) -> Result<usize> {
        Self::wait(self, min, completions).map_err(|cause| Error::failed(QUEUE_FAILED, cause))
    }

    fn drain(&mut self, completions: &mut Vec<Completion>) -> Result<()> {
        Self::drain(self, completions).map_err(|cause| Error::failed(QUEUE_FAILED, cause))
    }

    fn take_stats(&mut self) -> LaneStats {
        Self::take_stats(self)
    }

    fn description(&self) -> &QueueDescription {
        Self::description(self)
    }
}

#[inline]
fn whole(position: Position, buffer: &Buffer) -> Segment {
    // A length in memory always fits 64 bits.
    Segment::whole(position.device, position.offset, buffer.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_fans_out_to_as_many_members_as_it_touches() {
        assert_eq!(fan_out(4096, 1 << 20, 4), 1);
        assert_eq!(fan_out(1 << 20, 1 << 20, 4), 1);
        assert_eq!(fan_out(1 << 20, 512 << 10, 4), 2);
        assert_eq!(fan_out(1 << 20, 64 << 10, 4), 4);
        assert_eq!(fan_out(512 << 10, 384 << 10, 4), 3);
    }
}
