//! What a run found, as one value that is printed as tables, JSON or CSV.

mod csv;
mod header;
mod json;
mod output;
mod sweep;
pub(crate) mod table;

pub use csv::write_csv;
pub use header::{render_backend, render_conditions, render_header};
pub use json::write_json;
pub use output::{ReportFile, is_standard_output, print};
pub use table::{format_bandwidth, format_rate, render_tables};

use std::time::Duration;

use serde::Serialize;
use swath_engine::QueueDescription;
use swath_volume::Volume;

use crate::environment::Environment;
use crate::latency::{LatencyBins, LatencySummary};
use crate::precondition::PreconditionReport;
use crate::runner::Measurement;
use crate::steady::{SteadyOptions, SteadyReport};
use crate::subject::DataState;
use crate::verify::VerifyReport;
use crate::workload::{Cell, Pattern};

/// The format of the JSON reports. It changes when a field changes its name or its meaning, or goes
/// away; a new field changes nothing.
pub const REPORT_FORMAT: u32 = 1;

/// Everything about one run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What kind of run it was: `matrix` or `threads`.
    pub kind: &'static str,
    /// The format of this report: [`REPORT_FORMAT`].
    pub format: u32,
    /// The exact command, quoted for a shell.
    pub command: String,
    /// Version of this program.
    pub version: &'static str,
    /// The user's own words about the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether the run was stopped before its last cell.
    pub interrupted: bool,
    /// What offsets and data were drawn from.
    pub seed: u64,
    /// How often each cell was measured.
    pub rounds: u32,
    /// Until when each cell was measured instead, if not so often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady_state: Option<SteadyOptions>,
    /// What the run wrote before it measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precondition: Option<PreconditionReport>,
    /// Time before anything counted, for each measurement.
    pub ramp_ms: u64,
    /// What a reader must know besides.
    pub notes: Vec<String>,
    /// Machine, kernel, devices.
    pub environment: Environment,
    /// The volume.
    pub volume: VolumeReport,
    /// One entry for each cell that was measured.
    pub cells: Vec<CellReport>,
    /// What was checked, of a run that verifies; its rates are no measurements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyReport>,
}

/// The volume that was measured.
#[derive(Debug, Clone, Serialize)]
pub struct VolumeReport {
    /// Paths of the members, in the volume's order.
    pub members: Vec<String>,
    /// Chunk size.
    pub chunk_bytes: u64,
    /// Size.
    pub capacity_bytes: u64,
    /// The backend at work, as the lanes that were measured had it. Empty: none was.
    pub backend: String,
    /// Its settings.
    pub backend_flags: String,
    /// Why a better backend, or a setting that was asked for, was not to be had.
    pub backend_reasons: Vec<String>,
    /// Name.
    pub name: String,
    /// UUID.
    pub uuid: String,
}

impl VolumeReport {
    /// Describes `volume`, by queues that are not known yet.
    pub fn of(volume: &Volume) -> Self {
        let members = volume.members().iter();
        Self {
            members: members
                .map(|member| member.path().display().to_string())
                .collect(),
            chunk_bytes: volume.chunk_bytes(),
            capacity_bytes: volume.capacity_bytes(),
            backend: String::new(),
            backend_flags: String::new(),
            backend_reasons: Vec::new(),
            name: volume.name(),
            uuid: volume.uuid().to_string(),
        }
    }

    /// Takes in what the lanes that ran had. Where they differ, all that one of them had is told.
    pub fn take_queues(&mut self, queues: &[QueueDescription]) {
        let backends = queues.iter().map(|queue| queue.backend.to_string());
        self.backend = each_once(backends).join(", ");
        let flags = queues.iter().map(|queue| queue.flags.clone());
        self.backend_flags = each_once(flags).join("; or: ");
        let reasons = queues.iter().flat_map(|queue| queue.reasons.clone());
        self.backend_reasons = each_once(reasons);
    }
}

/// In the order in which they come, each once.
fn each_once(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for text in texts {
        if !seen.contains(&text) {
            seen.push(text);
        }
    }
    seen
}

