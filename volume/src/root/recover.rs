//! Which record to believe: the rules over what all slots of both rings of all members held.
//!
//! 1. *One chain.* All good records, sorted by epoch and sequence: equal ones are equal in content,
//!    sequences rise, and a record with the next sequence names the one before. If not: a fork,
//!    refused.
//! 2. *The newest good record of any member in either ring is chosen*, whether all members have it
//!    or one does.
//! 3. *No member is left behind.* A member whose own newest is h must show, for every sequence
//!    after h up to the one before the newest, a damaged slot in both rings; and when any B of the
//!    newest is good, a damaged A of the newest as well. A slot that still holds what was there
//!    before is proof that the member was not there: stale, refused.
//! 4. *Nothing newer was lost.* When every slot of the next sequence, in both rings of all members,
//!    is damaged, an acknowledged record may have been there. Opening for writing is refused then;
//!    opening for reading only gives the chosen one, with a warning.
//!
//! What damage can do: it takes away evidence only. An undamaged copy of an acknowledged record,
//! one of 2N, is enough for it to be chosen. No crash, and no damage to slots, makes a refusal by
//! rule 1 or 3: these rest on good slots that contradict each other. Rule 4 needs 2N damaged slots.

use std::path::PathBuf;

use super::{Record, RecordFault, RecordResult, Ring, Step, slot_of};
use crate::error::{Error, ErrorKind, Result};
use crate::superblock::RING_SLOT_COUNT;

/// What the slots of one member's rings held.
#[derive(Debug, Clone)]
pub(crate) struct MemberRings {
    /// The device's path, for messages.
    pub(crate) path: PathBuf,
    /// Both rings, each with all its slots in order.
    pub(crate) rings: [Vec<RecordResult>; 2],
}

impl MemberRings {
    /// What the slot of a sequence held.
    fn slot(&self, ring: Ring, sequence: u64) -> &RecordResult {
        let slot = usize::try_from(slot_of(sequence)).expect("a ring has 64 slots");
        &self.rings[ring as usize][slot]
    }

    fn slots(&self) -> impl Iterator<Item = &RecordResult> {
        self.rings.iter().flatten()
    }

    /// Whether the slot shows that this sequence was not written there.
    fn misses(&self, ring: Ring, sequence: u64) -> bool {
        match self.slot(ring, sequence) {
            Ok(record) => record.root.sequence < sequence,
            Err(fault) => matches!(fault, RecordFault::Blank),
        }
    }

    /// Whether the slot can hold neither this sequence nor what was there before.
    fn is_damaged(&self, ring: Ring, sequence: u64) -> bool {
        self.slot(ring, sequence)
            .as_ref()
            .is_err_and(|fault| !matches!(fault, RecordFault::Blank))
    }
}

/// What was chosen, and what is to be done before the volume is written to.
#[derive(Debug, Clone)]
pub(crate) struct Recovery {
    newest: Option<Record>,
    /// For each ring, the members that lack the newest there, by their index.
    missing: [Vec<usize>; 2],
    member_count: usize,
    /// Every copy of the record after the newest is damaged.
    is_next_damaged: bool,
}

/// Chooses the newest record of the members, which are in index order, or says why not.
///
/// # Errors
///
/// A record of an unknown version; a fork; a member that missed a record. Each with the paths.
pub(crate) fn recover(members: &[MemberRings]) -> Result<Recovery> {
    check_versions(members)?;
    let newest = newest_of_one_chain(members)?;
    if let Some(newest) = newest {
        check_nobody_behind(members, newest)?;
    }
    let missing = Ring::ALL.map(|ring| {
        let lacks = |member: &MemberRings| {
            newest.is_some_and(|newest| {
                let slot = member.slot(ring, newest.root.sequence);
                slot.as_ref().ok() != Some(newest)
            })
        };
        (0..members.len())
            .filter(|&place| lacks(&members[place]))
            .collect()
    });
    let next = newest.map_or(1, |newest| newest.root.sequence + 1);
    let is_next_damaged = members
        .iter()
        .all(|member| Ring::ALL.iter().all(|&ring| member.is_damaged(ring, next)));
    Ok(Recovery {
        newest: newest.cloned(),
        missing,
        member_count: members.len(),
        is_next_damaged,
    })
}

