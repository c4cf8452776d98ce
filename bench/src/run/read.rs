//! Reading a report, and refusing what is none.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Run, RunKind};
use crate::error::{Error, ErrorKind, Result};
use crate::report::REPORT_FORMAT;

/// No report of ours comes near; what is larger was named by mistake.
const REPORT_BYTES_MAX: u64 = 64 << 20;

/// What a report says of itself, read before the rest of it.
#[derive(Deserialize)]
struct Head {
    kind: Option<String>,
    format: Option<u64>,
    version: Option<String>,
    // What reports had before they told their format, and what fio's have.
    cells: Option<serde::de::IgnoredAny>,
    phases: Option<serde::de::IgnoredAny>,
    #[serde(rename = "fio version")]
    fio_version: Option<serde::de::IgnoredAny>,
}

/// Reads the report in a file.
///
/// # Errors
///
/// It cannot be read, is no JSON, or no report of this version; the message names the file and,
/// where there is one, the line, the column and the field.
pub fn read(path: &Path) -> Result<Run> {
    let source = path.display().to_string();
    let fail = |cause| Error::failed(format!("cannot read the report {source}"), cause);
    let file = File::open(path).map_err(fail)?;
    let mut bytes = Vec::new();
    file.take(REPORT_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(fail)?;
    if bytes.len() as u64 > REPORT_BYTES_MAX {
        return Err(refusal(&source, "too large to be a report"));
    }
    let text = String::from_utf8(bytes).map_err(|cause| {
        refusal(&source, "not a JSON report: it is not text").with_source(cause.utf8_error())
    })?;
    of_json(&source, text)
}

/// Reads a report; `source` is what messages call it.
///
/// # Errors
///
/// As [`read`].
pub fn of_json(source: &str, text: String) -> Result<Run> {
    if text.trim().is_empty() {
        return Err(refusal(source, "it is empty"));
    }
    let run = parsed(source, text)?;
    check(&run)?;
    Ok(run)
}

/// The run of which this is the report; none when nothing was measured.
pub(super) fn of_report(source: &str, text: String) -> Result<Option<Run>> {
    let run = parsed(source, text)?;
    if is_empty(&run) {
        return Ok(None);
    }
    check(&run)?;
    Ok(Some(run))
}

/// A report whose fields are what they should be, whatever they say.
fn parsed(source: &str, text: String) -> Result<Run> {
    let head: Head = parse(source, &text)?;
    let kind = check_head(source, &text, &head)?;
    let mut run: Run = parse(source, &text)?;
    run.kind = kind;
    run.source = source.to_owned();
    run.text = text;
    Ok(run)
}

fn is_empty(run: &Run) -> bool {
    let mut workloads = run.workloads.iter();
    run.cells.is_empty() && workloads.all(|workload| workload.points.is_empty())
}

fn refusal(source: &str, message: &str) -> Error {
    Error::new(ErrorKind::Refused, format!("{source}: {message}"))
}

fn parse<T: DeserializeOwned>(source: &str, text: &str) -> Result<T> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        located(source, &path, &error.into_inner())
    })?;
    // What stands behind the report belongs to no field.
    let end = deserializer.end();
    end.map_err(|cause| located(source, ".", &cause))?;
    Ok(value)
}

/// `b.json:3:15: field 'seed': invalid type ...`.
fn located(source: &str, path: &str, cause: &serde_json::Error) -> Error {
    let (line, column) = (cause.line(), cause.column());
    let message = cause.to_string();
    let place = format!(" at line {line} column {column}");
    let message = message.strip_suffix(&place).unwrap_or(&message);
    let field = match path {
        "." | "?" => String::new(),
        path => format!("field '{path}': "),
    };
    refusal(
        &format!("{source}:{line}:{column}"),
        &format!("{field}{message}"),
    )
}

