//! The limit: the bare volume, written and read in order by as many threads as a save has, with as
//! much in flight, in transfers of 1 MiB.
//!
//! Two ways, for memory matters: a few buffers that are used over and over stay in the processor's
//! caches, and where a transfer is a copy somewhere (a virtual machine's disk, a file in memory)
//! that makes it faster than any checkpoint can be. So the limit that saves and loads are compared
//! with moves its bytes from and to the same memory as they do.

use std::ops::Range;
use std::thread;
use std::time::Instant;

use swath_engine::{
    BufPool, Completion, LaneOptions, PoolBuf, QueueDescription, QueueOptions, ScopeCompletion,
    fill_incompressible,
};
use swath_volume::{Volume, VolumeLane};

use crate::checkpoint::usage::{Meter, Sample};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::runner::gate::{Gate, Ticket};

const TRANSFER_BYTES: u64 = 1 << 20;

/// Each 4 KiB of what is written from buffers gets a number of its own, so that no two are alike.
const STAMP_BYTES: usize = 4096;

/// How the bare volume is driven.
#[derive(Debug, Clone)]
pub(crate) struct RawSettings {
    pub(crate) queue: QueueOptions,
    /// Transfers in flight on each thread.
    pub(crate) depth: u32,
    pub(crate) seed: u64,
    pub(crate) interrupt: Interrupt,
}

/// What one thread moves, and where from or to.
pub(crate) enum Work<'a> {
    /// Writes what is there, again and again.
    WriteFrom(&'a [u8]),
    /// Reads into all of it, again and again.
    ReadInto(&'a mut [u8]),
    /// Writes as many buffers as are in flight.
    WriteBuffers,
    /// Reads into as many.
    ReadBuffers,
}

impl Work<'_> {
    fn is_write(&self) -> bool {
        matches!(self, Self::WriteFrom(_) | Self::WriteBuffers)
    }
}

/// What moving the bare volume was.
pub(crate) struct Moved {
    pub(crate) sample: Sample,
    /// How long the flush behind a write took.
    pub(crate) flush_ns: Option<u64>,
    /// The queue of the first lane.
    pub(crate) queue: Option<QueueDescription>,
}

/// Moves the first `bytes` bytes of `volume` once, on a thread for each of `works`. A write is
/// flushed, and the flush counts; opening lanes and filling buffers does not.
pub(crate) fn run(
    volume: &Volume,
    settings: &RawSettings,
    works: Vec<Work<'_>>,
    bytes: u64,
) -> Result<Moved> {
    let is_write = works.iter().any(Work::is_write);
    let shares = shares(bytes, works.len());
    let mut meter = Meter::start();
    let gate = Gate::new(u32::try_from(shares.len()).unwrap_or(u32::MAX));
    let outcome = thread::scope(|scope| {
        let threads: Vec<_> = shares
            .into_iter()
            .zip(works)
            .map(|(range, work)| {
                let ticket = gate.ticket();
                scope.spawn(move || run_share(volume, settings, work, range, ticket))
            })
            .collect();
        if gate.wait().is_some() {
            meter.restart_clock();
        }
        let outcomes: Vec<_> = threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect();
        outcomes.into_iter().collect::<Result<Vec<_>>>()
    });
    let queues = outcome?;
    settings.interrupt.check()?;
    let mut flush_ns = None;
    if is_write {
        let began = Instant::now();
        volume
            .flush()
            .map_err(|cause| Error::failed("cannot flush the volume", cause))?;
        flush_ns = u64::try_from(began.elapsed().as_nanos()).ok();
    }
    Ok(Moved {
        sample: meter.stop(bytes),
        flush_ns,
        queue: queues.into_iter().next(),
    })
}

/// The bytes of each thread: neighbouring ranges, cut between transfers.
fn shares(bytes: u64, threads: usize) -> Vec<Range<u64>> {
    let transfers = bytes.div_ceil(TRANSFER_BYTES);
    let threads = (threads.max(1) as u64).min(transfers.max(1));
    (0..threads)
        .map(|number| {
            let border = |number: u64| (transfers * number / threads * TRANSFER_BYTES).min(bytes);
            border(number)..border(number + 1)
        })
        .collect()
}

fn run_share(
    volume: &Volume,
    settings: &RawSettings,
    work: Work<'_>,
    range: Range<u64>,
    ticket: Ticket<'_>,
) -> Result<QueueDescription> {
    let depth = settings.depth.max(1);
    let pool = match work {
        Work::WriteBuffers | Work::ReadBuffers => Some(buffers(depth, settings.seed)?),
        Work::WriteFrom(_) | Work::ReadInto(_) => None,
    };
    let options = LaneOptions {
        queue: QueueOptions {
            // A transfer may lie on several members.
            depth: depth * 2,
            pools: pool.iter().cloned().collect(),
            ..settings.queue.clone()
        },
        statistics: false,
        ..LaneOptions::default()
    };
    let lane = volume
        .lane(&options)
        .map_err(|cause| Error::failed("cannot open a lane", cause))?;
    let description = lane.description().clone();
    let mut share = Share {
        lane,
        range,
        depth: depth as usize,
        interrupt: &settings.interrupt,
    };
    // A refused start is not this thread's failure: the one that failed tells why.
    if ticket.ready().is_none() {
        return Ok(description);
    }
    match (work, pool) {
        (Work::WriteFrom(memory), _) => share.write_from(memory),
        (Work::ReadInto(memory), _) => share.read_into(memory),
        (Work::WriteBuffers, Some(pool)) => share.through_buffers(&pool, Some(settings.seed)),
        (_, Some(pool)) => share.through_buffers(&pool, None),
        (_, None) => Ok(()),
    }?;
    Ok(description)
}

