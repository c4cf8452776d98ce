//! How each side may be set, and the candidates that a probe chooses among.

use std::fmt;

use serde::Serialize;

use crate::compare::memory::{FioMemory, HugePages};
use crate::workload::Cell;

/// Blocks up to this size may be worth waiting for in whole batches.
const SMALL_BLOCK_BYTES_MAX: u64 = 64 << 10;

/// How requests are handed over and taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Batching {
    /// Most requests to hand over, and to take back, at once.
    pub batch: u32,
    /// Completions to wait for.
    pub complete_min: u32,
}

impl fmt::Display for Batching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.batch, self.complete_min)
    }
}

impl Batching {
    /// What is tried out for `cell`, by either side: a quarter, half and all of the depth at once;
    /// waiting for one completion, for an eighth of the depth, and, where blocks are small, for a
    /// whole batch.
    pub(crate) fn candidates(cell: &Cell) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for part in [4, 2, 1] {
            let batch = (cell.depth / part).max(1);
            let mut minima = vec![1, (cell.depth / 8).max(1)];
            if cell.block_bytes <= SMALL_BLOCK_BYTES_MAX {
                minima.push(batch);
            }
            for complete_min in minima {
                let one = Self {
                    batch,
                    complete_min: complete_min.min(batch),
                };
                if !found.contains(&one) {
                    found.push(one);
                }
            }
        }
        found
    }
}

/// How fio is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "engine")]
pub(crate) enum FioSettings {
    /// As nobody who measures would: io_uring at the cell's depth, and all else by default.
    Defaults,
    /// io_uring with everything that helps.
    Ring {
        #[serde(flatten)]
        batching: Batching,
        memory: FioMemory,
    },
    /// Plain pread and pwrite, one at a time: the fastest on files in memory.
    Plain { memory: FioMemory },
}

impl FioSettings {
    /// What fio's best is looked for among.
    pub(crate) fn candidates(cell: &Cell, in_memory: bool, pages: HugePages) -> Vec<Self> {
        let memory = pages.best_for(cell.buffer_bytes());
        let mut found = Vec::new();
        if in_memory {
            found.push(Self::Plain {
                memory: pages.best_for(cell.block_bytes),
            });
        }
        let batchings = Batching::candidates(cell);
        found.extend(
            batchings
                .into_iter()
                .map(|batching| Self::Ring { batching, memory }),
        );
        found
    }

    /// How it hands over and takes back, where it does so in batches that were chosen.
    pub(crate) fn batching(self) -> Option<Batching> {
        match self {
            Self::Ring { batching, .. } => Some(batching),
            Self::Defaults | Self::Plain { .. } => None,
        }
    }

    pub(crate) fn memory(self) -> FioMemory {
        match self {
            Self::Defaults => FioMemory::Small,
            Self::Ring { memory, .. } | Self::Plain { memory } => memory,
        }
    }
}

impl fmt::Display for FioSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Defaults => f.write_str("defaults")?,
            Self::Ring { batching, .. } => write!(f, "io_uring {batching}")?,
            Self::Plain { .. } => f.write_str("psync")?,
        }
        match self.memory() {
            FioMemory::Reserved => f.write_str(", reserved huge pages"),
            FioMemory::Transparent => f.write_str(", transparent huge pages"),
            FioMemory::Small => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Pattern;

    fn cell(block_bytes: u64, depth: u32) -> Cell {
        Cell {
            pattern: Pattern::RandRead,
            block_bytes,
            depth,
            lanes: 1,
        }
    }

    fn shown(cell: &Cell) -> Vec<String> {
        let candidates = Batching::candidates(cell);
        candidates.iter().map(Batching::to_string).collect()
    }

    #[test]
    fn batches_follow_the_depth_and_no_candidate_comes_twice() {
        assert_eq!(
            shown(&cell(4096, 128)),
            [
                "32/1", "32/16", "32/32", "64/1", "64/16", "64/64", "128/1", "128/16", "128/128"
            ]
        );
        assert_eq!(shown(&cell(1 << 20, 8)), ["2/1", "4/1", "8/1"]);
        assert_eq!(shown(&cell(4096, 1)), ["1/1"]);
    }

    #[test]
    fn plain_calls_are_for_files_in_memory() {
        let pages = HugePages {
            page_bytes: 2 << 20,
            free_count: 0,
            transparent: true,
        };
        let names = |in_memory| -> Vec<String> {
            let found = FioSettings::candidates(&cell(1 << 20, 8), in_memory, pages);
            found.iter().map(FioSettings::to_string).collect()
        };
        assert_eq!(names(false)[0], "io_uring 2/1, transparent huge pages");
        assert!(!names(false).contains(&"psync".to_owned()));
        assert_eq!(names(true)[0], "psync");
    }
}
