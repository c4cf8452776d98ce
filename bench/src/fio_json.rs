//! A run as fio's own JSON (`fio --output-format=json`, as fio 3 writes it), for what reads that.
//!
//! - Every key that fio writes for a job is there, with fio's units: `bw` in KiB a second, `bw_bytes`
//!   in bytes, `runtime` in milliseconds, latencies in nanoseconds.
//! - A cell is one job with `group_reporting`: its numbers are those of all its lanes.
//! - What Swath does not measure apart is told as fio would tell nothing: `slat_ns` is 0 and
//!   `clat_ns` the whole latency; the CPU time of both modes is in `sys_cpu`. Percentiles that a
//!   report has are exact, others are ends of the histogram's bins, and too large by up to 12.5 %.
//! - `fio version` begins as fio's does, because readers choose by it, and goes on with whose it is.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::run::{Run, RunCell};
use crate::size::format_size;
use crate::steady::{SteadyOptions, SteadyReport};
use crate::sweep::has_sweeps;

/// The percentiles that fio gives unless told otherwise.
const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

/// Writes all cells as the jobs of one fio run.
///
/// # Errors
///
/// What the writer returns.
pub fn write(run: &Run, output: impl Write) -> io::Result<()> {
    write_cells(run, &run.cells, output)
}

/// Writes a file for each cell as `bench-fio` lays them out, for `fio-plot`, which adds up the jobs of
/// one file: `FOLDER/4k/randread-128-1.json`, by block size, pattern, iodepth and numjobs.
///
/// # Errors
///
/// A folder cannot be made or a file not be written.
pub fn write_folder(run: &Run, folder: &Path) -> Result<()> {
    for cell in &run.cells {
        let place = folder.join(format_size(cell.bs));
        let name = format!("{}-{}-{}.json", cell.rw, cell.iodepth, cell.numjobs);
        let path = place.join(name);
        let mut bytes = Vec::new();
        let written = write_cells(run, std::slice::from_ref(cell), &mut bytes)
            .and_then(|()| std::fs::create_dir_all(&place))
            .and_then(|()| std::fs::write(&path, bytes));
        written.map_err(|cause| {
            Error::failed(
                format!("cannot write fio's JSON to {}", path.display()),
                cause,
            )
        })?;
    }
    Ok(())
}

fn write_cells(run: &Run, cells: &[RunCell], mut output: impl Write) -> io::Result<()> {
    let seconds = unix_seconds(&run.environment.date).unwrap_or(0);
    let jobs: Vec<Value> = cells.iter().map(|cell| job(run, cell)).collect();
    let report = json!({
        "fio version": format!("fio-3.33, written by swath {}", run.version),
        "timestamp": seconds,
        "timestamp_ms": seconds * 1000,
        "time": run.environment.date,
        "global options": {
            "ioengine": engine(&run.volume.backend),
            "direct": "1",
            "group_reporting": "1",
            "randseed": run.seed.to_string(),
        },
        "jobs": jobs,
        "disk_util": [],
    });
    serde_json::to_writer_pretty(&mut output, &report)?;
    output.write_all(b"\n")
}

/// What fio calls the backend.
fn engine(backend: &str) -> &str {
    match backend {
        "uring" => "io_uring",
        "aio" => "libaio",
        "sync" => "psync",
        other => other,
    }
}

