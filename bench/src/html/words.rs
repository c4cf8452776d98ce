//! How pages write numbers and name things.

use crate::report::table::{gigabytes, mark_of, three_digits};
use crate::report::{format_rate, whole};
use crate::run::{Run, RunCell};
use crate::size::format_size;
use crate::workload::Pattern;

/// `sequential read`.
pub(super) fn name(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Read => "sequential read",
        Pattern::Write => "sequential write",
        Pattern::RandRead => "random read",
        Pattern::RandWrite => "random write",
    }
}

/// The same at the beginning of a line.
pub(super) fn title(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Read => "Sequential read",
        Pattern::Write => "Sequential write",
        Pattern::RandRead => "Random read",
        Pattern::RandWrite => "Random write",
    }
}

/// What a line of a chart is called: short.
pub(super) fn short(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Read => "seq read",
        Pattern::Write => "seq write",
        Pattern::RandRead => "rand read",
        Pattern::RandWrite => "rand write",
    }
}

/// Class of its colour.
pub(super) fn class(pattern: Pattern) -> &'static str {
    ["s0", "s1", "s2", "s3"][place(pattern)]
}

/// Its place among the four.
pub(super) fn place(pattern: Pattern) -> usize {
    match pattern {
        Pattern::Read => 0,
        Pattern::Write => 1,
        Pattern::RandRead => 2,
        Pattern::RandWrite => 3,
    }
}

/// A block size as charts and reviews write it: `4K`.
pub(super) fn size(bytes: u64) -> String {
    format_size(bytes).to_uppercase()
}

/// A bandwidth without its unit: decimal GB/s.
pub(super) fn gb(bytes_per_s: f64) -> String {
    gigabytes(whole(bytes_per_s))
}

/// A time: `850 ns`, `61.2 µs`, `4.03 ms`, `1.20 s`.
pub(super) fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 999.5 => return format!("{ns:.0} ns"),
        ns if ns < 999_500.0 => (ns / 1e3, "µs"),
        ns if ns < 999_500_000.0 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let text = match value {
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    };
    format!("{text} {unit}")
}

/// A time on an axis, whose values are round: `5 µs`.
pub(super) fn axis_time(ns: f64) -> String {
    let text = time(ns);
    match text.split_once(' ') {
        Some((value, unit)) if value.contains('.') => {
            let value = value.trim_end_matches('0').trim_end_matches('.');
            format!("{value} {unit}")
        }
        _ => text,
    }
}

/// A rate on an axis: `500`, `20k`, `1.5M`.
pub(super) fn axis_rate(rate: f64) -> String {
    let (value, unit) = match rate {
        rate if rate < 999.5 => (rate, ""),
        rate if rate < 999_500.0 => (rate / 1e3, "k"),
        rate => (rate / 1e6, "M"),
    };
    format!("{}{unit}", plain(value))
}

/// A number on an axis: without zeroes behind the point.
pub(super) fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A ratio: `1.043`.
pub(super) fn ratio(value: f64) -> String {
    three_digits(value)
}

/// What stands behind a number of a cell that did not become steady.
pub(super) fn unsteady_mark(cell: &RunCell) -> &'static str {
    match cell.steady {
        Some(steady) if !steady.is_steady => " !",
        _ => "",
    }
}

/// All that stands behind a number.
pub(super) fn marks(cell: &RunCell) -> String {
    format!("{}{}", mark_of(cell.state, cell.rw), unsteady_mark(cell))
}

/// The tooltip of a cell.
pub(super) fn note(cell: &RunCell) -> String {
    let spread = cell.spread().map_or(String::new(), |(low, high)| {
        format!("; rounds {} to {} GB/s", gb(low as f64), gb(high as f64))
    });
    let steady = cell
        .steady
        .map_or_else(String::new, |steady| format!("; {}", steady.verdict()));
    let state = match mark_of(cell.state, cell.rw) {
        "" => String::new(),
        _ => format!("; blocks: {}", cell.state),
    };
    format!(
        "{} {}: {} GB/s, {} IOPS, p50 {}, mean {}, p99 {}, {} lane{} at depth {}{spread}{steady}{state}",
        name(cell.rw),
        size(cell.bs),
        gb(cell.bw_bytes as f64),
        format_rate(cell.iops),
        time(cell.lat_ns.p50 as f64),
        time(cell.lat_ns.mean),
        time(cell.lat_ns.p99 as f64),
        cell.numjobs,
        if cell.numjobs == 1 { "" } else { "s" },
        cell.iodepth
    )
}

/// The size on a block axis: its power of two.
pub(super) fn power(bytes: u64) -> f64 {
    (bytes as f64).log2()
}

/// Whether a drive was asked for every block that was read, as far as is known.
pub(super) fn is_from_drive(cell: &RunCell) -> bool {
    !matches!(mark_of(cell.state, cell.rw), " u" | " p")
}

/// `4 members`.
pub(super) fn members(run: &Run) -> String {
    match run.volume.members.len() {
        1 => "1 member".to_owned(),
        count => format!("{count} members"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        for (ns, text) in [
            (850.0, "850 ns"),
            (61_234.0, "61.2 µs"),
            (4_030_000.0, "4.03 ms"),
            (1.2e9, "1.20 s"),
            (999_700.0, "1.00 ms"),
        ] {
            assert_eq!(time(ns), text);
        }
        assert_eq!(axis_time(5_000.0), "5 µs");
        assert_eq!(axis_time(100_000.0), "100 µs");
        assert_eq!(axis_rate(20_000.0), "20k");
        assert_eq!(axis_rate(1_500_000.0), "1.5M");
        assert_eq!(axis_rate(0.0), "0");
    }
}
