//! [`VerifiedLane`]: a lane that stamps what it writes and checks what it reads.
//!
//! It stands where the plain lane does, so the loop that measures is the same and pays nothing when
//! nobody verifies.
//!
//! - Two writes of one block are never in flight together: the later one is held back until the
//!   earlier one has completed. Lanes keep to regions of their own, so no other lane's can be.
//! - The intent is in the journal before a write is queued, the confirmation once its completion
//!   was seen, before the caller sees it.

use std::collections::{HashSet, VecDeque};

use swath_engine::{Buffer, Completion, LaneOptions, LaneStats, OpKind, QueueDescription};
use swath_volume::{Volume, VolumeLane};

use super::Verifier;
use crate::error::{Error, Result};
use crate::target::{Target, open_volume};
use crate::workload::Position;

/// A lane of the volume, with a verifier in between.
#[derive(Debug)]
pub(crate) struct VerifiedLane<'run> {
    lane: VolumeLane,
    verifier: &'run Verifier,
    /// Offsets of the writes in flight.
    writing: HashSet<u64>,
    /// Writes that wait for one of these, oldest first.
    held: VecDeque<(u64, Buffer)>,
    /// The first failure of the verifier's own, to be told by the next call that can.
    failed: Option<Error>,
    scratch: Vec<u8>,
    arrived: Vec<Completion>,
}

impl<'run> VerifiedLane<'run> {
    /// Opens a lane on the thread that will use it.
    pub(crate) fn open(
        verifier: &'run Verifier,
        volume: &Volume,
        options: &LaneOptions,
    ) -> Result<Self> {
        Ok(Self {
            lane: open_volume(volume, options)?,
            verifier,
            writing: HashSet::new(),
            held: VecDeque::new(),
            failed: None,
            scratch: Vec::new(),
            arrived: Vec::new(),
        })
    }

    fn write_now(&mut self, offset: u64, mut buffer: Buffer) {
        let bytes = buffer.as_mut_slice().unwrap_or_default();
        match self.verifier.intend(offset, bytes, &mut self.scratch) {
            Ok(()) => {
                self.writing.insert(offset);
                self.lane.write(offset, buffer, offset);
            }
            // What is not in the journal is not written.
            Err(error) => self.failed = self.failed.take().or(Some(error)),
        }
    }

    /// Takes in what has arrived, and queues what waited for it.
    fn settle(&mut self, completions: &mut Vec<Completion>) -> Result<usize> {
        let count = self.arrived.len();
        for completion in std::mem::take(&mut self.arrived) {
            self.settle_one(&completion)?;
            completions.push(completion);
        }
        self.failed.take().map_or(Ok(count), Err)
    }

    fn settle_one(&mut self, completion: &Completion) -> Result<()> {
        let offset = completion.token;
        if completion.kind == OpKind::Write {
            self.writing.remove(&offset);
        }
        if completion.result.is_ok() {
            for buffer in completion.buffers.iter() {
                match completion.kind {
                    OpKind::Write => {
                        self.verifier
                            .confirm(offset, buffer.len(), &mut self.scratch)?;
                    }
                    _ => self.verifier.check(offset, buffer.as_slice())?,
                }
            }
        }
        let waiting = self.held.iter().position(|(held, _)| *held == offset);
        if let Some((offset, buffer)) = waiting.and_then(|place| self.held.remove(place)) {
            self.write_now(offset, buffer);
        }
        Ok(())
    }
}

impl Target for VerifiedLane<'_> {
    fn read(&mut self, position: Position, buffer: Buffer) {
        self.lane.read(position.offset, buffer, position.offset);
    }

    fn write(&mut self, position: Position, buffer: Buffer) {
        if self.writing.contains(&position.offset) {
            self.held.push_back((position.offset, buffer));
        } else {
            self.write_now(position.offset, buffer);
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<usize> {
        Target::poll(&mut self.lane, &mut self.arrived)?;
        self.settle(completions)
    }

    fn wait(&mut self, min: usize, completions: &mut Vec<Completion>) -> Result<usize> {
        let mut count = 0;
        // What is held back is in flight to the caller, and not to the lane.
        while count < min && self.failed.is_none() {
            let min_now = (min - count).min(self.lane.in_flight());
            if min_now == 0 {
                break;
            }
            Target::wait(&mut self.lane, min_now, &mut self.arrived)?;
            count += self.settle(completions)?;
        }
        self.failed.take().map_or(Ok(count), Err)
    }

    fn drain(&mut self, completions: &mut Vec<Completion>) -> Result<()> {
        // Nothing of these was promised to anybody yet.
        self.held.clear();
        Target::drain(&mut self.lane, &mut self.arrived)?;
        self.settle(completions).map(|_| ())
    }

    fn take_stats(&mut self) -> LaneStats {
        Target::take_stats(&mut self.lane)
    }

    fn description(&self) -> &QueueDescription {
        Target::description(&self.lane)
    }
}
