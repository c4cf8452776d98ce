//! A small made-up comparison, for the tests of the reports.

use std::time::Duration;

use crate::compare::contest::{CellVerdict, Probe, Turn, Verdict};
use crate::compare::memory::FioMemory;
use crate::compare::output::Done;
use crate::compare::report::{Comparison, FioReport};
use crate::compare::settings::{Batching, FioSettings};
use crate::compare::state::State;
use crate::compare::turns::{Side, order};
use crate::report::fixture;
use crate::workload::{Cell, Pattern};

const SIDES: [Side; 3] = [Side::Swath, Side::Best, Side::Defaults];

/// One second.
fn turn(side: Side, ios: u64, block_bytes: u64) -> Turn {
    Turn {
        side,
        done: Done {
            window: Duration::from_secs(1),
            ios,
            bytes: ios * block_bytes,
            cpu_ns_per_io: 1e9 / ios as f64,
        },
        process_cpu_ms: None,
    }
}

fn cell(pattern: Pattern, block_bytes: u64, swath: [u64; 3]) -> CellVerdict {
    let batching = Batching {
        batch: 32,
        complete_min: 8,
    };
    let best = FioSettings::Ring {
        batching,
        memory: FioMemory::Small,
    };
    let rounds = (0..).zip(swath).map(|(round, swath_ios)| {
        let turns = order(&SIDES, round).into_iter().map(|side| match side {
            Side::Swath => turn(side, swath_ios, block_bytes),
            Side::Best => turn(side, 1000, block_bytes),
            Side::Defaults => turn(side, 500, block_bytes),
        });
        turns.collect()
    });
    CellVerdict {
        cell: Cell {
            pattern,
            block_bytes,
            depth: 128,
            lanes: 1,
        },
        swath: batching,
        swath_probes: Vec::new(),
        best: Some(best),
        fio_probes: vec![Probe {
            settings: best,
            iops: Some(1000.0),
            iops_tries: vec![1000.0],
            cpu_ns_per_io_tries: vec![500.0],
        }],
        commands: vec![
            (Side::Best, "fio --best".to_owned()),
            (Side::Defaults, "fio --defaults".to_owned()),
        ],
        rounds: rounds.collect(),
    }
}

/// Two cells: 1.2 times fio's best, and 0.9.
pub(crate) fn comparison() -> Comparison {
    let base = fixture::report(false);
    let mut comparison = Comparison {
        command: "swath-compare".to_owned(),
        version: "0.1.0",
        label: None,
        interrupted: false,
        seed: 42,
        rounds: 3,
        ramp_ms: 500,
        runtime_ms: 1000,
        probe_ms: 100,
        state: State::Written,
        core: 1,
        notes: vec!["a note".to_owned()],
        environment: base.environment,
        volume: base.volume,
        fio: FioReport {
            path: "/usr/bin/fio".to_owned(),
            version: "fio-3.33".to_owned(),
        },
        cells: Vec::new(),
        geometric_mean: None,
        geometric_mean_defaults: None,
        below_one: Vec::new(),
    };
    comparison.take(&Verdict {
        cells: vec![
            cell(Pattern::RandRead, 4096, [1100, 1300, 1200]),
            cell(Pattern::Write, 1 << 20, [900, 900, 900]),
        ],
        queues: Vec::new(),
        notes: Vec::new(),
        stopped: None,
    });
    comparison
}
