//! A run of checkpoints as text: its conditions, a line for each phase, and one for each peer's.

use std::fmt::Write;

use crate::checkpoint::memory::Pages;
use crate::checkpoint::report::CheckpointReport;
use crate::checkpoint::trial::Phase;
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
    let plural = if conditions.ranks == 1 { "" } else { "s" };
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
         width {}\n  ranks     {} thread{plural}, {} transfers of 1 MiB in flight on each\n  \
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
        " commit: {:.1} ms (median of {}), {:.1} ms at most; the flush behind a raw write: {:.1} ms\n \
         save_async keeps its caller {:.1} ms \
         (median of {}), {:.1} ms at most; its snapshot has up to {}\n checksums: {:.3} CPU seconds \
         for a GB\n",
        millis(commit.p50),
        commit.count,
        millis(commit.max),
        millis(report.flush_ns.p50),
        millis(stall.p50),
        stall.count,
        millis(stall.max),
        format_bytes(report.conditions.snapshot_bytes),
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

fn peers(report: &CheckpointReport) -> comfy_table::Table {
    let header = [
        "peer",
        "version",
        "phase",
        "compared with",
        "GB/s",
        "swath / peer",
        "CPU s/GB",
        "peak memory",
    ];
    let mut table = table(&header.map(str::to_owned), 4);
    for peer in &report.peers {
        for phase in &peer.phases {
            let ratio = phase.swath_ratio;
            table.add_row(row(
                &[
                    peer.name.clone(),
                    peer.version.clone(),
                    phase.phase.to_string(),
                    phase.compared_with.to_string(),
                    gigabytes(phase.bw_bytes),
                    ratio.map_or_else(|| "?".to_owned(), |it| format!("{it:.2}")),
                    format!("{:.3}", phase.cpu_s_per_gb),
                    phase
                        .peak_bytes
                        .map_or_else(|| "?".to_owned(), format_bytes),
                ],
                4,
            ));
        }
    }
    table
}
