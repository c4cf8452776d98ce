//! What a run of `swath-curve` found, as one value that is printed as tables, JSON or CSV.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::arrivals::Arrivals;
use super::point::Measured;
use super::profile::Profile;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::latency::LatencySummary;
use crate::report::{VolumeReport, whole};
use crate::subject::DataState;

/// A point that achieved less than this share of what it was offered is beyond saturation, if it
/// also lacks more requests than can be in flight: those may just have begun.
const KEPT_UP: f64 = 0.99;

/// Everything about one run.
#[derive(Debug, Clone, Serialize)]
pub struct CurveReport {
    /// What kind of run it was: `curve`.
    pub kind: &'static str,
    /// The format of this report, as other kinds have it.
    pub format: u32,
    /// The program.
    pub program: &'static str,
    /// The exact command, quoted for a shell.
    pub command: String,
    /// Version of this program.
    pub version: &'static str,
    /// The user's own words about the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether the run was stopped before its last point.
    pub interrupted: bool,
    /// What offsets, data and arrivals were drawn from.
    pub seed: u64,
    /// How arrivals were spaced.
    pub arrivals: Arrivals,
    /// How long requests were offered that counted, for each point.
    pub runtime_ms: u64,
    /// Time before anything counted, for each point.
    pub ramp_ms: u64,
    /// What a reader must know besides.
    pub notes: Vec<String>,
    /// Machine, kernel, devices.
    pub environment: Environment,
    /// The volume.
    pub volume: VolumeReport,
    /// One entry for each profile that was measured, or begun.
    pub workloads: Vec<WorkloadReport>,
}

/// One profile's curve.
#[derive(Debug, Clone, Serialize)]
pub struct WorkloadReport {
    /// What was asked of the drives.
    #[serde(flatten)]
    pub profile: ProfileReport,
    /// Whether the blocks had been written before.
    pub state: DataState,
    /// What counts as 100 %: the peak that was measured, or a rate that was given.
    pub full_iops: f64,
    /// The uncapped run; none where a rate was given.
    pub peak: Option<PointReport>,
    /// The points, in the order in which they were measured.
    pub points: Vec<PointReport>,
}

/// A profile, as it was run.
#[derive(Debug, Clone, Serialize)]
pub struct ProfileReport {
    /// What it is called.
    pub name: String,
    /// What it stands for.
    pub description: String,
    /// Where its numbers come from.
    pub source: String,
    /// Whether these only come near an original that is not published.
    pub approximation: bool,
    /// In a few words.
    pub summary: String,
    /// Share of the requests that read.
    pub read_percent: f64,
    /// Share of the requests that seek.
    pub seek_percent: f64,
    /// Sizes and their shares.
    pub sizes: Vec<SizeReport>,
    /// The hot share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skew: Option<SkewReport>,
    /// Threads.
    pub threads: u32,
    /// Requests in flight on all threads together, at most.
    pub outstanding: u32,
}

/// A size and its share.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct SizeReport {
    /// Bytes of a request.
    pub bytes: u64,
    /// Its share.
    pub percent: f64,
}

/// A hot share.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct SkewReport {
    /// So much of what seeks
    pub requests_percent: f64,
    /// goes to so much of the space.
    pub space_percent: f64,
}

/// One point of a curve.
#[derive(Debug, Clone, Serialize)]
pub struct PointReport {
    /// The load, in per cent of the full rate; none for the uncapped run.
    pub percent: Option<f64>,
    /// The rate that was set; none for the uncapped run.
    pub target_iops: Option<f64>,
    /// Requests meant to start in the window, a second: the rate that was set, but for chance.
    pub offered_iops: f64,
    /// Requests done in the window, a second.
    pub achieved_iops: f64,
    /// Bytes of these, a second.
    pub bw_bytes: u64,
    /// Requests meant to start in the window, and done.
    pub ios: u64,
    /// Requests meant to start in the window, and not done in as long a time again.
    pub unserved: u64,
    /// Whether less was achieved than was offered, by more than 1 % and by more than can be in flight.
    pub saturated: bool,
    /// Latency in nanoseconds, from the intended start.
    pub lat_ns: LatencySummary,
    /// That of the requests that read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lat_read_ns: Option<LatencySummary>,
    /// That of the requests that wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lat_write_ns: Option<LatencySummary>,
    /// CPU time for each request: the process with its helper threads and kernel workers, with its
    /// polling for arrivals and completions, without the thread that draws the progress.
    pub cpu_ns_per_io: f64,
}

impl ProfileReport {
    /// As `profile` has it.
    pub fn of(profile: &Profile) -> Self {
        let sizes = profile.sizes.iter();
        Self {
            name: profile.name.clone(),
            description: profile.description.clone(),
            source: profile.source.clone(),
            approximation: profile.approximation,
            summary: profile.summary(),
            read_percent: profile.read_percent,
            seek_percent: profile.seek_percent,
            sizes: sizes
                .map(|size| SizeReport {
                    bytes: size.bytes,
                    percent: size.percent,
                })
                .collect(),
            skew: profile.skew.map(|skew| SkewReport {
                requests_percent: skew.requests_percent,
                space_percent: skew.space_percent,
            }),
            threads: profile.threads,
            outstanding: profile.outstanding,
        }
    }
}

