//! Carries out a plan: every cell, its rounds, both sides in turn, and keeps what was done when it
//! stops early.

use std::time::Duration;

use swath_engine::QueueDescription;

use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::report::{CellReport, format_bandwidth, format_rate};
use crate::runner::{Measurement, Origin, Runner};
use crate::size::format_duration;
use crate::subject::Subject;
use crate::target::Side;
use crate::workload::Cell;

/// What a plan gave: the cells that were measured, and what ended it early, if anything did.
#[derive(Debug)]
pub struct Campaign {
    /// One entry for each cell that was measured to its end.
    pub cells: Vec<CellReport>,
    /// The queues of the lanes that ran, each kind once, in the order in which they came.
    pub queues: Vec<QueueDescription>,
    /// Why there are not more of them.
    pub stopped: Option<Error>,
}

impl Campaign {
    /// Whether the user stopped it.
    pub fn is_interrupted(&self) -> bool {
        self.stopped
            .as_ref()
            .is_some_and(|error| error.kind() == ErrorKind::Interrupted)
    }
}

/// Carries out `plan`.
pub fn carry_out(
    plan: &Plan,
    runner: &Runner<'_>,
    subject: &Subject,
    progress: &mut Progress,
) -> Campaign {
    let mut campaign = Campaign {
        cells: Vec::new(),
        queues: Vec::new(),
        stopped: None,
    };
    let mut done = 0;
    for (number, cell) in (1_usize..).zip(&plan.cells) {
        // Asked before the cell runs: a cell that writes changes the answer for the next.
        let state = subject.data_state();
        let mut rounds = Rounds::default();
        let outcome = run_rounds(plan, cell, runner, progress, &mut done, &mut rounds);
        for measurement in rounds.volume.iter().chain(&rounds.members) {
            if !campaign.queues.contains(&measurement.queue) {
                campaign.queues.push(measurement.queue.clone());
            }
        }
        let report = match &plan.steady {
            None => CellReport::of(cell, state, &rounds.volume, &rounds.members),
            Some(steady) => {
                // What it did not need of its rounds.
                let cells = u32::try_from(number).unwrap_or(u32::MAX);
                done = cells.saturating_mul(plan.of_a_cell(steady.rounds_max));
                CellReport::of_steady(cell, state, &rounds.volume, &rounds.members, steady)
            }
        };
        if let Some(report) = report {
            let left = plan.left(done, Duration::ZERO);
            progress.line(&cell_line(number, plan, cell, &report, left));
            campaign.cells.push(report);
        }
        if let Err(error) = outcome {
            campaign.stopped = Some(error);
            break;
        }
    }
    progress.finish();
    campaign
}

/// What the rounds of one cell gave.
#[derive(Debug, Default)]
struct Rounds {
    volume: Vec<Measurement>,
    members: Vec<Measurement>,
}

impl Rounds {
    fn of(&self, side: Side) -> &[Measurement] {
        match side {
            Side::Volume => &self.volume,
            Side::Members => &self.members,
        }
    }
}

fn run_rounds(
    plan: &Plan,
    cell: &Cell,
    runner: &Runner<'_>,
    progress: &mut Progress,
    done: &mut u32,
    rounds: &mut Rounds,
) -> Result<()> {
    for round in 1..=plan.rounds_max() {
        let mut pair = Rounds::default();
        for &side in &plan.sides {
            let what = describe(plan, cell, round, side);
            progress.measuring(&what, plan.total(), plan.left(*done, Duration::ZERO));
            let origin = origin(plan, cell, round, rounds.of(side));
            let measurement = runner.run_on(cell, side, origin, &mut |elapsed| {
                progress.measuring(&what, plan.total(), plan.left(*done, elapsed));
            })?;
            match side {
                Side::Volume => pair.volume.push(measurement),
                Side::Members => pair.members.push(measurement),
            }
            *done += 1;
        }
        // Only whole rounds count: a volume without its members would not be comparable.
        rounds.volume.append(&mut pair.volume);
        rounds.members.append(&mut pair.members);
        let rates = rounds.volume.iter().map(Measurement::bytes_per_s);
        let rates: Vec<f64> = rates.collect();
        if plan.steady.is_some_and(|steady| steady.is_steady(&rates)) {
            break;
        }
    }
    Ok(())
}

/// Where a round begins. Rounds whose median is reported all do the same; rounds until steady state go
/// on through the volume, for that is what has to become steady.
fn origin(plan: &Plan, cell: &Cell, round: u32, before: &[Measurement]) -> Origin {
    if plan.steady.is_none() {
        return Origin::default();
    }
    let ios: u64 = before.iter().map(|round| round.ios).sum();
    Origin {
        round: round - 1,
        blocks_done: ios / u64::from(cell.lanes.max(1)),
    }
}

fn describe(plan: &Plan, cell: &Cell, round: u32, side: Side) -> String {
    let mut text = name(plan, cell);
    if side == Side::Members {
        text.push_str(" on the bare members");
    }
    let most = plan.rounds_max();
    if most > 1 {
        let of = if plan.steady.is_some() {
            "of at most"
        } else {
            "of"
        };
        text.push_str(&format!(" (round {round} {of} {most})"));
    }
    text
}

/// The cell, with its lanes if others of the plan have more or fewer, and with its depth if others of
/// its pattern and size do.
fn name(plan: &Plan, cell: &Cell) -> String {
    let mut text = cell.to_string();
    let mut others = plan.cells.iter();
    if others.any(|other| other.lanes != cell.lanes) {
        text.push_str(&format!(" x {}", cell.lanes));
    }
    let is_alike =
        |other: &Cell| (other.pattern, other.block_bytes) == (cell.pattern, cell.block_bytes);
    let mut others = plan.cells.iter().filter(|other| is_alike(other));
    if others.any(|other| other.depth != cell.depth) {
        text.push_str(&format!(" at depth {}", cell.depth));
    }
    text
}

/// `[ 3/36] randread 4k: 1.234 GB/s (1.149 GiB/s), 301.3k IOPS, 1m 02s left`.
fn cell_line(
    number: usize,
    plan: &Plan,
    cell: &Cell,
    report: &CellReport,
    left: Duration,
) -> String {
    let total = plan.cells.len();
    let width = total.to_string().len();
    let cell = name(plan, cell);
    let efficiency = report.baseline.as_ref().map_or_else(String::new, |bare| {
        format!(", efficiency {:.3}", bare.efficiency)
    });
    let steady = report
        .steady
        .map_or_else(String::new, |steady| format!(", {}", steady.verdict()));
    let most = if plan.steady.is_some() {
        "at most "
    } else {
        ""
    };
    let left = match left {
        Duration::ZERO => String::new(),
        left => format!(", {most}{} left", format_duration(left)),
    };
    format!(
        "[{number:>width$}/{total}] {cell}: {}, {} IOPS{efficiency}{steady}{left}",
        format_bandwidth(report.bw_bytes),
        format_rate(report.iops),
    )
}
