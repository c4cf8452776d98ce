//! `swath rename`: another name for a volume.

use clap::Args;
use serde::Serialize;

use super::OpenArguments;
use crate::failure::Result;
use crate::output::{self, Text};

/// Give a volume another name
#[derive(Debug, Args)]
#[command(after_help = "\
A copy of a member made before is stale afterwards, and refused.

Example:
  swath rename scratch /dev/nvme1n1 /dev/nvme2n1")]
pub(crate) struct Rename {
    /// The new name, at most 63 bytes
    name: String,

    /// Print what was done as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    open: OpenArguments,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Report {
    command: &'static str,
    uuid: String,
    name_before: String,
    name: String,
    generation: u64,
}

impl Rename {
    pub(super) fn run(&self) -> Result<()> {
        let volume = self.open.open(false)?;
        let name_before = volume.name();
        volume.rename(&self.name)?;
        let report = Report {
            command: "rename",
            uuid: volume.uuid().to_string(),
            name_before,
            name: volume.name(),
            generation: volume.generation(),
        };
        volume.close()?;
        if self.json {
            return output::json(&report);
        }
        let Report {
            uuid,
            name_before,
            name,
            ..
        } = &report;
        Text::default()
            .line(format!("volume {uuid}: {name_before:?} is now {name:?}"))
            .print()
    }
}
