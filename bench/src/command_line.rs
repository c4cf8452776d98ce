//! What the command lines of all bench binaries have in common: the volume that is measured, and
//! where reports go. Parts for `#[command(flatten)]`, and how a binary ends.

mod own;
mod page;
mod queue;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use swath_volume::CHUNK_BYTES_DEFAULT;

use crate::error::{Error, Result};
use crate::members::{MembersOptions, check_room, default_parent};
use crate::plan::Depth;
use crate::progress::Progress;
use crate::report::{ReportFile, is_standard_output};
use crate::size::{format_bytes, format_size, parse_duration, parse_size};

pub use own::{FillChoice, OwnArguments};
pub use page::{PageArguments, PageFile};
pub use queue::QueueArguments;
pub use verify::VerifyArguments;

/// No drive addresses less.
pub const BLOCK_BYTES_MIN: u64 = 512;

/// Chunks and members are multiples of this.
const UNIT_BYTES: u64 = 4096;

/// What a member needs besides its data: the areas at its head and tail.
pub const MEMBER_OVERHEAD_BYTES: u64 = 4 << 20;

/// Which volume, or what kind of volume to make.
#[derive(Debug, Clone, Args)]
pub struct VolumeArguments {
    /// Members of the volume, in any order, or one directory that holds them
    #[arg(value_name = "MEMBER")]
    pub members: Vec<PathBuf>,

    /// Chunk of a volume that is made, a multiple of 4k [default: 1m]
    #[arg(long, value_name = "SIZE", value_parser = parse_unit, help_heading = "Volume")]
    pub chunk: Option<u64>,

    /// How many members to make
    #[arg(long = "members", value_name = "N", default_value_t = 4, conflicts_with = "members",
          id = "member-count", value_parser = clap::value_parser!(u32).range(1..=128),
          help_heading = "Volume")]
    pub member_count: u32,

    /// Where to make members [default: swath-matrix under cargo's target directory]
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with = "members",
        help_heading = "Volume"
    )]
    pub dir: Option<PathBuf>,

    /// Members may be overwritten
    #[arg(long, help_heading = "Volume")]
    pub destructive: bool,
}

impl VolumeArguments {
    /// Whether the run makes members of its own.
    pub fn makes_members(&self) -> bool {
        self.members.is_empty()
    }

    /// Where it makes them.
    pub fn parent(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(default_parent)
    }

    /// The chunk of a volume that is made.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk.unwrap_or(CHUNK_BYTES_DEFAULT)
    }

    /// Checks that members of this size, if the run makes them, can hold a chunk. Touches nothing.
    ///
    /// # Errors
    ///
    /// They cannot.
    pub fn check_size(&self, member_bytes: u64) -> Result<()> {
        let chunk_bytes = self.chunk_bytes();
        if !self.makes_members()
            || member_bytes >= chunk_bytes.saturating_add(MEMBER_OVERHEAD_BYTES)
        {
            return Ok(());
        }
        Err(Error::usage(format!(
            "a member of {} cannot hold a chunk of {} beside {} of metadata; use a larger --size or \
             a smaller --chunk",
            format_size(member_bytes),
            format_size(chunk_bytes),
            format_size(MEMBER_OVERHEAD_BYTES)
        )))
    }

    /// The members that were given, in words.
    pub fn given_members(&self) -> String {
        let members = self.members.iter().map(|path| path.display().to_string());
        format!("members given: {}", members.collect::<Vec<_>>().join(", "))
    }
}

/// Depths as one argument.
#[derive(Debug, Clone)]
pub struct Depths(pub Vec<Depth>);

/// Numbers of lanes as one argument.
#[derive(Debug, Clone)]
pub struct Lanes(pub Vec<u32>);

/// A list of sizes as one argument.
#[derive(Debug, Clone)]
pub struct Sizes(pub Vec<u64>);

/// What members a run makes, and how many bytes all that it makes there `needs`: said before
/// anything is written. `besides` says what else it makes.
///
/// # Errors
///
/// There is no place for it, or no room.
pub fn making_members(own: &MembersOptions, needs: u64, besides: &str) -> Result<String> {
    let members = format!(
        "{} members of {}",
        own.count,
        format_bytes(own.member_bytes)
    );
    let free_bytes = check_room(
        &own.parent,
        needs,
        &format!("{members}{besides} need"),
        "--dir",
    )?;
    Ok(format!(
        "making {members} in {}{besides}: needs {}, has {} free; removed at the end",
        own.parent.display(),
        format_bytes(needs),
        format_bytes(free_bytes)
    ))
}

