//! What is wrong with a unit, in words.

use std::fmt;

use serde::Serialize;

use super::table::Entry;
use super::unit::{SECTOR_LEN, SECTORS, UNIT_BYTES};

/// What one sector holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sector {
    /// What it must.
    Right,
    /// Zeroes: never written, or discarded.
    Zeroes,
    /// This very sector at a generation that it must not have.
    OtherGeneration(u32),
    /// A sector of another place.
    Misplaced {
        unit: u64,
        sector: u32,
        generation: u32,
    },
    /// A sector that another run wrote.
    OtherRun,
    /// What it must, but for some bits.
    Changed { bits: u32, first_byte: usize },
    /// Nothing that `--verify` ever wrote.
    Foreign,
}

/// What kind of fault a unit has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// Zeroes: the write was lost, or the block discarded.
    Zeroes,
    /// An older generation: a write was lost, or old data came back.
    Stale,
    /// A generation that is not known to have been written: the journal is older than the volume.
    Newer,
    /// Data of another place.
    Misplaced,
    /// Data of another run.
    OtherRun,
    /// Sectors of several generations.
    Torn,
    /// Some bits differ.
    Corrupt,
    /// Nothing that `--verify` ever wrote.
    Foreign,
}

/// A unit that is not what it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) entry: Entry,
    pub(super) sectors: [Sector; SECTORS],
}

impl Fault {
    /// What kind it is: that of its first wrong sector, unless it is torn.
    pub(super) fn kind(&self) -> FaultKind {
        if self.is_torn() {
            return FaultKind::Torn;
        }
        let mut kinds = self
            .sectors
            .iter()
            .filter_map(|sector| self.kind_of(*sector));
        kinds.next().unwrap_or(FaultKind::Foreign)
    }

    /// What must be there.
    pub(super) fn expected(&self) -> String {
        let Entry {
            confirmed,
            intended,
        } = self.entry;
        if confirmed == intended {
            format!("generation {confirmed}")
        } else {
            format!("generation {confirmed} to {intended} (a write was under way)")
        }
    }

    fn kind_of(&self, sector: Sector) -> Option<FaultKind> {
        Some(match sector {
            Sector::Right => return None,
            Sector::Zeroes => FaultKind::Zeroes,
            Sector::OtherGeneration(generation) if generation < self.entry.confirmed => {
                FaultKind::Stale
            }
            Sector::OtherGeneration(_) => FaultKind::Newer,
            Sector::Misplaced { .. } => FaultKind::Misplaced,
            Sector::OtherRun => FaultKind::OtherRun,
            Sector::Changed { .. } => FaultKind::Corrupt,
            Sector::Foreign => FaultKind::Foreign,
        })
    }

    /// Whole sectors, all of this place, and not of one write.
    fn is_torn(&self) -> bool {
        let is_whole =
            |sector: &Sector| matches!(sector, Sector::Right | Sector::OtherGeneration(_));
        self.sectors.iter().all(is_whole)
            && self.sectors.iter().any(|sector| *sector != self.sectors[0])
    }

    fn words(&self, sector: Sector) -> String {
        match sector {
            Sector::Right => "right".to_owned(),
            Sector::Zeroes => "zeroes: never written, or a write was lost".to_owned(),
            Sector::OtherGeneration(generation) if generation < self.entry.confirmed => {
                format!("generation {generation}, stale: a later write was lost or undone")
            }
            Sector::OtherGeneration(generation) => {
                format!("generation {generation}, which is not known to have been written")
            }
            Sector::Misplaced {
                unit, generation, ..
            } => format!(
                "misplaced: generation {generation} of volume offset {}",
                unit.saturating_mul(UNIT_BYTES)
            ),
            Sector::OtherRun => "data of another run".to_owned(),
            Sector::Changed { .. } => "wrong bits".to_owned(),
            Sector::Foreign => "data that no verifying run wrote".to_owned(),
        }
    }
}

