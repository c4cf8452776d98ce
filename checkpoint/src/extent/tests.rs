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
