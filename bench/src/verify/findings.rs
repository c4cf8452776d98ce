//! What was found wrong: how much, and the first of it, from all lanes.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use swath_volume::{Layout, Volume};

use super::fault::{Fault, FaultKind};
use super::unit::UNIT_BYTES;

/// How many wrong units are told one by one.
const TOLD_MAX: usize = 10;

/// A run that finds so many goes no further: more say nothing new.
const WRONG_MAX: usize = 1000;

/// One wrong unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WrongUnit {
    /// Where it is on the volume.
    pub offset: u64,
    /// The member that holds it.
    pub member: String,
    /// Where it is on that member.
    pub member_offset: u64,
    /// What is wrong with it.
    pub kind: FaultKind,
    /// What must be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

/// Where units are on the members.
#[derive(Debug)]
struct Places {
    layout: Layout,
    /// Path and data offset of each.
    members: Vec<(String, u64)>,
}

/// All that was found.
#[derive(Debug)]
pub(super) struct Findings {
    places: Places,
    wrong: Mutex<Wrong>,
}

#[derive(Debug, Default)]
struct Wrong {
    /// Each once, however often it was read.
    units: BTreeSet<u64>,
    told: Vec<WrongUnit>,
}

impl Findings {
    /// None yet, on `volume`.
    pub(super) fn new(volume: &Volume) -> Self {
        let members = volume.members().iter();
        let members =
            members.map(|member| (member.path().display().to_string(), member.data_offset));
        Self {
            places: Places {
                layout: *volume.layout(),
                members: members.collect(),
            },
            wrong: Mutex::default(),
        }
    }

    /// Takes in what is wrong with a unit.
    pub(super) fn note(&self, unit: u64, fault: &Fault) {
        let mut wrong = self.lock();
        if wrong.units.insert(unit) && wrong.told.len() < TOLD_MAX {
            let told = self.places.name(unit, fault);
            wrong.told.push(told);
        }
    }

    /// How many units are wrong.
    pub(super) fn count(&self) -> u64 {
        self.lock().units.len() as u64
    }

    /// Whether it is time to stop.
    pub(super) fn is_full(&self) -> bool {
        self.lock().units.len() >= WRONG_MAX
    }

    /// The first of them.
    pub(super) fn told(&self) -> Vec<WrongUnit> {
        self.lock().told.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Wrong> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    fn name(&self, unit: u64, fault: &Fault) -> WrongUnit {
        let offset = unit * UNIT_BYTES;
        let (index, within) = self.layout.locate(offset);
        let member = usize::try_from(index).ok();
        let member = member.and_then(|index| self.members.get(index));
        let (path, data_offset) = member.map_or(("", 0), |(path, base)| (path.as_str(), *base));
        WrongUnit {
            offset,
            member: path.to_owned(),
            member_offset: data_offset + within,
            kind: fault.kind(),
            expected: fault.expected(),
            found: fault.to_string(),
        }
    }
}

impl WrongUnit {
    /// `volume offset 8192: m1 at 1056768: expected generation 2, found ...`.
    pub(super) fn line(&self) -> String {
        let Self {
            offset,
            member,
            member_offset,
            expected,
            found,
            ..
        } = self;
        format!(
            "volume offset {offset}, {member} at {member_offset}: expected {expected}, found {found}"
        )
    }
}