fn job(run: &Run, cell: &RunCell) -> Value {
    let (moved, nothing) = (data(cell), no_data());
    let (read, write) = if cell.rw.is_write() {
        (nothing.clone(), moved)
    } else {
        (moved, nothing.clone())
    };
    let runtime_s = cell.runtime_ms as f64 / 1e3;
    // Of one lane, as fio gives the mean of all.
    let cpu_percent = cell.cpu_ns_per_io * cell.iops / 1e9 / f64::from(cell.numjobs) * 100.0;
    let mut name = format!("{}-{}", cell.rw, format_size(cell.bs));
    if has_sweeps(&run.cells) {
        name.push_str(&format!("-iodepth{}-numjobs{}", cell.iodepth, cell.numjobs));
    }
    let mut job = json!({
        "jobname": name,
        "groupid": 0,
        "error": 0,
        "eta": 0,
        "elapsed": runtime_s.ceil(),
        "job options": {
            "name": name,
            "rw": cell.rw.name(),
            "bs": format_size(cell.bs),
            "iodepth": cell.iodepth.to_string(),
            "numjobs": cell.numjobs.to_string(),
            "runtime": format!("{runtime_s}"),
            "ramp_time": format!("{}ms", run.ramp_ms),
            "filename": run.volume.members.join(":"),
        },
        "read": read,
        "write": write,
        "trim": nothing,
        "sync": {"total_ios": 0, "lat_ns": no_latency()},
        "job_runtime": cell.runtime_ms.saturating_mul(u64::from(cell.numjobs)),
        "usr_cpu": 0.0,
        "sys_cpu": finite(cpu_percent),
        "ctx": 0,
        "majf": 0,
        "minf": 0,
    });
    if let Some(job) = job.as_object_mut() {
        let depth = u64::from(cell.iodepth);
        let levels = [1, 2, 4, 8, 16, 32];
        job.insert("iodepth_level".to_owned(), shares(&levels, ">=64", depth));
        for key in ["iodepth_submit", "iodepth_complete"] {
            job.insert(
                key.to_owned(),
                shares(&[0, 4, 8, 16, 32, 64], ">=64", u64::MAX - 1),
            );
        }
        job.extend(distribution(cell));
        if let (Some(options), Some(steady)) = (&run.steady_state, &cell.steady) {
            job.insert(
                "steadystate".to_owned(),
                steady_state(options, steady, cell),
            );
        }
        for (key, value) in [
            ("depth", json!(cell.iodepth)),
            ("target", json!(0)),
            ("percentile", json!(100.0)),
            ("window", json!(0)),
        ] {
            job.insert(format!("latency_{key}"), value);
        }
    }
    job
}

/// What fio says of a steady state, of its `bw` criterion. fio has one criterion and judges by the
/// largest distance from the mean, which is at most the spread that is judged by here. Its rates are
/// in bytes a second here, unlike elsewhere.
fn steady_state(options: &SteadyOptions, steady: &SteadyReport, cell: &RunCell) -> Value {
    let rounds = cell.rounds();
    let iops: Vec<u64> = rounds.iter().map(|rate| rate / cell.bs).collect();
    let mean = rounds.iter().sum::<u64>() as f64 / rounds.len().max(1) as f64;
    let distances = rounds.iter().map(|rate| (*rate as f64 - mean).abs());
    let deviation = distances.fold(0.0, f64::max);
    let steps = f64::from(steady.window.saturating_sub(1).max(1));
    json!({
        "ss": format!("bw:{}%", options.spread_percent_max),
        "duration": cell.runtime_ms.div_ceil(1000),
        "attained": u32::from(steady.is_steady),
        "criterion": format!("{:.6}%", finite(deviation / mean.max(1.0) * 100.0)),
        "max_deviation": finite(deviation),
        "slope": finite(steady.slope_percent / 100.0 * mean / steps),
        "data": {
            "bw_mean": cell.bw_bytes,
            "iops_mean": finite(cell.iops.round()),
            "iops": iops,
            "bw": rounds,
        },
    })
}

/// Everything at the largest of `levels` that is not above `at`, or at `above` when none is as high;
/// of a number that is not known, nothing anywhere.
fn shares(levels: &[u64], above: &str, at: u64) -> Value {
    let is_known = at < u64::MAX - 1;
    let is_above = is_known && at >= 64;
    let reached = levels.iter().rev().find(|level| **level <= at);
    let mut shares = Map::new();
    for level in levels {
        let is_it = is_known && !is_above && reached == Some(level);
        shares.insert(level.to_string(), json!(if is_it { 100.0 } else { 0.0 }));
    }
    shares.insert(above.to_owned(), json!(if is_above { 100.0 } else { 0.0 }));
    Value::Object(shares)
}

