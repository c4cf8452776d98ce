//! How a command ends when it does not succeed: one line on standard error, and an exit code.
//!
//! Every cause in the chain is printed once. The two exit codes are a promise to scripts: 2 means
//! that the same command line can never work, 1 that it failed or was refused on these members.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use swath_volume::ErrorKind;

/// The result of a command or a step of one.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

type Cause = Box<dyn Error + Send + Sync>;

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) struct Failure {
    reason: Reason,
    /// From the outermost context inwards.
    contexts: Vec<String>,
    cause: Option<Cause>,
    /// What to do about it, where the command knows.
    hint: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// The command line makes no sense.
    Usage,
    /// It was refused or did not work.
    Failed,
    /// The reader of our output went away. Nobody is there to be told.
    ReaderGone,
}

impl Failure {
    /// A refusal or a failure of our own; `message` says what is wrong and what to do about it.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            reason: Reason::Failed,
            contexts: vec![message.into()],
            cause: None,
            hint: None,
        }
    }

    /// A command line that makes no sense, where clap cannot see it.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            reason: Reason::Usage,
            ..Self::new(message)
        }
    }

    /// A failure to write to our own output.
    pub(crate) fn output(error: io::Error, context: impl Into<String>) -> Self {
        let reason = if error.kind() == io::ErrorKind::BrokenPipe {
            Reason::ReaderGone
        } else {
            Reason::Failed
        };
        Self {
            reason,
            ..Self::from(error).context(context)
        }
    }

    /// Adds what was being done.
    #[must_use]
    pub(crate) fn context(mut self, context: impl Into<String>) -> Self {
        self.contexts.insert(0, context.into());
        self
    }

    /// Adds what to do about it.
    #[must_use]
    pub(crate) fn hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }

    /// The whole chain as one line. A cause that the text before it already ends with (some
    /// errors quote their cause) is not said twice.
    fn chain(&self) -> String {
        let mut line = self.contexts.join(": ");
        let mut cause = self
            .cause
            .as_deref()
            .map(|cause| cause as &(dyn Error + 'static));
        while let Some(error) = cause {
            let text = error.to_string();
            if !line.ends_with(&text) {
                let separator = if line.is_empty() { "" } else { ": " };
                let _ = write!(line, "{separator}{text}");
            }
            cause = error.source();
        }
        line
    }

    /// What to do about it, where the library's own message tells what is wrong and no more: what
    /// helps is in the words of this command, which a library does not know.
    fn way_out(&self) -> Option<&'static str> {
        if self.hint.is_some() {
            return self.hint;
        }
        let cause = self.cause.as_ref()?;
        if let Some(error) = cause.downcast_ref::<swath_checkpoint::Error>() {
            let is_without = error.kind() == swath_checkpoint::ErrorKind::NoStore;
            return is_without.then_some("'swath save' makes one, and so does 'swath format'");
        }
        let error = cause.downcast_ref::<swath_volume::Error>()?;
        match error.kind() {
            ErrorKind::Missing => Some("name all members, or the directory that holds them"),
            ErrorKind::Foreign => {
                Some("name the members of one volume; 'swath examine' tells whose each is")
            }
            ErrorKind::Stale => Some("use the member that was there for the update"),
            ErrorKind::Shrunk => Some("give it its size back, and try again"),
            ErrorKind::NotAMember | ErrorKind::Damaged => {
                Some("'swath examine' shows what is on it")
            }
            _ => None,
        }
    }

    /// Prints the failure and gives its exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let code = match self.reason {
            Reason::ReaderGone => return ExitCode::SUCCESS,
            Reason::Usage => 2,
            Reason::Failed => 1,
        };
        let way_out = self
            .way_out()
            .map_or(String::new(), |words| format!("; {words}"));
        eprintln!("swath: error: {}{way_out}", self.chain());
        ExitCode::from(code)
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(cause: E) -> Self {
        Self {
            reason: Reason::Failed,
            contexts: Vec::new(),
            cause: Some(Box::new(cause)),
            hint: None,
        }
    }
}

/// Adds what was being done to whatever went wrong.
pub(crate) trait Context<T> {
    /// Adds `context` in front of the error.
    fn context(self, context: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Failure>> Context<T> for std::result::Result<T, E> {
    fn context(self, context: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| error.into().context(context()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_one_line_and_says_nothing_twice() {
        let cause = io::Error::other("no luck");
        let failure = Failure::from(cause).context("writing x").context("save");
        assert_eq!(failure.chain(), "save: writing x: no luck");
        let failure = Failure::from(io::Error::other("no luck")).context("save: no luck");
        assert_eq!(failure.chain(), "save: no luck");
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        let failure = Failure::output(io::ErrorKind::BrokenPipe.into(), "standard output");
        assert_eq!(failure.reason, Reason::ReaderGone);
        let failure = Failure::output(io::ErrorKind::StorageFull.into(), "standard output");
        assert_eq!(failure.reason, Reason::Failed);
    }
}
