//! The subcommands, one file each, and what they share: how members are named on the command line.

mod create;
mod detail;
mod devices;
mod examine;
mod facts;
mod format;
mod load;
mod ls;
mod read;
mod rename;
mod report;
mod retain;
mod rm;
mod save;
mod show;
mod space;
mod store;
mod transfer;
mod tune;
mod verify;
mod wipe;
mod write;

use std::collections::HashMap;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use swath_volume::{OpenOptions, Volume};

use crate::failure::{Failure, Result};

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Devices(devices::Devices),
    Create(create::Create),
    Detail(detail::Detail),
    Examine(examine::Examine),
    Tune(tune::Tune),
    Wipe(wipe::Wipe),
    Read(read::Read),
    Write(write::Write),
    Rename(rename::Rename),
    Format(format::Format),
    Save(save::Save),
    Load(load::Load),
    Ls(ls::Ls),
    Show(show::Show),
    Verify(verify::Verify),
    Rm(rm::Rm),
    Retain(retain::Retain),
    Space(space::Space),
    Report(report::Report),
}

impl Command {
    /// Does it.
    pub(crate) fn run(&self) -> Result<()> {
        match self {
            Self::Devices(command) => command.run(),
            Self::Create(command) => command.run(),
            Self::Detail(command) => command.run(),
            Self::Examine(command) => command.run(),
            Self::Tune(command) => command.run(),
            Self::Wipe(command) => command.run(),
            Self::Read(command) => command.run(),
            Self::Write(command) => command.run(),
            Self::Rename(command) => command.run(),
            Self::Format(command) => command.run(),
            Self::Save(command) => command.run(),
            Self::Load(command) => command.run(),
            Self::Ls(command) => command.run(),
            Self::Show(command) => command.run(),
            Self::Verify(command) => command.run(),
            Self::Rm(command) => command.run(),
            Self::Retain(command) => command.run(),
            Self::Space(command) => command.run(),
            Self::Report(command) => command.run(),
        }
    }
}

/// How a volume or its members are named.
#[derive(Debug, Args)]
struct Members {
    /// The members, in any order, or a directory that holds them
    #[arg(value_name = "MEMBER|DIR", required = true)]
    paths: Vec<PathBuf>,
}

impl Members {
    /// The members' own paths: a directory stands for the members found in it.
    fn expand(&self) -> Result<Vec<PathBuf>> {
        let members = swath_volume::members_in(&self.paths)?;
        if members.is_empty() {
            return Err(Failure::new(format!(
                "{}: no members in it",
                list(&self.paths)
            )));
        }
        Ok(members)
    }
}

/// The members of a volume that is about to be used.
#[derive(Debug, Args)]
struct OpenArguments {
    /// Go through the page cache where the members' file system has no direct I/O;
    /// without it they are refused
    #[arg(long)]
    allow_buffered: bool,

    #[command(flatten)]
    members: Members,
}

impl OpenArguments {
    fn open(&self, read_only: bool) -> Result<Volume> {
        let options = OpenOptions {
            read_only,
            allow_buffered: self.allow_buffered,
            ..OpenOptions::default()
        };
        Ok(Volume::open(&self.members.expand()?, &options)?)
    }
}

/// How messages name a volume.
fn title(volume: &Volume) -> String {
    let name = volume.name();
    if name.is_empty() {
        format!("volume {}", volume.uuid())
    } else {
        format!("volume {name:?}")
    }
}

/// Paths in a message: two are named, of more the first and how many others.
fn list(paths: &[PathBuf]) -> String {
    match paths {
        [] => "no members".to_owned(),
        [only] => only.display().to_string(),
        [first, second] => format!("{} and {}", first.display(), second.display()),
        [first, others @ ..] => format!("{} and {} others", first.display(), others.len()),
    }
}

/// The paths of an open volume's members.
fn member_paths(volume: &Volume) -> Vec<PathBuf> {
    volume
        .members()
        .iter()
        .map(|member| member.path().to_path_buf())
        .collect()
}

/// Which file or device a path leads to, links followed: equal for two paths to one.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = path.metadata().ok()?;
    if metadata.file_type().is_block_device() {
        // A device has many nodes; its number is what they share. No file system has number
        // u64::MAX, so that it cannot be mistaken for a file's.
        Some((u64::MAX, metadata.rdev()))
    } else {
        Some((metadata.dev(), metadata.ino()))
    }
}

/// Refuses two paths to one file or device.
fn refuse_twice(paths: &[PathBuf]) -> Result<()> {
    let mut seen: HashMap<(u64, u64), &Path> = HashMap::new();
    for path in paths {
        let Some(first) = identity(path).and_then(|identity| seen.insert(identity, path)) else {
            continue;
        };
        return Err(Failure::new(format!(
            "{} and {} are the same file or device: name every member once",
            first.display(),
            path.display()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut() {
        let paths: Vec<PathBuf> = ["/a", "/b", "/c"].iter().map(PathBuf::from).collect();
        assert_eq!(list(&paths[..1]), "/a");
        assert_eq!(list(&paths[..2]), "/a and /b");
        assert_eq!(list(&paths), "/a and 2 others");
    }

    #[test]
    fn a_path_given_twice_is_named_with_its_other_name() {
        let failure = refuse_twice(&["/dev/null".into(), "/dev/../dev/null".into()]);
        let message = format!("{:?}", failure.unwrap_err());
        assert!(
            message.contains("/dev/null and /dev/../dev/null"),
            "{message}"
        );
        assert!(refuse_twice(&["/dev/null".into(), "/dev/zero".into()]).is_ok());
    }
}