/// One cell: the median round, by bandwidth; of a run until steady state, the last rounds together.
#[derive(Debug, Clone, Serialize)]
pub struct CellReport {
    /// Pattern, by fio's name.
    pub rw: Pattern,
    /// Bytes of a request.
    pub bs: u64,
    /// Requests in flight on each lane.
    pub iodepth: u32,
    /// Lanes.
    pub numjobs: u32,
    /// The window that was measured.
    pub runtime_ms: u64,
    /// Requests completed in it.
    pub ios: u64,
    /// Bytes moved in it.
    pub bytes: u64,
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub bw_bytes: u64,
    /// Latency in nanoseconds.
    pub lat_ns: LatencySummary,
    /// Requests by latency: the largest latency of a bin in nanoseconds, and how many are in it.
    pub lat_ns_bins: LatencyBins,
    /// CPU time for each request: the process with its helper threads and kernel workers, without
    /// the thread that draws the progress.
    pub cpu_ns_per_io: f64,
    /// Whether the blocks had been written before.
    pub state: DataState,
    /// Bytes a second of every round, in order.
    pub bw_bytes_rounds: Vec<u64>,
    /// Whether its last rounds were steady, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady: Option<SteadyReport>,
    /// The same cell on the bare members, with `--baseline`.
    #[serde(flatten)]
    pub baseline: Option<BaselineReport>,
}

/// A cell on the bare members.
#[derive(Debug, Clone, Serialize)]
pub struct BaselineReport {
    /// Bytes a second, the median round.
    pub baseline_bw_bytes: u64,
    /// Requests a second of that round.
    pub baseline_iops: f64,
    /// CPU time for each request of that round.
    pub baseline_cpu_ns_per_io: f64,
    /// Bytes a second of every round, in order.
    pub baseline_bw_bytes_rounds: Vec<u64>,
    /// The stripe's efficiency: the volume's bandwidth divided by the bare members'.
    pub efficiency: f64,
}

impl CellReport {
    /// Condenses the rounds of a cell; `members` are those of the bare members, if they were run.
    ///
    /// None when there is no complete round.
    pub fn of(
        cell: &Cell,
        state: DataState,
        volume: &[Measurement],
        members: &[Measurement],
    ) -> Option<Self> {
        let median = median_round(volume)?;
        let baseline = median_round(members).map(|bare| BaselineReport {
            baseline_bw_bytes: whole(bare.bytes_per_s()),
            baseline_iops: rounded(bare.iops()),
            baseline_cpu_ns_per_io: rounded(bare.cpu_ns_per_io),
            baseline_bw_bytes_rounds: bandwidths(members),
            efficiency: (median.bytes_per_s() / bare.bytes_per_s() * 1e4).round() / 1e4,
        });
        Some(Self {
            rw: cell.pattern,
            bs: cell.block_bytes,
            iodepth: cell.depth,
            numjobs: cell.lanes,
            runtime_ms: millis(median.window),
            ios: median.ios,
            bytes: median.bytes,
            iops: rounded(median.iops()),
            bw_bytes: whole(median.bytes_per_s()),
            lat_ns: median.latency,
            lat_ns_bins: median.latency_bins.clone(),
            cpu_ns_per_io: rounded(median.cpu_ns_per_io),
            state,
            bw_bytes_rounds: bandwidths(volume),
            steady: None,
            baseline,
        })
    }

    /// Condenses the rounds of a cell that was to become steady: its numbers are those of the last
    /// rounds together, as many as a window has, whether these are steady or not.
    ///
    /// None when there is no complete round.
    pub fn of_steady(
        cell: &Cell,
        state: DataState,
        volume: &[Measurement],
        members: &[Measurement],
        options: &SteadyOptions,
    ) -> Option<Self> {
        let last = |rounds| Measurement::pooled(options.window_of(rounds));
        let bare = last(members);
        let mut report = Self::of(cell, state, &[last(volume)?], bare.as_slice())?;
        let rates: Vec<f64> = volume.iter().map(Measurement::bytes_per_s).collect();
        report.steady = SteadyReport::of(options, &rates);
        report.bw_bytes_rounds = bandwidths(volume);
        if let Some(baseline) = &mut report.baseline {
            baseline.baseline_bw_bytes_rounds = bandwidths(members);
        }
        Some(report)
    }
}

