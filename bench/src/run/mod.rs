//! Runs as they are read from JSON reports: what pages, comparisons and other formats are made of.
//!
//! - A report is read whole, or refused with its name, the line, the column and the field.
//! - Fields that are not known are skipped, so that a report may say more than this version reads.
//!   What a run cannot do without has no default, and is missed by name.
//! - Numbers from a file are believed no further than arithmetic can bear: no size is 0, and no
//!   quotient is taken of 0.

mod changes;
mod merge;
mod position;
mod read;

#[cfg(test)]
pub(crate) mod fixture;

pub use changes::{CellChange, Change, Changes, Verdict};
pub use merge::merge;
pub use read::{of_json, read};

use std::collections::BTreeMap;
use std::fmt;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::latency::{LatencyBins, LatencySummary};
use crate::precondition::PreconditionReport;
use crate::steady::{SteadyOptions, SteadyReport};
use crate::subject::DataState;
use crate::sweep::Swept;
use crate::workload::{Cell, Pattern};

/// What kind of run a report is of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RunKind {
    /// Block sizes by patterns.
    #[default]
    Matrix,
    /// Threads by block sizes.
    Threads,
    /// Latency against load.
    Curve,
}

impl fmt::Display for RunKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Matrix => "matrix",
            Self::Threads => "threads",
            Self::Curve => "curve",
        })
    }
}

/// One run.
#[derive(Debug, Clone, Deserialize)]
pub struct Run {
    /// Where it was read from. After a merge, all of them.
    #[serde(skip)]
    pub source: String,
    /// The text that it was read from: where a field stands in it is told by messages.
    #[serde(skip)]
    text: String,
    /// What kind of run it was.
    #[serde(skip)]
    pub kind: RunKind,
    /// The exact command.
    pub command: String,
    /// The version of the program.
    pub version: String,
    /// The user's own words.
    #[serde(default)]
    pub label: Option<String>,
    /// Whether it was stopped before its end.
    #[serde(default)]
    pub interrupted: bool,
    /// What offsets and data were drawn from.
    #[serde(default)]
    pub seed: u64,
    /// How often each cell was measured.
    #[serde(default = "one")]
    pub rounds: u32,
    /// Until when each cell was measured instead, if not so often.
    #[serde(default)]
    pub steady_state: Option<SteadyOptions>,
    /// What the run wrote before it measured.
    #[serde(default)]
    pub precondition: Option<PreconditionReport>,
    /// What a run that verified found. Its rates are no measurements.
    #[serde(default)]
    pub verify: Option<IgnoredAny>,
    /// Time before anything counted, for each measurement.
    #[serde(default)]
    pub ramp_ms: u64,
    /// What a reader must know besides.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Machine, kernel, devices.
    pub environment: RunEnvironment,
    /// The volume.
    pub volume: RunVolume,
    /// What was measured.
    #[serde(default)]
    pub cells: Vec<RunCell>,
    /// Latency against load, of each workload.
    #[serde(default)]
    pub workloads: Vec<RunWorkload>,
}

/// Machine and kernel.
#[derive(Debug, Clone, Deserialize)]
pub struct RunEnvironment {
    /// Date and time, UTC.
    pub date: String,
    /// Kernel release.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// Cores that the process could run on.
    pub cores: u64,
    /// Memory of the machine.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Setting of transparent huge pages.
    #[serde(default)]
    pub transparent_hugepages: String,
    /// The commit the program was built from.
    #[serde(default)]
    pub commit: Option<String>,
    /// What was done to the devices before.
    #[serde(default)]
    pub preconditioning: String,
    /// The members' devices.
    #[serde(default)]
    pub devices: Vec<RunDevice>,
}

/// One device.
#[derive(Debug, Clone, Deserialize)]
pub struct RunDevice {
    /// Its path.
    pub path: String,
    /// `file`, `block device`, ...
    pub kind: String,
    /// Size.
    #[serde(default)]
    pub capacity_bytes: u64,
    /// Smallest unit it addresses.
    #[serde(default)]
    pub logical_block_bytes: u64,
    /// NUMA node.
    #[serde(default)]
    pub numa_node: Option<u32>,
    /// Model of the drive, where it is known.
    #[serde(default)]
    pub model: Option<String>,
    /// Its link, where it is known.
    #[serde(default)]
    pub link: Option<RunLink>,
}

/// The link of a drive.
#[derive(Debug, Clone, Deserialize)]
pub struct RunLink {
    /// What the two ends agreed on.
    pub current: RunLinkRate,
}

