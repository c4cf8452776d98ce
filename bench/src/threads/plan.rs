//! The cells: patterns outside, then sizes, then numbers of threads; and which of them cannot run.

use crate::environment::memory_available_bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::size::{format_bytes, parse_size_list};
use crate::workload::{Cell, Pattern};

/// The most threads a cell may have.
const THREADS_MAX: u64 = 1024;

/// Parses a list of numbers of threads: `1,8,64`, or a run of doublings, `1..256`.
///
/// # Errors
///
/// Not such a list, or a number out of range.
pub fn parse_threads(text: &str) -> Result<Vec<u32>> {
    let no_list = || {
        Error::usage(format!(
            "'{text}' is no list of threads; write 1,8,64 or 1..256"
        ))
    };
    // The grammar is that of sizes, but a unit makes no sense.
    if text.contains(|letter: char| letter.is_ascii_alphabetic()) {
        return Err(no_list());
    }
    let numbers = parse_size_list(text).map_err(|_| no_list())?;
    let in_range = |&number: &u64| {
        let number = u32::try_from(number).ok();
        number.filter(|&number| u64::from(number) <= THREADS_MAX)
    };
    let threads: Option<Vec<u32>> = numbers.iter().map(in_range).collect();
    threads.ok_or_else(|| Error::usage(format!("at most {THREADS_MAX} threads, not '{text}'")))
}

/// Every pattern with every size with every number of threads, one request in flight on each.
pub fn thread_cells(patterns: &[Pattern], sizes: &[u64], threads: &[u32]) -> Vec<Cell> {
    let mut cells = Vec::with_capacity(patterns.len() * sizes.len() * threads.len());
    for &pattern in patterns {
        for &block_bytes in sizes {
            cells.extend(threads.iter().map(|&lanes| Cell {
                pattern,
                block_bytes,
                depth: 1,
                lanes,
            }));
        }
    }
    cells
}

/// Sees that every cell can run on a volume of `volume_bytes` whose blocks are `block_bytes`.
///
/// # Errors
///
/// The first cell that cannot: its block size does not fit, there are more threads than regions, or
/// too little memory.
pub fn check(cells: &[Cell], block_bytes: u64, volume_bytes: u64) -> Result<()> {
    let have = memory_available_bytes().unwrap_or(u64::MAX);
    for cell in cells {
        let Cell { lanes, .. } = *cell;
        if !cell.block_bytes.is_multiple_of(block_bytes) {
            return Err(Error::usage(format!(
                "{cell}: the block size must be a multiple of the volume's {block_bytes} bytes"
            )));
        }
        let regions = volume_bytes / cell.block_bytes;
        if regions < u64::from(lanes) {
            return Err(Error::usage(format!(
                "{cell}: {lanes} threads need {lanes} regions of at least one block, which are {}, \
                 and the volume's {} are {regions} such regions; use fewer --threads, a smaller \
                 --bs or larger members",
                format_bytes(cell.buffer_bytes()),
                format_bytes(volume_bytes),
            )));
        }
        if cell.buffer_bytes() > have / 2 {
            return Err(Error::new(
                ErrorKind::NoSpace,
                format!(
                    "{cell}: {lanes} threads need {} of memory, and {} are free; use fewer \
                     --threads or a smaller --bs",
                    format_bytes(cell.buffer_bytes()),
                    format_bytes(have)
                ),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_a_list_or_a_run_of_doublings() {
        assert_eq!(parse_threads("1,3").unwrap(), [1, 3]);
        assert_eq!(
            parse_threads("1..256").unwrap(),
            [1, 2, 4, 8, 16, 32, 64, 128, 256]
        );
        for text in ["", "0", "4k", "2..1", "1025", "many", "-1"] {
            assert_eq!(parse_threads(text).unwrap_err().exit_code(), 2, "{text}");
        }
    }

    #[test]
    fn patterns_are_outside_and_threads_inside() {
        let cells = thread_cells(&[Pattern::Read, Pattern::Write], &[4096, 8192], &[1, 2]);
        let shown: Vec<_> = cells
            .iter()
            .map(|cell| format!("{cell} {}x{}", cell.lanes, cell.depth))
            .collect();
        assert_eq!(
            shown[..4],
            ["read 4k 1x1", "read 4k 2x1", "read 8k 1x1", "read 8k 2x1"]
        );
        assert_eq!(shown.len(), 8);
    }

    #[test]
    fn more_threads_than_regions_are_refused_with_the_numbers() {
        let cells = thread_cells(&[Pattern::RandRead], &[1 << 20], &[8]);
        check(&cells, 512, 8 << 20).unwrap();
        let error = check(&cells, 512, (8 << 20) - 1).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let message = error.to_string();
        for part in [
            "randread 1m",
            "8 threads",
            "8.0 MiB",
            "7 such regions",
            "--threads",
        ] {
            assert!(message.contains(part), "'{part}' is not in: {message}");
        }
        assert!(check(&cells, 3 << 20, 1 << 30).is_err());
        let huge = thread_cells(&[Pattern::Read], &[1 << 50], &[8]);
        let error = check(&huge, 512, u64::MAX).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
    }
}
