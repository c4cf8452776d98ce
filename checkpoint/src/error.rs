//! The store's error: a kind to match on, the context a person needs, and the cause.
//!
//! - The same shape as the volume's error, one layer up. `Display` prints the context once and
//!   never the cause, which [`source`](std::error::Error::source) holds; a program prints the
//!   chain.
//! - The context names what a person would look for: the checkpoint, the tensor, the block of it,
//!   and the places on the members that hold that block. A block may lie on several members, so
//!   there may be several places, and a host file (a safetensors file, say) may be named as well.
//! - A volume error passes through as it is: its own text, its own cause. Its kind is
//!   [`ErrorKind::Volume`], or [`ErrorKind::Poisoned`] or [`ErrorKind::ReadOnly`] when the volume
//!   refuses to be written; [`Error::volume_error`] has the rest.
//! - A caller's mistake, a refusal and damaged data are different [`ErrorKind`]s. A broken
//!   invariant of ours is a panic with a sentence, not an `Err`.
//! - Errors are cheap to clone: the first error of a session is told to every writer and to commit.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of a store call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How many places `Display` lists before it only counts them.
const PLACES_SHOWN_MAX: usize = 8;

/// What went wrong, to match on.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The caller asked for something that makes no sense; nothing was done.
    InvalidInput,
    /// There is no such checkpoint, tensor or file.
    NotFound,
    /// There is a checkpoint, tensor or file of this name already.
    AlreadyExists,
    /// The volume holds no checkpoint store.
    NoStore,
    /// A version or a data type that is unknown here: written by a newer program.
    Unsupported,
    /// What was read is not what was written, or contradicts itself.
    Damaged,
    /// The store, or the file system a file is written to, has too little space.
    NoSpace,
    /// The session has been committed, aborted or has failed already.
    Finished,
    /// The volume was opened for reading only.
    ReadOnly,
    /// The volume reported an error; see [`Error::volume_error`].
    Volume,
    /// Refused because an earlier write or flush failed; see the message for the first failure.
    Poisoned,
    /// Somebody else is doing what only one may do at a time.
    Busy,
    /// The caller cancelled it; nothing of it is visible.
    Cancelled,
    /// The source changed while it was borrowed for a save.
    Changed,
    /// Something that no other kind here says.
    Other,
}

/// Where on a member something lies.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize)]
pub struct DevicePlace {
    /// The path of the member.
    pub path: PathBuf,
    /// The offset on the device, in bytes: not on the volume, and superblocks included.
    pub offset: u64,
    /// How many bytes from there.
    pub length: u64,
}

/// A store error. `Display` prints what a person needs and never the cause, which is the `source`;
/// cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    text: Text,
    path: Option<PathBuf>,
    checkpoint: Option<String>,
    tensor: Option<String>,
    block: Option<u64>,
    places: Vec<DevicePlace>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

#[derive(Clone)]
enum Text {
    Own(Cow<'static, str>),
    Volume(swath_volume::Error),
}

impl Error {
    /// An error of `kind`; `message` says what was wrong and, where there is one, the way out.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self::from_text(kind, Text::Own(message.into()))
    }

