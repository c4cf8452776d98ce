//! `swath-compare`: the same cells by Swath and by fio, in turn, on the same members.

#![forbid(unsafe_code)]

mod options;
mod settings;

use std::process::ExitCode;

use clap::Parser;
use swath_bench::command_line::{common_notes, exit, making_members};
use swath_bench::compare::{
    Arena, Comparison, Contest, Fio, FioReport, Schedule, render_comparison_header,
    render_comparison_tables, write_comparison_csv,
};
use swath_bench::report::{VolumeReport, print, write_json};
use swath_bench::{Environment, Interrupt, Result, format_duration, quote_command};

use options::Options;

fn main() -> ExitCode {
    exit("swath-compare", run(&Options::parse()))
}

fn run(options: &Options) -> Result<()> {
    options.check()?;
    let piped = options.report.is_piped();
    let fio = Fio::find(&options.fio)?;
    let schedule = options.schedule(options.members_expected())?;
    if options.report.dry_run {
        return print(&describe(options, &schedule, &fio)?, piped);
    }
    let files = options.report.open()?;

    let interrupt = Interrupt::install()?;
    let mut progress = options.report.progress();
    if options.volume.makes_members() {
        progress.line(&own_members(options)?);
    }
    let prepared = Arena::prepare(
        options.subject()?,
        options.state(),
        &schedule.cells,
        &interrupt,
        &mut |step| progress.preparing(step),
    );
    progress.finish();
    let mut arena = prepared?;

    let mut report = blank_report(options, &arena, &fio, &schedule);
    print(&render_comparison_header(&report), piped)?;
    progress.line(&duration(&schedule));

    let verdict = Contest::new(&schedule, &fio, &interrupt).carry_out(&mut arena, &mut progress);
    report.take(&verdict);
    let found: String = verdict
        .notes()
        .map(|note| format!("  note      {note}\n"))
        .collect();
    print(&(found + &render_comparison_tables(&report)), piped)?;
    if let Some(file) = files.json {
        file.write(|output| write_json(&report, output))?;
    }
    if let Some(file) = files.csv {
        file.write(|output| write_comparison_csv(&report, output))?;
    }
    verdict.stopped.map_or(Ok(()), Err)
}

/// What members the run makes, what they need and what there is: said before anything is written.
fn own_members(options: &Options) -> Result<String> {
    let own = options.own_members();
    making_members(&own, own.total_bytes(), "")
}

fn duration(schedule: &Schedule) -> String {
    let count = schedule.cells.len();
    format!(
        "{count} cell{}, {} rounds of each, about {}",
        if count == 1 { "" } else { "s" },
        schedule.rounds,
        format_duration(schedule.total())
    )
}

/// What `--dry-run` says.
fn describe(options: &Options, schedule: &Schedule, fio: &Fio) -> Result<String> {
    let mut text = if options.volume.makes_members() {
        own_members(options)?
    } else {
        options.volume.given_members()
    };
    text.push_str(&format!(
        "\nagainst {} ({}), both on core {}\n",
        fio.version(),
        fio.path().display(),
        schedule.core
    ));
    for cell in &schedule.cells {
        text.push_str(&format!("{cell}: iodepth {}\n", cell.depth));
    }
    text.push_str(&duration(schedule));
    text.push_str("; nothing was touched\n");
    Ok(text)
}

/// The report, but for its cells.
fn blank_report(options: &Options, arena: &Arena, fio: &Fio, schedule: &Schedule) -> Comparison {
    let subject = arena.subject();
    let volume = subject.volume();
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut notes = common_notes(1, "threads");
    if arena.is_state_unknown() {
        notes.push("the devices do not tell whether their blocks were written".to_owned());
    }
    notes.extend(Comparison::notes_of(schedule, arena.state()));
    Comparison {
        command: quote_command(std::env::args()),
        version: env!("CARGO_PKG_VERSION"),
        label: options.report.label.clone(),
        interrupted: false,
        seed: schedule.seed,
        rounds: schedule.rounds,
        ramp_ms: millis(schedule.ramp),
        runtime_ms: millis(schedule.runtime),
        probe_ms: millis(schedule.probe),
        state: arena.state(),
        core: schedule.core,
        notes,
        environment: Environment::collect(volume, subject.preconditioning()),
        volume: VolumeReport::of(volume),
        fio: FioReport::of(fio),
        cells: Vec::new(),
        geometric_mean: None,
        geometric_mean_defaults: None,
        below_one: Vec::new(),
    }
}
