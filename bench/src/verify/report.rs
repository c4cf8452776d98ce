//! What a verifying run says of its checks: a part of the report, and lines for a person.

use std::fmt::Write as _;
use std::ops::AddAssign;

use serde::Serialize;

use super::findings::WrongUnit;
use super::unit::UNIT_BYTES;
use crate::size::format_bytes;

/// How many units were read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Compared with what must be there.
    pub checked_units: u64,
    /// Nobody knows what they must hold: not written by this run, nor known by its journal.
    pub unchecked_units: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.checked_units += other.checked_units;
        self.unchecked_units += other.unchecked_units;
    }
}

/// What a verifying run found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Bytes of a unit.
    pub unit_bytes: u64,
    /// UUID of the run that all units say they are of; with a journal it stays from run to run.
    pub run: String,
    /// The journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<String>,
    /// Checked against the journal before anything else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Tally>,
    /// Units whose write was under way when an earlier run was stopped, and which hold one
    /// generation, or a mix.
    pub open_units: u64,
    /// Checked as cells read, each time anew.
    pub reads: Tally,
    /// Checked at the end; none when the run did not come so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Tally>,
    /// Units that are wrong, each counted once.
    pub wrong_units: u64,
    /// The first of them.
    pub wrong: Vec<WrongUnit>,
}

impl VerifyReport {
    /// The same as lines.
    pub fn render(&self) -> String {
        let mut text = "\nData validation, in units of 4 KiB\n".to_owned();
        // Writing to a string cannot fail.
        let mut line = |label: &str, value: String| {
            let _ = writeln!(text, "  {label:<10}{value}");
        };
        if let Some(journal) = &self.journal {
            line("journal", journal.clone());
        }
        if let Some(before) = self.before {
            let open = match self.open_units {
                0 => String::new(),
                units => format!("; {units} had a write under way"),
            };
            line("before", before.words() + &open);
        }
        if self.reads != Tally::default() {
            line("reads", self.reads.words());
        }
        match self.after {
            Some(after) => line("after", after.words()),
            None if self.before.is_none() || self.reads != Tally::default() => {
                line(
                    "after",
                    "not checked: the run did not come so far".to_owned(),
                );
            }
            None => {}
        }
        match self.wrong_units {
            0 => line("wrong", "none".to_owned()),
            units => line("wrong", units.to_string()),
        }
        for wrong in &self.wrong {
            line("", wrong.line());
        }
        let more = self.wrong_units.saturating_sub(self.wrong.len() as u64);
        if more > 0 {
            line("", format!("and {more} more"));
        }
        text
    }
}

impl Tally {
    fn words(self) -> String {
        let bytes = self.checked_units.saturating_mul(UNIT_BYTES);
        let mut text = format!("{} checked ({})", self.checked_units, format_bytes(bytes));
        if self.unchecked_units > 0 {
            let _ = write!(
                text,
                ", {} not: nobody is known to have written them",
                self.unchecked_units
            );
        }
        text
    }
}