    /// A mistake of the caller.
    pub(crate) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    /// Damage: something read back makes no sense.
    pub(crate) fn damaged(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Damaged, message)
    }

    /// An error of the host's file system, its kind mapped to one of the kinds here.
    pub fn from_io(error: io::Error, message: impl Into<Cow<'static, str>>) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            _ => ErrorKind::Other,
        };
        Self::new(kind, message).with_source(error)
    }

    fn from_text(kind: ErrorKind, text: Text) -> Self {
        Self(Arc::new(Inner {
            kind,
            text,
            path: None,
            checkpoint: None,
            tensor: None,
            block: None,
            places: Vec::new(),
            source: None,
        }))
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Adds the path of the host's file it is about.
    #[must_use]
    pub fn with_path(self, path: &Path) -> Self {
        self.edit(|inner| inner.path = Some(path.to_path_buf()))
    }

    /// Adds the name of the checkpoint it is about.
    #[must_use]
    pub fn with_checkpoint(self, name: impl fmt::Display) -> Self {
        self.edit(|inner| inner.checkpoint = Some(name.to_string()))
    }

    /// Adds the name of the tensor it is about.
    #[must_use]
    pub fn with_tensor(self, name: impl Into<String>) -> Self {
        self.edit(|inner| inner.tensor = Some(name.into()))
    }

    /// Adds the number of the tensor's checksum block it is about.
    #[must_use]
    pub fn with_block(self, block: u64) -> Self {
        self.edit(|inner| inner.block = Some(block))
    }

    /// Adds a place on a member; call it again for each further one.
    #[must_use]
    pub fn with_place(self, place: DevicePlace) -> Self {
        self.edit(|inner| inner.places.push(place))
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

    /// The host's file the error is about.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The checkpoint the error is about.
    pub fn checkpoint(&self) -> Option<&str> {
        self.0.checkpoint.as_deref()
    }

    /// The tensor the error is about.
    pub fn tensor(&self) -> Option<&str> {
        self.0.tensor.as_deref()
    }

    /// The checksum block of the tensor the error is about.
    pub fn block(&self) -> Option<u64> {
        self.0.block
    }

    /// The places on the members the error is about.
    pub fn places(&self) -> &[DevicePlace] {
        &self.0.places
    }

    /// The volume's error, when this is one that was passed through.
    pub fn volume_error(&self) -> Option<&swath_volume::Error> {
        match &self.0.text {
            Text::Own(_) => None,
            Text::Volume(error) => Some(error),
        }
    }
}

impl From<swath_volume::Error> for Error {
    fn from(error: swath_volume::Error) -> Self {
        let kind = match error.kind() {
            swath_volume::ErrorKind::Poisoned => ErrorKind::Poisoned,
            swath_volume::ErrorKind::ReadOnly => ErrorKind::ReadOnly,
            _ => ErrorKind::Volume,
        };
        Self::from_text(kind, Text::Volume(error))
    }
}

impl From<swath_engine::Error> for Error {
    fn from(error: swath_engine::Error) -> Self {
        swath_volume::Error::from(error).into()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        let mut comma = "";
        let mut part = |text: fmt::Arguments<'_>| {
            let result = write!(f, "{comma}{text}");
            comma = ", ";
            result
        };
        if let Some(path) = &inner.path {
            part(format_args!("{}", path.display()))?;
        }
        if let Some(checkpoint) = &inner.checkpoint {
            part(format_args!("checkpoint {checkpoint}"))?;
        }
        if let Some(tensor) = &inner.tensor {
            // Any UTF-8 is a name; what a terminal would obey is escaped.
            part(format_args!("tensor {tensor:?}"))?;
        }
        if let Some(block) = inner.block {
            part(format_args!("block {block}"))?;
        }
        for place in inner.places.iter().take(PLACES_SHOWN_MAX) {
            part(format_args!(
                "{} at device offset {}, {} bytes",
                place.path.display(),
                place.offset,
                place.length
            ))?;
        }
        if inner.places.len() > PLACES_SHOWN_MAX {
            let more = inner.places.len() - PLACES_SHOWN_MAX;
            part(format_args!("{more} more places"))?;
        }
        if !comma.is_empty() {
            write!(f, ": ")?;
        }
        match &inner.text {
            Text::Own(message) => write!(f, "{message}"),
            Text::Volume(error) => write!(f, "{error}"),
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
            (None, Text::Volume(error)) => error.source(),
            (None, Text::Own(_)) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn damage_names_tensor_block_member_and_device_offset() {
        let place = DevicePlace {
            path: "/dev/a".into(),
            offset: 1 << 20,
            length: 65536,
        };
        let error = Error::damaged("checksum mismatch")
            .with_checkpoint(120)
            .with_tensor("layer\n0")
            .with_block(3)
            .with_place(place.clone());
        assert_eq!(
            error.to_string(),
            "checkpoint 120, tensor \"layer\\n0\", block 3, \
             /dev/a at device offset 1048576, 65536 bytes: checksum mismatch"
        );
        assert_eq!(error.kind(), ErrorKind::Damaged);
        assert_eq!(error.tensor(), Some("layer\n0"));
        assert_eq!(error.block(), Some(3));
        assert_eq!(error.places(), [place]);
    }

    #[test]
    fn many_places_are_counted() {
        let mut error = Error::damaged("checksum mismatch");
        for offset in 0..11 {
            error = error.with_place(DevicePlace {
                path: "/dev/a".into(),
                offset,
                length: 1,
            });
        }
        assert!(
            error
                .to_string()
                .ends_with(", 3 more places: checksum mismatch")
        );
    }

    #[test]
    fn a_volume_error_passes_through_with_its_text_and_cause() {
        let cause = io::Error::from_raw_os_error(5);
        let volume = swath_volume::Error::new(swath_volume::ErrorKind::Device, "a read failed")
            .with_source(cause);
        let error = Error::from(volume.clone()).with_tensor("a");
        assert_eq!(error.kind(), ErrorKind::Volume);
        assert_eq!(error.to_string(), "tensor \"a\": a read failed");
        assert_eq!(
            error.volume_error().map(swath_volume::Error::kind),
            Some(swath_volume::ErrorKind::Device)
        );
        assert_eq!(
            error.source().map(ToString::to_string),
            volume.source().map(ToString::to_string)
        );
        for (volume, kind) in [
            (swath_volume::ErrorKind::Poisoned, ErrorKind::Poisoned),
            (swath_volume::ErrorKind::ReadOnly, ErrorKind::ReadOnly),
            (swath_volume::ErrorKind::NotFound, ErrorKind::Volume),
        ] {
            assert_eq!(
                Error::from(swath_volume::Error::new(volume, "no")).kind(),
                kind
            );
        }
    }

    #[test]
    fn host_errors_keep_their_kind_and_cause() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let error = Error::from_io(full, "cannot write").with_path(Path::new("out"));
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert_eq!(error.to_string(), "out: cannot write");
        assert!(error.source().is_some());
        let context = error.context("export failed");
        assert_eq!(context.kind(), ErrorKind::NoSpace);
        assert_eq!(context.to_string(), "export failed");
    }
}
