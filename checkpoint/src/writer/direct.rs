//! Large tensors that go from the caller's memory to the drives.
//!
//! Checksums are made of memory that is on its way already, a slice at a time, and between two
//! slices what has completed makes room for more. So one thread keeps the queue full, within a
//! tensor and from one to the next.

use std::collections::VecDeque;

use swath_engine::ScopeMemory;

use crate::blob::usize_of;
use crate::error::{Error, Result};
use crate::index::{BLOCK_BYTES, TensorEntry};
use crate::sums::BlockSums;
use crate::transfer::pieces;
use crate::writer::{Put, Writer};

/// How much is checksummed between two looks at the queue: a few microseconds, of the hundred and
/// more that a transfer takes.
const SUMMED_BYTES: usize = 256 << 10;

impl Writer {
    /// Writes large tensors from the caller's memory.
    pub(super) fn put_direct(&mut self, mut puts: Vec<Put<'_>>) -> Result<()> {
        for put in &mut puts {
            let placed = self.place(&mut put.entry);
            placed.map_err(|error| self.failed(&put.entry.name, error))?;
        }
        let sums = self
            .write_direct(&puts)
            .map_err(|(error, number)| self.failed(&puts[number].entry.name, error))?;
        for (Put { mut entry, bytes }, mut sums) in puts.into_iter().zip(sums) {
            let whole = self.whole_blocks(entry.length);
            let tail = &bytes[usize_of(whole)..];
            sums.add(tail);
            entry.checksums = sums.finish();
            let outcome = if tail.is_empty() {
                Ok(())
            } else {
                self.write_tail(&entry, whole, tail)
            };
            let outcome = outcome.and_then(|()| self.check_source(&entry, bytes));
            self.settle(entry, outcome)?;
        }
        Ok(())
    }

    /// Writes the whole blocks of tensors that have their places, and makes the checksums of what
    /// it writes. A failure comes with the number of its tensor.
    fn write_direct(
        &mut self,
        puts: &[Put<'_>],
    ) -> std::result::Result<Vec<BlockSums>, (Error, usize)> {
        let (window, chunk_bytes) = (self.window, self.chunk_bytes);
        let wholes = puts.iter().map(|put| self.whole_blocks(put.entry.length));
        let transfers = puts
            .iter()
            .zip(wholes.collect::<Vec<_>>())
            .enumerate()
            .flat_map(|(number, (put, whole))| {
                pieces(&put.entry.runs, chunk_bytes).filter_map(move |piece| {
                    let end = (piece.position + piece.length).min(whole);
                    (end > piece.position).then(|| Transfer {
                        number,
                        offset: piece.offset,
                        memory: &put.bytes[usize_of(piece.position)..usize_of(end)],
                    })
                })
            });
        let mut transfers = transfers.peekable();
        let mut trail = Trail::new(puts.len());
        let window_bytes = window * usize_of(BLOCK_BYTES);
        self.lane.scope(|scope| {
            let mut ends = Vec::with_capacity(2 * window);
            let mut bytes_in_flight = 0;
            loop {
                // Drives are kept busy by bytes: beside the short ones at the ends of tensors, a few
                // more may be in flight.
                while let Some(transfer) = transfers.next_if(|next| {
                    let is_light = scope.in_flight() < 2 * window
                        && bytes_in_flight + next.memory.len() <= window_bytes;
                    scope.in_flight() < window || is_light
                }) {
                    bytes_in_flight += transfer.memory.len();
                    scope.write(transfer.offset, transfer.memory, transfer.number as u64);
                    trail.push(transfer);
                }
                let is_summed = trail.is_empty();
                if is_summed && scope.in_flight() == 0 {
                    return Ok(());
                }
                scope
                    .wait(usize::from(is_summed), &mut ends)
                    .map_err(|error| (error.into(), 0))?;
                for end in ends.drain(..) {
                    let ScopeMemory::Write(memory) = end.memory else {
                        unreachable!("only writes were started")
                    };
                    bytes_in_flight -= memory.len();
                    let number = usize_of(end.token);
                    end.result.map_err(|error| (error.into(), number))?;
                }
                trail.sum_slice();
            }
        })?;
        Ok(trail.sums)
    }

    /// How many bytes of so many are whole blocks of the volume.
    fn whole_blocks(&self, length: u64) -> u64 {
        length - length % self.block_bytes
    }

    /// Writes the end of a tensor that is shorter than a block of the volume, padded with zeroes.
    fn write_tail(&mut self, entry: &TensorEntry, position: u64, tail: &[u8]) -> Result<()> {
        let last = entry.runs.last().expect("a tensor with bytes has a run");
        let offset = last.offset + last.length - (entry.length - position);
        let mut buffer = self.take_buffer()?;
        buffer.set_len(tail.len());
        buffer.copy_from_slice(tail);
        self.write_padded(offset, buffer)
    }
}

/// A part of the caller's memory, and where it goes.
struct Transfer<'a> {
    /// The number of its tensor.
    number: usize,
    offset: u64,
    memory: &'a [u8],
}

/// The checksums of tensors, made behind their transfers.
struct Trail<'a> {
    sums: Vec<BlockSums>,
    /// What is on its way and has no checksum yet, in order.
    ahead: VecDeque<Transfer<'a>>,
}

impl<'a> Trail<'a> {
    fn new(tensors: usize) -> Self {
        let mut sums = Vec::new();
        sums.resize_with(tensors, BlockSums::default);
        Self {
            sums,
            ahead: VecDeque::new(),
        }
    }

    fn push(&mut self, transfer: Transfer<'a>) {
        self.ahead.push_back(transfer);
    }

    fn is_empty(&self) -> bool {
        self.ahead.is_empty()
    }

    /// Takes the next slice.
    fn sum_slice(&mut self) {
        let Some(next) = self.ahead.front_mut() else {
            return;
        };
        let (now, later) = next.memory.split_at(SUMMED_BYTES.min(next.memory.len()));
        self.sums[next.number].add(now);
        next.memory = later;
        if later.is_empty() {
            self.ahead.pop_front();
        }
    }
}
