//! Pieces of the volume: [`Extent`] (whole units of 4 KiB), [`Run`] (any bytes), and [`FreeSpace`].
//!
//! - Space is given out and taken back in whole units: two checkpoints never share one, so that
//!   writing one never rewrites a byte of another.
//! - [`FreeSpace`] holds every free extent once by offset and once by length. Neighbours are always
//!   merged, so the two say the same and a freed piece is as good as one that was never used.
//! - Every step takes logarithmic time in the number of free extents, and nothing is scanned.
//! - There is no map of free space on media: it is what no committed extent covers, and
//!   [`FreeSpace::new`] finds out, refusing extents that overlap or leave the volume.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Space is given out in multiples of this, at multiples of this.
pub const UNIT_BYTES: u64 = 4096;

/// The most bytes a store can manage: what a signed 64-bit offset reaches.
pub const CAPACITY_BYTES_MAX: u64 = 1 << 63;

/// Whole units of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Extent {
    /// Where it begins on the volume, in bytes; a multiple of [`UNIT_BYTES`].
    pub offset: u64,
    /// How many bytes it has; a multiple of [`UNIT_BYTES`], and not zero.
    pub length: u64,
}

impl Extent {
    /// The extent from `offset` for `length` bytes.
    pub const fn new(offset: u64, length: u64) -> Self {
        Self { offset, length }
    }

    /// Where it ends. Only for extents that were checked, or made by [`FreeSpace`].
    pub const fn end(self) -> u64 {
        self.offset + self.length
    }

    /// The same bytes as a run.
    pub const fn run(self) -> Run {
        Run::new(self.offset, self.length)
    }

    /// What is wrong with it, if anything is.
    pub(crate) fn problem(self) -> Option<&'static str> {
        if !self.offset.is_multiple_of(UNIT_BYTES) || !self.length.is_multiple_of(UNIT_BYTES) {
            Some("an extent is not of whole units")
        } else {
            self.run().problem()
        }
    }

    /// What is wrong with a list of extents that should be in order of offset and disjoint.
    pub(crate) fn list_problem(extents: &[Self]) -> Option<&'static str> {
        if let Some(problem) = extents.iter().find_map(|extent| extent.problem()) {
            return Some(problem);
        }
        let apart = extents.is_sorted_by(|a, b| a.end() <= b.offset);
        (!apart).then_some("extents overlap or are out of order")
    }

    /// Sorts extents and merges those that touch. What overlaps stays as it is and is found by
    /// whoever checks the list.
    pub fn merge(mut extents: Vec<Self>) -> Vec<Self> {
        extents.sort_unstable();
        extents.dedup_by(|next, kept| {
            let touches = kept.offset.checked_add(kept.length) == Some(next.offset);
            if touches && let Some(length) = kept.length.checked_add(next.length) {
                kept.length = length;
                return true;
            }
            false
        });
        extents
    }
}

impl Extent {
    /// The units that runs lie in, in order and merged. Runs may share units.
    pub(crate) fn covering(runs: impl IntoIterator<Item = Run>) -> Vec<Self> {
        let mut units: Vec<(u64, u64)> = runs
            .into_iter()
            .map(|run| {
                let start = run.offset - run.offset % UNIT_BYTES;
                (start, run.end().next_multiple_of(UNIT_BYTES))
            })
            .collect();
        units.sort_unstable();
        let mut extents: Vec<Self> = Vec::new();
        for (start, end) in units {
            match extents.last_mut() {
                Some(last) if start <= last.end() => {
                    last.length = last.length.max(end - last.offset);
                }
                _ => extents.push(Self::new(start, end - start)),
            }
        }
        extents
    }

    /// What of `all` lies outside of `used`, which is in order, disjoint and lies within.
    pub(crate) fn minus(all: Vec<Self>, used: &[Self]) -> Vec<Self> {
        let mut spare = Vec::new();
        let mut used_left = used.iter().copied().peekable();
        for extent in Self::merge(all) {
            let mut from = extent.offset;
            while let Some(next) = used_left.next_if(|next| next.offset < extent.end()) {
                if next.offset > from {
                    spare.push(Self::new(from, next.offset - from));
                }
                from = next.end();
            }
            if extent.end() > from {
                spare.push(Self::new(from, extent.end() - from));
            }
        }
        spare
    }
}