impl Recovery {
    /// The chosen record, for a volume that is opened for reading only; none before the first.
    pub(crate) fn read_only(self) -> Option<Record> {
        if self.is_next_damaged {
            tracing::warn!(
                shown = self.newest.as_ref().map(|newest| newest.root.sequence),
                "every copy of the root record after this one is damaged"
            );
        }
        self.newest
    }

    /// The record to go on with when the volume is opened for writing, and the steps that lead
    /// there: first those that settle the chosen record, then those that replace it.
    ///
    /// # Errors
    ///
    /// Every copy of the record after the newest is damaged; the counters have reached their end.
    pub(crate) fn read_write(self) -> Result<(Option<Record>, Vec<Step>)> {
        if self.is_next_damaged {
            return Err(Error::new(
                ErrorKind::Damaged,
                "every copy of the newest root record is damaged, and it may have been committed; \
                 open the volume for reading only to see the one before",
            ));
        }
        let Some(newest) = self.newest else {
            return Ok((None, Vec::new()));
        };
        let renewed = newest.renewed()?;
        let settle = Ring::ALL
            .into_iter()
            .zip(self.missing)
            .filter(|(_, members)| !members.is_empty())
            .map(|(ring, members)| Step {
                ring,
                record: newest.clone(),
                members,
            });
        let steps = settle.chain(renewed.steps(self.member_count)).collect();
        Ok((Some(renewed), steps))
    }
}

/// An intact record of a newer program is no damage to be written over.
fn check_versions(members: &[MemberRings]) -> Result<()> {
    for member in members {
        for slot in member.slots() {
            if let Err(fault @ RecordFault::Version { intact: true, .. }) = slot {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("a root record has an {fault}"),
                )
                .with_path(&member.path));
            }
        }
    }
    Ok(())
}

/// Rules 1 and 2: the end of the chain that all good records form. They hold while a commit is under
/// way, too.
pub(crate) fn newest_of_one_chain(members: &[MemberRings]) -> Result<Option<&Record>> {
    let mut found: Vec<(&Record, &MemberRings)> = members
        .iter()
        .flat_map(|member| member.slots().flatten().map(move |record| (record, member)))
        .collect();
    found.sort_by_key(|(record, _)| record.age());
    for pair in found.windows(2) {
        let [(older, older_at), (newer, newer_at)] = [pair[0], pair[1]];
        if !may_follow(older, newer) {
            let words = |record: &Record| {
                let (epoch, sequence) = record.age();
                format!("{sequence} of epoch {epoch}")
            };
            return Err(Error::new(
                ErrorKind::Damaged,
                format!(
                    "root records {} and {} are not of one history: the members were written to \
                     apart from each other, or by two writers at once",
                    words(older),
                    words(newer),
                ),
            )
            .with_path(&older_at.path)
            .with_path(&newer_at.path));
        }
    }
    Ok(found.last().map(|(record, _)| *record))
}

/// Whether one history can hold both; `older` comes first by epoch and sequence.
fn may_follow(older: &Record, newer: &Record) -> bool {
    if older.age() == newer.age() {
        return older == newer;
    }
    let (before, after) = (older.root.sequence, newer.root.sequence);
    before < after && (after - before > 1 || newer.previous == older.link())
}

/// Rule 3.
fn check_nobody_behind(members: &[MemberRings], newest: &Record) -> Result<()> {
    let last = newest.root.sequence;
    let second_step_began = members
        .iter()
        .any(|member| member.slot(Ring::Tail, last).as_ref().ok() == Some(newest));
    for member in members {
        let sequences = member.slots().flatten().map(|record| record.root.sequence);
        let own = sequences.max().unwrap_or(0);
        if own == last {
            continue;
        }
        // Further back the slots hold younger records.
        let first = (own + 1).max(last.saturating_sub(RING_SLOT_COUNT - 1));
        let is_behind = (first..last)
            .any(|sequence| Ring::ALL.iter().any(|&ring| member.misses(ring, sequence)))
            || (second_step_began && member.misses(Ring::Head, last));
        if is_behind {
            return Err(Error::new(
                ErrorKind::Stale,
                format!(
                    "the volume is at root record {last}, this member at {own}: an old copy, or a \
                     device that was away during a commit"
                ),
            )
            .with_path(&member.path));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
