//! Measures the checkpoint store: model-shaped checkpoints, saved and loaded in turn with the bare
//! volume below them, and, where they are to be had, with other programs on the same file system.
//!
//! ```text
//! Model (tensors, ranks)     Subject (a volume)     Peers (a Python process)
//!          \                      |                     /
//!           +-------> Trial: rounds of phases, in turn +
//!                      |          |
//!    Ranks (processes)-+  CheckpointReport --> tables, JSON, CSV
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

mod worker;

mod ranks;
mod saves;

mod rank_process;

mod peers;
mod phase;
mod place;
mod trial;

mod csv;
mod report;
mod table;

pub use csv::write_checkpoint_csv;
pub use memory::{Pages, Source};
pub use peers::{PEERS_HOW_TO, PeerPhase, Peers};
pub use phase::Phase;
pub use place::Place;
pub use rank_process::serve_rank;
pub use ranks::RankProgram;
pub use report::{
    CheckpointReport, Conditions, ModelReport, PeerPhaseReport, PeerReport, PhaseReport,
    TimesReport,
};
pub use saves::SaveSettings;
pub use shapes::{FULL_TENSOR_BYTES, Model, ModelShape, SIZE_BYTES_MIN, TensorSpec};
pub use table::{render_checkpoint_header, render_checkpoint_tables};
pub use trial::{Findings, Trial, TrialOptions};

#[cfg(test)]
mod end_to_end;
