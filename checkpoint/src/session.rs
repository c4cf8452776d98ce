//! [`Session`]: one checkpoint being written. It becomes visible by [`Session::commit`], or never.

use std::fmt;
use std::sync::Arc;

use crate::error::Result;
use crate::extent::Extent;
use crate::ledger::Ledger;
use crate::names::CheckpointName;
use crate::store::{CheckpointInfo, Store};
use crate::writer::Writer;

/// What a new checkpoint is to be.
#[derive(Debug, Clone, Default)]
pub struct BeginOptions {
    /// How many bytes of tensors it will hold, if known: reserved at once, so that a store that is
    /// too full says so before anything is written. More may be written than that.
    pub data_bytes: Option<u64>,
    /// The caller's own words about it.
    pub metadata: Vec<(String, String)>,
    /// Whether a checkpoint of this name is replaced, by the commit itself. Default: refused.
    pub replace: bool,
    /// Whether borrowed memory is read once more after it was written, so that a caller who changed
    /// it meanwhile (which safe code cannot) is told. Costs a pass over the memory.
    pub verify_source: bool,
    /// The time it is made, in seconds since 1970, UTC. Default: now.
    pub created_unix_s: Option<u64>,
}

/// One checkpoint being written. Dropped without a commit, it was never there, and its space is free
/// again as soon as its writers are gone too.
pub struct Session {
    pub(crate) store: Store,
    pub(crate) options: BeginOptions,
    pub(crate) ledger: Arc<Ledger>,
}

impl Session {
    pub(crate) fn new(
        store: Store,
        name: CheckpointName,
        options: BeginOptions,
        reserved: Vec<Extent>,
    ) -> Self {
        let ledger = Arc::new(Ledger::new(
            name,
            store.volume().clone(),
            store.options().clone(),
            options.verify_source,
            Some(store.clone()),
            reserved,
        ));
        Self {
            store,
            options,
            ledger,
        }
    }

    /// What the checkpoint will be called.
    pub fn name(&self) -> &CheckpointName {
        &self.ledger.name
    }

    /// A writer, for the thread that calls this. Any number of threads may have one.
    ///
    /// # Errors
    ///
    /// A lane or buffers that are not to be had.
    pub fn writer(&self) -> Result<Writer> {
        Writer::open(Arc::clone(&self.ledger))
    }

    /// Makes the checkpoint visible and durable, as one atomic event.
    ///
    /// # Errors
    ///
    /// A writer or a lease that is still open: finish it and try again. A writer that failed: its
    /// error is told here again. A member that fails. After an error nothing of the checkpoint is
    /// visible; only when the very last step fails (the volume is poisoned then) does the next
    /// open decide whether it took place.
    pub fn commit(&self) -> Result<CheckpointInfo> {
        let closed = self.ledger.close()?;
        self.store
            .commit_session(&self.ledger.name, &self.options, closed)
            .map_err(|error| self.ledger.name_error(error))
    }

    /// Gives the checkpoint up: what dropping the session does, said aloud.
    pub fn abort(self) {}
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("name", self.name())
            .finish_non_exhaustive()
    }
}
