//! The points as CSV, one a row, for spreadsheets.

use std::io::Write;

use super::report::{CurveReport, PointReport, WorkloadReport};

const COLUMNS: [&str; 21] = [
    "label",
    "profile",
    "approximation",
    "threads",
    "outstanding",
    "state",
    "percent",
    "target_iops",
    "offered_iops",
    "achieved_iops",
    "saturated",
    "ios",
    "unserved",
    "bw_bytes",
    "lat_mean_ns",
    "lat_p50_ns",
    "lat_p99_ns",
    "lat_p99_9_ns",
    "lat_p99_99_ns",
    "lat_max_ns",
    "cpu_ns_per_io",
];

/// Writes a line of column names and a line for each point. The uncapped run of a profile comes
/// first, and has no load and no target.
///
/// # Errors
///
/// What the writer returns.
pub fn write_curve_csv(report: &CurveReport, output: impl Write) -> std::io::Result<()> {
    let mut writer = csv::Writer::from_writer(output);
    writer.write_record(COLUMNS)?;
    for workload in &report.workloads {
        for point in workload.peak.iter().chain(&workload.points) {
            writer.write_record(row(report, workload, point))?;
        }
    }
    writer.flush()
}

fn row(report: &CurveReport, workload: &WorkloadReport, point: &PointReport) -> [String; 21] {
    let or_empty = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let latency = &point.lat_ns;
    [
        report.label.clone().unwrap_or_default(),
        workload.profile.name.clone(),
        workload.profile.approximation.to_string(),
        workload.profile.threads.to_string(),
        workload.profile.outstanding.to_string(),
        workload.state.to_string(),
        or_empty(point.percent),
        or_empty(point.target_iops),
        point.offered_iops.to_string(),
        point.achieved_iops.to_string(),
        point.saturated.to_string(),
        point.ios.to_string(),
        point.unserved.to_string(),
        point.bw_bytes.to_string(),
        latency.mean.to_string(),
        latency.p50.to_string(),
        latency.p99.to_string(),
        latency.p99_9.to_string(),
        latency.p99_99.to_string(),
        latency.max.to_string(),
        point.cpu_ns_per_io.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::report::fixture;
    use super::*;

    #[test]
    fn one_row_for_each_point_and_as_many_fields_as_columns() {
        let mut bytes = Vec::new();
        write_curve_csv(&fixture::report(), &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[0].starts_with("label,profile,"));
        let peak = "a label,sql-90-10,true,1,64,unwritten,,,1000,1000,false,1000,0,4096000,";
        assert!(lines[1].starts_with(peak), "{}", lines[1]);
        assert!(
            lines[3].contains(",120,1200,1200,900,true,1005,195,"),
            "{}",
            lines[3]
        );
        let fields = |line: &str| line.split(',').count();
        assert!(lines.iter().all(|line| fields(line) == COLUMNS.len()));
    }
}
