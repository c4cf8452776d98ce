//! `swath read`: bytes of a volume to standard output or a file.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use swath_volume::Volume;

use super::{OpenArguments, identity, member_paths, range_end, stripe_bytes};
use crate::bytes::{self, Exact};
use crate::failure::{Context, Failure, Result};
use crate::output;
use crate::progress::Progress;
use crate::stream::{piece_bytes, pump};

/// Read bytes of a volume, at any offset, to standard output or a file
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  swath read /data/volume > image                          all of it
  swath read /data/volume --offset 1g --length 4k | xxd    a look
  swath read /dev/nvme1n1 /dev/nvme2n1 -o part.bin --length 1g")]
pub(crate) struct Read {
    /// Where to begin
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes::parse)]
    offset: u64,

    /// How much; without it, to the end of the volume
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse)]
    length: Option<u64>,

    /// Size of one read; without it whole stripes, at least 4m
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse_positive)]
    bs: Option<u64>,

    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print progress lines where there is no terminal for a bar
    #[arg(long)]
    progress: bool,

    /// Print what was done as JSON (with --output)
    #[arg(long, requires = "output")]
    json: bool,

    #[command(flatten)]
    open: OpenArguments,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Report {
    command: &'static str,
    offset: u64,
    bytes: u64,
    elapsed_s: f64,
}

impl Read {
    pub(super) fn run(&self) -> Result<()> {
        if self.output.is_none() && io::stdout().is_terminal() {
            return Err(Failure::usage(
                "standard output is a terminal: redirect it, or name a file with --output",
            ));
        }
        let volume = Arc::new(self.open.open(true)?);
        let end = range_end(&volume, self.offset, self.length)?;
        let mut output = match &self.output {
            Some(path) => create_output(path, &volume)?,
            None => File::from(io::stdout().as_fd().try_clone_to_owned()?),
        };
        let output_name = match &self.output {
            Some(path) => path.display().to_string(),
            None => "standard output".to_owned(),
        };

        let started = Instant::now();
        let progress = Progress::new("read", Some(end - self.offset), self.progress);
        let piece_bytes = self
            .bs
            .unwrap_or_else(|| piece_bytes(stripe_bytes(&volume)));
        let source = Arc::clone(&volume);
        let first = self.offset;
        let bytes = pump(
            first,
            end,
            piece_bytes,
            move |offset, memory| Ok(source.read_at(memory, offset).map(|()| memory.len())?),
            |offset, piece| {
                output
                    .write_all(piece)
                    .map_err(|error| Failure::output(error, output_name.clone()))?;
                progress.reached(offset + piece.len() as u64 - first);
                Ok(())
            },
        )?;
        if output.metadata().is_ok_and(|metadata| metadata.is_file()) {
            output
                .sync_all()
                .map_err(|error| Failure::output(error, output_name.clone()))?;
        }
        drop(progress);

        let elapsed = started.elapsed();
        if self.output.is_some() {
            eprintln!("{} read, {}", Exact(bytes), bytes::rate(bytes, elapsed));
        }
        if self.json {
            let elapsed_s = elapsed.as_secs_f64();
            output::json(&Report {
                command: "read",
                offset: self.offset,
                bytes,
                elapsed_s,
            })?;
        }
        Ok(())
    }
}

/// Makes or empties the file for the bytes, but never a member: a lock does not stop anyone from
/// emptying a file.
fn create_output(path: &Path, volume: &Volume) -> Result<File> {
    let members = member_paths(volume);
    if let Some(output) = identity(path)
        && let Some(member) = members
            .iter()
            .find(|member| identity(member) == Some(output))
    {
        return Err(Failure::new(format!(
            "{}: this is the volume's member {}: name another output file",
            path.display(),
            member.display()
        )));
    }
    File::create(path).context(|| format!("{}", path.display()))
}
