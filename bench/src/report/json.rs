//! The report as JSON: the names of the fields are a promise to whoever reads them later.

use std::io::{self, Write};

use serde::Serialize;

/// Writes a report, indented, with a line end.
///
/// # Errors
///
/// What the writer returns.
pub fn write_json(report: &impl Serialize, mut output: impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut output, report)?;
    output.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use serde_json::Value;

    use super::*;

    fn parsed(with_baseline: bool) -> Value {
        let mut bytes = Vec::new();
        write_json(&fixture::report(with_baseline), &mut bytes).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    fn require(value: &Value, keys: &[&str]) {
        for key in keys {
            assert!(value.get(key).is_some(), "'{key}' is missing in {value}");
        }
    }

    #[test]
    fn every_promised_field_is_there() {
        let report = parsed(true);
        require(
            &report,
            &["command", "version", "environment", "volume", "cells"],
        );
        assert_eq!(report["kind"], "matrix");
        assert_eq!(report["format"], 1);
        require(&report["cells"][0]["lat_ns_bins"], &["61439", "2097151"]);
        require(
            &report["volume"],
            &["members", "chunk_bytes", "capacity_bytes", "backend"],
        );
        let cell = &report["cells"][0];
        require(
            cell,
            &[
                "rw",
                "bs",
                "iodepth",
                "numjobs",
                "runtime_ms",
                "ios",
                "bytes",
                "iops",
            ],
        );
        require(cell, &["bw_bytes", "lat_ns", "cpu_ns_per_io", "state"]);
        require(
            &cell["lat_ns"],
            &["mean", "p50", "p99", "p99_9", "p99_99", "max"],
        );
        require(cell, &["baseline_bw_bytes", "efficiency"]);
        assert_eq!(cell["rw"], "read");
        assert_eq!(cell["bs"], 4096);
        assert_eq!(cell["state"], "unwritten");
        assert_eq!(cell["efficiency"], 0.95);
    }

    #[test]
    fn the_baseline_is_there_only_when_it_was_run() {
        let cell = &parsed(false)["cells"][0];
        assert!(cell.get("efficiency").is_none());
        assert!(cell.get("baseline_bw_bytes").is_none());
    }
}
