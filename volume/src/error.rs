//! The volume's error: a kind to match on, the context a person needs, and the cause.
//!
//! - The same shape as the engine's error, one layer up. `Display` prints the context once and
//!   never the cause, which [`source`](std::error::Error::source) holds; a program prints the
//!   chain.
//! - An engine error passes through as it is: its own text, its own cause, its kind mapped to one
//!   of the kinds here. Wrap it with [`Error::context`] only when there is something to add.
//! - A caller's mistake, a refusal, a device's failure and damaged metadata are different
//!   [`ErrorKind`]s. A broken invariant of ours is a panic with a sentence, not an `Err`.
//! - Errors are cheap to clone: the first error of a poisoned volume is told to every later caller.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of a volume call.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, to match on.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The caller asked for something that makes no sense; nothing was done.
    InvalidInput,
    /// An address, offset or length does not meet the alignment asked for; nothing was done.
    Misaligned,
    /// The range lies beyond the end of the volume or a device; nothing was done.
    OutOfBounds,
    /// A member of the volume was not among the devices given.
    Missing,
    /// Two of the devices given are the same member.
    Duplicate,
    /// A device is a member of another volume.
    Foreign,
    /// A member missed an update of the volume: an old copy, or a device that was away.
    Stale,
    /// A device is smaller than it was when the volume was created.
    Shrunk,
    /// The version, layout or features on a member are unknown here, or the device or backend
    /// cannot do the operation.
    Unsupported,
    /// A device carries no superblock.
    NotAMember,
    /// A device that should become a member carries something already.
    NotBlank,
    /// What a member holds is damaged, or contradicts itself or the other members.
    Damaged,
    /// Somebody else has a device open and locked, or mounted.
    InUse,
    /// There is nothing at the path.
    NotFound,
    /// There is something at the path already.
    AlreadyExists,
    /// The operating system refused access.
    PermissionDenied,
    /// A device or its file system cannot do direct I/O.
    NotDirect,
    /// The file system under a file member is full.
    NoSpace,
    /// The volume was opened for reading only.
    ReadOnly,
    /// Refused because an earlier write or flush failed; see the message for the first failure.
    Poisoned,
    /// A device reported an I/O error. After a failed write the range is an unknown mix.
    Device,
    /// A device has gone away.
    Gone,
    /// Memory, descriptors or another resource of this process ran out.
    Exhausted,
    /// The volume or the workers behind its handle have been closed.
    Closed,
    /// Something that no other kind here says.
    Other,
}

/// A volume error. `Display` prints what a person needs and never the cause, which is the `source`;
/// cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    text: Text,
    paths: Vec<PathBuf>,
    range: Option<(u64, u64)>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

#[derive(Clone)]
enum Text {
    Own(Cow<'static, str>),
    Engine(swath_engine::Error),
}

impl Error {
    /// An error of `kind`; `message` says what was wrong and, where there is one, the way out.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self::from_text(kind, Text::Own(message.into()))
    }

    fn from_text(kind: ErrorKind, text: Text) -> Self {
        Self(Arc::new(Inner {
            kind,
            text,
            paths: Vec::new(),
            range: None,
            source: None,
        }))
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Adds the path of a device it is about; call it again for a second one.
    #[must_use]
    pub fn with_path(self, path: &Path) -> Self {
        self.edit(|inner| inner.paths.push(path.to_path_buf()))
    }

    /// Adds the byte range it is about: offset, then length.
    #[must_use]
    pub fn with_range(self, offset: u64, length: u64) -> Self {
        self.edit(|inner| inner.range = Some((offset, length)))
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.edit(|inner| inner.source = Some(Arc::new(source)))
    }

    /// A new error of the same kind that says `message`, with this one as its cause.
    #[must_use]
    pub fn context(self, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(self.kind(), message).with_source(self)
    }

    /// What went wrong, to match on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The devices the error is about.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let engine = self.engine_error().and_then(swath_engine::Error::path);
        self.0.paths.iter().map(PathBuf::as_path).chain(engine)
    }

    /// The byte range the error is about: offset, then length.
    pub fn range(&self) -> Option<(u64, u64)> {
        self.0
            .range
            .or_else(|| self.engine_error().and_then(swath_engine::Error::range))
    }

