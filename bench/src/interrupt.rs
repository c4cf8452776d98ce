//! Ctrl-c, SIGTERM and SIGHUP: a flag that every loop looks at, and a way out for the impatient.
//!
//! The first signal sets the flag: loops end, files are removed, results so far are printed. A
//! second one removes the temporary files and leaves at once, for a device that no longer answers.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};

/// The flag. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    directories: Arc<Mutex<Vec<PathBuf>>>,
}

impl Interrupt {
    /// A flag that nothing sets but [`set`](Self::set).
    pub fn new() -> Self {
        Self::default()
    }

    /// A flag that signals set. Once per process.
    ///
    /// # Errors
    ///
    /// The signal handler cannot be installed.
    pub fn install() -> Result<Self> {
        let interrupt = Self::new();
        let handler = interrupt.clone();
        ctrlc::set_handler(move || handler.signalled())
            .map_err(|cause| Error::failed("cannot catch signals", cause))?;
        Ok(interrupt)
    }

    /// Lets signals pass, for a process that whoever started it ends. Once per process.
    ///
    /// # Errors
    ///
    /// The signal handler cannot be installed.
    pub(crate) fn ignore_signals() -> Result<()> {
        ctrlc::set_handler(|| ()).map_err(|cause| Error::failed("cannot catch signals", cause))
    }

    fn signalled(&self) {
        if self.flag.swap(true, Ordering::Relaxed) {
            eprintln!("\nstopped by a second signal");
            for directory in self.directories().drain(..) {
                // The process ends here; what cannot be removed now, the next run removes.
                let _ = std::fs::remove_dir_all(directory);
            }
            std::process::exit(130);
        }
        eprintln!("\nstopping; a second signal leaves at once");
    }

    /// Whether to stop.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Asks every loop to stop.
    pub fn set(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// An error if it is time to stop.
    ///
    /// # Errors
    ///
    /// [`Interrupted`](crate::ErrorKind::Interrupted).
    pub fn check(&self) -> Result<()> {
        if self.is_set() {
            Err(Error::interrupted())
        } else {
            Ok(())
        }
    }

    /// A directory that a second signal removes.
    pub(crate) fn guard_directory(&self, directory: &Path) {
        self.directories().push(directory.to_path_buf());
    }

    /// A directory that is gone.
    pub(crate) fn release_directory(&self, directory: &Path) {
        self.directories().retain(|guarded| guarded != directory);
    }

    fn directories(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.directories
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
