//! One striped volume over many raw drives or files, inside the caller's own process.
//!
//! The stripe map, for example, is plain arithmetic:
//!
//! ```
//! use swath_volume::Layout;
//!
//! // Four members with 1 GiB of data each, striped in chunks of 1 MiB.
//! let layout = Layout::new(4, 1 << 20, 1 << 30)?;
//! assert_eq!(layout.capacity_bytes(), 4 << 30);
//! // The first byte of the sixth chunk: the second stripe, on member 1.
//! assert_eq!(layout.locate(5 << 20), (1, 1 << 20));
//! # Ok::<(), swath_volume::Error>(())
//! ```
//!
//! What lies where on a member, and what its superblock says, is in [`superblock`]; which devices
//! make up a volume, and which of their copies to believe, in [`superblock::assemble`].

#![forbid(unsafe_code)]

mod error;

mod checksum;
mod fields;
mod layout;
pub mod signature;
pub mod superblock;

mod root;

#[doc(hidden)]
pub mod untrusted;

mod member;
mod metadata;

mod discover;
mod examine;
mod tune;
mod volume;
mod wipe;

pub use discover::members_in;
pub use error::{Error, ErrorKind, Result};
pub use examine::{CopyState, Examination, carries, carries_on, examine, examine_on};
pub use layout::{CHUNK_BYTES_DEFAULT, CHUNK_BYTES_UNIT, LAYOUT_RAID0, Layout, MEMBERS_MAX};
pub use member::Member;
pub use root::{ROOT_BYTES_MAX, RootRecord};
pub use superblock::Superblock;
pub use tune::{Answered, Tried, TuneOptions, Tuned};
pub use uuid::Uuid;
pub use volume::{CreateOptions, Guest, OpenOptions, RootClaim, Volume, VolumeLane, VolumeScope};
pub use wipe::{WipeReport, wipe, wipe_on};
