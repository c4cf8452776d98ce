//! Every number, the environment and the exact command.

use std::time::Duration;

use super::{Page, words};
use crate::chart::escape;
use crate::report::format_rate;
use crate::run::Run;
use crate::size::{format_bytes, format_duration, format_size};

pub(super) fn numbers(page: &mut Page, run: &Run) {
    if run.cells.is_empty() {
        return;
    }
    page.heading("Every number");
    let has_bare = run.cells.iter().any(|cell| cell.efficiency.is_some());
    let mut heads: Vec<String> = [
        "pattern", "block", "lanes", "depth", "GB/s", "GiB/s", "IOPS", "mean", "p50", "p99",
        "p99.9", "p99.99", "max", "CPU/IO", "data",
    ]
    .map(str::to_owned)
    .to_vec();
    if has_bare {
        heads.push("efficiency".to_owned());
    }
    let mut rows = Vec::new();
    for pattern in run.patterns() {
        for cell in run.cells.iter().filter(|cell| cell.rw == pattern) {
            let latency = &cell.lat_ns;
            let mut row = vec![
                words::name(pattern).to_owned(),
                words::size(cell.bs),
                cell.numjobs.to_string(),
                cell.iodepth.to_string(),
                words::gb(cell.bw_bytes as f64),
                words::ratio(cell.bw_bytes as f64 / f64::from(1 << 30)),
                format!("{}{}", format_rate(cell.iops), words::marks(cell)),
                words::time(latency.mean),
            ];
            let percentiles = [
                latency.p50,
                latency.p99,
                latency.p99_9,
                latency.p99_99,
                latency.max,
            ];
            row.extend(percentiles.map(|ns| words::time(ns as f64)));
            row.push(words::time(cell.cpu_ns_per_io));
            row.push(cell.state.to_string());
            if has_bare {
                row.push(cell.efficiency.map_or_else(|| "-".to_owned(), words::ratio));
            }
            rows.push(row);
        }
    }
    page.table(1, &heads, &rows);
}

pub(super) fn environment(page: &mut Page, run: &Run, heading: &str) {
    page.heading(heading);
    let environment = &run.environment;
    let volume = &run.volume;
    let mut facts = vec![
        ("report", run.source.clone()),
        ("date", environment.date.clone()),
        ("CPU", environment.cpu.clone()),
        ("cores", environment.cores.to_string()),
        ("memory", format_bytes(environment.memory_bytes)),
        ("kernel", format!("Linux {}", environment.kernel)),
        ("huge pages", environment.transparent_hugepages.clone()),
        (
            "version",
            match &environment.commit {
                Some(commit) => format!("{}, commit {commit}", run.version),
                None => run.version.clone(),
            },
        ),
        ("backend", volume.backend.clone()),
        ("flags", volume.backend_flags.clone()),
    ];
    facts.extend(
        volume
            .backend_reasons
            .iter()
            .map(|reason| ("", reason.clone())),
    );
    facts.push((
        "volume",
        format!(
            "'{}', {}, chunk {}, {}",
            volume.name,
            format_bytes(volume.capacity_bytes),
            format_size(volume.chunk_bytes),
            words::members(run)
        ),
    ));
    if environment.devices.is_empty() {
        facts.push(("members", volume.members.join(", ")));
    }
    for (index, device) in environment.devices.iter().enumerate() {
        let name = if index == 0 { "members" } else { "" };
        let mut text = format!(
            "{}: {}, {}, blocks {}",
            device.path,
            device.kind,
            format_bytes(device.capacity_bytes),
            device.logical_block_bytes
        );
        if let Some(model) = &device.model {
            text.push_str(&format!(", {model}"));
        }
        if let Some(rate) = device.link.as_ref().map(|link| link.current)
            && let (Some(megatransfers), Some(lanes)) = (rate.megatransfers_per_s, rate.lanes)
        {
            let gigatransfers = words::plain(f64::from(megatransfers) / 1e3);
            text.push_str(&format!(", {gigatransfers} GT/s x{lanes}"));
        }
        if let Some(node) = device.numa_node {
            text.push_str(&format!(", NUMA node {node}"));
        }
        facts.push((name, text));
    }
    facts.push(("data", environment.preconditioning.clone()));
    if let Some(written) = &run.precondition {
        let part = |bytes: u64, ms: u64, how: &str| {
            let time = format_duration(Duration::from_millis(ms));
            (bytes > 0).then(|| format!("{} {how} in {time}", format_bytes(bytes)))
        };
        let parts = [
            part(
                written.sequential_bytes,
                written.sequential_ms,
                "sequentially",
            ),
            part(written.random_bytes, written.random_ms, "at random"),
        ];
        let verdict = written.random_steady.map(|steady| steady.verdict());
        let parts: Vec<String> = parts.into_iter().flatten().chain(verdict).collect();
        facts.push(("written before", parts.join(", ")));
    }
    if let Some(steady) = &run.steady_state {
        facts.push(("steady state", steady.to_string()));
    }
    facts.push((
        "run",
        format!(
            "seed {}, ramp {} ms, rounds {}",
            run.seed, run.ramp_ms, run.rounds
        ),
    ));
    page.push(format_args!("<dl>"));
    for (name, value) in facts.iter().filter(|fact| !fact.1.is_empty()) {
        page.push(format_args!(
            "<dt>{}</dt><dd>{}</dd>",
            escape(name),
            escape(value)
        ));
    }
    page.push(format_args!("</dl>"));
}

pub(super) fn command(page: &mut Page, run: &Run, heading: &str) {
    page.heading(heading);
    page.push(format_args!("<pre>{}</pre>", escape(&run.command)));
}
