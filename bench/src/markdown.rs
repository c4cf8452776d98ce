//! Runs and comparisons as Markdown, for an issue or a page.
//!
//! Text from a report cannot end a cell, begin a tag or close a fence.

use std::fmt::Write as _;

use crate::report::format_rate;
use crate::report::table::{explanations, gigabytes, mark_of, three_digits, unsteady};
use crate::run::{CellChange, Changes, Run, RunCell, RunKind};
use crate::size::{format_bytes, format_size};
use crate::sweep::{has_sweeps, sweeps};

/// One run.
pub fn run(run: &Run) -> String {
    let mut text = format!("# {}\n\n", plain(run.title()));
    conditions(&mut text, run);
    if run.interrupted {
        text.push_str("\nStopped before its end: cells are missing.\n");
    }
    if let Some(steady) = &run.steady_state {
        let _ = writeln!(text, "\nEach cell until steady state: {steady}.");
    } else if run.rounds < 2 && !run.cells.is_empty() {
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
        if run.kind == RunKind::Matrix && has_sweeps(&run.cells) {
            sweep_tables(&mut text, run);
        }
        steady_table(&mut text, run);
        let mut marks = explanations(run.cells.iter().map(|cell| (cell.state, cell.rw)));
        marks.extend(unsteady(run.cells.iter().filter_map(|cell| cell.steady)));
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
                |cell| format!("{}{}", show(cell), marks(cell)),
            );
            let _ = write!(text, " {shown} |");
        }
        text.push('\n');
    }
}

/// What stands behind a number of this cell.
fn marks(cell: &RunCell) -> String {
    let is_unsteady = cell.steady.is_some_and(|steady| !steady.is_steady);
    let sign = if is_unsteady { " !" } else { "" };
    format!("{}{sign}", mark_of(cell.state, cell.rw))
}

/// Every sweep: where both depth and lanes were swept, lanes are across.
fn sweep_tables(text: &mut String, run: &Run) {
    let micros = |ns: f64| format!("{:.1}", ns / 1e3);
    for sweep in sweeps(&run.cells) {
        let name = format!("{} {}", sweep.pattern, format_size(sweep.block_bytes));
        if sweep.is_grid() {
            let _ = write!(
                text,
                "\n## {name}: IOPS, mean / p99 in µs, by depth and lanes\n\n| depth |"
            );
            for lanes in &sweep.lanes {
                let _ = write!(text, " x{lanes} |");
            }
            let _ = writeln!(text, "\n|---:|{}", "---:|".repeat(sweep.lanes.len()));
            for &depth in &sweep.depths {
                let _ = write!(text, "| {depth} |");
                for &lanes in &sweep.lanes {
                    let shown = sweep.at(lanes, depth).map_or_else(
                        || "-".to_owned(),
                        |cell| {
                            format!(
                                "{}{}, {} / {}",
                                format_rate(cell.iops),
                                marks(cell),
                                micros(cell.lat_ns.mean),
                                micros(cell.lat_ns.p99 as f64)
                            )
                        },
                    );
                    let _ = write!(text, " {shown} |");
                }
                text.push('\n');
            }
        } else {
            let _ = writeln!(
                text,
                "\n## {name} by depth and lanes\n\n| lanes | depth | GB/s | IOPS | mean, µs | p99, µs \
                 |\n|---:|---:|---:|---:|---:|---:|"
            );
            for cell in &sweep.cells {
                let _ = writeln!(
                    text,
                    "| {} | {} | {} | {}{} | {} | {} |",
                    cell.numjobs,
                    cell.iodepth,
                    gigabytes(cell.bw_bytes),
                    format_rate(cell.iops),
                    marks(cell),
                    micros(cell.lat_ns.mean),
                    micros(cell.lat_ns.p99 as f64)
                );
            }
        }
    }
}

fn steady_table(text: &mut String, run: &Run) {
    if run.cells.iter().all(|cell| cell.steady.is_none()) {
        return;
    }
    text.push_str(
        "\n## Steady state\n\n| rw | bs | lanes | depth | rounds | spread | slope | verdict \
         |\n|---|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for cell in &run.cells {
        let Some(steady) = &cell.steady else { continue };
        let verdict = if steady.is_steady {
            "steady"
        } else {
            "**not steady**"
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {:.1} % | {:+.1} % | {verdict} |",
            cell.rw,
            format_size(cell.bs),
            cell.numjobs,
            cell.iodepth,
            steady.rounds,
            steady.spread_percent,
            steady.slope_percent
        );
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
    fn sweeps_and_steady_states_have_tables_of_their_own() {
        let text = run(&fixture::swept(&[1, 2], &[1, 8]));
        for part in [
            "## randread 4k: IOPS, mean / p99 in µs, by depth and lanes",
            "| depth | x1 | x2 |\n|---:|---:|---:|",
        ] {
            assert!(text.contains(part), "'{part}' is not in:\n{text}");
        }
        let text = run(&fixture::swept(&[1], &[1, 8]));
        assert!(text.contains("## write 1m by depth and lanes"), "{text}");
        let text = run(&fixture::steady());
        for part in [
            "until steady state: spread:20%",
            "| 7 | 4.0 % | -3.5 % | **not steady** |",
            "- !: not steady",
        ] {
            assert!(text.contains(part), "'{part}' is not in:\n{text}");
        }
        assert!(!run(&fixture::full("a.json", 1.0, 3)).contains("by depth"));
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
