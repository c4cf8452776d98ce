//! Members that a run makes for itself, as the command lines of block workloads ask for them.

use clap::{Args, ValueEnum};
use swath_engine::FileFill;

use super::{MEMBER_OVERHEAD_BYTES, VolumeArguments, parse_unit};
use crate::error::{Error, Result};
use crate::members::MembersOptions;
use crate::workload::Space;

/// How large members of the run's own are, and what they hold.
#[derive(Debug, Clone, Args)]
pub struct OwnArguments {
    /// Size of each member that is made, a multiple of 4k
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = parse_unit,
          conflicts_with = "members", help_heading = "Volume")]
    pub size: u64,

    /// What members hold before they are measured. unwritten: reserved blocks only, whose reads
    /// cost software alone; cells that write are refused [default: written for a new volume, as it
    /// is for one that is there]
    #[arg(long, value_enum, help_heading = "Volume")]
    pub fill: Option<FillChoice>,
}

/// What members hold before they are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FillChoice {
    /// Every block was written.
    Written,
    /// The file system has only reserved them.
    Unwritten,
}

impl OwnArguments {
    /// Whether members are asked for whose blocks were never written.
    pub fn is_unwritten(&self) -> bool {
        self.fill == Some(FillChoice::Unwritten)
    }

    /// Checks what clap cannot; `reads_only` says how to do without writing. Touches nothing.
    ///
    /// # Errors
    ///
    /// Unwritten blocks that are to be written, or of members that were given; members too small
    /// for a chunk.
    pub fn check(&self, volume: &VolumeArguments, writes: bool, reads_only: &str) -> Result<()> {
        if self.is_unwritten() {
            if !volume.makes_members() {
                return Err(Error::usage(
                    "--fill unwritten is for members that the run makes itself; give none",
                ));
            }
            if writes {
                return Err(Error::usage(format!(
                    "cells that write would fill the unwritten blocks as they go; leave \
                     --fill unwritten out, or only read{reads_only}"
                )));
            }
        }
        volume.check_size(self.size)
    }

    /// The members to make.
    pub fn members(&self, volume: &VolumeArguments, seed: u64) -> MembersOptions {
        MembersOptions {
            parent: volume.parent(),
            count: volume.member_count,
            member_bytes: self.size,
            fill: if self.is_unwritten() {
                FileFill::Unwritten
            } else {
                FileFill::Incompressible { seed }
            },
        }
    }

    /// The bytes that a workload will find on each of them at least.
    pub fn member_data_bytes(&self, volume: &VolumeArguments) -> u64 {
        let room = self.size.saturating_sub(MEMBER_OVERHEAD_BYTES);
        room - room % volume.chunk_bytes()
    }

    /// The bytes that a workload will find on the volume at least, so that what does not fit is
    /// refused before the members are made.
    pub fn volume_space(&self, volume: &VolumeArguments) -> Space {
        let members = u64::from(volume.member_count);
        Space {
            device: 0,
            base: 0,
            length: self.member_data_bytes(volume).saturating_mul(members),
        }
    }
}