/// What is told, and where.
#[derive(Debug, Clone, Args)]
pub struct ReportArguments {
    /// Write the report as JSON; - is standard output, tables then go to standard error
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub json: Option<PathBuf>,

    /// Write the cells as CSV, one a row; - is standard output
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub csv: Option<PathBuf>,

    /// Words of your own about this run, kept in the report
    #[arg(long, value_name = "TEXT", help_heading = "Report")]
    pub label: Option<String>,

    /// Say what would run and how long it takes, and touch nothing
    #[arg(long, help_heading = "Report")]
    pub dry_run: bool,

    /// No progress
    #[arg(short, long, help_heading = "Report")]
    pub quiet: bool,
}

/// The files that a report goes to, open since before the run.
#[derive(Debug)]
pub struct ReportFiles {
    /// The whole report.
    pub json: Option<ReportFile>,
    /// Its rows.
    pub csv: Option<ReportFile>,
}

impl ReportArguments {
    /// Checks what clap cannot. Touches nothing.
    ///
    /// # Errors
    ///
    /// Two reports on one standard output.
    pub fn check(&self) -> Result<()> {
        if is_standard_output(self.json.as_ref()) && is_standard_output(self.csv.as_ref()) {
            return Err(Error::usage(
                "only one of --json and --csv can go to standard output",
            ));
        }
        Ok(())
    }

    /// Whether tables must keep off standard output.
    pub fn is_piped(&self) -> bool {
        is_standard_output(self.json.as_ref()) || is_standard_output(self.csv.as_ref())
    }

    /// Opens the files, so that a name that cannot be written is known before minutes of measuring.
    ///
    /// # Errors
    ///
    /// A file cannot be opened for writing.
    pub fn open(&self) -> Result<ReportFiles> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(ReportFile::open).transpose();
        Ok(ReportFiles {
            json: open(&self.json)?,
            csv: open(&self.csv)?,
        })
    }

    /// Where progress goes.
    pub fn progress(&self) -> Progress {
        if self.quiet {
            Progress::quiet()
        } else {
            Progress::new()
        }
    }
}

/// A size that is a multiple of 4 KiB, of a chunk or a member.
///
/// # Errors
///
/// No size, or another.
pub fn parse_unit(text: &str) -> Result<u64> {
    let bytes = parse_size(text)?;
    if bytes.is_multiple_of(UNIT_BYTES) {
        Ok(bytes)
    } else {
        Err(Error::usage(format!("{text} is not a multiple of 4k")))
    }
}

/// A depth: `auto` or a number.
///
/// # Errors
///
/// Neither, or one that no queue has.
pub fn parse_depth(text: &str) -> Result<Depth> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(Depth::Auto);
    }
    match text.parse() {
        Ok(depth @ 1..=4096) => Ok(Depth::Fixed(depth)),
        _ => Err(Error::usage(format!(
            "'{text}' is not a depth; give 1 to 4096, or auto"
        ))),
    }
}

/// A time in which something can be measured.
///
/// # Errors
///
/// No time, or none at all.
pub fn parse_runtime(text: &str) -> Result<Duration> {
    let runtime = parse_duration(text)?;
    if runtime.is_zero() {
        Err(Error::usage("nothing can be measured in no time"))
    } else {
        Ok(runtime)
    }
}

/// How a binary ends: says what went wrong, if anything did.
pub fn exit(program: &str, outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: error: {}", error.chain());
            ExitCode::from(error.exit_code())
        }
    }
}

/// What any report says besides: whether so many threads share cores, and how this was built.
pub fn common_notes(threads: u32, what: &str) -> Vec<String> {
    let cores = swath_engine::cpu::available().len();
    let mut notes = Vec::new();
    if usize::try_from(threads).is_ok_and(|threads| threads > cores) {
        let plural = if cores == 1 { "" } else { "s" };
        notes.push(format!("{threads} {what} share {cores} core{plural}"));
    }
    if cfg!(debug_assertions) {
        notes.push("built without optimisation: use `cargo run --release`".to_owned());
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_multiples_of_4k() {
        assert_eq!(parse_unit("64k").unwrap(), 64 << 10);
        for text in ["5k", "0", "4q"] {
            assert_eq!(parse_unit(text).unwrap_err().exit_code(), 2, "{text}");
        }
    }
}
