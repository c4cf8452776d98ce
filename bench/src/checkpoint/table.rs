//! A run of checkpoints as text: its conditions, a line for each phase, and one for each peer's.

use std::fmt::Write;

use crate::checkpoint::memory::Pages;
use crate::checkpoint::phase::Phase;
use crate::checkpoint::report::{CheckpointReport, PeerPhaseReport};
use crate::report::table::{gigabytes, row, table};
use crate::report::{format_bandwidth, render_backend, render_conditions};
use crate::size::format_bytes;

/// What is measured and where. Known before the first round.
pub fn render_checkpoint_header(report: &CheckpointReport) -> String {
    let mut text = format!("swath-checkpoint {}", report.version);
    if let Some(label) = &report.label {
        let _ = write!(text, ": {label}");
    }
    let (model, conditions) = (&report.model, &report.conditions);
    let ranks = match (conditions.processes, conditions.ranks) {
        (false, 1) => "thread",
        (false, _) => "threads",
        (true, 1) => "process",
        (true, _) => "processes",
    };
    let pages = match conditions.pages {
        Pages::Huge => "huge pages",
        Pages::Plain => "plain pages",
    };
    let aligned = if conditions.aligned {
        "aligned for direct I/O"
    } else {
        "not aligned for direct I/O: copied"
    };
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "\n  model     {} of {}: {} in {} tensors ({} below 1 MiB, the largest {}), {} layers of \
         width {}\n  ranks     {} {ranks}, {} transfers of 1 MiB in flight on each\n  \
         memory    saved from {} of {pages}, {aligned}; loaded into {}\n",
        model.shape,
        format_bytes(model.full_size_bytes),
        format_bytes(model.bytes),
        model.tensors,
        model.small_tensors,
        format_bytes(model.largest_bytes),
        model.layers,
        model.width,
        conditions.ranks,
        conditions.iodepth,
        format_bytes(conditions.source_bytes),
        format_bytes(conditions.target_bytes),
    );
    text + &render_conditions(&report.volume, &report.environment, &report.notes)
}

/// All tables, ready to print. Says so when there is nothing to show.
pub fn render_checkpoint_tables(report: &CheckpointReport) -> String {
    if report.phases.is_empty() {
        return "nothing was measured\n".to_owned();
    }
    let mut text = format!("\n{}", render_backend(&report.volume));
    let rounds = report.conditions.rounds;
    let _ = write!(
        text,
        "\nSaves and loads, median of {rounds}\n{}\n",
        phases(report)
    );
    text.push_str(&sentences(report));
    if !report.peers.is_empty() {
        let _ = write!(text, "\nPeers, median of {rounds}\n{}\n", peers(report));
        text.push_str(&peer_sentences(report));
    }
    text
}

fn phases(report: &CheckpointReport) -> comfy_table::Table {
    let header = ["phase", "GB/s", "of raw", "CPU s/GB", "peak memory"];
    let mut table = table(&header.map(str::to_owned), 1);
    for phase in &report.phases {
        let peak = phase
            .peak_bytes
            .map_or_else(|| "?".to_owned(), format_bytes);
        let ratio = phase
            .ratio
            .map_or_else(String::new, |it| format!("{it:.3}"));
        table.add_row(row(
            &[
                phase.phase.to_string(),
                gigabytes(phase.bw_bytes),
                ratio,
                format!("{:.3}", phase.cpu_s_per_gb),
                peak,
            ],
            1,
        ));
    }
    table
}

fn sentences(report: &CheckpointReport) -> String {
    let millis = |ns: u64| ns as f64 / 1e6;
    let (commit, stall) = (&report.commit_ns, &report.stall_ns);
    let mut text = format!(
        " commit: {:.1} ms (median of {}), {:.1} ms at most; the flush behind a raw write: {:.1} ms\n",
        millis(commit.p50),
        commit.count,
        millis(commit.max),
        millis(report.flush_ns.p50),
    );
    if stall.count > 0 {
        let _ = writeln!(
            text,
            " save_async keeps its caller {:.1} ms (median of {}), {:.1} ms at most; its snapshot \
             has up to {}",
            millis(stall.p50),
            stall.count,
            millis(stall.max),
            format_bytes(report.conditions.snapshot_bytes),
        );
    }
    let _ = writeln!(
        text,
        " checksums: {:.3} CPU seconds for a GB",
        report.checksum_cpu_s_per_gb
    );
    text.push_str(if report.compared {
        " every byte that was loaded was compared with what was saved\n"
    } else {
        " nothing that was loaded was compared with what was saved\n"
    });
    if let Some(save) = report.phase(Phase::Save) {
        let _ = writeln!(text, " save: {}", format_bandwidth(save.bw_bytes));
    }
    if let Some(load) = report.phase(Phase::LoadVerified) {
        let _ = writeln!(text, " load: {}", format_bandwidth(load.bw_bytes));
    }
    text
}

/// What a reader must know of the peers' figures.
fn peer_sentences(report: &CheckpointReport) -> String {
    let mut text = String::from(
        " peers have one thread and write through the page cache; the fsync of files and directory \
         counts; their files are not preallocated\n before each load the files are dropped from the \
         page cache (posix_fadvise DONTNEED, after fsync)\n",
    );
    let phases = || report.peers.iter().flat_map(|peer| &peer.phases);
    if phases().any(PeerPhaseReport::is_hot) {
        text.push_str(
            " HOT: much came from the page cache all the same, so it is not compared with direct \
             I/O\n",
        );
    }
    if phases().any(|phase| phase.phase.is_load() && phase.device_ratio.is_none()) {
        text.push_str(
            " cache?: the kernel does not tell whether these loads came from the device\n",
        );
    }
    if report.phase(Phase::SaveFirst).is_some() {
        text.push_str(
            " swath's first write goes to members whose blocks are reserved and were never written\n",
        );
    }
    text
}

fn peers(report: &CheckpointReport) -> comfy_table::Table {
    let header = [
        "peer",
        "version",
        "phase",
        "how",
        "compared with",
        "GB/s",
        "swath / peer",
        "CPU s/GB",
        "peak memory",
    ];
    let mut table = table(&header.map(str::to_owned), 5);
    for peer in &report.peers {
        for phase in &peer.phases {
            let ratio = phase.swath_ratio;
            table.add_row(row(
                &[
                    peer.name.clone(),
                    peer.version.clone(),
                    phase.phase.to_string(),
                    how(phase),
                    phase.compared_with.to_string(),
                    gigabytes(phase.bw_bytes),
                    ratio.map_or_else(|| "-".to_owned(), |it| format!("{it:.2}")),
                    format!("{:.3}", phase.cpu_s_per_gb),
                    phase
                        .peak_bytes
                        .map_or_else(|| "?".to_owned(), format_bytes),
                ],
                5,
            ));
        }
    }
    table
}

fn how(phase: &PeerPhaseReport) -> String {
    let mut text = phase.how.clone();
    if phase.phase.is_load() {
        // More than all: some was read twice.
        let percent = phase.device_ratio.map(|ratio| ratio.min(1.0) * 100.0);
        let _ = match percent {
            Some(percent) if phase.is_hot() => {
                write!(text, ", HOT: {percent:.0} % from the device")
            }
            Some(percent) => write!(text, ", {percent:.0} % from the device"),
            None => write!(text, ", cache?"),
        };
    }
    text
}
