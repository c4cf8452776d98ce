//! Measures striped volumes: workloads, a runner, latencies, and reports that carry their
//! conditions.
//!
//! ```
//! use std::time::Duration;
//! use swath_bench::{
//!     Cell, Interrupt, MembersOptions, Pattern, RunOptions, Runner, Side, Subject, SubjectOptions,
//! };
//! use swath_engine::FileFill;
//!
//! # let directory = tempfile::tempdir()?;
//! // Two files of 16 MiB with a volume on them, all of it gone when `subject` is dropped.
//! let own = MembersOptions {
//!     parent: directory.path().to_path_buf(),
//!     count: 2,
//!     member_bytes: 16 << 20,
//!     fill: FileFill::Incompressible { seed: 1 },
//! };
//! let interrupt = Interrupt::new();
//! let subject = Subject::prepare(&SubjectOptions::new(own), &interrupt, &mut |_| ())?;
//!
//! let options = RunOptions { runtime: Duration::from_millis(20), ..RunOptions::new(interrupt) };
//! let runner = Runner::new(subject.volume(), options);
//! let cell = Cell { pattern: Pattern::RandRead, block_bytes: 4096, depth: 32, lanes: 1 };
//! let measurement = runner.run(&cell, Side::Volume, &mut |_| ())?;
//! println!("{:.0} IOPS, {:?}", measurement.iops(), measurement.latency);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The binaries of this package are thin: they parse arguments and put these parts together.
//!
//! ```text
//! Subject (a volume, its members, how they were prepared)
//!    |
//! Plan (cells, rounds) --> Campaign --> Runner --> lanes, each: Cursor -> Target -> Latency
//!                             |
//!                          Report --> tables, JSON, CSV
//! ```
//!
//! - What is measured is what a caller gets: the lanes here are the lanes of the public interface.
//! - A number is honest or is not printed: direct I/O only, incompressible data, unwritten blocks
//!   called what they are.
//! - Whatever a run makes, it removes: at the end, on an error, on a panic, on a signal.

#![forbid(unsafe_code)]

mod error;
mod random;
mod size;

mod latency;
mod steady;
mod workload;

mod interrupt;
mod members;

mod target;

mod environment;

mod fill;
pub mod verify;

mod runner;
mod subject;

mod progress;

mod precondition;

mod plan;
mod sweep;

pub mod report;

mod campaign;

pub mod checkpoint;

pub mod compare;

pub mod threads;

pub mod curve;

pub mod run;

mod chart;
mod reference;

pub mod fio_json;
pub mod html;
pub mod markdown;

pub mod command_line;

pub use campaign::{Campaign, carry_out};
pub use environment::{DeviceReport, Environment, quote_command};
pub use error::{Error, ErrorKind, Result};
pub use fill::fill;
pub use interrupt::Interrupt;
pub use latency::{LatencyBins, LatencySummary};
pub use members::{MembersOptions, TemporaryMembers, check_room, default_parent};
pub use plan::{Depth, Plan, matrix};
pub use precondition::{Precondition, PreconditionReport, RandomWrites, precondition};
pub use progress::Progress;
pub use random::Random;
pub use reference::Rating;
pub use runner::{Measurement, Origin, Pinning, RunOptions, Runner};
pub use size::{format_bytes, format_duration, format_size};
pub use size::{parse_duration, parse_size, parse_size_list};
pub use steady::{SteadyOptions, SteadyReport, SteadyWindow};
pub use subject::{DataState, Preparation, Subject, SubjectOptions};
pub use sweep::{parse_depths, parse_lanes};
pub use target::Side;
pub use workload::{Cell, Cursor, Pattern, Position, Space, depth_auto};

#[cfg(test)]
mod end_to_end;
