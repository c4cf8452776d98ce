//! The page of a comparison: what changed in each cell, and what else is different.

use std::io::{self, Write};

use super::{Page, details, words};
use crate::chart::{Axis, Band, LineChart, Point, Series, escape};
use crate::run::{CellChange, Changes};
use crate::workload::Pattern;

/// Writes the page of two runs beside each other.
///
/// # Errors
///
/// What the writer returns.
pub fn write_changes(changes: &Changes, mut output: impl Write) -> io::Result<()> {
    let (before, after) = (changes.before.title(), changes.after.title());
    let mut page = Page::new(&format!("{before} and {after}"));
    page.push(format_args!(
        "<h1>{} → {}</h1>",
        escape(before),
        escape(after)
    ));
    page.push(format_args!(
        "<p class=\"soft\">before: {}, {}; after: {}, {}</p>",
        escape(&changes.before.source),
        escape(&changes.before.environment.date),
        escape(&changes.after.source),
        escape(&changes.after.environment.date)
    ));
    page.paragraph(changes.sentence());
    page.list(&cautions(changes));

    page.heading("Bandwidth after / before");
    page.figure(
        "Ratio by block size",
        &ratios(changes),
        "Above 1, the grey line, the second run is faster. The vertical line goes from the slowest round after over the \
         fastest before to the fastest after over the slowest before.",
    );
    page.pair(|page| {
        for pattern in changes.patterns() {
            page.figure(words::title(pattern), &beside(changes, pattern), "");
        }
    });
    page.heading("Every cell");
    let heads = [
        "pattern",
        "block",
        "lanes",
        "depth",
        "before",
        "after",
        "ratio",
        "rounds",
        "p99 before",
        "p99 after",
        "verdict",
    ];
    let rows: Vec<Vec<String>> = changes
        .patterns()
        .into_iter()
        .flat_map(|pattern| of_pattern(changes, pattern))
        .map(row)
        .collect();
    page.table(1, &heads.map(str::to_owned), &rows);
    page.heading("What is different");
    if changes.conditions.is_empty() {
        page.paragraph("Nothing that the reports tell, but for their dates.");
    } else {
        let heads = ["field", "before", "after"].map(str::to_owned);
        let rows: Vec<Vec<String>> = changes
            .conditions
            .iter()
            .map(|change| {
                vec![
                    change.field.to_owned(),
                    change.before.clone(),
                    change.after.clone(),
                ]
            })
            .collect();
        page.table(3, &heads, &rows);
    }
    details::environment(&mut page, &changes.before, "Environment before");
    details::environment(&mut page, &changes.after, "Environment after");
    details::command(&mut page, &changes.before, "Exact command before");
    details::command(&mut page, &changes.after, "Exact command after");
    output.write_all(page.finish().as_bytes())
}

/// What a reader must know before believing it.
fn cautions(changes: &Changes) -> Vec<String> {
    let mut cautions = vec![
        "More than noise is what has all rounds of one run outside those of the other. Noise between \
         runs, of a disk that others use for one, is larger than within one: measure in turn, or more \
         than once."
            .to_owned(),
    ];
    if changes.unmatched > 0 {
        cautions.push(format!(
            "{} cells are in one of the runs only and are left out.",
            changes.unmatched
        ));
    }
    let states = changes.cells.iter();
    let differ = states
        .filter(|cell| cell.before.state != cell.after.state)
        .count();
    if differ > 0 {
        cautions.push(format!(
            "{differ} cells worked on blocks in another state (written or not) before than after: they \
             did not do the same."
        ));
    }
    cautions
}

fn of_pattern(changes: &Changes, pattern: Pattern) -> impl Iterator<Item = &CellChange> {
    let cells = changes.cells.iter();
    cells.filter(move |change| change.before.rw == pattern)
}

