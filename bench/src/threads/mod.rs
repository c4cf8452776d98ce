//! Threads against block sizes, in the shape of NVIDIA's gdsio: what `swath-threads` measures.
//!
//! - Every thread has a region of the volume to itself, as gdsio's threads have, and one request in
//!   flight: it submits, waits, and submits the next. What it waits for is what a caller that blocks
//!   waits for.
//! - Threads are pinned to the cores in turn; more threads than cores share them.
//! - The transfer is called what it is: between drives and CPU memory ([`XFER_TYPE`]).

mod gdsio;
mod grid;
mod plan;

pub use gdsio::{XFER_TYPE, gdsio_line};
pub use grid::render_grids;
pub use plan::{check, parse_threads, thread_cells};

use serde::Serialize;

use crate::report::Report;

/// A run of `swath-threads`: the report of any run of cells, and what its transfers were.
#[derive(Debug, Clone, Serialize)]
pub struct ThreadsReport {
    /// The program.
    pub program: &'static str,
    /// Between what bytes were moved, by gdsio's name.
    pub xfer_type: &'static str,
    /// The run. A cell's `numjobs` are its threads.
    #[serde(flatten)]
    pub run: Report,
}