/// What was found: one clause for each run of sectors that hold alike.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_torn() {
            f.write_str("torn: ")?;
        }
        let mut first = 0;
        let mut separator = "";
        for alike in self.sectors.chunk_by(is_alike) {
            let last = first + alike.len() - 1;
            let place = match (first, last) {
                (0, last) if last + 1 == SECTORS => String::new(),
                (first, last) if first == last => format!("sector {first}: "),
                (first, last) => format!("sectors {first}-{last}: "),
            };
            let words = match alike[0] {
                Sector::Changed { first_byte, .. } => {
                    let bits: u32 = alike.iter().map(|sector| sector.bits()).sum();
                    let plural = if bits == 1 { "" } else { "s" };
                    let byte = first * SECTOR_LEN + first_byte;
                    format!("{bits} bit{plural} wrong, the first in byte {byte}")
                }
                other => self.words(other),
            };
            // Where only some are wrong, the others need no words.
            if alike[0] != Sector::Right || self.is_torn() {
                write!(f, "{separator}{place}{words}")?;
                separator = "; ";
            }
            first = last + 1;
        }
        Ok(())
    }
}

impl Sector {
    fn bits(self) -> u32 {
        match self {
            Self::Changed { bits, .. } => bits,
            _ => 0,
        }
    }
}

/// Whether one clause says both.
fn is_alike(one: &Sector, other: &Sector) -> bool {
    match (one, other) {
        (Sector::Changed { .. }, Sector::Changed { .. }) => true,
        (
            Sector::Misplaced {
                unit, generation, ..
            },
            Sector::Misplaced {
                unit: other_unit,
                generation: other_generation,
                ..
            },
        ) => (unit, generation) == (other_unit, other_generation),
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(sectors: [Sector; SECTORS]) -> Fault {
        Fault {
            entry: Entry::settled(5),
            sectors,
        }
    }

    #[track_caller]
    fn assert_told(sectors: [Sector; SECTORS], kind: FaultKind, words: &str) {
        let fault = fault(sectors);
        assert_eq!((fault.kind(), fault.to_string().as_str()), (kind, words));
    }

    #[test]
    fn a_fault_is_told_in_one_line() {
        use Sector::{Changed, Foreign, Misplaced, OtherGeneration, OtherRun, Right, Zeroes};
        assert_told(
            [Zeroes; 8],
            FaultKind::Zeroes,
            "zeroes: never written, or a write was lost",
        );
        assert_told(
            [OtherGeneration(4); 8],
            FaultKind::Stale,
            "generation 4, stale: a later write was lost or undone",
        );
        assert_told(
            [OtherGeneration(6); 8],
            FaultKind::Newer,
            "generation 6, which is not known to have been written",
        );
        let misplaced = |sector| Misplaced {
            unit: 3,
            sector,
            generation: 2,
        };
        assert_told(
            [0, 1, 2, 3, 4, 5, 6, 7].map(misplaced),
            FaultKind::Misplaced,
            "misplaced: generation 2 of volume offset 12288",
        );
        assert_told([OtherRun; 8], FaultKind::OtherRun, "data of another run");
        assert_told(
            [Foreign; 8],
            FaultKind::Foreign,
            "data that no verifying run wrote",
        );
        let mut sectors = [Right; 8];
        sectors[2] = Changed {
            bits: 1,
            first_byte: 7,
        };
        assert_told(
            sectors,
            FaultKind::Corrupt,
            "sector 2: 1 bit wrong, the first in byte 1031",
        );
    }

    #[test]
    fn whole_sectors_of_two_writes_are_torn() {
        let mut sectors = [Sector::Right; 8];
        sectors[5..].fill(Sector::OtherGeneration(4));
        assert_told(
            sectors,
            FaultKind::Torn,
            "torn: sectors 0-4: right; sectors 5-7: generation 4, stale: a later write was lost or \
             undone",
        );
    }

    #[test]
    fn what_is_expected_tells_an_open_write() {
        assert_eq!(fault([Sector::Zeroes; 8]).expected(), "generation 5");
        let open = Fault {
            entry: Entry {
                confirmed: 5,
                intended: 6,
            },
            sectors: [Sector::Zeroes; 8],
        };
        assert_eq!(open.expected(), "generation 5 to 6 (a write was under way)");
    }
}
