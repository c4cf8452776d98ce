//! The report as tables: bandwidth and IOPS with sizes down and patterns across, then the latency
//! of every cell, and the stripe's efficiency where the bare members were measured.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

use super::header::render_backend;
use super::{CellReport, Report, sweep};
use crate::size::format_size;
use crate::steady::{SteadyOptions, SteadyReport};
use crate::subject::DataState;
use crate::sweep::has_sweeps;
use crate::workload::Pattern;

/// All tables, ready to print. Says so when there is nothing to show.
pub fn render_tables(report: &Report) -> String {
    if report.cells.is_empty() {
        return "no cell was measured\n".to_owned();
    }
    let mut text = format!("\n{}", render_backend(&report.volume));
    let mut section = |title: &str, table: &Table| {
        text.push_str(&format!("\n{title}\n{table}\n"));
    };
    let cells = &report.cells;
    let steady = report.steady_state.as_ref();
    let steady = steady.map(|options| (steady_title(options), steady_table(cells)));
    if has_sweeps(cells) {
        for (title, table) in sweep::sections(report).iter().chain(&steady) {
            section(title, table);
        }
        text.push_str(&legend(cells));
        return text;
    }
    section(
        "Bandwidth, GB/s (GiB/s)",
        &matrix(cells, |cell| bandwidth(cell.bw_bytes)),
    );
    section("IOPS", &matrix(cells, |cell| format_rate(cell.iops)));
    section(
        "Latency in microseconds, and CPU time for each I/O in nanoseconds",
        &latency_table(cells),
    );
    if cells.iter().any(|cell| cell.baseline.is_some()) {
        let title = format!(
            "Efficiency of the stripe: volume / bare members (bare members, GB/s), median of {}",
            report.rounds
        );
        section(&title, &matrix(cells, efficiency));
    }
    if let Some((title, table)) = &steady {
        section(title, table);
    }
    text.push_str(&legend(cells));
    text
}

/// An empty table with a header, its first `left` columns aligned to the left.
pub(crate) fn table(header: &[String], left: usize) -> Table {
    let mut table = Table::new();
    // Never wrapped to the terminal: a table that scrolls sideways is still a table.
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(row(header, left));
    table
}

pub(crate) fn row(texts: &[String], left: usize) -> Vec<Cell> {
    let align = |place| {
        if place < left {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        }
    };
    let cells = texts.iter().enumerate();
    cells
        .map(|(place, text)| Cell::new(text).set_alignment(align(place)))
        .collect()
}

/// Sizes down, patterns across; a dash where nothing was measured.
pub(super) fn matrix(cells: &[CellReport], show: impl Fn(&CellReport) -> String) -> Table {
    let has = |pattern: &Pattern| cells.iter().any(|cell| cell.rw == *pattern);
    let patterns: Vec<Pattern> = Pattern::ALL.into_iter().filter(has).collect();
    let mut header = vec!["bs".to_owned()];
    header.extend(patterns.iter().map(Pattern::to_string));
    let mut table = table(&header, 1);
    let mut sizes: Vec<u64> = cells.iter().map(|cell| cell.bs).collect();
    sizes.dedup();
    for size in sizes {
        let mut texts = vec![format_size(size)];
        for pattern in &patterns {
            let cell = cells
                .iter()
                .find(|cell| cell.bs == size && cell.rw == *pattern);
            texts.push(cell.map_or_else(|| "-".to_owned(), |cell| show(cell) + &marks(cell)));
        }
        table.add_row(row(&texts, 1));
    }
    table
}

fn latency_table(cells: &[CellReport]) -> Table {
    let header = [
        "rw", "bs", "data", "lanes", "depth", "mean", "p50", "p99", "p99.9", "p99.99", "max",
        "CPU/IO",
    ];
    let mut table = table(&header.map(str::to_owned), 3);
    for cell in cells {
        let latency = &cell.lat_ns;
        table.add_row(row(
            &[
                cell.rw.to_string(),
                format_size(cell.bs),
                cell.state.to_string(),
                cell.numjobs.to_string(),
                cell.iodepth.to_string(),
                micros(latency.mean),
                micros(latency.p50 as f64),
                micros(latency.p99 as f64),
                micros(latency.p99_9 as f64),
                micros(latency.p99_99 as f64),
                micros(latency.max as f64),
                format!("{:.0}", cell.cpu_ns_per_io),
            ],
            3,
        ));
    }
    table
}

