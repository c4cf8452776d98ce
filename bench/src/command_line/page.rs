//! `--html`, of the programs whose runs have a page.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::ReportArguments;
use crate::error::{Error, Result};
use crate::html::{PageOptions, write_run};
use crate::report::{ReportFile, is_standard_output};
use crate::run::Run;

/// Where the page goes.
#[derive(Debug, Clone, Args)]
pub struct PageArguments {
    /// Write the report as one HTML file with charts, which needs nothing else; - is standard output
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub html: Option<PathBuf>,
}

impl PageArguments {
    /// Checks what clap cannot. Touches nothing.
    ///
    /// # Errors
    ///
    /// Two reports on one standard output.
    pub fn check(&self, report: &ReportArguments) -> Result<()> {
        if is_standard_output(self.html.as_ref()) && report.is_piped() {
            return Err(Error::usage(
                "only one of --json, --csv and --html can go to standard output",
            ));
        }
        report.check()
    }

    /// Whether tables must keep off standard output.
    pub fn is_piped(&self, report: &ReportArguments) -> bool {
        report.is_piped() || is_standard_output(self.html.as_ref())
    }

    /// Opens the file, so that a name that cannot be written is known before minutes of measuring.
    ///
    /// # Errors
    ///
    /// It cannot be opened for writing.
    pub fn open(&self) -> Result<Option<PageFile>> {
        let file = self.html.as_deref().map(ReportFile::open).transpose()?;
        Ok(file.map(PageFile))
    }
}

/// The file that a page goes to, open since before the run.
#[derive(Debug)]
pub struct PageFile(ReportFile);

impl PageFile {
    /// Writes the page of a report. Of a run that was stopped before anything was measured there is
    /// none.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(self, report: &impl Serialize) -> Result<()> {
        match Run::of(report)? {
            Some(run) => self
                .0
                .write(|output| write_run(&run, &PageOptions::default(), output)),
            None => Ok(()),
        }
    }
}
