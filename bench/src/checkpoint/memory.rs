//! The memory that tensors are saved from and loaded into.
//!
//! A checkpoint of 4 GiB does not need 4 GiB here: tensors are slices of one buffer, each from a
//! place of its own, and they may overlap. The buffer is larger than any processor's cache, so
//! reading it costs what reading a model would. Loads go into one buffer for each rank, batch by
//! batch.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use swath_engine::{AlignedBuf, fill_incompressible};

use crate::checkpoint::shapes::Model;
use crate::environment::memory_available_bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::size::format_bytes;

/// The most memory that tensors are saved from, and that they are loaded into, unless one tensor is
/// larger: [`SaveSettings::memory_bytes`](crate::checkpoint::SaveSettings::memory_bytes).
pub(crate) const MEMORY_BYTES_DEFAULT: u64 = 512 << 20;

/// Tensors begin at multiples of this, and lie in blocks that no other has at the same place.
const STEP_BYTES: u64 = 4096;

/// What pages memory is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Pages {
    /// Huge pages, where the kernel gives them: what a program has that asks for them.
    #[default]
    Huge,
    /// Whatever the allocator gives: what most programs have.
    Plain,
}

impl Pages {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Huge => "huge",
            Self::Plain => "plain",
        }
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Pages {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Pages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for Pages {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        [Self::Huge, Self::Plain]
            .into_iter()
            .find(|pages| pages.name().eq_ignore_ascii_case(name.trim()))
            .ok_or_else(|| {
                Error::usage(format!(
                    "no pages are called '{name}'; there are huge and plain"
                ))
            })
    }
}

/// A buffer whose first byte lies on a multiple of 4 KiB, resident from the start.
pub(crate) enum Memory {
    Huge(AlignedBuf),
    Plain { bytes: Vec<u8>, range: Range<usize> },
}

impl Memory {
    pub(crate) fn new(bytes: u64, pages: Pages) -> Result<Self> {
        let no_memory = || {
            Error::new(
                ErrorKind::NoSpace,
                format!("there is no memory for a buffer of {bytes} bytes"),
            )
        };
        let length = usize::try_from(bytes).map_err(|_| no_memory())?;
        // The kernel gives more than it has, and ends processes later.
        if let Some(available) = memory_available_bytes()
            && bytes > available
        {
            return Err(Error::new(
                ErrorKind::NoSpace,
                format!(
                    "there is no memory for a buffer of {}: {} are available; the largest tensor \
                     must fit, so take a smaller --size",
                    format_bytes(bytes),
                    format_bytes(available)
                ),
            ));
        }
        match pages {
            Pages::Huge => AlignedBuf::zeroed(length)
                .map(Self::Huge)
                .map_err(|cause| no_memory().with_source(cause)),
            Pages::Plain => {
                let align = usize::try_from(STEP_BYTES).unwrap_or(1);
                let mut memory = Vec::new();
                memory
                    .try_reserve_exact(length.checked_add(align).ok_or_else(no_memory)?)
                    .map_err(|cause| no_memory().with_source(cause))?;
                // Ones, for a page of zeroes may be shared until it is written.
                memory.resize(length + align, 1);
                let address = memory.as_ptr().addr();
                let start = address.next_multiple_of(align) - address;
                Ok(Self::Plain {
                    bytes: memory,
                    range: start..start + length,
                })
            }
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Huge(buffer) => buffer,
            Self::Plain { bytes, range } => &bytes[range.clone()],
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Huge(buffer) => buffer,
            Self::Plain { bytes, range } => &mut bytes[range.clone()],
        }
    }
}

/// What tensors are saved from.
pub struct Source {
    memory: Memory,
    skew_bytes: u64,
    /// Where each tensor's bytes lie.
    places: Vec<Range<usize>>,
}