/// The round whose bandwidth is the median; of an even number, the lower of the middle two.
fn median_round(rounds: &[Measurement]) -> Option<&Measurement> {
    let mut sorted: Vec<&Measurement> = rounds.iter().collect();
    sorted.sort_by(|one, other| one.bytes_per_s().total_cmp(&other.bytes_per_s()));
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

fn bandwidths(rounds: &[Measurement]) -> Vec<u64> {
    rounds
        .iter()
        .map(|round| whole(round.bytes_per_s()))
        .collect()
}

/// Milliseconds, rounded.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from((time + Duration::from_micros(500)).as_millis()).unwrap_or(u64::MAX)
}

/// One digit after the point is more than any of these numbers is good for.
fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are positive and below 2^63, and a cast of a float saturates"
)]
pub(crate) fn whole(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
pub(crate) mod fixture;

#[cfg(test)]
mod tests {
    use super::fixture::{self, measurement};
    use super::*;

    fn cell() -> Cell {
        Cell {
            pattern: Pattern::RandRead,
            block_bytes: 4096,
            depth: 128,
            lanes: 1,
        }
    }

    #[test]
    fn the_median_round_is_reported_whole() {
        let rounds = [300, 100, 200].map(measurement);
        let report = CellReport::of(&cell(), DataState::Written, &rounds, &[]).unwrap();
        assert_eq!(report.ios, 200);
        assert_eq!(report.bw_bytes_rounds, [300 * 4096, 100 * 4096, 200 * 4096]);
        assert!(report.baseline.is_none());
        assert!(CellReport::of(&cell(), DataState::Written, &[], &[]).is_none());
    }

    #[test]
    fn a_steady_cell_is_its_last_rounds_together() {
        let options = SteadyOptions::default();
        let rounds = [900_000, 100_000, 101_000, 99_000, 100_000, 100_000].map(measurement);
        let of = |rounds, members| {
            CellReport::of_steady(&cell(), DataState::Written, rounds, members, &options).unwrap()
        };
        let report = of(&rounds, &[]);
        assert_eq!(report.ios, 500_000);
        assert_eq!(report.runtime_ms, 5000);
        assert!((report.iops - 100_000.0).abs() < 1e-6);
        assert_eq!(report.bw_bytes_rounds.len(), 6);
        let steady = report.steady.unwrap();
        assert!(steady.is_steady && steady.rounds == 6 && steady.window == 5);
        assert!((steady.spread_percent - 2.0).abs() < 1e-9, "{steady:?}");

        let report = of(&rounds[..5], &rounds[..5]);
        assert!(!report.steady.unwrap().is_steady);
        assert_eq!(report.ios, 1_300_000);
        let baseline = report.baseline.unwrap();
        assert!((baseline.efficiency - 1.0).abs() < 1e-9);
        assert_eq!(baseline.baseline_bw_bytes_rounds.len(), 5);
        assert!(CellReport::of_steady(&cell(), DataState::Written, &[], &[], &options).is_none());
    }

    #[test]
    fn the_backend_is_what_the_lanes_that_ran_had() {
        let mut report = fixture::report(false).volume;
        let one = measurement(1).queue;
        let mut other = one.clone();
        other.flags.push_str(" FIXED_BUFFERS");
        other.reasons = vec!["why".to_owned()];
        report.take_queues(&[one.clone(), other]);
        assert_eq!(report.backend, "uring");
        assert_eq!(
            report.backend_flags,
            "SINGLE_ISSUER; or: SINGLE_ISSUER FIXED_BUFFERS"
        );
        assert_eq!(report.backend_reasons, ["why"]);
        report.take_queues(&[one]);
        assert_eq!(report.backend_flags, "SINGLE_ISSUER");
        assert!(report.backend_reasons.is_empty());
    }

    #[test]
    fn efficiency_is_the_ratio_of_the_medians() {
        let volume = [95, 500, 10].map(measurement);
        let bare = [100, 1, 900].map(measurement);
        let report = CellReport::of(&cell(), DataState::Written, &volume, &bare).unwrap();
        let baseline = report.baseline.unwrap();
        assert!((baseline.efficiency - 0.95).abs() < 1e-9);
        assert_eq!(baseline.baseline_bw_bytes, 100 * 4096);
    }
}
