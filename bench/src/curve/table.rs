//! The report as tables: one for each profile, a line for each load.

use super::report::{CurveReport, PointReport, WorkloadReport};
use crate::report::table::{gigabytes, micros, row, table};
use crate::report::{format_rate, render_backend};
use crate::subject::DataState;

/// All tables, ready to print. Says so when there is nothing to show.
pub fn render_curves(report: &CurveReport) -> String {
    if report.workloads.is_empty() {
        return "no point was measured\n".to_owned();
    }
    let mut text = format!("\n{}", render_backend(&report.volume));
    for workload in &report.workloads {
        text.push_str(&render_workload(workload));
    }
    text.push_str(&format!(
        "\nArrivals: {}. Latency in microseconds, from the intended start. CPU/IO in nanoseconds, \
         with the polling for arrivals.\n",
        report.arrivals
    ));
    let points = || {
        report
            .workloads
            .iter()
            .flat_map(|workload| &workload.points)
    };
    if points().any(|point| point.saturated) {
        text.push_str("* beyond saturation: less was achieved than was offered\n");
    }
    let unserved: u64 = points().map(|point| point.unserved).sum();
    if unserved > 0 {
        text.push_str(&format!(
            "{unserved} requests were not done in as long a time again; their latency is not among \
             these\n"
        ));
    }
    text
}

fn render_workload(workload: &WorkloadReport) -> String {
    let profile = &workload.profile;
    let mark = if profile.approximation {
        " (approximation)"
    } else {
        ""
    };
    let state = match workload.state {
        DataState::Written => String::new(),
        state => format!("; blocks {state}"),
    };
    let header = [
        "load", "offered", "achieved", "GB/s", "mean", "p50", "p99", "p99.9", "max", "CPU/IO",
    ];
    let mut table = table(&header.map(str::to_owned), 1);
    for point in workload.peak.iter().chain(&workload.points) {
        table.add_row(row(&texts(point), 1));
    }
    format!(
        "\n{}{mark}: {}{state}\n{table}\n",
        profile.name, profile.summary
    )
}

fn texts(point: &PointReport) -> [String; 10] {
    let latency = &point.lat_ns;
    let load = match point.percent {
        None => "uncapped".to_owned(),
        Some(percent) if point.saturated => format!("{percent}% *"),
        Some(percent) => format!("{percent}%"),
    };
    [
        load,
        point
            .percent
            .map_or_else(|| "-".to_owned(), |_| format_rate(point.offered_iops)),
        format_rate(point.achieved_iops),
        gigabytes(point.bw_bytes),
        micros(latency.mean),
        micros(latency.p50 as f64),
        micros(latency.p99 as f64),
        micros(latency.p99_9 as f64),
        micros(latency.max as f64),
        format!("{:.0}", point.cpu_ns_per_io),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::report::fixture;
    use super::*;

    #[test]
    fn a_table_shows_loads_and_marks_what_is_saturated_or_an_approximation() {
        let mut report = fixture::report();
        let text = render_curves(&report);
        for part in [
            "sql-90-10 (approximation): 90% reads",
            "blocks unwritten",
            "uncapped",
            "50% ",
            "120% *",
            "* beyond saturation",
            " 900 ",
            "195 requests were not done",
            "poisson",
        ] {
            assert!(text.contains(part), "'{part}' is not in:\n{text}");
        }
        report.workloads.clear();
        assert_eq!(render_curves(&report), "no point was measured\n");
    }
}
