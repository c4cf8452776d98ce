//! Laws that hold for all inputs, tried on many. See `swath_tests::seed` for replaying a failure and
//! for running more of them.

#![expect(
    clippy::cast_possible_truncation,
    reason = "sizes in tests fit in memory, and members are few"
)]
#![expect(
    clippy::unwrap_used,
    reason = "clippy's leave for tests does not reach their helpers"
)]

mod layout;
mod pages;
mod store_model;
mod store_round_trip;
mod superblock;
mod volume_lane;
mod volume_model;
