//! `swath-matrix`: what a striped volume does, from 4 KiB to 1 MiB, sequential and random, read and
//! write.

#![forbid(unsafe_code)]

mod options;
mod settings;
mod validation;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use swath_bench::command_line::{BLOCK_BYTES_MIN, common_notes, exit, making_members};
use swath_bench::report::{
    REPORT_FORMAT, Report, VolumeReport, print, render_header, render_tables, write_csv, write_json,
};
use swath_bench::verify::VerifyReport;
use swath_bench::{
    Environment, Interrupt, Plan, PreconditionReport, Progress, RandomWrites, Result, Runner, Side,
    Subject, carry_out, format_bytes, format_duration, precondition, quote_command,
};

use options::Options;
use validation::Validation;

fn main() -> ExitCode {
    exit("swath-matrix", run(&Options::parse()))
}

fn run(options: &Options) -> Result<()> {
    options.check()?;
    let plan = options.plan(options.members_expected());
    plan.check_count()?;
    if options.report.dry_run {
        return print(
            &describe(options, &plan)?,
            options.page.is_piped(&options.report),
        );
    }
    if options.volume.makes_members() {
        plan.check(BLOCK_BYTES_MIN, &[options.own_space()])?;
    }
    options.verify.check_journal(&options.volume)?;
    let files = options.report.open()?;
    let html = options.page.open()?;

    let interrupt = Interrupt::install()?;
    let mut progress = options.report.progress();
    if options.volume.makes_members() {
        progress.line(&own_members(options)?);
    }
    let prepared = Subject::prepare(&options.subject(), &interrupt, &mut |step| {
        progress.preparing(step);
    });
    progress.finish();
    let mut subject = prepared?;

    let members = u32::try_from(subject.volume().members().len()).unwrap_or(u32::MAX);
    let mut plan = options.plan(members);
    check_plan(&plan, &subject)?;
    let precondition = preconditioned(options, &mut subject, &interrupt, &mut progress)?;
    let validation =
        Validation::begin(options, &mut plan, &mut subject, &interrupt, &mut progress)?;
    let runner = Runner::new(subject.volume(), options.run(&interrupt));
    let runner = match validation.verifier() {
        Some(verifier) => runner.verifying(verifier),
        None => runner,
    };
    let mut report = blank_report(options, &subject);
    print(
        &render_header(&report),
        options.page.is_piped(&options.report),
    )?;
    if !plan.cells.is_empty() {
        progress.line(&plan.describe());
    }

    let campaign = carry_out(&plan, &runner, &subject, &mut progress);
    report.interrupted = campaign.is_interrupted();
    report.volume.take_queues(&campaign.queues);
    report.cells = campaign.cells;
    report.precondition = precondition;
    if plan.steady.is_some() {
        let rounds = report.cells.iter().map(|cell| cell.bw_bytes_rounds.len());
        report.rounds = u32::try_from(rounds.max().unwrap_or(0)).unwrap_or(u32::MAX);
    }
    let has_cells = !plan.cells.is_empty();
    let volume = subject.volume();
    let stopped = validation.end(
        campaign.stopped,
        has_cells,
        volume,
        &mut report,
        &mut progress,
    );
    let tables = if has_cells {
        render_tables(&report)
    } else {
        String::new()
    };
    let checks = report.verify.as_ref().map(VerifyReport::render);
    print(
        &(tables + &checks.unwrap_or_default()),
        options.page.is_piped(&options.report),
    )?;
    if let Some(file) = files.json {
        file.write(|output| write_json(&report, output))?;
    }
    if let Some(file) = files.csv {
        file.write(|output| write_csv(&report, output))?;
    }
    if let Some(file) = html {
        file.write(&report)?;
    }
    stopped.map_or(Ok(()), Err)
}

/// What members the run makes, what they need and what there is: said before anything is written.
fn own_members(options: &Options) -> Result<String> {
    let own = options.own_members();
    making_members(&own, own.total_bytes(), "")
}

