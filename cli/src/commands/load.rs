//! `swath load`: a checkpoint as files again, all of them or none.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use swath_checkpoint::safetensors::{ExportOptions, export};
use swath_checkpoint::{CheckpointInfo, ErrorKind};

use super::store::{StoreArguments, Which, title};
use crate::bytes::{self, Exact};
use crate::failure::{Context, Failure, Result};
use crate::interrupt::Interrupt;
use crate::output::{self, Text};
use crate::progress::Progress;

/// Write a checkpoint as files: those it was saved from, byte for byte
#[derive(Debug, Args)]
#[command(after_help = "\
Every block is checked against its checksum. Files appear when all of them are whole and durable;
nothing that is there already is written over. A checkpoint that was not saved from files becomes
one model.safetensors.

Examples:
  swath load /data/volume --out restored             the newest
  swath load /data/volume --step 100 --out step-100")]
pub(crate) struct Load {
    #[command(flatten)]
    which: Which,

    /// The directory for the files; made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Do not compare checksums: quicker, and damage goes unseen
    #[arg(long)]
    trust: bool,

    /// How many threads read and write, 10 at most; together they take up to 64 MiB of memory
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: u8,

    /// Print progress lines where there is no terminal for a bar
    #[arg(long)]
    progress: bool,

    /// Print what was done as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArguments,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Report {
    command: &'static str,
    checkpoint: CheckpointInfo,
    files: Vec<FileReport>,
    bytes: u64,
    elapsed_s: f64,
}

#[derive(Debug, Serialize)]
struct FileReport {
    path: PathBuf,
    bytes: u64,
}

impl Load {
    pub(super) fn run(&self) -> Result<()> {
        let store = self.store.open(true)?;
        let checkpoint = self.which.open(&store)?;
        let options = ExportOptions {
            threads: self.threads.into(),
            trust: self.trust,
        };
        let interrupt = Interrupt::watch()?;
        let started = Instant::now();
        let progress = Progress::new("load", Some(checkpoint.info().data_bytes), self.progress);
        let outcome = export(&checkpoint, &self.out, &options, &mut |reached| {
            progress.reached(reached.done_bytes);
            !interrupt.is_wanted()
        });
        drop(progress);
        let elapsed = started.elapsed();
        let paths = outcome.map_err(|error| match error.kind() {
            ErrorKind::Cancelled => Failure::new("interrupted: no file was written"),
            _ => Failure::from(error).context("no file was written"),
        })?;

        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let bytes = path
                .metadata()
                .context(|| path.display().to_string())?
                .len();
            files.push(FileReport { path, bytes });
        }
        let bytes = files.iter().map(|file| file.bytes).sum();
        let checkpoint = checkpoint.info();
        if self.json {
            return output::json(&Report {
                command: "load",
                checkpoint,
                files,
                bytes,
                elapsed_s: elapsed.as_secs_f64(),
            });
        }
        let mut text = Text::default();
        for file in &files {
            text.line(format!("{}: {}", file.path.display(), Exact(file.bytes)));
        }
        text.line(format!(
            "{}: {} loaded and flushed, {}",
            title(&checkpoint.name),
            Exact(bytes),
            bytes::rate(bytes, elapsed)
        ))
        .print()
    }
}
