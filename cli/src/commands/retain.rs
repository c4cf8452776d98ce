//! `swath retain`: old checkpoints removed by a rule.

use clap::Args;
use serde::Serialize;
use swath_checkpoint::retention::{Candidate, Retention};
use swath_checkpoint::{CheckpointInfo, CheckpointName, Store};

use super::store::{StoreArguments, removal};
use crate::failure::Result;
use crate::output::{self, Text};

/// Remove old checkpoints by a rule
#[derive(Debug, Args)]
#[command(after_help = "\
A checkpoint stays if either rule keeps it. The newest that is whole always stays, and so do those
that a program has pinned.

Examples:
  swath retain /data/volume --keep-last 3 --keep-every 1000 --dry-run
  swath retain /data/volume --keep-last 3")]
pub(crate) struct Retain {
    #[command(flatten)]
    rule: Rule,

    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,

    /// Print what was done as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArguments,
}

/// What to keep.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct Rule {
    /// Keep this many of the newest
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keep_last: Option<u64>,

    /// Keep the steps that are multiples of this
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    keep_every: Option<u64>,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Report {
    command: &'static str,
    dry_run: bool,
    removed: Vec<CheckpointInfo>,
    kept: Vec<CheckpointName>,
}

impl Retain {
    pub(super) fn run(&self) -> Result<()> {
        let store = self.store.open(self.dry_run)?;
        let policy = Retention {
            keep_last: self.rule.keep_last,
            keep_every: self.rule.keep_every,
        };
        let removed = if self.dry_run {
            would_remove(&store, &policy)?
        } else {
            store.retain(&policy)?
        };
        let names = store.list().into_iter().map(|info| info.name);
        let kept: Vec<CheckpointName> = names
            .filter(|name| !removed.iter().any(|info| info.name == *name))
            .collect();
        if self.json {
            return output::json(&Report {
                command: "retain",
                dry_run: self.dry_run,
                removed,
                kept,
            });
        }
        let verb = if self.dry_run {
            "would be removed"
        } else {
            "removed"
        };
        let mut text = Text::default();
        for info in &removed {
            text.line(removal(info, verb));
        }
        let (removed, kept) = (removed.len(), kept.len());
        text.line(format!("{removed} {verb}, {kept} kept")).print()
    }
}

/// What [`Store::retain`] would remove.
fn would_remove(store: &Store, policy: &Retention) -> Result<Vec<CheckpointInfo>> {
    let infos = store.list();
    let candidates: Vec<Candidate> = infos
        .iter()
        .map(|info| Candidate {
            name: info.name.clone(),
            pinned: info.pinned,
            damaged: store.get(info.name.clone()).is_err(),
        })
        .collect();
    let places = policy.to_remove(&candidates)?;
    Ok(places
        .into_iter()
        .map(|place| infos[place].clone())
        .collect())
}