impl Source {
    /// Incompressible bytes for every tensor of `model`, in no more than `memory_bytes` of memory
    /// unless one tensor is larger. Each tensor begins at a multiple of 4 KiB and `skew_bytes` behind
    /// it.
    ///
    /// # Errors
    ///
    /// The memory is not to be had.
    pub fn new(
        model: &Model,
        pages: Pages,
        skew_bytes: u64,
        memory_bytes: u64,
        seed: u64,
    ) -> Result<Self> {
        let largest = model.largest_bytes() + skew_bytes;
        // Some room, so that the largest tensors do not all begin at one place.
        let bytes = model
            .total_bytes()
            .min(memory_bytes)
            .max(largest + (1 << 20))
            .next_multiple_of(STEP_BYTES);
        let mut memory = Memory::new(bytes, pages)?;
        fill_incompressible(memory.bytes_mut(), seed, 0);
        let mut places = Vec::with_capacity(model.tensors().len());
        let (mut next, mut turns) = (0, 0);
        for tensor in model.tensors() {
            if next + skew_bytes + tensor.bytes > bytes {
                turns += 1;
                let spare = bytes - skew_bytes - tensor.bytes;
                // Each turn begins a little further on.
                next = (turns * STEP_BYTES) % (spare - spare % STEP_BYTES + STEP_BYTES);
            }
            let begin = next + skew_bytes;
            places.push(to_usize(begin)..to_usize(begin + tensor.bytes));
            next = (begin + tensor.bytes).next_multiple_of(STEP_BYTES);
        }
        Ok(Self {
            memory,
            skew_bytes,
            places,
        })
    }

    /// The bytes of a tensor, by its place in the model.
    pub fn tensor(&self, place: usize) -> &[u8] {
        &self.memory.bytes()[self.places[place].clone()]
    }

    /// How far behind multiples of 4 KiB its tensors begin.
    pub fn skew_bytes(&self) -> u64 {
        self.skew_bytes
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        self.memory.bytes()
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("bytes", &self.bytes().len())
            .finish_non_exhaustive()
    }
}

/// Tensors that are loaded together, and where in a rank's buffer each of them goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Batch {
    /// Places in the model, and ranges in the buffer, one behind the other.
    pub(crate) tensors: Vec<(usize, Range<usize>)>,
}

/// Divides what a rank loads into batches, each of which fits into one buffer of the bytes that
/// are returned.
pub(crate) fn batches(model: &Model, rank: &[usize], room_bytes: u64) -> (Vec<Batch>, u64) {
    let padded = |place: usize| model.tensors()[place].bytes.next_multiple_of(STEP_BYTES);
    let largest = rank.iter().map(|&place| padded(place)).max().unwrap_or(0);
    let total: u64 = rank.iter().map(|&place| padded(place)).sum();
    let room = room_bytes.max(largest).min(total);
    let mut batches: Vec<Batch> = Vec::new();
    let mut used = room;
    for &place in rank {
        if used + padded(place) > room || batches.is_empty() {
            used = 0;
            batches.push(Batch {
                tensors: Vec::new(),
            });
        }
        if let Some(batch) = batches.last_mut() {
            let end = used + model.tensors()[place].bytes;
            batch.tensors.push((place, to_usize(used)..to_usize(end)));
        }
        used += padded(place);
    }
    (batches, room)
}

/// A place in memory that was had before.
fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("what lies in memory has an address")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::shapes::ModelShape;

    fn model(bytes: u64) -> Model {
        Model::new(ModelShape::B8, bytes, false).unwrap()
    }

    #[test]
    fn tensors_are_slices_of_memory_that_is_smaller_than_they_are() {
        for (pages, skew) in [(Pages::Huge, 0), (Pages::Plain, 0), (Pages::Plain, 64)] {
            let model = model(32 << 20);
            let source = Source::new(&model, pages, skew, 1 << 30, 7).unwrap();
            assert!(source.bytes().len() as u64 <= model.total_bytes() + (2 << 20));
            for (place, tensor) in model.tensors().iter().enumerate() {
                let bytes = source.tensor(place);
                assert_eq!(bytes.len() as u64, tensor.bytes);
                assert_eq!(bytes.as_ptr().addr() as u64 % STEP_BYTES, skew);
            }
        }
    }

    #[test]
    fn batches_have_every_tensor_and_fit() {
        let model = model(32 << 20);
        let rank: Vec<usize> = (0..model.tensors().len()).collect();
        for room in [0, 4 << 20, 1 << 40] {
            let (batches, bytes) = batches(&model, &rank, room);
            let mut places = Vec::new();
            for batch in &batches {
                let mut end = 0;
                for (place, range) in &batch.tensors {
                    assert!(range.start >= end && range.start.is_multiple_of(4096));
                    end = range.end;
                    places.push(*place);
                }
                assert!(end as u64 <= bytes);
            }
            assert_eq!(places, rank);
        }
        assert_eq!(batches(&model, &[], 1 << 20).0, []);
    }
}
