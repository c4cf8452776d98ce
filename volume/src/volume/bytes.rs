//! Reads and writes of any bytes, made of reads and writes of whole blocks.
//!
//! What is aligned goes straight from or to the caller's memory. The rest goes through a bounce
//! buffer: the blocks at the ends that are covered in part, and everything when the caller's
//! memory is not aligned.

use swath_engine::AlignedBuf;

use crate::error::Result;

/// The most bytes that are bounced at once: as much as drives take at their best rate.
const BOUNCE_BYTES: u64 = 1 << 20;

/// A way to move whole blocks, blocking.
pub(super) trait Blocks {
    /// Reads blocks into aligned memory.
    fn read_blocks(&mut self, memory: &mut [u8], offset: u64) -> Result<()>;
    /// Writes blocks from aligned memory.
    fn write_blocks(&mut self, memory: &[u8], offset: u64) -> Result<()>;
}

/// What offsets, lengths and addresses must be multiples of: powers of two.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alignment {
    pub(super) block_bytes: u64,
    pub(super) memory_bytes: usize,
}

impl Alignment {
    /// Whether memory and place can be used as they are.
    pub(super) fn admits(self, memory: &[u8], offset: u64) -> bool {
        (offset | memory.len() as u64).is_multiple_of(self.block_bytes)
            && memory.as_ptr().addr().is_multiple_of(self.memory_bytes)
    }

    /// How many of `length` bytes from `offset` on make one step: up to the next block's border
    /// when the step starts or ends within a block, else as many whole blocks as there are.
    fn step(self, offset: u64, length: u64) -> Step {
        let within = offset % self.block_bytes;
        let whole = length - length % self.block_bytes;
        if within != 0 || whole == 0 {
            Step::Part {
                within,
                length: length.min(self.block_bytes - within),
            }
        } else {
            Step::Whole { length: whole }
        }
    }
}

enum Step {
    /// Some bytes of one block, from its byte `within` on.
    Part {
        within: u64,
        length: u64,
    },
    Whole {
        length: u64,
    },
}

/// Fills `memory` from `offset` on.
pub(super) fn read(
    blocks: &mut impl Blocks,
    align: Alignment,
    mut memory: &mut [u8],
    mut offset: u64,
) -> Result<()> {
    let mut bounce = Bounce::default();
    while !memory.is_empty() {
        let taken = match align.step(offset, memory.len() as u64) {
            Step::Part { within, length } => {
                let block = bounce.of(align.block_bytes)?;
                blocks.read_blocks(block, offset - within)?;
                let (within, length) = (size(within), size(length));
                memory[..length].copy_from_slice(&block[within..within + length]);
                length
            }
            Step::Whole { length } => {
                let length = size(length);
                if align.admits(&memory[..length], offset) {
                    blocks.read_blocks(&mut memory[..length], offset)?;
                    length
                } else {
                    let length = length.min(size(BOUNCE_BYTES));
                    let bounced = bounce.of(length as u64)?;
                    blocks.read_blocks(bounced, offset)?;
                    memory[..length].copy_from_slice(bounced);
                    length
                }
            }
        };
        memory = &mut memory[taken..];
        offset += taken as u64;
    }
    Ok(())
}

/// Writes `memory` from `offset` on. The caller holds the blocks at the ends: they may be read,
/// changed and written.
pub(super) fn write(
    blocks: &mut impl Blocks,
    align: Alignment,
    mut memory: &[u8],
    mut offset: u64,
) -> Result<()> {
    let mut bounce = Bounce::default();
    while !memory.is_empty() {
        let taken = match align.step(offset, memory.len() as u64) {
            Step::Part { within, length } => {
                let block = bounce.of(align.block_bytes)?;
                blocks.read_blocks(block, offset - within)?;
                let (start, length) = (size(within), size(length));
                block[start..start + length].copy_from_slice(&memory[..length]);
                blocks.write_blocks(block, offset - within)?;
                length
            }
            Step::Whole { length } => {
                let length = size(length);
                if align.admits(&memory[..length], offset) {
                    blocks.write_blocks(&memory[..length], offset)?;
                    length
                } else {
                    let length = length.min(size(BOUNCE_BYTES));
                    let bounced = bounce.of(length as u64)?;
                    bounced.copy_from_slice(&memory[..length]);
                    blocks.write_blocks(bounced, offset)?;
                    length
                }
            }
        };
        memory = &memory[taken..];
        offset += taken as u64;
    }
    Ok(())
}

/// A bounce buffer, made when it is first needed.
#[derive(Default)]
struct Bounce(Option<AlignedBuf>);

impl Bounce {
    /// `length` bytes of it.
    fn of(&mut self, length: u64) -> Result<&mut [u8]> {
        let length = size(length);
        if self.0.as_ref().is_none_or(|buffer| buffer.len() < length) {
            self.0 = Some(AlignedBuf::zeroed(length)?);
        }
        let buffer = self.0.as_mut().expect("it was made just now");
        Ok(&mut buffer[..length])
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a range within memory fits in memory")
}
