//! The command line of `swath-curve`, in the words of `swath-matrix`, and Vdbench's where it has some.

use std::time::Duration;

use clap::Parser;
use swath_bench::command_line::{
    FillChoice, OwnArguments, PageArguments, QueueArguments, ReportArguments, VolumeArguments,
    parse_runtime,
};
use swath_bench::curve::{
    Arrivals, Course, PointOptions, check_rate, corners, find, parse_percents,
};
use swath_bench::{Interrupt, Result, SubjectOptions, parse_duration};

const MEMBERS_HELP: &str = "\
Members of the volume, in any order, or one directory that holds them. A volume on them is used \
(profiles that write overwrite its data); anything else is refused without --destructive";

const DESTRUCTIVE_HELP: &str = "\
Members may be overwritten: make a volume where there is none, write to block devices";

const EXAMPLES: &str = "\
Examples:
  swath-curve
      the four corners on four files of 1 GiB that it makes and removes: about three minutes
  swath-curve --profile oltp,sql-80-20 --json report.json
      mixed profiles
  swath-curve --show-profile oltp > mine.toml
  swath-curve --profile mine.toml --interval 1s
      a profile of your own, with Vdbench's line for each second
  swath-curve --profile 4k-randread --rate 20000 --curve 50,100
      loads of 10,000 and 20,000 requests a second, without looking for the peak
  swath-curve --profile 4k-randread,64k-read /dev/nvme[0-3]n1
      reads of a volume that is there; nothing is written

Requests arrive at a set rate, whether or not those before them are done, and their latency counts from
when they were meant to start. While any is in flight the lanes poll, at the price of a core each.

Sizes are powers of two (4k, 1m, 1g), times are seconds unless they say ms, s, m or h.
Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted (results so far are printed).";

/// Measures how long requests take on a striped volume, by how many arrive: first the uncapped peak,
/// then loads from 10 % to 120 % of it.
///
/// Without members it makes files of its own under cargo's target directory, writes them in full,
/// and removes them at the end.
#[derive(Debug, Parser)]
#[command(name = "swath-curve", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(mut_arg("members", |it| it.help(MEMBERS_HELP)))]
#[command(mut_arg("destructive", |it| it.help(DESTRUCTIVE_HELP)))]
pub(crate) struct Options {
    /// Profiles, by the name of a shipped one or by the path of a TOML file [default: the four
    /// corners 4k-randread, 4k-randwrite, 64k-read, 64k-write; with --fill unwritten those that
    /// read]
    #[arg(
        long,
        value_name = "NAME|FILE",
        value_delimiter = ',',
        help_heading = "Load"
    )]
    pub(crate) profile: Vec<String>,

    /// Loads in per cent of the full rate: a list, or equal steps as in 10..120/10
    #[arg(long, value_name = "PERCENTS", default_value = "10..120/10",
          value_parser = |text: &str| parse_percents(text).map(Percents), help_heading = "Load")]
    pub(crate) curve: Percents,

    /// Requests a second that count as 100 %, in place of the peak, which is not looked for then
    #[arg(long, value_name = "N", value_parser = check_rate, help_heading = "Load")]
    pub(crate) rate: Option<f64>,

    /// How arrivals are spaced: poisson (at random, Vdbench's default, there called exponential) or
    /// even
    #[arg(
        long,
        value_name = "HOW",
        default_value = "poisson",
        help_heading = "Load"
    )]
    pub(crate) arrivals: Arrivals,

    /// How long requests are offered that count, at each load
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_runtime,
          help_heading = "Load")]
    pub(crate) runtime: Duration,

    /// How long each load runs before anything counts
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_duration,
          help_heading = "Load")]
    pub(crate) ramp_time: Duration,

    /// What offsets, data and arrivals are drawn from
    #[arg(long, value_name = "N", default_value_t = 42, help_heading = "Load")]
    pub(crate) seed: u64,

    /// List the shipped profiles
    #[arg(long, help_heading = "Profiles")]
    pub(crate) list_profiles: bool,

    /// Print a shipped profile, to copy and edit
    #[arg(long, value_name = "NAME", help_heading = "Profiles")]
    pub(crate) show_profile: Option<String>,

    #[command(flatten)]
    pub(crate) volume: VolumeArguments,

    #[command(flatten)]
    pub(crate) own: OwnArguments,

    #[command(flatten)]
    pub(crate) queue: QueueArguments,

    /// Print Vdbench's line for each so much time, at least 100ms
    #[arg(long, value_name = "TIME", value_parser = parse_runtime, help_heading = "Report")]
    pub(crate) interval: Option<Duration>,

    #[command(flatten)]
    pub(crate) page: PageArguments,

    #[command(flatten)]
    pub(crate) report: ReportArguments,
}

/// Loads as one argument.
#[derive(Debug, Clone)]
pub(crate) struct Percents(pub(crate) Vec<f64>);

impl Options {
    /// Reads the profiles.
    pub(crate) fn course(&self) -> Result<Course> {
        let names = if self.profile.is_empty() {
            corners()
        } else {
            self.profile.clone()
        };
        let found = names.iter().map(|name| find(name));
        let mut profiles = found.collect::<Result<Vec<_>>>()?;
        if self.profile.is_empty() && self.own.is_unwritten() {
            profiles.retain(|profile| !profile.writes());
        }
        Ok(Course {
            profiles,
            percents: self.curve.0.clone(),
            rate: self.rate,
        })
    }

    /// Checks what clap cannot: how the options go together. Touches nothing.
    pub(crate) fn check(&self, course: &Course) -> Result<()> {
        let reads_only = ", as --profile 4k-randread,64k-read do";
        self.own.check(&self.volume, course.writes(), reads_only)?;
        self.page.check(&self.report)
    }

    /// How to come by the volume.
    pub(crate) fn subject(&self, course: &Course) -> SubjectOptions {
        SubjectOptions {
            name: "swath-curve".to_owned(),
            members: self.volume.members.clone(),
            chunk_bytes: self.volume.chunk,
            fill: self.own.fill == Some(FillChoice::Written),
            writes: course.writes(),
            destructive: self.volume.destructive,
            queue: self.queue.fill_queue(),
            seed: self.seed,
            ..SubjectOptions::new(self.own.members(&self.volume, self.seed))
        }
    }

    /// How points are measured.
    pub(crate) fn point(&self, interrupt: &Interrupt) -> PointOptions {
        PointOptions {
            queue: self.queue.queue(),
            ramp: self.ramp_time,
            runtime: self.runtime,
            arrivals: self.arrivals,
            seed: self.seed,
            pinning: self.queue.pinning(),
            interval: self.interval,
            interrupt: interrupt.clone(),
        }
    }
}
