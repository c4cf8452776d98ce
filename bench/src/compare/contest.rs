//! Carries a comparison out: for each cell a probe of every side's settings, then rounds of turns.
//!
//! - Settings are chosen before the first round (`probes`) and stay for all of them.
//! - Only whole rounds count; what was done stays when a run stops early.
//! - A turn that writes is followed by a flush of every member, outside its window, whoever wrote.

mod probes;

use std::time::Duration;

use swath_engine::QueueDescription;

use crate::compare::arena::Arena;
use crate::compare::command::{Region, arguments};
use crate::compare::fio::Fio;
use crate::compare::memory::{FioMemory, HugePages};
use crate::compare::output::Done;
use crate::compare::settings::{Batching, FioSettings};
use crate::compare::turns::{Side, order};
use crate::error::{Error, ErrorKind, Result};
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::report::format_rate;
use crate::runner::{Pinning, RunOptions, Runner};
use crate::size::format_duration;
use crate::target;
use crate::workload::Cell;

pub(crate) use probes::Probe;
use probes::{Probes, chosen};

/// What a turn takes besides ramp and window: opening the volume and a lane; or starting fio.
const SWATH_OVERHEAD: Duration = Duration::from_millis(60);
const FIO_OVERHEAD: Duration = Duration::from_millis(450);

/// When fio's process has spent so many times what its job counted, kernel workers did a part.
const UNCOUNTED_FACTOR: f64 = 1.5;

/// And so much beyond, which starting takes.
const UNCOUNTED_MS: f64 = 300.0;

/// Which fio Swath is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rival {
    /// As it is fastest.
    Best,
    /// As it comes.
    Defaults,
}

/// How long and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The cells, in order.
    pub cells: Vec<Cell>,
    /// Whom Swath is compared with.
    pub rivals: Vec<Rival>,
    /// Rounds of each cell.
    pub rounds: u32,
    /// Time of each turn before anything counts.
    pub ramp: Duration,
    /// Time that counts.
    pub runtime: Duration,
    /// Time that counts of each probe of a candidate.
    pub probe: Duration,
    /// The core that both sides keep to.
    pub core: usize,
    /// What Swath's offsets and data are drawn from.
    pub seed: u64,
    /// Whether the members lie in memory, where there is another candidate.
    pub in_memory: bool,
}

impl Schedule {
    fn sides(&self) -> Vec<Side> {
        let mut sides = vec![Side::Swath];
        for rival in &self.rivals {
            sides.push(match rival {
                Rival::Best => Side::Best,
                Rival::Defaults => Side::Defaults,
            });
        }
        sides
    }

    fn turn(&self, side: Side) -> Duration {
        self.ramp
            + self.runtime
            + match side {
                Side::Swath => SWATH_OVERHEAD,
                Side::Best | Side::Defaults => FIO_OVERHEAD,
            }
    }

    /// How long all of it takes, but for making members.
    pub fn total(&self) -> Duration {
        let rounds: Duration = self.sides().into_iter().map(|side| self.turn(side)).sum();
        let cells = self.cells.iter();
        cells
            .map(|cell| probes::time(self, cell) + rounds * self.rounds)
            .sum()
    }
}

/// One turn: what was done, and what is known of fio's process besides.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) side: Side,
    pub(crate) done: Done,
    pub(crate) process_cpu_ms: Option<u64>,
}

/// What a cell gave.
#[derive(Debug, Clone)]
pub(crate) struct CellVerdict {
    pub(crate) cell: Cell,
    pub(crate) swath: Batching,
    pub(crate) swath_probes: Vec<Probe<Batching>>,
    pub(crate) best: Option<FioSettings>,
    pub(crate) fio_probes: Vec<Probe<FioSettings>>,
    /// Of fio's best and of its defaults.
    pub(crate) commands: Vec<(Side, String)>,
    /// Whole rounds, each in the order of its turns.
    pub(crate) rounds: Vec<Vec<Turn>>,
}

