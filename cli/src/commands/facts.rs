//! What a volume's members say about it, put together for display.
//!
//! Taken from superblocks alone, so that it can be told while the volume is in use, or when it
//! cannot be opened at all. Whether it is whole is the volume crate's word: it is opened for
//! reading, and only when a writer has it is the answer worked out from the superblocks.

use std::path::PathBuf;

use serde::Serialize;
use swath_volume::superblock::{FORMAT_VERSION, MemberMap};
use swath_volume::{ErrorKind, OpenOptions, Superblock, Uuid, Volume, examine};

use super::list;
use crate::bytes::{Exact, Short};
use crate::failure::{Failure, Result};
use crate::output::Text;
use crate::time::utc;

/// A volume as its members describe it.
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    uuid: Uuid,
    name: String,
    format_version: u32,
    layout: &'static str,
    created_unix_s: u64,
    generation: u64,
    capacity_bytes: u64,
    chunk_bytes: u64,
    block_bytes: u32,
    member_count: u32,
    state: State,
    missing: Vec<u32>,
    /// By index.
    pub(super) members: Vec<MemberFacts>,
    /// Why the volume cannot be used as it is.
    #[serde(skip)]
    pub(super) refusal: Option<Failure>,
}

/// One member as it describes itself.
#[derive(Debug, Serialize)]
pub(super) struct MemberFacts {
    index: u32,
    pub(super) path: PathBuf,
    uuid: Uuid,
    generation: u64,
    device_bytes: u64,
    data_offset: u64,
    data_bytes: u64,
    pub(super) unused_bytes: u64,
}

/// Whether a volume can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    /// All members are there and agree.
    Clean,
    /// The same, and somebody has it open for writing.
    InUse,
    /// Not with these members.
    Failed,
}

/// Facts under the name of the command that tells them.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    command: &'static str,
    volume: &'a Facts,
}

impl Facts {
    /// Puts together what the members at `paths` say.
    ///
    /// An error when they do not describe one volume; a volume that cannot be used is described,
    /// with the reason in [`refusal`](Self::refusal).
    pub(super) fn gather(paths: &[PathBuf]) -> Result<Self> {
        // Nothing but superblocks is read, so the page cache does no harm here.
        let options = OpenOptions {
            read_only: true,
            allow_buffered: true,
            ..OpenOptions::default()
        };
        let mut refusal = match Volume::open(paths, &options) {
            Ok(volume) => {
                volume.close()?;
                None
            }
            Err(error) => Some(error),
        };
        let is_in_use = refusal
            .as_ref()
            .is_some_and(|error| error.kind() == ErrorKind::InUse);
        if is_in_use {
            refusal = None;
        }
        let mut refusal = refusal.map(Failure::from);

        let mut found: Vec<(PathBuf, u64, Superblock)> = Vec::with_capacity(paths.len());
        for path in paths {
            let examination = examine(path)?;
            let Some(superblock) = examination.superblock else {
                return Err(refusal.unwrap_or_else(|| {
                    Failure::new(format!("{}: no superblock: not a member", path.display()))
                }));
            };
            found.push((path.clone(), examination.device_bytes, superblock));
        }
        found.sort_by_key(|(_, _, superblock)| superblock.member_index);
        let newest = found.iter().map(|(_, _, superblock)| superblock);
        let newest = newest
            .max_by_key(|superblock| superblock.generation)
            .cloned();
        let Some(newest) = newest else {
            return Err(Failure::new("no members"));
        };
        if let Some((path, _, _)) = found
            .iter()
            .find(|(_, _, superblock)| superblock.volume_uuid != newest.volume_uuid)
        {
            return Err(refusal.unwrap_or_else(|| {
                Failure::new(format!("{}: member of another volume", path.display()))
            }));
        }

        let member_count = newest.member_count();
        let missing: Vec<u32> = (0..member_count)
            .filter(|index| {
                !found
                    .iter()
                    .any(|(_, _, found)| found.member_index == *index)
            })
            .collect();
        let is_whole = missing.is_empty()
            && found.len() == newest.member_uuids.len()
            && found
                .iter()
                .all(|(_, _, found)| found.generation == newest.generation);
        if is_in_use && !is_whole {
            refusal = Some(Failure::new(format!(
                "{}: the volume is in use, and these are not its {member_count} members",
                list(paths)
            )));
        }
        let state = match (&refusal, is_in_use) {
            (Some(_), _) => State::Failed,
            (None, true) => State::InUse,
            (None, false) => State::Clean,
        };
        let members = found
            .into_iter()
            .map(|(path, device_bytes, superblock)| MemberFacts {
                index: superblock.member_index,
                path,
                uuid: superblock.member_uuid,
                generation: superblock.generation,
                device_bytes,
                data_offset: superblock.data_offset,
                data_bytes: superblock.data_bytes,
                unused_bytes: unused_bytes(device_bytes, superblock.data_bytes),
            })
            .collect();
        Ok(Self {
            uuid: newest.volume_uuid,
            name: newest.name.clone(),
            format_version: FORMAT_VERSION,
            layout: "raid0",
            created_unix_s: newest.created_unix_s,
            generation: newest.generation,
            capacity_bytes: newest.data_bytes.saturating_mul(u64::from(member_count)),
            chunk_bytes: newest.chunk_bytes,
            block_bytes: newest.block_bytes,
            member_count,
            state,
            missing,
            members,
            refusal,
        })
    }