fn steady_title(options: &SteadyOptions) -> String {
    format!(
        "Steady state: the last {} rounds, spread within {} % and slope within {} % of their mean",
        options.window, options.spread_percent_max, options.slope_percent_max
    )
}

fn steady_table(cells: &[CellReport]) -> Table {
    let header = [
        "rw", "bs", "lanes", "depth", "rounds", "IOPS", "spread", "slope", "verdict",
    ];
    let mut table = table(&header.map(str::to_owned), 2);
    for cell in cells {
        let Some(steady) = &cell.steady else { continue };
        table.add_row(row(
            &[
                cell.rw.to_string(),
                format_size(cell.bs),
                cell.numjobs.to_string(),
                cell.iodepth.to_string(),
                steady.rounds.to_string(),
                format_rate(cell.iops),
                format!("{:.1} %", steady.spread_percent),
                format!("{:+.1} %", steady.slope_percent),
                if steady.is_steady {
                    "steady"
                } else {
                    "NOT STEADY"
                }
                .to_owned(),
            ],
            2,
        ));
    }
    table
}

pub(super) fn efficiency(cell: &CellReport) -> String {
    let Some(bare) = &cell.baseline else {
        return "-".to_owned();
    };
    format!(
        "{:.3} ({})",
        bare.efficiency,
        gigabytes(bare.baseline_bw_bytes)
    )
}

/// Both units: GB/s are decimal, GiB/s binary.
pub(super) fn bandwidth(bytes_per_s: u64) -> String {
    let gibibytes = bytes_per_s as f64 / f64::from(1 << 30);
    format!("{} ({})", gigabytes(bytes_per_s), three_digits(gibibytes))
}

pub(crate) fn gigabytes(bytes_per_s: u64) -> String {
    three_digits(bytes_per_s as f64 / 1e9)
}

/// `0.012`, `1.234`, `12.34`, `123.4`.
pub(crate) fn three_digits(value: f64) -> String {
    match value {
        value if value < 9.9995 => format!("{value:.3}"),
        value if value < 99.995 => format!("{value:.2}"),
        _ => format!("{value:.1}"),
    }
}

/// Both units, for a line of text: `1.234 GB/s (1.149 GiB/s)`.
pub fn format_bandwidth(bytes_per_s: u64) -> String {
    let gibibytes = bytes_per_s as f64 / f64::from(1 << 30);
    format!(
        "{} GB/s ({} GiB/s)",
        gigabytes(bytes_per_s),
        three_digits(gibibytes)
    )
}

/// A rate a person can take in: `987`, `65.4k`, `1.95M`.
pub fn format_rate(per_s: f64) -> String {
    match per_s {
        rate if rate < 9_999.5 => format!("{rate:.0}"),
        rate if rate < 999_950.0 => format!("{:.1}k", rate / 1e3),
        rate => format!("{:.3}M", rate / 1e6),
    }
}

pub(crate) fn micros(nanoseconds: f64) -> String {
    let micros = nanoseconds / 1e3;
    if micros < 99.95 {
        format!("{micros:.1}")
    } else {
        format!("{micros:.0}")
    }
}

/// What stands behind a number whose blocks were not all written.
pub(crate) fn mark(cell: &CellReport) -> &'static str {
    mark_of(cell.state, cell.rw)
}

/// All that stands behind a number of this cell.
pub(super) fn marks(cell: &CellReport) -> String {
    let is_unsteady = cell.steady.is_some_and(|steady| !steady.is_steady);
    format!("{}{}", mark(cell), if is_unsteady { " !" } else { "" })
}

