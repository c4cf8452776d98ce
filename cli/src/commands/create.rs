//! `swath create`: a new volume over devices, files, or files made on the way.
//!
//! Either there is a volume at the end, or everything is as it was: files that this call made are
//! removed again when anything fails or on ctrl-c, and members that were there before are not
//! touched until all is known to be right.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use clap::Args;
use swath_engine::FileFill;
use swath_volume::{CHUNK_BYTES_DEFAULT, CreateOptions, MEMBERS_MAX, Volume};

use super::facts::Facts;
use super::refuse_twice;
use crate::bytes::{self, Exact, Short};
use crate::failure::{Context, Failure, Result};
use crate::interrupt::Interrupt;
use crate::output::{self, Text};
use crate::progress::Progress;

/// Make a volume over devices or files
#[derive(Debug, Args)]
#[command(after_help = "\
Members that carry anything (a file system, a partition table, another volume) are refused.
With --size, members that do not exist are made as files, written in full with zeroes.
Members are cut to the smallest, in whole chunks. 4m of each are for the volume's own records, so a
member has at least 4m and one chunk. Sizes are bytes, or 4k, 1m, 1g (powers of two).

Examples:
  swath create /dev/nvme1n1 /dev/nvme2n1 --name scratch
  swath create --size 1g /mnt/a/member /mnt/b/member
  swath create --size 1g --count 4 /data/volume       member-0 .. member-3 in that directory")]
pub(crate) struct Create {
    /// A name for people, at most 63 bytes; without it none
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,

    /// Bytes that sit together on one member: a multiple of 4k; without it 1m
    #[arg(long, value_name = "BYTES", default_value_t = CHUNK_BYTES_DEFAULT,
          hide_default_value = true, value_parser = bytes::parse_blocks)]
    chunk: u64,

    /// Make members that do not exist, as files of this size: a multiple of 4k
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse_blocks)]
    size: Option<u64>,

    /// Make this many members in one directory, from 1 to 128
    #[arg(long, value_name = "N", requires = "size",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MEMBERS_MAX)))]
    count: Option<u32>,

    /// Only reserve space for new files: quick, but the first write to each place will be slower
    #[arg(long, requires = "size")]
    prealloc: bool,

    /// Take members whatever they carry; what they carry is lost
    #[arg(long)]
    force: bool,

    /// Print the new volume as JSON
    #[arg(long)]
    json: bool,

    /// Block devices or files, in the order of the stripes; one directory with --size and --count
    #[arg(value_name = "MEMBER", required = true)]
    members: Vec<PathBuf>,
}

impl Create {
    pub(super) fn run(&self) -> Result<()> {
        let members = self.paths()?;
        refuse_twice(&members)?;
        let missing: Vec<&PathBuf> = members.iter().filter(|path| is_missing(path)).collect();
        let mut made = MadeFiles::default();
        match self.create(&members, &missing, &mut made) {
            Ok(facts) => self.print(&facts, &missing),
            Err(failure) => Err(made.remove(failure)),
        }
    }

    /// The members' paths: with `--count` those in the directory.
    fn paths(&self) -> Result<Vec<PathBuf>> {
        let Some(count) = self.count else {
            if let Some(directory) = self.members.iter().find(|path| path.is_dir()) {
                return Err(Failure::new(format!(
                    "{}: is a directory, not a member: name devices or files, or let --size and \
                     --count make members in it",
                    directory.display()
                )));
            }
            return Ok(self.members.clone());
        };
        let [directory] = &self.members[..] else {
            return Err(Failure::usage(
                "--count takes one directory, to make the members in",
            ));
        };
        if !directory.is_dir() {
            return Err(Failure::new(format!(
                "{}: is not a directory: --count makes members in a directory that is there",
                directory.display()
            )));
        }
        let paths: Vec<PathBuf> = (0..count)
            .map(|index| directory.join(format!("member-{index}")))
            .collect();
        match paths.iter().find(|path| !is_missing(path)) {
            Some(path) => Err(Failure::new(format!(
                "{}: exists already: --count makes new members; name the ones that are there \
                 one by one",
                path.display()
            ))),
            None => Ok(paths),
        }
    }

