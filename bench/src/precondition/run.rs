//! Writing it, with progress.

use std::time::{Duration, Instant};

use swath_engine::{QueueOptions, cpu};

use super::{Precondition, PreconditionReport, RANDOM_BYTES, RandomWrites, SEQUENTIAL_BYTES};
use crate::error::{Error, Result};
use crate::fill::{Pieces, write_through};
use crate::progress::Progress;
use crate::report::{format_bandwidth, millis, whole};
use crate::runner::{Measurement, Origin, RunOptions, Runner};
use crate::size::{format_bytes, format_duration};
use crate::steady::{SteadyOptions, SteadyReport};
use crate::subject::{DataState, Subject};
use crate::target::Side;
use crate::workload::{Cell, Pattern, depth_auto};

/// Random writes by capacity go in slices of at most this, and of less at the beginning, when their
/// rate is not known, and at the end.
const SLICE_MAX: Duration = Duration::from_secs(10);
const SLICE_FIRST: Duration = Duration::from_millis(100);
const SLICE_MIN: Duration = Duration::from_millis(20);

/// More lanes than this do not write faster, and each has its memory.
const LANES_MAX: usize = 8;

/// Writes what `plan` says and notes in `subject` that it was.
///
/// Random writes run as cells do, by `options`; until steady, in rounds of `options.runtime` that are
/// judged by `steady`. Passes are written by `queue`.
///
/// # Errors
///
/// The volume is open for reading only, a write failed, or the run was interrupted.
pub fn precondition(
    plan: &Precondition,
    subject: &mut Subject,
    queue: &QueueOptions,
    options: &RunOptions,
    steady: &SteadyOptions,
    progress: &mut Progress,
) -> Result<PreconditionReport> {
    if subject.volume().is_read_only() {
        return Err(Error::usage(
            "a volume that is open for reading only cannot be preconditioned",
        ));
    }
    let mut report = PreconditionReport {
        sequential_passes: plan.passes,
        ..PreconditionReport::default()
    };
    let outcome = passes(plan, subject, queue, options, progress, &mut report)
        .and_then(|()| random(plan, subject, options, steady, progress, &mut report));
    progress.finish();
    outcome?;
    if plan.passes > 0 {
        subject.know_state(DataState::Written);
    }
    let verdict = match &report.random_steady {
        Some(steady) if !steady.is_steady => ", which it never was",
        _ => "",
    };
    let done = format!("; then {plan}{verdict}");
    subject.add_preconditioning(&done);
    Ok(report)
}

fn passes(
    plan: &Precondition,
    subject: &Subject,
    queue: &QueueOptions,
    options: &RunOptions,
    progress: &mut Progress,
    report: &mut PreconditionReport,
) -> Result<()> {
    if plan.passes == 0 {
        return Ok(());
    }
    let volume = subject.volume();
    let members = u32::try_from(volume.members().len()).unwrap_or(u32::MAX);
    let pieces = Pieces {
        bytes: SEQUENTIAL_BYTES,
        count: depth_auto(SEQUENTIAL_BYTES, 1, members),
    };
    let total_bytes = volume
        .capacity_bytes()
        .saturating_mul(u64::from(plan.passes));
    let started = Instant::now();
    for pass in 0..plan.passes {
        let before = volume.capacity_bytes() * u64::from(pass);
        let what = format!("preconditioning, pass {} of {}", pass + 1, plan.passes);
        // Other data each time: a drive that compares would not write the same again.
        let seed = options.seed.wrapping_add(u64::from(pass) + 1);
        write_through(
            volume,
            pieces,
            queue,
            seed,
            &options.interrupt,
            &mut |done| {
                progress.writing(&what, before + done, total_bytes, started.elapsed());
            },
        )?;
    }
    report.sequential_bytes = total_bytes;
    report.sequential_ms = millis(started.elapsed());
    progress.line(&format!(
        "preconditioned sequentially: {}",
        summary(total_bytes, started.elapsed())
    ));
    Ok(())
}

