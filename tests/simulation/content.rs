//! [`Content`]: what a simulated checkpoint holds, all of which follows from a few numbers.

use std::fmt;

use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use swath_checkpoint::region::Region;
use swath_checkpoint::{Checkpoint, DType, ErrorKind, ReadOptions, Reader, Result, TensorTarget};
use swath_engine::{AlignedBuf, fill_incompressible};

const MIB: u64 = 1 << 20;

/// What a checkpoint holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    /// Never used twice in a run.
    pub(crate) id: u64,
    pub(crate) tensors: Vec<Shape>,
}

/// A tensor: its bytes follow from the content's number and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) dtype: DType,
    pub(crate) dimensions: Vec<u64>,
    /// Whether its memory is aligned: that is told, not left to the allocator, which would make
    /// two runs of one seed differ.
    pub(crate) is_aligned: bool,
}

/// How to read a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Every tensor as a whole, one after the other.
    Whole { is_aligned: bool },
    /// Some ranges of every tensor.
    Ranges,
    /// Some boxes.
    Boxes,
    /// All at once, on so many threads.
    Load { threads: usize },
}

impl Content {
    pub(crate) fn draw(id: u64, rng: &mut ChaCha8Rng) -> Self {
        let count = rng.random_range(0..5);
        let tensors = (0..count)
            .map(|_| {
                let bytes = match rng.random_range(0..20) {
                    0 => 0,
                    1..9 => rng.random_range(1..5000),
                    9..16 => rng.random_range(1..120_000),
                    16..19 => rng.random_range(1..MIB),
                    _ => rng.random_range(MIB..2 * MIB + MIB / 2),
                };
                let (dtype, dimensions) = if rng.random() {
                    (DType::U8, vec![bytes])
                } else {
                    let columns = rng.random_range(1..64);
                    (DType::F32, vec![bytes.div_ceil(4 * columns), columns])
                };
                Shape {
                    dtype,
                    dimensions,
                    is_aligned: rng.random(),
                }
            })
            .collect();
        Self { id, tensors }
    }

    /// The tensors' names, in their order.
    pub(crate) fn names(&self) -> Vec<String> {
        let places = 0..self.tensors.len();
        places.map(|place| format!("tensor {place}")).collect()
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.tensors.iter().map(|shape| shape.bytes() as u64).sum()
    }

    pub(crate) fn memory(&self) -> Vec<Memory> {
        let shapes = (0..).zip(&self.tensors);
        shapes
            .map(|(place, shape)| {
                let mut memory = Memory::new(shape.bytes(), shape.is_aligned);
                fill_incompressible(memory.bytes_mut(), self.id * 100 + place, 0);
                memory
            })
            .collect()
    }

