//! The run beside a server of which figures are published, both for each drive.

use super::{Page, words};
use crate::chart::{Axis, Band, LineChart, Point, Series};
use crate::reference::{
    Figure, SERVER, SERVER_AT_LENGTH, SERVER_CPU_NS_PER_IO, SERVER_DRIVES, SERVER_RATING, figures,
};
use crate::run::{Run, RunCell, RunKind};
use crate::workload::Pattern;

/// Where one is so many times the other, a linear axis would press it to the ground.
const RATIO_LINEAR_MAX: f64 = 8.0;

/// Figures are joined up to this many doublings of the block size apart.
const FIGURES_GAP_MAX: f64 = 4.0;

pub(super) fn section(page: &mut Page, run: &Run) {
    let patterns = run.patterns();
    if patterns.is_empty() || run.kind == RunKind::Curve {
        return;
    }
    page.heading("Beside a reference server, for each drive");
    page.paragraph(format_args!("{SERVER}: {SERVER_AT_LENGTH}."));
    page.pair(|page| {
        for pattern in &patterns {
            let svg = chart(run, *pattern);
            page.figure(words::title(*pattern), &svg, "");
        }
    });
    page.paragraph(
        "Grey points are figures at one block size, joined where they are close; the grey band is a \
         range given over sizes and for none of them; the grey line is what one of the server's drives \
         is rated at.",
    );
    page.push(format_args!("<h3>What can be compared, and what not</h3>"));
    page.list(&comparable(run));
}

fn chart(run: &Run, pattern: Pattern) -> String {
    let share = run.member_count() * 1e9;
    let cells: Vec<&RunCell> = run
        .best_by_size(pattern)
        .into_iter()
        .filter(|cell| words::is_from_drive(cell))
        .collect();
    let (points, ranges): (Vec<Figure>, Vec<Figure>) = figures(pattern)
        .into_iter()
        .partition(|figure| figure.block_bytes.is_some());
    let mut sizes = run.sizes();
    sizes.extend(points.iter().filter_map(|figure| figure.block_bytes));
    sizes.sort_unstable();
    sizes.dedup();

    let mut series = vec![Series {
        name: "this run".to_owned(),
        class: words::class(pattern),
        marker: words::place(pattern),
        is_dashed: false,
        gap_max: f64::INFINITY,
        points: cells
            .iter()
            .map(|cell| Point {
                x: words::power(cell.bs),
                y: cell.bw_bytes as f64 / share,
                range: cell
                    .spread()
                    .map(|(low, high)| (low as f64 / share, high as f64 / share)),
                label: String::new(),
                note: format!(
                    "{} GB/s per member; {}",
                    words::gb(cell.bw_bytes as f64 / run.member_count()),
                    words::note(cell)
                ),
            })
            .collect(),
    }];
    series.push(Series {
        name: SERVER.to_owned(),
        class: "ref",
        marker: 3,
        is_dashed: true,
        gap_max: FIGURES_GAP_MAX,
        points: points.iter().filter_map(figure_point).collect(),
    });
    let rating = SERVER_RATING.of(pattern);
    let mut bands = vec![Band {
        low: rating,
        high: rating,
        name: format!("rated {rating} GB/s"),
        note: format!("what one drive of the server is rated at: {rating} GB/s, sequential"),
    }];
    bands.extend(ranges.iter().map(|figure| Band {
        low: figure.low_gb,
        high: figure.high_gb,
        name: String::new(),
        note: format!(
            "{SERVER}, {}: {:.2} to {:.2} GB/s per drive over sizes ({})",
            words::name(pattern),
            figure.low_gb,
            figure.high_gb,
            figure.status
        ),
    }));
    let own = cells.iter().map(|cell| cell.bw_bytes as f64 / share);
    let lowest = own.clone().fold(rating, f64::min);
    let highest = own.fold(rating, f64::max);
    let y = if highest / lowest.max(1e-9) <= RATIO_LINEAR_MAX {
        Axis::linear("GB/s per drive", highest, words::plain)
    } else {
        Axis::log(
            "GB/s per drive, logarithmic",
            [lowest, highest].into_iter(),
            words::plain,
        )
    };
    LineChart {
        title: &format!("{} per drive, beside the {SERVER}", words::title(pattern)),
        width: 520.0,
        height: 280.0,
        x: Axis::sizes("Block size", &sizes),
        y,
        bands,
        series,
    }
    .render()
}

fn figure_point(figure: &Figure) -> Option<Point> {
    let block_bytes = figure.block_bytes?;
    let has_range = figure.high_gb > figure.low_gb;
    Some(Point {
        x: words::power(block_bytes),
        y: f64::midpoint(figure.low_gb, figure.high_gb),
        range: has_range.then_some((figure.low_gb, figure.high_gb)),
        label: String::new(),
        note: format!(
            "{SERVER}, {} {}: {:.2} GB/s per drive, {:.0} of all {SERVER_DRIVES} ({})",
            words::name(figure.pattern),
            words::size(block_bytes),
            f64::midpoint(figure.low_gb, figure.high_gb),
            f64::midpoint(figure.low_gb, figure.high_gb) * SERVER_DRIVES,
            figure.status
        ),
    })
}

/// In words, from what the run says of itself.
fn comparable(run: &Run) -> Vec<String> {
    let mut words = vec![format!(
        "The server's figures are divided by its {SERVER_DRIVES} drives, this run's by its {}. That \
         assumes that drives do not get in each other's way; from a few drives on, cores, memory and \
         PCIe do.",
        words::members(run)
    )];
    let kinds = run.device_kinds();
    if kinds.contains("file") {
        words.push(
            "Members are files here. Files on one disk share it: then \"per member\" is a part of one \
             disk, and only the sum can be held against a drive."
                .to_owned(),
        );
    }
    if kinds.contains("memory") || kinds.contains("simulated") {
        words.push("There are members here that have no drive behind them.".to_owned());
    }
    if run.cells.iter().any(|cell| !words::is_from_drive(cell)) {
        words.push(
            "Reads of unwritten blocks are left out above: no drive was asked for them.".to_owned(),
        );
    }
    let here = if run.steady_state.is_some() {
        "The server's figures are no steady state, and those here were measured until they were: their \
         drives are worn in, the server's were not."
    } else {
        "Neither is steady state."
    };
    words.push(format!(
        "{here} The server's random writes are about twice what such drives keep up when they are full \
         and worn in; writes here are as good as the preconditioning above."
    ));
    words.push(
        "The server was driven by as many jobs and as much depth as it took, on 128 cores. This run \
         had the lanes and the depth that its table names, and those may be its limit."
            .to_owned(),
    );
    let small = run.best_by_size(Pattern::RandRead);
    if let Some(cell) = small
        .iter()
        .find(|cell| cell.bs == 4096 && cell.cpu_ns_per_io > 0.0)
    {
        words.push(format!(
            "CPU time for a random read of 4K: {} here, of all threads and kernel workers; on the \
             server at most {} of one core (71.4 million a second on 128 cores, if all were busy).",
            words::time(cell.cpu_ns_per_io),
            words::time(SERVER_CPU_NS_PER_IO)
        ));
    }
    words
}
