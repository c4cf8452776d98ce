//! `swath space`: how the space of a store is used.

use clap::Args;
use serde::Serialize;
use swath_checkpoint::SpaceReport;

use super::store::StoreArguments;
use crate::bytes::Exact;
use crate::failure::Result;
use crate::output::{self, Text};

/// Show how the space of a volume is used by checkpoints
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  swath space /data/volume")]
pub(crate) struct Space {
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
    checkpoint_count: usize,
    space: SpaceReport,
}

impl Space {
    pub(super) fn run(&self) -> Result<()> {
        let store = self.store.open(true)?;
        let report = Report {
            command: "space",
            checkpoint_count: store.list().len(),
            space: store.space(),
        };
        if self.json {
            return output::json(&report);
        }
        let Report {
            checkpoint_count,
            space,
            ..
        } = report;
        Text::default()
            .field("Volume Size", &Exact(space.capacity_bytes))
            .field("Checkpoints", &checkpoint_count)
            .field("They Take", &Exact(space.checkpoint_bytes))
            .field("Catalog", &Exact(space.catalog_bytes))
            .field("Free", &Exact(space.free_bytes))
            .field("Largest Free Run", &Exact(space.largest_free_bytes))
            .print()
    }
}
