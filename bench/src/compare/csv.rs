//! The cells of a comparison as CSV, one a row.

use std::io::Write;

use crate::compare::report::{Comparison, FioSide};

const COLUMNS: [&str; 19] = [
    "label",
    "state",
    "rw",
    "bs",
    "iodepth",
    "rounds",
    "swath_iops",
    "swath_cpu_ns_per_io",
    "swath_settings",
    "fio_iops",
    "fio_cpu_ns_per_io",
    "fio_settings",
    "ratio",
    "ratio_min",
    "ratio_max",
    "fio_defaults_iops",
    "fio_defaults_cpu_ns_per_io",
    "ratio_defaults",
    "noisy",
];

/// Writes a line of column names and a line for each cell. Columns of what was not run are empty.
///
/// # Errors
///
/// What the writer returns.
pub fn write_comparison_csv(report: &Comparison, output: impl Write) -> std::io::Result<()> {
    let mut writer = csv::Writer::from_writer(output);
    writer.write_record(COLUMNS)?;
    let shown = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for cell in &report.cells {
        let iops = |side: &Option<FioSide>| shown(side.as_ref().map(|side| side.medians.iops));
        let cpu =
            |side: &Option<FioSide>| shown(side.as_ref().map(|side| side.medians.cpu_ns_per_io));
        let ratio = cell.ratio.as_ref();
        let setting = cell.fio.as_ref().map(|side| side.setting.clone());
        writer.write_record([
            report.label.clone().unwrap_or_default(),
            report.state.to_string(),
            cell.rw.to_string(),
            cell.bs.to_string(),
            cell.iodepth.to_string(),
            cell.rounds.len().to_string(),
            cell.swath.medians.iops.to_string(),
            cell.swath.medians.cpu_ns_per_io.to_string(),
            cell.swath.settings.to_string(),
            iops(&cell.fio),
            cpu(&cell.fio),
            setting.unwrap_or_default(),
            shown(ratio.map(|ratio| ratio.median)),
            shown(ratio.map(|ratio| ratio.min)),
            shown(ratio.map(|ratio| ratio.max)),
            iops(&cell.fio_defaults),
            cpu(&cell.fio_defaults),
            shown(cell.ratio_defaults.as_ref().map(|ratio| ratio.median)),
            cell.noisy.to_string(),
        ])?;
    }
    writer.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::fixture;

    #[test]
    fn one_row_for_each_cell_and_as_many_fields_as_columns() {
        let mut report = fixture::comparison();
        report.cells[1].fio_defaults = None;
        let mut bytes = Vec::new();
        write_comparison_csv(&report, &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[1].starts_with(",written,randread,4096,128,3,1200,"),
            "{}",
            lines[1]
        );
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        assert!(
            reader
                .records()
                .all(|row| row.unwrap().len() == COLUMNS.len())
        );
    }
}