/// As many buffers as are in flight, full of incompressible bytes.
fn buffers(depth: u32, seed: u64) -> Result<BufPool> {
    let length = to_usize(TRANSFER_BYTES);
    let pool = BufPool::new(length, depth as usize)
        .map_err(|cause| Error::failed("cannot get the memory for buffers", cause))?;
    let mut buffers: Vec<PoolBuf> = std::iter::from_fn(|| pool.take()).collect();
    for (number, buffer) in (0..).zip(&mut buffers) {
        buffer.set_len(length);
        fill_incompressible(buffer, seed ^ 0x5241_5721, number * TRANSFER_BYTES);
    }
    drop(buffers);
    Ok(pool)
}

/// What one thread has left to move.
struct Share<'a> {
    lane: VolumeLane,
    range: Range<u64>,
    depth: usize,
    interrupt: &'a Interrupt,
}

impl Share<'_> {
    fn write_from(&mut self, memory: &[u8]) -> Result<()> {
        while !self.range.is_empty() && !self.interrupt.is_set() {
            let (range, depth) = (&mut self.range, self.depth);
            self.lane.scope(|scope| {
                let mut ends = Vec::with_capacity(depth);
                for piece in memory.chunks(to_usize(TRANSFER_BYTES)) {
                    let Some((offset, length)) = next_transfer(range, piece.len()) else {
                        break;
                    };
                    scope.write(offset, &piece[..length], 0);
                    let spare = usize::from(scope.in_flight() >= depth);
                    scope.wait(spare, &mut ends).map_err(cannot_wait)?;
                    look(&mut ends)?;
                }
                scope.wait(usize::MAX, &mut ends).map_err(cannot_wait)?;
                look(&mut ends)
            })?;
        }
        Ok(())
    }

    fn read_into(&mut self, memory: &mut [u8]) -> Result<()> {
        while !self.range.is_empty() && !self.interrupt.is_set() {
            let (range, depth) = (&mut self.range, self.depth);
            self.lane.scope(|scope| {
                let mut ends = Vec::with_capacity(depth);
                for piece in memory.chunks_mut(to_usize(TRANSFER_BYTES)) {
                    let Some((offset, length)) = next_transfer(range, piece.len()) else {
                        break;
                    };
                    scope.read(offset, &mut piece[..length], 0);
                    let spare = usize::from(scope.in_flight() >= depth);
                    scope.wait(spare, &mut ends).map_err(cannot_wait)?;
                    look(&mut ends)?;
                }
                scope.wait(usize::MAX, &mut ends).map_err(cannot_wait)?;
                look(&mut ends)
            })?;
        }
        Ok(())
    }

    /// Writes if there is a number to stamp what is written with; reads if not.
    fn through_buffers(&mut self, pool: &BufPool, seed: Option<u64>) -> Result<()> {
        let mut stamp =
            seed.map(|seed| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.range.start);
        let mut completions: Vec<Completion> = Vec::new();
        let mut outcome = Ok(());
        while outcome.is_ok() && !self.interrupt.is_set() {
            while !self.range.is_empty()
                && let Some(mut buffer) = pool.take()
            {
                let room = buffer.capacity();
                let Some((offset, length)) = next_transfer(&mut self.range, room) else {
                    break;
                };
                buffer.set_len(length);
                match &mut stamp {
                    Some(stamp) => {
                        for unit in buffer.chunks_exact_mut(STAMP_BYTES) {
                            *stamp = stamp.wrapping_add(1);
                            unit[..8].copy_from_slice(&stamp.to_le_bytes());
                        }
                        self.lane.write(offset, buffer, 0);
                    }
                    None => self.lane.read(offset, buffer, 0),
                }
            }
            if self.lane.in_flight() == 0 {
                break;
            }
            outcome = self
                .lane
                .wait(1, &mut completions)
                .map_err(cannot_wait)
                .map(drop);
            // Buffers go back to the pool here.
            for completion in completions.drain(..) {
                if let Err(cause) = completion.result {
                    outcome = Err(has_failed(cause));
                }
            }
        }
        let drained = self.lane.drain(&mut completions);
        outcome?;
        drained.map_err(cannot_wait)
    }
}

/// The next transfer of a range into memory of `room` bytes; none at its end.
fn next_transfer(range: &mut Range<u64>, room: usize) -> Option<(u64, usize)> {
    let left = range.end - range.start;
    let length = left.min(TRANSFER_BYTES).min(room as u64);
    // Memory ends where a tensor does: what is left of a transfer there is not used.
    let whole = if length < left {
        length - length % STAMP_BYTES as u64
    } else {
        length
    };
    if whole == 0 {
        return None;
    }
    let offset = range.start;
    range.start += whole;
    Some((offset, to_usize(whole)))
}

fn look(ends: &mut Vec<ScopeCompletion<'_>>) -> Result<()> {
    ends.drain(..)
        .try_for_each(|end| end.result.map(drop).map_err(has_failed))
}

fn has_failed(cause: swath_engine::Error) -> Error {
    Error::failed("a transfer of the bare volume failed", cause)
}

fn cannot_wait(cause: swath_volume::Error) -> Error {
    Error::failed("cannot wait for transfers", cause)
}

/// A length of memory.
fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once() {
        const MIB: u64 = 1 << 20;
        for (bytes, threads) in [(10 * MIB, 3), (MIB, 4), (5 * MIB + 4096, 2), (4096, 1)] {
            let shares = shares(bytes, threads);
            assert!(shares.len() <= threads);
            let mut end = 0;
            for share in &shares {
                assert_eq!(share.start, end);
                assert!(share.end > share.start);
                end = share.end;
            }
            assert_eq!(end, bytes);
        }
    }
}
