//! Sweeps: one pattern and block size at several depths and numbers of lanes.
//!
//! - The lists of the command line: numbers and runs of doublings, each once.
//! - The cells of a run by sweep, whatever is made of them: tables, Markdown, pages. A run whose
//!   patterns and sizes have one cell each has no sweep, and looks as it always did.
//! - The *knee*: the least in flight that comes within 5 % of a sweep's best rate. Beyond it more
//!   requests wait longer and hardly more of them are done.

use crate::error::{Error, Result};
use crate::plan::Depth;
use crate::size::parse_size_list;
use crate::workload::{Cell, Pattern};

/// The most requests in flight on a lane.
pub(crate) const DEPTH_MAX: u32 = 4096;

/// The most lanes of a cell.
const LANES_MAX: u32 = 1024;

/// What is close enough to the best, as `swath tune` has it.
const KNEE_PART: f64 = 0.95;

/// Parses the depths of a sweep: `auto`, or `1,2,4..128`.
///
/// # Errors
///
/// Not such a list, a number twice, 0, or one that no queue has.
pub fn parse_depths(text: &str) -> Result<Vec<Depth>> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(vec![Depth::Auto]);
    }
    let depths = numbers(text, "depth", DEPTH_MAX, "1,2,4..128, or auto")?;
    Ok(depths.into_iter().map(Depth::Fixed).collect())
}

/// Parses the numbers of lanes of a sweep: `1,2,4` or `1..16`.
///
/// # Errors
///
/// Not such a list, a number twice, 0, or too many lanes.
pub fn parse_lanes(text: &str) -> Result<Vec<u32>> {
    numbers(text, "number of lanes", LANES_MAX, "1,2,4 or 1..16")
}

