//! Several runs as one.
//!
//! Only runs that were made alike are: same program, machine, members and settings. Cells that one
//! of them has are taken over; of a cell that several have, all rounds count, and the numbers are
//! those of the run whose bandwidth is the median (of an even number, the lower of the middle two).

use std::collections::BTreeMap;

use super::changes::{conditions, order};
use super::{Run, RunCell};
use crate::error::{Error, ErrorKind, Result};

/// Merges runs, of which there is at least one.
///
/// # Errors
///
/// There is none, or they are unlike; the message names both files, the line and the field.
pub fn merge(runs: Vec<Run>) -> Result<Run> {
    let mut runs = runs.into_iter();
    let mut first = runs
        .next()
        .ok_or_else(|| Error::usage("there is no report to read"))?;
    let others: Vec<Run> = runs.collect();
    if others.is_empty() {
        return Ok(first);
    }
    let mut cells: BTreeMap<_, Vec<RunCell>> = BTreeMap::new();
    for cell in &first.cells {
        cells
            .entry(order(cell.key()))
            .or_default()
            .push(cell.clone());
    }
    for other in &others {
        check_alike(&first, other)?;
        for (index, cell) in other.cells.iter().enumerate() {
            let same = cells.entry(order(cell.key())).or_default();
            if let Some(known) = same.first().filter(|known| known.state != cell.state) {
                let field = format!("cells.{index}.state");
                let message = format!(
                    "{}: field 'cells[{index}].state' ({} {}) is '{}', and {} has '{}': such runs \
                     cannot be merged",
                    other.place(&field),
                    cell.rw,
                    crate::size::format_size(cell.bs),
                    cell.state,
                    first.source,
                    known.state
                );
                return Err(Error::new(ErrorKind::Refused, message));
            }
            same.push(cell.clone());
        }
    }
    first.cells = cells.into_values().filter_map(pool).collect();
    for other in others {
        first.source = format!("{}, {}", first.source, other.source);
        first.command = format!("{}\n{}", first.command, other.command);
        first.interrupted |= other.interrupted;
        first.label = match (first.label.take(), other.label) {
            (Some(one), Some(more)) if one != more => Some(format!("{one}, {more}")),
            (one, more) => one.or(more),
        };
        for note in other.notes {
            if !first.notes.contains(&note) {
                first.notes.push(note);
            }
        }
        first.workloads.extend(other.workloads);
        first.environment.date = format!("{}, {}", first.environment.date, other.environment.date);
    }
    let rounds = first.cells.iter().map(|cell| cell.bw_bytes_rounds.len());
    first.rounds = u32::try_from(rounds.max().unwrap_or(1)).unwrap_or(u32::MAX);
    Ok(first)
}

fn check_alike(first: &Run, other: &Run) -> Result<()> {
    let unlike = |field: &str, one: &str, two: &str| {
        let message = format!(
            "{}: field '{field}' is '{two}', and {} has '{one}': such runs cannot be merged; \
             --compare shows two beside each other",
            other.place(field),
            first.place(field)
        );
        Err(Error::new(ErrorKind::Refused, message))
    };
    if first.kind != other.kind {
        return unlike("kind", &first.kind.to_string(), &other.kind.to_string());
    }
    for ((field, one), (_, two)) in conditions(first).into_iter().zip(conditions(other)) {
        if one != two {
            return unlike(field, &one, &two);
        }
    }
    Ok(())
}