/// Bytes of the volume, at any offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Run {
    /// Where it begins on the volume, in bytes.
    pub offset: u64,
    /// How many bytes it has; not zero.
    pub length: u64,
}

impl Run {
    /// The run from `offset` for `length` bytes.
    pub const fn new(offset: u64, length: u64) -> Self {
        Self { offset, length }
    }

    /// Where it ends. Only for runs that were checked.
    pub const fn end(self) -> u64 {
        self.offset + self.length
    }

    /// What is wrong with it, if anything is.
    pub(crate) fn problem(self) -> Option<&'static str> {
        let end = self.offset.checked_add(self.length);
        if self.length == 0 {
            Some("a piece of the volume is empty")
        } else if end.is_none_or(|end| end > CAPACITY_BYTES_MAX) {
            Some("a piece of the volume ends beyond any volume")
        } else {
            None
        }
    }

    /// Appends `run` to a list, as a part of the last one where it follows it.
    pub fn push(runs: &mut Vec<Self>, run: Self) {
        match runs.last_mut() {
            Some(last) if last.end() == run.offset => last.length += run.length,
            _ => runs.push(run),
        }
    }
}

/// The free extents of a store.
#[derive(Debug, Clone)]
pub struct FreeSpace {
    by_offset: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    capacity_bytes: u64,
    free_bytes: u64,
}

impl FreeSpace {
    /// The space of a volume of `capacity_bytes` (its whole units) that none of `used` covers.
    ///
    /// `used` may come in any order. An extent that is not of whole units, reaches beyond the end
    /// or overlaps another is damage.
    pub fn new(capacity_bytes: u64, used: impl IntoIterator<Item = Extent>) -> Result<Self> {
        if capacity_bytes > CAPACITY_BYTES_MAX {
            return Err(Error::invalid("the volume is larger than a store can be"));
        }
        let mut space = Self::none(capacity_bytes - capacity_bytes % UNIT_BYTES);
        let mut used: Vec<Extent> = used.into_iter().collect();
        used.sort_unstable();
        let mut end = 0;
        for extent in used {
            let Extent { offset, length } = extent;
            if let Some(problem) = extent.problem() {
                let text = format!("{problem}: offset {offset}, {length} bytes");
                return Err(Error::damaged(text));
            }
            if extent.end() > space.capacity_bytes {
                return Err(Error::damaged(format!(
                    "an extent at offset {offset} of {length} bytes lies beyond the {} bytes of \
                     the volume",
                    space.capacity_bytes
                )));
            }
            if offset < end {
                return Err(Error::damaged(format!(
                    "the extent at offset {offset} of {length} bytes is in use twice"
                )));
            }
            space.insert(end, offset - end);
            end = extent.end();
        }
        space.insert(end, space.capacity_bytes - end);
        Ok(space)
    }

    /// Nothing of a volume of `capacity_bytes`; what is [freed](Self::free) is there.
    pub(crate) fn none(capacity_bytes: u64) -> Self {
        Self {
            by_offset: BTreeMap::new(),
            by_length: BTreeSet::new(),
            capacity_bytes,
            free_bytes: 0,
        }
    }

    /// The bytes of the volume in whole units, free or not.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// The free bytes, in any number of pieces.
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// The largest free extent.
    pub fn largest_bytes(&self) -> u64 {
        self.by_length.last().map_or(0, |(length, _)| *length)
    }

