//! The cells of a run, in order, and how long they take.

use std::time::Duration;

use crate::environment::memory_available_bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::size::{format_bytes, format_duration};
use crate::steady::SteadyOptions;
use crate::target::Side;
use crate::workload::{Cell, Cursor, Pattern, Space, depth_auto};

/// What opening a lane, filling its buffers and flushing take besides the time that is measured.
const OVERHEAD: Duration = Duration::from_millis(40);

/// The most cells of a run: at four seconds each they take a working day, and nobody reads more.
const CELLS_MAX: usize = 5_000;

/// What a run will do.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The cells: sizes outside, patterns inside.
    pub cells: Vec<Cell>,
    /// How often each is measured; the median is reported.
    pub rounds: u32,
    /// Until when each is measured instead, if not so often; the last rounds are reported.
    pub steady: Option<SteadyOptions>,
    /// What each round measures, in this order.
    pub sides: Vec<Side>,
    /// One measurement: its ramp and its window.
    pub one: Duration,
}

/// How many requests each lane keeps in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// See [`depth_auto`].
    Auto,
    /// Always so many.
    Fixed(u32),
}

impl Depth {
    /// The depth of a cell.
    pub fn of(self, block_bytes: u64, lanes: u32, members: u32) -> u32 {
        match self {
            Self::Auto => depth_auto(block_bytes, lanes, members),
            Self::Fixed(depth) => depth,
        }
    }
}

/// Every size with every pattern, in each every number of lanes with every depth.
pub fn matrix(
    sizes: &[u64],
    patterns: &[Pattern],
    depths: &[Depth],
    lanes: &[u32],
    members: u32,
) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &block_bytes in sizes {
        for &pattern in patterns {
            for &lanes in lanes {
                cells.extend(depths.iter().map(|depth| Cell {
                    pattern,
                    block_bytes,
                    depth: depth.of(block_bytes, lanes, members),
                    lanes,
                }));
            }
        }
    }
    cells
}

impl Plan {
    /// Sees that there are not more cells than anybody reads.
    ///
    /// # Errors
    ///
    /// There are.
    pub fn check_count(&self) -> Result<()> {
        let count = self.cells.len();
        if count <= CELLS_MAX {
            return Ok(());
        }
        Err(Error::usage(format!(
            "{count} cells are more than the {CELLS_MAX} of a run; ask for fewer --bs, --rw, --iodepth \
             or --numjobs"
        )))
    }

    /// Sees that every cell can run on a volume whose blocks are `block_bytes`: that the block size
    /// fits, that each lane has room in `spaces`, and that there is memory for the requests.
    ///
    /// # Errors
    ///
    /// The first cell that cannot run, and why.
    pub fn check(&self, block_bytes: u64, spaces: &[Space]) -> Result<()> {
        for cell in &self.cells {
            if !cell.block_bytes.is_multiple_of(block_bytes) {
                return Err(Error::usage(format!(
                    "{cell}: the block size must be a multiple of the volume's {block_bytes} bytes"
                )));
            }
            Cursor::new(cell, spaces, 0, 0)?;
            let have = memory_available_bytes().unwrap_or(u64::MAX);
            if cell.buffer_bytes() > have / 2 {
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    format!(
                        "{cell}: requests in flight need {} of memory, and {} are free; use a \
                         smaller --iodepth or fewer --numjobs",
                        format_bytes(cell.buffer_bytes()),
                        format_bytes(have)
                    ),
                ));
            }
        }
        Ok(())
    }

    /// The most rounds of a cell.
    pub fn rounds_max(&self) -> u32 {
        self.steady.map_or(self.rounds, |steady| steady.rounds_max)
    }

    /// The fewest: as many as a window that is steady at once.
    fn rounds_min(&self) -> u32 {
        self.steady.map_or(self.rounds, |steady| steady.window)
    }

    /// How many measurements there are; of a run until steady state, at most.
    pub fn measurements(&self) -> u32 {
        self.count(self.rounds_max())
    }

    fn count(&self, rounds: u32) -> u32 {
        let cells = u32::try_from(self.cells.len()).unwrap_or(u32::MAX);
        cells.saturating_mul(self.of_a_cell(rounds))
    }

    /// How many measurements so many rounds of a cell are.
    pub(crate) fn of_a_cell(&self, rounds: u32) -> u32 {
        let sides = u32::try_from(self.sides.len()).unwrap_or(u32::MAX);
        rounds.saturating_mul(sides)
    }

    /// How long all of it takes, but for making members; of a run until steady state, at most.
    pub fn total(&self) -> Duration {
        (self.one + OVERHEAD).saturating_mul(self.measurements())
    }

    /// How many cells there are and how long they take, in words.
    pub fn describe(&self) -> String {
        let count = self.cells.len();
        let plural = if count == 1 { "" } else { "s" };
        let most = format_duration(self.total());
        if self.steady.is_none() {
            return format!("{count} cell{plural}, about {most}");
        }
        let fewest = self.count(self.rounds_min());
        let least = format_duration((self.one + OVERHEAD).saturating_mul(fewest));
        let (low, high) = (self.rounds_min(), self.rounds_max());
        format!("{count} cell{plural} of {low} to {high} rounds, {least} to {most}")
    }

    /// How long is left after `done` measurements and `elapsed` of the one in progress.
    pub fn left(&self, done: u32, elapsed: Duration) -> Duration {
        let to_come = self.measurements().saturating_sub(done);
        (self.one + OVERHEAD)
            .saturating_mul(to_come)
            .saturating_sub(elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_run_is_36_cells_and_takes_less_than_four_minutes() {
        let sizes: Vec<u64> = (12..=20).map(|power| 1 << power).collect();
        let cells = matrix(&sizes, &Pattern::ALL, &[Depth::Auto], &[1], 4);
        let one = Duration::from_millis(4500);
        let plan = Plan {
            cells,
            rounds: 1,
            steady: None,
            sides: vec![Side::Volume],
            one,
        };
        assert_eq!(plan.measurements(), 36);
        // What is left of four minutes is for the members: 4 GiB at 100 MB/s take 43 s.
        assert!(
            plan.total() < Duration::from_secs(190),
            "{:?}",
            plan.total()
        );
        assert_eq!(plan.left(36, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn cells_that_cannot_run_are_found_beforehand() {
        let spaces = [Space {
            device: 0,
            base: 0,
            length: 8 << 20,
        }];
        let check = |block_bytes, depth, lanes| {
            let depth = Depth::Fixed(depth);
            let cells = matrix(&[block_bytes], &[Pattern::Read], &[depth], &[lanes], 4);
            let plan = Plan {
                cells,
                rounds: 1,
                steady: None,
                sides: vec![Side::Volume],
                one: Duration::from_secs(1),
            };
            plan.check(512, &spaces).map_err(|error| error.kind())
        };
        assert_eq!(check(4096, 128, 4), Ok(()));
        assert_eq!(check(1000, 1, 1), Err(ErrorKind::Usage));
        assert_eq!(check(4 << 20, 1, 4), Err(ErrorKind::Usage));
        assert_eq!(check(8 << 20, u32::MAX, 1), Err(ErrorKind::NoSpace));
    }
}
