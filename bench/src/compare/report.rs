//! A comparison as one value that is printed as a table, JSON or CSV.

use std::time::Duration;

use serde::Serialize;

use crate::compare::contest::{CellVerdict, Probe, Rival, Schedule, Turn, Verdict};
use crate::compare::fio::Fio;
use crate::compare::output::Done;
use crate::compare::settings::{Batching, FioSettings};
use crate::compare::state::State;
use crate::compare::statistics::{Ratio, geometric_mean, rounded};
use crate::compare::turns::Side;
use crate::environment::Environment;
use crate::report::{VolumeReport, millis, whole};
use crate::workload::Pattern;

/// Rounds that are further apart than this part of their median are called noisy.
const NOISY_SPREAD: f64 = 0.1;

/// Fewer rounds say little.
const ROUNDS_MIN: u32 = 5;

/// Everything about one comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The exact command, quoted for a shell.
    pub command: String,
    /// Version of this program.
    pub version: &'static str,
    /// The user's own words about the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether the run was stopped before its last cell.
    pub interrupted: bool,
    /// What Swath's offsets and data were drawn from.
    pub seed: u64,
    /// Rounds of each cell.
    pub rounds: u32,
    /// Time before anything counted, of each turn.
    pub ramp_ms: u64,
    /// Time that counted, of each turn.
    pub runtime_ms: u64,
    /// Time that counted, of each probe.
    pub probe_ms: u64,
    /// What the members were.
    pub state: State,
    /// The core that both sides kept to.
    pub core: usize,
    /// What a reader must know besides.
    pub notes: Vec<String>,
    /// Machine, kernel, devices.
    pub environment: Environment,
    /// The volume, and Swath's queues on it.
    pub volume: VolumeReport,
    /// The other side.
    pub fio: FioReport,
    /// One entry for each cell that was measured.
    pub cells: Vec<CellComparison>,
    /// Of the ratios to fio's best.
    pub geometric_mean: Option<f64>,
    /// Of the ratios to fio's defaults.
    pub geometric_mean_defaults: Option<f64>,
    /// Cells in which fio's best is faster.
    pub below_one: Vec<String>,
}

/// Which fio it was.
#[derive(Debug, Clone, Serialize)]
pub struct FioReport {
    /// Where it lies.
    pub path: String,
    /// As it says.
    pub version: String,
}

impl FioReport {
    /// Describes `fio`.
    pub fn of(fio: &Fio) -> Self {
        Self {
            path: fio.path().display().to_string(),
            version: fio.version().to_owned(),
        }
    }
}

/// One cell: the medians of each side, the ratios, and every round.
#[derive(Debug, Clone, Serialize)]
pub struct CellComparison {
    /// Pattern, by fio's name.
    pub rw: Pattern,
    /// Bytes of a request.
    pub bs: u64,
    /// Requests that each side kept in flight.
    pub iodepth: u32,
    /// Threads of each side.
    pub numjobs: u32,
    /// Swath.
    pub swath: SwathSide,
    /// fio as it is fastest, if it was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fio: Option<FioSide>,
    /// fio as it comes, if it was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fio_defaults: Option<FioSide>,
    /// Swath / fio's best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
    /// Swath / fio's defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_defaults: Option<Ratio>,
    /// Whether the rounds are so far apart that the ratio means little.
    pub noisy: bool,
    /// Every round, its turns in the order in which they were taken.
    pub rounds: Vec<Vec<TurnReport>>,
}

/// Medians over the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Medians {
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub bw_bytes: u64,
    /// CPU time for each request, user and system.
    pub cpu_ns_per_io: f64,
}

/// Swath in one cell.
#[derive(Debug, Clone, Serialize)]
pub struct SwathSide {
    /// Medians.
    #[serde(flatten)]
    pub medians: Medians,
    /// The settings that were chosen.
    pub settings: Batching,
    /// And among which.
    pub(crate) probes: Vec<Probe<Batching>>,
}

/// fio in one cell.
#[derive(Debug, Clone, Serialize)]
pub struct FioSide {
    /// Medians.
    #[serde(flatten)]
    pub medians: Medians,
    /// The settings, in words.
    pub setting: String,
    /// The command of each of its turns.
    pub command: String,
    /// Among which settings these were chosen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) probes: Vec<Probe<FioSettings>>,
}