/// What a comparison gave: the cells that were measured, and what ended it early, if anything did.
#[derive(Debug)]
pub struct Verdict {
    pub(crate) cells: Vec<CellVerdict>,
    /// The queues of Swath's lanes, each kind once.
    pub(crate) queues: Vec<QueueDescription>,
    /// What a reader must know besides.
    pub(crate) notes: Vec<String>,
    /// Why there are not more cells.
    pub stopped: Option<Error>,
}

impl Verdict {
    /// Whether the user stopped it.
    pub fn is_interrupted(&self) -> bool {
        let stopped = self.stopped.as_ref();
        stopped.is_some_and(|error| error.kind() == ErrorKind::Interrupted)
    }

    /// What was learned on the way that a reader must know.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        self.notes.iter().map(String::as_str)
    }

    fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }
}

/// A comparison under way.
#[derive(Debug)]
pub struct Contest<'run> {
    schedule: &'run Schedule,
    fio: &'run Fio,
    pages: HugePages,
    interrupt: &'run Interrupt,
    verdict: Verdict,
    /// Of the last of fio's candidates that failed.
    fio_failure: Option<Error>,
    /// Of the schedule.
    total: Duration,
    spent: Duration,
}

impl<'run> Contest<'run> {
    /// A comparison with `fio`.
    pub fn new(schedule: &'run Schedule, fio: &'run Fio, interrupt: &'run Interrupt) -> Self {
        Self {
            schedule,
            fio,
            pages: HugePages::now(),
            interrupt,
            verdict: Verdict {
                cells: Vec::new(),
                queues: Vec::new(),
                notes: Vec::new(),
                stopped: None,
            },
            fio_failure: None,
            total: schedule.total(),
            spent: Duration::ZERO,
        }
    }

    /// Carries it out on `arena`.
    pub fn carry_out(mut self, arena: &mut Arena, progress: &mut Progress) -> Verdict {
        let buffers = self.schedule.cells.iter().map(Cell::buffer_bytes).max();
        if self.schedule.rivals.contains(&Rival::Best)
            && let Some(note) = self.pages.note(buffers.unwrap_or(0))
        {
            self.verdict.note(note);
        }
        for (number, cell) in (1_usize..).zip(&self.schedule.cells) {
            let outcome = self.run_cell(cell, arena, progress);
            if outcome.is_ok()
                && let Some(done) = self.verdict.cells.last()
            {
                progress.line(&self.cell_line(number, done));
            }
            if let Err(error) = outcome {
                self.verdict.stopped = Some(error);
                break;
            }
        }
        progress.finish();
        self.verdict
    }

