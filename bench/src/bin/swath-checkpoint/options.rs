//! The command line of `swath-checkpoint`, and what it comes to.

use std::path::{Path, PathBuf};

use clap::Parser;
use swath_bench::checkpoint::{
    Model, ModelShape, Pages, Place, RankProgram, SaveSettings, Trial, TrialOptions,
};
use swath_bench::command_line::{
    MEMBER_OVERHEAD_BYTES, ReportArguments, VolumeArguments, parse_unit,
};
use swath_bench::{
    Error, Interrupt, MembersOptions, Result, SubjectOptions, format_size, parse_size,
};
use swath_checkpoint::StoreOptions;
use swath_engine::{Backend, FileFill, LaneOptions, QueueOptions};
use swath_volume::CHUNK_BYTES_DEFAULT;

/// What makes this program one rank of a run.
const RANK_PROCESS: &str = "rank-process";

/// How far behind a border of 4 KiB tensors begin that are not aligned: as PyTorch lays them.
const SKEW_BYTES: u64 = 64;

const MEMBERS_HELP: &str = "\
Members of the volume, in any order, or one directory that holds them. A volume on them is used and \
its data overwritten; one that holds checkpoints, and anything else, is refused without --destructive";

const DESTRUCTIVE_HELP: &str = "\
Members may be overwritten: make a volume where there is none, lose checkpoints, write to block \
devices";

const CSV_HELP: &str = "Write the phases as CSV, one a row; - is standard output";

const DRY_RUN_HELP: &str = "Say what would run, and touch nothing";

const EXAMPLES: &str = "\
Examples:
  swath-checkpoint
      checkpoints of 1 GiB, on four files that it makes and removes
  swath-checkpoint --size 4g --ranks 2 --rounds 5 --json report.json
      larger ones by two threads, and all figures in a file
  swath-checkpoint --processes --ranks 4
      four processes that write one checkpoint
  swath-checkpoint --peers --python venv/bin/python
      torch.save, safetensors and torch DCP on the same file system, in turn
  swath-checkpoint --unaligned --pages plain
      tensors as most programs have them in memory
  swath-checkpoint --destructive --model 70b --size 64g /dev/nvme[0-3]n1
      on these drives; their data is lost

Sizes are powers of two (4k, 1m, 1g).
Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted (results so far are printed).";

/// Measures checkpoints: save and load of the tensors of a model, in turn with the bare volume
/// below, and with other programs.
///
/// Without members it makes files of its own under cargo's target directory, and removes them at
/// the end.
#[derive(Debug, Parser)]
#[command(name = "swath-checkpoint", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(mut_arg("members", |it| it.help(MEMBERS_HELP)))]
#[command(mut_arg("destructive", |it| it.help(DESTRUCTIVE_HELP)))]
#[command(mut_arg("csv", |it| it.help(CSV_HELP)))]
#[command(mut_arg("dry_run", |it| it.help(DRY_RUN_HELP)))]
pub(crate) struct Options {
    /// Whose tensors: 8b, 70b, 405b or 1t, scaled to --size
    #[arg(
        long,
        value_name = "NAME",
        default_value = "8b",
        help_heading = "Checkpoint"
    )]
    pub(crate) model: ModelShape,

    /// Bytes of all tensors, from 1m up
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = parse_size,
          help_heading = "Checkpoint")]
    pub(crate) size: u64,

    /// Add one tensor of a little more than 2^31 bytes
    #[arg(long, help_heading = "Checkpoint")]
    pub(crate) full_tensor: bool,

    /// Threads that save and load, each tensors of its own; or processes, with --processes
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=256), help_heading = "Checkpoint")]
    pub(crate) ranks: u32,

    /// Ranks are processes: each saves by a lease of this one, and opens the members itself to load.
    /// save_async, which is a call of one process, is not measured then
    #[arg(long, help_heading = "Checkpoint")]
    pub(crate) processes: bool,

    /// What pages the memory of tensors has: huge, or plain as most programs have them
    #[arg(
        long,
        value_name = "PAGES",
        default_value = "huge",
        help_heading = "Checkpoint"
    )]
    pub(crate) pages: Pages,

    /// Tensors begin 64 bytes behind a border of 4k, as those of PyTorch: they must be copied
    #[arg(long, help_heading = "Checkpoint")]
    pub(crate) unaligned: bool,

    /// How often everything is measured, in turn; medians are reported
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Run")]
    pub(crate) rounds: u32,

    /// Saves over written blocks in each round
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Run")]
    pub(crate) saves: u32,

    /// Memory that save_async copies tensors into: a checkpoint that fits keeps its caller only for
    /// the copy
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = parse_size,
          help_heading = "Run")]
    pub(crate) snapshot: u64,

    /// What data is drawn from
    #[arg(long, value_name = "N", default_value_t = 42, help_heading = "Run")]
    pub(crate) seed: u64,

    /// Measure torch.save, safetensors and torch DCP too, as far as Python has them, each on one
    /// thread. To get them: python3 -m venv DIR && DIR/bin/pip install torch numpy safetensors
    #[arg(long, help_heading = "Peers")]
    pub(crate) peers: bool,

    /// The Python that has them: DIR/bin/python
    #[arg(
        long,
        value_name = "PATH",
        default_value = "python3",
        help_heading = "Peers"
    )]
    pub(crate) python: PathBuf,

    /// Where peers write [default: where members are made, or where the first that is given lies]
    #[arg(long, value_name = "DIR", help_heading = "Peers")]
    pub(crate) peers_dir: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) volume: VolumeArguments,

    /// Size of each member that is made, a multiple of 4k [default: room for two checkpoints]
    #[arg(long, value_name = "SIZE", value_parser = parse_unit, conflicts_with = "members",
          help_heading = "Volume")]
    pub(crate) member_size: Option<u64>,

    /// How bytes are moved: auto, uring, aio or sync
    #[arg(long, default_value = "auto", help_heading = "Queue")]
    pub(crate) backend: Backend,

    /// Transfers of up to 1 MiB in flight on each thread, of the store and of the bare volume
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=256), help_heading = "Queue")]
    pub(crate) iodepth: u32,

    #[command(flatten)]
    pub(crate) report: ReportArguments,

    /// How a run starts its ranks: not for people
    #[arg(long = RANK_PROCESS, hide = true, exclusive = true)]
    pub(crate) rank_process: bool,
}

