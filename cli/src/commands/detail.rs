//! `swath detail`: what a volume is, and whether it is whole.

use clap::Args;

use super::Members;
use super::facts::Facts;
use crate::failure::Result;
use crate::output::{self, Text};

/// Show a volume: its size, its members, its state
#[derive(Debug, Args)]
#[command(after_help = "\
Nothing is written, and it works while the volume is in use. Exit code 1 when the volume cannot be used as it is.

Examples:
  swath detail /data/volume
  swath detail /dev/nvme1n1 /dev/nvme2n1 --json")]
pub(crate) struct Detail {
    /// Print it as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    members: Members,
}

impl Detail {
    pub(super) fn run(&self) -> Result<()> {
        let facts = Facts::gather(&self.members.expand()?)?;
        if self.json {
            output::json(&facts.report("detail"))?;
        } else {
            let mut text = Text::default();
            facts.print(&mut text);
            text.print()?;
        }
        match facts.refusal {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }
}
