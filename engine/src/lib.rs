//! Direct I/O on raw drives and files, from inside your own process.
//!
//! A [`Device`] is opened once, by path, past the page cache, and locked. A [`Lane`] is one
//! thread's queue over a list of devices; a [`Handle`] shares lanes on threads of their own with
//! any number of callers, blocking or asynchronous. Every operation takes its buffer by value and
//! gives it back when it completes.
//!
//! ```
//! use std::sync::Arc;
//! use swath_engine::{
//!     AlignedBuf, FileFill, Kernel, Lane, LaneOptions, OpenOptions, Platform, Request, Segment,
//! };
//!
//! # let directory = tempfile::tempdir()?;
//! let path = directory.path().join("member");
//! swath_engine::create_file(&path, 1 << 20, FileFill::Zeroes)?;
//! let device = Kernel.open(&path, &OpenOptions::read_write())?;
//! let mut lane = Lane::open(&Kernel, &[device], &LaneOptions::default())?;
//!
//! let block = AlignedBuf::copy_of(&[7; 4096])?;
//! let place = [Segment::whole(0, 8192, 4096)];
//! lane.submit(Request::write(block, 1), &place);
//! let mut completions = Vec::new();
//! lane.wait(1, &mut completions)?;
//! assert_eq!(completions[0].result.as_ref().unwrap(), &4096);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod geometry;

mod buf;
mod op;
mod poison;

mod device;
mod platform;
pub mod queue;
mod scheduler;
mod sys;

mod gate;
pub mod threads;

mod latency;
mod stats;

#[cfg(test)]
mod skipped;

pub mod cpu;
pub mod inventory;

mod handle;
mod lane;

pub use buf::{AlignedBuf, BufPool, Buffer, Buffers, PoolBuf, ScopeMemory};
pub use device::{Access, Device, DeviceKind, Identity, Kernel, KernelDevice};
pub use device::{FileFill, create_file, create_file_with, fill_incompressible, remove_file};
pub use device::{Lock, OpenOptions, Seat};
pub use device::{WrittenState, written_state};
pub use error::{Error, ErrorKind, Result};
pub use gate::{Gate, GateGuard};
pub use geometry::Geometry;
pub use handle::{Handle, HandleOptions, Submission};
pub use lane::{Lane, LaneOptions, LaneScope, ScopeCompletion};
pub use op::{Completion, OpKind, Request, Segment};
pub use platform::Platform;
pub use poison::Poison;
pub use queue::{Backend, QueueDescription, QueueOptions};
pub use scheduler::Scheduler;
pub use stats::{LaneStats, OpStats};
