//! `swath ls`: the checkpoints of a store.

use clap::Args;
use serde::Serialize;
use swath_checkpoint::safetensors::is_hidden;
use swath_checkpoint::{CheckpointInfo, Store};

use super::store::StoreArguments;
use crate::bytes::Short;
use crate::failure::Result;
use crate::output::{self, Text};
use crate::time::utc;

/// List the checkpoints of a volume, the newest last
#[derive(Debug, Args)]
#[command(after_help = "\
Data is what was saved, On Volume the space that it takes there.

Example:
  swath ls /data/volume")]
pub(crate) struct Ls {
    /// Print it as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArguments,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Report {
    command: &'static str,
    checkpoints: Vec<Row>,
}

/// One checkpoint.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    info: CheckpointInfo,
    /// How many of its tensors only serve to give the files again.
    hidden_tensor_count: u64,
    /// Why its tensors cannot be listed, if they cannot.
    damage: Option<String>,
}

impl Ls {
    pub(super) fn run(&self) -> Result<()> {
        let store = self.store.open(true)?;
        let checkpoints: Vec<Row> = store
            .list()
            .into_iter()
            .map(|info| Row::new(&store, info))
            .collect();
        if self.json {
            return output::json(&Report {
                command: "ls",
                checkpoints,
            });
        }
        let mut text = Text::default();
        if checkpoints.is_empty() {
            text.line("no checkpoints yet");
        } else {
            let heads = ["Created", "Tensors", "Data", "On Volume", "Name"];
            let rows: Vec<_> = checkpoints.iter().map(Row::cells).collect();
            text.table(heads, &rows);
        }
        text.print()
    }
}

impl Row {
    fn new(store: &Store, info: CheckpointInfo) -> Self {
        let (hidden_tensor_count, damage) = match store.get(info.name.clone()) {
            Ok(checkpoint) => {
                let tensors = checkpoint.tensors().iter();
                let hidden = tensors.filter(|tensor| is_hidden(&tensor.name)).count();
                (hidden as u64, None)
            }
            Err(error) => (0, Some(error.to_string())),
        };
        Self {
            info,
            hidden_tensor_count,
            damage,
        }
    }

    fn cells(&self) -> [String; 5] {
        let mut name = self.info.name.to_string();
        if self.info.pinned {
            name.push_str(" (pinned)");
        }
        if self.damage.is_some() {
            name.push_str(" (damaged)");
        }
        [
            utc(self.info.created_unix_s),
            (self.info.tensor_count - self.hidden_tensor_count).to_string(),
            Short(self.info.data_bytes).to_string(),
            Short(self.info.occupied_bytes).to_string(),
            name,
        ]
    }
}
