//! [`skipped()`]: says that a test, or a part of one, was left out, where everybody sees it.
//!
//! libtest keeps what a passing test prints with `println!` or `eprintln!` to itself. What is written
//! to standard error by other means gets through, also from `cargo test` without `--nocapture`.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::thread;

/// Prints a line that begins with `skipped:`, with the name of the running test and the reason.
pub fn skipped(reason: impl Display) {
    let thread = thread::current();
    let test = thread.name().unwrap_or("a thread");
    // One write: the lines of tests that run at once do not mix.
    let line = format!("skipped: {test}: {reason}\n");
    // A test does not fail because nobody reads what it says.
    let _ = io::stderr().write_all(line.as_bytes());
}
