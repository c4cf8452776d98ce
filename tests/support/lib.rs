//! What the tests of Swath share.
//!
//! - [`sim`]: a platform of simulated devices: memory instead of media, completions in an order
//!   that a seed chooses, faults where a test wants them, crashes that take what was not flushed.
//! - [`model`]: a volume as a flat array of bytes, to compare with.
//! - [`fixtures`]: real files and loop devices to work on, made in one place; backends probed.
//! - [`seed`]: where randomness comes from, and how a failure is replayed.
//! - [`checkpoints`]: tensors made from a number, saved and compared; stores to save them in.
//! - [`parsers`]: every parser of bytes from elsewhere, and what must hold of it.
//! - [`binaries`]: the workspace's programs, built and found.
//! - [`sysfs`]: machines with drives, as recorded trees of sysfs and raw pages.
//! - [`skipped()`]: how a test says what it leaves out.

pub mod binaries;
pub mod checkpoints;
pub mod fixtures;
pub mod model;
pub mod parsers;
pub mod seed;
pub mod sim;
mod skipped;
pub mod sysfs;

pub use skipped::skipped;
