//! Data validation: every 4 KiB of the volume says which it is, is checked when it is read, and all
//! of them are read back at the end; with a journal also after the process was killed.
//!
//! ```text
//! unit      the bytes of 4 KiB at a generation, and what wrong bytes are
//! table     the generation of every unit that was confirmed, and that was intended
//! journal   the same in a file
//! lane      a lane in between: intent, stamp, write, confirm; read, check
//! pass      everything read back, everything written once
//! findings  what was wrong, and where it lies on the members
//! ```
//!
//! - A write that was confirmed must be there, exactly. One that was intended and not confirmed may
//!   be there, or not, or in some of its sectors.
//! - What nobody is known to have written is not checked, and is counted.
//! - Speed is not what such a run is for: whoever measures, does not verify.

mod fault;
mod findings;
mod journal;
mod lane;
mod pass;
mod report;
mod session;
mod table;
mod unit;

use std::sync::atomic::{AtomicU64, Ordering};

use swath_volume::{Uuid, Volume};

use crate::error::{Error, ErrorKind, Result};
use findings::Findings;
use journal::{Journal, JournalHeader};
use table::{Entry, Table};
use unit::{Identity, UNIT_LEN, Version};

pub use fault::FaultKind;
pub use findings::WrongUnit;
pub(crate) use lane::VerifiedLane;
pub use report::{Tally, VerifyReport};
pub use session::{VerifyOptions, VerifySession, require_journal_of};
pub(crate) use unit::UNIT_BYTES;

/// What lanes stamp and check by, all of them at once.
#[derive(Debug)]
pub struct Verifier {
    run: Uuid,
    identity: Identity,
    table: Table,
    journal: Option<Journal>,
    findings: Findings,
    checked_units: AtomicU64,
    unchecked_units: AtomicU64,
}

impl Verifier {
    /// A verifier that goes by a journal, or by what it sees itself.
    fn new(volume: &Volume, journal: Option<Journal>, seed: u64) -> Result<Self> {
        let (run, seed, table) = match &journal {
            Some(journal) => {
                let JournalHeader { run, seed, .. } = *journal.header();
                (run, seed, journal.load()?)
            }
            // Another each time, so that what an earlier run left is never taken for right.
            None => (
                Uuid::new_v4(),
                seed,
                Table::new(volume.capacity_bytes() / UNIT_BYTES)?,
            ),
        };
        Ok(Self {
            run,
            identity: Identity::new(run, seed),
            table,
            journal,
            findings: Findings::new(volume),
            checked_units: AtomicU64::new(0),
            unchecked_units: AtomicU64::new(0),
        })
    }

    /// Before a write: the next generation of its units is intended, and its bytes are stamped.
    fn intend(&self, offset: u64, bytes: &mut [u8], scratch: &mut Vec<u8>) -> Result<()> {
        for unit in units(offset, bytes.len()) {
            let entry = self.table.entry(unit).intend().ok_or_else(|| {
                let message = "a unit was written four thousand million times: begin anew";
                Error::new(ErrorKind::Failed, message)
            })?;
            self.table.set(unit, entry);
        }
        self.store(offset, bytes.len(), scratch)?;
        for (unit, bytes) in units(offset, bytes.len()).zip(bytes.chunks_exact_mut(UNIT_LEN)) {
            let generation = self.table.entry(unit).intended;
            self.identity.stamp(Version { unit, generation }, bytes);
        }
        Ok(())
    }

    /// After it: its units hold what was intended.
    fn confirm(&self, offset: u64, length: usize, scratch: &mut Vec<u8>) -> Result<()> {
        for unit in units(offset, length) {
            self.table.set(unit, self.table.entry(unit).confirm());
        }
        self.store(offset, length, scratch)
    }

    fn store(&self, offset: u64, length: usize, scratch: &mut Vec<u8>) -> Result<()> {
        let units = units(offset, length);
        self.journal.as_ref().map_or(Ok(()), |journal| {
            journal.store(&self.table, units.start, units.end - units.start, scratch)
        })
    }

    /// Checks what a cell has read.
    ///
    /// # Errors
    ///
    /// So much is wrong that more would say nothing new.
    fn check(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let tally = self.tally(offset, bytes);
        self.checked_units
            .fetch_add(tally.checked_units, Ordering::Relaxed);
        self.unchecked_units
            .fetch_add(tally.unchecked_units, Ordering::Relaxed);
        if self.findings.is_full() {
            return Err(Error::new(ErrorKind::Failed, "stopped: too much is wrong"));
        }
        Ok(())
    }

    /// Checks bytes of the volume, notes what is wrong, and counts.
    fn tally(&self, offset: u64, bytes: &[u8]) -> Tally {
        let mut tally = Tally::default();
        for (unit, bytes) in units(offset, bytes.len()).zip(bytes.chunks_exact(UNIT_LEN)) {
            let entry = self.table.entry(unit);
            if !entry.is_known() {
                tally.unchecked_units += 1;
                continue;
            }
            tally.checked_units += 1;
            if let Some(fault) = self.identity.examine(unit, entry, bytes) {
                self.findings.note(unit, &fault);
            }
        }
        tally
    }

    /// Takes what is there for known where a write was open: the process that wrote it is gone, so
    /// nothing changes it any more. A mix of generations stays open.
    fn settle(&self, offset: u64, bytes: &[u8], scratch: &mut Vec<u8>) -> Result<()> {
        for (unit, bytes) in units(offset, bytes.len()).zip(bytes.chunks_exact(UNIT_LEN)) {
            let entry = self.table.entry(unit);
            if !entry.is_open() || !entry.is_known() {
                continue;
            }
            let generation = self.identity.generation_of(unit, bytes);
            if let Some(generation) = generation.filter(|it| entry.allows(*it)) {
                self.table.set(unit, Entry::settled(generation));
                self.store(unit * UNIT_BYTES, UNIT_LEN, scratch)?;
            }
        }
        Ok(())
    }

    fn is_any_known(&self, offset: u64, length: u64) -> bool {
        let first = offset / UNIT_BYTES;
        (first..first + length / UNIT_BYTES).any(|unit| self.table.entry(unit).is_known())
    }

    fn open_units(&self) -> u64 {
        let units = 0..self.table.units();
        units
            .filter(|unit| self.table.entry(*unit).is_open())
            .count() as u64
    }

    fn reads(&self) -> Tally {
        Tally {
            checked_units: self.checked_units.load(Ordering::Relaxed),
            unchecked_units: self.unchecked_units.load(Ordering::Relaxed),
        }
    }
}

/// The units of a range that begins and ends with one.
fn units(offset: u64, length: usize) -> std::ops::Range<u64> {
    let first = offset / UNIT_BYTES;
    first..first + length as u64 / UNIT_BYTES
}

#[cfg(test)]
mod tests;
