//! What `swath read` and `swath write` share: where on the volume, in pieces of which size, and what
//! is said at the end.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use swath_volume::Volume;

use super::{OpenArguments, list, member_paths, title};
use crate::bytes::{self, Exact};
use crate::failure::{Failure, Result};
use crate::output;
use crate::progress::Progress;
use crate::stream;

/// Where on the volume, and how.
#[derive(Debug, Args)]
pub(super) struct Transfer {
    /// Where on the volume to begin, in bytes from its start
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes::parse)]
    pub(super) offset: u64,

    /// How much is moved at once; without it whole stripes, from 4m to 64m
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse_positive)]
    bs: Option<u64>,

    /// Print progress lines to standard error where there is no terminal for a bar
    #[arg(long)]
    progress: bool,

    #[command(flatten)]
    pub(super) open: OpenArguments,
}

impl Transfer {
    /// Where the range ends, the volume's own end when no length was given. A range that goes beyond
    /// is refused here, before anything is done.
    pub(super) fn end(&self, volume: &Volume, length: Option<u64>) -> Result<u64> {
        let offset = self.offset;
        let capacity_bytes = volume.capacity_bytes();
        let end = match length {
            Some(length) => offset.checked_add(length),
            None => Some(capacity_bytes.max(offset)),
        };
        end.filter(|end| *end <= capacity_bytes).ok_or_else(|| {
            let length = length.map_or(String::new(), |length| format!(" and length {length}"));
            Failure::new(format!(
                "{} on {}: offset {offset}{length} goes beyond the end: it holds {}; nothing was \
                 done",
                title(volume),
                list(&member_paths(volume)),
                Exact(capacity_bytes),
            ))
        })
    }

    /// The size of pieces.
    pub(super) fn piece_bytes(&self, volume: &Volume) -> u64 {
        let members = volume.members().len() as u64;
        let stripe_bytes = volume.chunk_bytes().saturating_mul(members);
        self.bs.unwrap_or_else(|| stream::piece_bytes(stripe_bytes))
    }

    pub(super) fn progress(&self, what: &str, bytes_total: Option<u64>) -> Progress {
        Progress::new(what, bytes_total, self.progress)
    }
}

/// What was done.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) command: &'static str,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) elapsed_s: f64,
}

impl Report {
    /// Says to standard error that `bytes` were `done`, and prints the report where it is wanted.
    pub(super) fn tell(&self, done: &str, json: bool) -> Result<()> {
        let elapsed = Duration::from_secs_f64(self.elapsed_s);
        eprintln!(
            "{} {done}, {}",
            Exact(self.bytes),
            bytes::rate(self.bytes, elapsed)
        );
        if json { output::json(self) } else { Ok(()) }
    }
}
