//! `--verify` and what goes with it.

use std::path::PathBuf;

use clap::Args;
use swath_engine::QueueOptions;

use super::own::FillChoice;
use super::{OwnArguments, VolumeArguments};
use crate::error::{Error, ErrorKind, Result};
use crate::interrupt::Interrupt;
use crate::size::format_size;
use crate::verify::{UNIT_BYTES, VerifyOptions, require_journal_of};

/// Whether every block is checked, and by what.
#[derive(Debug, Clone, Args)]
pub struct VerifyArguments {
    /// Data validation: every 4 KiB written says which it is and how manieth write, every read is
    /// checked, and all that was written is read back at the end. Its rates are no measurements
    #[arg(long, help_heading = "Data validation")]
    pub verify: bool,

    /// With --verify: keep what was written in this file, so that a run which is killed, even by
    /// kill -9, is checked by the next one with the same file before it goes on (not a loss of power)
    #[arg(long, value_name = "FILE", help_heading = "Data validation")]
    pub journal: Option<PathBuf>,

    /// Only check the volume against --journal FILE; no cells, nothing is written
    #[arg(long, help_heading = "Data validation")]
    pub verify_only: bool,
}

impl VerifyArguments {
    /// Whether the run verifies, in either way.
    pub fn is_on(&self) -> bool {
        self.verify || self.verify_only
    }

    /// Checks what clap cannot, but for [`check_journal`](Self::check_journal). Touches nothing.
    ///
    /// # Errors
    ///
    /// Options that do not go together, block sizes that are not whole units.
    pub fn check(
        &self,
        volume: &VolumeArguments,
        own: &OwnArguments,
        block_sizes: &[u64],
        baseline: bool,
    ) -> Result<()> {
        let refuse = |message: &str| Err(Error::usage(message));
        if !self.is_on() {
            return match &self.journal {
                Some(_) => refuse("--journal is for a run with --verify or --verify-only"),
                None => Ok(()),
            };
        }
        if self.verify_only && self.journal.is_none() {
            return refuse("--verify-only goes by what a journal knows: give --journal FILE");
        }
        if self.journal.is_some() && volume.makes_members() {
            return refuse(
                "--journal is for members that stay, and the run removes those that it makes itself: \
                 give members of your own",
            );
        }
        if self.verify_only && own.fill.is_some() {
            return refuse("--verify-only writes nothing; leave --fill out");
        }
        if own.is_unwritten() {
            return refuse(
                "--verify has nothing to check on blocks that nobody wrote; leave --fill unwritten \
                 out",
            );
        }
        if own.fill == Some(FillChoice::Written) && !volume.makes_members() && !volume.destructive {
            return refuse("--fill written overwrites the volume; say so with --destructive");
        }
        if baseline {
            return refuse(
                "--baseline writes to the bare members, past what --verify knows of the volume; leave \
                 one of the two out",
            );
        }
        match block_sizes
            .iter()
            .find(|size| !size.is_multiple_of(UNIT_BYTES))
        {
            Some(size) => Err(Error::usage(format!(
                "--verify checks units of 4k, and {} is not a multiple of that; choose another --bs",
                format_size(*size)
            ))),
            None => Ok(()),
        }
    }

    /// Refuses a journal of another volume than the members carry, before they are touched.
    ///
    /// # Errors
    ///
    /// That, a journal that cannot be used, none where nothing but it says what to check.
    pub fn check_journal(&self, volume: &VolumeArguments) -> Result<()> {
        let Some(path) = &self.journal else {
            return Ok(());
        };
        if self.verify_only && !path.exists() {
            return Err(Error::new(
                ErrorKind::Refused,
                format!(
                    "there is no journal {}; a run with --verify and this --journal makes it",
                    path.display()
                ),
            ));
        }
        require_journal_of(path, &volume.members)
    }

    /// How to verify.
    pub fn options(&self, seed: u64, queue: QueueOptions, interrupt: &Interrupt) -> VerifyOptions {
        VerifyOptions {
            journal: self.journal.clone(),
            seed,
            queue,
            interrupt: interrupt.clone(),
        }
    }

    /// What `--dry-run` says of it.
    pub fn describe(&self) -> String {
        let journal = self.journal.as_ref().map(|path| path.display().to_string());
        match (self.is_on(), journal) {
            (false, _) => String::new(),
            (true, None) => {
                "data validation: all that was written is read back at the end\n".to_owned()
            }
            (true, Some(journal)) if self.verify_only => {
                format!("data validation: the volume is checked against {journal}\n")
            }
            (true, Some(journal)) => format!(
                "data validation: the volume is checked against {journal} if that is there, and all that \
                 was written is read back at the end\n"
            ),
        }
    }

    /// What a report says of it first.
    pub fn note(&self) -> Option<String> {
        self.is_on().then(|| {
            "a verifying run: every block is stamped and checked, so rates and latencies are no \
             measurements and compare with nothing"
                .to_owned()
        })
    }
}
