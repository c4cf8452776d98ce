//! Carries out a plan: every cell, its rounds, both sides in turn, and keeps what was done when it
//! stops early.

use std::time::Duration;

use swath_engine::QueueDescription;

use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::report::{CellReport, format_bandwidth, format_rate};
use crate::runner::{Measurement, Runner};
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
        if let Some(report) = CellReport::of(cell, state, &rounds.volume, &rounds.members) {
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

fn run_rounds(
    plan: &Plan,
    cell: &Cell,
    runner: &Runner<'_>,
    progress: &mut Progress,
    done: &mut u32,
    rounds: &mut Rounds,
) -> Result<()> {
    for round in 1..=plan.rounds {
        let mut pair = Rounds::default();
        for &side in &plan.sides {
            let what = describe(plan, cell, round, side);
            progress.measuring(&what, plan.total(), plan.left(*done, Duration::ZERO));
            let measurement = runner.run(cell, side, &mut |elapsed| {
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
    }
    Ok(())
}

fn describe(plan: &Plan, cell: &Cell, round: u32, side: Side) -> String {
    let mut text = name(plan, cell);
    if side == Side::Members {
        text.push_str(" on the bare members");
    }
    if plan.rounds > 1 {
        text.push_str(&format!(" (round {round} of {})", plan.rounds));
    }
    text
}

/// The cell, with its lanes if others of the plan have more or fewer.
fn name(plan: &Plan, cell: &Cell) -> String {
    if plan.cells.iter().all(|other| other.lanes == cell.lanes) {
        cell.to_string()
    } else {
        format!("{cell} x {}", cell.lanes)
    }
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
    let left = match left {
        Duration::ZERO => String::new(),
        left => format!(", {} left", format_duration(left)),
    };
    format!(
        "[{number:>width$}/{total}] {cell}: {}, {} IOPS{efficiency}{left}",
        format_bandwidth(report.bw_bytes),
        format_rate(report.iops),
    )
}
