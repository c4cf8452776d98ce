//! `swath read`: bytes of a volume to standard output or a file.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use swath_volume::Volume;

use super::transfer::{Report, Transfer};
use super::{identity, member_paths};
use crate::bytes;
use crate::failure::{Context, Failure, Result};
use crate::stream::pump;

/// Read bytes of a volume, at any offset, to standard output or a file
#[derive(Debug, Args)]
#[command(after_help = "\
Sizes are bytes, or 4k, 1m, 1g (powers of two).

Examples:
  swath read /data/volume > image                          all of it
  swath read /data/volume --offset 1g --length 4k | xxd    a look
  swath read /dev/nvme1n1 /dev/nvme2n1 -o part.bin --length 1g")]
pub(crate) struct Read {
    /// How much; without it, to the end of the volume
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse)]
    length: Option<u64>,

    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print what was done as JSON (with --output)
    #[arg(long, requires = "output")]
    json: bool,

    #[command(flatten)]
    transfer: Transfer,
}

impl Read {
    pub(super) fn run(&self) -> Result<()> {
        if self.output.is_none() && io::stdout().is_terminal() {
            return Err(Failure::usage(
                "standard output is a terminal: redirect it, or name a file with --output",
            ));
        }
        let volume = Arc::new(self.transfer.open.open(true)?);
        let first = self.transfer.offset;
        let end = self.transfer.end(&volume, self.length)?;
        let mut output = match &self.output {
            Some(path) => create_output(path, &volume)?,
            None => File::from(io::stdout().as_fd().try_clone_to_owned()?),
        };
        let output_name = match &self.output {
            Some(path) => path.display().to_string(),
            None => "standard output".to_owned(),
        };

        let started = Instant::now();
        let progress = self.transfer.progress("read", Some(end - first));
        let source = Arc::clone(&volume);
        let bytes = pump(
            first,
            end,
            self.transfer.piece_bytes(&volume),
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

        if self.output.is_none() {
            return Ok(());
        }
        let report = Report {
            command: "read",
            offset: first,
            bytes,
            elapsed_s: started.elapsed().as_secs_f64(),
        };
        report.tell("read", self.json)
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
