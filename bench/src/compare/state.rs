//! What the members of a comparison are, in a word.

use std::fmt;

use serde::Serialize;

/// What the members are, and what they hold when a turn begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum State {
    /// Files written in full, or drives.
    #[serde(rename = "written")]
    Written,
    /// Files whose blocks are reserved and were never written: reads cost software alone. Made anew
    /// before each round, for the state does not last.
    #[serde(rename = "unwritten")]
    Unwritten,
    /// Files in memory, written in full.
    #[serde(rename = "tmpfs")]
    Memory,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Written => "written",
            Self::Unwritten => "unwritten",
            Self::Memory => "tmpfs",
        })
    }
}