fn check_head(source: &str, text: &str, head: &Head) -> Result<RunKind> {
    let place = |field: &str| match super::position::line_of(text, field) {
        Some(line) => format!("{source}:{line}"),
        None => source.to_owned(),
    };
    if head.fio_version.is_some() {
        let place = place("fio version");
        let message = "field 'fio version': this is fio's report; 'swath-compare' runs fio and \
                       Swath in turn";
        return Err(refusal(&place, message));
    }
    if head.phases.is_some() {
        let message = "field 'phases': this is a report of swath-checkpoint, which has no page yet";
        return Err(refusal(&place("phases"), message));
    }
    let version = head.version.as_deref().unwrap_or("unknown");
    match head.format {
        Some(format) if format == u64::from(REPORT_FORMAT) => {}
        Some(format) => {
            return Err(refusal(
                &place("format"),
                &format!(
                    "field 'format': the report has format {format} (of version {version}), and \
                     this program reads format {REPORT_FORMAT}: use that version, or measure again"
                ),
            ));
        }
        None if head.cells.is_some() => {
            return Err(refusal(
                &place("version"),
                &format!(
                    "field 'format' is missing: the report is from before reports had one (version \
                     {version}), and this program reads format {REPORT_FORMAT}: measure again"
                ),
            ));
        }
        None => {
            return Err(refusal(
                source,
                "field 'format' is missing: not a report of Swath's",
            ));
        }
    }
    match head.kind.as_deref() {
        Some("matrix") => Ok(RunKind::Matrix),
        Some("threads") => Ok(RunKind::Threads),
        Some("curve") => Ok(RunKind::Curve),
        Some(kind) => Err(refusal(
            &place("kind"),
            &format!("field 'kind': '{kind}' is none of matrix, threads and curve"),
        )),
        None => Err(refusal(
            source,
            "field 'kind' is missing: not a report of Swath's",
        )),
    }
}

