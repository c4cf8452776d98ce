//! `swath-checkpoint`: what saving and loading a model's checkpoint does, beside the bare volume and
//! other programs.

#![forbid(unsafe_code)]

mod options;

use std::process::ExitCode;

use clap::Parser;
use swath_bench::checkpoint::{
    CheckpointReport, Conditions, Model, ModelReport, PEERS_HOW_TO, Peers, Place, Source,
    TimesReport, Trial, render_checkpoint_header, render_checkpoint_tables, serve_rank,
    write_checkpoint_csv,
};
use swath_bench::command_line::{common_notes, exit, making_members};
use swath_bench::report::{VolumeReport, print, write_json};
use swath_bench::{
    Environment, Error, ErrorKind, Interrupt, MembersOptions, Result, Subject, TemporaryMembers,
    check_room, format_bytes, quote_command,
};
use swath_engine::FileFill;

use options::Options;

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = if options.rank_process {
        serve_rank()
    } else {
        run(&options)
    };
    exit("swath-checkpoint", outcome)
}

fn run(options: &Options) -> Result<()> {
    let model = options.model()?;
    let place = options.place(&model);
    let piped = options.report.is_piped();
    if options.report.dry_run {
        return print(&describe(options, &model, &place)?, piped);
    }
    place.check()?;
    let making = check_place(options, &model, &place)?;
    let files = options.report.open()?;

    let interrupt = Interrupt::install()?;
    let mut progress = options.report.progress();
    let trial_options = options.trial(&interrupt)?;
    let source = Source::new(
        &model,
        options.pages,
        options.skew_bytes(),
        trial_options.settings.memory_bytes,
        options.seed,
    )?;
    let mut notes = notes(options);
    // Before minutes of writing members: whether there are any peers is known in seconds.
    if options.peers {
        let python = options.python.display();
        progress.line(&format!("asking {python} for torch and safetensors"));
    }
    let peers = start_peers(options, &model, &source, &interrupt, &mut notes)?;
    if let Some(making) = making {
        progress.line(&making);
    }
    let prepared = Subject::prepare(place.main(), &interrupt, &mut |step| {
        progress.preparing(step);
    });
    progress.finish();
    let mut subject = prepared?;

    let trial = Trial::new(&trial_options, &model, &source, &place)?;
    trial.check_volume(subject.volume())?;
    let mut report = blank_report(options, &subject, &model, &source, &trial, notes);
    print(&render_checkpoint_header(&report), piped)?;

    let findings = trial.run(&mut subject, peers, &mut progress);
    report.take(&findings);
    print(&render_checkpoint_tables(&report), piped)?;
    if let Some(file) = files.json {
        file.write(|output| write_json(&report, output))?;
    }
    if let Some(file) = files.csv {
        file.write(|output| write_checkpoint_csv(&report, output))?;
    }
    findings.stopped.map_or(Ok(()), Err)
}

/// Sees that there is room for all that the run makes: says what members that is, if it makes any.
fn check_place(options: &Options, model: &Model, place: &Place) -> Result<Option<String>> {
    let mut needs = 0;
    let mut besides = String::new();
    let mut written_bytes = 0;
    if let Place::Own { written, fresh } = place {
        written_bytes = written.own.total_bytes();
        needs = written_bytes + fresh.own.total_bytes();
        besides.push_str(", and new ones for each first write");
    }
    if options.peers {
        let parent = options.peers_parent()?;
        if options.volume.makes_members() && parent == options.volume.parent() {
            // They take their turn when the new ones are gone again.
            needs = needs.max(written_bytes + peers_bytes(model));
            besides.push_str(", and what peers save");
        } else {
            check_room(
                &parent,
                peers_bytes(model),
                "what peers save needs",
                "--peers-dir",
            )?;
        }
    }
    match place {
        Place::Own { written, .. } => making_members(&written.own, needs, &besides).map(Some),
        Place::Given(_) => Ok(None),
    }
}

/// Each has one checkpoint there at a time, and may write the next before it lets go of the last.
fn peers_bytes(model: &Model) -> u64 {
    2 * model.total_bytes()
}

/// What `--dry-run` says.
fn describe(options: &Options, model: &Model, place: &Place) -> Result<String> {
    let making = check_place(options, model, place)?;
    let mut text = making.unwrap_or_else(|| options.volume.given_members());
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
    let source_bytes = source.bytes().len() as u64;
    Peers::check_memory(model, source_bytes)?;
    let directory = MembersOptions {
        parent: options.peers_parent()?,
        count: 0,
        member_bytes: 0,
        fill: FileFill::Unwritten,
    };
    let directory = TemporaryMembers::make(&directory, interrupt, &mut |_, _| ())?;
    let mut missing = Vec::new();
    let peers = Peers::start(
        &options.python,
        model,
        source_bytes,
        directory,
        interrupt,
        &mut |note| missing.push(note),
    )?;
    if peers.is_none() {
        return Err(Error::new(
            ErrorKind::Refused,
            format!(
                "there are no peers: {}; to get them: {PEERS_HOW_TO}; or leave --peers out",
                missing.join("; ")
            ),
        ));
    }
    let missing = missing.into_iter();
    notes.extend(missing.map(|it| format!("{it}; to get it: {PEERS_HOW_TO}")));
    Ok(peers)
}

fn notes(options: &Options) -> Vec<String> {
    let what = if options.processes {
        "processes"
    } else {
        "threads"
    };
    let mut notes = common_notes(options.ranks, what);
    if options.processes {
        notes.push(
            "ranks are processes: the bare volume is moved by as many threads, and save_async is \
             not measured"
                .to_owned(),
        );
    }
    if options.rounds < 3 {
        notes.push("ratios from fewer than 3 rounds are mostly noise: --rounds 5".to_owned());
    }
    if options.peers && options.ranks > 1 {
        notes.push(format!(
            "peers have one thread, and swath has {}: with --ranks 1 it has one, too",
            options.ranks
        ));
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
) -> CheckpointReport {
    let volume = subject.volume();
    CheckpointReport {
        command: quote_command(std::env::args()),
        version: env!("CARGO_PKG_VERSION"),
        label: options.report.label.clone(),
        conditions: Conditions {
            seed: options.seed,
            rounds: options.rounds,
            saves: options.saves,
            ranks: options.ranks,
            processes: options.processes,
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
    }
}
