//! [`Traced`]: a raw operation as it ended; and the list of them, which is bounded.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;

use swath_engine::OpKind;

use super::faults::Outcome;

/// How many operations a platform remembers unless told otherwise.
pub(super) const TRACE_MAX: usize = 1 << 17;

/// A raw operation as it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traced {
    /// Its number, counted over the whole platform in the order of submission.
    pub number: u64,
    /// The number of the queue that it was submitted to.
    pub queue: u64,
    /// The path its device was added by.
    pub device: PathBuf,
    /// What it did.
    pub kind: OpKind,
    /// Whether it was to be durable at once.
    pub fua: bool,
    /// The first byte on the device.
    pub offset: u64,
    /// How many bytes it was to move.
    pub length: u64,
    /// In how many pieces its memory lay.
    pub memory_pieces: usize,
    /// What the queue gave as its result.
    pub result: i32,
    /// What went wrong with it, told or not.
    pub fault: Option<Outcome>,
    /// When it was submitted, in simulated time.
    pub submitted_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
}

impl fmt::Display for Traced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>9}.{:03} us  #{} queue {} {}{} {}",
            self.ended_ns / 1000,
            self.ended_ns % 1000,
            self.number,
            self.queue,
            self.kind,
            if self.fua { " (fua)" } else { "" },
            self.device.display(),
        )?;
        if self.kind != OpKind::Flush {
            write!(f, " {}+{}", self.offset, self.length)?;
        }
        write!(f, " -> {}", self.result)?;
        match self.fault {
            Some(fault) => write!(f, "  [{fault}]"),
            None => Ok(()),
        }
    }
}

/// The last operations, up to a limit.
#[derive(Debug)]
pub(super) struct Trace {
    operations: VecDeque<Traced>,
    max: usize,
}

impl Trace {
    pub(super) fn new(max: usize) -> Self {
        Self {
            operations: VecDeque::new(),
            max,
        }
    }

    pub(super) fn limit(&mut self, max: usize) {
        self.max = max;
        self.operations
            .drain(..self.operations.len().saturating_sub(max));
    }

    pub(super) fn push(&mut self, operation: Traced) {
        if self.operations.len() == self.max {
            self.operations.pop_front();
        }
        if self.max > 0 {
            self.operations.push_back(operation);
        }
    }

    pub(super) fn take(&mut self) -> Vec<Traced> {
        std::mem::take(&mut self.operations).into()
    }

    /// The last `count` of them, one a line.
    pub(super) fn tail(&self, count: usize) -> String {
        let skipped = self.operations.len().saturating_sub(count);
        let mut lines = String::new();
        for operation in self.operations.iter().skip(skipped) {
            lines.push_str(&format!("{operation}\n"));
        }
        lines
    }
}
