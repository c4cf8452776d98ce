//! A simulated [`Platform`](swath_engine::Platform): no kernel, no threads, no clock but its own.
//!
//! ```text
//! SimWorld    N devices and their seed; crash() puts them on a new platform
//!    |
//! SimPlatform --owns--> World (one lock): media, faults, trace, clock, random numbers, and
//!     |  open                 ^  ^          the operations in flight
//!     +------> SimDevice -----+  |        locks on one device, as a real opener has them
//!     |  queue                   |
//!     +------> SimQueue ---------+        completes what is in flight in random order
//! ```
//!
//! - An operation takes effect at the moment its completion is given, and only then touches memory
//!   and media. So whatever is in flight together may take effect in any order, as on a drive.
//! - Which operation comes next, how many come at once and how long each takes is decided by the
//!   seed alone. Time is simulated: an operation that takes an hour costs nothing.
//! - Writes go to a volatile cache of sectors over a durable [`Image`]; a flush empties it, or
//!   fails and leaves it unknown. [`SimPlatform::crash`] keeps any of the cached sectors and of
//!   those in flight.
//! - What goes wrong is told beforehand: a [`Fault`] is a rule, a [`FaultPlan`] a list of them
//!   drawn from a seed. Both can be printed, and so can the [trace](SimPlatform::trace_tail).
//! - Everything the engine promises a queue is checked at every operation: bounds, alignment, the
//!   kernel's caps, tokens in flight once. A broken promise is a panic.
//!
//! A test:
//!
//! ```
//! use swath_engine::OpKind;
//! use swath_tests::seed::Seed;
//! use swath_tests::sim::{Fault, SimWorld};
//! use swath_volume::{CreateOptions, OpenOptions, Volume};
//!
//! // Two devices of 8 MiB. A test that fails prints the seed; SWATH_SEED repeats it.
//! let seed = Seed::new();
//! let mut world = SimWorld::new(seed.value(), 2, 8 << 20);
//! let volume = Volume::create_on(world.platform(), world.paths(), &CreateOptions::default())?;
//! volume.commit_root(b"one")?;
//!
//! // The next flush of m1 fails: nothing is committed, and nobody knows what was written.
//! world.sim().inject(Fault::errno(libc::EIO).of(OpKind::Flush).on("m1").times(1));
//! assert!(volume.commit_root(b"two").is_err());
//!
//! // The power fails: any part of what was not flushed is lost.
//! world.crash();
//! let volume = Volume::open_on(world.platform(), world.paths(), &OpenOptions::default())?;
//! assert_eq!(volume.root().map(|root| root.payload), Some(b"one".to_vec()));
//! # Ok::<(), swath_volume::Error>(())
//! ```

mod crash;
mod device;
mod faults;
mod flight;
mod image;
mod locks;
mod media;
mod plan;
mod platform;
mod queue;
mod record;
mod scheduler;
mod trace;
mod world;

pub use crash::{PowerCut, Unsafe};
pub use device::SimDevice;
pub use faults::{Fault, FaultClass, Outcome, Struck};
pub use image::{Image, sector_digest};
pub use media::Store;
pub use plan::{FaultMix, FaultPlan};
pub use platform::SimPlatform;
pub use queue::SimQueue;
pub use record::{Event, Submitted};
pub use scheduler::{SimScheduler, Steps};
pub use trace::Traced;
pub use world::SimWorld;

#[cfg(test)]
mod tests;
