//! Behaviour through the public API, on real files and on a simulated platform.

#![expect(
    clippy::cast_possible_truncation,
    reason = "sizes in tests fit in memory, and members are few"
)]
#![expect(
    clippy::unwrap_used,
    reason = "clippy's leave for tests does not reach their helpers"
)]

mod checkpoint_bench;
mod cli;
mod compare;
mod curve;
mod devices;
mod handle;
mod inventory;
mod kills;
mod lane_faults;
mod leases;
mod lifetimes;
mod matrix;
mod queue_suite;
mod refusals;
mod scopes;
mod sharing;
mod store;
mod threads;
mod updates;
mod verify;
mod volume;