impl PointReport {
    /// Condenses what was measured in a window of `runtime` with so many `outstanding` at most; `load`
    /// is the share in per cent and the rate that was set.
    pub(super) fn of(
        load: Option<(f64, f64)>,
        measured: &Measured,
        runtime: Duration,
        outstanding: u32,
    ) -> Result<Self> {
        let mut all = measured.read_ns.clone();
        all.add(&measured.write_ns)
            .map_err(|cause| Error::failed("cannot add histograms", cause))?;
        let offered = measured.offered as f64 / runtime.as_secs_f64();
        let achieved = measured.done as f64 / runtime.as_secs_f64();
        let missing = measured.offered.saturating_sub(measured.done);
        let fell_behind = achieved < KEPT_UP * offered && missing > u64::from(outstanding);
        let part =
            |latency: &Histogram<u64>| (!latency.is_empty()).then(|| LatencySummary::of(latency));
        Ok(Self {
            percent: load.map(|(percent, _)| percent),
            target_iops: load.map(|(_, rate)| rounded(rate)),
            offered_iops: rounded(offered),
            achieved_iops: rounded(achieved),
            bw_bytes: whole(measured.bytes as f64 / runtime.as_secs_f64()),
            ios: measured.served,
            unserved: measured.offered - measured.served,
            saturated: load.is_some() && (fell_behind || measured.offered > measured.served),
            lat_ns: LatencySummary::of(&all),
            lat_read_ns: part(&measured.read_ns),
            lat_write_ns: part(&measured.write_ns),
            cpu_ns_per_io: rounded(measured.cpu_ns_per_io),
        })
    }
}

fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
pub(crate) mod fixture {
    use super::super::shipped::find;
    use super::*;
    use crate::report::fixture;

    /// A point of 1000 reads of 4 KiB in a second at 100 us, and one at 5 ms.
    pub(in crate::curve) fn measured(offered: u64, done: u64) -> Measured {
        let mut read_ns = Histogram::new(3).unwrap();
        read_ns.record_n(100_000, 999).unwrap();
        read_ns.record(5_000_000).unwrap();
        Measured {
            offered,
            served: offered.min(1005),
            done,
            bytes: done * 4096,
            read_ns,
            write_ns: Histogram::new(3).unwrap(),
            cpu_ns_per_io: 1234.56,
            queue: fixture::measurement(1).queue,
        }
    }

    /// A curve with its peak, a point below saturation and one beyond it.
    pub(crate) fn report() -> CurveReport {
        let second = Duration::from_secs(1);
        let point =
            |load, measured: &Measured| PointReport::of(load, measured, second, 64).unwrap();
        let matrix = fixture::report(false);
        CurveReport {
            kind: "curve",
            format: crate::report::REPORT_FORMAT,
            program: "swath-curve",
            command: "swath-curve".to_owned(),
            version: "0.1.0",
            label: Some("a label".to_owned()),
            interrupted: false,
            seed: 42,
            arrivals: Arrivals::Poisson,
            runtime_ms: 1000,
            ramp_ms: 500,
            notes: Vec::new(),
            environment: matrix.environment,
            volume: matrix.volume,
            workloads: vec![WorkloadReport {
                profile: ProfileReport::of(&find("sql-90-10").unwrap()),
                state: DataState::Unwritten,
                full_iops: 1000.0,
                peak: Some(point(None, &measured(1000, 1000))),
                points: vec![
                    point(Some((50.0, 1010.0)), &measured(1005, 950)),
                    point(Some((120.0, 1200.0)), &measured(1200, 900)),
                ],
            }],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_beyond_saturation_is_told_and_one_that_lacks_what_is_in_flight_is_not() {
        let report = fixture::report();
        let workload = &report.workloads[0];
        let saturated: Vec<bool> = workload
            .points
            .iter()
            .map(|point| point.saturated)
            .collect();
        assert_eq!(saturated, [false, true]);
        assert!(!workload.peak.as_ref().unwrap().saturated);
        assert_eq!(workload.points[1].unserved, 195);
        assert!((workload.points[1].achieved_iops - 900.0).abs() < 0.1);
    }

    #[test]
    fn json_has_every_promised_field_of_a_point() {
        let json = serde_json::to_value(fixture::report()).unwrap();
        let workload = &json["workloads"][0];
        assert_eq!(workload["name"], "sql-90-10");
        assert_eq!(workload["approximation"], true);
        assert_eq!(workload["peak"]["percent"], serde_json::Value::Null);
        let point = &workload["points"][0];
        for key in [
            "percent",
            "target_iops",
            "offered_iops",
            "achieved_iops",
            "bw_bytes",
            "ios",
        ] {
            assert!(point[key].is_number(), "{key}: {point}");
        }
        for key in ["mean", "p50", "p99", "p99_9", "p99_99", "max"] {
            assert!(point["lat_ns"][key].is_number(), "{key}: {point}");
        }
        assert!(point["lat_read_ns"].is_object() && point.get("lat_write_ns").is_none());
        assert_eq!(point["cpu_ns_per_io"], 1234.6);
        assert_eq!(json["arrivals"], "poisson");
    }
}
