//! The grids: sizes down, threads across; bandwidth in GiB/s, and mean latency.

use comfy_table::Table;

use crate::report::table::{legend, mark, micros, row, table, three_digits};
use crate::report::{CellReport, Report, render_backend};
use crate::size::format_size;
use crate::workload::Pattern;

/// Two grids for each pattern that was measured. Says so when there is nothing to show.
pub fn render_grids(report: &Report) -> String {
    if report.cells.is_empty() {
        return "no cell was measured\n".to_owned();
    }
    let mut text = format!("\n{}", render_backend(&report.volume));
    for pattern in Pattern::ALL {
        let cells: Vec<&CellReport> = report
            .cells
            .iter()
            .filter(|cell| cell.rw == pattern)
            .collect();
        if cells.is_empty() {
            continue;
        }
        let bandwidth = grid(&cells, |cell| {
            three_digits(cell.bw_bytes as f64 / f64::from(1 << 30)) + mark(cell)
        });
        let latency = grid(&cells, |cell| micros(cell.lat_ns.mean));
        text.push_str(&format!(
            "\n{pattern}: GiB/s by threads\n{bandwidth}\n\n{pattern}: mean latency in microseconds by \
             threads\n{latency}\n"
        ));
    }
    text.push_str(&legend(&report.cells));
    text
}

/// A dash where nothing was measured.
fn grid(cells: &[&CellReport], show: impl Fn(&CellReport) -> String) -> Table {
    let mut sizes: Vec<u64> = cells.iter().map(|cell| cell.bs).collect();
    sizes.dedup();
    let mut threads: Vec<u32> = cells.iter().map(|cell| cell.numjobs).collect();
    threads.sort_unstable();
    threads.dedup();
    let mut header = vec!["bs".to_owned()];
    header.extend(threads.iter().map(u32::to_string));
    let mut table = table(&header, 1);
    for size in sizes {
        let mut texts = vec![format_size(size)];
        for &count in &threads {
            let cell = cells
                .iter()
                .find(|cell| cell.bs == size && cell.numjobs == count);
            texts.push(cell.map_or_else(|| "-".to_owned(), |cell| show(cell)));
        }
        table.add_row(row(&texts, 1));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;
    use crate::subject::DataState;
    use crate::threads::thread_cells;

    #[test]
    fn a_grid_has_every_cell_that_was_measured_and_dashes_elsewhere() {
        let mut report = fixture::report(false);
        let runs = [fixture::measurement(262_144)];
        report.cells = thread_cells(&[Pattern::Read], &[4096, 8192], &[1, 256])
            .iter()
            .filter_map(|cell| CellReport::of(cell, DataState::Unwritten, &runs, &[]))
            .collect();
        report.cells.pop();
        let text = render_grids(&report);
        for part in [
            "read: GiB/s",
            "256",
            "8k",
            "1.000 u",
            "61.2",
            " - ",
            "u = unwritten",
        ] {
            assert!(text.contains(part), "'{part}' is not in:\n{text}");
        }
        assert!(!text.contains("write:"), "{text}");
        report.cells.clear();
        assert_eq!(render_grids(&report), "no cell was measured\n");
    }
}
