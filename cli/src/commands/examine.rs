//! `swath examine`: what is written on each member, superblock copy by superblock copy.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use swath_volume::superblock::FORMAT_VERSION;
use swath_volume::{CopyState, Examination, Superblock, examine};

use super::Members;
use crate::bytes::Exact;
use crate::failure::{Failure, Result};
use crate::output::{self, Text};
use crate::time::utc;

/// Show what is written on each device: its superblock, copy by copy
#[derive(Debug, Args)]
#[command(after_help = "\
Works while the volume is in use, and on members of different volumes.
Exit code 1 when a device has no superblock at all.

Example:
  swath examine /dev/nvme1n1 /dev/nvme2n1")]
pub(crate) struct Examine {
    /// Print it as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    members: Members,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Report {
    command: &'static str,
    devices: Vec<Examination>,
}

impl Examine {
    pub(super) fn run(&self) -> Result<()> {
        let paths = self.members.expand()?;
        // What can be looked at is shown, also beside a device that is gone.
        let mut devices = Vec::with_capacity(paths.len());
        let mut failure = None;
        for path in &paths {
            match examine(path) {
                Ok(examination) => devices.push(examination),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let without: Vec<PathBuf> = devices
            .iter()
            .filter(|device| device.superblock.is_none())
            .map(|device| device.path.clone())
            .collect();
        if self.json {
            output::json(&Report {
                command: "examine",
                devices,
            })?;
        } else {
            let mut text = Text::default();
            devices.iter().for_each(|device| print(device, &mut text));
            text.print()?;
        }
        if let Some(failure) = failure {
            return Err(failure.into());
        }
        match &without[..] {
            [] => Ok(()),
            paths => Err(Failure::new(format!(
                "{}: no superblock",
                super::list(paths)
            ))),
        }
    }
}

fn print(device: &Examination, text: &mut Text) {
    text.line(format!("{}:", device.path.display()));
    text.field("Device Size", &Exact(device.device_bytes));
    if let Some(superblock) = &device.superblock {
        print_superblock(superblock, text);
    }
    for (number, copy) in device.copies.iter().enumerate() {
        let state = match copy {
            CopyState::Good { generation } => format!("good, events {generation}"),
            CopyState::Blank => "blank".to_owned(),
            CopyState::Other => "no superblock".to_owned(),
            CopyState::Damaged { reason } => format!("damaged: {reason}"),
            CopyState::Unreadable { reason } => format!("unreadable: {reason}"),
        };
        text.field(&format!("Copy {number}"), &state);
    }
    text.line("");
}

fn print_superblock(superblock: &Superblock, text: &mut Text) {
    let features = format!(
        "compat {:#x}, ro-compat {:#x}, incompat {:#x}",
        superblock.features_compat, superblock.features_ro_compat, superblock.features_incompat
    );
    text.field("Version", &FORMAT_VERSION)
        .field("Feature Map", &features)
        .field("Array UUID", &superblock.volume_uuid)
        .field("Name", &superblock.name)
        .field("Creation Time", &utc(superblock.created_unix_s))
        .field("Raid Level", &"raid0")
        .field("Raid Devices", &superblock.member_count())
        .field("Device Number", &superblock.member_index)
        .field("Device UUID", &superblock.member_uuid)
        .field("Data Offset", &Exact(superblock.data_offset))
        .field("Data Size", &Exact(superblock.data_bytes))
        .field("Chunk Size", &Exact(superblock.chunk_bytes))
        .field("Block Size", &Exact(u64::from(superblock.block_bytes)))
        .field("Events", &superblock.generation);
}
