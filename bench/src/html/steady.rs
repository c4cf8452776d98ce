//! Steady state: how each cell came to it, round by round, and whether it did.

use super::{Page, words};
use crate::chart::{Axis, Band, LineChart, Point, Series};
use crate::report::format_rate;
use crate::run::{Run, RunCell};
use crate::steady::{SteadyOptions, SteadyReport};
use crate::workload::Pattern;

/// So many lines can be told apart.
const LINES_MAX: usize = 8;

pub(super) fn section(page: &mut Page, run: &Run) {
    let Some(options) = &run.steady_state else {
        return;
    };
    let cells = || {
        run.cells
            .iter()
            .filter_map(|cell| Some((cell, cell.steady?)))
    };
    page.heading("Steady state");
    let total = cells().count();
    let steady = cells().filter(|(_, steady)| steady.is_steady).count();
    page.paragraph(format_args!(
        "{steady} of {total} cells became steady: the rates of their last {} rounds have a spread \
         (largest less smallest) of at most {} % of their mean, and the line that fits them best rises \
         or falls by at most {} % of it over these rounds. Every cell had up to {} rounds; its numbers \
         are those of the last {} together, steady or not. {}.",
        options.window,
        words::plain(options.spread_percent_max),
        words::plain(options.slope_percent_max),
        options.rounds_max,
        options.window,
        if *options == SteadyOptions::default() {
            "The criteria are SNIA's"
        } else {
            "SNIA asks for 20 % and 10 % in five rounds, at most 25"
        }
    ));
    page.pair(|page| {
        for pattern in run.patterns() {
            let svg = rounds(run, options, pattern);
            page.figure(words::title(pattern), &svg, "");
        }
    });
    page.paragraph(format_args!(
        "The rate of each round, divided by the mean of the cell's last rounds. The grey band is as \
         wide as the spread may be. Of each pattern at most {LINES_MAX} cells are drawn, those that \
         did not become steady first."
    ));
    let heads = [
        "pattern", "block", "lanes", "depth", "verdict", "rounds", "IOPS", "spread", "slope",
    ];
    let mut rows = Vec::new();
    for pattern in run.patterns() {
        let of = cells().filter(|(cell, _)| cell.rw == pattern);
        rows.extend(of.map(|(cell, steady)| row(cell, &steady)));
    }
    page.table(1, &heads.map(str::to_owned), &rows);
}

fn row(cell: &RunCell, steady: &SteadyReport) -> Vec<String> {
    vec![
        words::name(cell.rw).to_owned(),
        words::size(cell.bs),
        cell.numjobs.to_string(),
        cell.iodepth.to_string(),
        if steady.is_steady {
            "steady"
        } else {
            "not steady"
        }
        .to_owned(),
        steady.rounds.to_string(),
        format_rate(cell.iops),
        format!("{:.1} %", steady.spread_percent),
        format!("{:+.1} %", steady.slope_percent),
    ]
}

fn rounds(run: &Run, options: &SteadyOptions, pattern: Pattern) -> String {
    let mut cells: Vec<(&RunCell, SteadyReport)> = run
        .cells
        .iter()
        .filter(|cell| cell.rw == pattern)
        .filter_map(|cell| Some((cell, cell.steady?)))
        .collect();
    // Those that did not become steady are what a reader looks for.
    cells.sort_by_key(|(cell, steady)| (steady.is_steady, cell.bs));
    cells.truncate(LINES_MAX);
    let several = |differs: &dyn Fn(&RunCell, &RunCell) -> bool| {
        let firsts = cells.first().map(|first| first.0);
        firsts.is_some_and(|first| cells.iter().any(|(cell, _)| differs(first, cell)))
    };
    let is_swept = several(&|one, other| {
        (one.numjobs, one.iodepth) != (other.numjobs, other.iodepth) && one.bs == other.bs
    });
    let line = |(place, (cell, steady)): (usize, &(&RunCell, SteadyReport))| {
        let mut name = words::size(cell.bs);
        if is_swept {
            name.push_str(&format!(" {}x{}", cell.numjobs, cell.iodepth));
        }
        name.push_str(words::unsteady_mark(cell));
        let mean = cell.bw_bytes as f64;
        Series {
            class: ["s0", "s1", "s2", "s3"][place % 4],
            marker: place % 4,
            is_dashed: place >= 4,
            gap_max: f64::INFINITY,
            points: (1_u32..)
                .zip(&cell.bw_bytes_rounds)
                .map(|(round, rate)| Point {
                    x: f64::from(round),
                    y: *rate as f64 / mean,
                    range: None,
                    label: String::new(),
                    note: format!(
                        "{name}, round {round}: {} GB/s, {} of the window's mean; {}",
                        words::gb(*rate as f64),
                        words::ratio(*rate as f64 / mean),
                        steady.verdict()
                    ),
                })
                .collect(),
            name,
        }
    };
    let series: Vec<Series> = cells.iter().enumerate().map(line).collect();
    let half = options.spread_percent_max / 200.0;
    let points = || series.iter().flat_map(|line| &line.points);
    LineChart {
        title: &format!(
            "{}: rounds on the way to steady state",
            words::title(pattern)
        ),
        width: 520.0,
        height: 260.0,
        x: Axis::linear(
            "Round",
            points().map(|point| point.x).fold(0.0, f64::max),
            words::plain,
        ),
        y: Axis::ratio(
            "rate / mean of the window",
            points().map(|point| point.y),
            words::plain,
        ),
        bands: vec![Band {
            low: (1.0 - half).max(0.0),
            high: 1.0 + half,
            name: String::new(),
            note: format!(
                "a spread of {} % around the mean",
                words::plain(options.spread_percent_max)
            ),
        }],
        series,
    }
    .render()
}