    /// The facts under the name of `command`, for JSON.
    pub(super) fn report(&self, command: &'static str) -> Report<'_> {
        Report {
            command,
            volume: self,
        }
    }

    /// The facts in mdadm's words and order.
    pub(super) fn print(&self, text: &mut Text) {
        let state = match (self.state, &self.missing[..]) {
            (State::Clean, _) => "clean".to_owned(),
            (State::InUse, _) => "clean, in use".to_owned(),
            (State::Failed, []) => "FAILED".to_owned(),
            (State::Failed, missing) => format!("FAILED, {} missing", missing.len()),
        };
        text.field("Version", &self.format_version)
            .field("Creation Time", &utc(self.created_unix_s))
            .field("Raid Level", &self.layout)
            .field("Array Size", &Exact(self.capacity_bytes))
            .field("Raid Devices", &self.member_count)
            .field("Total Devices", &self.members.len())
            .line("")
            .field("State", &state)
            .field("Chunk Size", &Exact(self.chunk_bytes))
            .field("Block Size", &Exact(u64::from(self.block_bytes)))
            .line("")
            .field("Name", &self.name)
            .field("UUID", &self.uuid)
            .field("Events", &self.generation)
            .line("");
        let mut rows: Vec<(u32, [String; 7])> = self
            .members
            .iter()
            .map(|member| (member.index, member.row()))
            .collect();
        rows.extend(
            self.missing
                .iter()
                .map(|&index| (index, missing_row(index))),
        );
        rows.sort_by_key(|(index, _)| *index);
        let rows: Vec<[String; 7]> = rows.into_iter().map(|(_, row)| row).collect();
        let heads = [
            "Number",
            "Size",
            "Data Offset",
            "Data Size",
            "Unused",
            "Device UUID",
            "Device",
        ];
        text.table(heads, &rows);
    }
}

impl MemberFacts {
    fn row(&self) -> [String; 7] {
        [
            self.index.to_string(),
            Short(self.device_bytes).to_string(),
            Short(self.data_offset).to_string(),
            Short(self.data_bytes).to_string(),
            Short(self.unused_bytes).to_string(),
            self.uuid.to_string(),
            self.path.display().to_string(),
        ]
    }
}

/// What a member of this size has beyond its part of the volume.
fn unused_bytes(device_bytes: u64, data_bytes: u64) -> u64 {
    MemberMap::new(device_bytes).map_or(0, |map| map.unused_bytes(data_bytes))
}

fn missing_row(index: u32) -> [String; 7] {
    let dash = || "-".to_owned();
    [
        index.to_string(),
        dash(),
        dash(),
        dash(),
        dash(),
        dash(),
        "missing".to_owned(),
    ]
}