/// One turn.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct TurnReport {
    pub(crate) side: Side,
    /// The window.
    pub runtime_ms: u64,
    /// Requests completed in it.
    pub ios: u64,
    /// Requests a second.
    pub iops: f64,
    /// CPU time for each request, user and system.
    pub cpu_ns_per_io: f64,
    /// CPU time of fio's whole process, its start and its ramp included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_cpu_ms: Option<u64>,
}

impl Comparison {
    /// Takes in what a contest gave.
    pub fn take(&mut self, verdict: &Verdict) {
        self.interrupted = verdict.is_interrupted();
        self.volume.take_queues(&verdict.queues);
        self.notes.extend(verdict.notes.iter().cloned());
        let cells = verdict.cells.iter().filter_map(CellComparison::of);
        self.cells = cells.collect();
        let mean = |ratio: fn(&CellComparison) -> Option<&Ratio>| {
            let ratios = self.cells.iter().filter_map(ratio);
            geometric_mean(ratios.map(|ratio| ratio.median)).map(rounded)
        };
        self.geometric_mean = mean(|cell| cell.ratio.as_ref());
        self.geometric_mean_defaults = mean(|cell| cell.ratio_defaults.as_ref());
        let below = self.cells.iter().filter(|cell| cell.is_below_one());
        self.below_one = below.map(CellComparison::name).collect();
    }

    /// What any comparison says of itself.
    pub fn notes_of(schedule: &Schedule, state: State) -> Vec<String> {
        let mut notes = vec![
            "both sides: one thread on one core, as much in flight, direct I/O, the same bytes of the \
             same members; buffers that are written stay as they are"
                .to_owned(),
        ];
        let patterns: Vec<Pattern> = schedule.cells.iter().map(|cell| cell.pattern).collect();
        if patterns.iter().any(|pattern| !pattern.is_random()) {
            notes.push(
                "sequential: Swath goes through the volume, chunk after chunk; fio's best goes \
                 through the members in turns of a chunk, its defaults in turns of one request"
                    .to_owned(),
            );
        }
        if patterns.iter().any(|pattern| pattern.is_random()) {
            notes.push(
                "random: Swath draws from the whole volume; fio's best draws within a member, the \
                 next one after 16 requests, its defaults after each"
                    .to_owned(),
            );
        }
        if state == State::Memory {
            notes.push(
                "in memory, Swath's sync backend and fio's psync do one request after the other \
                 whatever the depth, which counts only for fio's io_uring"
                    .to_owned(),
            );
        }
        if schedule.rounds < ROUNDS_MIN {
            notes.push(format!(
                "fewer than {ROUNDS_MIN} rounds are mostly noise: --rounds 7"
            ));
        }
        if !schedule.rivals.contains(&Rival::Best) {
            notes.push("fio by default is not fio at its best: it says little of Swath".to_owned());
        }
        notes
    }

    /// Cells whose rounds are far apart.
    pub(crate) fn noisy(&self) -> Vec<String> {
        let noisy = self.cells.iter().filter(|cell| cell.noisy);
        noisy.map(CellComparison::name).collect()
    }
}

impl CellComparison {
    /// None when there is no whole round.
    pub(crate) fn of(verdict: &CellVerdict) -> Option<Self> {
        let cell = &verdict.cell;
        let fio_side = |side: Side, settings: Option<FioSettings>| {
            let command = verdict.commands.iter().find(|(of, _)| *of == side);
            let probes = match side {
                Side::Best => verdict.fio_probes.clone(),
                _ => Vec::new(),
            };
            Some(FioSide {
                medians: medians(verdict, side)?,
                setting: settings?.to_string(),
                command: command.map_or_else(String::new, |(_, line)| line.clone()),
                probes,
            })
        };
        let ratio = |side| {
            let ours = verdict.turns_of(Side::Swath).map(|turn| turn.done.iops());
            let theirs = verdict.turns_of(side).map(|turn| turn.done.iops());
            Ratio::of(ours.zip(theirs))
        };
        let (best, defaults) = (ratio(Side::Best), ratio(Side::Defaults));
        let judged = best.as_ref().or(defaults.as_ref());
        Some(Self {
            rw: cell.pattern,
            bs: cell.block_bytes,
            iodepth: cell.depth,
            numjobs: cell.lanes,
            swath: SwathSide {
                medians: medians(verdict, Side::Swath)?,
                settings: verdict.swath,
                probes: verdict.swath_probes.clone(),
            },
            fio: fio_side(Side::Best, verdict.best),
            fio_defaults: fio_side(Side::Defaults, Some(FioSettings::Defaults)),
            noisy: judged.is_some_and(|ratio| ratio.spread() > NOISY_SPREAD),
            ratio: best,
            ratio_defaults: defaults,
            rounds: verdict
                .rounds
                .iter()
                .map(|turns| turns.iter().map(TurnReport::of).collect())
                .collect(),
        })
    }

