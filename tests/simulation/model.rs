//! [`Model`]: what a store may show, given what its clients did and what they were told.
//!
//! A name is in one of a set of possible states: absent, or one content. An operation that is under
//! way adds what it is about to make; one that succeeded leaves that alone; one whose fate is unknown
//! (the volume is poisoned, the power failed) leaves both. What a reopened store shows is then known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::content::Content;

/// A content's number; none: absent.
pub(crate) type State = Option<u64>;

#[derive(Debug, Default)]
pub(crate) struct Model {
    names: BTreeMap<u64, Name>,
    contents: BTreeMap<u64, Arc<Content>>,
}

#[derive(Debug)]
struct Name {
    possible: BTreeSet<State>,
    /// What operations under way are about to make.
    under_way: Vec<State>,
    /// What operations that overlap these have made, or perhaps.
    done: BTreeSet<State>,
    perhaps: BTreeSet<State>,
    /// All it ever was, or perhaps.
    ever: BTreeSet<State>,
    /// How often an operation began.
    begun: u64,
}

/// What became of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Done,
    NotDone,
    Unknown,
}

/// What a name might be at the moment.
#[derive(Debug, Clone)]
pub(crate) struct Allowed {
    states: BTreeSet<State>,
    ever: BTreeSet<State>,
    begun: u64,
    /// Whether an operation is under way.
    is_busy: bool,
}

impl Allowed {
    /// Whether a look that began when this was allowed, and ended at `later`, may have seen `state`.
    pub(crate) fn admits(&self, later: &Self, state: State) -> bool {
        self.states.contains(&state)
            || later.states.contains(&state)
            || (later.begun > self.begun && later.ever.contains(&state))
    }

    /// Whether one operation has begun since, and nothing else.
    pub(crate) fn is_next(&self, before: &Self) -> bool {
        self.begun == before.begun + 1 && !before.is_busy
    }

    /// Whether it is absent, for certain, as long as nothing else begins.
    pub(crate) fn is_absent(&self) -> bool {
        self.states.iter().all(Option::is_none)
    }

    /// Whether it is there, for certain.
    pub(crate) fn is_there(&self) -> bool {
        self.states.iter().all(Option::is_some)
    }
}

impl Name {
    fn new() -> Self {
        Self {
            possible: BTreeSet::from([None]),
            under_way: Vec::new(),
            done: BTreeSet::new(),
            perhaps: BTreeSet::new(),
            ever: BTreeSet::from([None]),
            begun: 0,
        }
    }
}

impl Model {
    fn name(&mut self, step: u64) -> &mut Name {
        self.names.entry(step).or_insert_with(Name::new)
    }

    pub(crate) fn content(&self, id: u64) -> Option<Arc<Content>> {
        self.contents.get(&id).cloned()
    }

    /// An operation begins that makes a name that state.
    pub(crate) fn begin(&mut self, step: u64, state: State, content: Option<&Content>) {
        if let Some(content) = content {
            self.contents.insert(content.id, Arc::new(content.clone()));
        }
        let name = self.name(step);
        name.under_way.push(state);
        name.ever.insert(state);
        name.begun += 1;
    }

    /// And ends.
    pub(crate) fn end(&mut self, step: u64, state: State, fate: Fate) {
        let name = self.name(step);
        let place = name.under_way.iter().position(|other| *other == state);
        name.under_way.swap_remove(place.expect("it began"));
        match fate {
            Fate::Done => drop(name.done.insert(state)),
            Fate::Unknown => drop(name.perhaps.insert(state)),
            Fate::NotDone => {}
        }
        if !name.under_way.is_empty() {
            return;
        }
        let mut perhaps = std::mem::take(&mut name.perhaps);
        let done = std::mem::take(&mut name.done);
        if !done.is_empty() {
            name.possible = done;
        }
        name.possible.append(&mut perhaps);
    }

    /// What a name may be seen as now.
    pub(crate) fn allowed(&mut self, step: u64) -> Allowed {
        let name = self.name(step);
        let more = name.under_way.iter().chain(&name.done).chain(&name.perhaps);
        Allowed {
            states: name.possible.iter().chain(more).copied().collect(),
            ever: name.ever.clone(),
            begun: name.begun,
            is_busy: !name.under_way.is_empty(),
        }
    }

    /// What the whole store shows while nothing is under way: it is that from now on, if it
    /// `is_settled`. With `is_lax`, anything that ever was may be back.
    ///
    /// # Errors
    ///
    /// It may not show that: in words.
    pub(crate) fn observe(
        &mut self,
        shown: &BTreeMap<u64, u64>,
        is_lax: bool,
        is_settled: bool,
    ) -> Result<(), String> {
        for step in shown.keys() {
            if !self.names.contains_key(step) {
                return Err(format!("checkpoint {step} was never saved"));
            }
        }
        for (step, name) in &mut self.names {
            assert!(name.under_way.is_empty(), "something is under way");
            let state = shown.get(step).copied();
            let allowed = if is_lax { &name.ever } else { &name.possible };
            if !allowed.contains(&state) {
                return Err(format!(
                    "checkpoint {step} is {state:?} and may be {allowed:?}"
                ));
            }
            if is_settled {
                name.possible = BTreeSet::from([state]);
            }
        }
        Ok(())
    }
}