/// One direction that moved data.
fn data(cell: &RunCell) -> Value {
    let latency = &cell.lat_ns;
    let deviation = deviation_ns(cell);
    let least = cell
        .lat_ns_bins
        .0
        .keys()
        .next()
        .copied()
        .unwrap_or(latency.p50);
    let summary = json!({
        "min": least.min(latency.p50),
        "max": latency.max,
        "mean": latency.mean,
        "stddev": deviation,
        "N": cell.ios,
    });
    let mut completion = summary.clone();
    let percentiles: Map<String, Value> = PERCENTILES
        .iter()
        .map(|percent| (format!("{percent:.6}"), json!(percentile(cell, *percent))))
        .collect();
    if let Some(completion) = completion.as_object_mut() {
        completion.insert("percentile".to_owned(), Value::Object(percentiles));
        if cell.lat_ns_bins.total() > 0 {
            completion.insert("bins".to_owned(), json!(cell.lat_ns_bins));
        }
    }
    // fio samples within the run; rounds are the samples that there are.
    let rounds = cell.rounds().iter();
    let mut samples: Vec<f64> = rounds.map(|rate| *rate as f64).collect();
    if samples.is_empty() {
        samples.push(cell.bw_bytes as f64);
    }
    let rates = Samples::of(&samples);
    let (kib, request) = (1024.0, cell.bs as f64);
    json!({
        "io_bytes": cell.bytes,
        "io_kbytes": cell.bytes / 1024,
        "bw_bytes": cell.bw_bytes,
        "bw": cell.bw_bytes / 1024,
        "iops": finite(cell.iops),
        "runtime": cell.runtime_ms,
        "total_ios": cell.ios,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": no_latency(),
        "clat_ns": completion,
        "lat_ns": summary,
        "bw_min": (rates.min / kib).round(),
        "bw_max": (rates.max / kib).round(),
        "bw_agg": 100.0,
        "bw_mean": rates.mean / kib,
        "bw_dev": rates.deviation / kib,
        "bw_samples": rates.count,
        "iops_min": (rates.min / request).round(),
        "iops_max": (rates.max / request).round(),
        "iops_mean": rates.mean / request,
        "iops_stddev": rates.deviation / request,
        "iops_samples": rates.count,
    })
}

/// A direction in which nothing moved.
fn no_data() -> Value {
    let mut data = Map::new();
    for key in [
        "io_bytes",
        "io_kbytes",
        "bw_bytes",
        "bw",
        "runtime",
        "total_ios",
        "short_ios",
        "drop_ios",
        "bw_min",
        "bw_max",
        "bw_samples",
        "iops_min",
        "iops_max",
        "iops_samples",
    ] {
        data.insert(key.to_owned(), json!(0));
    }
    for key in [
        "iops",
        "bw_agg",
        "bw_mean",
        "bw_dev",
        "iops_mean",
        "iops_stddev",
    ] {
        data.insert(key.to_owned(), json!(0.0));
    }
    for key in ["slat_ns", "clat_ns", "lat_ns"] {
        data.insert(key.to_owned(), no_latency());
    }
    Value::Object(data)
}

