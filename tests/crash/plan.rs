//! [`Plan`]: which subsets of a moment's loose sectors are looked at.
//!
//! - *All* where they are few enough: every subset of the sectors of metadata, times four of data
//!   (none, all, a prefix, any).
//! - Else *each record in turn*: every subset of the sectors of one record of 4 KiB, times a few
//!   *classes* of every other: none, all, and some tears. A record has one checksum, so a torn one is
//!   not believed however it is torn; that it is so for each of the 256 tears is what the turn shows,
//!   and the classes show what records that are there, torn or missing do together.
//! - Or *classes* only.

use super::moments::{Content, Moment};

/// How far a plan goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach {
    /// All subsets, up to so many loose sectors of metadata.
    pub(crate) all_up_to: u32,
    /// Whether each record is torn in every way in turn, where there are more.
    pub(crate) in_turn: bool,
    /// How many classes of a record there are: none, all, and so many tears less two.
    pub(crate) classes: u32,
}

/// One digit of a subset's number.
#[derive(Debug, Clone)]
struct Digit {
    mask: u128,
    /// All subsets of the mask, or classes of it.
    is_whole: bool,
    content: Content,
    radix: u64,
}

/// The subsets to look at, numbered.
#[derive(Debug)]
pub(crate) struct Plan {
    turns: Vec<Vec<Digit>>,
    seed: u64,
}

impl Plan {
    pub(crate) fn new(moment: &Moment, reach: &Reach, seed: u64) -> Self {
        let metadata = || {
            let groups = moment.groups.iter();
            groups.filter(|group| group.content != Content::Data)
        };
        let bits: u32 = metadata().map(|group| group.mask.count_ones()).sum();
        let digits = |whole: &dyn Fn(usize) -> bool| {
            moment
                .groups
                .iter()
                .enumerate()
                .map(|(place, group)| {
                    let bits = group.mask.count_ones();
                    let is_whole = whole(place) && group.content != Content::Data;
                    let classes = if group.content == Content::Data {
                        4
                    } else {
                        reach.classes
                    };
                    Digit {
                        mask: group.mask,
                        is_whole,
                        content: group.content,
                        radix: match bits {
                            1 => 2,
                            bits if is_whole => 1 << bits,
                            bits => u64::from(classes).min(1 << bits.min(62)),
                        },
                    }
                })
                .collect::<Vec<_>>()
        };
        let turns = if bits <= reach.all_up_to {
            vec![digits(&|_| true)]
        } else if reach.in_turn {
            (0..metadata().count())
                .map(|turn| digits(&|place| place == turn))
                .collect()
        } else {
            vec![digits(&|_| false)]
        };
        Self { turns, seed }
    }

    /// How many subsets, some of which may be there twice.
    pub(crate) fn len(&self) -> u64 {
        self.turns.iter().map(|turn| size(turn)).sum()
    }

    /// Whether every subset of the metadata is there.
    pub(crate) fn is_exact(&self) -> bool {
        let is_exact = |digit: &Digit| {
            digit.content == Content::Data || digit.radix == 1 << digit.mask.count_ones()
        };
        self.turns.len() == 1 && self.turns[0].iter().all(is_exact)
    }

    /// The subset of this number.
    pub(crate) fn mask(&self, mut number: u64) -> u128 {
        for turn in &self.turns {
            if number < size(turn) {
                return self.mask_in(turn, number);
            }
            number -= size(turn);
        }
        panic!("a plan ends before {number}");
    }

    fn mask_in(&self, turn: &[Digit], number: u64) -> u128 {
        let mut rest = number;
        let mut mask = 0;
        for digit in turn {
            let value = rest % digit.radix;
            rest /= digit.radix;
            let chance = mix(self.seed ^ mix(number));
            mask |= if digit.is_whole || digit.mask.count_ones() == 1 {
                deposit(u128::from(value), digit.mask)
            } else if digit.content == Content::Data {
                class_of_data(value, digit.mask, chance)
            } else {
                class(value, digit.mask, chance)
            };
        }
        mask
    }

    /// Whether each record of a subset is of one of the first `classes`; data may be any.
    pub(crate) fn is_of_classes(moment: &Moment, mask: u128, classes: u32) -> bool {
        moment.groups.iter().all(|group| {
            let kept = mask & group.mask;
            group.content == Content::Data
                || (0..u64::from(classes.min(CLASSES - 1)))
                    .any(|value| kept == class(value, group.mask, 0))
        })
    }
}

fn size(turn: &[Digit]) -> u64 {
    turn.iter().map(|digit| digit.radix).product()
}

/// How many classes of a record there are.
const CLASSES: u32 = 7;

/// A class of a record: none, all, the first half, all but the first, only the first, all but the
/// last, and any by chance.
fn class(value: u64, mask: u128, chance: u64) -> u128 {
    let bits = mask.count_ones();
    let all = (1_u128 << bits) - 1;
    let kept = match value {
        0 => 0,
        1 => all,
        2 => (1 << bits.div_ceil(2)) - 1,
        3 => all & !1,
        4 => 1,
        5 => all >> 1,
        _ => u128::from(chance) & all,
    };
    deposit(kept, mask)
}

/// A class of all data: none, all, a prefix, and any by chance.
fn class_of_data(value: u64, mask: u128, chance: u64) -> u128 {
    let bits = mask.count_ones();
    let all = if bits == 128 {
        u128::MAX
    } else {
        (1_u128 << bits) - 1
    };
    let kept = match value {
        0 => 0,
        1 => all,
        2 => (1 << (chance % u64::from(bits))) - 1,
        _ => (u128::from(chance) << 64 | u128::from(mix(chance))) & all,
    };
    deposit(kept, mask)
}

/// The low bits of `value`, put where `mask` has ones.
fn deposit(mut value: u128, mask: u128) -> u128 {
    let mut left = mask;
    let mut bits = 0;
    while left != 0 {
        let lowest = left & left.wrapping_neg();
        if value & 1 == 1 {
            bits |= lowest;
        }
        value >>= 1;
        left ^= lowest;
    }
    bits
}

/// The finaliser of splitmix64: every bit of the result depends on every bit of `value`.
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
