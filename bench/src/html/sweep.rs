//! Sweeps of depth and lanes: the rate against what is in flight, and what it costs in latency.

use super::{Page, words};
use crate::chart::{Axis, HeatMap, LineChart, Point, Series, escape, heat_map};
use crate::report::format_rate;
use crate::run::{Run, RunCell, RunKind};
use crate::size::format_size;
use crate::sweep::{Sweep, has_sweeps, sweeps};

/// From this block size on rates are in bytes a second.
const BYTES_FROM: u64 = 128 << 10;

/// Up to so many sweeps all are unfolded.
const UNFOLDED_MAX: usize = 8;

/// Whether the page has this section: numbers of threads without depths have one of their own.
pub(super) fn is_swept(run: &Run) -> bool {
    run.kind == RunKind::Matrix && has_sweeps(&run.cells)
}

pub(super) fn section(page: &mut Page, run: &Run) {
    if !is_swept(run) {
        return;
    }
    let sweeps = sweeps(&run.cells);
    page.heading("What more in flight gives, and what it costs");
    page.paragraph(
        "On the left the rate against the requests in flight on each lane; on the right the mean \
         latency at that rate, every point marked with its depth. Where the line on the right turns \
         upwards, more in flight only waits longer.",
    );
    page.table(2, &HEADS.map(str::to_owned), &knees(&sweeps));
    let is_folded = sweeps.len() > UNFOLDED_MAX;
    for (number, sweep) in sweeps.iter().enumerate() {
        let title = title(sweep);
        if is_folded {
            let is_first = number == 0 || sweeps[number - 1].pattern != sweep.pattern;
            page.push(format_args!(
                "<details{}><summary>{}</summary>",
                if is_first { " open=\"open\"" } else { "" },
                escape(&title)
            ));
        }
        page.pair(|page| {
            page.figure(&title, &rates(sweep), &knee(sweep));
            page.figure(
                &format!("{title}: latency at that rate"),
                &latencies(sweep),
                if has_percentile(sweep) {
                    "Dashed: the 99th percentile."
                } else {
                    ""
                },
            );
            if sweep.is_grid() {
                page.figure(&format!("{title}: {}", rate_name(sweep)), &heat(sweep), "");
            }
        });
        if is_folded {
            page.push(format_args!("</details>"));
        }
    }
}

const HEADS: [&str; 10] = [
    "pattern", "block", "best at", "IOPS", "GB/s", "mean", "p99", "enough", "IOPS", "mean",
];

/// Where each sweep is at its best, and what is enough.
fn knees(sweeps: &[Sweep<'_, RunCell>]) -> Vec<Vec<String>> {
    let row = |sweep: &Sweep<'_, RunCell>| {
        let (best, knee) = (sweep.best()?, sweep.knee()?);
        Some(vec![
            words::name(sweep.pattern).to_owned(),
            words::size(sweep.block_bytes),
            place(best),
            format!("{}{}", format_rate(best.iops), words::marks(best)),
            words::gb(best.bw_bytes as f64),
            words::time(best.lat_ns.mean),
            words::time(best.lat_ns.p99 as f64),
            place(knee),
            format!("{}{}", format_rate(knee.iops), words::marks(knee)),
            words::time(knee.lat_ns.mean),
        ])
    };
    sweeps.iter().filter_map(row).collect()
}

/// `2 x 32`.
fn place(cell: &RunCell) -> String {
    format!("{} x {}", cell.numjobs, cell.iodepth)
}

fn title(sweep: &Sweep<'_, RunCell>) -> String {
    let size = words::size(sweep.block_bytes);
    format!("{} {size}", words::title(sweep.pattern))
}

/// What is enough, in a sentence.
fn knee(sweep: &Sweep<'_, RunCell>) -> String {
    let (Some(best), Some(knee)) = (sweep.best(), sweep.knee()) else {
        return String::new();
    };
    let plural = if knee.numjobs == 1 { "" } else { "s" };
    let place = format!("{} lane{plural} at depth {}", knee.numjobs, knee.iodepth);
    let mean = words::time(knee.lat_ns.mean);
    if std::ptr::eq(best, knee) {
        return format!(
            "The best is {place}, {} IOPS with a mean latency of {mean}; nothing with less in flight \
             comes within 5 % of it.",
            format_rate(best.iops)
        );
    }
    format!(
        "{place} come within 5 % of the best: {} of {} IOPS, with a mean latency of {mean} instead of \
         {}.",
        format_rate(knee.iops),
        format_rate(best.iops),
        words::time(best.lat_ns.mean)
    )
}

fn is_in_bytes(sweep: &Sweep<'_, RunCell>) -> bool {
    sweep.block_bytes >= BYTES_FROM
}

