//! The command line of `swath-checkpoint`, and what it comes to.

use std::path::PathBuf;

use clap::Parser;
use swath_bench::checkpoint::{Model, ModelShape, Pages, Place, SaveSettings, Trial, TrialOptions};
use swath_bench::report::is_standard_output;
use swath_bench::{
    Error, Interrupt, MembersOptions, Result, SubjectOptions, default_parent, format_size,
    parse_size,
};
use swath_checkpoint::StoreOptions;
use swath_engine::{Backend, FileFill, LaneOptions, QueueOptions};
use swath_volume::CHUNK_BYTES_DEFAULT;

/// Chunks and members are multiples of this.
const UNIT_BYTES: u64 = 4096;

/// What a member needs besides its data: the areas at its head and tail.
const MEMBER_OVERHEAD_BYTES: u64 = 4 << 20;

/// How far behind a border of 4 KiB tensors begin that are not aligned: as PyTorch lays them.
const SKEW_BYTES: u64 = 64;

const EXAMPLES: &str = "\
Examples:
  swath-checkpoint
      checkpoints of 1 GiB, on four files that it makes and removes
  swath-checkpoint --size 4g --ranks 2 --rounds 5 --json report.json
      larger ones by two threads, and all figures in a file
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
pub(crate) struct Options {
    /// Members of the volume, in any order, or one directory that holds them. A volume on them is
    /// used and its data overwritten; one that holds checkpoints, and anything else, is refused
    /// without --destructive
    #[arg(value_name = "MEMBER")]
    pub(crate) members: Vec<PathBuf>,

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

    /// Threads that save and load, each tensors of its own
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=256), help_heading = "Checkpoint")]
    pub(crate) ranks: u32,

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

    /// Measure torch.save, safetensors and torch DCP too, as far as Python has them
    #[arg(long, help_heading = "Peers")]
    pub(crate) peers: bool,

    /// The Python that has them
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

    /// Chunk of a volume that is made, a multiple of 4k [default: 1m]
    #[arg(long, value_name = "SIZE", value_parser = parse_unit, help_heading = "Volume")]
    pub(crate) chunk: Option<u64>,

    /// How many members to make
    #[arg(long = "members", value_name = "N", default_value_t = 4, conflicts_with = "members",
          id = "member-count", value_parser = clap::value_parser!(u32).range(1..=128),
          help_heading = "Volume")]
    pub(crate) member_count: u32,

    /// Size of each member that is made, a multiple of 4k [default: room for two checkpoints]
    #[arg(long, value_name = "SIZE", value_parser = parse_unit, conflicts_with = "members",
          help_heading = "Volume")]
    pub(crate) member_size: Option<u64>,

    /// Where to make members [default: swath-matrix under cargo's target directory]
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with = "members",
        help_heading = "Volume"
    )]
    pub(crate) dir: Option<PathBuf>,

    /// Members may be overwritten: make a volume where there is none, lose checkpoints, write to
    /// block devices
    #[arg(long, help_heading = "Volume")]
    pub(crate) destructive: bool,

    /// How bytes are moved: auto, uring, aio or sync
    #[arg(long, default_value = "auto", help_heading = "Queue")]
    pub(crate) backend: Backend,

    /// Transfers of up to 1 MiB in flight on each thread, of the store and of the bare volume
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=256), help_heading = "Queue")]
    pub(crate) iodepth: u32,

    /// Write the report as JSON; - is standard output, tables then go to standard error
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub(crate) json: Option<PathBuf>,

    /// Words of your own about this run, kept in the report
    #[arg(long, value_name = "TEXT", help_heading = "Report")]
    pub(crate) label: Option<String>,

    /// Say what would run, and touch nothing
    #[arg(long, help_heading = "Report")]
    pub(crate) dry_run: bool,

    /// No progress
    #[arg(short, long, help_heading = "Report")]
    pub(crate) quiet: bool,
}

fn parse_unit(text: &str) -> Result<u64> {
    let bytes = parse_size(text)?;
    if bytes.is_multiple_of(UNIT_BYTES) {
        Ok(bytes)
    } else {
        Err(Error::usage(format!("{text} is not a multiple of 4k")))
    }
}

impl Options {
    /// Checks what clap cannot, and makes the model. Touches nothing.
    pub(crate) fn model(&self) -> Result<Model> {
        let model = Model::new(self.model, self.size, self.full_tensor)?;
        if let Some(bytes) = self.member_size.filter(|_| self.makes_members()) {
            let needed = member_bytes(Trial::volume_bytes_min(&model), self);
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

    /// Whether tables must keep off standard output.
    pub(crate) fn report_is_piped(&self) -> bool {
        is_standard_output(self.json.as_ref())
    }

    /// Whether the run makes members of its own.
    pub(crate) fn makes_members(&self) -> bool {
        self.members.is_empty()
    }

    pub(crate) fn parent(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(default_parent)
    }

    /// Where peers write.
    pub(crate) fn peers_parent(&self) -> PathBuf {
        let given = self.members.first().and_then(|first| {
            let folder = if first.is_dir() {
                Some(first.as_path())
            } else {
                first.parent()
            };
            folder.map(PathBuf::from)
        });
        let place = self.peers_dir.clone().or(given);
        place.unwrap_or_else(|| self.parent())
    }

    /// Where checkpoints go.
    pub(crate) fn place(&self, model: &Model) -> Place {
        let own = |bytes, fill| MembersOptions {
            parent: self.parent(),
            count: self.member_count,
            member_bytes: bytes,
            fill,
        };
        let needed = member_bytes(Trial::volume_bytes_min(model), self);
        let written = SubjectOptions {
            name: "swath-checkpoint".to_owned(),
            members: self.members.clone(),
            chunk_bytes: self.chunk,
            destructive: self.destructive,
            queue: self.queue(),
            seed: self.seed,
            ..SubjectOptions::new(own(
                self.member_size.unwrap_or(needed),
                FileFill::Incompressible { seed: self.seed },
            ))
        };
        if !self.makes_members() {
            return Place::Given(Box::new(written));
        }
        let fresh_bytes = member_bytes(Trial::fresh_bytes_min(model), self);
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

    pub(crate) fn trial(&self, interrupt: &Interrupt) -> TrialOptions {
        TrialOptions {
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
                snapshot_bytes: self.snapshot,
                pages: self.pages,
                interrupt: interrupt.clone(),
            },
            seed: self.seed,
        }
    }
}

/// The bytes of each member of a volume that is to have `bytes` bytes, a whole number of MiB.
fn member_bytes(bytes: u64, options: &Options) -> u64 {
    let chunk_bytes = options.chunk.unwrap_or(CHUNK_BYTES_DEFAULT);
    let share = bytes.div_ceil(u64::from(options.member_count));
    // Rounding down to chunks takes less than one from each.
    (share + chunk_bytes + MEMBER_OVERHEAD_BYTES).next_multiple_of(1 << 20)
}