fn no_latency() -> Value {
    json!({"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0})
}

/// A percentile in nanoseconds.
fn percentile(cell: &RunCell, percent: f64) -> u64 {
    let latency = &cell.lat_ns;
    let exact = [
        (50.0, latency.p50),
        (99.0, latency.p99),
        (99.9, latency.p99_9),
        (99.99, latency.p99_99),
    ];
    if let Some((_, ns)) = exact
        .iter()
        .find(|(known, _)| (known - percent).abs() < 1e-9)
    {
        return *ns;
    }
    // Between the exact ones on both sides, so that they rise as percentiles do.
    let below = exact.iter().rev().find(|(known, _)| *known < percent);
    let above = exact.iter().find(|(known, _)| *known > percent);
    let least = below.map_or(0, |(_, ns)| *ns);
    let most = above.map_or(latency.max, |(_, ns)| *ns).max(least);
    cell.lat_ns_bins
        .at_quantile(percent / 100.0)
        .clamp(least, most)
}

/// Standard deviation, from the bins.
fn deviation_ns(cell: &RunCell) -> f64 {
    let total = cell.lat_ns_bins.total() as f64;
    let squares = cell.lat_ns_bins.0.iter().map(|(end_ns, count)| {
        let distance = *end_ns as f64 * (1.0 - 1.0 / 18.0) - cell.lat_ns.mean;
        distance * distance * *count as f64
    });
    let sum: f64 = squares.sum();
    finite(if total > 0.0 {
        (sum / total).sqrt()
    } else {
        0.0
    })
}

/// `latency_ns`, `latency_us` and `latency_ms`: percent of requests up to each limit.
fn distribution(cell: &RunCell) -> Map<String, Value> {
    let limits: [(&str, f64, &[u64]); 3] = [
        (
            "latency_ns",
            1.0,
            &[2, 4, 10, 20, 50, 100, 250, 500, 750, 1000],
        ),
        (
            "latency_us",
            1e3,
            &[2, 4, 10, 20, 50, 100, 250, 500, 750, 1000],
        ),
        (
            "latency_ms",
            1e6,
            &[2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000],
        ),
    ];
    let total = (cell.lat_ns_bins.total() as f64).max(1.0);
    let mut bins = cell.lat_ns_bins.0.iter().peekable();
    let mut all = Map::new();
    for (key, unit, steps) in limits {
        let mut shares = Map::new();
        for step in steps {
            let mut count = 0.0;
            while let Some((_, more)) = bins.next_if(|(end, _)| **end as f64 <= *step as f64 * unit)
            {
                count += *more as f64;
            }
            shares.insert(step.to_string(), json!(count / total * 100.0));
        }
        all.insert(key.to_owned(), Value::Object(shares));
    }
    let rest: f64 = bins.map(|(_, count)| *count as f64).sum();
    if let Some(Value::Object(millis)) = all.get_mut("latency_ms") {
        millis.insert(">=2000".to_owned(), json!(rest / total * 100.0));
    }
    all
}

/// Minimum, maximum, mean and standard deviation of a few rates.
#[derive(Debug)]
struct Samples {
    min: f64,
    max: f64,
    mean: f64,
    deviation: f64,
    count: usize,
}

impl Samples {
    fn of(rates: &[f64]) -> Self {
        let count = rates.len();
        let mean = rates.iter().sum::<f64>() / count.max(1) as f64;
        let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
        let degrees = count.saturating_sub(1).max(1) as f64;
        Self {
            min: rates.iter().copied().fold(f64::INFINITY, f64::min),
            max: rates.iter().copied().fold(0.0, f64::max),
            mean,
            deviation: (squares / degrees).sqrt(),
            count,
        }
    }
}

/// JSON has no other numbers.
fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

/// Seconds since 1970 of a date as reports write it: `2026-01-31T12:34:56Z`.
fn unix_seconds(date: &str) -> Option<u64> {
    let numbers: Vec<u64> = date
        .get(..20)?
        .split(['-', 'T', ':', 'Z'])
        .filter_map(|part| part.parse().ok())
        .collect();
    let &[year, month, day, hour, minute, second] = numbers.as_slice() else {
        return None;
    };
    // Years begin in March, so that a leap day is the last of its year.
    let year = if month <= 2 {
        year.checked_sub(1)?
    } else {
        year
    };
    let month = (month + 9) % 12;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    let since = days.checked_sub(719_469)?;
    Some(since * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests;
