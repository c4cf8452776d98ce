//! The command line of `swath-matrix`, in fio's words where fio has them.

use std::time::Duration;

use clap::Parser;
use swath_bench::command_line::{
    Depths, Lanes, OwnArguments, PageArguments, QueueArguments, ReportArguments, Sizes,
    VerifyArguments, VolumeArguments, parse_runtime,
};
use swath_bench::{Error, Pattern, Precondition, Result, SteadyOptions};
use swath_bench::{parse_depths, parse_duration, parse_lanes, parse_size_list};

const MEMBERS_HELP: &str = "\
Members of the volume, in any order, or one directory that holds them. A volume on them is used \
(cells that write overwrite its data); anything else is refused without --destructive";

const DESTRUCTIVE_HELP: &str = "\
Members may be overwritten: make a volume where there is none, write to block devices";

const EXAMPLES: &str = "\
Examples:
  swath-matrix
      36 cells on four files of 1 GiB that it makes and removes: about three minutes
  swath-matrix --baseline --rounds 5 --bs 1m --rw read,write
      what the stripe costs: volume and bare members in turn, the median of five
  swath-matrix --fill unwritten --bs 4k --rw randread
      what the software costs: reads of blocks that no drive is asked for
  swath-matrix --bs 4k --rw randread --iodepth 1..256 --numjobs 1,2,4 --html sweep.html
      how IOPS and latency rise with what is in flight, and where more no longer pays
  swath-matrix --bs 4k..1m --rw read,randread --json report.json /dev/nvme[0-3]n1
      reads of a volume that is there; nothing is written
  swath-matrix --destructive --precondition=random --steady-state --runtime 1m /dev/nvme[0-3]n1
      as SNIA measures drives: written over, then each cell until it is steady; takes hours
  swath-matrix --destructive --chunk 512k /dev/nvme[0-3]n1
      a new volume on these drives, filled, then the whole matrix; their data is lost
  swath-matrix --verify --journal j --bs 4k,1m --rw randwrite,read MEMBER...
      data validation: whatever becomes of this run, the next one with this journal checks it first

Sizes are powers of two (4k, 1m, 1g), times are seconds unless they say ms, s, m or h.
Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted (results so far are printed).";

/// Measures a striped volume: bandwidth, IOPS, latency and CPU time from 4 KiB to 1 MiB.
///
/// Without members it makes files of its own under cargo's target directory, writes them in full,
/// and removes them at the end.
#[derive(Debug, Parser)]
#[command(name = "swath-matrix", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(mut_arg("members", |it| it.help(MEMBERS_HELP)))]
#[command(mut_arg("destructive", |it| it.help(DESTRUCTIVE_HELP)))]
pub(crate) struct Options {
    /// Block sizes: a list, or runs of doublings as in 4k..1m
    #[arg(long, value_name = "SIZES", default_value = "4k,8k,16k,32k,64k,128k,256k,512k,1m",
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

