//! A run that sweeps depths or lanes, as tables: where each sweep is at its best and how much in
//! flight is enough, and then every sweep by itself.

use comfy_table::Table;

use super::table::{bandwidth, efficiency, gigabytes, marks, matrix, micros, row, table};
use super::{CellReport, Report, format_rate};
use crate::size::format_size;
use crate::sweep::{Sweep, Swept, sweeps};
use crate::workload::Cell;

/// From this block size on a rate is told in bytes where there is room for one of the two.
const BYTES_FROM: u64 = 128 << 10;

impl Swept for CellReport {
    fn cell(&self) -> Cell {
        Cell {
            pattern: self.rw,
            block_bytes: self.bs,
            depth: self.iodepth,
            lanes: self.numjobs,
        }
    }

    fn rate(&self) -> f64 {
        self.iops
    }
}

/// The titles and tables of a run that has sweeps.
pub(super) fn sections(report: &Report) -> Vec<(String, Table)> {
    let sweeps = sweeps(&report.cells);
    let mut sections = Vec::new();
    if sweeps.len() > 1 {
        let mut best: Vec<CellReport> = sweeps.iter().filter_map(Sweep::best).cloned().collect();
        best.sort_by_key(|cell| cell.bs);
        sections.push((
            "Bandwidth, GB/s (GiB/s), the best of each sweep".to_owned(),
            matrix(&best, |cell| bandwidth(cell.bw_bytes)),
        ));
        sections.push((
            "IOPS, the best of each sweep".to_owned(),
            matrix(&best, |cell| format_rate(cell.iops)),
        ));
    }
    sections.push((
        "The best of each sweep, and the least in flight within 5 % of it (lanes x depth, latency in \
         microseconds)"
            .to_owned(),
        knees(&sweeps),
    ));
    for sweep in &sweeps {
        let name = format!("{} {}", sweep.pattern, format_size(sweep.block_bytes));
        sections.push(if sweep.is_grid() {
            (
                format!(
                    "{name} by depth and lanes: {}, latency in microseconds",
                    rate_name(sweep)
                ),
                grid(sweep),
            )
        } else {
            let by = if sweep.lanes.len() > 1 {
                "lanes"
            } else {
                "depth"
            };
            (
                format!(
                    "{name} by {by}: latency in microseconds, and CPU time for each I/O in \
                     nanoseconds"
                ),
                list(sweep),
            )
        });
    }
    sections
}

