//! `swath verify`: whether checkpoints are whole, and where they are not.

use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use swath_checkpoint::{CheckpointName, Store, VerifyOptions, VerifyProgress, VerifyReport};

use super::store::{StoreArguments, plain};
use crate::bytes::{self, Exact};
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::output::{self, Text};
use crate::progress::Progress;

/// Verify checkpoints: what leads to their data, and with --deep every block of it
#[derive(Debug, Args)]
#[command(after_help = "\
Nothing is written. Damage is listed with tensor, block, member and offset on the member, and ends
with exit code 1.

Examples:
  swath verify /data/volume                      quick: catalog and indexes
  swath verify /data/volume --deep               reads everything
  swath verify /data/volume --deep --step 100    reads one checkpoint")]
pub(crate) struct Verify {
    /// The checkpoint of this step only
    #[arg(long, value_name = "N", conflicts_with = "name")]
    step: Option<u64>,

    /// The checkpoint of this name only
    #[arg(long, value_name = "NAME")]
    name: Option<CheckpointName>,

    /// Read every block, and compare it with its checksum
    #[arg(long)]
    deep: bool,

    /// Print progress lines where there is no terminal for a bar
    #[arg(long)]
    progress: bool,

    /// Print what was found as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArguments,
}

/// What was found.
#[derive(Debug, Serialize)]
struct Report {
    command: &'static str,
    deep: bool,
    clean: bool,
    #[serde(flatten)]
    report: VerifyReport,
    elapsed_s: f64,
}

impl Verify {
    pub(super) fn run(&self) -> Result<()> {
        let store = self.store.open(true)?;
        let started = Instant::now();
        let report = self.verify(&store)?;
        let elapsed = started.elapsed();
        let refusal = refusal(&report);
        if self.json {
            output::json(&Report {
                command: "verify",
                deep: self.deep,
                clean: report.is_clean(),
                report,
                elapsed_s: elapsed.as_secs_f64(),
            })?;
        } else {
            self.print(&report, elapsed)?;
        }
        match refusal {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }

    fn verify(&self, store: &Store) -> Result<VerifyReport> {
        let interrupt = Interrupt::watch()?;
        let mut shown: Option<Progress> = None;
        let mut progress = |reached: VerifyProgress| {
            shown
                .get_or_insert_with(|| {
                    Progress::new("verify", Some(reached.total_bytes), self.progress)
                })
                .reached(reached.checked_bytes);
            !interrupt.is_wanted()
        };
        let options = VerifyOptions { deep: self.deep };
        let name = self.step.map(CheckpointName::Step);
        Ok(match name.or_else(|| self.name.clone()) {
            Some(name) => store.verify_only(name, &options, &mut progress)?,
            None => store.verify(&options, &mut progress)?,
        })
    }

    fn print(&self, report: &VerifyReport, elapsed: Duration) -> Result<()> {
        let mut text = Text::default();
        for damage in &report.damages {
            text.line(plain(&damage.to_string()));
        }
        if report.damages_left_out > 0 {
            text.line(format!("and {} damages more", report.damages_left_out));
        }
        let mut line = match report.checkpoints {
            1 => "1 checkpoint".to_owned(),
            count => format!("{count} checkpoints"),
        };
        if self.deep {
            let (read, rate) = (Exact(report.bytes), bytes::rate(report.bytes, elapsed));
            line.push_str(&format!(": {read} read and compared, {rate}"));
        } else {
            line.push_str(": catalog and indexes; --deep reads the data too");
        }
        text.line(line).print()
    }
}

/// Why the command does not succeed, if it does not.
fn refusal(report: &VerifyReport) -> Option<Failure> {
    let count = report.damages.len() as u64 + report.damages_left_out;
    if count > 0 {
        let damages = if count == 1 { "damage" } else { "damages" };
        let so_far = if report.complete {
            ""
        } else {
            " before it was interrupted"
        };
        Some(Failure::new(format!("{count} {damages} found{so_far}")))
    } else if report.complete {
        None
    } else {
        Some(Failure::new(
            "interrupted: what was verified so far is whole",
        ))
    }
}