/// Speed and width of a link.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct RunLinkRate {
    /// Transfers of each lane: 32,000 is 32 GT/s.
    #[serde(default)]
    pub megatransfers_per_s: Option<u32>,
    /// Its lanes.
    #[serde(default)]
    pub lanes: Option<u32>,
}

impl RunLinkRate {
    /// What the link can carry, its line code taken off, in bytes a second.
    pub fn bytes_per_s(&self) -> Option<f64> {
        let megatransfers = f64::from(self.megatransfers_per_s.filter(|speed| *speed > 0)?);
        let lanes = f64::from(self.lanes.filter(|lanes| *lanes > 0)?);
        // Up to PCIe 2, 8 of 10 bits are data; from 3 on, 128 of 130.
        let code = if megatransfers < 8_000.0 {
            0.8
        } else {
            128.0 / 130.0
        };
        Some(megatransfers * 1e6 * lanes * code / 8.0)
    }
}

/// The volume.
#[derive(Debug, Clone, Deserialize)]
pub struct RunVolume {
    /// Paths of the members.
    pub members: Vec<String>,
    /// Chunk size.
    pub chunk_bytes: u64,
    /// Size.
    #[serde(default)]
    pub capacity_bytes: u64,
    /// The backend at work.
    #[serde(default)]
    pub backend: String,
    /// Its settings.
    #[serde(default)]
    pub backend_flags: String,
    /// Why nothing better was to be had.
    #[serde(default)]
    pub backend_reasons: Vec<String>,
    /// Name.
    #[serde(default)]
    pub name: String,
}

/// One cell: the median round.
#[derive(Debug, Clone, Deserialize)]
pub struct RunCell {
    /// Pattern.
    pub rw: Pattern,
    /// Bytes of a request.
    pub bs: u64,
    /// Requests in flight on each lane.
    pub iodepth: u32,
    /// Lanes.
    pub numjobs: u32,
    /// The window that was measured.
    pub runtime_ms: u64,
    /// Requests completed.
    pub ios: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub bw_bytes: u64,
    /// Latency.
    pub lat_ns: LatencySummary,
    /// Requests by latency.
    #[serde(default)]
    pub lat_ns_bins: LatencyBins,
    /// CPU time for each request.
    #[serde(default)]
    pub cpu_ns_per_io: f64,
    /// Whether the blocks had been written before.
    #[serde(default = "unknown")]
    pub state: DataState,
    /// Bytes a second of every round.
    #[serde(default)]
    pub bw_bytes_rounds: Vec<u64>,
    /// Whether its last rounds were steady, where that was asked for.
    #[serde(default)]
    pub steady: Option<SteadyReport>,
    /// Bytes a second of the bare members.
    #[serde(default)]
    pub baseline_bw_bytes: Option<u64>,
    /// The volume's bandwidth divided by theirs.
    #[serde(default)]
    pub efficiency: Option<f64>,
}

/// Latency against load, of one workload.
#[derive(Debug, Clone, Deserialize)]
pub struct RunWorkload {
    /// What it is called.
    pub name: String,
    /// How much of it reads.
    #[serde(default)]
    pub read_percent: Option<f64>,
    /// How much of it goes to a place drawn at random.
    #[serde(default)]
    pub seek_percent: Option<f64>,
    /// The sizes of its requests.
    #[serde(default)]
    pub sizes: Vec<RunSize>,
    /// The uncapped run, where there was one.
    #[serde(default)]
    pub peak: Option<RunPoint>,
    /// Its points, by rising load.
    pub points: Vec<RunPoint>,
}

/// A size of requests.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct RunSize {
    /// Bytes.
    pub bytes: u64,
}

/// One point of a curve.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct RunPoint {
    /// Requests a second that were reached.
    pub achieved_iops: f64,
    /// Requests a second that were meant to start.
    #[serde(default)]
    pub offered_iops: Option<f64>,
    /// Bytes a second.
    #[serde(default)]
    pub bw_bytes: u64,
    /// Latency at that load.
    pub lat_ns: LatencySummary,
    /// The load that was asked for, in percent of the peak; none: as much as there can be.
    #[serde(default)]
    pub percent: Option<f64>,
    /// Whether less was reached than was asked for.
    #[serde(default)]
    pub saturated: bool,
    /// CPU time for each request.
    #[serde(default)]
    pub cpu_ns_per_io: f64,
}