    /// The engine's error, when this is one that was passed through.
    pub fn engine_error(&self) -> Option<&swath_engine::Error> {
        match &self.0.text {
            Text::Own(_) => None,
            Text::Engine(error) => Some(error),
        }
    }
}

impl From<swath_engine::Error> for Error {
    fn from(error: swath_engine::Error) -> Self {
        Self::from_text(kind_of(error.kind()), Text::Engine(error))
    }
}

/// The kind here that stands for one of the engine's.
fn kind_of(kind: swath_engine::ErrorKind) -> ErrorKind {
    use swath_engine::ErrorKind as Engine;
    match kind {
        Engine::InvalidInput => ErrorKind::InvalidInput,
        Engine::Misaligned => ErrorKind::Misaligned,
        Engine::OutOfBounds => ErrorKind::OutOfBounds,
        Engine::NotFound => ErrorKind::NotFound,
        Engine::AlreadyExists => ErrorKind::AlreadyExists,
        Engine::PermissionDenied => ErrorKind::PermissionDenied,
        Engine::InUse => ErrorKind::InUse,
        Engine::NotDirect => ErrorKind::NotDirect,
        Engine::Unsupported => ErrorKind::Unsupported,
        Engine::NoSpace => ErrorKind::NoSpace,
        Engine::Truncated => ErrorKind::Shrunk,
        Engine::Device => ErrorKind::Device,
        Engine::Gone => ErrorKind::Gone,
        Engine::ReadOnly => ErrorKind::ReadOnly,
        Engine::Poisoned => ErrorKind::Poisoned,
        Engine::Exhausted => ErrorKind::Exhausted,
        Engine::Closed => ErrorKind::Closed,
        // Interrupted, and what a later engine may add.
        _ => ErrorKind::Other,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        for (place, path) in inner.paths.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{}", path.display())?;
        }
        if let Some((offset, length)) = inner.range {
            let space = if inner.paths.is_empty() { "" } else { " " };
            write!(f, "{space}at offset {offset}, {length} bytes")?;
        }
        if !inner.paths.is_empty() || inner.range.is_some() {
            write!(f, ": ")?;
        }
        match &inner.text {
            Text::Own(message) => write!(f, "{message}"),
            Text::Engine(error) => write!(f, "{error}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("context", &format_args!("{self}"))
            .field("source", &std::error::Error::source(self))
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match (&self.0.source, &self.0.text) {
            (Some(source), _) => Some(&**source),
            (None, Text::Engine(error)) => error.source(),
            (None, Text::Own(_)) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    fn engine_error() -> swath_engine::Error {
        swath_engine::Error::from_io(
            std::io::Error::from_raw_os_error(5),
            "the device reported an I/O error",
        )
        .with_operation(swath_engine::OpKind::Read)
        .with_path(Path::new("/dev/a"))
        .with_range(4096, 512)
    }

    #[test]
    fn an_engine_error_passes_through_with_its_text_and_cause() {
        let engine = engine_error();
        let error = Error::from(engine.clone());
        assert_eq!(error.kind(), ErrorKind::Device);
        assert_eq!(error.to_string(), engine.to_string());
        assert_eq!(
            error.source().map(ToString::to_string),
            engine.source().map(ToString::to_string)
        );
        assert_eq!(error.range(), Some((4096, 512)));
        assert_eq!(error.paths().collect::<Vec<_>>(), [Path::new("/dev/a")]);
    }

    #[test]
    fn context_is_printed_once_and_the_cause_is_the_source() {
        let error = Error::from(engine_error()).context("cannot read superblock copy 2");
        assert_eq!(error.kind(), ErrorKind::Device);
        assert_eq!(error.to_string(), "cannot read superblock copy 2");
        let source = error.source().map(ToString::to_string);
        assert_eq!(source, Some(engine_error().to_string()));
    }

    #[test]
    fn paths_and_range_stand_before_the_message() {
        let error = Error::new(ErrorKind::Duplicate, "one member twice")
            .with_path(Path::new("/dev/a"))
            .with_path(Path::new("/dev/b"))
            .with_range(0, 4096);
        assert_eq!(
            error.to_string(),
            "/dev/a, /dev/b at offset 0, 4096 bytes: one member twice"
        );
        let error = Error::new(ErrorKind::OutOfBounds, "beyond the end").with_range(7, 1);
        assert_eq!(error.to_string(), "at offset 7, 1 bytes: beyond the end");
    }
}