fn random(
    plan: &Precondition,
    subject: &Subject,
    options: &RunOptions,
    steady: &SteadyOptions,
    progress: &mut Progress,
    report: &mut PreconditionReport,
) -> Result<()> {
    let Some(random) = plan.random else {
        return Ok(());
    };
    let volume = subject.volume();
    let members = u32::try_from(volume.members().len()).unwrap_or(u32::MAX);
    let lanes = u32::try_from(cpu::available().len().clamp(1, LANES_MAX)).unwrap_or(1);
    let cell = Cell {
        pattern: Pattern::RandWrite,
        block_bytes: RANDOM_BYTES,
        depth: depth_auto(RANDOM_BYTES, lanes, members),
        lanes,
    };
    let mut writes = Writes {
        subject,
        options,
        cell,
        rounds: Vec::new(),
    };
    let started = Instant::now();
    match random {
        RandomWrites::Capacity(times) => {
            let total = volume.capacity_bytes().saturating_mul(u64::from(times));
            writes.bytes(total, &mut |done| {
                let what = "preconditioning at random";
                progress.writing(what, done.min(total), total, started.elapsed());
            })?;
        }
        RandomWrites::UntilSteady => {
            let most = (options.runtime).saturating_mul(steady.rounds_max);
            for round in 1..=steady.rounds_max {
                let what = format!(
                    "preconditioning at random, round {round} of at most {}",
                    steady.rounds_max
                );
                writes.round(options.runtime, &mut |_| {
                    progress.measuring(&what, most, most.saturating_sub(started.elapsed()));
                })?;
                if steady.is_steady(&writes.rates()) {
                    break;
                }
            }
            report.random_steady = SteadyReport::of(steady, &writes.rates());
        }
    }
    report.random_bytes = writes.rounds.iter().map(|round| round.bytes).sum();
    report.random_ms = millis(started.elapsed());
    report.random_bw_bytes_rounds = writes.rates().into_iter().map(whole).collect();
    let verdict = report
        .random_steady
        .map_or_else(String::new, |steady| format!(", {}", steady.verdict()));
    progress.line(&format!(
        "preconditioned at random: {}{verdict}",
        summary(report.random_bytes, started.elapsed())
    ));
    Ok(())
}

fn summary(bytes: u64, time: Duration) -> String {
    let rate = bytes as f64 / time.as_secs_f64().max(1e-9);
    format!(
        "{} in {}, {}",
        format_bytes(bytes),
        format_duration(time),
        format_bandwidth(whole(rate))
    )
}

/// Random writes in rounds, each at other offsets than the ones before.
struct Writes<'run> {
    subject: &'run Subject,
    options: &'run RunOptions,
    cell: Cell,
    rounds: Vec<Measurement>,
}

impl Writes<'_> {
    fn rates(&self) -> Vec<f64> {
        self.rounds.iter().map(Measurement::bytes_per_s).collect()
    }

    fn round(&mut self, time: Duration, tick: &mut dyn FnMut(Duration)) -> Result<()> {
        let options = RunOptions {
            ramp: Duration::ZERO,
            runtime: time,
            latencies: false,
            reap: None,
            ..self.options.clone()
        };
        let runner = Runner::new(self.subject.volume(), options);
        // Its first rounds are others than those of the cells that are measured.
        let number = u32::try_from(self.rounds.len()).unwrap_or(u32::MAX);
        let origin = Origin {
            round: u32::MAX - number,
            blocks_done: 0,
        };
        let round = runner.run_on(&self.cell, Side::Volume, origin, tick)?;
        self.rounds.push(round);
        Ok(())
    }

    /// Writes at least so many bytes.
    fn bytes(&mut self, total: u64, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let (mut done, mut rate, mut slice) = (0, 0.0, SLICE_FIRST);
        while done < total {
            self.round(slice, &mut |elapsed| {
                progress(done + whole(rate * elapsed.as_secs_f64()));
            })?;
            if let Some(round) = self.rounds.last() {
                done += round.bytes;
                rate = round.bytes_per_s();
            }
            progress(done);
            let left_s = total.saturating_sub(done) as f64 / rate.max(1.0);
            let left = Duration::try_from_secs_f64(left_s).unwrap_or(SLICE_MAX);
            slice = left.clamp(SLICE_MIN, SLICE_MAX);
        }
        Ok(())
    }
}
