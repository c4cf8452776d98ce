//! What a run of checkpoints found, as one value that is printed as tables or JSON.

use serde::Serialize;

use crate::checkpoint::memory::Pages;
use crate::checkpoint::peers::{PeerFindings, PeerPhase, PeerPhaseFindings};
use crate::checkpoint::phase::Phase;
use crate::checkpoint::shapes::{Model, ModelShape};
use crate::checkpoint::trial::{Findings, median};
use crate::checkpoint::usage::Sample;
use crate::environment::Environment;
use crate::report::{VolumeReport, whole};

/// A load of which less than this came from the device is one from the page cache.
const DEVICE_RATIO_MIN: f64 = 0.95;

/// Everything about one run. The names of the fields are a promise to whoever reads them later.
#[derive(Debug, Clone, Serialize)]
pub struct CheckpointReport {
    /// The exact command, quoted for a shell.
    pub command: String,
    /// Version of this program.
    pub version: &'static str,
    /// The user's own words about the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// How it was run.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// What a reader must know besides.
    pub notes: Vec<String>,
    /// Machine, kernel, devices.
    pub environment: Environment,
    /// The volume.
    pub volume: VolumeReport,
    /// What was saved.
    pub model: ModelReport,
    /// Whether the run was stopped before its end.
    pub interrupted: bool,
    /// Whether every byte that was loaded was compared with what was saved.
    pub compared: bool,
    /// One entry for each phase that was measured.
    pub phases: Vec<PhaseReport>,
    /// Flushes behind the raw writes of all rounds: what a commit cannot be shorter than.
    pub flush_ns: TimesReport,
    /// Commits of all rounds: from the call to the return.
    pub commit_ns: TimesReport,
    /// Saves in the background, of all rounds: how long the call kept the caller. The first of each
    /// round maps the memory of the snapshot, too.
    pub stall_ns: TimesReport,
    /// How often a save used a buffer, each time a copy of up to 1 MiB.
    pub save_buffers_used: u64,
    /// CPU seconds that the checksums of 10^9 bytes cost, measured alone.
    pub checksum_cpu_s_per_gb: f64,
    /// What peers did, with `--peers`: each on one thread.
    pub peers: Vec<PeerReport>,
}

/// How a run was made.
#[derive(Debug, Clone, Serialize)]
pub struct Conditions {
    /// What data was drawn from.
    pub seed: u64,
    /// How often everything was measured.
    pub rounds: u32,
    /// Saves over written blocks in each round.
    pub saves: u32,
    /// Threads, or processes.
    pub ranks: u32,
    /// Whether ranks are processes. The bare volume is moved by threads all the same.
    pub processes: bool,
    /// Transfers of up to 1 MiB in flight on each of them.
    pub iodepth: u32,
    /// What pages the tensors' memory has.
    pub pages: Pages,
    /// Whether that memory is aligned for direct I/O.
    pub aligned: bool,
    /// The memory that a save in the background copies into.
    pub snapshot_bytes: u64,
    /// The memory that tensors were saved from.
    pub source_bytes: u64,
    /// The memory that they were loaded into.
    pub target_bytes: u64,
}

/// What was saved.
#[derive(Debug, Clone, Serialize)]
pub struct ModelReport {
    /// The model whose shape it has.
    pub shape: ModelShape,
    /// What a checkpoint of it has at full size.
    pub full_size_bytes: u64,
    /// What it has here.
    pub bytes: u64,
    /// How many tensors.
    pub tensors: u64,
    /// The largest.
    pub largest_bytes: u64,
    /// How many have less than 1 MiB.
    pub small_tensors: u64,
    /// Layers.
    pub layers: u64,
    /// Width of a layer.
    pub width: u64,
}

impl ModelReport {
    /// Describes `model`.
    pub fn of(model: &Model) -> Self {
        let tensors = model.tensors();
        let small = tensors.iter().filter(|tensor| tensor.bytes < 1 << 20);
        Self {
            shape: model.shape(),
            full_size_bytes: model.shape().full_bytes(),
            bytes: model.total_bytes(),
            tensors: tensors.len() as u64,
            largest_bytes: model.largest_bytes(),
            small_tensors: small.count() as u64,
            layers: model.layers(),
            width: model.width(),
        }
    }
}

/// One phase: the median round, by bandwidth.
#[derive(Debug, Clone, Serialize)]
pub struct PhaseReport {
    /// Which.
    pub phase: Phase,
    /// How many bytes it moved.
    pub bytes: u64,
    /// Bytes a second.
    pub bw_bytes: u64,
    /// Bytes a second of every round, in order.
    pub bw_bytes_rounds: Vec<u64>,
    /// CPU seconds for each 10^9 bytes, of the median round.
    pub cpu_s_per_gb: f64,
    /// The most memory that was held at once, beyond what was there before: the tensors' own
    /// memory, for one, but for a load into new memory. The most of any round.
    pub peak_bytes: Option<u64>,
    /// What it is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Phase>,
    /// Its bandwidth divided by that of its limit in the same round: the median of all rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// The ratio of every round.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ratio_rounds: Vec<f64>,
}

