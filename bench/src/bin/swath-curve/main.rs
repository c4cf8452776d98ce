//! `swath-curve`: how long requests take on a striped volume, by how many of them arrive.

#![forbid(unsafe_code)]

mod options;

use std::process::ExitCode;

use clap::Parser;
use swath_bench::command_line::{BLOCK_BYTES_MIN, common_notes, exit, making_members};
use swath_bench::curve::{
    Course, CurveReport, PointOptions, Profile, render_curves, shipped, text_of, walk,
    write_curve_csv,
};
use swath_bench::report::{REPORT_FORMAT, VolumeReport, print, render_conditions, write_json};
use swath_bench::{Environment, Interrupt, Result, Subject, format_duration, quote_command};

use options::Options;

const PROGRAM: &str = "swath-curve";

fn main() -> ExitCode {
    exit(PROGRAM, run(&Options::parse()))
}

fn run(options: &Options) -> Result<()> {
    if options.list_profiles {
        return print(&list(&shipped()?), false);
    }
    if let Some(name) = &options.show_profile {
        return print(text_of(name)?, false);
    }
    let course = options.course()?;
    options.check(&course)?;
    if options.volume.makes_members() {
        let space = options.own.volume_space(&options.volume);
        course.check(BLOCK_BYTES_MIN, space.length)?;
    }
    let is_piped = options.page.is_piped(&options.report);
    if options.report.dry_run {
        return print(&describe(options, &course)?, is_piped);
    }
    let files = options.report.open()?;
    let html = options.page.open()?;

    let interrupt = Interrupt::install()?;
    let point_options = options.point(&interrupt);
    let mut progress = options.report.progress();
    if options.volume.makes_members() {
        progress.line(&own_members(options)?);
    }
    progress.line(&summary(&course, &point_options));
    let prepared = Subject::prepare(&options.subject(&course), &interrupt, &mut |step| {
        progress.preparing(step);
    });
    progress.finish();
    let subject = prepared?;

    let volume = subject.volume();
    course.check(u64::from(volume.block_bytes()), volume.capacity_bytes())?;
    let mut report = blank_report(options, &course, &point_options, &subject);
    print(&header(&report), is_piped)?;

    let mut printed = Ok(());
    let outcome = walk(
        &course,
        &subject,
        &point_options,
        &mut progress,
        &mut |lines| {
            if printed.is_ok() {
                printed = print(lines, is_piped);
            }
        },
    );
    printed?;
    report.interrupted = outcome.is_interrupted();
    report.volume.take_queues(&outcome.queues);
    report.workloads = outcome.workloads;
    print(&render_curves(&report), is_piped)?;
    if let Some(file) = files.json {
        file.write(|output| write_json(&report, output))?;
    }
    if let Some(file) = files.csv {
        file.write(|output| write_curve_csv(&report, output))?;
    }
    if let Some(file) = html {
        file.write(&report)?;
    }
    outcome.stopped.map_or(Ok(()), Err)
}

/// What `--list-profiles` says.
fn list(profiles: &[Profile]) -> String {
    let line = |profile: &Profile| {
        let mark = if profile.approximation {
            " (approximation)"
        } else {
            ""
        };
        format!("{:<14}{}{mark}\n", profile.name, profile.description)
    };
    profiles.iter().map(line).collect()
}

/// What members the run makes, what they need and what there is: said before anything is written.
fn own_members(options: &Options) -> Result<String> {
    let own = options.own.members(&options.volume, options.seed);
    making_members(&own, own.total_bytes(), "")
}

fn summary(course: &Course, options: &PointOptions) -> String {
    let total = format_duration(course.total(options));
    format!("{} points, about {total}", course.points())
}

/// What `--dry-run` says.
fn describe(options: &Options, course: &Course) -> Result<String> {
    let mut text = if options.volume.makes_members() {
        own_members(options)?
    } else {
        options.volume.given_members()
    };
    text.push('\n');
    for profile in &course.profiles {
        text.push_str(&format!("{}: {}\n", profile.name, profile.summary()));
    }
    let percents: Vec<String> = course.percents.iter().map(f64::to_string).collect();
    text.push_str(&format!(
        "loads in per cent: {}; arrivals {}\n{}; nothing was touched\n",
        percents.join(", "),
        options.arrivals,
        summary(course, &options.point(&Interrupt::new()))
    ));
    Ok(text)
}

/// What is measured and where. Known before the first point.
fn header(report: &CurveReport) -> String {
    let label = report.label.iter();
    let label: String = label.map(|label| format!(": {label}")).collect();
    let conditions = render_conditions(&report.volume, &report.environment, &report.notes);
    format!("{PROGRAM} {}{label}\n{conditions}", report.version)
}

/// The report, but for its points.
fn blank_report(
    options: &Options,
    course: &Course,
    point_options: &PointOptions,
    subject: &Subject,
) -> CurveReport {
    let volume = subject.volume();
    let mut notes = common_notes(course.threads_max(), "threads");
    notes.extend(
        course
            .profiles
            .iter()
            .filter(|profile| profile.approximation)
            .map(|profile| format!("{}: {}", profile.name, profile.source)),
    );
    CurveReport {
        kind: "curve",
        format: REPORT_FORMAT,
        program: PROGRAM,
        command: quote_command(std::env::args()),
        version: env!("CARGO_PKG_VERSION"),
        label: options.report.label.clone(),
        interrupted: false,
        seed: options.seed,
        arrivals: options.arrivals,
        runtime_ms: u64::try_from(point_options.runtime.as_millis()).unwrap_or(u64::MAX),
        ramp_ms: u64::try_from(point_options.ramp.as_millis()).unwrap_or(u64::MAX),
        notes,
        environment: Environment::collect(volume, subject.preconditioning()),
        volume: VolumeReport::of(volume),
        workloads: Vec::new(),
    }
}
