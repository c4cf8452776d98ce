//! Writes a whole volume once, so that what is read later was written.

use swath_engine::{BufPool, Buffer, Completion, LaneOptions, QueueOptions, fill_incompressible};
use swath_volume::Volume;

use crate::error::{Error, ErrorKind, Result};
use crate::interrupt::Interrupt;
use crate::target::{Target, open_volume};

/// Large writes, a few at a time, are what every drive takes fastest.
const PIECES: Pieces = Pieces {
    bytes: 1 << 20,
    count: 16,
};

/// The writes that a volume is written by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pieces {
    /// Bytes of each.
    pub(crate) bytes: u64,
    /// How many are in flight.
    pub(crate) count: u32,
}

/// Writes incompressible bytes from the first to the last of `volume` and flushes it, telling
/// `progress` how many bytes are done.
///
/// # Errors
///
/// A write or the flush failed, or the run was interrupted.
pub fn fill(
    volume: &Volume,
    queue: &QueueOptions,
    seed: u64,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    write_through(volume, PIECES, queue, seed, interrupt, progress)
}

/// The same in pieces of other sizes.
pub(crate) fn write_through(
    volume: &Volume,
    pieces: Pieces,
    queue: &QueueOptions,
    seed: u64,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let piece_bytes = usize::try_from(pieces.bytes).unwrap_or(usize::MAX);
    let count = usize::try_from(pieces.count).unwrap_or(usize::MAX);
    let pool = BufPool::new(piece_bytes, count)
        .map_err(|cause| Error::failed("cannot get the memory to fill the volume", cause))?;
    let queue = QueueOptions {
        depth: pieces.count.max(64),
        pools: vec![pool.clone()],
        ..queue.clone()
    };
    let options = LaneOptions {
        queue,
        ..LaneOptions::default()
    };
    let mut lane = open_volume(volume, &options)?;
    let mut offset = 0;
    let mut done_bytes = 0;
    let mut completions: Vec<Completion> = Vec::new();
    while done_bytes < volume.capacity_bytes() {
        while offset < volume.capacity_bytes() {
            let Some(mut buffer) = pool.take() else { break };
            let left = usize::try_from(volume.capacity_bytes() - offset).unwrap_or(usize::MAX);
            buffer.set_len(left.min(piece_bytes));
            fill_incompressible(&mut buffer, seed, offset);
            let length = buffer.len() as u64;
            lane.write(offset, Buffer::from(buffer), 0);
            offset += length;
        }
        Target::wait(&mut lane, 1, &mut completions)?;
        for completion in completions.drain(..) {
            done_bytes += completion
                .result
                .map_err(|cause| Error::failed("cannot fill the volume", cause))?;
        }
        if interrupt.is_set() {
            Target::drain(&mut lane, &mut completions)?;
            return Err(Error::new(
                ErrorKind::Interrupted,
                "interrupted while filling the volume",
            ));
        }
        progress(done_bytes);
    }
    volume
        .flush()
        .map_err(|cause| Error::failed("cannot flush the volume", cause))
}
