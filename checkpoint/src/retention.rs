//! Which checkpoints to remove: [`Retention`], a rule without I/O.
//!
//! - The last good checkpoint is never removed, whatever the rule says. Nor is one that is pinned,
//!   or newer than the last good one.
//! - "Keep the last N" means N good ones, counted from the newest commit: a damaged one does not
//!   stand in for a good one.
//! - "Keep every K" means the steps that are multiples of K. It says nothing of checkpoints with a
//!   name: alone it never removes one, and beside "keep the last N" it never keeps one.
//! - No rule removes nothing, and a rule with zero in it is refused: it would be read as "keep
//!   none" by one person and "no limit" by another.
//! - Applying a rule twice is applying it once.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::names::CheckpointName;

/// What to keep. A checkpoint stays if either rule keeps it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Keep this many of the newest.
    pub keep_last: Option<u64>,
    /// Keep the steps that are multiples of this.
    pub keep_every: Option<u64>,
}

/// A checkpoint as the rule sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// What it is called.
    pub name: CheckpointName,
    /// Whether it is to stay in any case.
    pub pinned: bool,
    /// Whether it is known to be damaged.
    pub damaged: bool,
}

impl Retention {
    /// Checks that the rule makes sense.
    pub fn check(&self) -> Result<()> {
        if self.keep_last == Some(0) {
            Err(Error::invalid(
                "a rule that keeps the last 0 would remove everything; keep at least 1",
            ))
        } else if self.keep_every == Some(0) {
            Err(Error::invalid("there are no multiples of 0 to keep"))
        } else {
            Ok(())
        }
    }

    /// Which of `candidates`, given in the order of their commits, to remove: their places in the
    /// list, the oldest first.
    pub fn to_remove(&self, candidates: &[Candidate]) -> Result<Vec<usize>> {
        self.check()?;
        let mut remove = Vec::new();
        let mut good_newer = 0;
        for (place, candidate) in candidates.iter().enumerate().rev() {
            if good_newer > 0 && !candidate.pinned && !self.keeps(&candidate.name, good_newer) {
                remove.push(place);
            }
            if !candidate.damaged {
                good_newer += 1;
            }
        }
        remove.reverse();
        Ok(remove)
    }