    /// The free extents in order of offset.
    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        self.by_offset
            .iter()
            .map(|(offset, length)| Extent::new(*offset, *length))
    }

    /// Takes `length` bytes, rounded up to whole units, in as few extents as can be: one where one
    /// fits, else the largest first. `None`, with nothing taken, when there is less than that.
    ///
    /// The extents are in the order in which they should be filled. One that fits alone begins at
    /// a multiple of `prefer_align` (a stripe, say; 1 for no wish) where that can be had.
    pub fn allocate(&mut self, length: u64, prefer_align: u64) -> Option<Vec<Extent>> {
        let mut left = length.checked_next_multiple_of(UNIT_BYTES)?;
        if left > self.free_bytes {
            return None;
        }
        let mut taken = Vec::new();
        while left > 0 {
            let extent = self.find(left, prefer_align);
            self.take(extent);
            left -= extent.length;
            taken.push(extent);
        }
        Some(taken)
    }

    /// Takes one extent of `length` bytes, rounded up to whole units, or the largest there is when
    /// none has so many. For what arrives in pieces. `None` when nothing is free.
    pub fn allocate_up_to(&mut self, length: u64, prefer_align: u64) -> Option<Extent> {
        let length = length.min(CAPACITY_BYTES_MAX).next_multiple_of(UNIT_BYTES);
        if length == 0 || self.free_bytes == 0 {
            return None;
        }
        let extent = self.find(length, prefer_align);
        self.take(extent);
        Some(extent)
    }

    /// Gives an extent back.
    ///
    /// # Panics
    ///
    /// When a part of it is free already, or lies outside: then the books are wrong, and to go on
    /// would give one piece to two writers.
    pub fn free(&mut self, extent: Extent) {
        assert!(
            extent.problem().is_none() && extent.end() <= self.capacity_bytes,
            "an extent is given back that was never given out: {extent:?}"
        );
        let mut merged = extent;
        let before = self.by_offset.range(..=extent.offset).next_back();
        if let Some((&offset, &length)) = before {
            assert!(
                offset + length <= extent.offset,
                "an extent is given back twice: {extent:?}"
            );
            if offset + length == extent.offset {
                self.remove(offset, length);
                merged = Extent::new(offset, length + merged.length);
            }
        }
        let after = self.by_offset.range(extent.offset..).next();
        if let Some((&offset, &length)) = after {
            assert!(
                extent.end() <= offset,
                "an extent is given back twice: {extent:?}"
            );
            if extent.end() == offset {
                self.remove(offset, length);
                merged.length += length;
            }
        }
        self.insert(merged.offset, merged.length);
    }

    /// The best free piece for `length` bytes: at most so many, and fewer only when no piece is
    /// large enough. Something must be free.
    fn find(&self, length: u64, prefer_align: u64) -> Extent {
        let (largest, at) = *self.by_length.last().expect("nothing is free");
        if largest < length {
            return Extent::new(at, largest);
        }
        let fitting = |least| self.by_length.range((least, 0)..).next().copied();
        let (best, best_at) = fitting(length).expect("the largest fits");
        // A piece may reach over an aligned offset however short it is. Whether it does is known
        // for the best fit, and for every piece that is longer by the alignment.
        let roomy = length.checked_add(prefer_align).and_then(fitting);
        for (free, at) in [(best, best_at)].into_iter().chain(roomy) {
            let aligned = at
                .checked_next_multiple_of(prefer_align.max(1))
                .filter(|aligned| aligned.is_multiple_of(UNIT_BYTES));
            if let Some(aligned) = aligned
                && aligned - at <= free - length
            {
                return Extent::new(aligned, length);
            }
        }
        Extent::new(best_at, length)
    }

    /// Takes an extent that lies within one free piece.
    fn take(&mut self, extent: Extent) {
        let (&offset, &length) = self
            .by_offset
            .range(..=extent.offset)
            .next_back()
            .expect("what is taken is free");
        let end = offset + length;
        assert!(extent.end() <= end, "what is taken is free");
        self.remove(offset, length);
        self.insert(offset, extent.offset - offset);
        self.insert(extent.end(), end - extent.end());
    }

    fn insert(&mut self, offset: u64, length: u64) {
        if length > 0 {
            self.by_offset.insert(offset, length);
            self.by_length.insert((length, offset));
            self.free_bytes += length;
        }
    }

    fn remove(&mut self, offset: u64, length: u64) {
        self.by_offset.remove(&offset);
        self.by_length.remove(&(length, offset));
        self.free_bytes -= length;
    }
}

#[cfg(test)]
mod tests;
