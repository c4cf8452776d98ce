//! Latency against load, in the shape of Vdbench's curves: what `swath-curve` measures.
//!
//! ```text
//! Profile (TOML) --> Requests: what, where, how long --+
//! rate --> Schedule: when each is meant to start ------+--> OpenLoop, one for each thread --> Tally
//!                                                      |        |          |
//! VolumeLane, or a test's drive -----------------------+      Clock   Intervals (Vdbench's lines)
//!
//! walk: the peak, then 10 % to 120 % of it --> CurveReport --> tables, JSON, CSV
//! ```
//!
//! - Loads are open: requests arrive at a set rate, whatever became of those before them, and their
//!   latency counts from when they were meant to start. See the `open_loop` module.
//! - What decides is pure: schedules, requests and profiles know no clock and do no I/O.
//! - A profile says where its numbers come from, and whether it is an approximation.

mod arrivals;
mod profile;

mod parse;
mod shipped;

mod clock;
mod requests;

mod interval;
mod open_loop;
mod point;

mod csv;
mod report;
mod table;

mod walk;

pub use arrivals::{Arrivals, Schedule};
pub use csv::write_curve_csv;
pub use point::PointOptions;
pub use profile::{Profile, Region, SizeShare, Skew};
#[cfg(test)]
pub(crate) use report::fixture;
pub use report::{CurveReport, PointReport, ProfileReport, WorkloadReport};
pub use shipped::{corners, find, shipped, text_of};
pub use table::render_curves;
pub use walk::{Course, Outcome, check_rate, parse_percents, walk};