    /// Requests in flight on each lane: a number, or a list to sweep, as 1,2,4..128. auto: 128 small
    /// ones on all lanes together, fewer from 128k on, so that no more than 8 MiB are in flight;
    /// proportionally more from five members on
    #[arg(long, value_name = "LIST|auto", default_value = "auto",
          value_parser = |text: &str| parse_depths(text).map(Depths), help_heading = "Cells")]
    pub(crate) iodepth: Depths,

    /// Lanes: threads, each pinned to a core, each with a queue of its own; a number, or a list to
    /// sweep, as 1,2,4 or 1..16
    #[arg(long, value_name = "LIST", default_value = "1",
          value_parser = |text: &str| parse_lanes(text).map(Lanes), help_heading = "Cells")]
    pub(crate) numjobs: Lanes,

    /// How long each cell is measured
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = parse_runtime,
          help_heading = "Cells")]
    pub(crate) runtime: Duration,

    /// How long each cell runs before anything counts
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_duration,
          help_heading = "Cells")]
    pub(crate) ramp_time: Duration,

    /// How often each cell is measured; the median by bandwidth is reported
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Cells")]
    pub(crate) rounds: u32,

    /// Measure each cell in rounds until the last of them agree, as SNIA has it, and report these
    /// together: a spread (largest less smallest) within 20 % of their mean, a slope over the window
    /// within 10 %, five rounds, at most 25. Other numbers after =, as
    /// --steady-state=spread:20%,slope:10%,window:5,rounds:25
    #[arg(long, value_name = "CRITERIA", num_args = 0..=1, require_equals = true,
          default_missing_value = "window:5", conflicts_with = "rounds",
          help_heading = "Cells")]
    pub(crate) steady_state: Option<SteadyOptions>,

    /// Write the volume before anything is measured: twice over, sequentially in 128k, as SNIA has it.
    /// After = the number of passes; random, which adds its capacity at random in 4k; or both in
    /// detail, as seq:2,rand:1 or seq:2,rand:steady (rounds until steady). Overwrites members that
    /// are given: needs --destructive
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true,
          default_missing_value = "2", help_heading = "Cells")]
    pub(crate) precondition: Option<Precondition>,

    /// Measure each cell on the bare members too, in turn with the volume: the same lanes at the
    /// same total depth without the stripe map. Efficiency is volume / bare members
    #[arg(long, help_heading = "Cells")]
    pub(crate) baseline: bool,

    /// What offsets and data are drawn from
    #[arg(long, value_name = "N", default_value_t = 42, help_heading = "Cells")]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) volume: VolumeArguments,

    #[command(flatten)]
    pub(crate) own: OwnArguments,

    #[command(flatten)]
    pub(crate) verify: VerifyArguments,

    #[command(flatten)]
    pub(crate) queue: QueueArguments,

    /// Most requests to submit at once
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = "Queue")]
    pub(crate) batch: u32,

    /// Completions to wait for at once [default: an eighth of the depth, at least 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096),
          help_heading = "Queue")]
    pub(crate) reap: Option<u32>,

    #[command(flatten)]
    pub(crate) page: PageArguments,

    #[command(flatten)]
    pub(crate) report: ReportArguments,
}

impl Options {
    /// Checks what clap cannot: how the options go together. Touches nothing.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_precondition()?;
        self.verify
            .check(&self.volume, &self.own, &self.bs.0, self.baseline)?;
        let writes = self.patterns().iter().any(|pattern| pattern.is_write());
        self.own
            .check(&self.volume, writes, " with --rw read,randread")?;
        self.page.check(&self.report)
    }

    /// Whether the volume may be written over before anything is measured.
    fn check_precondition(&self) -> Result<()> {
        self.check_values()?;
        let Some(precondition) = &self.precondition else {
            return Ok(());
        };
        if self.verify.is_on() {
            return Err(Error::usage(
                "--precondition writes past what --verify knows of the volume; leave one of the two out",
            ));
        }
        if self.own.is_unwritten() {
            return Err(Error::usage(
                "--precondition writes every block, and --fill unwritten is for blocks that nobody \
                 wrote; leave one of the two out",
            ));
        }
        if !self.volume.makes_members() && !self.volume.destructive {
            return Err(Error::usage(format!(
                "--precondition overwrites the whole volume on the members that are given ({precondition}); \
                 say so with --destructive"
            )));
        }
        Ok(())
    }

    /// A value that belongs to an option before it is no member, though it is read as one.
    fn check_values(&self) -> Result<()> {
        for member in self.volume.members.iter().filter(|path| !path.exists()) {
            let text = member.display().to_string();
            let option = if self.precondition.is_some() && text.parse::<Precondition>().is_ok() {
                "--precondition"
            } else if self.steady_state.is_some() && text.parse::<SteadyOptions>().is_ok() {
                "--steady-state"
            } else {
                continue;
            };
            return Err(Error::usage(format!(
                "there is no member '{text}'; if it is meant for {option}, write {option}={text}"
            )));
        }
        Ok(())
    }
}
