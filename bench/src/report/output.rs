//! Where reports go: files that are known to be writable before the run, and standard output.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A file that a report will be written to.
#[derive(Debug)]
pub struct ReportFile {
    path: PathBuf,
    /// None: standard output.
    file: Option<File>,
    /// Whether to take it away again if nothing was written: it was not there before.
    is_new: bool,
}

impl ReportFile {
    /// Opens it, so that a name that cannot be written is known before minutes of measuring. What
    /// the file holds stays until there is something new. `-` is standard output.
    ///
    /// # Errors
    ///
    /// The file cannot be opened for writing.
    pub fn open(path: &Path) -> Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self {
                path: path.to_path_buf(),
                file: None,
                is_new: false,
            });
        }
        let is_new = !path.exists();
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let file = file.map_err(|cause| {
            Error::failed(
                format!("cannot write the report to {}", path.display()),
                cause,
            )
        })?;
        Ok(Self {
            path: path.to_path_buf(),
            file: Some(file),
            is_new,
        })
    }

    /// Writes the report that `write` renders.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        self.is_new = false;
        let outcome = match &self.file {
            Some(file) => {
                // A pipe or a terminal has no length to cut.
                let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
                let cut = if is_file { file.set_len(0) } else { Ok(()) };
                cut.and_then(|()| {
                    let mut writer = BufWriter::new(file);
                    write(&mut writer)?;
                    writer.flush()
                })
            }
            None => tolerate_closed(write(&mut io::stdout().lock())),
        };
        outcome.map_err(|cause| {
            Error::failed(
                format!("cannot write the report to {}", self.path.display()),
                cause,
            )
        })
    }
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        if self.is_new {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether a report goes to standard output, so that tables must keep off it.
pub fn is_standard_output(path: Option<&PathBuf>) -> bool {
    path.is_some_and(|path| path.as_os_str() == "-")
}

/// Prints to standard output, or to standard error when a report has that for itself.
///
/// # Errors
///
/// The output cannot be written; one that was closed is none.
pub fn print(text: &str, to_stderr: bool) -> Result<()> {
    let outcome = if to_stderr {
        io::stderr().lock().write_all(text.as_bytes())
    } else {
        let mut output = io::stdout().lock();
        output
            .write_all(text.as_bytes())
            .and_then(|()| output.flush())
    };
    tolerate_closed(outcome).map_err(|cause| Error::failed("cannot print the results", cause))
}

/// A reader that has seen enough, such as `head`, is no failure.
fn tolerate_closed(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