/// Writes the volume over, if that is asked for.
fn preconditioned(
    options: &Options,
    subject: &mut Subject,
    interrupt: &Interrupt,
    progress: &mut Progress,
) -> Result<Option<PreconditionReport>> {
    let Some(plan) = &options.precondition else {
        return Ok(None);
    };
    let steady = options.steady_state.unwrap_or_default();
    let queue = options.queue.fill_queue();
    let run = options.run(interrupt);
    precondition(plan, subject, &queue, &run, &steady, progress).map(Some)
}

/// What `--dry-run` says.
fn describe(options: &Options, plan: &Plan) -> Result<String> {
    let mut text = if options.volume.makes_members() {
        own_members(options)?
    } else {
        options.volume.given_members()
    };
    text.push('\n');
    text.push_str(&options.verify.describe());
    text.push_str(&preconditioning(options));
    let most = if plan.steady.is_some() {
        "at most "
    } else {
        ""
    };
    for cell in &plan.cells {
        text.push_str(&format!(
            "{cell}: iodepth {}, numjobs {}, rounds {most}{}\n",
            cell.depth,
            cell.lanes,
            plan.rounds_max()
        ));
    }
    text.push_str(&format!(
        "{}, {most}{} measurements; nothing was touched\n",
        plan.describe(),
        plan.measurements()
    ));
    Ok(text)
}

/// What would be written before anything is measured. How long that takes is for the drives to say.
fn preconditioning(options: &Options) -> String {
    let Some(precondition) = &options.precondition else {
        return String::new();
    };
    let mut text = format!("preconditioning: the volume {precondition}");
    if options.volume.makes_members() {
        let bytes = precondition.bytes(options.own.volume_space(&options.volume).length);
        text.push_str(&format!(
            "; {}, {} at 1 GB/s",
            format_bytes(bytes),
            format_duration(Duration::from_secs(bytes.div_ceil(1_000_000_000)))
        ));
    }
    if precondition.random == Some(RandomWrites::UntilSteady) {
        let steady = options.steady_state.unwrap_or_default();
        text.push_str(&format!(
            "; {} to {} until steady",
            format_duration(options.runtime.saturating_mul(steady.window)),
            format_duration(options.runtime.saturating_mul(steady.rounds_max))
        ));
    }
    text.push_str("; besides the time below\n");
    text
}

/// Refuses cells that the volume cannot run before the first one runs.
fn check_plan(plan: &Plan, subject: &Subject) -> Result<()> {
    let volume = subject.volume();
    let block_bytes = u64::from(volume.block_bytes());
    plan.sides
        .iter()
        .try_for_each(|side| plan.check(block_bytes, &side.spaces(volume)))
}

/// The report, but for its cells.
fn blank_report(options: &Options, subject: &Subject) -> Report {
    let volume = subject.volume();
    let mut notes = common_notes(options.lanes_most(), "lanes");
    let plan = options.plan(u32::try_from(volume.members().len()).unwrap_or(u32::MAX));
    if plan.sides.contains(&Side::Members) && plan.rounds_max() < 3 {
        notes.push("an efficiency from fewer than 3 rounds is mostly noise: --rounds 5".to_owned());
    }
    notes.extend(options.verify.note());
    Report {
        kind: "matrix",
        format: REPORT_FORMAT,
        command: quote_command(std::env::args()),
        version: env!("CARGO_PKG_VERSION"),
        label: options.report.label.clone(),
        interrupted: false,
        seed: options.seed,
        rounds: plan.rounds,
        steady_state: options.steady_state,
        precondition: None,
        ramp_ms: u64::try_from(options.ramp_time.as_millis()).unwrap_or(u64::MAX),
        notes,
        environment: Environment::collect(volume, subject.preconditioning()),
        volume: VolumeReport::of(volume),
        cells: Vec::new(),
        verify: None,
    }
}