impl RunWorkload {
    /// The pattern and the block size, where it has one of each.
    pub fn corner(&self) -> Option<(Pattern, u64)> {
        let &[size] = self.sizes.as_slice() else {
            return None;
        };
        let is =
            |percent: Option<f64>, wanted: f64| (percent? - wanted).abs().lt(&1e-6).then_some(());
        let choose = |sequential, random| {
            is(self.seek_percent, 0.0)
                .map(|()| sequential)
                .or_else(|| is(self.seek_percent, 100.0).map(|()| random))
        };
        let pattern = if is(self.read_percent, 100.0).is_some() {
            choose(Pattern::Read, Pattern::RandRead)
        } else if is(self.read_percent, 0.0).is_some() {
            choose(Pattern::Write, Pattern::RandWrite)
        } else {
            None
        };
        Some((pattern?, size.bytes))
    }
}

fn one() -> u32 {
    1
}

fn unknown() -> DataState {
    DataState::Unknown
}

/// What tells one cell of a run from another.
pub(crate) type CellKey = (Pattern, u64, u32, u32);

impl Swept for RunCell {
    fn cell(&self) -> Cell {
        Cell {
            pattern: self.rw,
            block_bytes: self.bs,
            depth: self.iodepth,
            lanes: self.numjobs,
        }
    }

    fn rate(&self) -> f64 {
        self.iops
    }
}

impl RunCell {
    pub(crate) fn key(&self) -> CellKey {
        (self.rw, self.bs, self.iodepth, self.numjobs)
    }

    /// The rounds that its numbers are of: all, or the last of those until it was steady.
    pub(crate) fn rounds(&self) -> &[u64] {
        let rounds = &self.bw_bytes_rounds;
        let last = self
            .steady
            .and_then(|steady| usize::try_from(steady.window).ok());
        let first = last.map_or(0, |last| rounds.len().saturating_sub(last));
        &rounds[first..]
    }

    /// The slowest and the fastest of these rounds, when there were several.
    pub fn spread(&self) -> Option<(u64, u64)> {
        let rounds = self.rounds();
        let (low, high) = (rounds.iter().min()?, rounds.iter().max()?);
        (rounds.len() > 1).then_some((*low, *high))
    }
}

impl Run {
    /// The run that a bench has just made: as it would be read from the JSON of its report, so that
    /// a page says the same whichever way it came to be.
    ///
    /// None when it measured nothing.
    ///
    /// # Errors
    ///
    /// It is no report.
    pub fn of(report: &impl Serialize) -> Result<Option<Self>> {
        let text = serde_json::to_string(report)
            .map_err(|cause| Error::failed("cannot write the report as JSON", cause))?;
        read::of_report("this run", text)
    }

    /// What it is called on pages: the label, or else the name of its file.
    pub fn title(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.source)
    }

    /// How many members, at least 1: for what is given for each of them.
    pub fn member_count(&self) -> f64 {
        self.volume.members.len().max(1) as f64
    }

    /// The patterns that were measured, in the order of tables.
    pub fn patterns(&self) -> Vec<Pattern> {
        let has = |pattern: &Pattern| self.cells.iter().any(|cell| cell.rw == *pattern);
        Pattern::ALL.into_iter().filter(has).collect()
    }

    /// The block sizes that were measured, rising, each once.
    pub fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.cells.iter().map(|cell| cell.bs).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The numbers of lanes that were measured, rising, each once.
    pub fn lanes(&self) -> Vec<u32> {
        let mut lanes: Vec<u32> = self.cells.iter().map(|cell| cell.numjobs).collect();
        lanes.sort_unstable();
        lanes.dedup();
        lanes
    }

    /// The fastest cell of each block size with this pattern: of several depths or numbers of lanes,
    /// the best.
    pub fn best_by_size(&self, pattern: Pattern) -> Vec<&RunCell> {
        let mut best: BTreeMap<u64, &RunCell> = BTreeMap::new();
        for cell in self.cells.iter().filter(|cell| cell.rw == pattern) {
            let entry = best.entry(cell.bs).or_insert(cell);
            if cell.bw_bytes > entry.bw_bytes {
                *entry = cell;
            }
        }
        best.into_values().collect()
    }

    /// Where a field stands in the file: `b.json:14`.
    pub(crate) fn place(&self, path: &str) -> String {
        match position::line_of(&self.text, path) {
            Some(line) => format!("{}:{line}", self.source),
            None => self.source.clone(),
        }
    }

    /// What kind of members it has, in words: `file`, or several joined.
    pub fn device_kinds(&self) -> String {
        let mut kinds: Vec<&str> = Vec::new();
        for device in &self.environment.devices {
            if !kinds.contains(&device.kind.as_str()) {
                kinds.push(&device.kind);
            }
        }
        kinds.join(", ")
    }
}