fn row(change: &CellChange) -> Vec<String> {
    let rounds = change.range.map_or_else(
        || "-".to_owned(),
        |(low, high)| format!("{} to {}", words::ratio(low), words::ratio(high)),
    );
    vec![
        words::name(change.before.rw).to_owned(),
        words::size(change.before.bs),
        change.before.numjobs.to_string(),
        change.before.iodepth.to_string(),
        words::gb(change.before.bw_bytes as f64),
        words::gb(change.after.bw_bytes as f64),
        words::ratio(change.ratio),
        rounds,
        words::time(change.before.lat_ns.p99 as f64),
        words::time(change.after.lat_ns.p99 as f64),
        change.verdict.to_string(),
    ]
}

/// Of several depths or lanes at one size, the cell that was fastest before.
fn fastest(changes: &Changes, pattern: Pattern) -> Vec<&CellChange> {
    let mut cells: Vec<&CellChange> = of_pattern(changes, pattern).collect();
    cells.sort_by_key(|change| (change.before.bs, std::cmp::Reverse(change.before.bw_bytes)));
    cells.dedup_by_key(|change| change.before.bs);
    cells
}

fn sizes(changes: &Changes) -> Vec<u64> {
    let mut sizes: Vec<u64> = changes
        .cells
        .iter()
        .map(|change| change.before.bs)
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn ratios(changes: &Changes) -> String {
    let note = |change: &CellChange| {
        format!(
            "{} {}: {} ({} to {} GB/s), {}",
            words::name(change.before.rw),
            words::size(change.before.bs),
            words::ratio(change.ratio),
            words::gb(change.before.bw_bytes as f64),
            words::gb(change.after.bw_bytes as f64),
            change.verdict
        )
    };
    let series: Vec<Series> = changes
        .patterns()
        .into_iter()
        .map(|pattern| Series {
            name: words::short(pattern).to_owned(),
            class: words::class(pattern),
            marker: words::place(pattern),
            is_dashed: pattern.is_random(),
            gap_max: f64::INFINITY,
            points: fastest(changes, pattern)
                .into_iter()
                .map(|change| Point {
                    x: words::power(change.before.bs),
                    y: change.ratio,
                    range: change.range,
                    label: String::new(),
                    note: note(change),
                })
                .collect(),
        })
        .collect();
    let points = series.iter().flat_map(|line| &line.points);
    let values = points.flat_map(|point| {
        let (low, high) = point.range.unwrap_or((point.y, point.y));
        [low, high]
    });
    let y = Axis::ratio("after / before", values, words::plain);
    LineChart {
        title: "Bandwidth after divided by bandwidth before, by block size",
        width: 860.0,
        height: 340.0,
        x: Axis::sizes("Block size", &sizes(changes)),
        y,
        bands: vec![Band {
            low: 1.0,
            high: 1.0,
            name: String::new(),
            note: "as fast as before".to_owned(),
        }],
        series,
    }
    .render()
}

fn beside(changes: &Changes, pattern: Pattern) -> String {
    let cells = fastest(changes, pattern);
    let line = |name: &str, class, marker, is_after: bool| Series {
        name: name.to_owned(),
        class,
        marker,
        is_dashed: !is_after,
        gap_max: f64::INFINITY,
        points: cells
            .iter()
            .map(|change| {
                let cell = if is_after {
                    &change.after
                } else {
                    &change.before
                };
                Point {
                    x: words::power(cell.bs),
                    y: cell.bw_bytes as f64 / 1e9,
                    range: cell
                        .spread()
                        .map(|(low, high)| (low as f64 / 1e9, high as f64 / 1e9)),
                    label: String::new(),
                    note: format!("{name}: {}", words::note(cell)),
                }
            })
            .collect(),
    };
    let series = vec![
        line("before", "ref", 3, false),
        line("after", words::class(pattern), words::place(pattern), true),
    ];
    let points = series.iter().flat_map(|line| &line.points);
    let highest = points.map(|point| point.range.map_or(point.y, |range| range.1));
    LineChart {
        title: &format!("{} before and after", words::title(pattern)),
        width: 520.0,
        height: 260.0,
        x: Axis::sizes("Block size", &sizes(changes)),
        y: Axis::linear("GB/s", highest.fold(0.0, f64::max), words::plain),
        bands: Vec::new(),
        series,
    }
    .render()
}
