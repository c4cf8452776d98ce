//! A small made-up run, for the tests of the reports.

use std::time::Duration;

use hdrhistogram::Histogram;
use swath_engine::{Backend, QueueDescription};

use super::{CellReport, REPORT_FORMAT, Report, VolumeReport};
use crate::environment::Environment;
use crate::latency::{LatencyBins, LatencySummary};
use crate::plan::{Depth, matrix};
use crate::runner::Measurement;
use crate::subject::DataState;
use crate::workload::{Cell, Pattern};

/// One in a hundred took 2 ms, the others 60 microseconds.
fn histogram(ios: u64) -> Histogram<u64> {
    let mut histogram = Histogram::new(3).unwrap();
    histogram.record_n(60_000, ios - ios / 100).unwrap();
    histogram.record_n(2_000_000, ios / 100).unwrap();
    histogram
}

/// One second of 4 KiB requests.
pub(crate) fn measurement(ios: u64) -> Measurement {
    Measurement {
        window: Duration::from_secs(1),
        ios,
        bytes: ios * 4096,
        histogram: histogram(ios),
        latency: LatencySummary {
            mean: 61_234.5,
            p50: 60_000,
            p99: 99_000,
            p99_9: 999_000,
            p99_99: 1_999_000,
            max: 2_000_000,
        },
        latency_bins: LatencyBins([(61_439, ios - ios / 100), (2_097_151, ios / 100)].into()),
        cpu_ns_per_io: 512.25,
        queue: QueueDescription {
            backend: Backend::Uring,
            flags: "SINGLE_ISSUER".to_owned(),
            reasons: Vec::new(),
        },
    }
}

/// Two patterns, each at all of these depths and lanes, the faster the more is in flight.
pub(crate) fn swept(lanes: &[u32], depths: &[u32]) -> Report {
    let mut report = report(false);
    let (sizes, patterns) = ([4096, 1 << 20], [Pattern::Write, Pattern::RandRead]);
    let depths: Vec<Depth> = depths.iter().copied().map(Depth::Fixed).collect();
    let cells = matrix(&sizes, &patterns, &depths, lanes, 2);
    let of = |cell: &Cell| {
        // It levels off: at eight in flight half of what there is.
        let in_flight = u64::from(cell.depth * cell.lanes);
        let ios = 400_000 * in_flight / (in_flight + 8) * 4096 / cell.block_bytes;
        let mut run = measurement(ios.max(100));
        run.bytes = run.ios * cell.block_bytes;
        run.latency.mean = in_flight as f64 / ios.max(1) as f64 * 1e9;
        CellReport::of(cell, DataState::Written, &[run], &[])
    };
    report.cells = cells.iter().filter_map(of).collect();
    report
}

/// Two cells of a matrix, with a baseline or without.
pub(crate) fn report(with_baseline: bool) -> Report {
    let cell = |pattern, ios| {
        let cell = Cell {
            pattern,
            block_bytes: 4096,
            depth: 128,
            lanes: 1,
        };
        let bare = [measurement(1_000_000)];
        let members: &[Measurement] = if with_baseline { &bare } else { &[] };
        let state = if pattern == Pattern::Read {
            DataState::Unwritten
        } else {
            DataState::Written
        };
        CellReport::of(&cell, state, &[measurement(ios)], members).unwrap()
    };
    Report {
        kind: "matrix",
        format: REPORT_FORMAT,
        command: "swath-matrix --bs 4k".to_owned(),
        version: "0.1.0",
        label: Some("a label".to_owned()),
        interrupted: false,
        seed: 42,
        rounds: 1,
        ramp_ms: 500,
        steady_state: None,
        precondition: None,
        notes: Vec::new(),
        environment: Environment {
            date: "2026-01-01T00:00:00Z".to_owned(),
            kernel: "6.18".to_owned(),
            cpu: "a CPU".to_owned(),
            cores: 2,
            memory_bytes: 1 << 30,
            transparent_hugepages: "madvise".to_owned(),
            commit: None,
            preconditioning: "written".to_owned(),
            devices: Vec::new(),
        },
        volume: VolumeReport {
            members: vec!["/dev/a".to_owned(), "/dev/b".to_owned()],
            chunk_bytes: 1 << 20,
            capacity_bytes: 4 << 30,
            backend: "uring".to_owned(),
            backend_flags: "SINGLE_ISSUER".to_owned(),
            backend_reasons: vec!["no polling: no poll queues".to_owned()],
            name: "v".to_owned(),
            uuid: "00000000-0000-0000-0000-000000000000".to_owned(),
        },
        cells: vec![
            cell(Pattern::Read, 950_000),
            cell(Pattern::RandWrite, 12_345),
        ],
        verify: None,
    }
}
