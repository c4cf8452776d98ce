//! Runs and comparisons as Markdown, for an issue or a page.
//!
//! Text from a report cannot end a cell, begin a tag or close a fence.

use std::fmt::Write as _;

use crate::report::format_rate;
use crate::report::table::{explanations, gigabytes, mark_of, three_digits};
use crate::run::{CellChange, Changes, Run, RunCell};
use crate::size::{format_bytes, format_size};

/// One run.
pub fn run(run: &Run) -> String {
    let mut text = format!("# {}\n\n", plain(run.title()));
    conditions(&mut text, run);
    if run.interrupted {
        text.push_str("\nStopped before its end: cells are missing.\n");
    }
    if run.rounds < 2 && !run.cells.is_empty() {
        text.push_str("\nOne round for each cell: it shows no noise.\n");
    }
    if !run.cells.is_empty() {
        matrix(&mut text, run, "Bandwidth, GB/s (GiB/s)", |cell| {
            let gibibytes = cell.bw_bytes as f64 / f64::from(1 << 30);
            format!("{} ({})", gigabytes(cell.bw_bytes), three_digits(gibibytes))
        });
        matrix(&mut text, run, "IOPS", |cell| format_rate(cell.iops));
        matrix(&mut text, run, "Latency p50 / p99, µs", |cell| {
            let micros = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
            format!("{} / {}", micros(cell.lat_ns.p50), micros(cell.lat_ns.p99))
        });
        if run.cells.iter().any(|cell| cell.efficiency.is_some()) {
            matrix(
                &mut text,
                run,
                "Efficiency: volume / bare members",
                |cell| cell.efficiency.map_or_else(|| "-".to_owned(), three_digits),
            );
        }
        let marks = explanations(run.cells.iter().map(|cell| (cell.state, cell.rw)));
        if !marks.is_empty() {
            text.push('\n');
        }
        for (sign, words) in marks {
            let _ = writeln!(text, "-{sign}: {words}");
        }
    }
    for curve in run
        .workloads
        .iter()
        .filter(|curve| !curve.points.is_empty())
    {
        let _ = writeln!(
            text,
            "\n## {}\n\n| IOPS | mean, µs | p99, µs |\n|---:|---:|---:|",
            plain(&curve.name)
        );
        for point in &curve.points {
            let _ = writeln!(
                text,
                "| {} | {:.1} | {:.1} |",
                format_rate(point.achieved_iops),
                point.lat_ns.mean / 1e3,
                point.lat_ns.p99 as f64 / 1e3
            );
        }
    }
    command(&mut text, run);
    text
}

/// Two runs beside each other.
pub fn changes(changes: &Changes) -> String {
    let mut text = format!(
        "# {} → {}\n\n{}\n\n",
        plain(changes.before.title()),
        plain(changes.after.title()),
        changes.sentence()
    );
    text.push_str("| pattern | block | lanes | depth | before, GB/s | after, GB/s | ratio | rounds | verdict |\n");
    text.push_str("|---|---:|---:|---:|---:|---:|---:|---:|---|\n");
    for change in &changes.cells {
        text.push_str(&change_row(change));
    }
    if changes.unmatched > 0 {
        let _ = writeln!(
            text,
            "\n{} cells are in one of the runs only.",
            changes.unmatched
        );
    }
    text.push_str("\n## What is different\n\n");
    if changes.conditions.is_empty() {
        text.push_str("Nothing that the reports tell, but for their dates.\n");
    } else {
        text.push_str("| field | before | after |\n|---|---|---|\n");
        for change in &changes.conditions {
            let (before, after) = (plain(&change.before), plain(&change.after));
            let _ = writeln!(text, "| {} | {before} | {after} |", change.field);
        }
    }
    for run in [&changes.before, &changes.after] {
        let _ = writeln!(text, "\n## {}\n", plain(&run.source));
        conditions(&mut text, run);
        command(&mut text, run);
    }
    text
}

fn change_row(change: &CellChange) -> String {
    let cell = &change.before;
    let rounds = change.range.map_or_else(
        || "-".to_owned(),
        |(low, high)| format!("{} to {}", three_digits(low), three_digits(high)),
    );
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {rounds} | {} |\n",
        cell.rw,
        format_size(cell.bs),
        cell.numjobs,
        cell.iodepth,
        gigabytes(cell.bw_bytes),
        gigabytes(change.after.bw_bytes),
        three_digits(change.ratio),
        change.verdict
    )
}

