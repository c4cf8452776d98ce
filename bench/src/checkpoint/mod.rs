//! Measures the checkpoint store: model-shaped checkpoints, saved and loaded in turn with the bare
//! volume below them, and, where they are to be had, with other programs on the same file system.
//!
//! ```text
//! Model (tensors, ranks)     Subject (a volume)     Peers (a Python process)
//!          \                      |                     /
//!           +-------> Trial: rounds of phases, in turn +
//!                                 |
//!                       CheckpointReport --> tables, JSON
//! ```
//!
//! - Raw volume, save and load work on the same bytes of the same members, one right after the
//!   other, with as many threads and as much in flight.
//! - A save counts from `begin` to the return of `commit`, flushes included; the raw write counts
//!   up to the end of its flush.
//! - The first write of blocks and writing them again are told apart: on a file system they cost
//!   differently.

mod shapes;

mod memory;
mod usage;

mod raw;
mod saves;

mod peers;
mod trial;

mod report;
mod table;

pub use memory::{Pages, Source};
pub use peers::{PeerPhase, Peers};
pub use report::{
    CheckpointReport, Conditions, ModelReport, PeerPhaseReport, PeerReport, PhaseReport,
    TimesReport,
};
pub use saves::SaveSettings;
pub use shapes::{FULL_TENSOR_BYTES, Model, ModelShape, SIZE_BYTES_MIN, TensorSpec};
pub use table::{render_checkpoint_header, render_checkpoint_tables};
pub use trial::{Findings, Phase, Place, Trial, TrialOptions};

#[cfg(test)]
mod end_to_end;
