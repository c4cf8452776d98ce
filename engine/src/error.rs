//! The engine's error: a kind to match on, the context a person needs, and the cause.
//!
//! - One type for the whole crate. `Display` prints the context once and never the cause, which
//!   [`source`](std::error::Error::source) holds; a program prints the chain.
//! - A caller's mistake, a device's failure and a refusal are different [`ErrorKind`]s. A broken
//!   invariant of the engine itself is a panic with a sentence, not an `Err`.
//! - Errors are cheap to clone: the first error of a poisoned volume is told to every later caller.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::op::OpKind;

/// The result of an engine call.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, to match on.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The caller asked for something that makes no sense; nothing was done.
    InvalidInput,
    /// An address, offset or length does not meet the device's alignment; nothing was done.
    Misaligned,
    /// The range lies beyond the end of the device; nothing was done.
    OutOfBounds,
    /// There is nothing at the path.
    NotFound,
    /// There is something at the path already.
    AlreadyExists,
    /// The operating system refused access.
    PermissionDenied,
    /// Somebody else has the device open and locked, or mounted.
    InUse,
    /// The device or its file system cannot do direct I/O.
    NotDirect,
    /// This kernel, device or backend cannot do the operation.
    Unsupported,
    /// The file system under a file member is full.
    NoSpace,
    /// The device ended before the range did: it is shorter than it was.
    Truncated,
    /// The device reported an I/O error. After a failed write the range is an unknown mix.
    Device,
    /// The device has gone away.
    Gone,
    /// It was opened for reading only.
    ReadOnly,
    /// Refused because an earlier write or flush failed; see the message for the first failure.
    Poisoned,
    /// Memory, descriptors or another resource of this process ran out.
    Exhausted,
    /// The caller stopped it before its end.
    Interrupted,
    /// The workers behind a shared handle have stopped.
    Closed,
}

/// An engine error. `Display` prints the context once and never the cause, which
/// [`source`](std::error::Error::source) holds. Cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    operation: Option<OpKind>,
    path: Option<PathBuf>,
    range: Option<(u64, u64)>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind`; `message` says what was wrong and, where there is one, the way out.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            operation: None,
            path: None,
            range: None,
            source: None,
        }))
    }

    /// An error from the operating system, its kind taken from the error number.
    pub fn from_io(source: io::Error, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(kind_of(&source), message).with_source(source)
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Adds the device's path.
    #[must_use]
    pub fn with_path(self, path: &Path) -> Self {
        self.edit(|inner| inner.path = Some(path.to_path_buf()))
    }

    /// Adds the operation that failed.
    #[must_use]
    pub fn with_operation(self, operation: OpKind) -> Self {
        self.edit(|inner| inner.operation = Some(operation))
    }

    /// Adds the byte range on the device: offset, then length.
    #[must_use]
    pub fn with_range(self, offset: u64, length: u64) -> Self {
        self.edit(|inner| inner.range = Some((offset, length)))
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.edit(|inner| inner.source = Some(Arc::new(source)))
    }

    /// What went wrong, to match on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The device the error is about, if it is about one.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The operation that failed, if one was under way.
    pub fn operation(&self) -> Option<OpKind> {
        self.0.operation
    }

    /// The byte range on the device: offset, then length.
    pub fn range(&self) -> Option<(u64, u64)> {
        self.0.range
    }
}

/// The kind that an operating system's error number stands for.
fn kind_of(error: &io::Error) -> ErrorKind {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES | libc::EROFS) => ErrorKind::PermissionDenied,
        Some(libc::ENOENT | libc::ENOTDIR) => ErrorKind::NotFound,
        Some(libc::EEXIST) => ErrorKind::AlreadyExists,
        Some(libc::EBUSY | libc::EWOULDBLOCK | libc::ETXTBSY) => ErrorKind::InUse,
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY) => ErrorKind::Unsupported,
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => ErrorKind::NoSpace,
        Some(libc::ENODEV | libc::ENXIO | libc::ESHUTDOWN) => ErrorKind::Gone,
        Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE) => ErrorKind::Exhausted,
        Some(libc::EINVAL) => ErrorKind::InvalidInput,
        _ => ErrorKind::Device,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        let operation = inner.operation.map(|operation| operation.to_string());
        let path = inner.path.as_ref().map(|path| path.display().to_string());
        let range = inner
            .range
            .map(|(offset, length)| format!("at offset {offset}, {length} bytes"));
        let context: Vec<_> = [operation, path, range].into_iter().flatten().collect();
        if !context.is_empty() {
            write!(f, "{}: ", context.join(" "))?;
        }
        write!(f, "{}", inner.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("context", &format_args!("{self}"))
            .field("source", &self.0.source)
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}
