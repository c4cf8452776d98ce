//! What commands print on standard output: fields as mdadm lays them out, tables, and JSON.

use std::fmt::{Display, Write as _};
use std::io::Write as _;

use serde::Serialize;

use crate::failure::{Failure, Result};

/// Width of the names of fields, right-aligned up to the colon.
const NAME_WIDTH: usize = 16;

/// Text in the making: fields, tables, lines.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

impl Text {
    /// A line as it is.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) -> &mut Self {
        self.0.push_str(line.as_ref());
        self.0.push('\n');
        self
    }

    /// `      Name : value`.
    pub(crate) fn field(&mut self, name: &str, value: &dyn Display) -> &mut Self {
        let line = format!("{name:>NAME_WIDTH$} : {value}");
        self.line(line.trim_end())
    }

    /// Columns under their heads, each as wide as its widest cell; all but the last are
    /// right-aligned.
    pub(crate) fn table<const COLUMNS: usize>(
        &mut self,
        heads: [&str; COLUMNS],
        rows: &[[String; COLUMNS]],
    ) -> &mut Self {
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([heads[column].len()]).max().unwrap_or(0)
        };
        let widths: [usize; COLUMNS] = std::array::from_fn(width);
        self.row(&heads.map(str::to_owned), &widths);
        for row in rows {
            self.row(row, &widths);
        }
        self
    }

    fn row(&mut self, cells: &[String], widths: &[usize]) {
        let last = cells.len() - 1;
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let _ = if column == last {
                write!(self.0, "   {cell}")
            } else {
                write!(self.0, "   {cell:>width$}")
            };
        }
        // An empty last cell leaves no blanks behind.
        self.0.truncate(self.0.trim_end_matches(' ').len());
        self.0.push('\n');
    }

    /// What there is so far.
    #[cfg(test)]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Writes it all to standard output.
    pub(crate) fn print(&self) -> Result<()> {
        to_stdout(self.0.as_bytes())
    }
}

/// Writes one JSON object to standard output.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    to_stdout(&text)
}

/// Writes text to standard output as it is.
pub(crate) fn raw(text: &str) -> Result<()> {
    to_stdout(text.as_bytes())
}

fn to_stdout(bytes: &[u8]) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        .map_err(|error| Failure::output(error, "standard output"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_tables_line_up() {
        let mut text = Text::default();
        text.field("Name", &"scratch")
            .field("Raid Devices", &2)
            .table(
                ["Number", "Path"],
                &[
                    ["0".to_owned(), "/a".to_owned()],
                    ["11".to_owned(), "/b".to_owned()],
                ],
            );
        let want = "            Name : scratch\n    Raid Devices : 2\n   \
                    Number   Path\n        0   /a\n       11   /b\n";
        assert_eq!(text.0, want);
    }
}