    /// Reads a checkpoint and compares it with this.
    ///
    /// # Errors
    ///
    /// What the store says.
    ///
    /// # Panics
    ///
    /// When it has other bytes, or other tensors.
    pub(crate) fn check(
        &self,
        checkpoint: &Checkpoint,
        how: How,
        rng: &mut ChaCha8Rng,
    ) -> Result<()> {
        let info = checkpoint.info();
        let wanted: Vec<_> = self.tensors.iter().zip(self.names()).collect();
        let found = checkpoint.tensors();
        assert_eq!(
            found.len(),
            wanted.len(),
            "{info:?} has other tensors than {self:?}"
        );
        for (entry, (shape, name)) in found.iter().zip(&wanted) {
            assert_eq!(
                (&entry.name, entry.dtype, &entry.shape),
                (name, shape.dtype, &shape.dimensions),
                "{info:?}"
            );
        }
        let originals = self.memory();
        if let How::Load { threads } = how {
            let mut copies: Vec<_> = (self.tensors.iter())
                .map(|shape| Memory::new(shape.bytes(), shape.is_aligned))
                .collect();
            let targets = (copies.iter_mut().zip(&wanted))
                .map(|(copy, (_, name))| TensorTarget {
                    name,
                    memory: copy.bytes_mut(),
                })
                .collect();
            checkpoint.load(targets, threads, ReadOptions::default())?;
            for ((copy, original), (_, name)) in copies.iter().zip(&originals).zip(&wanted) {
                same(copy.bytes(), original.bytes(), &format!("{info:?} {name}"));
            }
            return Ok(());
        }
        let mut reader = checkpoint.reader(ReadOptions::default())?;
        for (original, (shape, name)) in originals.iter().zip(&wanted) {
            let bytes = original.bytes();
            let what = format!("{info:?} {name}");
            match how {
                How::Whole { is_aligned } => {
                    let mut copy = Memory::new(bytes.len(), is_aligned);
                    reader.read(name, copy.bytes_mut())?;
                    same(copy.bytes(), bytes, &what);
                }
                // What a box of more than a block is read through is memory of the allocator's.
                How::Boxes if shape.dimensions.len() == 2 && bytes.len() < 1 << 20 => {
                    read_box(&mut reader, shape, name, bytes, rng, &what)?;
                }
                _ => {
                    for _ in 0..3 {
                        let from = rng.random_range(0..=bytes.len());
                        let to = rng.random_range(from..=bytes.len());
                        let mut copy = Memory::new(to - from, rng.random());
                        reader.read_range(name, from as u64, copy.bytes_mut())?;
                        same(
                            copy.bytes(),
                            &bytes[from..to],
                            &format!("{what} {from}..{to}"),
                        );
                    }
                }
            }
        }
        Ok(())
    }
}

fn read_box(
    reader: &mut Reader,
    shape: &Shape,
    name: &str,
    bytes: &[u8],
    rng: &mut ChaCha8Rng,
    what: &str,
) -> Result<()> {
    let [rows, columns] = shape.dimensions[..] else {
        return Ok(());
    };
    let start: Vec<u64> = [rows, columns]
        .map(|size| rng.random_range(0..=size))
        .into();
    let size: Vec<u64> = (start.iter().zip([rows, columns]))
        .map(|(from, size)| rng.random_range(0..=size - from))
        .collect();
    let region = Region { start, size };
    let runs = region.runs(shape.dtype, &shape.dimensions)?;
    let mut copy = vec![0; runs.total_bytes()];
    reader.read_box(name, &region, &mut copy)?;
    for run in runs {
        let from = run.tensor_offset as usize;
        let found = &copy[run.buffer_offset..run.buffer_offset + run.length];
        same(found, &bytes[from..from + run.length], what);
    }
    Ok(())
}

#[track_caller]
fn same(found: &[u8], wanted: &[u8], what: &str) {
    if found != wanted {
        let place = found.iter().zip(wanted).position(|(one, two)| one != two);
        panic!("WRONG BYTES from byte {place:?} on: {what}");
    }
}

impl Shape {
    pub(crate) fn bytes(&self) -> usize {
        let bytes = self.dtype.tensor_bytes(&self.dimensions).unwrap();
        usize::try_from(bytes).unwrap()
    }
}

/// Memory of a known alignment.
pub(crate) struct Memory {
    buffer: AlignedBuf,
    skip: usize,
}

impl Memory {
    fn new(length: usize, is_aligned: bool) -> Self {
        let skip = if is_aligned { 0 } else { 8 };
        Self {
            buffer: AlignedBuf::zeroed(length + skip).unwrap(),
            skip,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.skip..]
    }

    /// Writes over it.
    pub(crate) fn spoil(&mut self) {
        self.bytes_mut().fill(0xFF);
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.skip..]
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "content {} of", self.id)?;
        for shape in &self.tensors {
            let skewed = if shape.is_aligned { "" } else { "*" };
            write!(f, " {}{skewed}", shape.bytes())?;
        }
        write!(f, " bytes")
    }
}

/// Whether damage is told with its place.
pub(crate) fn is_located(error: &swath_checkpoint::Error) -> bool {
    error.kind() != ErrorKind::Damaged || error.tensor().is_none() || !error.places().is_empty()
}