fn conditions(text: &mut String, run: &Run) {
    let environment = &run.environment;
    let volume = &run.volume;
    let commit = environment.commit.as_deref();
    let commit = commit.map_or(String::new(), |commit| format!(" ({})", plain(commit)));
    let facts = [
        format!(
            "swath-{} {}{commit}, {}",
            run.kind,
            plain(&run.version),
            plain(&environment.date)
        ),
        format!(
            "volume: {} members ({}), {}, chunk {}, {}",
            volume.members.len(),
            plain(&run.device_kinds()),
            format_bytes(volume.capacity_bytes),
            format_size(volume.chunk_bytes),
            plain(&volume.backend)
        ),
        format!("data: {}", plain(&environment.preconditioning)),
        format!(
            "machine: {}, {} cores, {} of memory, Linux {}",
            plain(&environment.cpu),
            environment.cores,
            format_bytes(environment.memory_bytes),
            plain(&environment.kernel)
        ),
    ];
    let notes = run
        .notes
        .iter()
        .map(|note| format!("note: {}", plain(note)));
    for fact in facts.into_iter().chain(notes) {
        let _ = writeln!(text, "- {fact}");
    }
}

/// Sizes down, patterns across; of several depths or lanes the fastest.
fn matrix(text: &mut String, run: &Run, title: &str, show: impl Fn(&RunCell) -> String) {
    let patterns = run.patterns();
    let _ = write!(text, "\n## {title}\n\n| bs |");
    for pattern in &patterns {
        let _ = write!(text, " {pattern} |");
    }
    let _ = writeln!(text, "\n|---:|{}", "---:|".repeat(patterns.len()));
    for size in run.sizes() {
        let _ = write!(text, "| {} |", format_size(size));
        for pattern in &patterns {
            let cells = run.best_by_size(*pattern);
            let cell = cells.into_iter().find(|cell| cell.bs == size);
            let shown = cell.map_or_else(
                || "-".to_owned(),
                |cell| format!("{}{}", show(cell), mark_of(cell.state, cell.rw)),
            );
            let _ = write!(text, " {shown} |");
        }
        text.push('\n');
    }
}

fn command(text: &mut String, run: &Run) {
    // No line of it can be the end of the fence.
    let command = run.command.replace("```", "'''");
    let _ = writeln!(text, "\n```console\n{command}\n```");
}

/// Text from a report within a line or a cell.
fn plain(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '|' | '<' | '>' | '*' | '_' | '`' | '[' | ']' | '\\' => {
                escaped.push('\\');
                escaped.push(letter);
            }
            letter if letter.is_control() => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::fixture;

    #[test]
    fn a_run_has_its_tables_its_conditions_and_its_command() {
        let text = run(&fixture::run());
        for part in [
            "# a label",
            "2 members",
            "| bs | read | randwrite |\n|---:|---:|---:|",
            "| 4k | 3.891 (3.624) u |",
            "60.0 / 99.0",
            "0.950",
            "- u: unwritten",
            "```console\nswath-matrix --bs 4k\n```",
            "One round",
        ] {
            assert!(text.contains(part), "'{part}' is not in:\n{text}");
        }
    }

    #[test]
    fn text_from_outside_stays_in_its_place() {
        let mut strange = fixture::run();
        strange.label = Some("a|b <script>\n# not a heading".to_owned());
        strange.command = "x\n```\n# no".to_owned();
        let text = run(&strange);
        assert!(
            text.starts_with("# a\\|b \\<script\\> # not a heading\n"),
            "{text}"
        );
        assert_eq!(text.matches("```").count(), 2, "{text}");
    }

    #[test]
    fn a_comparison_has_ratio_and_verdict_of_every_cell() {
        let (before, after) = (
            fixture::full("a.json", 1.0, 3),
            fixture::full("b.json", 0.5, 3),
        );
        let text = changes(&Changes::of(before, after).unwrap());
        assert_eq!(text.matches("| slower |").count(), 36, "{text}");
        assert!(text.contains("| 0.500 | 0.490 to 0.510 |"), "{text}");
        assert!(text.contains("Nothing that the reports tell"));
    }
}
