//! Processes that save checkpoints and are killed, at any moment, over and over; and system calls
//! that fail under them.
//!
//! What could go wrong: a checkpoint that was acknowledged and is gone; half of one that is picked as
//! the latest; one destroyed by the one that was to replace it; a volume that cannot be opened any
//! more; space that nobody has; locks and descriptors that outlive their process; a flush that failed
//! and is acknowledged nevertheless.
//!
//! - [`rounds`]: one process that saves in every way, removes, and opens and closes its store.
//! - [`ranks`]: several processes that write one checkpoint by leases.
//! - [`injected`]: strace makes one system call of a save fail, or kills the process at it.
//!
//! The processes are these tests, started again. They tell by lines what they are about to do and
//! what is done, so that it is known what may be there afterwards ([`state`]), and in what phase a
//! kill hit; the root records on the members tell which step of a commit it cut ([`afterwards`]).
//! `SWATH_KILLS=n` kills n times instead of 50; from 1000 on every system call of a save has its turn.

mod afterwards;
mod injected;
mod process;
mod ranks;
mod rounds;
mod saver;
mod state;

use std::env;

use swath_tests::fixtures;

/// How often to kill.
fn kills() -> u32 {
    env::var("SWATH_KILLS").map_or(50, |count| count.parse().unwrap())
}

/// No test of its own: what the other processes do.
#[test]
fn a_process_of_these_tests() {
    if !fixtures::is_alone(process::NAME) {
        return;
    }
    let role = process::Role::of_this_process();
    match role.name.as_str() {
        "save for ever" => saver::save_for_ever(&role),
        "save once" => saver::save_once(&role),
        "own" => ranks::own(&role),
        "hold" => ranks::hold(&role),
        other => panic!("nobody does {other}"),
    }
}
