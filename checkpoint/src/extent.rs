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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::ErrorKind;

    const U: u64 = UNIT_BYTES;

    fn units(offset: u64, length: u64) -> Extent {
        Extent::new(offset * U, length * U)
    }

    fn used(capacity: u64, used: &[(u64, u64)]) -> Result<FreeSpace> {
        let used = used.iter().map(|(offset, length)| units(*offset, *length));
        FreeSpace::new(capacity * U, used)
    }

    #[test]
    fn free_is_what_is_not_used() {
        let space = used(20, &[(10, 5), (0, 3), (3, 1)]).unwrap();
        let free: Vec<Extent> = space.extents().collect();
        assert_eq!(free, [units(4, 6), units(15, 5)]);
        assert_eq!(space.free_bytes(), 11 * U);
        assert_eq!(space.largest_bytes(), 6 * U);
    }

    #[test]
    fn a_part_of_a_unit_at_the_end_is_left_alone() {
        let space = FreeSpace::new(3 * U - 1, []).unwrap();
        assert_eq!(space.capacity_bytes(), 2 * U);
        assert_eq!(space.free_bytes(), 2 * U);
        assert_eq!(FreeSpace::new(0, []).unwrap().free_bytes(), 0);
    }

    #[test]
    fn used_extents_that_contradict_each_other_or_the_volume_are_damage() {
        let cases: &[&[(u64, u64)]] = &[
            &[(0, 3), (2, 1)],
            &[(5, 1), (5, 1)],
            &[(0, 10), (3, 2)],
            &[(9, 2)],
            &[(10, 1)],
            &[(3, 0)],
        ];
        for case in cases {
            let error = used(10, case).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "{case:?}");
        }
        for extent in [
            Extent::new(1, U),
            Extent::new(0, U + 1),
            Extent::new(u64::MAX - U + 1, U),
            Extent::new(0, u64::MAX - U + 1),
        ] {
            assert!(FreeSpace::new(10 * U, [extent]).is_err(), "{extent:?}");
        }
    }

    #[test]
    fn the_largest_volume_can_be_managed() {
        let mut space = FreeSpace::new(CAPACITY_BYTES_MAX, []).unwrap();
        assert!(FreeSpace::new(CAPACITY_BYTES_MAX + 1, []).is_err());
        let all = space.allocate(CAPACITY_BYTES_MAX, 1 << 20).unwrap();
        assert_eq!(all, [Extent::new(0, CAPACITY_BYTES_MAX)]);
        assert_eq!(space.allocate(1, 1), None);
        assert_eq!(space.allocate_up_to(u64::MAX, 1), None);
        space.free(all[0]);
        assert_eq!(space.allocate(u64::MAX, 1), None);
        let all = space.allocate_up_to(u64::MAX, u64::MAX);
        assert_eq!(all, Some(Extent::new(0, CAPACITY_BYTES_MAX)));
    }

    #[test]
    fn the_best_fit_is_taken_and_else_the_largest_first() {
        let mut space = used(100, &[(10, 5), (18, 2), (60, 10), (75, 25)]).unwrap();
        // Free: 0+10, 15+3, 20+40, 70+5.
        assert_eq!(space.allocate(3 * U - 7, 1).unwrap(), [units(15, 3)]);
        assert_eq!(space.allocate(4 * U, 1).unwrap(), [units(70, 4)]);
        let pieces = space.allocate(47 * U, 1).unwrap();
        assert_eq!(pieces, [units(20, 40), units(0, 7)]);
        assert_eq!(space.free_bytes(), 4 * U);
        assert_eq!(space.allocate(5 * U, 1), None);
        assert_eq!(space.free_bytes(), 4 * U);
        assert_eq!(space.allocate(0, 1).unwrap(), []);
        assert_eq!(space.allocate_up_to(9 * U, 1), Some(units(7, 3)));
        assert_eq!(space.allocate_up_to(9 * U, 1), Some(units(74, 1)));
        assert_eq!(space.allocate_up_to(9 * U, 1), None);
    }

    #[test]
    fn alignment_is_kept_where_it_can_be_had() {
        let mut space = used(64, &[(0, 1), (6, 1), (23, 1)]).unwrap();
        // Free: 1+5, 7+16, 24+40. A stripe of six units: aligned at 6, 12, 24, ...
        assert_eq!(space.allocate(6 * U, 6 * U).unwrap(), [units(12, 6)]);
        // Free: 1+5, 7+5, 18+5, 24+40.
        assert_eq!(space.allocate(5 * U, 6 * U).unwrap(), [units(24, 5)]);
        // Nothing aligned is large enough any more: better unaligned than in two pieces.
        let mut space = used(16, &[(0, 1)]).unwrap();
        assert_eq!(space.allocate(12 * U, 8 * U).unwrap(), [units(1, 12)]);
        // A wish that whole units cannot fulfil is no wish.
        let mut space = used(16, &[(0, 1)]).unwrap();
        assert_eq!(space.allocate(U, 4097).unwrap(), [units(1, 1)]);
        assert_eq!(space.allocate(U, 0).unwrap(), [units(2, 1)]);
        assert_eq!(space.allocate(U, u64::MAX).unwrap(), [units(3, 1)]);
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn giving_back_twice_is_noticed() {
        let mut space = used(10, &[(2, 4)]).unwrap();
        space.free(units(2, 4));
        space.free(units(3, 1));
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn giving_back_over_a_free_piece_is_noticed() {
        let mut space = used(10, &[(2, 4)]).unwrap();
        space.free(units(4, 3));
    }

    #[test]
    #[should_panic(expected = "never given out")]
    fn giving_back_what_lies_outside_is_noticed() {
        used(10, &[]).unwrap().free(units(10, 1));
    }

    #[test]
    fn runs_and_extents_that_touch_are_merged() {
        let mut runs = Vec::new();
        for (offset, length) in [(5, 3), (8, 1), (10, 2), (12, 4), (1, 2)] {
            Run::push(&mut runs, Run::new(offset, length));
        }
        assert_eq!(runs, [Run::new(5, 4), Run::new(10, 6), Run::new(1, 2)]);
        let merged = Extent::merge(vec![units(8, 2), units(0, 3), units(5, 3), units(3, 1)]);
        assert_eq!(merged, [units(0, 4), units(5, 5)]);
        let overlapping = Extent::merge(vec![units(0, 3), units(2, 2)]);
        assert!(Extent::list_problem(&overlapping).is_some());
        let huge = Extent::new(U, u64::MAX);
        assert_eq!(Extent::merge(vec![huge, huge]), [huge, huge]);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Allocate { units: u64, align: u64 },
        AllocateUpTo { units: u64, align: u64 },
        Free { which: prop::sample::Index },
    }

    fn step() -> impl Strategy<Value = Step> {
        let align = prop::sample::select(vec![1, 2, 3, 8]);
        prop_oneof![
            (0..40_u64, align.clone()).prop_map(|(units, align)| Step::Allocate { units, align }),
            (0..40_u64, align).prop_map(|(units, align)| Step::AllocateUpTo { units, align }),
            any::<prop::sample::Index>().prop_map(|which| Step::Free { which }),
            any::<prop::sample::Index>().prop_map(|which| Step::Free { which }),
        ]
    }

    /// One flag a unit says what is free; the extents must say the same after every step.
    struct Model {
        free: Vec<bool>,
        given: Vec<Extent>,
    }

    impl Model {
        fn set(&mut self, extent: Extent, free: bool) {
            assert_eq!(extent.problem(), None);
            let first = usize::try_from(extent.offset / U).unwrap();
            let count = usize::try_from(extent.length / U).unwrap();
            for flag in &mut self.free[first..first + count] {
                assert_ne!(*flag, free, "{extent:?} is given out or taken back twice");
                *flag = free;
            }
        }

        fn pieces(&self) -> Vec<Extent> {
            let mut pieces = Vec::new();
            for (unit, _) in (0..).zip(&self.free).filter(|(_, free)| **free) {
                pieces.push(units(unit, 1));
            }
            Extent::merge(pieces)
        }
    }

    proptest! {
        #[test]
        fn free_space_is_as_a_bitmap_would_have_it(
            capacity in 1..200_u64,
            steps in prop::collection::vec(step(), 0..120),
        ) {
            let mut space = FreeSpace::new(capacity * U, []).unwrap();
            let mut model = Model {
                free: vec![true; usize::try_from(capacity).unwrap()],
                given: Vec::new(),
            };
            for step in steps {
                let before = space.free_bytes();
                let largest = space.largest_bytes();
                match step {
                    Step::Allocate { units, align } => {
                        let got = space.allocate(units * U, align * U);
                        prop_assert_eq!(got.is_some(), units * U <= before);
                        let got = got.unwrap_or_default();
                        if largest >= units * U {
                            prop_assert!(got.len() <= 1);
                        }
                        let total: u64 = got.iter().map(|extent| extent.length).sum();
                        prop_assert!(total == units * U || got.is_empty());
                        for extent in got {
                            model.set(extent, false);
                            model.given.push(extent);
                        }
                    }
                    Step::AllocateUpTo { units, align } => {
                        let got = space.allocate_up_to(units * U, align * U);
                        let length = got.map_or(0, |extent| extent.length);
                        prop_assert_eq!(length, largest.min(units * U));
                        if let Some(extent) = got {
                            model.set(extent, false);
                            model.given.push(extent);
                        }
                    }
                    Step::Free { which } if !model.given.is_empty() => {
                        let place = which.index(model.given.len());
                        let extent = model.given.swap_remove(place);
                        model.set(extent, true);
                        space.free(extent);
                    }
                    Step::Free { .. } => {}
                }
                let pieces = model.pieces();
                prop_assert_eq!(space.extents().collect::<Vec<_>>(), pieces.clone());
                prop_assert_eq!(space.by_length.len(), pieces.len());
                let free: u64 = pieces.iter().map(|extent| extent.length).sum();
                prop_assert_eq!(space.free_bytes(), free);
                let largest = pieces.iter().map(|extent| extent.length).max();
                prop_assert_eq!(space.largest_bytes(), largest.unwrap_or(0));
                let rebuilt = FreeSpace::new(capacity * U, model.given.iter().copied()).unwrap();
                prop_assert_eq!(rebuilt.by_offset, space.by_offset.clone());
            }
        }

        #[test]
        fn an_aligned_place_is_found_whenever_a_piece_has_slack(
            gaps in prop::collection::vec((1..9_u64, 1..40_u64), 1..12),
            length in 1..20_u64,
            align in 1..9_u64,
        ) {
            // Alternate used and free pieces of the given lengths.
            let mut used = Vec::new();
            let mut end = 0;
            for (used_units, free_units) in gaps {
                used.push(units(end, used_units));
                end += used_units + free_units;
            }
            let mut space = FreeSpace::new(end * U, used).unwrap();
            let roomy = space.largest_bytes() >= (length + align) * U;
            if let Some(got) = space.allocate(length * U, align * U) && roomy {
                prop_assert_eq!(got.len(), 1);
                prop_assert!(got[0].offset.is_multiple_of(align * U));
            }
        }
    }
}
