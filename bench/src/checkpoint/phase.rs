//! [`Phase`]: what is measured in a round, and what each is compared with.

use std::fmt;

use serde::{Serialize, Serializer};

/// What is measured in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// The bare volume, blocks that were never written, from the memory of tensors.
    RawWriteFirst,
    /// A save into blocks that were never written.
    SaveFirst,
    /// The bare volume, blocks that were written before, from a few buffers.
    RawWriteBuffers,
    /// The bare volume, blocks that were written before, from the memory of tensors.
    RawWrite,
    /// Saves over blocks that were written before.
    Save,
    /// Saves in the background over such blocks, until they are committed.
    SaveAsync,
    /// The bare volume, into a few buffers.
    RawReadBuffers,
    /// The bare volume, into the memory of tensors.
    RawRead,
    /// A load that checks everything.
    LoadVerified,
    /// A load that checks nothing.
    LoadTrusted,
    /// A load that checks everything, into memory it has to get first, as peers do.
    LoadNew,
}

impl Phase {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 11] = [
        Self::RawWriteFirst,
        Self::SaveFirst,
        Self::RawWriteBuffers,
        Self::RawWrite,
        Self::Save,
        Self::SaveAsync,
        Self::RawReadBuffers,
        Self::RawRead,
        Self::LoadVerified,
        Self::LoadTrusted,
        Self::LoadNew,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RawWriteFirst => "raw write, first",
            Self::SaveFirst => "save, first",
            Self::RawWriteBuffers => "raw write, buffers",
            Self::RawWrite => "raw write",
            Self::Save => "save",
            Self::SaveAsync => "save, async",
            Self::RawReadBuffers => "raw read, buffers",
            Self::RawRead => "raw read",
            Self::LoadVerified => "load",
            Self::LoadTrusted => "load, trusted",
            Self::LoadNew => "load, new memory",
        }
    }

    /// What it is to be compared with.
    pub const fn limit(self) -> Option<Self> {
        match self {
            Self::SaveFirst => Some(Self::RawWriteFirst),
            Self::Save | Self::SaveAsync => Some(Self::RawWrite),
            Self::LoadVerified | Self::LoadTrusted | Self::LoadNew => Some(Self::RawRead),
            Self::RawWriteFirst
            | Self::RawWriteBuffers
            | Self::RawWrite
            | Self::RawReadBuffers
            | Self::RawRead => None,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Phase {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
