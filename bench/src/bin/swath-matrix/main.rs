//! `swath-matrix`: what a striped volume does, from 4 KiB to 1 MiB, sequential and random, read and
//! write.

#![forbid(unsafe_code)]

mod options;
mod settings;

use std::process::ExitCode;

use clap::Parser;
use swath_bench::report::{
    Report, ReportFile, VolumeReport, print, render_header, render_tables, write_csv, write_json,
};
use swath_bench::{
    Environment, Interrupt, Plan, Progress, Result, Runner, Side, Subject, carry_out, format_bytes,
    format_duration, quote_command,
};
use swath_engine::cpu;

use options::Options;

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("swath-matrix: error: {}", error.chain());
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(options: &Options) -> Result<()> {
    options.check()?;
    let plan = options.plan(options.members_expected());
    if options.dry_run {
        return print(&describe(options, &plan)?, options.report_is_piped());
    }
    if options.makes_members() {
        plan.check(options::BLOCK_BYTES_MIN, &[options.own_space()])?;
    }
    let json = options.json.as_deref().map(ReportFile::open).transpose()?;
    let csv = options.csv.as_deref().map(ReportFile::open).transpose()?;

    let interrupt = Interrupt::install()?;
    let mut progress = if options.quiet {
        Progress::quiet()
    } else {
        Progress::new()
    };
    if options.makes_members() {
        progress.line(&own_members(options)?);
    }
    let prepared = Subject::prepare(&options.subject(), &interrupt, &mut |step| {
        progress.preparing(step);
    });
    progress.finish();
    let subject = prepared?;

    let members = u32::try_from(subject.volume().members().len()).unwrap_or(u32::MAX);
    let plan = options.plan(members);
    check_plan(&plan, &subject)?;
    let runner = Runner::new(subject.volume(), options.run(&interrupt));
    let mut report = blank_report(options, &subject);
    print(&render_header(&report), options.report_is_piped())?;
    progress.line(&format!(
        "{} cells, about {}",
        plan.cells.len(),
        format_duration(plan.total())
    ));

    let campaign = carry_out(&plan, &runner, &subject, &mut progress);
    report.interrupted = campaign.is_interrupted();
    report.volume.take_queues(&campaign.queues);
    report.cells = campaign.cells;
    print(&render_tables(&report), options.report_is_piped())?;
    if let Some(file) = json {
        file.write(|output| write_json(&report, output))?;
    }
    if let Some(file) = csv {
        file.write(|output| write_csv(&report, output))?;
    }
    campaign.stopped.map_or(Ok(()), Err)
}

/// What members the run makes, what they need and what there is: said before anything is written.
fn own_members(options: &Options) -> Result<String> {
    let own = options.own_members();
    let free_bytes = own.check_place()?;
    Ok(format!(
        "making {} members of {} in {}: needs {}, has {} free; removed at the end",
        own.count,
        format_bytes(own.member_bytes),
        own.parent.display(),
        format_bytes(own.total_bytes()),
        format_bytes(free_bytes)
    ))
}

/// What `--dry-run` says.
fn describe(options: &Options, plan: &Plan) -> Result<String> {
    let mut text = if options.makes_members() {
        own_members(options)?
    } else {
        let members = options
            .members
            .iter()
            .map(|path| path.display().to_string());
        format!("members given: {}", members.collect::<Vec<_>>().join(", "))
    };
    text.push('\n');
    for cell in &plan.cells {
        text.push_str(&format!(
            "{cell}: iodepth {}, numjobs {}, rounds {}\n",
            cell.depth, cell.lanes, plan.rounds
        ));
    }
    text.push_str(&format!(
        "{} cells, {} measurements, about {}; nothing was touched\n",
        plan.cells.len(),
        plan.measurements(),
        format_duration(plan.total())
    ));
    Ok(text)
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
    let cores = cpu::available().len();
    let mut notes = Vec::new();
    if usize::try_from(options.numjobs).is_ok_and(|lanes| lanes > cores) {
        notes.push(format!("{} lanes share {cores} cores", options.numjobs));
    }
    if cfg!(debug_assertions) {
        notes.push("built without optimisation: use `cargo run --release`".to_owned());
    }
    let plan = options.plan(u32::try_from(volume.members().len()).unwrap_or(u32::MAX));
    if plan.sides.contains(&Side::Members) && plan.rounds < 3 {
        notes.push("an efficiency from fewer than 3 rounds is mostly noise: --rounds 5".to_owned());
    }
    Report {
        command: quote_command(std::env::args()),
        version: env!("CARGO_PKG_VERSION"),
        label: options.label.clone(),
        interrupted: false,
        seed: options.seed,
        rounds: plan.rounds,
        ramp_ms: u64::try_from(options.ramp_time.as_millis()).unwrap_or(u64::MAX),
        notes,
        environment: Environment::collect(volume, subject.preconditioning()),
        volume: VolumeReport::of(volume),
        cells: Vec::new(),
    }
}
