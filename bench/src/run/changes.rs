//! Two runs beside each other: what changed in each cell, and whether it is more than noise.
//!
//! Noise is what the rounds of one run differ by. A change is more than noise when all rounds of one
//! run lie outside those of the other. One round shows no noise, and then nothing is claimed.

use std::fmt;

use super::{CellKey, Run, RunCell};
use crate::error::{Error, ErrorKind, Result};
use crate::workload::Pattern;

/// What the rounds say of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every round after was faster than every round before.
    Faster,
    /// Every round after was slower than every round before.
    Slower,
    /// Rounds overlap.
    Within,
    /// There is only one round, before or after.
    Unknown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Within => "within noise",
            Self::Unknown => "one round shows no noise",
        })
    }
}

/// One cell that both runs have.
#[derive(Debug, Clone)]
pub struct CellChange {
    /// The cell before.
    pub before: RunCell,
    /// The cell after.
    pub after: RunCell,
    /// Bandwidth after divided by bandwidth before: of the median rounds.
    pub ratio: f64,
    /// The least and the most that any two rounds give.
    pub range: Option<(f64, f64)>,
    /// What the rounds say of it.
    pub verdict: Verdict,
}

/// A condition in which the two runs differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The field.
    pub field: &'static str,
    /// What the first run says.
    pub before: String,
    /// What the second says.
    pub after: String,
}

/// A comparison.
#[derive(Debug, Clone)]
pub struct Changes {
    /// The first run.
    pub before: Run,
    /// The second.
    pub after: Run,
    /// The conditions that differ.
    pub conditions: Vec<Change>,
    /// The cells that both have, in the order of tables.
    pub cells: Vec<CellChange>,
    /// How many cells only one of them has.
    pub unmatched: usize,
}

impl Changes {
    /// Compares two runs.
    ///
    /// # Errors
    ///
    /// They are of different kinds, of latency against load, or have no cell in common.
    pub fn of(before: Run, after: Run) -> Result<Self> {
        if before.kind != after.kind {
            return Err(Error::new(
                ErrorKind::Refused,
                format!(
                    "{}: field 'kind' is '{}', and {} has '{}': runs of different kinds have no \
                     cell in common",
                    after.place("kind"),
                    after.kind,
                    before.place("kind"),
                    before.kind
                ),
            ));
        }
        let mut cells: Vec<CellChange> = Vec::new();
        for one in &before.cells {
            let other = after.cells.iter().find(|cell| cell.key() == one.key());
            cells.extend(other.map(|other| CellChange::of(one, other)));
        }
        if cells.is_empty() {
            return Err(Error::new(
                ErrorKind::Refused,
                format!(
                    "{} and {}: field 'cells': no cell is in both, of the same rw, bs, iodepth and \
                     numjobs",
                    before.place("cells"),
                    after.place("cells")
                ),
            ));
        }
        cells.sort_by_key(|change| order(change.before.key()));
        let conditions = conditions(&before)
            .into_iter()
            .zip(conditions(&after))
            .filter(|(one, other)| one.1 != other.1)
            .map(|((field, before), (_, after))| Change {
                field,
                before,
                after,
            })
            .collect();
        let unmatched = before.cells.len() + after.cells.len() - 2 * cells.len();
        Ok(Self {
            before,
            after,
            conditions,
            cells,
            unmatched,
        })
    }

    /// How many cells have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let with = |change: &&CellChange| change.verdict == verdict;
        self.cells.iter().filter(with).count()
    }

    /// The patterns of the cells, in the order of tables.
    pub fn patterns(&self) -> Vec<Pattern> {
        let has = |pattern: &Pattern| self.cells.iter().any(|cell| cell.before.rw == *pattern);
        Pattern::ALL.into_iter().filter(has).collect()
    }

    /// In one sentence.
    pub fn sentence(&self) -> String {
        let total = self.cells.len();
        let unknown = self.count(Verdict::Unknown);
        if unknown == total {
            return format!(
                "{total} cells are in both runs. One of the runs has one round only, and one round \
                 shows no noise: what differs may be chance. Measure both with --rounds 5."
            );
        }
        let mut text = format!(
            "{total} cells are in both runs: {} faster and {} slower beyond the noise, {} within it",
            self.count(Verdict::Faster),
            self.count(Verdict::Slower),
            self.count(Verdict::Within)
        );
        if unknown > 0 {
            text.push_str(&format!(", {unknown} of one round that shows no noise"));
        }
        text.push('.');
        text
    }
}

/// Sizes one after the other, in each the patterns in the order of tables.
pub(super) fn order((pattern, bs, iodepth, numjobs): CellKey) -> (u64, usize, u32, u32) {
    let place = Pattern::ALL.iter().position(|known| *known == pattern);
    (bs, place.unwrap_or(0), numjobs, iodepth)
}