fn rate_name(sweep: &Sweep<'_, RunCell>) -> &'static str {
    if is_in_bytes(sweep) { "GB/s" } else { "IOPS" }
}

fn rate(sweep: &Sweep<'_, RunCell>, cell: &RunCell) -> f64 {
    if is_in_bytes(sweep) {
        cell.bw_bytes as f64 / 1e9
    } else {
        cell.iops
    }
}

/// Whether lanes are the lines of a chart; else they are its points, each with a depth of its own.
fn is_by_depth(sweep: &Sweep<'_, RunCell>) -> bool {
    sweep.is_grid() || sweep.lanes.len() == 1
}

/// With one line there is room for another.
fn has_percentile(sweep: &Sweep<'_, RunCell>) -> bool {
    !sweep.is_grid()
}

/// A line for each number of lanes, or one line over them.
fn lines(sweep: &Sweep<'_, RunCell>, point: &dyn Fn(&RunCell) -> Point) -> Vec<Series> {
    let of = |name: String, place: usize, cells: Vec<&RunCell>| Series {
        name,
        class: ["s0", "s1", "s2", "s3"][place % 4],
        marker: place % 4,
        is_dashed: place % 8 >= 4,
        gap_max: f64::INFINITY,
        points: cells.into_iter().map(point).collect(),
    };
    if !sweep.is_grid() {
        let place = words::place(sweep.pattern);
        return vec![of(rate_name(sweep).to_owned(), place, sweep.cells.clone())];
    }
    let lanes = sweep.lanes.iter().enumerate();
    lanes
        .map(|(place, &lanes)| {
            let cells = sweep.cells.iter().copied();
            let plural = if lanes == 1 { "" } else { "s" };
            of(
                format!("{lanes} lane{plural}"),
                place,
                cells.filter(|cell| cell.numjobs == lanes).collect(),
            )
        })
        .collect()
}

fn rates(sweep: &Sweep<'_, RunCell>) -> String {
    let by_depth = is_by_depth(sweep);
    let series = lines(sweep, &|cell| {
        let value = rate(sweep, cell);
        let part = |bytes: u64| value * bytes as f64 / cell.bw_bytes as f64;
        let at = if by_depth { cell.iodepth } else { cell.numjobs };
        Point {
            x: f64::from(at).log2(),
            y: value,
            range: cell.spread().map(|(low, high)| (part(low), part(high))),
            label: String::new(),
            note: words::note(cell),
        }
    });
    let points = series.iter().flat_map(|line| &line.points);
    let highest = points.map(|point| point.range.map_or(point.y, |range| range.1));
    let (name, values) = if by_depth {
        ("In flight on each lane", &sweep.depths)
    } else {
        ("Lanes", &sweep.lanes)
    };
    let format = if is_in_bytes(sweep) {
        words::plain
    } else {
        words::axis_rate
    };
    LineChart {
        title: &format!("{} by depth and lanes: {}", title(sweep), rate_name(sweep)),
        width: 520.0,
        height: 280.0,
        x: Axis::counts(name, values),
        y: Axis::linear(rate_name(sweep), highest.fold(0.0, f64::max), format),
        bands: Vec::new(),
        series,
    }
    .render()
}

fn latencies(sweep: &Sweep<'_, RunCell>) -> String {
    let point = |cell: &RunCell, ns: f64, is_labelled: bool| Point {
        x: rate(sweep, cell),
        y: ns,
        range: None,
        label: match (is_labelled, is_by_depth(sweep)) {
            (false, _) => String::new(),
            (true, true) => cell.iodepth.to_string(),
            (true, false) => place(cell),
        },
        note: words::note(cell),
    };
    let mut series = lines(sweep, &|cell| point(cell, cell.lat_ns.mean, true));
    if has_percentile(sweep)
        && let Some(mean) = series.first_mut()
    {
        "mean".clone_into(&mut mean.name);
        let class = mean.class;
        series.push(Series {
            name: "p99".to_owned(),
            class,
            marker: 3,
            is_dashed: true,
            gap_max: f64::INFINITY,
            points: sweep
                .cells
                .iter()
                .map(|cell| point(cell, cell.lat_ns.p99 as f64, false))
                .collect(),
        });
    }
    let points = || series.iter().flat_map(|line| &line.points);
    let format = if is_in_bytes(sweep) {
        words::plain
    } else {
        words::axis_rate
    };
    LineChart {
        title: &format!("{}: latency against {}", title(sweep), rate_name(sweep)),
        width: 520.0,
        height: 280.0,
        x: Axis::linear(
            rate_name(sweep),
            points().map(|point| point.x).fold(0.0, f64::max),
            format,
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

fn heat(sweep: &Sweep<'_, RunCell>) -> String {
    let in_bytes = is_in_bytes(sweep);
    let field = |cell: &RunCell| {
        let value = rate(sweep, cell);
        let mut text = if in_bytes {
            words::gb(cell.bw_bytes as f64)
        } else {
            short_rate(cell.iops)
        };
        text.push_str(words::unsteady_mark(cell));
        (value, text, words::note(cell))
    };
    let places = sweep.lanes.iter();
    let places = places.flat_map(|lanes| sweep.depths.iter().map(move |depth| (*lanes, *depth)));
    let fields: Vec<_> = places
        .map(|(lanes, depth)| sweep.at(lanes, depth).map(field))
        .collect();
    let max = fields.iter().flatten().map(|field| field.0);
    heat_map(&HeatMap {
        title: &format!(
            "{} {} by lanes and depth",
            sweep.pattern,
            format_size(sweep.block_bytes)
        ),
        row_name: "Lanes",
        rows: sweep.lanes.iter().map(u32::to_string).collect(),
        column_name: if in_bytes {
            "Depth, GB/s in each field"
        } else {
            "Depth, IOPS in each field"
        },
        columns: sweep.depths.iter().map(u32::to_string).collect(),
        max: max.fold(0.0, f64::max),
        fields,
    })
}

/// A rate that fits a field: `950`, `65.4k`, `455k`, `1.95M`.
fn short_rate(rate: f64) -> String {
    match rate {
        rate if rate < 99_950.0 => format_rate(rate),
        rate if rate < 999_500.0 => format!("{:.0}k", rate / 1e3),
        rate => format!("{:.2}M", rate / 1e6),
    }
}