fn knees(sweeps: &[Sweep<'_, CellReport>]) -> Table {
    let header = [
        "rw", "bs", "best", "IOPS", "GB/s", "mean", "p99", "enough", "IOPS", "GB/s", "mean", "p99",
    ];
    let mut table = table(&header.map(str::to_owned), 2);
    for sweep in sweeps {
        let mut texts = vec![sweep.pattern.to_string(), format_size(sweep.block_bytes)];
        for cell in [sweep.best(), sweep.knee()].into_iter().flatten() {
            texts.extend([
                format!("{} x {}", cell.numjobs, cell.iodepth),
                format_rate(cell.iops) + &marks(cell),
                gigabytes(cell.bw_bytes),
                micros(cell.lat_ns.mean),
                micros(cell.lat_ns.p99 as f64),
            ]);
        }
        table.add_row(row(&texts, 2));
    }
    table
}

/// All numbers, a cell a row.
fn list(sweep: &Sweep<'_, CellReport>) -> Table {
    let has_bare = sweep.cells.iter().any(|cell| cell.baseline.is_some());
    let mut header = vec![
        "lanes", "depth", "GB/s", "IOPS", "mean", "p50", "p99", "p99.9",
    ];
    header.extend(["p99.99", "max", "CPU/IO"]);
    header.extend(has_bare.then_some("efficiency"));
    let header: Vec<String> = header.into_iter().map(str::to_owned).collect();
    let mut table = table(&header, 0);
    for cell in &sweep.cells {
        let latency = &cell.lat_ns;
        let mut texts = vec![
            cell.numjobs.to_string(),
            cell.iodepth.to_string(),
            gigabytes(cell.bw_bytes),
            format_rate(cell.iops) + &marks(cell),
            micros(latency.mean),
        ];
        let percentiles = [
            latency.p50,
            latency.p99,
            latency.p99_9,
            latency.p99_99,
            latency.max,
        ];
        texts.extend(percentiles.map(|ns| micros(ns as f64)));
        texts.push(format!("{:.0}", cell.cpu_ns_per_io));
        texts.extend(has_bare.then(|| efficiency(cell)));
        table.add_row(row(&texts, 0));
    }
    table
}

fn is_in_bytes(sweep: &Sweep<'_, CellReport>) -> bool {
    sweep.block_bytes >= BYTES_FROM
}

fn rate_name(sweep: &Sweep<'_, CellReport>) -> &'static str {
    if is_in_bytes(sweep) { "GB/s" } else { "IOPS" }
}

/// Writes one number of a cell.
type Show = Box<dyn Fn(&CellReport) -> String>;

/// Depths down, and for each measure the lanes across: what belongs together stands together.
fn grid(sweep: &Sweep<'_, CellReport>) -> Table {
    let in_bytes = is_in_bytes(sweep);
    let mut measures: Vec<(&str, Show)> = vec![
        (
            rate_name(sweep),
            Box::new(move |cell| {
                let rate = if in_bytes {
                    gigabytes(cell.bw_bytes)
                } else {
                    format_rate(cell.iops)
                };
                rate + &marks(cell)
            }),
        ),
        ("mean", Box::new(|cell| micros(cell.lat_ns.mean))),
        ("p99", Box::new(|cell| micros(cell.lat_ns.p99 as f64))),
    ];
    if sweep.cells.iter().any(|cell| cell.baseline.is_some()) {
        measures.push(("efficiency", Box::new(efficiency)));
    }
    let mut header = vec!["depth".to_owned()];
    for (name, _) in &measures {
        header.extend(sweep.lanes.iter().map(|lanes| format!("{name} x{lanes}")));
    }
    let mut table = table(&header, 1);
    for &depth in &sweep.depths {
        let mut texts = vec![depth.to_string()];
        for (_, show) in &measures {
            texts.extend(sweep.lanes.iter().map(|&lanes| {
                let cell = sweep.at(lanes, depth);
                cell.map_or_else(|| "-".to_owned(), show)
            }));
        }
        table.add_row(row(&texts, 1));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::{fixture, render_tables};

    #[test]
    fn a_sweep_of_one_kind_is_a_list_and_of_both_a_grid() {
        let text = render_tables(&fixture::swept(&[1], &[1, 8, 64]));
        for part in [
            "within 5 %",
            "randread 4k by depth",
            "1 x 64",
            "p99.99",
            "write 1m by depth",
            "IOPS, the best of each sweep",
        ] {
            assert!(text.contains(part), "'{part}' is not in:\n{text}");
        }
        assert!(!text.contains("x1 "), "{text}");
        let text = render_tables(&fixture::swept(&[1, 4], &[1, 8, 64]));
        for part in [
            "randread 4k by depth and lanes: IOPS",
            "IOPS x1",
            "mean x4",
            "p99 x4",
            "write 1m by depth and lanes: GB/s",
            "GB/s x4",
            "4 x 64",
        ] {
            assert!(text.contains(part), "'{part}' is not in:\n{text}");
        }
        assert!(!text.contains("CPU/IO"), "{text}");
    }

    #[test]
    fn what_an_interrupt_left_out_is_a_dash() {
        let mut report = fixture::swept(&[1, 4], &[1, 8]);
        report.cells.truncate(3);
        let text = render_tables(&report);
        assert!(text.contains(" - "), "{text}");
    }
}