    /// As it is asked for: `4k-randread`.
    pub fn name(&self) -> String {
        format!("{}-{}", crate::size::format_size(self.bs), self.rw)
    }

    /// Whether fio's best is faster.
    pub fn is_below_one(&self) -> bool {
        self.ratio.as_ref().is_some_and(|ratio| ratio.median < 1.0)
    }
}

impl TurnReport {
    fn of(turn: &Turn) -> Self {
        Self {
            side: turn.side,
            runtime_ms: millis(turn.done.window),
            ios: turn.done.ios,
            iops: tenths(turn.done.iops()),
            cpu_ns_per_io: tenths(turn.done.cpu_ns_per_io),
            process_cpu_ms: turn.process_cpu_ms,
        }
    }
}

fn medians(verdict: &CellVerdict, side: Side) -> Option<Medians> {
    let bandwidth = |done: &Done| done.bytes as f64 / seconds(done.window);
    Some(Medians {
        iops: tenths(verdict.median_of(side, Done::iops)?),
        bw_bytes: whole(verdict.median_of(side, bandwidth)?),
        cpu_ns_per_io: tenths(verdict.median_of(side, |done| done.cpu_ns_per_io)?),
    })
}

fn seconds(window: Duration) -> f64 {
    window.as_secs_f64().max(1e-9)
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use crate::compare::fixture;

    #[test]
    fn a_cell_has_medians_ratios_and_every_round() {
        let report = fixture::comparison();
        let cell = &report.cells[0];
        assert_eq!(cell.name(), "4k-randread");
        assert_eq!(cell.swath.medians.iops, 1200.0);
        let ratio = cell.ratio.as_ref().unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max), (1.2, 1.1, 1.3));
        assert_eq!(cell.ratio_defaults.as_ref().unwrap().median, 2.4);
        assert_eq!(cell.rounds.len(), 3);
        assert!(cell.noisy && !cell.is_below_one());
    }

    #[test]
    fn the_mean_is_geometric_and_cells_below_one_are_named() {
        let report = fixture::comparison();
        // The second cell is 0.9.
        let mean = report.geometric_mean.unwrap();
        assert!((mean - (1.2_f64 * 0.9).sqrt()).abs() < 1e-3, "{mean}");
        assert_eq!(report.below_one, ["1m-write"]);
        assert_eq!(report.noisy(), ["4k-randread"]);
    }

    #[test]
    fn json_has_every_promised_field() {
        let json = serde_json::to_value(fixture::comparison()).unwrap();
        for key in [
            "command",
            "environment",
            "volume",
            "fio",
            "state",
            "core",
            "notes",
            "geometric_mean",
            "geometric_mean_defaults",
            "below_one",
            "rounds",
            "ramp_ms",
            "runtime_ms",
            "probe_ms",
        ] {
            assert!(json.get(key).is_some(), "{key}");
        }
        let cell = &json["cells"][0];
        assert_eq!(cell["rw"], "randread");
        assert_eq!(cell["swath"]["settings"]["batch"], 32);
        assert_eq!(cell["swath"]["iops"], 1200.0);
        assert_eq!(cell["fio"]["probes"][0]["engine"], "ring");
        assert_eq!(cell["fio"]["probes"][0]["batch"], 32);
        assert_eq!(cell["ratio"]["rounds"].as_array().unwrap().len(), 3);
        assert_eq!(cell["rounds"][1][0]["side"], "fio");
        assert_eq!(cell["rounds"][0][0]["side"], "swath");
    }
}