impl Options {
    /// Checks what clap cannot, and makes the model. Touches nothing.
    pub(crate) fn model(&self) -> Result<Model> {
        self.report.check()?;
        let model = Model::new(self.model, self.size, self.full_tensor)?;
        if let Some(bytes) = self.member_size.filter(|_| self.volume.makes_members()) {
            let needed = member_bytes(Trial::volume_bytes_min(&model, self.ranks), self);
            if bytes < needed {
                return Err(Error::usage(format!(
                    "members of {} have no room for two checkpoints; give --member-size {} or \
                     more, a smaller --size, or leave --member-size out",
                    format_size(bytes),
                    format_size(needed)
                )));
            }
        }
        Ok(model)
    }

    /// Where peers write.
    pub(crate) fn peers_parent(&self) -> Result<PathBuf> {
        if let Some(place) = &self.peers_dir {
            return Ok(place.clone());
        }
        match self.volume.members.first() {
            None => Ok(self.volume.parent()),
            Some(folder) if folder.is_dir() => Ok(folder.clone()),
            Some(file) if file.is_file() => {
                let folder = file.parent().filter(|it| !it.as_os_str().is_empty());
                Ok(folder.map_or_else(|| PathBuf::from("."), Path::to_path_buf))
            }
            Some(device) => Err(Error::usage(format!(
                "peers write files, and {} lies in no place for them: give a directory on a file \
                 system on such drives with --peers-dir",
                device.display()
            ))),
        }
    }

    /// Where checkpoints go.
    pub(crate) fn place(&self, model: &Model) -> Place {
        let own = |bytes, fill| MembersOptions {
            parent: self.volume.parent(),
            count: self.volume.member_count,
            member_bytes: bytes,
            fill,
        };
        let needed = member_bytes(Trial::volume_bytes_min(model, self.ranks), self);
        let written = SubjectOptions {
            name: "swath-checkpoint".to_owned(),
            members: self.volume.members.clone(),
            chunk_bytes: self.volume.chunk,
            destructive: self.volume.destructive,
            queue: self.queue(),
            seed: self.seed,
            ..SubjectOptions::new(own(
                self.member_size.unwrap_or(needed),
                FileFill::Incompressible { seed: self.seed },
            ))
        };
        if !self.volume.makes_members() {
            return Place::Given(Box::new(written));
        }
        let fresh_bytes = member_bytes(Trial::fresh_bytes_min(model, self.ranks), self);
        let fresh = SubjectOptions {
            own: own(fresh_bytes, FileFill::Unwritten),
            ..written.clone()
        };
        Place::Own {
            written: Box::new(written),
            fresh: Box::new(fresh),
        }
    }

    fn queue(&self) -> QueueOptions {
        QueueOptions {
            backend: self.backend,
            ..QueueOptions::default()
        }
    }

    pub(crate) fn skew_bytes(&self) -> u64 {
        if self.unaligned { SKEW_BYTES } else { 0 }
    }

    pub(crate) fn trial(&self, interrupt: &Interrupt) -> Result<TrialOptions> {
        let processes = self.processes.then(rank_program).transpose()?;
        Ok(TrialOptions {
            rounds: self.rounds,
            saves: self.saves,
            queue: self.queue(),
            settings: SaveSettings {
                store: StoreOptions {
                    lane: LaneOptions {
                        queue: self.queue(),
                        ..LaneOptions::default()
                    },
                    depth: self.iodepth,
                    ..StoreOptions::default()
                },
                ranks: self.ranks as usize,
                processes,
                snapshot_bytes: self.snapshot,
                pages: self.pages,
                ..SaveSettings::new(interrupt.clone())
            },
            seed: self.seed,
        })
    }
}

/// This program, as a rank.
fn rank_program() -> Result<RankProgram> {
    let path = std::env::current_exe()
        .map_err(|cause| Error::failed("cannot find this program to start ranks", cause))?;
    Ok(RankProgram {
        path,
        arguments: vec![format!("--{RANK_PROCESS}")],
    })
}

/// The bytes of each member of a volume that is to have `bytes` bytes, a whole number of MiB.
fn member_bytes(bytes: u64, options: &Options) -> u64 {
    let chunk_bytes = options.volume.chunk.unwrap_or(CHUNK_BYTES_DEFAULT);
    let share = bytes.div_ceil(u64::from(options.volume.member_count));
    // Rounding down to chunks takes less than one from each.
    (share + chunk_bytes + MEMBER_OVERHEAD_BYTES).next_multiple_of(1 << 20)
}
