//! The head of a page: what the volume gave at best, and what a reader must know before believing
//! it.

use super::{Page, load, words};
use crate::chart::escape;
use crate::report::format_rate;
use crate::report::table::{explanations, unsteady};
use crate::run::{Run, RunCell, RunKind};
use crate::size::{format_bytes, format_size};
use crate::workload::Pattern;

pub(super) fn section(page: &mut Page, run: &Run) {
    page.push(format_args!("<h1>{}</h1>", escape(run.title())));
    page.push(format_args!(
        "<p class=\"soft\">swath-{} {}{}, {}</p>",
        run.kind,
        escape(&run.version),
        commit(run),
        escape(&run.environment.date)
    ));
    page.paragraph(subject(run));
    if !run.cells.is_empty() {
        page.push(format_args!("<div class=\"tiles\">"));
        for pattern in run.patterns() {
            tile(page, run, pattern);
        }
        page.push(format_args!("</div>"));
    }
    if !run.workloads.is_empty() {
        load::tiles(page, run);
    }
    page.list(&caveats(run));
}

fn commit(run: &Run) -> String {
    match &run.environment.commit {
        Some(commit) => format!(", commit {}", escape(commit)),
        None => String::new(),
    }
}

/// What was measured, in one sentence.
fn subject(run: &Run) -> String {
    let volume = &run.volume;
    let kinds = run.device_kinds();
    let kinds = if kinds.is_empty() {
        String::new()
    } else {
        format!(" ({kinds})")
    };
    let backend = if volume.backend.is_empty() {
        String::new()
    } else {
        format!(", by {}", volume.backend)
    };
    format!(
        "A volume of {}{kinds}, {}, chunk {}{backend}; {} on {}, Linux {}.",
        words::members(run),
        format_bytes(volume.capacity_bytes),
        format_size(volume.chunk_bytes),
        match run.environment.cores {
            1 => "1 core".to_owned(),
            cores => format!("{cores} cores"),
        },
        run.environment.cpu,
        run.environment.kernel
    )
}

/// The best of one pattern.
fn tile(page: &mut Page, run: &Run, pattern: Pattern) {
    let cells = run.best_by_size(pattern);
    let fastest = cells.iter().max_by_key(|cell| cell.bw_bytes);
    let busiest = cells
        .iter()
        .max_by(|one, other| one.iops.total_cmp(&other.iops));
    let (Some(fastest), Some(busiest)) = (fastest, busiest) else {
        return;
    };
    let share = fastest.bw_bytes as f64 / run.member_count();
    page.push(format_args!(
        "<div class=\"tile {}\"><span class=\"what\">{}</span><b>{} GB/s</b>\
         <span>at {}{}; {} GB/s per member</span>\
         <span>{} IOPS at {}{}; p50 {}, p99 {}</span></div>",
        words::class(pattern),
        words::title(pattern),
        words::gb(fastest.bw_bytes as f64),
        words::size(fastest.bs),
        state(fastest),
        words::gb(share),
        format_rate(busiest.iops),
        words::size(busiest.bs),
        state(busiest),
        escape(words::time(busiest.lat_ns.p50 as f64)),
        escape(words::time(busiest.lat_ns.p99 as f64))
    ));
}

fn state(cell: &RunCell) -> String {
    let steady = match words::unsteady_mark(cell) {
        "" => "",
        _ => ", not steady",
    };
    if words::is_from_drive(cell) {
        steady.to_owned()
    } else {
        format!(", {}{steady}", cell.state)
    }
}

/// What a reader must know.
fn caveats(run: &Run) -> Vec<String> {
    let mut caveats = Vec::new();
    if run.interrupted {
        caveats.push("The run was stopped before its end: cells are missing.".to_owned());
    }
    let unsteady = unsteady(run.cells.iter().filter_map(|cell| cell.steady));
    if run.steady_state.is_some() {
        caveats.push(match unsteady {
            None => "Every cell was measured until it was steady.".to_owned(),
            Some(_) => {
                "Every cell was measured until it was steady, or given up: see below.".to_owned()
            }
        });
    } else if run.kind != RunKind::Curve {
        caveats.push(match run.rounds {
            0 | 1 => {
                "Each cell was measured once: one round shows no noise, and small differences \
                      mean nothing."
                    .to_owned()
            }
            rounds => format!(
                "Each cell was measured up to {rounds} times; what is shown is the median round by \
                 bandwidth, and the slowest and fastest round as a vertical line."
            ),
        });
    }
    if !run.environment.preconditioning.is_empty() {
        let known = if run.steady_state.is_some() {
            ""
        } else if run.precondition.is_some() {
            " Whether that was enough for a steady state is not known; --steady-state tells."
        } else {
            " That is not steady state: drives that are full and have been written at random for hours \
             write more slowly."
        };
        caveats.push(format!(
            "Before the run: {}.{known}",
            run.environment.preconditioning.trim_end_matches('.')
        ));
    }
    let pairs = run.cells.iter().map(|cell| (cell.state, cell.rw));
    caveats.extend(
        explanations(pairs)
            .into_iter()
            .chain(unsteady)
            .map(|(sign, text)| format!("Marked{sign}: {text}.")),
    );
    caveats.extend(run.notes.iter().map(|note| format!("Note: {note}.")));
    caveats.push(
        "Bandwidth is in decimal GB/s, as fio and the makers of drives count; sizes are powers of two. \
         Transfers go past the page cache; caches inside drives, controllers and hosts are not seen \
         from here."
            .to_owned(),
    );
    caveats
}
