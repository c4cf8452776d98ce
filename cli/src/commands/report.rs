//! `swath report`: what benches measured, merged, compared, and written for people and programs.

use std::path::PathBuf;

use clap::Args;
use swath_bench::html::{PageOptions, write_changes, write_run};
use swath_bench::report::{ReportFile, is_standard_output, print};
use swath_bench::run::{Changes, Run, merge, read};
use swath_bench::{Rating, fio_json, markdown};

use crate::failure::{Failure, Result};

/// Merge, compare and show reports of swath-matrix, swath-threads and swath-curve
///
/// Several reports become one, if they were made alike: cells are put together, and the rounds of a
/// cell that several have all count. Without an option it is printed as Markdown.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  swath report --html report.html matrix.json
  swath report reads.json writes.json
  swath report --compare before.json after.json
  swath report --compare --html change.html before.json after.json
  swath report --drive-rating 14,10 --html report.html matrix.json
  swath report --fio-json fio/ matrix.json && fio-plot -i fio/4k -T title -r randread -l")]
pub(crate) struct Report {
    /// Write one HTML file with charts, which needs nothing else; - is standard output
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print Markdown; that is also done when nothing else is asked for
    #[arg(long)]
    markdown: bool,

    /// Put two reports beside each other, the first before, the second after: the ratio of each
    /// cell, and whether it is more than the noise between rounds
    #[arg(long)]
    compare: bool,

    /// Write fio's JSON: all cells as jobs of one file (- is standard output), or, where a directory
    /// is named, a file for each cell as fio-plot wants them
    #[arg(long, value_name = "FILE|DIR/", conflicts_with = "compare")]
    fio_json: Option<PathBuf>,

    /// What each drive is rated at, in GB/s of sequential reads and writes, as in 14,10: for the
    /// percent of the limit
    #[arg(long, value_name = "READ,WRITE", conflicts_with = "compare")]
    drive_rating: Option<Rating>,

    /// Reports, as the benches write them with --json
    #[arg(value_name = "REPORT.json", required = true)]
    reports: Vec<PathBuf>,
}

impl Report {
    pub(super) fn run(&self) -> Result<()> {
        self.check()?;
        let runs = self
            .reports
            .iter()
            .map(|path| read(path))
            .collect::<swath_bench::Result<Vec<Run>>>()?;
        if !self.compare {
            return self.show(&merge(runs)?);
        }
        let [before, after] = <[Run; 2]>::try_from(runs)
            .map_err(|_| Failure::usage("--compare takes two reports, before and after"))?;
        self.show_changes(&Changes::of(before, after)?)
    }

    /// What clap cannot see.
    fn check(&self) -> Result<()> {
        if self.compare && self.reports.len() != 2 {
            return Err(Failure::usage(format!(
                "--compare takes two reports, before and after; {} were given",
                self.reports.len()
            )));
        }
        let to_stdout = [self.html.as_ref(), self.fio_json.as_ref()]
            .into_iter()
            .filter(|path| is_standard_output(*path))
            .count();
        if to_stdout + usize::from(self.markdown) > 1 {
            return Err(Failure::usage(
                "only one of --html, --fio-json and --markdown can go to standard output",
            ));
        }
        Ok(())
    }

    fn show(&self, run: &Run) -> Result<()> {
        if let Some(path) = &self.html {
            let options = PageOptions {
                rating: self.drive_rating,
            };
            ReportFile::open(path)?.write(|output| write_run(run, &options, output))?;
        }
        if let Some(path) = &self.fio_json {
            // A name with a slash at its end is a directory, there or not.
            let is_folder = path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/");
            if is_folder {
                fio_json::write_folder(run, path)?;
            } else {
                ReportFile::open(path)?.write(|output| fio_json::write(run, output))?;
            }
        }
        self.print(|| markdown::run(run))
    }

    fn show_changes(&self, changes: &Changes) -> Result<()> {
        if let Some(path) = &self.html {
            ReportFile::open(path)?.write(|output| write_changes(changes, output))?;
        }
        self.print(|| markdown::changes(changes))
    }

    fn print(&self, text: impl FnOnce() -> String) -> Result<()> {
        if self.markdown || (self.html.is_none() && self.fio_json.is_none()) {
            print(&text(), false)?;
        }
        Ok(())
    }
}
