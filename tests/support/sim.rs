//! A simulated [`Platform`](swath_engine::Platform): no kernel, no threads, no clock but its own.
//!
//! ```text
//! SimPlatform --owns--> World (one lock): devices, faults, trace, clock, random numbers
//!     |  open                 ^  ^
//!     +------> SimDevice -----+  |        a lock on one device, as a real opener has it
//!     |  queue                   |
//!     +------> SimQueue ---------+        operations in flight; completed in random order
//! ```
//!
//! - An operation takes effect at the moment its completion is given, and only then touches memory
//!   and media. So whatever is in flight together may take effect in any order, as on a drive.
//! - Which operation comes next, how many come at once and how long each takes is decided by the
//!   seed alone.
//! - Everything the engine promises a queue is checked at every operation: bounds, alignment, the
//!   kernel's caps, tokens in flight once. A broken promise is a panic.

mod device;
mod faults;
mod platform;
mod queue;

pub use device::{SimDevice, Store};
pub use faults::{Fault, Outcome};
pub use platform::{SimPlatform, Traced};
pub use queue::SimQueue;
