//! What the commands for checkpoints share: how a volume and a checkpoint are named, and how long
//! work is watched and stopped.

use std::path::{Path, PathBuf};

use clap::Args;
use swath_checkpoint::{Checkpoint, CheckpointInfo, CheckpointName, Store, StoreOptions};
use swath_volume::{OpenOptions, Volume};

use crate::bytes::Exact;
use crate::failure::{Failure, Result};

/// The volume of a command that works with the checkpoints on it.
#[derive(Debug, Args)]
pub(super) struct StoreArguments {
    /// A directory that holds the volume's members, or the members separated by commas
    #[arg(
        value_name = "VOLUME",
        required_unless_present = "members",
        conflicts_with = "members"
    )]
    volume: Option<PathBuf>,

    #[command(flatten)]
    pub(super) options: VolumeOptions,
}

/// The ways to name a volume beside its place on the command line, and how it is opened.
#[derive(Debug, Args)]
pub(super) struct VolumeOptions {
    /// A member, once for each, instead of VOLUME: for paths with commas in them
    #[arg(id = "members", long = "member", value_name = "PATH")]
    pub(super) members: Vec<PathBuf>,

    /// Go through the page cache where the members' file system has no direct I/O;
    /// without it they are refused
    #[arg(long)]
    allow_buffered: bool,
}

impl StoreArguments {
    /// Opens the store, to look at or to change.
    pub(super) fn open(&self, read_only: bool) -> Result<Store> {
        let volume = self.open_volume(read_only)?;
        Ok(Store::open(volume, &StoreOptions::default())?)
    }

    pub(super) fn open_volume(&self, read_only: bool) -> Result<Volume> {
        self.options.open_volume(self.volume.as_deref(), read_only)
    }
}

impl VolumeOptions {
    /// Opens the volume at `path`, or the one that the options name.
    pub(super) fn open_volume(&self, path: Option<&Path>, read_only: bool) -> Result<Volume> {
        let members = match path {
            Some(path) => swath_volume::members_in(&split(path))?,
            None => self.members.clone(),
        };
        let options = OpenOptions {
            read_only,
            allow_buffered: self.allow_buffered,
            ..OpenOptions::default()
        };
        Ok(Volume::open(&members, &options)?)
    }
}

/// Members separated by commas; a path that is there as it stands is one.
fn split(path: &Path) -> Vec<PathBuf> {
    match path.to_str() {
        Some(text) if text.contains(',') && !path.exists() => text
            .split(',')
            .filter(|part| !part.is_empty())
            .map(PathBuf::from)
            .collect(),
        _ => vec![path.to_path_buf()],
    }
}

/// One checkpoint, the newest where none is named.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(super) struct Which {
    /// The checkpoint of this step; without it, the newest
    #[arg(long, value_name = "N")]
    step: Option<u64>,

    /// The checkpoint of this name
    #[arg(long, value_name = "NAME")]
    name: Option<CheckpointName>,
}

impl Which {
    /// The name that was given, if one was.
    pub(super) fn given(&self) -> Option<CheckpointName> {
        self.step
            .map(CheckpointName::Step)
            .or_else(|| self.name.clone())
    }

    /// Opens the checkpoint.
    pub(super) fn open(&self, store: &Store) -> Result<Checkpoint> {
        let newest = || store.latest().map(|info| info.name);
        match self.given().or_else(newest) {
            Some(name) => Ok(store.get(name)?),
            None => Err(
                Failure::new("the store is empty: there is no checkpoint yet")
                    .hint("'swath save' makes one"),
            ),
        }
    }
}

/// Checkpoints to be changed, at least one.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(super) struct WhichOnes {
    /// A step; several separated by commas, or the option once for each
    #[arg(long = "step", value_name = "N", value_delimiter = ',')]
    steps: Vec<u64>,

    /// A name; the option once for each
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<CheckpointName>,
}

impl WhichOnes {
    /// The names, each once.
    pub(super) fn given(&self) -> Vec<CheckpointName> {
        let steps = self.steps.iter().copied().map(CheckpointName::Step);
        let mut names: Vec<CheckpointName> = Vec::new();
        for name in steps.chain(self.names.iter().cloned()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// How messages name a checkpoint.
pub(super) fn title(name: &CheckpointName) -> String {
    match name {
        CheckpointName::Step(step) => format!("step {step}"),
        CheckpointName::Name(_) => format!("checkpoint {name}"),
    }
}

/// A line for each checkpoint that was, or would be, removed.
pub(super) fn removal(info: &CheckpointInfo, verb: &str) -> String {
    format!(
        "{} {verb}: {} of the volume",
        title(&info.name),
        Exact(info.occupied_bytes)
    )
}

/// Text of a stranger for a terminal: what it would obey is escaped.
pub(super) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_separated_by_commas_unless_the_path_is_there() {
        let split = |text: &str| split(Path::new(text));
        assert_eq!(split("/a,/b,/c"), ["/a", "/b", "/c"].map(PathBuf::from));
        assert_eq!(split("/dev/null"), [PathBuf::from("/dev/null")]);
        let directory = std::env::temp_dir().join(format!("swath,{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let as_it_stands = split(directory.to_str().unwrap());
        std::fs::remove_dir(&directory).unwrap();
        assert_eq!(as_it_stands, [directory]);
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(plain("a\x1b[2Jé\n"), "a\\u{1b}[2Jé\\n");
    }
}
