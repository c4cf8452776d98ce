//! The command line of `swath-compare`, in fio's words where fio has them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use swath_bench::command_line::{
    ReportArguments, Sizes, VolumeArguments, parse_depth, parse_runtime, parse_unit,
};
use swath_bench::compare::{CellChoice, parse_cells};
use swath_bench::{Depth, Error, Pattern, Result, parse_duration, parse_size_list};

const MEMBERS_HELP: &str = "\
Members of the volume, in any order, or one directory that holds them. A volume on them is used \
(cells that write overwrite its data); anything else is refused without --destructive";

const DESTRUCTIVE_HELP: &str = "\
Members may be overwritten: make a volume where there is none, write to block devices";

const EXAMPLES: &str = "\
Examples:
  swath-compare
      4k random reads, 1m reads and writes on four files of 1 GiB that it makes and removes
  swath-compare --state unwritten --cells 4k-randread --cpu 1
      what the software costs: reads of blocks that no drive is asked for
  swath-compare --cells all --against best --json report.json
      the whole matrix and its geometric mean: about 40 minutes
  swath-compare --state tmpfs --bs 4k,64k,1m
      files in memory
  swath-compare --rw read,randread --bs 4k,1m /dev/nvme[0-3]n1
      reads of a volume that is there; nothing is written

fio's best is io_uring with batched submit and reap, fixed buffers, registered files and huge pages \
(in memory also psync); a short try of several batches and waits before the first round of each cell \
takes the fastest, for Swath too. Its defaults are io_uring at the same depth and nothing else.

Sizes are powers of two (4k, 1m, 1g), times are seconds unless they say ms, s, m or h.
Exit status: 0 done, 1 failed or refused, 2 wrong usage, 130 interrupted (results so far are printed).";

/// Compares a striped volume with fio on the same members: rates, CPU time for each I/O, and their
/// ratios.
///
/// Both keep as many requests in flight, from one thread on the same core, and take turns. Without
/// members it makes files of its own under cargo's target directory, and removes them at the end.
#[derive(Debug, Parser)]
#[command(name = "swath-compare", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(mut_arg("members", |it| it.help(MEMBERS_HELP)))]
#[command(mut_arg("destructive", |it| it.help(DESTRUCTIVE_HELP)))]
pub(crate) struct Options {
    /// Cells by name, 4k-randread or 1m-write; all: from 4k to 1m by all patterns that the state
    /// allows [default: 4k-randread,1m-read,1m-write, those that the state allows]
    #[arg(long, value_name = "CELLS", conflicts_with_all = ["bs", "rw"],
          value_parser = |text: &str| parse_cells(text).map(Cells), help_heading = "Cells")]
    pub(crate) cells: Option<Cells>,

    /// Block sizes: a list, or runs of doublings as in 4k..1m [default: 4k..1m, if --rw is given]
    #[arg(long, value_name = "SIZES",
          value_parser = |text: &str| parse_size_list(text).map(Sizes), help_heading = "Cells")]
    pub(crate) bs: Option<Sizes>,

    /// Patterns: read, write, randread, randwrite [default: all that the state allows, if --bs is
    /// given]
    #[arg(
        long,
        value_name = "PATTERNS",
        value_delimiter = ',',
        help_heading = "Cells"
    )]
    pub(crate) rw: Vec<Pattern>,

    /// Requests that each side keeps in flight. auto: 128 small ones, fewer from 128k on, so that no
    /// more than 8 MiB are in flight; proportionally more from five members on
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = parse_depth,
          help_heading = "Cells")]
    pub(crate) iodepth: Depth,

    /// How long each turn is measured
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_runtime,
          help_heading = "Turns")]
    pub(crate) runtime: Duration,

    /// How long each turn runs before anything counts
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_duration,
          help_heading = "Turns")]
    pub(crate) ramp_time: Duration,

    /// How long each candidate for the best settings is tried
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_runtime,
          help_heading = "Turns")]
    pub(crate) probe_time: Duration,

    /// Rounds of each cell: everybody has a turn in each, and another one is first
    #[arg(long, value_name = "N", default_value_t = 7,
          value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Turns")]
    pub(crate) rounds: u32,

    /// The core that both sides keep to [default: the last this process may use]
    #[arg(long, value_name = "N", help_heading = "Turns")]
    pub(crate) cpu: Option<usize>,

    /// What Swath's offsets and data are drawn from
    #[arg(long, value_name = "N", default_value_t = 42, help_heading = "Turns")]
    pub(crate) seed: u64,

    /// fio: a name to look for on the PATH, or where it lies
    #[arg(long, value_name = "FILE", default_value = "fio", help_heading = "fio")]
    pub(crate) fio: PathBuf,

    /// Which fio: as it is fastest, as it comes, or both
    #[arg(
        long,
        value_enum,
        value_name = "WHICH",
        value_delimiter = ',',
        default_value = "best,defaults",
        help_heading = "fio"
    )]
    pub(crate) against: Vec<RivalChoice>,

    /// Not against fio's defaults: the same as --against best
    #[arg(long, conflicts_with = "against", help_heading = "fio")]
    pub(crate) no_defaults: bool,

    #[command(flatten)]
    pub(crate) volume: VolumeArguments,

    /// Size of each member that is made, a multiple of 4k
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = parse_unit,
          conflicts_with = "members", help_heading = "Volume")]
    pub(crate) size: u64,

    /// What the members are. unwritten: files with reserved blocks only, made anew before each
    /// round, for cells that read. tmpfs: files in memory
    #[arg(long, value_enum, default_value = "written", help_heading = "Volume")]
    pub(crate) state: StateChoice,

    /// Write a volume that is there in full first; needs --destructive
    #[arg(long, help_heading = "Volume")]
    pub(crate) fill: bool,

    #[command(flatten)]
    pub(crate) report: ReportArguments,
}

/// A list of cells as one argument.
#[derive(Debug, Clone)]
pub(crate) struct Cells(pub(crate) Vec<CellChoice>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateChoice {
    Written,
    Unwritten,
    Tmpfs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RivalChoice {
    Best,
    Defaults,
}

impl Options {
    /// Checks what clap cannot: how the options go together. Touches nothing.
    pub(crate) fn check(&self) -> Result<()> {
        if self.state == StateChoice::Unwritten {
            if !self.volume.members.is_empty() {
                return Err(Error::usage(
                    "--state unwritten is for members that the run makes itself; give none",
                ));
            }
            if self.names_writes() {
                return Err(Error::usage(
                    "cells that write would fill the unwritten blocks as they go; leave --state \
                     unwritten out, or only read",
                ));
            }
        }
        if self.fill && self.volume.makes_members() {
            return Err(Error::usage(
                "--fill is for a volume that is there: give its members; what the run makes itself it \
                 fills anyway",
            ));
        }
        self.volume.check_size(self.size)?;
        self.report.check()
    }
}
