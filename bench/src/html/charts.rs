//! Bandwidth and IOPS by block size, and threads by sizes where there are several numbers of them.

use super::sweep::is_swept;
use super::{Page, words};
use crate::chart::{Axis, HeatMap, LineChart, Point, Series, heat_map};
use crate::report::format_rate;
use crate::run::{Run, RunCell};
use crate::workload::Pattern;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 380.0;

pub(super) fn section(page: &mut Page, run: &Run) {
    // One size that was swept has its charts already.
    if run.cells.is_empty() || is_swept(run) && run.sizes().len() == 1 {
        return;
    }
    let several = match (run.lanes().len() > 1, is_swept(run)) {
        (_, true) => " Of each sweep the best is drawn.",
        (true, false) => " Of several numbers of lanes the best is drawn.",
        (false, false) => "",
    };
    page.heading("Bandwidth and IOPS by block size");
    page.figure(
        "Bandwidth",
        &by_size(
            run,
            "Bandwidth by block size",
            |cell| cell.bw_bytes as f64 / 1e9,
            false,
        ),
        &format!("Decimal GB/s over the block size; random patterns are dashed.{several}"),
    );
    page.figure(
        "IOPS",
        &by_size(run, "IOPS by block size", |cell| cell.iops, true),
        "Requests completed a second, on a logarithmic scale: a straight line down to the right is a \
         constant bandwidth.",
    );
    heat_maps(page, run);
}

fn by_size(run: &Run, title: &str, value: fn(&RunCell) -> f64, is_log: bool) -> String {
    let per_size = |cell: &RunCell, bandwidth: u64| {
        value(cell) * bandwidth as f64 / (cell.bw_bytes.max(1)) as f64
    };
    let point = |cell: &RunCell| Point {
        x: words::power(cell.bs),
        y: value(cell),
        range: cell
            .spread()
            .map(|(low, high)| (per_size(cell, low), per_size(cell, high))),
        label: String::new(),
        note: words::note(cell),
    };
    let mut series: Vec<Series> = Vec::new();
    for pattern in run.patterns() {
        series.push(Series {
            name: words::short(pattern).to_owned(),
            class: words::class(pattern),
            marker: words::place(pattern),
            is_dashed: pattern.is_random(),
            gap_max: f64::INFINITY,
            points: run.best_by_size(pattern).into_iter().map(point).collect(),
        });
    }
    let values = || series.iter().flat_map(|line| line.points.iter());
    let y = if is_log {
        Axis::log("IOPS", values().map(|point| point.y), words::axis_rate)
    } else {
        let highest = values().map(|point| point.range.map_or(point.y, |range| range.1));
        Axis::linear("GB/s", highest.fold(0.0, f64::max), words::plain)
    };
    LineChart {
        title,
        width: WIDTH,
        height: HEIGHT,
        x: Axis::sizes("Block size", &run.sizes()),
        y,
        bands: Vec::new(),
        series,
    }
    .render()
}

fn heat_maps(page: &mut Page, run: &Run) {
    if run.lanes().len() < 2 || is_swept(run) {
        return;
    }
    page.heading("Threads by block sizes");
    page.paragraph(
        "GB/s of each number of threads (lanes) at each block size; the colour is stronger the \
         faster it is, from 0 to the fastest of the pattern.",
    );
    page.pair(|page| {
        for pattern in run.patterns() {
            let svg = heat(run, pattern);
            page.figure(words::title(pattern), &svg, "");
        }
    });
}

fn heat(run: &Run, pattern: Pattern) -> String {
    let (lanes, sizes) = (run.lanes(), run.sizes());
    let find = |lanes: u32, bs: u64| {
        let cells = run.cells.iter();
        let same =
            cells.filter(|cell| cell.rw == pattern && cell.bs == bs && cell.numjobs == lanes);
        same.max_by_key(|cell| cell.bw_bytes)
    };
    let field = |cell: &RunCell| {
        let value = cell.bw_bytes as f64;
        let note = format!("{}, {} IOPS", words::note(cell), format_rate(cell.iops));
        (value, words::gb(value), note)
    };
    let places = lanes
        .iter()
        .flat_map(|lane| sizes.iter().map(move |size| (*lane, *size)));
    let fields: Vec<_> = places
        .map(|(lane, size)| find(lane, size).map(field))
        .collect();
    let max = fields
        .iter()
        .flatten()
        .map(|field| field.0)
        .fold(0.0, f64::max);
    heat_map(&HeatMap {
        title: &format!("{} by threads and block size", words::title(pattern)),
        row_name: "Threads",
        rows: lanes.iter().map(u32::to_string).collect(),
        column_name: "Block size, GB/s in each field",
        columns: sizes.iter().map(|size| words::size(*size)).collect(),
        fields,
        max,
    })
}
