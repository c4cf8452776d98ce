//! `swath-checkpoint`: what saving and loading a model's checkpoint does, beside the bare volume and
//! other programs.

#![forbid(unsafe_code)]

mod options;

use std::process::ExitCode;

use clap::Parser;
use swath_bench::checkpoint::{
    CheckpointReport, Conditions, Model, ModelReport, Peers, Place, Source, TimesReport, Trial,
    render_checkpoint_header, render_checkpoint_tables,
};
use swath_bench::report::{ReportFile, VolumeReport, print, write_json};
use swath_bench::{
    Environment, Interrupt, MembersOptions, Progress, Result, Subject, TemporaryMembers,
    format_bytes, quote_command,
};
use swath_engine::{FileFill, cpu};

use options::Options;

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("swath-checkpoint: error: {}", error.chain());
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let model = options.model()?;
    let place = options.place(&model);
    if options.dry_run {
        return print(
            &describe(options, &model, &place)?,
            options.report_is_piped(),
        );
    }
    place.check()?;
    let json = options.json.as_deref().map(ReportFile::open).transpose()?;

    let interrupt = Interrupt::install()?;
    let mut progress = if options.quiet {
        Progress::quiet()
    } else {
        Progress::new()
    };
    if options.makes_members() {
        progress.line(&own_members(&place)?);
    }
    let prepared = Subject::prepare(place.main(), &interrupt, &mut |step| {
        progress.preparing(step);
    });
    progress.finish();
    let subject = prepared?;

    let trial_options = options.trial(&interrupt);
    let source = Source::new(&model, options.pages, options.skew_bytes(), options.seed)?;
    let trial = Trial::new(&trial_options, &model, &source, &place)?;
    trial.check_volume(subject.volume())?;
    let mut notes = notes(options);
    let peers = start_peers(options, &model, &source, &interrupt, &mut notes)?;
    let mut report = blank_report(options, &subject, &model, &source, &trial, notes)?;
    print(
        &render_checkpoint_header(&report),
        options.report_is_piped(),
    )?;

    let findings = trial.run(&subject, peers, &mut progress);
    report.take(&findings);
    print(
        &render_checkpoint_tables(&report),
        options.report_is_piped(),
    )?;
    if let Some(file) = json {
        file.write(|output| write_json(&report, output))?;
    }
    findings.stopped.map_or(Ok(()), Err)
}

/// What members the run makes, what they need and what there is: said before anything is written.
fn own_members(place: &Place) -> Result<String> {
    let own = &place.main().own;
    let mut needed = own.clone();
    if let Place::Own { fresh, .. } = place {
        needed.member_bytes += fresh.own.member_bytes;
    }
    let free_bytes = needed.check_place()?;
    Ok(format!(
        "making {} members of {} in {}, and new ones for each first write: needs {}, has {} free; \
         removed at the end",
        own.count,
        format_bytes(own.member_bytes),
        own.parent.display(),
        format_bytes(needed.total_bytes()),
        format_bytes(free_bytes)
    ))
}

/// What `--dry-run` says.
fn describe(options: &Options, model: &Model, place: &Place) -> Result<String> {
    let mut text = if options.makes_members() {
        own_members(place)?
    } else {
        let members = options
            .members
            .iter()
            .map(|path| path.display().to_string());
        format!("members given: {}", members.collect::<Vec<_>>().join(", "))
    };
    let report = ModelReport::of(model);
    text.push_str(&format!(
        "\nmodel {}: {} in {} tensors, {} of them below 1 MiB, the largest {}\n{} rounds, with {} \
         saves over written blocks in each; nothing was touched\n",
        report.shape,
        format_bytes(report.bytes),
        report.tensors,
        report.small_tensors,
        format_bytes(report.largest_bytes),
        options.rounds,
        options.saves
    ));
    Ok(text)
}

fn start_peers(
    options: &Options,
    model: &Model,
    source: &Source,
    interrupt: &Interrupt,
    notes: &mut Vec<String>,
) -> Result<Option<Peers>> {
    if !options.peers {
        return Ok(None);
    }
    let directory = MembersOptions {
        parent: options.peers_parent(),
        count: 0,
        member_bytes: 0,
        fill: FileFill::Unwritten,
    };
    // Each has one checkpoint there at a time.
    let needed = MembersOptions {
        count: 1,
        member_bytes: model.total_bytes(),
        ..directory.clone()
    };
    needed.check_place()?;
    let directory = TemporaryMembers::make(&directory, interrupt, &mut |_, _| ())?;
    let source_bytes = source.bytes().len() as u64;
    Peers::start(
        &options.python,
        model,
        source_bytes,
        directory,
        &mut |note| {
            notes.push(note);
        },
    )
}

fn notes(options: &Options) -> Vec<String> {
    let mut notes = Vec::new();
    let cores = cpu::available().len();
    if options.ranks as usize > cores {
        notes.push(format!("{} threads share {cores} cores", options.ranks));
    }
    if cfg!(debug_assertions) {
        notes.push("built without optimisation: use `cargo run --release`".to_owned());
    }
    if options.rounds < 3 {
        notes.push("ratios from fewer than 3 rounds are mostly noise: --rounds 5".to_owned());
    }
    notes
}

/// The report, but for what is measured.
fn blank_report(
    options: &Options,
    subject: &Subject,
    model: &Model,
    source: &Source,
    trial: &Trial<'_>,
    notes: Vec<String>,
) -> Result<CheckpointReport> {
    let volume = subject.volume();
    Ok(CheckpointReport {
        command: quote_command(std::env::args()),
        version: env!("CARGO_PKG_VERSION"),
        label: options.label.clone(),
        conditions: Conditions {
            seed: options.seed,
            rounds: options.rounds,
            saves: options.saves,
            ranks: options.ranks,
            iodepth: options.iodepth,
            pages: options.pages,
            aligned: !options.unaligned,
            snapshot_bytes: options.snapshot,
            source_bytes: source.bytes().len() as u64,
            target_bytes: trial.target_bytes(),
        },
        notes,
        environment: Environment::collect(volume, subject.preconditioning()),
        volume: VolumeReport::of(volume),
        model: ModelReport::of(model),
        interrupted: false,
        compared: false,
        phases: Vec::new(),
        flush_ns: TimesReport::default(),
        commit_ns: TimesReport::default(),
        stall_ns: TimesReport::default(),
        save_buffers_used: 0,
        checksum_cpu_s_per_gb: 0.0,
        peers: Vec::new(),
    })
}
