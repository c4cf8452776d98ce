//! Sizes: read as people type them, printed for people and for arithmetic.
//!
//! All units are powers of two, in any case, with or without `B` or `iB`: `4k`, `1M`, `1GiB`.

use std::fmt;
use std::time::Duration;

use parse_size::{Config, Error};

/// Units from the largest down, with their names.
const UNITS: [(u64, &str); 6] = [
    (1 << 60, "EiB"),
    (1 << 50, "PiB"),
    (1 << 40, "TiB"),
    (1 << 30, "GiB"),
    (1 << 20, "MiB"),
    (1 << 10, "KiB"),
];

/// The largest block of any device: chunks and new members are whole numbers of it.
const BLOCK_BYTES_MAX: u64 = 4096;

/// Reads a size from the command line.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    Config::new()
        .with_binary()
        .parse_size(text)
        .map_err(|error| match error {
            Error::PosOverflow => "more than 64 bits can count".to_owned(),
            _ => "not a size: write a number of bytes, or 4k, 1m, 1g (powers of two)".to_owned(),
        })
}

/// Reads a size that may not be zero.
pub(crate) fn parse_positive(text: &str) -> Result<u64, String> {
    match parse(text)? {
        0 => Err("must be more than zero".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Reads a size that is made of whole blocks, whatever the device: a chunk's or a new member's.
pub(crate) fn parse_blocks(text: &str) -> Result<u64, String> {
    let bytes = parse_positive(text)?;
    if bytes.is_multiple_of(BLOCK_BYTES_MAX) {
        Ok(bytes)
    } else {
        Err(format!(
            "{bytes} bytes is not a multiple of 4k (4096 bytes)"
        ))
    }
}

/// A size for people: `1.5 GiB`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Short(pub(crate) u64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match UNITS.iter().find(|(unit, _)| self.0 >= *unit) {
            Some((unit, name)) => format!("{:.1} {name}", self.0 as f64 / *unit as f64),
            None => format!("{} bytes", self.0),
        };
        f.pad(&text)
    }
}

/// A size for people and for arithmetic: `1.5 GiB (1610612736 bytes)`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exact(pub(crate) u64);

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if self.0 < 1024 {
            Short(self.0).to_string()
        } else {
            format!("{} ({} bytes)", Short(self.0), self.0)
        };
        f.pad(&text)
    }
}

/// A rate in both units that people use.
pub(crate) fn rate(bytes: u64, elapsed: Duration) -> String {
    let per_second = bytes as f64 / elapsed.as_secs_f64().max(1e-9);
    format!(
        "{:.3} GB/s ({:.3} GiB/s)",
        per_second / 1e9,
        per_second / (1u64 << 30) as f64
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_two_in_any_case() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("4k", 4096),
            ("4K", 4096),
            ("4kb", 4096),
            ("4KiB", 4096),
            ("1m", 1 << 20),
            ("1g", 1 << 30),
            ("1.5g", 3 << 29),
            ("2t", 2 << 40),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_size_is_refused() {
        for text in [
            "",
            "4q",
            "k",
            "-1",
            "1 0x",
            "ten",
            "16e",
            "18446744073709551616",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn chunks_and_members_are_whole_blocks() {
        assert_eq!(parse_blocks("12k"), Ok(12288));
        for text in ["0", "1", "4095", "5000", "6k"] {
            assert!(parse_blocks(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_print_for_people_and_for_arithmetic() {
        assert_eq!(Exact(0).to_string(), "0 bytes");
        assert_eq!(Exact(1023).to_string(), "1023 bytes");
        assert_eq!(Exact(1 << 30).to_string(), "1.0 GiB (1073741824 bytes)");
        assert_eq!(Short(3 << 29).to_string(), "1.5 GiB");
        assert_eq!(format!("{:>9}", Short(1 << 20)), "  1.0 MiB");
    }
}
