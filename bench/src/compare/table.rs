//! A comparison as text: its conditions, a line for each cell, and what was run for it.

use std::fmt::Write;

use crate::compare::report::{CellComparison, Comparison, Medians};
use crate::compare::statistics::Ratio;
use crate::report::table::{gigabytes, row, table};
use crate::report::{format_rate, render_backend, render_conditions};
use crate::size::format_size;

/// From this size on a bandwidth says more than a rate.
const LARGE_BLOCK_BYTES: u64 = 128 << 10;

/// What is compared and where. Known before the first cell.
pub fn render_comparison_header(report: &Comparison) -> String {
    let mut text = format!("swath-compare {}", report.version);
    if let Some(label) = &report.label {
        // Writing to a string cannot fail.
        let _ = write!(text, ": {label}");
    }
    let _ = write!(
        text,
        "\n  against   {} ({}), both on core {}, members {}\n",
        report.fio.version, report.fio.path, report.core, report.state
    );
    text + &render_conditions(&report.volume, &report.environment, &report.notes)
}

/// The table, means, settings and commands. Says so when there is nothing to show.
pub fn render_comparison_tables(report: &Comparison) -> String {
    if report.cells.is_empty() {
        return "no cell was compared\n".to_owned();
    }
    let mut text = format!("\n{}", render_backend(&report.volume));
    let _ = write!(
        text,
        "\nMedians of {} round{}; a ratio is Swath / fio, the median of the rounds (lowest to \
         highest)\n{}\n",
        report.rounds,
        if report.rounds == 1 { "" } else { "s" },
        cells_table(report)
    );
    if report.cells.iter().any(CellComparison::is_below_one) {
        text.push_str(" < = fio's best is faster\n");
    }
    if report.cells.iter().any(|cell| cell.noisy) {
        text.push_str(" ~ = the rounds are more than 10 % apart: this ratio means little\n");
    }
    for (what, mean) in [
        ("fio at its best", report.geometric_mean),
        ("fio by default", report.geometric_mean_defaults),
    ] {
        if let Some(mean) = mean {
            let count = report.cells.len();
            let _ = writeln!(
                text,
                "geometric mean of the ratios to {what}, {count} cell{}: {mean:.3}",
                if count == 1 { "" } else { "s" }
            );
        }
    }
    let noisy = report.noisy();
    if !noisy.is_empty() {
        let _ = writeln!(text, "noisy: {}", noisy.join(", "));
    }
    text.push_str(&settings(report));
    text
}

fn cells_table(report: &Comparison) -> comfy_table::Table {
    let header = [
        "cell",
        "depth",
        "Swath",
        "fio, best",
        "ratio",
        "CPU/IO",
        "fio's",
        "fio, defaults",
        "ratio",
        "fio's CPU/IO",
    ];
    let mut table = table(&header.map(str::to_owned), 1);
    for cell in &report.cells {
        let (best, defaults) = (&cell.fio, &cell.fio_defaults);
        let best = best.as_ref().map(|side| &side.medians);
        let defaults = defaults.as_ref().map(|side| &side.medians);
        let speed = |side: Option<&Medians>| {
            side.map_or_else(|| "-".to_owned(), |side| speed(cell.bs, side))
        };
        let cpu = |side: Option<&Medians>| {
            side.map_or_else(
                || "-".to_owned(),
                |side| format!("{:.0} ns", side.cpu_ns_per_io),
            )
        };
        let mut marks = String::new();
        if cell.is_below_one() {
            marks.push_str(" <");
        }
        if cell.noisy {
            marks.push_str(" ~");
        }
        table.add_row(row(
            &[
                cell.name(),
                cell.iodepth.to_string(),
                speed(Some(&cell.swath.medians)),
                speed(best),
                ratio(cell.ratio.as_ref()) + &marks,
                cpu(Some(&cell.swath.medians)),
                cpu(best),
                speed(defaults),
                ratio(cell.ratio_defaults.as_ref()),
                cpu(defaults),
            ],
            1,
        ));
    }
    table
}

fn ratio(ratio: Option<&Ratio>) -> String {
    ratio.map_or_else(
        || "-".to_owned(),
        |it| format!("{:.3} ({:.2} to {:.2})", it.median, it.min, it.max),
    )
}

fn speed(block_bytes: u64, side: &Medians) -> String {
    if block_bytes < LARGE_BLOCK_BYTES {
        format!("{} IOPS", format_rate(side.iops))
    } else {
        format!("{} GB/s", gigabytes(side.bw_bytes))
    }
}

/// What was chosen for each cell, batch/completions waited for, and fio's commands.
fn settings(report: &Comparison) -> String {
    let mut text = "\nSettings chosen by trying (batch/completions waited for)\n".to_owned();
    for cell in &report.cells {
        let fio = cell
            .fio
            .as_ref()
            .map_or_else(String::new, |side| format!("; fio {}", side.setting));
        let _ = writeln!(
            text,
            "  {}: Swath {}{fio}",
            cell.name(),
            cell.swath.settings
        );
    }
    text.push_str("\nfio's commands\n");
    for cell in &report.cells {
        for (what, side) in [("best", &cell.fio), ("defaults", &cell.fio_defaults)] {
            if let Some(side) = side {
                let _ = writeln!(text, "  {}, {what}: {}", cell.name(), side.command);
            }
        }
    }
    let largest = report.cells.iter().map(|cell| cell.bs).max().unwrap_or(0);
    if largest < LARGE_BLOCK_BYTES {
        return text;
    }
    let _ = writeln!(
        text,
        "\nGB/s are 10^9 bytes a second, from blocks of {} on",
        format_size(LARGE_BLOCK_BYTES)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::fixture;

    #[test]
    fn the_table_has_both_ratios_and_marks_what_is_slower_or_noisy() {
        let text = render_comparison_tables(&fixture::comparison());
        for part in [
            "4k-randread",
            "1200 IOPS",
            "1.200 (1.10 to 1.30) ~",
            "0.900 (0.90 to 0.90) <",
            "2.400",
            "0.944 GB/s",
            "833333 ns",
            "geometric mean of the ratios to fio at its best, 2 cells: 1.039",
            "noisy: 4k-randread",
            "Swath 32/8; fio io_uring 32/8",
            "4k-randread, defaults: fio --defaults",
        ] {
            assert!(text.contains(part), "'{part}' is not in:\n{text}");
        }
    }

    #[test]
    fn the_header_names_both_and_the_core() {
        let text = render_comparison_header(&fixture::comparison());
        for part in [
            "fio-3.33",
            "core 1",
            "members written",
            "a note",
            "Linux 6.18",
        ] {
            assert!(text.contains(part), "'{part}' is not in:\n{text}");
        }
    }

    #[test]
    fn without_defaults_there_are_dashes_and_one_mean() {
        let mut report = fixture::comparison();
        report.geometric_mean_defaults = None;
        for cell in &mut report.cells {
            (cell.fio_defaults, cell.ratio_defaults) = (None, None);
        }
        let text = render_comparison_tables(&report);
        assert!(
            !text.contains("by default") && !text.contains("--defaults"),
            "{text}"
        );
        report.cells.clear();
        assert_eq!(render_comparison_tables(&report), "no cell was compared\n");
    }
}