/// Sees that what the report says can be counted with.
fn check(run: &Run) -> Result<()> {
    let wrong = |path: &str, message: &str| {
        let shown = path.replace("cells.", "cells[").replacen('.', "].", 1);
        let field = if path.starts_with("cells.") {
            &shown
        } else {
            path
        };
        Err(refusal(
            &run.place(path),
            &format!("field '{field}': {message}"),
        ))
    };
    if is_empty(run) {
        let field = if run.kind == RunKind::Curve {
            "workloads"
        } else {
            "cells"
        };
        return wrong(field, "nothing was measured");
    }
    if run.volume.members.is_empty() {
        return wrong("volume.members", "a volume has members");
    }
    for (index, cell) in run.cells.iter().enumerate() {
        let path = |field: &str| format!("cells.{index}.{field}");
        if cell.bs == 0 {
            return wrong(&path("bs"), "a request of no bytes");
        }
        if cell.iops.is_nan() || cell.iops <= 0.0 || cell.bw_bytes == 0 {
            let field = if cell.bw_bytes == 0 {
                "bw_bytes"
            } else {
                "iops"
            };
            return wrong(&path(field), "nothing was moved");
        }
        if cell.numjobs == 0 {
            return wrong(&path("numjobs"), "no lane");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[track_caller]
    fn refused(text: &str, parts: &[&str]) {
        let message = of_json("b.json", text.to_owned()).unwrap_err().chain();
        for part in parts {
            assert!(message.contains(part), "'{part}' is not in '{message}'");
        }
    }

    #[test]
    fn what_a_bench_writes_is_read_again() {
        let run = fixture::run();
        assert_eq!(run.kind, RunKind::Matrix);
        assert_eq!(run.cells.len(), 2);
        assert_eq!(run.cells[0].lat_ns_bins.total(), 950_000);
        assert_eq!(run.cells[0].efficiency, Some(0.95));
        assert_eq!(run.volume.members.len(), 2);
    }

    #[test]
    fn broken_json_is_refused_with_line_and_column() {
        let text = fixture::json();
        let cut = &text[..text.find("\"environment\"").unwrap() + 20];
        refused(cut, &["b.json:", "EOF while parsing"]);
        refused("{\n  \"kind\": \"matrix\",,\n}", &["b.json:2:20: "]);
        refused("", &["b.json: it is empty"]);
        refused(&format!("{text}\n{{"), &["trailing characters"]);
        refused("[1, 2]", &["b.json:1:", "invalid type"]);
    }

    #[test]
    fn a_field_of_another_type_is_named_with_its_path_and_line() {
        let text = fixture::json().replace("\"iodepth\": 128", "\"iodepth\": \"deep\"");
        let line = text.lines().position(|line| line.contains("deep")).unwrap() + 1;
        refused(
            &text,
            &[
                &format!("b.json:{line}:"),
                "field 'cells[0].iodepth'",
                "\"deep\"",
            ],
        );
        let text = fixture::json().replace("\"kernel\"", "\"colonel\"");
        refused(&text, &["field 'environment'", "missing field `kernel`"]);
        let text = fixture::json().replace("\"rw\": \"read\"", "\"rw\": \"sideways\"");
        refused(&text, &["field 'cells[0].rw'", "sideways"]);
    }

    #[test]
    fn reports_of_other_versions_and_other_programs_are_refused() {
        let text = fixture::json().replace("\"format\": 1", "\"format\": 2");
        refused(
            &text,
            &[
                "b.json:3: field 'format'",
                "format 2",
                "version 0.1.0",
                "format 1",
            ],
        );
        // As version 0.1.0 wrote it before there was a format.
        let older = "{\n  \"command\": \"swath-matrix\",\n  \"version\": \"0.1.0\",\n  \
                     \"cells\": []\n}\n";
        refused(
            older,
            &["b.json:3: field 'format' is missing", "measure again"],
        );
        refused("{}", &["not a report of Swath's"]);
        refused(
            "{\"fio version\": \"fio-3.33\"}",
            &["b.json:1:", "fio's report"],
        );
        refused(
            "{\"version\": \"0.1.0\", \"phases\": []}",
            &["swath-checkpoint"],
        );
        let text = fixture::json().replace("\"kind\": \"matrix\"", "\"kind\": \"cube\"");
        refused(&text, &["b.json:2: field 'kind'", "'cube'"]);
    }

    #[test]
    fn a_curve_is_read_by_its_workloads() {
        let mut value: serde_json::Value = serde_json::from_str(&fixture::json()).unwrap();
        let latency = value["cells"][0]["lat_ns"].clone();
        let fields = value.as_object_mut().unwrap();
        for field in ["cells", "rounds"] {
            fields.remove(field);
        }
        value["kind"] = "curve".into();
        value["workloads"] = serde_json::json!([{"name": "4K random read", "read_percent": 100.0,
            "seek_percent": 100.0, "sizes": [{"bytes": 4096, "percent": 100.0}],
            "points": [{"percent": null, "achieved_iops": 5e5, "lat_ns": latency}]}]);
        let run = of_json("c.json", value.to_string()).unwrap();
        assert_eq!(run.kind, RunKind::Curve);
        let corner = run.workloads[0].corner();
        assert_eq!(corner, Some((crate::workload::Pattern::RandRead, 4096)));
        assert_eq!(run.workloads[0].points[0].percent, None);
        value["workloads"][0]["points"] = serde_json::json!([]);
        refused(
            &value.to_string(),
            &["field 'workloads': nothing was measured"],
        );
        assert!(Run::of(&value).unwrap().is_none());
    }

    #[test]
    fn what_a_bench_has_measured_is_read_without_a_file() {
        let report = crate::report::fixture::report(true);
        let run = Run::of(&report).unwrap().unwrap();
        assert_eq!(run.cells.len(), 2);
        let curve = crate::curve::fixture::report();
        let run = Run::of(&curve).unwrap().unwrap();
        assert_eq!(run.workloads.len(), curve.workloads.len());
    }

    #[test]
    fn numbers_that_cannot_be_counted_with_are_refused() {
        let text = fixture::json().replacen("\"bs\": 4096", "\"bs\": 0", 1);
        refused(&text, &["field 'cells[0].bs'"]);
        let mut nothing: serde_json::Value = serde_json::from_str(&fixture::json()).unwrap();
        nothing["cells"] = serde_json::json!([]);
        refused(
            &nothing.to_string(),
            &["field 'cells': nothing was measured"],
        );
        let text = fixture::json().replacen("\"numjobs\": 1", "\"numjobs\": 1e999", 1);
        refused(&text, &["b.json:", "number out of range"]);
    }
}
