//! Swath beside fio: the same cells on the same bytes of the same members, in turn.
//!
//! ```text
//! Arena (a volume, its members, their state)     Fio (the program)
//!        \                                        /
//!         +----> Contest: probes, then rounds ---+
//!                   |
//!              Comparison --> table, JSON, CSV
//! ```
//!
//! - Both sides keep the same number of requests in flight, from one thread on the same core, by
//!   direct I/O, on the data area of every member: never on the superblocks.
//! - fio is run as it is fastest, not as it is by default: which settings these are is tried out for
//!   each cell before its first round, from a list that is in the report, and so are Swath's.
//! - One whole turn follows the other, and who begins changes from round to round. A ratio is taken
//!   within a round, so what drifts slowly cancels.
//! - The volume is closed while fio works on its members.
//! - What cannot be compared fairly is refused, see [`Arena`].

mod cells;
mod statistics;

mod memory;
mod settings;

mod command;
mod output;

mod fio;

mod state;

mod facts;

mod arena;

mod turns;

mod contest;

mod csv;
mod report;
mod table;

pub use arena::Arena;
pub use cells::{CellChoice, parse_cells};
pub use contest::{Contest, Rival, Schedule, Verdict};
pub use csv::write_comparison_csv;
pub use fio::{Fio, HOW_TO_GET_FIO};
pub use report::{CellComparison, Comparison, FioReport};
pub use state::State;
pub use statistics::Ratio;
pub use table::{render_comparison_header, render_comparison_tables};

#[cfg(test)]
mod fixture;