/// The same, of blocks in this state and a cell of this pattern.
pub(crate) fn mark_of(state: DataState, pattern: Pattern) -> &'static str {
    match (state, pattern.is_write()) {
        (DataState::Written, _) => "",
        (DataState::Unwritten, false) => " u",
        (DataState::Partly, false) => " p",
        // Such writes do reach the drives.
        (DataState::Unwritten | DataState::Partly, true) => " f",
        (DataState::Unknown, _) => " ?",
    }
}

/// The marks that cells with these states and patterns have, and what they mean.
pub(crate) fn explanations(
    cells: impl Iterator<Item = (DataState, Pattern)>,
) -> Vec<(&'static str, &'static str)> {
    let explanations = [
        (
            " u",
            "unwritten blocks: no drive was asked, this is software's own cost",
        ),
        (
            " p",
            "partly written blocks: some requests reached no drive",
        ),
        (
            " f",
            "first writes, all or some: the file system had only reserved these blocks, and keeps \
             account of each",
        ),
        (
            " ?",
            "the device does not tell whether these blocks were written",
        ),
    ];
    let used: Vec<&str> = cells
        .map(|(state, pattern)| mark_of(state, pattern))
        .collect();
    let is_used = |(sign, _): &(&str, &str)| used.contains(sign);
    explanations.into_iter().filter(is_used).collect()
}

/// The mark of cells that did not become steady, if there are any, and what it means.
pub(crate) fn unsteady(
    mut cells: impl Iterator<Item = SteadyReport>,
) -> Option<(&'static str, &'static str)> {
    let text = "not steady: the numbers are of the last rounds all the same, and longer runs may \
                give others";
    cells.any(|cell| !cell.is_steady).then_some((" !", text))
}

/// Explains the marks that were used.
pub(crate) fn legend(cells: &[CellReport]) -> String {
    let mut explanations = explanations(cells.iter().map(|cell| (cell.state, cell.rw)));
    let steady = cells.iter().filter_map(|cell| cell.steady);
    explanations.extend(unsteady(steady));
    explanations
        .into_iter()
        .map(|(sign, text)| format!("{sign} = {text}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn both_units_of_bandwidth_are_shown() {
        assert_eq!(bandwidth(4_357_000_000), "4.357 (4.058)");
        assert_eq!(bandwidth(184_000_000_000), "184.0 (171.4)");
        assert_eq!(bandwidth(12_345_000_000), "12.35 (11.50)");
    }

    #[test]
    fn rates_are_short() {
        assert_eq!(format_rate(987.4), "987");
        assert_eq!(format_rate(65_432.0), "65.4k");
        assert_eq!(format_rate(1_950_000.0), "1.950M");
    }

    #[test]
    fn tables_show_what_was_measured_and_mark_what_was_not_written() {
        let text = render_tables(&fixture::report(true));
        for part in [
            "GB/s (GiB/s)",
            "randwrite",
            "950.0k u",
            "12.3k ",
            "p99.99",
            "0.950",
        ] {
            assert!(text.contains(part), "'{part}' is not in:\n{text}");
        }
        assert!(text.contains("u = unwritten"));
        assert!(!text.contains("p = partly"));
        assert!(!text.contains("randread"));
    }

    #[test]
    fn a_first_write_is_no_read_of_what_was_not_written() {
        let mut report = fixture::report(false);
        report.cells.retain(|cell| cell.rw.is_write());
        for state in [DataState::Unwritten, DataState::Partly] {
            report.cells[0].state = state;
            let text = render_tables(&report);
            assert!(text.contains("12.3k f"), "{text}");
            assert!(text.contains(" f = first writes"), "{text}");
            assert!(!text.contains("no drive"), "{text}");
        }
    }

    #[test]
    fn without_a_baseline_there_is_no_efficiency() {
        let text = render_tables(&fixture::report(false));
        assert!(!text.contains("Efficiency"));
    }

    #[test]
    fn a_run_without_cells_says_so() {
        let mut report = fixture::report(false);
        report.cells.clear();
        assert_eq!(render_tables(&report), "no cell was measured\n");
    }
}
