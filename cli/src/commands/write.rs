//! `swath write`: bytes from standard input or a file into a volume, and durable when it returns.
//!
//! A range that does not fit is refused before anything is written whenever its length is known:
//! given with `--length`, or the input is a file or a device. Only a pipe is found too long when
//! the volume's end is reached.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Seek as _, SeekFrom};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use swath_volume::Volume;

use super::transfer::{Report, Transfer};
use crate::bytes;
use crate::failure::{Context, Failure, Result};
use crate::stream::pump;

/// Write bytes from standard input or a file into a volume, at any offset, and flush it
#[derive(Debug, Args)]
#[command(after_help = "\
What is at that place is overwritten, without asking.
Sizes are bytes, or 4k, 1m, 1g (powers of two).

Examples:
  swath write /data/volume < model.bin
  swath write /data/volume --offset 1g --input part.bin
  gzip -dc image.gz | swath write /dev/nvme1n1 /dev/nvme2n1")]
pub(crate) struct Write {
    /// How much; without it, to the end of the input
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse)]
    length: Option<u64>,

    /// Read from this file instead of standard input
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,

    /// Print what was done as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    transfer: Transfer,
}

impl Write {
    pub(super) fn run(&self) -> Result<()> {
        let mut input = self.open_input()?;
        let length = self.length_of(&mut input)?;
        let volume = self.transfer.open.open(false)?;
        let first = self.transfer.offset;
        let end = self.transfer.end(&volume, length)?;

        let started = Instant::now();
        let bytes = self.copy(&volume, &input, end, length)?;
        volume.flush()?;
        let elapsed = started.elapsed();
        let is_full = length.is_none() && first + bytes == end;
        volume.close()?;

        if is_full && !at_end(&mut input).context(|| self.input_name())? {
            return Err(Failure::new(format!(
                "{}: the volume's end was reached: {bytes} bytes were written from offset {first} \
                 and flushed, and there is more input",
                self.input_name(),
            )));
        }
        if let Some(length) = length.filter(|length| *length != bytes) {
            return Err(Failure::new(format!(
                "{}: ended after {bytes} of {length} bytes; these were written from offset {first} \
                 and flushed",
                self.input_name(),
            )));
        }
        let report = Report {
            command: "write",
            offset: first,
            bytes,
            elapsed_s: elapsed.as_secs_f64(),
        };
        report.tell("written and flushed", self.json)
    }

    fn input_name(&self) -> String {
        match &self.input {
            Some(path) => path.display().to_string(),
            None => "standard input".to_owned(),
        }
    }

    fn open_input(&self) -> Result<File> {
        match &self.input {
            Some(path) => File::open(path).context(|| self.input_name()),
            None if io::stdin().is_terminal() => Err(Failure::usage(
                "standard input is a terminal: redirect it, or name a file with --input",
            )),
            None => Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?)),
        }
    }

    /// How much will be written, where that can be known.
    fn length_of(&self, input: &mut File) -> Result<Option<u64>> {
        let metadata = input.metadata().context(|| self.input_name())?;
        if metadata.is_dir() {
            return Err(Failure::new(format!(
                "{}: is a directory: name a file",
                self.input_name()
            )));
        }
        let held = if metadata.is_file() || metadata.file_type().is_block_device() {
            Some(bytes_left(input).context(|| self.input_name())?)
        } else {
            None
        };
        match (self.length, held) {
            (Some(length), Some(held)) if length > held => Err(Failure::new(format!(
                "{}: holds {held} bytes, --length asks for {length}; nothing was written",
                self.input_name()
            ))),
            (Some(length), _) => Ok(Some(length)),
            (None, held) => Ok(held),
        }
    }

    /// Copies the input to the volume, up to `end`, and says how much there was.
    fn copy(&self, volume: &Volume, input: &File, end: u64, length: Option<u64>) -> Result<u64> {
        let progress = self.transfer.progress("write", length);
        let mut source = input.try_clone().context(|| self.input_name())?;
        let source_name = self.input_name();
        let first = self.transfer.offset;
        let mut written = 0;
        let outcome = pump(
            first,
            end,
            self.transfer.piece_bytes(volume),
            move |_, memory| fill(&mut source, memory).context(|| source_name.clone()),
            |offset, piece| {
                volume.write_at(piece, offset)?;
                written = offset + piece.len() as u64 - first;
                progress.reached(written);
                Ok(())
            },
        );
        outcome.context(|| {
            format!("after {written} bytes written from offset {first}, and not flushed")
        })
    }
}

/// Reads until `memory` is full or the input ends.
fn fill(input: &mut File, memory: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < memory.len() {
        match input.read(&mut memory[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// How much a seekable input holds from where it stands.
fn bytes_left(input: &mut File) -> io::Result<u64> {
    let here = input.stream_position()?;
    let end = input.seek(SeekFrom::End(0))?;
    input.seek(SeekFrom::Start(here))?;
    Ok(end.saturating_sub(here))
}

/// Whether an input has nothing more. Waits for a pipe's writer to say so.
fn at_end(input: &mut File) -> io::Result<bool> {
    Ok(fill(input, &mut [0])? == 0)
}