fn numbers(text: &str, what: &str, most: u32, example: &str) -> Result<Vec<u32>> {
    let no_list =
        |item: &str| Error::usage(format!("'{item}' is no {what}; write a list as {example}"));
    let mut numbers: Vec<u32> = Vec::new();
    for item in text.split(',').map(str::trim) {
        // The grammar of a run is that of sizes, but a unit makes no sense.
        let is_number =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !item.split("..").all(is_number) {
            return Err(no_list(item));
        }
        if item.split("..").any(|number| number.parse() == Ok(0_u64)) {
            return Err(Error::usage(format!(
                "a {what} of 0, in '{text}', moves nothing; give 1 to {most}"
            )));
        }
        for number in parse_size_list(item).map_err(|_| no_list(item))? {
            let number = u32::try_from(number).ok().filter(|number| *number <= most);
            let number = number.ok_or_else(|| {
                Error::usage(format!(
                    "'{item}' is beyond a {what} of {most}, the most there is"
                ))
            })?;
            if numbers.contains(&number) {
                return Err(Error::usage(format!(
                    "a {what} of {number} is twice in '{text}'"
                )));
            }
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// A measured cell, whether a bench has just made it or a report was read.
pub(crate) trait Swept {
    /// What was measured.
    fn cell(&self) -> Cell;

    /// Requests a second.
    fn rate(&self) -> f64;
}

/// The cells of one pattern and block size.
#[derive(Debug)]
pub(crate) struct Sweep<'cells, C> {
    pub(crate) pattern: Pattern,
    pub(crate) block_bytes: u64,
    /// Rising, each once.
    pub(crate) depths: Vec<u32>,
    /// Rising, each once.
    pub(crate) lanes: Vec<u32>,
    /// By lanes, and then by depth.
    pub(crate) cells: Vec<&'cells C>,
}

/// The sweeps of a run: patterns in the order of tables, in each the sizes, rising.
pub(crate) fn sweeps<C: Swept>(cells: &[C]) -> Vec<Sweep<'_, C>> {
    let mut sizes: Vec<u64> = cells.iter().map(|cell| cell.cell().block_bytes).collect();
    each_once(&mut sizes);
    let mut sweeps = Vec::new();
    for pattern in Pattern::ALL {
        for &block_bytes in &sizes {
            let is_of = |cell: &&C| {
                let cell = cell.cell();
                cell.pattern == pattern && cell.block_bytes == block_bytes
            };
            let mut of: Vec<&C> = cells.iter().filter(is_of).collect();
            of.sort_by_key(|cell| (cell.cell().lanes, cell.cell().depth));
            if of.is_empty() {
                continue;
            }
            let mut depths: Vec<u32> = of.iter().map(|cell| cell.cell().depth).collect();
            let mut lanes: Vec<u32> = of.iter().map(|cell| cell.cell().lanes).collect();
            each_once(&mut depths);
            each_once(&mut lanes);
            sweeps.push(Sweep {
                pattern,
                block_bytes,
                depths,
                lanes,
                cells: of,
            });
        }
    }
    sweeps
}

/// Whether any pattern and block size has more than one cell.
pub(crate) fn has_sweeps<C: Swept>(cells: &[C]) -> bool {
    sweeps(cells).iter().any(|sweep| sweep.cells.len() > 1)
}

fn each_once<T: Ord>(values: &mut Vec<T>) {
    values.sort_unstable();
    values.dedup();
}

impl<'cells, C: Swept> Sweep<'cells, C> {
    /// Whether both depth and lanes were swept, so that there is a grid. Where each number of lanes
    /// has one depth of its own, as `auto` has it, there is a list.
    pub(crate) fn is_grid(&self) -> bool {
        self.cells.len() > self.depths.len().max(self.lanes.len())
    }

    /// One of its cells, if it was measured.
    pub(crate) fn at(&self, lanes: u32, depth: u32) -> Option<&'cells C> {
        let is_it = |cell: &&&C| cell.cell().lanes == lanes && cell.cell().depth == depth;
        self.cells.iter().find(is_it).copied()
    }

    /// Its fastest cell.
    pub(crate) fn best(&self) -> Option<&'cells C> {
        let cells = self.cells.iter().copied();
        cells.max_by(|one, other| one.rate().total_cmp(&other.rate()))
    }

    /// The cell with the least in flight that comes close to the best; of several with as much the
    /// fastest.
    pub(crate) fn knee(&self) -> Option<&'cells C> {
        let enough = self.best()?.rate() * KNEE_PART;
        let in_flight = |cell: &C| u64::from(cell.cell().lanes) * u64::from(cell.cell().depth);
        let close = self.cells.iter().copied();
        let close = close.filter(|cell| cell.rate() >= enough);
        close.min_by(|one, other| {
            let rates = || other.rate().total_cmp(&one.rate());
            in_flight(one).cmp(&in_flight(other)).then_with(rates)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_numbers_and_runs_of_doublings() {
        assert_eq!(parse_lanes("1,2,4").unwrap(), [1, 2, 4]);
        assert_eq!(parse_lanes("3").unwrap(), [3]);
        assert_eq!(parse_lanes("1, 3..20").unwrap(), [1, 3, 6, 12, 20]);
        assert_eq!(parse_depths("AUTO").unwrap(), [Depth::Auto]);
        let fixed = [1, 2, 4, 8, 16, 32, 64, 128].map(Depth::Fixed);
        assert_eq!(parse_depths("1,2,4..128").unwrap(), fixed);
    }

    #[test]
    fn lists_that_make_no_sense_are_refused_with_the_reason() {
        for (text, part) in [
            ("0", "depth of 0"),
            ("1,0", "depth of 0"),
            ("0..8", "depth of 0"),
            ("1,2,1", "depth of 1 is twice"),
            ("1..8,4", "depth of 4 is twice"),
            ("4097", "4096"),
            ("1..99999999999", "4096"),
            ("8..1", "'8..1' is no depth"),
            ("auto,4", "'auto' is no depth"),
            ("4k", "'4k' is no depth"),
            ("1,,2", "'' is no depth"),
            ("", "'' is no depth"),
            ("1,...,8", "'...' is no depth"),
            ("1.5", "'1.5' is no depth"),
            ("-1", "'-1' is no depth"),
        ] {
            let error = parse_depths(text).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{text}");
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
        let error = parse_lanes("1025").unwrap_err().to_string();
        assert!(error.contains("lanes of 1024"), "{error}");
    }

    struct Measured(Cell, f64);

    impl Swept for Measured {
        fn cell(&self) -> Cell {
            self.0
        }

        fn rate(&self) -> f64 {
            self.1
        }
    }

    fn measured(pattern: Pattern, lanes: u32, depth: u32, rate: f64) -> Measured {
        let cell = Cell {
            pattern,
            block_bytes: 4096,
            depth,
            lanes,
        };
        Measured(cell, rate)
    }

    #[test]
    fn cells_are_gathered_by_pattern_and_size_and_the_knee_is_the_least_that_is_enough() {
        let read = |lanes, depth, rate| measured(Pattern::RandRead, lanes, depth, rate);
        let cells = [
            measured(Pattern::RandWrite, 1, 8, 5.0),
            read(2, 8, 100.0),
            read(1, 1, 10.0),
            read(1, 8, 96.0),
            read(2, 1, 20.0),
            read(1, 64, 98.0),
            read(2, 4, 97.0),
        ];
        assert!(has_sweeps(&cells));
        let sweeps = sweeps(&cells);
        assert_eq!(sweeps.len(), 2);
        let reads = &sweeps[0];
        assert_eq!(
            (&reads.lanes[..], &reads.depths[..]),
            (&[1, 2][..], &[1, 4, 8, 64][..])
        );
        assert!(reads.is_grid() && !sweeps[1].is_grid());
        assert_eq!(reads.at(2, 8).unwrap().0, cells[1].0);
        assert!(reads.at(2, 64).is_none());
        assert_eq!(reads.best().unwrap().0, cells[1].0);
        // Eight in flight both ways; two lanes were the faster.
        assert_eq!(reads.knee().unwrap().0, cells[6].0);
        assert!(!has_sweeps(&cells[..2]));
    }

    #[test]
    fn lanes_with_a_depth_of_their_own_are_no_grid() {
        let cells = [1, 2, 4].map(|lanes| measured(Pattern::Read, lanes, 128 / lanes, 1.0));
        let sweeps = sweeps(&cells);
        assert!(!sweeps[0].is_grid());
        assert_eq!(sweeps[0].depths, [32, 64, 128]);
    }
}
