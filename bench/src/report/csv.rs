//! The cells as CSV, one a row, for spreadsheets.

use std::io::Write;

use super::Report;
use crate::steady::SteadyReport;

const COLUMNS: [&str; 26] = [
    "label",
    "rw",
    "bs",
    "iodepth",
    "numjobs",
    "state",
    "runtime_ms",
    "ios",
    "bytes",
    "iops",
    "bw_bytes",
    "lat_mean_ns",
    "lat_p50_ns",
    "lat_p99_ns",
    "lat_p99_9_ns",
    "lat_p99_99_ns",
    "lat_max_ns",
    "cpu_ns_per_io",
    "backend",
    "members",
    "baseline_bw_bytes",
    "efficiency",
    "steady",
    "steady_rounds",
    "steady_spread_percent",
    "steady_slope_percent",
];

/// Writes a line of column names and a line for each cell. Columns of the bare members are
/// empty where these were not measured, those of a steady state where none was asked for.
///
/// # Errors
///
/// What the writer returns.
pub fn write_csv(report: &Report, output: impl Write) -> std::io::Result<()> {
    let mut writer = csv::Writer::from_writer(output);
    writer.write_record(COLUMNS)?;
    for cell in &report.cells {
        let latency = &cell.lat_ns;
        let baseline = cell.baseline.as_ref();
        let steady = |show: &dyn Fn(&SteadyReport) -> String| {
            cell.steady.as_ref().map_or_else(String::new, show)
        };
        writer.write_record([
            report.label.clone().unwrap_or_default(),
            cell.rw.to_string(),
            cell.bs.to_string(),
            cell.iodepth.to_string(),
            cell.numjobs.to_string(),
            cell.state.to_string(),
            cell.runtime_ms.to_string(),
            cell.ios.to_string(),
            cell.bytes.to_string(),
            cell.iops.to_string(),
            cell.bw_bytes.to_string(),
            latency.mean.to_string(),
            latency.p50.to_string(),
            latency.p99.to_string(),
            latency.p99_9.to_string(),
            latency.p99_99.to_string(),
            latency.max.to_string(),
            cell.cpu_ns_per_io.to_string(),
            report.volume.backend.clone(),
            report.volume.members.len().to_string(),
            baseline.map_or_else(String::new, |bare| bare.baseline_bw_bytes.to_string()),
            baseline.map_or_else(String::new, |bare| bare.efficiency.to_string()),
            steady(&|steady| steady.is_steady.to_string()),
            steady(&|steady| steady.rounds.to_string()),
            steady(&|steady| steady.spread_percent.to_string()),
            steady(&|steady| steady.slope_percent.to_string()),
        ])?;
    }
    writer.flush()
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn one_row_for_each_cell_and_as_many_fields_as_columns() {
        let mut bytes = Vec::new();
        write_csv(&fixture::report(false), &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("label,rw,bs,"));
        assert!(lines[1].starts_with("a label,read,4096,128,1,unwritten,1000,950000,"));
        assert!(lines[1].ends_with(",uring,2,,,,,,"), "{}", lines[1]);
        let fields = |line: &str| line.split(',').count();
        assert!(lines.iter().all(|line| fields(line) == COLUMNS.len()));
    }
}
