//! Latency: percentiles by block size, the shape of the histogram, and latency against load.

use super::{Page, words};
use crate::chart::{Axis, LineChart, Point, Series, histogram};
use crate::latency::LatencySummary;
use crate::reference::{LOADED, LOADED_AT_LENGTH, LOADED_DRIVES, Peak, peaks};
use crate::report::format_rate;
use crate::run::{Run, RunWorkload};
use crate::workload::Pattern;

/// A percentile that is drawn as a line.
type Percentile = (&'static str, &'static str, fn(&LatencySummary) -> u64);

const PERCENTILES: [Percentile; 3] = [
    ("p50", "s0", |latency| latency.p50),
    ("p99", "s2", |latency| latency.p99),
    ("p99.9", "s1", |latency| latency.p99_9),
];

pub(super) fn section(page: &mut Page, run: &Run) {
    if !run.workloads.is_empty() {
        page.heading("Latency against load");
        page.paragraph(
            "How long requests took while so many completed in a second. Where the line turns upwards \
             requests begin to queue.",
        );
        page.pair(|page| {
            for curve in run
                .workloads
                .iter()
                .filter(|curve| !curve.points.is_empty())
            {
                page.figure(&curve.name, &load_curve(run, curve), &beside(curve));
            }
        });
    }
    if run.cells.is_empty() {
        return;
    }
    page.heading("Latency by block size");
    page.paragraph(
        "From the push of a request to its completion, with the depth of the table below; at a \
         constant depth a volume that is twice as fast has half the latency.",
    );
    page.pair(|page| {
        for pattern in run.patterns() {
            page.figure(words::title(pattern), &by_size(run, pattern), "");
        }
    });
    histograms(page, run);
}

fn by_size(run: &Run, pattern: Pattern) -> String {
    let cells = run.best_by_size(pattern);
    let series: Vec<Series> = PERCENTILES
        .iter()
        .enumerate()
        .map(|(place, (name, class, value))| Series {
            name: (*name).to_owned(),
            class,
            marker: place,
            is_dashed: place == 2,
            gap_max: f64::INFINITY,
            points: cells
                .iter()
                .map(|cell| Point {
                    x: words::power(cell.bs),
                    y: value(&cell.lat_ns) as f64,
                    range: None,
                    note: format!(
                        "{name} {}; {}",
                        words::time(value(&cell.lat_ns) as f64),
                        words::note(cell)
                    ),
                })
                .collect(),
        })
        .collect();
    let values = series
        .iter()
        .flat_map(|line| &line.points)
        .map(|point| point.y);
    LineChart {
        title: &format!("Latency of {} by block size", words::name(pattern)),
        width: 520.0,
        height: 260.0,
        x: Axis::sizes("Block size", &run.sizes()),
        y: Axis::log("Latency, logarithmic", values, words::axis_time),
        bands: Vec::new(),
        series,
    }
    .render()
}

/// The histogram of each pattern at its smallest block size.
fn histograms(page: &mut Page, run: &Run) {
    let smallest = run.patterns().into_iter().filter_map(|pattern| {
        let cell = run.best_by_size(pattern).into_iter().next()?;
        (cell.lat_ns_bins.total() > 0).then_some(cell)
    });
    let cells: Vec<_> = smallest.collect();
    if cells.is_empty() {
        return;
    }
    page.heading("Latency histograms");
    page.paragraph(
        "How the requests of the smallest block size share out over latencies, on a logarithmic axis: \
         equal areas are equally many requests. Bars of less than a thousandth of a percent are left \
         out; the percentiles count them.",
    );
    page.pair(|page| {
        for cell in cells {
            let title = format!("{} {}", words::title(cell.rw), words::size(cell.bs));
            let marks = [
                (cell.lat_ns.p50 as f64, "p50"),
                (cell.lat_ns.p99 as f64, "p99"),
                (cell.lat_ns.p99_9 as f64, "p99.9"),
            ];
            let svg = histogram(
                &format!("Latency histogram, {title}"),
                words::class(cell.rw),
                &cell.lat_ns_bins,
                &marks,
                words::axis_time,
            );
            page.figure(&title, &svg, "");
        }
    });
}

fn load_curve(run: &Run, curve: &RunWorkload) -> String {
    let mut series: Vec<Series> = PERCENTILES
        .iter()
        .enumerate()
        .map(|(place, (name, class, value))| Series {
            name: (*name).to_owned(),
            class,
            marker: place,
            is_dashed: place == 2,
            gap_max: f64::INFINITY,
            points: curve
                .points
                .iter()
                .map(|point| {
                    let load = point.percent.map_or(String::new(), |load| {
                        format!(", asked for {load:.0} % of the peak")
                    });
                    Point {
                        x: point.achieved_iops,
                        y: value(&point.lat_ns) as f64,
                        range: None,
                        note: format!(
                            "{name} {} at {} IOPS{load}",
                            words::time(value(&point.lat_ns) as f64),
                            format_rate(point.achieved_iops)
                        ),
                    }
                })
                .collect(),
        })
        .collect();
    series.extend(peak(curve).map(|peak| {
        let start = peak.start_latency_us.map_or(String::new(), |start| {
            format!(", from {start} µs at the lowest load")
        });
        Series {
            name: LOADED.to_owned(),
            class: "ref",
            marker: 3,
            is_dashed: false,
            gap_max: f64::INFINITY,
            points: vec![Point {
                x: peak.iops * run.member_count(),
                y: peak.latency_us * 1e3,
                range: None,
                note: format!(
                    "{LOADED}, {}: {} IOPS per drive at the peak, {} µs there{start}",
                    peak.workload,
                    format_rate(peak.iops),
                    peak.latency_us
                ),
            }],
        }
    }));
    let points = || series.iter().flat_map(|line| &line.points);
    LineChart {
        title: &format!("Latency against load, {}", curve.name),
        width: 520.0,
        height: 300.0,
        x: Axis::linear(
            "IOPS",
            points().map(|point| point.x).fold(0.0, f64::max),
            words::axis_rate,
        ),
        y: Axis::log(
            "Latency, logarithmic",
            points().map(|point| point.y),
            words::axis_time,
        ),
        bands: Vec::new(),
        series,
    }
    .render()
}

/// The peak of the reference server at the same workload.
fn peak(curve: &RunWorkload) -> Option<Peak> {
    let (pattern, block_bytes) = curve.corner()?;
    let is_same = |peak: &Peak| peak.pattern == pattern && peak.block_bytes == block_bytes;
    peaks().into_iter().find(is_same)
}

/// What is said of it.
fn beside(curve: &RunWorkload) -> String {
    if peak(curve).is_none() {
        return String::new();
    }
    format!(
        "Grey: the peak of the {LOADED}, mean latency, times this run's members and divided by its \
         {LOADED_DRIVES} drives. {LOADED_AT_LENGTH}."
    )
}