impl CellChange {
    fn of(before: &RunCell, after: &RunCell) -> Self {
        // No cell has a bandwidth of 0: reading a report sees to it.
        let ratio = after.bw_bytes as f64 / before.bw_bytes as f64;
        let spreads = before.spread().zip(after.spread());
        let range = spreads.map(|((low, high), (low_after, high_after))| {
            (
                low_after as f64 / high.max(1) as f64,
                high_after as f64 / low.max(1) as f64,
            )
        });
        let verdict = match spreads {
            None => Verdict::Unknown,
            Some(((_, high), (low_after, _))) if low_after > high => Verdict::Faster,
            Some(((low, _), (_, high_after))) if high_after < low => Verdict::Slower,
            Some(_) => Verdict::Within,
        };
        Self {
            before: before.clone(),
            after: after.clone(),
            ratio,
            range,
            verdict,
        }
    }
}

/// What must be the same for two runs to be one, and is told where it differs.
pub(super) fn conditions(run: &Run) -> Vec<(&'static str, String)> {
    let environment = &run.environment;
    let volume = &run.volume;
    let mut kinds: Vec<String> = Vec::new();
    for device in &environment.devices {
        let model = device
            .model
            .as_deref()
            .map_or(String::new(), |model| format!(" {model}"));
        kinds.push(format!("{}{model}", device.kind));
    }
    kinds.sort();
    kinds.dedup();
    vec![
        ("version", run.version.clone()),
        ("ramp_ms", run.ramp_ms.to_string()),
        (
            "steady_state",
            run.steady_state
                .map_or_else(|| "not asked for".to_owned(), |steady| steady.to_string()),
        ),
        (
            "verify",
            match run.verify {
                Some(_) => "that of a verifying run",
                None => "not asked for",
            }
            .to_owned(),
        ),
        (
            "environment.commit",
            environment
                .commit
                .clone()
                .unwrap_or_else(|| "unknown".to_owned()),
        ),
        ("environment.kernel", environment.kernel.clone()),
        ("environment.cpu", environment.cpu.clone()),
        ("environment.cores", environment.cores.to_string()),
        (
            "environment.transparent_hugepages",
            environment.transparent_hugepages.clone(),
        ),
        (
            "environment.preconditioning",
            environment.preconditioning.clone(),
        ),
        ("environment.devices", kinds.join(", ")),
        ("volume.members", volume.members.len().to_string()),
        ("volume.chunk_bytes", volume.chunk_bytes.to_string()),
        ("volume.backend", volume.backend.clone()),
        ("volume.backend_flags", volume.backend_flags.clone()),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    fn cell(rounds: &[u64]) -> RunCell {
        let mut cell = fixture::run().cells[0].clone();
        cell.bw_bytes = rounds[rounds.len() / 2];
        cell.bw_bytes_rounds = rounds.to_vec();
        cell
    }

    #[test]
    fn a_change_is_more_than_noise_only_when_no_rounds_overlap() {
        for (before, after, verdict) in [
            (&[100, 110, 120][..], &[121, 130, 140][..], Verdict::Faster),
            (&[100, 110, 120], &[120, 130, 140], Verdict::Within),
            (&[100, 110, 120], &[80, 90, 99], Verdict::Slower),
            (&[100, 110, 120], &[80, 90, 100], Verdict::Within),
            (&[100, 110, 120], &[300], Verdict::Unknown),
            (&[100], &[300], Verdict::Unknown),
        ] {
            let change = CellChange::of(&cell(before), &cell(after));
            assert_eq!(change.verdict, verdict, "{before:?} {after:?}");
        }
    }

    #[test]
    fn ratio_and_range_are_those_of_medians_and_of_extremes() {
        let change = CellChange::of(&cell(&[100, 200, 400]), &cell(&[300, 500, 600]));
        assert!((change.ratio - 2.5).abs() < 1e-9);
        let (low, high) = change.range.unwrap();
        assert!((low - 0.75).abs() < 1e-9 && (high - 6.0).abs() < 1e-9);
        assert!(CellChange::of(&cell(&[100]), &cell(&[300])).range.is_none());
    }

    #[test]
    fn conditions_that_differ_are_named_and_cells_of_one_run_counted() {
        let before = fixture::full("a.json", 1.0, 3);
        let mut after = fixture::full("b.json", 1.2, 3);
        after.environment.kernel = "7.0".to_owned();
        after.cells.pop();
        let changes = Changes::of(before, after).unwrap();
        assert_eq!(changes.cells.len(), 35);
        assert_eq!(changes.unmatched, 1);
        assert_eq!(changes.conditions.len(), 1);
        assert_eq!(changes.conditions[0].field, "environment.kernel");
        assert_eq!(changes.conditions[0].after, "7.0");
        assert_eq!(changes.count(Verdict::Faster), 35);
        assert!(
            changes.sentence().contains("35 faster"),
            "{}",
            changes.sentence()
        );
    }

    #[test]
    fn runs_that_share_no_cell_are_refused() {
        let mut other = fixture::full("b.json", 1.0, 1);
        other.cells.retain(|cell| cell.bs > 4096);
        let message = Changes::of(fixture::run(), other).unwrap_err().to_string();
        assert!(
            message.contains("a.json:") && message.contains("b.json:"),
            "{message}"
        );
        assert!(message.contains("field 'cells'"), "{message}");
    }
}