/// How long something took each time, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct TimesReport {
    /// How many there were.
    pub count: u64,
    /// Half of them took at most this.
    pub p50: u64,
    /// The slowest.
    pub max: u64,
}

/// One peer.
#[derive(Debug, Clone, Serialize)]
pub struct PeerReport {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it did.
    pub phases: Vec<PeerPhaseReport>,
}

/// One phase of a peer: the median round, by bandwidth.
#[derive(Debug, Clone, Serialize)]
pub struct PeerPhaseReport {
    /// Which.
    pub phase: PeerPhase,
    /// What a save did to its files, or where a load went.
    pub how: String,
    /// Of a load: how much of what it read came from the device, and not from the page cache; the
    /// least of any round. None for a save, and where the kernel does not tell.
    pub device_ratio: Option<f64>,
    /// Bytes a second.
    pub bw_bytes: u64,
    /// Bytes a second of every round, in order.
    pub bw_bytes_rounds: Vec<u64>,
    /// CPU seconds for each 10^9 bytes; work that the kernel does later is not in it.
    pub cpu_s_per_gb: f64,
    /// The most memory that was held at once, beyond what was there before. Mapped files count.
    pub peak_bytes: Option<u64>,
    /// What of ours it is compared with.
    pub compared_with: Phase,
    /// Our bandwidth divided by its, in the same round: the median of all rounds. None for a load
    /// that is known to come from the page cache: it is not comparable with direct I/O.
    pub swath_ratio: Option<f64>,
    /// The ratio of every round.
    pub swath_ratio_rounds: Vec<f64>,
}

impl CheckpointReport {
    /// Takes in what a run found.
    pub fn take(&mut self, findings: &Findings) {
        self.interrupted = findings.is_interrupted();
        self.compared = findings.compared;
        self.volume.take_queues(&findings.queues);
        self.phases = Phase::ALL
            .into_iter()
            .filter_map(|phase| PhaseReport::of(phase, findings))
            .collect();
        self.flush_ns = TimesReport::of(&findings.flushes_ns);
        self.commit_ns = TimesReport::of(&findings.commits_ns);
        self.stall_ns = TimesReport::of(&findings.stalls_ns);
        self.save_buffers_used = findings.buffers_used;
        self.checksum_cpu_s_per_gb = rounded(findings.checksum_s_per_gb);
        self.notes.extend(findings.left_out.iter().cloned());
        self.peers = findings
            .peers
            .iter()
            .map(|peer| PeerReport::of(peer, findings))
            .collect();
    }

    /// The phase, if it was measured.
    pub fn phase(&self, phase: Phase) -> Option<&PhaseReport> {
        self.phases.iter().find(|report| report.phase == phase)
    }
}

impl PhaseReport {
    fn of(phase: Phase, findings: &Findings) -> Option<Self> {
        let samples = findings.samples(phase);
        let middle = median(samples)?;
        let ratio_rounds = phase
            .limit()
            .map_or_else(Vec::new, |limit| ratios(samples, findings.samples(limit)));
        Some(Self {
            phase,
            bytes: middle.bytes,
            bw_bytes: whole(middle.bytes_per_s()),
            bw_bytes_rounds: rates(samples),
            cpu_s_per_gb: rounded(middle.cpu_s_per_gb()),
            peak_bytes: samples.iter().filter_map(|sample| sample.peak_bytes).max(),
            limit: phase.limit(),
            ratio: median_of(&ratio_rounds),
            ratio_rounds,
        })
    }
}

impl PeerReport {
    fn of(peer: &PeerFindings, findings: &Findings) -> Self {
        let phases = peer
            .phases
            .iter()
            .filter_map(|found| PeerPhaseReport::of(found, findings));
        Self {
            name: peer.name.clone(),
            version: peer.version.clone(),
            phases: phases.collect(),
        }
    }
}

