//! Passes over the whole volume: everything that is known read back and checked, and every unit
//! written once.

use swath_engine::{BufPool, Buffer, Completion, LaneOptions, QueueOptions};
use swath_volume::{Volume, VolumeLane};

use super::Verifier;
use super::lane::VerifiedLane;
use super::report::Tally;
use super::unit::{UNIT_BYTES, UNIT_LEN};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::target::{Target, open_volume};
use crate::workload::Position;

/// Large requests, a few at a time, are what every drive takes fastest.
const PIECE_BYTES: usize = 1 << 20;
const PIECES: usize = 16;

/// What a pass goes by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pass<'run> {
    pub(super) verifier: &'run Verifier,
    pub(super) volume: &'run Volume,
    pub(super) queue: &'run QueueOptions,
    pub(super) interrupt: &'run Interrupt,
}

impl Pass<'_> {
    /// Reads every unit that is known and checks it. With `settles`, a unit whose write was open is
    /// known from then on by what is there, if that is one generation.
    ///
    /// # Errors
    ///
    /// A read failed, or the run was interrupted. Units that are wrong are none.
    pub(super) fn read_back(
        &self,
        settles: bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Tally> {
        let (pool, options) = self.lane_options()?;
        let mut lane: VolumeLane = open_volume(self.volume, &options)?;
        let mut scratch = Vec::new();
        let mut tally = Tally::default();
        let mut completions: Vec<Completion> = Vec::new();
        let mut offset = 0;
        let mut in_flight = 0;
        let total_bytes = self.volume.capacity_bytes();
        loop {
            while offset < total_bytes {
                let length = piece_at(offset, total_bytes);
                // Where nothing is known there is nothing to see.
                if !self.verifier.is_any_known(offset, length) {
                    tally.unchecked_units += length / UNIT_BYTES;
                    offset += length;
                    continue;
                }
                let Some(mut buffer) = pool.take() else { break };
                buffer.set_len(usize::try_from(length).unwrap_or(PIECE_BYTES));
                lane.read(offset, Buffer::from(buffer), offset);
                in_flight += 1;
                offset += length;
            }
            if in_flight == 0 {
                return Ok(tally);
            }
            Target::wait(&mut lane, 1, &mut completions)?;
            for completion in completions.drain(..) {
                in_flight -= 1;
                completion.result.map_err(|cause| {
                    Error::failed("cannot read the volume back to check it", cause)
                })?;
                for buffer in completion.buffers.iter() {
                    let at = completion.token;
                    tally += self.verifier.tally(at, buffer.as_slice());
                    if settles {
                        self.verifier.settle(at, buffer.as_slice(), &mut scratch)?;
                    }
                }
            }
            if self.interrupt.is_set() || self.verifier.findings.is_full() {
                Target::drain(&mut lane, &mut completions)?;
                self.interrupt.check()?;
                return Ok(tally);
            }
            progress(offset, total_bytes);
        }
    }

    /// Writes every unit of the volume, and flushes it.
    ///
    /// # Errors
    ///
    /// A write or the flush failed, or the run was interrupted.
    pub(super) fn fill(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let (pool, options) = self.lane_options()?;
        let mut lane = VerifiedLane::open(self.verifier, self.volume, &options)?;
        let mut completions: Vec<Completion> = Vec::new();
        let mut offset = 0;
        let mut done_bytes = 0;
        let total_bytes = self.volume.capacity_bytes();
        while done_bytes < total_bytes {
            while offset < total_bytes {
                let Some(mut buffer) = pool.take() else { break };
                let length = piece_at(offset, total_bytes);
                buffer.set_len(usize::try_from(length).unwrap_or(PIECE_BYTES));
                lane.write(Position { device: 0, offset }, Buffer::from(buffer));
                offset += length;
            }
            lane.wait(1, &mut completions)?;
            for completion in completions.drain(..) {
                done_bytes += completion
                    .result
                    .map_err(|cause| Error::failed("cannot fill the volume", cause))?;
            }
            if self.interrupt.is_set() {
                lane.drain(&mut completions)?;
                return Err(Error::interrupted());
            }
            progress(done_bytes, total_bytes);
        }
        self.volume
            .flush()
            .map_err(|cause| Error::failed("cannot flush the volume", cause))
    }

    fn lane_options(&self) -> Result<(BufPool, LaneOptions)> {
        let pool = BufPool::new(PIECE_BYTES.max(UNIT_LEN), PIECES)
            .map_err(|cause| Error::failed("cannot get the memory for the buffers", cause))?;
        let queue = QueueOptions {
            depth: 64,
            pools: vec![pool.clone()],
            ..self.queue.clone()
        };
        let options = LaneOptions {
            queue,
            ..LaneOptions::default()
        };
        Ok((pool, options))
    }
}

fn piece_at(offset: u64, total_bytes: u64) -> u64 {
    (total_bytes - offset).min(PIECE_BYTES as u64)
}