    fn run_cell(&mut self, cell: &Cell, arena: &mut Arena, progress: &mut Progress) -> Result<()> {
        arena.renew(self.interrupt)?;
        let Probes {
            swath: swath_probes,
            fio: fio_probes,
        } = self.probe(cell, arena, progress)?;
        let swath = chosen(&swath_probes).ok_or_else(|| nothing_to_try(cell))?;
        let best = chosen(&fio_probes);
        let mut rounds = Vec::new();
        let mut commands = Vec::new();
        let mut outcome = Ok(());
        for round in 0..self.schedule.rounds {
            match self.run_round(cell, round, swath, best, arena, progress, &mut commands) {
                Ok(turns) => rounds.push(turns),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        if !rounds.is_empty() {
            self.verdict.cells.push(CellVerdict {
                cell: *cell,
                swath,
                swath_probes,
                best,
                fio_probes,
                commands,
                rounds,
            });
        }
        outcome
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "a round is all of these, once; a struct of them would be made in one place"
    )]
    fn run_round(
        &mut self,
        cell: &Cell,
        round: u32,
        swath: Batching,
        best: Option<FioSettings>,
        arena: &mut Arena,
        progress: &mut Progress,
        commands: &mut Vec<(Side, String)>,
    ) -> Result<Vec<Turn>> {
        arena.renew(self.interrupt)?;
        let (ramp, runtime) = (self.schedule.ramp, self.schedule.runtime);
        let mut turns = Vec::new();
        for side in order(&self.schedule.sides(), round) {
            arena.check()?;
            let rounds = self.schedule.rounds;
            let what = format!("{cell}, {side} (round {} of {rounds})", round + 1);
            let settings = match side {
                Side::Swath => None,
                Side::Best => best,
                Side::Defaults => Some(FioSettings::Defaults),
            };
            let turn = match settings {
                None => Turn {
                    side,
                    done: self.swath(cell, swath, ramp, runtime, arena, &what, progress)?,
                    process_cpu_ms: None,
                },
                Some(settings) => {
                    let job = Job {
                        cell,
                        settings,
                        ramp,
                        runtime,
                        is_probe: false,
                    };
                    let (turn, command) = self.fio(side, &job, arena, &what, progress)?;
                    if !commands.iter().any(|(known, _)| *known == side) {
                        commands.push((side, command));
                    }
                    self.note_uncounted(cell, &turn);
                    turn
                }
            };
            turns.push(turn);
            self.spent += self.schedule.turn(side);
        }
        Ok(turns)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "what is run, for how long, on what, and who is told: none of it is state of ours"
    )]
    fn swath(
        &mut self,
        cell: &Cell,
        settings: Batching,
        ramp: Duration,
        runtime: Duration,
        arena: &Arena,
        what: &str,
        progress: &mut Progress,
    ) -> Result<Done> {
        let options = RunOptions {
            ramp,
            runtime,
            batch: settings.batch,
            reap: Some(settings.complete_min),
            seed: self.schedule.seed,
            pinning: Pinning::To(self.schedule.core),
            unique_writes: false,
            // Nor does fio at its best.
            latencies: false,
            ..RunOptions::new(self.interrupt.clone())
        };
        let runner = Runner::new(arena.subject().volume(), options);
        let measurement = runner.run(cell, target::Side::Volume, &mut |elapsed| {
            self.draw(what, elapsed, progress);
        })?;
        if !self.verdict.queues.contains(&measurement.queue) {
            self.verdict.queues.push(measurement.queue.clone());
        }
        Ok(Done {
            window: measurement.window,
            ios: measurement.ios,
            bytes: measurement.bytes,
            cpu_ns_per_io: measurement.cpu_ns_per_io,
        })
    }

    fn fio(
        &mut self,
        side: Side,
        job: &Job<'_>,
        arena: &mut Arena,
        what: &str,
        progress: &mut Progress,
    ) -> Result<(Turn, String)> {
        let region: Region = arena.region();
        let memory = job.settings.memory();
        let core = self.schedule.core;
        let arguments = arguments(&region, job.cell, job.settings, core, job.ramp, job.runtime);
        let lasts = job.ramp + job.runtime;
        // fio takes no locks, and is not to be disturbed by ours.
        let run = arena.while_closed(|| {
            self.fio.run(
                &arguments,
                memory,
                lasts,
                job.is_probe,
                self.interrupt,
                &mut |elapsed| self.draw(what, elapsed, progress),
            )
        })?;
        if job.cell.pattern.is_write() {
            let volume = arena.subject().volume();
            volume
                .flush()
                .map_err(|cause| Error::failed("the flush after fio's turn failed", cause))?;
        }
        if memory != FioMemory::Small && run.huge_bytes == Some(0) {
            let settings = job.settings;
            self.verdict.note(format!(
                "{}: fio was seen without a huge page, although it was told to use them ({settings})",
                job.cell
            ));
        }
        let turn = Turn {
            side,
            done: run.done,
            process_cpu_ms: run.process_cpu_ms,
        };
        Ok((turn, self.fio.command_line(&arguments, memory)))
    }

