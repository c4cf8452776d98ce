//! Every state in which a crash can leave a store, built and opened.
//!
//! ```text
//! scenario   two commits on simulated members, recorded with every byte
//!    |
//! moment     between two of its events: what is durable, and the loose sectors
//!    |  plan: which subsets of these
//! state      the members as a crash leaves them
//!    |  check: open volume and store, latest, deep verify, compare
//! outcome    the commit before or the one under way, never anything else
//!    |  recorded as well
//! moment     of the recovery, and so on: three crashes deep
//! ```
//!
//! A crash is a power failure. Before it the process may have died alone, once or twice, and been
//! started again on members that still had in their caches what it wrote.
//!
//! The default run takes a sample. `SWATH_CRASH_STATES=full` takes them all: minutes, best with
//! `--release`.

#![expect(
    clippy::cast_possible_truncation,
    reason = "sizes in tests fit in memory"
)]
#![expect(
    clippy::unwrap_used,
    reason = "clippy's leave for tests does not reach their helpers"
)]

mod check;
mod commits;
mod explore;
mod forks;
mod moments;
mod plan;
mod records;
mod scenario;
