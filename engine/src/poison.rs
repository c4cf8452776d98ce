//! [`Poison`]: the latch that stops writing after a failure that cannot be trusted past.
//!
//! After a failed write the range is an unknown mix of old and new, and after a failed flush
//! nothing that was written before can be believed: the kernel reports such an error once and may
//! have dropped the pages ("Can applications recover from fsync failures?", USENIX ATC 2020). So
//! the first failure sets the latch, for every lane that shares it, and it never opens again.

use std::sync::OnceLock;

use crate::error::{Error, ErrorKind};

/// Set by the first operation that fails after it may have changed a device. Shared by all lanes
/// of a volume.
#[derive(Debug, Default)]
pub struct Poison(OnceLock<Error>);

impl Poison {
    /// A latch that is not set.
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Whether a failure was seen.
    pub fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// The first failure.
    pub fn reason(&self) -> Option<&Error> {
        self.0.get()
    }

    /// Sets the latch. The first failure stays the reason.
    pub fn set(&self, failure: &Error) {
        if self.0.set(failure.clone()).is_ok() {
            tracing::error!(error = %failure, "writing stops here");
        }
    }

    /// The refusal that later writers get: none while the latch is open.
    pub fn refusal(&self) -> Option<Error> {
        self.reason().map(|first| {
            Error::new(
                ErrorKind::Poisoned,
                "refused: a device was lost, or an earlier write or flush failed, so what is on the \
                 devices is in doubt; close it, find out why, and open it again",
            )
            .with_source(first.clone())
        })
    }
}
