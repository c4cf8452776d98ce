//! Ctrl-c as a wish that a command fulfils when it can: it stops, and leaves nothing half done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Result;

/// Whether somebody wants the command to stop.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes ctrl-c, and the polite signals to end, from here on. Once in a process.
    pub(crate) fn watch() -> Result<Self> {
        let wanted = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&wanted);
        ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))?;
        Ok(Self(wanted))
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
