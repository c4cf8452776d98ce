//! Sizes and times as people type them and as tables print them.
//!
//! Sizes are powers of two in any case: `4k`, `1M`, `1g`. A bandwidth is printed in GB/s and
//! GiB/s by the tables themselves.

use std::time::Duration;

use parse_size::Config;

use crate::error::{Error, Result};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Parses a size: `4096`, `4k`, `1m`, `1.5GiB`; never 0.
///
/// # Errors
///
/// Not a size, or 0.
pub fn parse_size(text: &str) -> Result<u64> {
    let bytes = Config::new()
        .with_binary()
        .parse_size(text)
        .map_err(|cause| {
            Error::usage(format!("'{text}' is not a size; write it as 4k, 1m or 1g"))
                .with_source(cause)
        })?;
    if bytes == 0 {
        Err(Error::usage("a size of 0 makes no sense"))
    } else {
        Ok(bytes)
    }
}

/// Parses a list of block sizes: `4k,64k,1m`, or a run of doublings, `4k..1m` or `4k,8k,...,1m`.
///
/// # Errors
///
/// An element is not a size, or a run has no beginning, no end or runs downwards.
pub fn parse_size_list(text: &str) -> Result<Vec<u64>> {
    let mut sizes: Vec<u64> = Vec::new();
    let mut run_to_next = false;
    for item in text.split(',').map(str::trim) {
        if item == "..." {
            run_to_next = true;
            continue;
        }
        let last = match item.split_once("..") {
            Some((first, last)) if !run_to_next => {
                sizes.push(parse_size(first)?);
                run_to_next = true;
                parse_size(last)?
            }
            _ => parse_size(item)?,
        };
        if run_to_next {
            push_doublings(&mut sizes, last)?;
        }
        sizes.push(last);
        run_to_next = false;
    }
    if run_to_next {
        return Err(Error::usage(format!("'{text}' has no size after '...'")));
    }
    let mut seen = Vec::with_capacity(sizes.len());
    sizes.retain(|size| {
        !seen.contains(size) && {
            seen.push(*size);
            true
        }
    });
    Ok(sizes)
}

/// Doubles the last of `sizes` until `last` is reached; `last` itself is left to the caller.
fn push_doublings(sizes: &mut Vec<u64>, last: u64) -> Result<()> {
    let first = *sizes
        .last()
        .ok_or_else(|| Error::usage("there is no size before '...'"))?;
    if first > last {
        return Err(Error::usage(format!(
            "the run from {} to {} goes downwards",
            format_size(first),
            format_size(last)
        )));
    }
    let doublings = std::iter::successors(first.checked_mul(2), |size| size.checked_mul(2));
    sizes.extend(doublings.take_while(|size| *size < last));
    Ok(())
}

/// A size as it would be typed: `4k`, `1m`, `1536`.
pub fn format_size(bytes: u64) -> String {
    for (unit, letter) in [(TIB, 't'), (GIB, 'g'), (MIB, 'm'), (KIB, 'k')] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{}{letter}", bytes / unit);
        }
    }
    bytes.to_string()
}

/// A size for reading: `4.0 GiB`.
pub fn format_bytes(bytes: u64) -> String {
    for (unit, name) in [(TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")] {
        if bytes >= unit {
            return format!("{:.1} {name}", bytes as f64 / unit as f64);
        }
    }
    format!("{bytes} bytes")
}

/// Parses a time: `3` and `3s` are seconds; `500ms`, `2m` and `1h` are what they say.
///
/// # Errors
///
/// Not a time, negative, or longer than a year.
pub fn parse_duration(text: &str) -> Result<Duration> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit_s = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    digits
        .trim()
        .parse::<f64>()
        .ok()
        .map(|number| number * unit_s)
        .filter(|seconds| (0.0..=366.0 * 86_400.0).contains(seconds))
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| {
            Error::usage(format!(
                "'{text}' is not a time; write it as 3, 3s, 500ms or 2m"
            ))
        })
}

/// A time for reading: `850ms`, `4.5s`, `2m 42s`, `1h 03m`.
pub fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if duration.is_zero() {
        "0s".to_owned()
    } else if seconds < 1.0 {
        format!("{:.0}ms", seconds * 1e3)
    } else if seconds < 59.95 {
        let text = format!("{seconds:.1}");
        format!("{}s", text.strip_suffix(".0").unwrap_or(&text))
    } else {
        let whole = (duration + Duration::from_millis(500)).as_secs();
        if whole < 3600 {
            format!("{}m {:02}s", whole / 60, whole % 60)
        } else {
            format!("{}h {:02}m", whole / 3600, whole % 3600 / 60)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_in_any_case() {
        for (text, bytes) in [
            ("4k", 4096),
            ("4K", 4096),
            ("1m", MIB),
            ("1MiB", MIB),
            ("1g", GIB),
            ("512", 512),
        ] {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
    }

    #[test]
    fn nonsense_is_no_size_and_says_how_to_write_one() {
        for text in ["4q", "", "-4k", "k", "0", "four"] {
            let error = parse_size(text).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{text}");
        }
        assert!(
            parse_size("4q")
                .unwrap_err()
                .to_string()
                .contains("write it as 4k")
        );
    }

    #[test]
    fn lists_may_hold_runs_of_doublings() {
        let all: Vec<u64> = (0..9).map(|power| 4096 << power).collect();
        assert_eq!(
            parse_size_list("4k,8k,16k,32k,64k,128k,256k,512k,1m").unwrap(),
            all
        );
        assert_eq!(parse_size_list("4k..1m").unwrap(), all);
        assert_eq!(parse_size_list("4k,8k,...,1m").unwrap(), all);
        assert_eq!(
            parse_size_list("4k..20k,1m,1m").unwrap(),
            [4096, 8192, 16384, 20480, MIB]
        );
        assert_eq!(parse_size_list("4k..4k").unwrap(), [4096]);
        for text in [
            "...,4k",
            "4k,...",
            "1m..4k",
            "4k,,8k",
            "4k..",
            "4k,...,8k..16k",
        ] {
            assert!(parse_size_list(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_print_as_they_are_typed() {
        assert_eq!(format_size(4096), "4k");
        assert_eq!(format_size(MIB), "1m");
        assert_eq!(format_size(1536), "1536");
        assert_eq!(format_bytes(4 * GIB + GIB / 2), "4.5 GiB");
    }

    #[test]
    fn times_take_units_and_default_to_seconds() {
        assert_eq!(parse_duration("3").unwrap(), Duration::from_secs(3));
        assert_eq!(parse_duration("0.5").unwrap(), Duration::from_millis(500));
        assert_eq!(parse_duration("3s").unwrap(), Duration::from_secs(3));
        assert_eq!(parse_duration("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(parse_duration("2m").unwrap(), Duration::from_secs(120));
        for text in ["", "s", "3x", "-1", "1e99", "nan", "inf"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_print_short() {
        assert_eq!(format_duration(Duration::from_millis(850)), "850ms");
        assert_eq!(format_duration(Duration::from_millis(4500)), "4.5s");
        assert_eq!(format_duration(Duration::from_secs(4)), "4s");
        assert_eq!(format_duration(Duration::from_secs(162)), "2m 42s");
        assert_eq!(format_duration(Duration::from_secs(3780)), "1h 03m");
    }
}
