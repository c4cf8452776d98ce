//! Cells by name: `4k-randread`, `1m-write`, or `all` of them.

use crate::error::{Error, Result};
use crate::size::{format_size, parse_size};
use crate::workload::Pattern;

/// A pattern at a block size, before it is known how much is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellChoice {
    /// The access pattern.
    pub pattern: Pattern,
    /// Bytes of each request.
    pub block_bytes: u64,
}

/// Parses `4k-randread,1m-write`; `all` is the matrix from 4k to 1m.
///
/// # Errors
///
/// A name is none of a cell.
pub fn parse_cells(text: &str) -> Result<Vec<CellChoice>> {
    let mut cells = Vec::new();
    for name in text.split(',').map(str::trim) {
        let found = if name.eq_ignore_ascii_case("all") {
            all()
        } else {
            vec![parse_cell(name)?]
        };
        for cell in found {
            if !cells.contains(&cell) {
                cells.push(cell);
            }
        }
    }
    Ok(cells)
}

fn parse_cell(name: &str) -> Result<CellChoice> {
    let unknown = || {
        Error::usage(format!(
            "'{name}' is no cell; write it as 4k-randread or 1m-write, or all"
        ))
    };
    let (size, pattern) = name.split_once('-').ok_or_else(unknown)?;
    Ok(CellChoice {
        pattern: pattern.parse().map_err(|_| unknown())?,
        block_bytes: parse_size(size).map_err(|_| unknown())?,
    })
}

/// The matrix: from 4 KiB to 1 MiB, by the four patterns.
fn all() -> Vec<CellChoice> {
    let sizes = (12..=20).map(|power| 1_u64 << power);
    let choices = sizes.flat_map(|block_bytes| {
        Pattern::ALL.map(|pattern| CellChoice {
            pattern,
            block_bytes,
        })
    });
    choices.collect()
}

impl std::fmt::Display for CellChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", format_size(self.block_bytes), self.pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_go_by_size_and_pattern_and_come_once() {
        let cells = parse_cells("4k-randread, 1M-write,4k-randread").unwrap();
        let names: Vec<String> = cells.iter().map(CellChoice::to_string).collect();
        assert_eq!(names, ["4k-randread", "1m-write"]);
        assert_eq!(parse_cells("all").unwrap().len(), 36);
        assert_eq!(parse_cells("1m-read,all").unwrap().len(), 36);
    }

    #[test]
    fn nonsense_is_no_cell_and_says_how_to_write_one() {
        for text in [
            "4k",
            "randread-4k",
            "4k-sideways",
            "",
            "4q-read",
            "4k-read,",
        ] {
            let error = parse_cells(text).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{text}");
            assert!(error.to_string().contains("4k-randread"), "{error}");
        }
    }
}
