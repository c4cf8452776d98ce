//! `swath rm`: checkpoints that are no longer wanted.

use clap::Args;
use serde::Serialize;
use swath_checkpoint::CheckpointInfo;

use super::store::{StoreArguments, WhichOnes, removal};
use crate::failure::{Context, Failure, Result};
use crate::output::{self, Text};

/// Remove checkpoints
#[derive(Debug, Args)]
#[command(after_help = "\
All of them are looked up before the first is removed. Their space is used again by what is saved
next.

Examples:
  swath rm /data/volume --step 100
  swath rm /data/volume --step 100,200 --name best")]
pub(crate) struct Rm {
    #[command(flatten)]
    which: WhichOnes,

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
    removed: Vec<CheckpointInfo>,
}

impl Rm {
    pub(super) fn run(&self) -> Result<()> {
        let store = self.store.open(false)?;
        let names = self.which.given();
        let there = store.list();
        if let Some(name) = names
            .iter()
            .find(|name| !there.iter().any(|info| info.name == **name))
        {
            return Err(Failure::new(format!(
                "checkpoint {name}: there is no such checkpoint; nothing was removed"
            ))
            .hint("'swath ls' shows which there are"));
        }
        let mut removed: Vec<CheckpointInfo> = Vec::with_capacity(names.len());
        for name in names {
            let info = store.remove(name).context(|| match removed.len() {
                0 => "nothing was removed".to_owned(),
                done => format!("after {done} were removed"),
            })?;
            removed.push(info);
        }
        if self.json {
            return output::json(&Report {
                command: "rm",
                removed,
            });
        }
        let mut text = Text::default();
        for info in &removed {
            text.line(removal(info, "removed"));
        }
        text.print()
    }
}
