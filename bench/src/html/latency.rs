//! Latency: percentiles by block size, and the shape of the histogram.

use super::sweep::is_swept;
use super::{Page, words};
use crate::chart::{Axis, LineChart, Point, Series, histogram};
use crate::latency::LatencySummary;
use crate::run::Run;
use crate::workload::Pattern;

/// A percentile that is drawn as a line.
type Percentile = (&'static str, &'static str, fn(&LatencySummary) -> u64);

const PERCENTILES: [Percentile; 3] = [
    ("p50", "s0", |latency| latency.p50),
    ("p99", "s2", |latency| latency.p99),
    ("p99.9", "s1", |latency| latency.p99_9),
];

pub(super) fn section(page: &mut Page, run: &Run) {
    if run.cells.is_empty() {
        return;
    }
    let is_swept = is_swept(run);
    if !is_swept || run.sizes().len() > 1 {
        page.heading("Latency by block size");
        page.paragraph(format_args!(
            "From the push of a request to its completion, with the depth of the table below; at a \
             constant depth a volume that is twice as fast has half the latency.{}",
            if is_swept {
                " Of each sweep the cell with the most bandwidth is drawn."
            } else {
                ""
            }
        ));
        page.pair(|page| {
            for pattern in run.patterns() {
                page.figure(words::title(pattern), &by_size(run, pattern), "");
            }
        });
    }
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
                    label: String::new(),
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
