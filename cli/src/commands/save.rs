//! `swath save`: files into a checkpoint, all of them or nothing.
//!
//! Files are looked at before the volume is: what cannot be saved does not cost a store, or what is
//! in it, anything.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use swath_checkpoint::safetensors::{ImportOptions, ImportPlan};
use swath_checkpoint::{
    BeginOptions, CheckpointInfo, CheckpointName, ErrorKind, FormatOptions, Store, StoreOptions,
};

use super::store::{VolumeOptions, title};
use super::{identity, member_paths};
use crate::bytes::{self, Exact};
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::output::{self, Text};
use crate::progress::Progress;

/// Save files as a checkpoint: safetensors files, a sharded set of them, any other files
#[derive(Debug, Args)]
#[command(after_help = "\
A file that ends with .safetensors is saved tensor by tensor; one that ends with
.safetensors.index.json brings the files it names with it; any other is saved as it is.
'swath load' writes the same files again, byte for byte.

A volume that has no checkpoint store gets one. The store takes the whole volume: what was written
to it with 'swath write' is not known to the store, and is written over.

Examples:
  swath save /data/volume --step 100 model.safetensors optimizer.pt
  swath save /data/volume --step 200 model.safetensors.index.json --meta run=7
  swath save /dev/nvme1n1,/dev/nvme2n1 --name best model.safetensors --replace")]
pub(crate) struct Save {
    #[command(flatten)]
    name: NewName,

    /// Replace the checkpoint of this step or name, if there is one
    #[arg(long)]
    replace: bool,

    /// Words about the checkpoint, kept with it; the option once for each
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    meta: Vec<(String, String)>,

    /// Save every file as it is, whatever it is called
    #[arg(long)]
    raw: bool,

    /// How many threads read and write; each takes 17 MiB of memory
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: u8,

    /// Print progress lines where there is no terminal for a bar
    #[arg(long)]
    progress: bool,

    /// Print what was done as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    volume: VolumeOptions,

    /// A directory that holds the volume's members, or the members separated by commas (not with
    /// --member); then the files
    #[arg(value_names = ["VOLUME", "FILE"], num_args = 1.., required = true)]
    paths: Vec<PathBuf>,
}

/// What the checkpoint is called.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct NewName {
    /// Save it as this training step
    #[arg(long, value_name = "N")]
    step: Option<u64>,

    /// Save it under this name instead: not only digits
    #[arg(long, value_name = "NAME")]
    name: Option<CheckpointName>,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Report {
    command: &'static str,
    /// Whether the volume had no store before.
    formatted: bool,
    checkpoint: CheckpointInfo,
    files: Vec<PathBuf>,
    bytes: u64,
    elapsed_s: f64,
}

impl Save {
    pub(super) fn run(&self) -> Result<()> {
        let (path, files) = self.volume_and_files()?;
        let options = ImportOptions {
            threads: self.threads.into(),
            raw: self.raw,
        };
        let plan = ImportPlan::new(files, &options)?;
        let volume = self.volume.open_volume(path, false)?;
        refuse_members(&plan, &member_paths(&volume))?;
        let formatted = volume.root().is_none();
        let store = if formatted {
            let title = super::title(&volume);
            let store = Store::format(volume, &FormatOptions::default())?;
            eprintln!("{title} had no checkpoint store: an empty one was made");
            store
        } else {
            Store::open(volume, &StoreOptions::default())?
        };

        let started = Instant::now();
        let checkpoint = self.import(&store, &plan)?;
        let elapsed = started.elapsed();
        let bytes = plan.data_bytes();
        let files: Vec<PathBuf> = plan.paths().map(Path::to_path_buf).collect();
        if self.json {
            return output::json(&Report {
                command: "save",
                formatted,
                checkpoint,
                files,
                bytes,
                elapsed_s: elapsed.as_secs_f64(),
            });
        }
        let count = match files.len() {
            1 => "1 file".to_owned(),
            count => format!("{count} files"),
        };
        Text::default()
            .line(format!(
                "{}: {count}, {}, saved and flushed, {}",
                title(&checkpoint.name),
                Exact(bytes),
                bytes::rate(bytes, elapsed)
            ))
            .print()
    }

    /// The volume's path, if the first path is it, and the files.
    fn volume_and_files(&self) -> Result<(Option<&Path>, &[PathBuf])> {
        let (path, files) = match &self.paths[..] {
            files if !self.volume.members.is_empty() => (None, files),
            [volume, files @ ..] => (Some(volume.as_path()), files),
            [] => (None, &[][..]),
        };
        if files.is_empty() {
            return Err(Failure::usage(
                "no files to save: name the volume, and then the files",
            ));
        }
        Ok((path, files))
    }

    fn import(&self, store: &Store, plan: &ImportPlan) -> Result<CheckpointInfo> {
        let name = match (self.name.step, &self.name.name) {
            (None, Some(name)) => name.clone(),
            (step, _) => CheckpointName::Step(step.unwrap_or_default()),
        };
        let begin = BeginOptions {
            metadata: self.meta.clone(),
            replace: self.replace,
            ..BeginOptions::default()
        };
        let interrupt = Interrupt::watch()?;
        let progress = Progress::new("save", Some(plan.data_bytes()), self.progress);
        let outcome = plan.save(store, name, begin, &mut |reached| {
            progress.reached(reached.done_bytes);
            !interrupt.is_wanted()
        });
        outcome.map_err(|error| match error.kind() {
            ErrorKind::Cancelled => Failure::new("interrupted: nothing was saved"),
            ErrorKind::AlreadyExists => {
                Failure::from(error).hint("--replace puts the new one in its place")
            }
            ErrorKind::NoSpace => Failure::from(error)
                .context("nothing was saved")
                .hint("'swath space' shows what takes it, 'swath rm' and 'swath retain' make room"),
            _ => Failure::from(error).context("nothing was saved"),
        })
    }
}

/// Reads `key=value`.
fn parse_pair(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write a key, =, and a value".to_owned()),
    }
}

/// Refuses to save a member of a volume onto the same volume.
fn refuse_members(plan: &ImportPlan, members: &[PathBuf]) -> Result<()> {
    let members: Vec<_> = members.iter().filter_map(|path| identity(path)).collect();
    let is_member = |path: &&Path| identity(path).is_some_and(|file| members.contains(&file));
    match plan.paths().find(is_member) {
        Some(path) => Err(Failure::new(format!(
            "{}: this is a member of the volume itself: name other files",
            path.display()
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_read_as_pairs() {
        let pair = |text| parse_pair(text).ok();
        let of = |key: &str, value: &str| Some((key.to_owned(), value.to_owned()));
        assert_eq!(pair("run=7"), of("run", "7"));
        assert_eq!(pair("a=b=c"), of("a", "b=c"));
        assert_eq!(pair("a="), of("a", ""));
        assert_eq!(pair("=a"), None);
        assert_eq!(pair("a"), None);
    }
}
