//! `swath wipe`: members become plain devices again.
//!
//! All members are looked at before the first is touched, so that a slip of the hand in the third
//! path does not cost the first two.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use swath_engine::{Kernel, OpenOptions, Platform as _};
use swath_volume::{WipeReport, examine, wipe};

use super::{Members, list, refuse_twice};
use crate::failure::{Context, Failure, Result};
use crate::output::{self, Text};

/// Erase what makes devices members: the volume is gone afterwards
#[derive(Debug, Args)]
#[command(after_help = "\
On each member these places are overwritten with zeroes: the four copies of its superblock (4k each)
and the two rings of root records (256k each). Half of them lie in its second MiB, the other half in
the last but one. The data between stays where it is, and nothing finds it any more. There is no way
back.

Refused for a device that is in use, and for one that is not a member or whose superblocks are all
damaged unless --force.

Example:
  swath wipe /dev/nvme1n1 /dev/nvme2n1")]
pub(crate) struct Wipe {
    /// Overwrite these places even on a device that is no member: what lies there is lost
    #[arg(long)]
    force: bool,

    /// Print what was done as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    members: Members,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Report {
    command: &'static str,
    members: Vec<WipeReport>,
}

impl Wipe {
    pub(super) fn run(&self) -> Result<()> {
        let paths = self.members.expand()?;
        refuse_twice(&paths)?;
        self.look(&paths)?;

        let mut members: Vec<WipeReport> = Vec::with_capacity(paths.len());
        for path in &paths {
            let report = wipe(path, self.force).context(|| match members.len() {
                0 => "nothing was erased".to_owned(),
                done => format!("after {done} of {} members were erased", paths.len()),
            })?;
            members.push(report);
        }
        if self.json {
            return output::json(&Report {
                command: "wipe",
                members,
            });
        }
        let mut text = Text::default();
        members.iter().for_each(|member| print(member, &mut text));
        text.print()
    }

    /// Refuses what cannot be wiped, before anything is.
    fn look(&self, paths: &[PathBuf]) -> Result<()> {
        let mut not_members = Vec::new();
        for path in paths {
            // The lock is let go at once. Whoever takes it in between is refused by `wipe` itself.
            drop(
                Kernel
                    .open(path, &OpenOptions::read_write())
                    .context(|| "nothing was erased".to_owned())?,
            );
            if examine(path)?.superblock.is_none() {
                not_members.push(path.clone());
            }
        }
        if not_members.is_empty() || self.force {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{}: no superblock: not a member, so nothing was erased; --force writes zeroes to the \
             places of superblocks and root records all the same, over whatever lies there",
            list(&not_members)
        )))
    }
}

fn print(member: &WipeReport, text: &mut Text) {
    let name = match member.volume_name.as_deref() {
        None | Some("") => String::new(),
        Some(name) => format!(", {name:?}"),
    };
    let erased = match (member.volume_uuid, member.copies_erased) {
        (Some(uuid), copies) => {
            format!(
                "{copies} superblock copies of volume {uuid}{name} erased, and its root records"
            )
        }
        (None, 0) => {
            "no superblock was there; the places of superblocks and root records are zero \
                      now"
            .to_owned()
        }
        (None, copies) => format!("{copies} damaged superblock copies erased, and root records"),
    };
    text.line(format!("{}: {erased}", member.path.display()));
}
