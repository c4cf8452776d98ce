//! Latency against load, as `swath-curve` measures it: the peaks, a chart and a table of each profile.

use super::{Page, words};
use crate::chart::{Axis, LineChart, Point, Series, escape};
use crate::latency::LatencySummary;
use crate::reference::{LOADED, LOADED_AT_LENGTH, LOADED_DRIVES, Peak, peaks};
use crate::report::format_rate;
use crate::run::{Run, RunPoint, RunWorkload};

/// What is drawn as a line: its name, the class of its colour, its value.
type Line = (&'static str, &'static str, fn(&LatencySummary) -> f64);

const LINES: [Line; 3] = [
    ("mean", "s0", |latency| latency.mean),
    ("p99", "s2", |latency| latency.p99 as f64),
    ("p99.9", "s1", |latency| latency.p99_9 as f64),
];

/// What most drives are run at, in percent of the peak: the tile tells the latency there.
const USUAL_PERCENT: f64 = 50.0;

/// A published peak of so many times the curve's own is told and not drawn.
const FAR_OFF: f64 = 2.0;

/// Colours of tiles, in turn.
const CLASSES: [&str; 4] = ["s0", "s1", "s2", "s3"];

/// The peak of each profile, and how long requests take at half of it.
pub(super) fn tiles(page: &mut Page, run: &Run) {
    page.push(format_args!("<div class=\"tiles\">"));
    for (curve, class) in measured(run).zip(CLASSES.iter().cycle()) {
        tile(page, curve, class);
    }
    page.push(format_args!("</div>"));
}

fn tile(page: &mut Page, curve: &RunWorkload, class: &str) {
    let points = curve.peak.iter().chain(&curve.points);
    let Some(best) = points.max_by(|one, other| one.achieved_iops.total_cmp(&other.achieved_iops))
    else {
        return;
    };
    let bandwidth = match best.bw_bytes {
        0 => String::new(),
        bytes => format!("<span>{} GB/s</span>", words::gb(bytes as f64)),
    };
    let nearest = curve.points.iter().min_by(|one, other| {
        let far = |point: &RunPoint| (point.percent.unwrap_or(f64::MAX) - USUAL_PERCENT).abs();
        far(one).total_cmp(&far(other))
    });
    let usual = nearest.map_or_else(String::new, |point| {
        format!(
            "<span>at {}: mean {},</span><span>p99 {}</span>",
            load(point),
            escape(words::time(point.lat_ns.mean)),
            escape(words::time(point.lat_ns.p99 as f64))
        )
    });
    page.push(format_args!(
        "<div class=\"tile {class}\"><span class=\"what\">{}</span><b>{} IOPS</b>\
         {bandwidth}{usual}</div>",
        escape(&curve.name),
        format_rate(best.achieved_iops)
    ));
}

/// The charts.
pub(super) fn section(page: &mut Page, run: &Run) {
    if run.workloads.is_empty() {
        return;
    }
    page.heading("Latency against load");
    page.paragraph(
        "How long requests took while so many completed in a second, from the moment each was meant to \
         start. Where the line turns upwards requests begin to queue.",
    );
    page.pair(|page| {
        for curve in measured(run) {
            page.figure(&curve.name, &chart(run, curve), &beside(run, curve));
        }
    });
}

/// The tables.
pub(super) fn numbers(page: &mut Page, run: &Run) {
    if run.workloads.is_empty() {
        return;
    }
    page.heading("Every point");
    let heads = [
        "profile", "load", "offered", "achieved", "GB/s", "mean", "p50", "p99", "p99.9", "max",
        "CPU/IO",
    ]
    .map(str::to_owned);
    let mut rows = Vec::new();
    for curve in measured(run) {
        for point in curve.peak.iter().chain(&curve.points) {
            let latency = &point.lat_ns;
            let mark = if point.saturated { " *" } else { "" };
            let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), format_rate);
            let mut row = vec![
                curve.name.clone(),
                format!("{}{mark}", load(point)),
                rate(point.percent.and(point.offered_iops)),
                format_rate(point.achieved_iops),
                words::gb(point.bw_bytes as f64),
                words::time(latency.mean),
            ];
            let percentiles = [latency.p50, latency.p99, latency.p99_9, latency.max];
            row.extend(percentiles.map(|ns| words::time(ns as f64)));
            row.push(words::time(point.cpu_ns_per_io));
            rows.push(row);
        }
    }
    page.table(1, &heads, &rows);
    page.paragraph(
        "Rates in requests a second. * beyond saturation: less was achieved than was offered. \
         CPU/IO includes the polling for arrivals.",
    );
}

/// Profiles that have points.
fn measured(run: &Run) -> impl Iterator<Item = &RunWorkload> {
    let curves = run.workloads.iter();
    curves.filter(|curve| !curve.points.is_empty())
}

/// `50 %`, or `uncapped`.
fn load(point: &RunPoint) -> String {
    let percent = point.percent.map(|percent| format!("{percent:.0} %"));
    percent.unwrap_or_else(|| "uncapped".to_owned())
}

fn chart(run: &Run, curve: &RunWorkload) -> String {
    let mut series: Vec<Series> = LINES
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
                        y: value(&point.lat_ns),
                        range: None,
                        label: String::new(),
                        note: format!(
                            "{name} {} at {} IOPS{load}",
                            words::time(value(&point.lat_ns)),
                            format_rate(point.achieved_iops)
                        ),
                    }
                })
                .collect(),
        })
        .collect();
    if let Some(peak) = peak(curve)
        && is_near(run, curve, &peak)
    {
        series.push(Series {
            name: LOADED.to_owned(),
            class: "ref",
            marker: 3,
            is_dashed: false,
            gap_max: f64::INFINITY,
            points: vec![Point {
                x: peak.iops * run.member_count(),
                y: peak.latency_us * 1e3,
                range: None,
                label: String::new(),
                note: format!("{LOADED}, {}: {}", peak.workload, words_of(&peak)),
            }],
        });
    }
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

/// Whether it can be drawn beside the curve without pressing that into a corner.
fn is_near(run: &Run, curve: &RunWorkload, peak: &Peak) -> bool {
    peak.iops * run.member_count() <= FAR_OFF * most(curve)
}

/// The most requests a second that a curve reached.
fn most(curve: &RunWorkload) -> f64 {
    let points = curve.peak.iter().chain(&curve.points);
    points.map(|point| point.achieved_iops).fold(0.0, f64::max)
}

/// `875k IOPS per drive at its peak, 126 µs there, from 94 µs at the lowest load`.
fn words_of(peak: &Peak) -> String {
    let start = peak.start_latency_us.map_or(String::new(), |start| {
        format!(", from {start} µs at the lowest load")
    });
    format!(
        "{} IOPS per drive at the peak, {} µs there{start}",
        format_rate(peak.iops),
        peak.latency_us
    )
}

/// What is said of it.
fn beside(run: &Run, curve: &RunWorkload) -> String {
    let Some(peak) = peak(curve) else {
        return String::new();
    };
    if is_near(run, curve, &peak) {
        return format!(
            "Grey: the peak of the {LOADED}, mean latency, times this run's members and divided by its \
             {LOADED_DRIVES} drives. {LOADED_AT_LENGTH}."
        );
    }
    let times = peak.iops * run.member_count() / most(curve).max(1.0);
    format!(
        "Too far to the right to be drawn: the {LOADED}, mean latency, {}; that is {times:.1} times as \
         many for each member as here. {LOADED_AT_LENGTH}.",
        words_of(&peak)
    )
}