    /// fio counts the CPU time of its own thread. Where the kernel's workers did the I/O for it,
    /// that is not all of it.
    fn note_uncounted(&mut self, cell: &Cell, turn: &Turn) {
        let Some(process_ms) = turn.process_cpu_ms else {
            return;
        };
        let window_s = self.schedule.runtime.as_secs_f64();
        let times = (self.schedule.ramp.as_secs_f64() + window_s) / window_s;
        let counted_ms = turn.done.cpu_ns_per_io * turn.done.ios as f64 / 1e6 * times;
        if process_ms as f64 > counted_ms * UNCOUNTED_FACTOR + UNCOUNTED_MS {
            self.verdict.note(format!(
                "{cell}: {} had kernel workers do a part of its I/O, whose CPU time it does not count",
                turn.side
            ));
        }
    }

    fn left(&self, elapsed: Duration) -> Duration {
        self.total
            .saturating_sub(self.spent)
            .saturating_sub(elapsed)
    }

    fn draw(&self, what: &str, elapsed: Duration, progress: &mut Progress) {
        progress.measuring(what, self.total, self.left(elapsed));
    }

    /// `[ 3/36] randread 4k: Swath 1.823M IOPS, fio at its best 1.502M IOPS, 2m 10s left`.
    fn cell_line(&self, number: usize, done: &CellVerdict) -> String {
        let total = self.schedule.cells.len();
        let width = total.to_string().len();
        let mut text = format!("[{number:>width$}/{total}] {}: ", done.cell);
        let rates = self.schedule.sides().into_iter().map(|side| {
            let rate = done.median_of(side, Done::iops).unwrap_or(0.0);
            format!("{side} {} IOPS", format_rate(rate))
        });
        text.push_str(&rates.collect::<Vec<_>>().join(", "));
        match self.left(Duration::ZERO) {
            Duration::ZERO => {}
            left => text.push_str(&format!(", {} left", format_duration(left))),
        }
        text
    }
}

/// What fio is to do.
struct Job<'run> {
    cell: &'run Cell,
    settings: FioSettings,
    ramp: Duration,
    runtime: Duration,
    is_probe: bool,
}

impl CellVerdict {
    /// The turns of one side, one for each round.
    pub(crate) fn turns_of(&self, side: Side) -> impl Iterator<Item = &Turn> {
        let turns = self.rounds.iter().flatten();
        turns.filter(move |turn| turn.side == side)
    }

    /// The median over the rounds of something of one side.
    pub(crate) fn median_of(&self, side: Side, what: impl Fn(&Done) -> f64) -> Option<f64> {
        let values = self.turns_of(side).map(|turn| what(&turn.done));
        crate::compare::statistics::median(values)
    }
}

fn nothing_to_try(cell: &Cell) -> Error {
    Error::new(
        ErrorKind::Failed,
        format!("{cell}: there is nothing to try"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Pattern;

    fn schedule(rivals: &[Rival]) -> Schedule {
        Schedule {
            cells: vec![Cell {
                pattern: Pattern::RandRead,
                block_bytes: 1 << 20,
                depth: 8,
                lanes: 1,
            }],
            rivals: rivals.to_vec(),
            rounds: 7,
            ramp: Duration::from_millis(500),
            runtime: Duration::from_secs(3),
            probe: Duration::from_millis(500),
            core: 0,
            seed: 1,
            in_memory: false,
        }
    }

    #[test]
    fn the_time_of_a_run_is_known_beforehand() {
        let both = schedule(&[Rival::Best, Rival::Defaults]).total();
        // Seven rounds of three turns of four seconds at most, and 6 + 3 * 6 probes of a second.
        assert!(both > Duration::from_secs(7 * 3 * 7 / 2), "{both:?}");
        assert!(both < Duration::from_secs(7 * 3 * 4 + 24), "{both:?}");
        assert!(schedule(&[Rival::Defaults]).total() < both);
    }
}
