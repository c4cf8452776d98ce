//! Made-up runs, for the tests of what is made of them.

use super::{Run, of_json};
use crate::report::{fixture, write_json};
use crate::steady::{SteadyOptions, SteadyReport};

/// The JSON of a small matrix with a baseline.
pub(crate) fn json() -> String {
    let mut bytes = Vec::new();
    write_json(&fixture::report(true), &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// The run that it is of.
pub(crate) fn run() -> Run {
    of_json("a.json", json()).unwrap()
}

/// A sweep of these lanes and depths, two patterns at two sizes, as it is read.
pub(crate) fn swept(lanes: &[u32], depths: &[u32]) -> Run {
    let mut bytes = Vec::new();
    write_json(&fixture::swept(lanes, depths), &mut bytes).unwrap();
    of_json("sweep.json", String::from_utf8(bytes).unwrap()).unwrap()
}

/// A whole matrix in seven rounds until steady state, which its first cell is not.
pub(crate) fn steady() -> Run {
    let mut run = full("steady.json", 1.0, 7);
    run.steady_state = Some(SteadyOptions::default());
    for (place, cell) in run.cells.iter_mut().enumerate() {
        cell.bw_bytes_rounds[0] *= 2;
        cell.steady = Some(SteadyReport {
            is_steady: place > 0,
            rounds: 7,
            window: 5,
            spread_percent: 4.0,
            slope_percent: -3.5,
        });
    }
    run
}

/// A whole matrix of nine sizes and four patterns, in `rounds` rounds; everything is `speed` times
/// as fast as it is at 1.
pub(crate) fn full(source: &str, speed: f64, rounds: u32) -> Run {
    let mut value: serde_json::Value = serde_json::from_str(&json()).unwrap();
    let cell = value["cells"][0].clone();
    let mut cells = Vec::new();
    for power in 12..=20_u32 {
        for (place, rw) in ["read", "write", "randread", "randwrite"]
            .iter()
            .enumerate()
        {
            let bs = f64::from(1 << power);
            let limit = [7.0e9, 5.0e9, 6.5e9, 3.0e9][place] * speed;
            let bandwidth = limit * bs / (bs + 16_384.0);
            let mut cell = cell.clone();
            cell["rw"] = (*rw).into();
            cell["bs"] = (1_u64 << power).into();
            cell["state"] = "written".into();
            cell["iops"] = (bandwidth / bs).into();
            cell["bw_bytes"] = crate::report::whole(bandwidth).into();
            let round = |round: u32| bandwidth * (1.0 + 0.01 * f64::from(round));
            cell["bw_bytes_rounds"] = (0..rounds)
                .map(|number| crate::report::whole(round(number)))
                .collect::<Vec<_>>()
                .into();
            cells.push(cell);
        }
    }
    value["cells"] = cells.into();
    value["rounds"] = rounds.into();
    of_json(source, serde_json::to_string_pretty(&value).unwrap()).unwrap()
}
