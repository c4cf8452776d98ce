//! The phases of a run of checkpoints as CSV, one a row, ours and the peers', for spreadsheets.

use std::io::{Result, Write};

use crate::checkpoint::report::CheckpointReport;

const COLUMNS: [&str; 25] = [
    "label",
    "program",
    "version",
    "phase",
    "how",
    "model",
    "bytes",
    "tensors",
    "ranks",
    "processes",
    "iodepth",
    "pages",
    "aligned",
    "rounds",
    "bw_bytes",
    "cpu_s_per_gb",
    "peak_bytes",
    "limit",
    "ratio",
    "compared_with",
    "swath_ratio",
    "device_ratio",
    "backend",
    "members",
    "interrupted",
];

/// Writes a line of column names and a line for each phase. `limit` and `ratio` are of our phases,
/// the three columns behind them of the peers'; what does not apply, or is not known, is empty.
///
/// # Errors
///
/// What the writer returns.
pub fn write_checkpoint_csv(report: &CheckpointReport, output: impl Write) -> Result<()> {
    let mut writer = csv::Writer::from_writer(output);
    writer.write_record(COLUMNS)?;
    let conditions = &report.conditions;
    let mut write = |program: &Program<'_>, what: What| {
        let (ranks, processes) = if program.is_peer {
            (1, true)
        } else {
            (conditions.ranks, conditions.processes)
        };
        let swath_only = |text: String| if program.is_peer { String::new() } else { text };
        writer.write_record([
            report.label.clone().unwrap_or_default(),
            program.name.to_owned(),
            program.version.to_owned(),
            what.phase,
            what.how,
            report.model.shape.to_string(),
            report.model.bytes.to_string(),
            report.model.tensors.to_string(),
            ranks.to_string(),
            processes.to_string(),
            swath_only(conditions.iodepth.to_string()),
            swath_only(conditions.pages.to_string()),
            swath_only(conditions.aligned.to_string()),
            conditions.rounds.to_string(),
            what.bw_bytes.to_string(),
            what.cpu_s_per_gb.to_string(),
            or_empty(what.peak_bytes),
            or_empty(what.limit),
            or_empty(what.ratio),
            or_empty(what.compared_with),
            or_empty(what.swath_ratio),
            or_empty(what.device_ratio),
            swath_only(report.volume.backend.clone()),
            swath_only(report.volume.members.len().to_string()),
            report.interrupted.to_string(),
        ])
    };
    let ours = Program {
        name: "swath",
        version: report.version,
        is_peer: false,
    };
    for phase in &report.phases {
        let what = What {
            phase: phase.phase.to_string(),
            bw_bytes: phase.bw_bytes,
            cpu_s_per_gb: phase.cpu_s_per_gb,
            peak_bytes: phase.peak_bytes,
            limit: phase.limit.map(|limit| limit.name()),
            ratio: phase.ratio,
            ..What::default()
        };
        write(&ours, what)?;
    }
    for peer in &report.peers {
        let program = Program {
            name: &peer.name,
            version: &peer.version,
            is_peer: true,
        };
        for phase in &peer.phases {
            let what = What {
                phase: phase.phase.to_string(),
                how: phase.how.clone(),
                bw_bytes: phase.bw_bytes,
                cpu_s_per_gb: phase.cpu_s_per_gb,
                peak_bytes: phase.peak_bytes,
                compared_with: Some(phase.compared_with.name()),
                swath_ratio: phase.swath_ratio,
                device_ratio: phase.device_ratio,
                ..What::default()
            };
            write(&program, what)?;
        }
    }
    writer.flush()
}

/// Whose phase it is.
struct Program<'a> {
    name: &'a str,
    version: &'a str,
    is_peer: bool,
}

/// What differs from row to row.
#[derive(Default)]
struct What {
    phase: String,
    how: String,
    bw_bytes: u64,
    cpu_s_per_gb: f64,
    peak_bytes: Option<u64>,
    limit: Option<&'static str>,
    ratio: Option<f64>,
    compared_with: Option<&'static str>,
    swath_ratio: Option<f64>,
    device_ratio: Option<f64>,
}

fn or_empty(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}