impl PeerPhaseReport {
    fn of(found: &PeerPhaseFindings, findings: &Findings) -> Option<Self> {
        let samples = &found.samples;
        let middle = median(samples)?;
        let compared_with = match found.phase {
            // On members that were given nothing of ours is a first write.
            PeerPhase::SaveFirst if findings.samples(Phase::SaveFirst).is_empty() => Phase::Save,
            PeerPhase::SaveFirst => Phase::SaveFirst,
            PeerPhase::Save => Phase::Save,
            PeerPhase::Load => Phase::LoadVerified,
            PeerPhase::LoadNew => Phase::LoadNew,
        };
        let told = found.device_ratios.iter().copied().flatten();
        let device_ratio = told.min_by(f64::total_cmp).map(rounded);
        let is_hot = device_ratio.is_some_and(|ratio| ratio < DEVICE_RATIO_MIN);
        let swath_ratio_rounds = if is_hot {
            Vec::new()
        } else {
            ratios(findings.samples(compared_with), samples)
        };
        Some(Self {
            phase: found.phase,
            how: found.how.clone(),
            device_ratio,
            bw_bytes: whole(middle.bytes_per_s()),
            bw_bytes_rounds: rates(samples),
            cpu_s_per_gb: rounded(middle.cpu_s_per_gb()),
            peak_bytes: samples.iter().filter_map(|sample| sample.peak_bytes).max(),
            compared_with,
            swath_ratio: median_of(&swath_ratio_rounds),
            swath_ratio_rounds,
        })
    }

    /// Whether it is known to have come from the page cache, more than a little.
    pub fn is_hot(&self) -> bool {
        self.device_ratio
            .is_some_and(|ratio| ratio < DEVICE_RATIO_MIN)
    }
}

impl TimesReport {
    fn of(times_ns: &[u64]) -> Self {
        let mut sorted = times_ns.to_vec();
        sorted.sort_unstable();
        Self {
            count: sorted.len() as u64,
            p50: sorted
                .get(sorted.len().saturating_sub(1) / 2)
                .copied()
                .unwrap_or(0),
            max: sorted.last().copied().unwrap_or(0),
        }
    }
}

/// Round by round, the bandwidth of one divided by that of the other.
fn ratios(ours: &[Sample], others: &[Sample]) -> Vec<f64> {
    let pairs = ours.iter().zip(others);
    pairs
        .map(|(one, other)| rounded(one.bytes_per_s() / other.bytes_per_s()))
        .collect()
}

/// The middle one; of an even number, the lower of the middle two.
fn median_of(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

fn rates(samples: &[Sample]) -> Vec<u64> {
    let rates = samples.iter().map(Sample::bytes_per_s);
    rates.map(whole).collect()
}

/// Four digits after the point.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(bytes_per_s: u64) -> Sample {
        Sample {
            bytes: bytes_per_s,
            seconds: 1.0,
            cpu_ns: bytes_per_s / 2,
            peak_bytes: Some(bytes_per_s),
        }
    }

    #[test]
    fn ratios_are_taken_round_by_round_and_their_median_is_told() {
        let findings = Findings {
            phases: vec![
                (Phase::RawWrite, [1000, 500, 100].map(sample).to_vec()),
                (Phase::Save, [900, 250, 95].map(sample).to_vec()),
            ],
            ..Findings::default()
        };
        let save = PhaseReport::of(Phase::Save, &findings).unwrap();
        assert_eq!(save.ratio_rounds, [0.9, 0.5, 0.95]);
        assert_eq!(save.ratio, Some(0.9));
        assert_eq!(save.bw_bytes, 250);
        assert_eq!(save.peak_bytes, Some(900));
        assert!((save.cpu_s_per_gb - 0.5).abs() < 1e-9);
        assert!(PhaseReport::of(Phase::LoadVerified, &findings).is_none());
        let raw = PhaseReport::of(Phase::RawWrite, &findings).unwrap();
        assert!(raw.ratio.is_none() && raw.ratio_rounds.is_empty());
    }

    #[test]
    fn a_peer_that_reads_from_the_page_cache_is_not_compared() {
        let findings = Findings {
            phases: vec![(Phase::LoadNew, [1000, 500].map(sample).to_vec())],
            ..Findings::default()
        };
        let load = |device_ratios: [Option<f64>; 2]| {
            let found = PeerPhaseFindings {
                phase: PeerPhase::LoadNew,
                samples: [500, 500].map(sample).to_vec(),
                how: "new memory".to_owned(),
                device_ratios: device_ratios.to_vec(),
            };
            PeerPhaseReport::of(&found, &findings).unwrap()
        };
        let cold = load([Some(1.01), Some(1.0)]);
        assert_eq!(cold.swath_ratio_rounds, [2.0, 1.0]);
        assert_eq!((cold.swath_ratio, cold.is_hot()), (Some(1.0), false));
        let hot = load([Some(1.0), Some(0.2)]);
        assert_eq!((hot.swath_ratio, hot.is_hot()), (None, true));
        assert!(hot.swath_ratio_rounds.is_empty());
        let unknown = load([None, None]);
        assert_eq!((unknown.device_ratio, unknown.is_hot()), (None, false));
        assert_eq!(unknown.swath_ratio, Some(1.0));
    }

    #[test]
    fn times_are_told_by_their_middle_and_the_slowest() {
        let times = TimesReport::of(&[5, 1, 9]);
        assert_eq!((times.count, times.p50, times.max), (3, 5, 9));
        assert_eq!(TimesReport::of(&[]).max, 0);
    }
}
