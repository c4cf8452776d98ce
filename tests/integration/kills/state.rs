//! What a store may hold after a kill: [`State`], and the [`Account`] of a process that changes it.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use swath_checkpoint::Store;
use swath_tests::checkpoints::{Tensor, assert_holds};

/// The checkpoints of a store, in the order of their commits: steps, and a number that says what each
/// holds. The number stands in the checkpoint's metadata, or follows from whose tensors it has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct State(pub(super) Vec<(u64, u64)>);

/// What a step of that number holds.
pub(super) type Contents = fn(u64, u64) -> Vec<Tensor>;

/// The number's key in a checkpoint's metadata.
pub(super) const NUMBER: &str = "number";

impl State {
    /// What a store says it has.
    pub(super) fn of(store: &Store) -> Self {
        let steps = store.list().into_iter().map(|info| {
            let step = info.name.step().unwrap();
            let number = match &info.metadata[..] {
                [(key, number)] if key == NUMBER => number.parse().unwrap(),
                [] => ranks_in(store, step),
                other => panic!("{other:?} is none of ours"),
            };
            (step, number)
        });
        Self(steps.collect())
    }

    /// After this step was saved, perhaps in the place of an earlier one.
    pub(super) fn saved(&self, step: u64, number: u64) -> Self {
        let mut next = self.without(step);
        next.0.push((step, number));
        next
    }

    pub(super) fn without(&self, step: u64) -> Self {
        let steps = self.0.iter().filter(|(other, _)| *other != step);
        Self(steps.copied().collect())
    }

    /// After all but the newest few were removed.
    pub(super) fn newest(&self, count: usize) -> Self {
        let first = self.0.len().saturating_sub(count);
        Self(self.0[first..].to_vec())
    }

    /// A step that was never there.
    pub(super) fn next_step(&self) -> u64 {
        self.0.iter().map(|(step, _)| step + 1).max().unwrap_or(0)
    }

    /// Makes sure that the bytes of every checkpoint are there.
    #[track_caller]
    pub(super) fn assert_held_by(&self, store: &Store, contents: Contents) {
        for &(step, number) in &self.0 {
            assert_holds(store, step, &contents(step, number));
        }
        let latest = store.latest().and_then(|info| info.name.step());
        assert_eq!(latest, self.0.last().map(|(step, _)| *step));
    }
}

/// For a checkpoint that several processes wrote: a bit for each that has tensors in it.
fn ranks_in(store: &Store, step: u64) -> u64 {
    let checkpoint = store.get(step).unwrap();
    let ranks = checkpoint.tensors().iter().map(|tensor| {
        let rest = tensor.name.strip_prefix("rank ").unwrap();
        let (rank, _) = rest.split_once(',').unwrap();
        1 << rank.parse::<u32>().unwrap()
    });
    ranks.fold(0, |bits, bit| bits | bit)
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (step, number) in &self.0 {
            write!(f, "{between}{step}.{number}")?;
            between = " ";
        }
        Ok(())
    }
}

impl FromStr for State {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split_whitespace()
            .map(|word| {
                let (step, number) = word.split_once('.')?;
                Some((step.parse().ok()?, number.parse().ok()?))
            })
            .collect::<Option<_>>()
            .map(Self)
            .ok_or_else(|| format!("{text} is no state"))
    }
}

/// What a process has told of its changes.
#[derive(Debug, Clone, Default)]
pub(super) struct Account {
    /// What it was told is there.
    acknowledged: State,
    /// What it has begun since, in order.
    in_flight: VecDeque<State>,
    /// How many changes were acknowledged.
    pub(super) changes: u64,
}

impl Account {
    pub(super) fn new(state: State) -> Self {
        Self {
            acknowledged: state,
            ..Self::default()
        }
    }

    /// Takes a line of the process, if it is about a change.
    pub(super) fn hear(&mut self, line: &str) {
        if let Some(state) = line.strip_prefix("do ") {
            self.in_flight.push_back(state.parse().unwrap());
        } else if line == "done" {
            self.acknowledged = self.in_flight.pop_front().expect("something was begun");
            self.changes += 1;
        } else if let Some(state) = line.strip_prefix("is ") {
            assert_eq!(state.parse(), Ok(self.acknowledged.clone()));
        }
    }

    /// The newest change was acknowledged, after those before it had failed.
    pub(super) fn settle(&mut self) {
        self.acknowledged = self.in_flight.pop_back().expect("something was begun");
        self.in_flight.clear();
    }

    /// Makes sure that this is what was acknowledged, or what was in flight. Whether it is the
    /// latter.
    #[track_caller]
    pub(super) fn assert_allows(&self, found: &State) -> bool {
        let is_rolled_forward = self.in_flight.contains(found);
        assert!(
            is_rolled_forward || *found == self.acknowledged,
            "{found} is there; {} was acknowledged, and in flight were {:?}",
            self.acknowledged,
            self.in_flight
        );
        is_rolled_forward
    }

    /// Whether something was begun and not acknowledged.
    pub(super) fn is_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }
}