/// One cell of several runs as one.
fn pool(mut same: Vec<RunCell>) -> Option<RunCell> {
    let rounds: Vec<u64> = same
        .iter()
        .flat_map(|cell| match cell.rounds() {
            [] => vec![cell.bw_bytes],
            rounds => rounds.to_vec(),
        })
        .collect();
    let are_steady = same
        .iter()
        .all(|cell| cell.steady.is_none_or(|steady| steady.is_steady));
    same.sort_by_key(|cell| cell.bw_bytes);
    let middle = same.len().checked_sub(1)? / 2;
    let mut cell = same.swap_remove(middle);
    if let Some(steady) = &mut cell.steady {
        // All rounds that are kept are of a window.
        steady.window = u32::try_from(rounds.len()).unwrap_or(u32::MAX);
        steady.is_steady &= are_steady;
    }
    cell.bw_bytes_rounds = rounds;
    Some(cell)
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use crate::steady::{SteadyOptions, SteadyReport};

    #[test]
    fn runs_made_alike_become_one_with_all_rounds() {
        let runs = [1.0, 1.3, 1.1].map(|speed| fixture::full("x.json", speed, 2));
        let expected = runs[2].cells[0].bw_bytes;
        let run = merge(runs.to_vec()).unwrap();
        assert_eq!(run.cells.len(), 36);
        assert_eq!(run.cells[0].bw_bytes, expected);
        assert_eq!(run.cells[0].bw_bytes_rounds.len(), 6);
        assert_eq!(run.rounds, 6);
        assert_eq!(run.command.lines().count(), 3);
    }

    #[test]
    fn cells_of_one_run_alone_are_taken_over() {
        let (mut one, mut other) = (fixture::full("a", 1.0, 1), fixture::full("b", 1.0, 1));
        one.cells.retain(|cell| cell.rw.is_write());
        other.cells.retain(|cell| !cell.rw.is_write());
        let run = merge(vec![one, other]).unwrap();
        assert_eq!(run.cells.len(), 36);
        assert_eq!(run.patterns().len(), 4);
        assert_eq!(run.source, "a, b");
    }

    #[test]
    fn windows_of_steady_cells_are_pooled_and_one_that_was_not_steady_is_told() {
        let steady = |is_steady| {
            let mut run = fixture::full("x.json", 1.0, 7);
            run.steady_state = Some(SteadyOptions::default());
            for cell in &mut run.cells {
                cell.steady = Some(SteadyReport {
                    is_steady,
                    rounds: 7,
                    window: 5,
                    spread_percent: 1.0,
                    slope_percent: 1.0,
                });
            }
            run
        };
        let run = merge(vec![steady(true), steady(false)]).unwrap();
        assert_eq!(run.cells[0].rounds().len(), 10);
        assert!(!run.cells[0].steady.unwrap().is_steady);
        let plain = fixture::full("x.json", 1.0, 7);
        let message = merge(vec![plain, steady(true)]).unwrap_err().to_string();
        assert!(
            message.contains("field 'steady_state' is 'spread:20%"),
            "{message}"
        );
    }

    #[test]
    fn what_a_verifying_run_took_is_no_round_of_a_measured_one() {
        let mut verified = fixture::full("x.json", 1.0, 1);
        verified.verify = Some(serde::de::IgnoredAny);
        let measured = fixture::full("x.json", 1.0, 1);
        let message = merge(vec![measured, verified]).unwrap_err().to_string();
        assert!(
            message.contains("field 'verify' is 'that of a verifying run'"),
            "{message}"
        );
    }

    #[test]
    fn unlike_runs_are_refused_with_file_line_and_field() {
        let json = fixture::json();
        let text = json.replace("\"kernel\": \"6.18\"", "\"kernel\": \"7.0\"");
        let line = text
            .lines()
            .position(|line| line.contains("\"7.0\""))
            .unwrap()
            + 1;
        let other = super::super::of_json("b.json", text).unwrap();
        let message = merge(vec![fixture::run(), other]).unwrap_err().to_string();
        for part in [
            &format!("b.json:{line}: field 'environment.kernel' is '7.0'"),
            &format!("a.json:{line} has '6.18'"),
        ] {
            assert!(message.contains(part), "'{part}' is not in '{message}'");
        }

        let text = json.replace("\"state\": \"unwritten\"", "\"state\": \"written\"");
        let other = super::super::of_json("b.json", text).unwrap();
        let message = merge(vec![fixture::run(), other]).unwrap_err().to_string();
        assert!(
            message.contains("field 'cells[0].state' (read 4k) is 'written'"),
            "{message}"
        );
        assert_eq!(merge(Vec::new()).unwrap_err().exit_code(), 2);
    }
}
