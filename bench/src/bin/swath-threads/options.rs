//! The command line of `swath-threads`, in the words of `swath-matrix`.

use std::time::Duration;

use clap::Parser;
use swath_bench::command_line::{
    FillChoice, OwnArguments, PageArguments, QueueArguments, ReportArguments, Sizes,
    VolumeArguments, parse_runtime,
};
use swath_bench::threads::{parse_threads, thread_cells};
use swath_bench::{
    Error, Interrupt, Pattern, Plan, Result, RunOptions, Side, SubjectOptions, parse_duration,
    parse_size_list,
};

const MEMBERS_HELP: &str = "\
Members of the volume, in any order, or one directory that holds them. A volume on them is used \
(cells that write overwrite its data); anything else is refused without --destructive";

const DESTRUCTIVE_HELP: &str = "\
Members may be overwritten: make a volume where there is none, write to block devices";

const EXAMPLES: &str = "\
Examples:
  swath-threads
      396 cells on four files of 1 GiB that it makes and removes: about nine minutes
  swath-threads --rw randread --bs 4k,64k --threads 1..32
      twelve cells
  swath-threads --gdsio-line --rw read --bs 1m --threads 4 /dev/nvme[0-3]n1
      reads of a volume that is there, told as gdsio tells them; nothing is written

Every thread works on a region of its own, the volume's bytes divided by the threads, with one request
in flight, and is pinned to a core in turn. No GPU takes part: gdsio's XferType is CPUONLY.

Sizes are powers of two (4k, 1m, 1g), times are seconds unless they say ms, s, m or h.
Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted (results so far are printed).";

/// Measures a striped volume as threads see it that block on each request: bandwidth and latency by
/// block size and number of threads.
///
/// Without members it makes files of its own under cargo's target directory, writes them in full,
/// and removes them at the end.
#[derive(Debug, Parser)]
#[command(name = "swath-threads", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(mut_arg("members", |it| it.help(MEMBERS_HELP)))]
#[command(mut_arg("destructive", |it| it.help(DESTRUCTIVE_HELP)))]
pub(crate) struct Options {
    /// Numbers of threads: a list, or runs of doublings as in 1..256
    #[arg(long, value_name = "N", default_value = "1..256",
          value_parser = |text: &str| parse_threads(text).map(Threads), help_heading = "Cells")]
    pub(crate) threads: Threads,

    /// Block sizes: a list, or runs of doublings as in 4k..1m
    #[arg(long, value_name = "SIZES", default_value = "4k..1m,5m,10m",
          value_parser = |text: &str| parse_size_list(text).map(Sizes), help_heading = "Cells")]
    pub(crate) bs: Sizes,

    /// Patterns: read, write, randread, randwrite [default: all; with --fill unwritten those that
    /// read]
    #[arg(
        long,
        value_name = "PATTERNS",
        value_delimiter = ',',
        help_heading = "Cells"
    )]
    pub(crate) rw: Vec<Pattern>,

    /// How long each cell is measured
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_runtime,
          help_heading = "Cells")]
    pub(crate) runtime: Duration,

    /// How long each cell runs before anything counts
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = parse_duration,
          help_heading = "Cells")]
    pub(crate) ramp_time: Duration,

    /// How often each cell is measured; the median by bandwidth is reported
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Cells")]
    pub(crate) rounds: u32,

    /// What offsets and data are drawn from
    #[arg(long, value_name = "N", default_value_t = 42, help_heading = "Cells")]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) volume: VolumeArguments,

    #[command(flatten)]
    pub(crate) own: OwnArguments,

    #[command(flatten)]
    pub(crate) queue: QueueArguments,

    /// Print gdsio's result line for each cell on standard output; tables go to standard error
    #[arg(long, help_heading = "Report")]
    pub(crate) gdsio_line: bool,

    #[command(flatten)]
    pub(crate) page: PageArguments,

    #[command(flatten)]
    pub(crate) report: ReportArguments,
}

/// A list of numbers of threads as one argument.
#[derive(Debug, Clone)]
pub(crate) struct Threads(pub(crate) Vec<u32>);

impl Options {
    /// Checks what clap cannot: how the options go together. Touches nothing.
    pub(crate) fn check(&self) -> Result<()> {
        if self.gdsio_line && self.page.is_piped(&self.report) {
            return Err(Error::usage(
                "--gdsio-line has standard output to itself; give --json and --csv a file",
            ));
        }
        self.own
            .check(&self.volume, self.writes(), " with --rw read,randread")?;
        self.page.check(&self.report)
    }

    fn writes(&self) -> bool {
        self.patterns().iter().any(|pattern| pattern.is_write())
    }

    /// In the order of tables, each once.
    pub(crate) fn patterns(&self) -> Vec<Pattern> {
        let is_wanted = |pattern: &Pattern| {
            if self.rw.is_empty() {
                !self.own.is_unwritten() || !pattern.is_write()
            } else {
                self.rw.contains(pattern)
            }
        };
        Pattern::ALL.into_iter().filter(is_wanted).collect()
    }

    pub(crate) fn plan(&self) -> Plan {
        Plan {
            cells: thread_cells(&self.patterns(), &self.bs.0, &self.threads.0),
            rounds: self.rounds,
            steady: None,
            sides: vec![Side::Volume],
            one: self.ramp_time + self.runtime,
        }
    }

    /// How to come by the volume.
    pub(crate) fn subject(&self) -> SubjectOptions {
        SubjectOptions {
            name: "swath-threads".to_owned(),
            members: self.volume.members.clone(),
            chunk_bytes: self.volume.chunk,
            fill: self.own.fill == Some(FillChoice::Written),
            writes: self.writes(),
            destructive: self.volume.destructive,
            queue: self.queue.fill_queue(),
            seed: self.seed,
            ..SubjectOptions::new(self.own.members(&self.volume, self.seed))
        }
    }

    /// How cells are run.
    pub(crate) fn run(&self, interrupt: &Interrupt) -> RunOptions {
        RunOptions {
            queue: self.queue.queue(),
            ramp: self.ramp_time,
            runtime: self.runtime,
            seed: self.seed,
            pinning: self.queue.pinning(),
            ..RunOptions::new(interrupt.clone())
        }
    }
}
