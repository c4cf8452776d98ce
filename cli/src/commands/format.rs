//! `swath format`: an empty checkpoint store on a volume.

use clap::Args;
use serde::Serialize;
use swath_checkpoint::{ErrorKind, FormatOptions, Store};
use swath_volume::Uuid;

use super::store::StoreArguments;
use crate::bytes::Exact;
use crate::failure::{Failure, Result};
use crate::output::{self, Text};

/// Make an empty checkpoint store on a volume
#[derive(Debug, Args)]
#[command(after_help = "\
'swath save' does it by itself where there is none. A volume that has a store, or whose root record
another program uses, is refused unless --force; all its checkpoints are lost then.

Example:
  swath format /data/volume")]
pub(crate) struct Format {
    /// Lose the checkpoints that are there
    #[arg(long)]
    force: bool,

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
    volume_uuid: Uuid,
    store_uuid: Uuid,
    free_bytes: u64,
}

impl Format {
    pub(super) fn run(&self) -> Result<()> {
        let volume = self.store.open_volume(false)?;
        let title = super::title(&volume);
        let volume_uuid = volume.uuid();
        let options = FormatOptions {
            force: self.force,
            ..FormatOptions::default()
        };
        let store = Store::format(volume, &options).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => Failure::new(format!(
                "{title}: it holds a checkpoint store, or another program's data; nothing was done"
            ))
            .hint("--force loses it"),
            _ => Failure::from(error),
        })?;
        let report = Report {
            command: "format",
            volume_uuid,
            store_uuid: store.uuid(),
            free_bytes: store.space().free_bytes,
        };
        if self.json {
            return output::json(&report);
        }
        Text::default()
            .line(format!(
                "{title}: an empty checkpoint store was made, {} free",
                Exact(report.free_bytes)
            ))
            .print()
    }
}