    fn create(
        &self,
        members: &[PathBuf],
        missing: &[&PathBuf],
        made: &mut MadeFiles,
    ) -> Result<Facts> {
        if !missing.is_empty() {
            let Some(size) = self.size else {
                return Err(Failure::new(format!(
                    "{}: no such file or device: give --size to make it as a file of that size",
                    missing[0].display()
                )));
            };
            refuse_too_little_space(missing, size)?;
            self.make_files(missing, size, made)?;
            // A link in a missing path's directory may have hidden that two paths are one.
            refuse_twice(members)?;
        }
        let options = CreateOptions {
            name: self.name.clone(),
            chunk_bytes: self.chunk,
            force: self.force,
            ..CreateOptions::default()
        };
        Volume::create(members, &options)?.close()?;
        Facts::gather(members)
    }

    fn make_files(&self, missing: &[&PathBuf], size: u64, made: &mut MadeFiles) -> Result<()> {
        let interrupt = Interrupt::watch()?;

        let fill = if self.prealloc {
            FileFill::Unwritten
        } else {
            FileFill::Zeroes
        };
        let total = size.saturating_mul(missing.len() as u64);
        let progress = Progress::new("making members", Some(total), false);
        let mut before = 0;
        for path in missing {
            let mut go_on = |bytes: u64| {
                progress.reached(before + bytes);
                !interrupt.is_wanted()
            };
            let outcome = swath_engine::create_file_with(path, size, fill, &mut go_on);
            if outcome.is_ok() {
                made.0.push((*path).clone());
            }
            if interrupt.is_wanted() {
                return Err(Failure::new("interrupted: nothing was made"));
            }
            outcome?;
            before += size;
        }
        Ok(())
    }

    fn print(&self, facts: &Facts, missing: &[&PathBuf]) -> Result<()> {
        if self.json {
            return output::json(&facts.report("create"));
        }
        let mut text = Text::default();
        facts.print(&mut text);
        for member in facts
            .members
            .iter()
            .filter(|member| member.unused_bytes > 0)
        {
            text.line(format!(
                "{}: {} left unused: all members are cut to the smallest, in whole chunks",
                member.path.display(),
                Exact(member.unused_bytes)
            ));
        }
        if self.prealloc && !missing.is_empty() {
            text.line(
                "The new files are reserved but not written: the first write to each place is \
                 slower than later ones.",
            );
        }
        text.print()
    }
}

/// The files this call has made so far.
#[derive(Debug, Default)]
struct MadeFiles(Vec<PathBuf>);

impl MadeFiles {
    /// Removes them again because of `failure`, and says so when that fails too.
    fn remove(self, failure: Failure) -> Failure {
        self.0.iter().fold(failure, |failure, path| {
            match swath_engine::remove_file(path) {
                Ok(()) => failure,
                Err(error) => failure.context(format!(
                    "{} was made and could not be removed: {error}",
                    path.display()
                )),
            }
        })
    }
}

/// Whether there is nothing at a path, not even a link that leads nowhere.
fn is_missing(path: &Path) -> bool {
    path.symlink_metadata()
        .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// Refuses files that do not fit, all those on one file system taken together, before the first is
/// begun.
fn refuse_too_little_space(missing: &[&PathBuf], size: u64) -> Result<()> {
    let mut by_file_system: HashMap<u64, (&Path, u64)> = HashMap::new();
    for path in missing {
        let directory = match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => Path::new("/"),
        };
        let metadata = directory
            .metadata()
            .context(|| format!("{}: its directory {}", path.display(), directory.display()))?;
        let device = std::os::unix::fs::MetadataExt::dev(&metadata);
        let (_, need) = by_file_system.entry(device).or_insert((directory, 0));
        *need = need.saturating_add(size);
    }
    for (directory, need) in by_file_system.into_values() {
        let space = rustix::fs::statvfs(directory)
            .context(|| format!("{}: free space", directory.display()))?;
        let have = space.f_bavail.saturating_mul(space.f_frsize);
        if need > have {
            return Err(Failure::new(format!(
                "{}: the new members need {}, its file system has {}: give a smaller --size or \
                 another place; nothing was made",
                directory.display(),
                Exact(need),
                Short(have)
            )));
        }
    }
    Ok(())
}
