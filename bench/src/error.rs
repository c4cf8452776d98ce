//! What a bench binary can fail of, and the exit code that goes with it.
//!
//! `Display` prints the context and not the cause, as the engine's error does; [`Error::chain`]
//! prints both, for the last line a person sees.

use std::error::Error as StdError;
use std::fmt::{self, Write as _};

/// The result of a bench call.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, to match on.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// What was asked for makes no sense; nothing was done.
    Usage,
    /// It would overwrite or measure something that it should not; nothing was done.
    Refused,
    /// There is not enough disk space or memory; nothing was done.
    NoSpace,
    /// Something below failed.
    Failed,
    /// The user stopped the run.
    Interrupted,
}

/// A bench error: a kind, the context a person needs, and the cause.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of `kind`; `message` says what was wrong and, where there is one, the way out.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    /// Shorthand for [`ErrorKind::Usage`].
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// Shorthand for [`ErrorKind::Failed`] with a cause.
    pub fn failed(
        message: impl Into<String>,
        source: impl StdError + Send + Sync + 'static,
    ) -> Self {
        Self::new(ErrorKind::Failed, message).with_source(source)
    }

    /// The user stopped the run.
    pub fn interrupted() -> Self {
        Self::new(ErrorKind::Interrupted, "interrupted")
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// What went wrong, to match on.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What the process exits with: 2 for usage, 130 for an interrupt, else 1.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            ErrorKind::Usage => 2,
            ErrorKind::Interrupted => 130,
            _ => 1,
        }
    }

    /// The error and its causes in one line: `a: b: c`.
    pub fn chain(&self) -> String {
        let mut line = self.to_string();
        let mut next = self.source();
        while let Some(cause) = next {
            // Writing to a string cannot fail.
            let _ = write!(line, ": {cause}");
            next = cause.source();
        }
        line
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_prints_every_cause_once() {
        let inner = std::io::Error::other("the disk is on fire");
        let error = Error::failed("cannot read", inner);
        assert_eq!(error.chain(), "cannot read: the disk is on fire");
        assert_eq!(error.exit_code(), 1);
        assert_eq!(Error::usage("no").exit_code(), 2);
        assert_eq!(Error::interrupted().exit_code(), 130);
    }
}
