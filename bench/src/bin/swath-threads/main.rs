//! `swath-threads`: what a striped volume gives to threads that block, by block size and number.

#![forbid(unsafe_code)]

mod options;

use std::process::ExitCode;

use clap::Parser;
use swath_bench::command_line::{BLOCK_BYTES_MIN, common_notes, exit, making_members};
use swath_bench::report::{
    REPORT_FORMAT, Report, VolumeReport, print, render_conditions, write_csv, write_json,
};
use swath_bench::threads::{ThreadsReport, XFER_TYPE, check, gdsio_line, render_grids};
use swath_bench::{
    Environment, Interrupt, Plan, Result, Runner, Subject, carry_out, format_duration, format_size,
    quote_command,
};

use options::Options;

const PROGRAM: &str = "swath-threads";

fn main() -> ExitCode {
    exit(PROGRAM, run(&Options::parse()))
}

fn run(options: &Options) -> Result<()> {
    options.check()?;
    let plan = options.plan();
    if options.volume.makes_members() {
        let space = options.own.volume_space(&options.volume);
        check(&plan.cells, BLOCK_BYTES_MIN, space.length)?;
    }
    let tables_to_stderr = options.page.is_piped(&options.report) || options.gdsio_line;
    if options.report.dry_run {
        return print(&describe(options, &plan)?, tables_to_stderr);
    }
    let files = options.report.open()?;
    let html = options.page.open()?;

    let interrupt = Interrupt::install()?;
    let mut progress = options.report.progress();
    if options.volume.makes_members() {
        progress.line(&own_members(options)?);
    }
    progress.line(&summary(&plan));
    let prepared = Subject::prepare(&options.subject(), &interrupt, &mut |step| {
        progress.preparing(step);
    });
    progress.finish();
    let subject = prepared?;

    let volume = subject.volume();
    let volume_bytes = volume.capacity_bytes();
    check(&plan.cells, u64::from(volume.block_bytes()), volume_bytes)?;
    let runner = Runner::new(volume, options.run(&interrupt)).apart();
    let mut report = blank_report(options, &subject);
    print(&header(&report.run), tables_to_stderr)?;

    let campaign = carry_out(&plan, &runner, &subject, &mut progress);
    report.run.interrupted = campaign.is_interrupted();
    report.run.volume.take_queues(&campaign.queues);
    report.run.cells = campaign.cells;
    print(&render_grids(&report.run), tables_to_stderr)?;
    if options.gdsio_line {
        let cells = report.run.cells.iter();
        let lines: String = cells
            .map(|cell| gdsio_line(cell, volume_bytes) + "\n")
            .collect();
        print(&lines, false)?;
    }
    if let Some(file) = files.json {
        file.write(|output| write_json(&report, output))?;
    }
    if let Some(file) = files.csv {
        file.write(|output| write_csv(&report.run, output))?;
    }
    if let Some(file) = html {
        file.write(&report)?;
    }
    campaign.stopped.map_or(Ok(()), Err)
}

/// What members the run makes, what they need and what there is: said before anything is written.
fn own_members(options: &Options) -> Result<String> {
    let own = options.own.members(&options.volume, options.seed);
    making_members(&own, own.total_bytes(), "")
}

fn summary(plan: &Plan) -> String {
    let count = plan.cells.len();
    format!("{count} cells, about {}", format_duration(plan.total()))
}

/// What `--dry-run` says.
fn describe(options: &Options, plan: &Plan) -> Result<String> {
    let mut text = if options.volume.makes_members() {
        own_members(options)?
    } else {
        options.volume.given_members()
    };
    let list = |items: Vec<String>| items.join(", ");
    text.push_str(&format!(
        "\nrw: {}\nbs: {}\nthreads: {}, each with a region of its own and one request in flight\n\
         {}; nothing was touched\n",
        list(options.patterns().iter().map(ToString::to_string).collect()),
        list(options.bs.0.iter().map(|&size| format_size(size)).collect()),
        list(options.threads.0.iter().map(u32::to_string).collect()),
        summary(plan)
    ));
    Ok(text)
}

/// What is measured and where. Known before the first cell runs.
fn header(report: &Report) -> String {
    let label = report.label.iter();
    let label: String = label.map(|label| format!(": {label}")).collect();
    let conditions = render_conditions(&report.volume, &report.environment, &report.notes);
    format!("{PROGRAM} {}{label}\n{conditions}", report.version)
}

/// The report, but for its cells.
fn blank_report(options: &Options, subject: &Subject) -> ThreadsReport {
    let volume = subject.volume();
    let threads_max = options.threads.0.iter().copied().max().unwrap_or(1);
    let mut notes = common_notes(threads_max, "threads");
    notes.push(format!(
        "transfers between drives and CPU memory ({XFER_TYPE}); each thread has a region of its own \
         and one request in flight"
    ));
    ThreadsReport {
        program: PROGRAM,
        xfer_type: XFER_TYPE,
        run: Report {
            kind: "threads",
            format: REPORT_FORMAT,
            command: quote_command(std::env::args()),
            version: env!("CARGO_PKG_VERSION"),
            label: options.report.label.clone(),
            interrupted: false,
            seed: options.seed,
            rounds: options.rounds,
            steady_state: None,
            precondition: None,
            ramp_ms: u64::try_from(options.ramp_time.as_millis()).unwrap_or(u64::MAX),
            notes,
            environment: Environment::collect(volume, subject.preconditioning()),
            volume: VolumeReport::of(volume),
            cells: Vec::new(),
            verify: None,
        },
    }
}