    /// Whether a checkpoint with this many good ones after it stays.
    fn keeps(&self, name: &CheckpointName, good_newer: u64) -> bool {
        let last = self.keep_last.map(|count| good_newer < count);
        let every = self
            .keep_every
            .and_then(|every| Some(name.step()?.is_multiple_of(every)));
        match (last, every) {
            (None, None) => true,
            (last, every) => last == Some(true) || every == Some(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOTHING: [usize; 0] = [];

    fn step(step: u64) -> Candidate {
        Candidate {
            name: step.into(),
            pinned: false,
            damaged: false,
        }
    }

    fn named(name: &str) -> Candidate {
        Candidate {
            name: name.parse().unwrap(),
            ..step(0)
        }
    }

    fn pinned(candidate: Candidate) -> Candidate {
        Candidate {
            pinned: true,
            ..candidate
        }
    }

    fn damaged(candidate: Candidate) -> Candidate {
        Candidate {
            damaged: true,
            ..candidate
        }
    }

    fn last(count: u64) -> Retention {
        Retention {
            keep_last: Some(count),
            keep_every: None,
        }
    }

    fn every(every: u64) -> Retention {
        Retention {
            keep_last: None,
            keep_every: Some(every),
        }
    }

    fn removed(rule: Retention, candidates: &[Candidate]) -> Vec<usize> {
        rule.to_remove(candidates).unwrap()
    }

    #[test]
    fn the_last_n_stay() {
        let steps: Vec<Candidate> = (1..=5).map(step).collect();
        assert_eq!(removed(last(2), &steps), [0, 1, 2]);
        assert_eq!(removed(last(1), &steps), [0, 1, 2, 3]);
        assert_eq!(removed(last(5), &steps), NOTHING);
        assert_eq!(removed(last(u64::MAX), &steps), NOTHING);
        assert_eq!(removed(last(1), &[]), NOTHING);
    }

    #[test]
    fn the_order_of_commits_counts_and_not_the_step() {
        let resumed_earlier = [step(100), step(200), step(150)];
        assert_eq!(removed(last(1), &resumed_earlier), [0, 1]);
    }

    #[test]
    fn multiples_stay_beside_the_last() {
        let steps: Vec<Candidate> = (0..=10).map(|i| step(i * 100)).collect();
        let both = Retention {
            keep_last: Some(2),
            keep_every: Some(500),
        };
        assert_eq!(removed(both, &steps), [1, 2, 3, 4, 6, 7, 8]);
        assert_eq!(removed(every(500), &steps), [1, 2, 3, 4, 6, 7, 8, 9]);
        assert_eq!(removed(every(500), &[step(1)]), NOTHING);
        assert_eq!(removed(every(500), &[step(1), step(2)]), [0]);
    }

    #[test]
    fn names_fall_only_to_keep_last() {
        let list = [named("a"), step(7), named("b"), step(8)];
        assert_eq!(removed(every(5), &list), [1]);
        assert_eq!(removed(last(1), &list), [0, 1, 2]);
        let both = Retention {
            keep_last: Some(1),
            keep_every: Some(7),
        };
        assert_eq!(removed(both, &list), [0, 2]);
    }

    #[test]
    fn pinned_ones_stay_and_are_counted() {
        let list = [pinned(step(1)), step(2), pinned(step(3)), step(4)];
        assert_eq!(removed(last(1), &list), [1]);
        assert_eq!(removed(last(2), &list), [1]);
    }

    #[test]
    fn damaged_ones_do_not_stand_in_for_good_ones() {
        let list = [step(1), step(2), damaged(step(3)), damaged(step(4))];
        assert_eq!(removed(last(1), &list), [0]);
        let list = [step(1), damaged(step(2)), step(3), step(4)];
        assert_eq!(removed(last(2), &list), [0, 1]);
        let all = [damaged(step(1)), damaged(step(2))];
        assert_eq!(removed(last(1), &all), NOTHING);
    }

    #[test]
    fn no_rule_removes_nothing_and_zero_is_refused() {
        assert_eq!(removed(Retention::default(), &[step(1), step(2)]), NOTHING);
        assert!(last(0).to_remove(&[]).is_err());
        assert!(every(0).to_remove(&[]).is_err());
    }

    fn any_candidate() -> impl Strategy<Value = Candidate> {
        let name = prop_oneof![
            4 => (0..40_u64).prop_map(CheckpointName::Step),
            1 => "[a-z]{1,3}".prop_map(CheckpointName::Name),
        ];
        let pinned = prop::bool::weighted(0.2);
        let damaged = prop::bool::weighted(0.3);
        (name, pinned, damaged).prop_map(|(name, pinned, damaged)| Candidate {
            name,
            pinned,
            damaged,
        })
    }

    fn any_rule() -> impl Strategy<Value = Retention> {
        (prop::option::of(1..6_u64), prop::option::of(1..6_u64)).prop_map(
            |(keep_last, keep_every)| Retention {
                keep_last,
                keep_every,
            },
        )
    }

    proptest! {
        #[test]
        fn the_laws_hold(
            list in prop::collection::vec(any_candidate(), 0..30),
            rule in any_rule(),
        ) {
            let remove = removed(rule, &list);
            prop_assert!(remove.is_sorted_by(|a, b| a < b));
            let is_removed = |place: usize| remove.binary_search(&place).is_ok();

            // The last good one stays, and all that came after it.
            if let Some(good) = list.iter().rposition(|candidate| !candidate.damaged) {
                prop_assert!((good..list.len()).all(|place| !is_removed(place)));
            } else {
                prop_assert!(remove.is_empty());
            }
            // So do the pinned, the last N good ones, and the multiples.
            for &place in &remove {
                let candidate = &list[place];
                prop_assert!(!candidate.pinned);
                if let (Some(every), Some(step)) = (rule.keep_every, candidate.name.step()) {
                    prop_assert!(!step.is_multiple_of(every));
                }
                if let Some(count) = rule.keep_last {
                    let newer = list[place + 1..].iter().filter(|c| !c.damaged).count() as u64;
                    prop_assert!(newer >= count);
                }
            }
            // With keep_last alone, nothing else stays.
            if let Retention { keep_last: Some(count), keep_every: None } = rule {
                let good = list.iter().filter(|candidate| !candidate.damaged).count() as u64;
                for (place, candidate) in list.iter().enumerate() {
                    let newer = list[place + 1..].iter().filter(|c| !c.damaged).count() as u64;
                    let stays = candidate.pinned || newer < count || good == 0;
                    prop_assert_eq!(is_removed(place), !stays);
                }
            }
            // Once is enough, and a stricter rule of the same kind removes no less.
            let left: Vec<Candidate> = (0..list.len())
                .filter(|place| !is_removed(*place))
                .map(|place| list[place].clone())
                .collect();
            prop_assert_eq!(removed(rule, &left), NOTHING);
            if let Some(count) = rule.keep_last.filter(|count| *count > 1) {
                let stricter = Retention { keep_last: Some(count - 1), ..rule };
                let more = removed(stricter, &list);
                prop_assert!(remove.iter().all(|place| more.contains(place)));
            }
        }
    }
}
