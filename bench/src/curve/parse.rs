//! Profiles read from TOML, and what is wrong with them: every message names file, line and field.

use serde::Deserialize;
use toml::Spanned;

use super::profile::{Origin, Profile, SizeShare, Skew};
use crate::error::{Error, Result};
use crate::size::parse_size;

/// Shares are given with a few digits; thirds may add up to this much less or more than 100.
const SUM_TOLERANCE: f64 = 0.01;

/// The most threads a profile may have.
const THREADS_MAX: u32 = 256;

/// The largest request.
const BLOCK_BYTES_MAX: u64 = 1 << 30;

/// The most requests in flight.
const OUTSTANDING_MAX: u32 = 4096;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: Spanned<String>,
    description: String,
    source: String,
    #[serde(default)]
    approximation: bool,
    read_percent: Spanned<f64>,
    seek_percent: Spanned<f64>,
    threads: Spanned<u32>,
    outstanding: Spanned<u32>,
    rate: Option<Spanned<f64>>,
    sizes: Vec<RawSize>,
    skew: Option<RawSkew>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSize {
    bytes: Spanned<String>,
    percent: Spanned<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSkew {
    requests_percent: Spanned<f64>,
    space_percent: Spanned<f64>,
}

/// Reads the profile in `text`, which came from `file`.
pub(super) fn parse(file: &str, text: &str) -> Result<Profile> {
    let place = Place { file, text };
    let raw: Raw = toml::from_str(text).map_err(|cause| place.syntax(&cause))?;
    if raw.name.get_ref().trim().is_empty() {
        return Err(place.error(&raw.name, "name", "is empty"));
    }
    place.share(&raw.read_percent, "read_percent", false)?;
    place.share(&raw.seek_percent, "seek_percent", false)?;
    place.count(&raw.threads, "threads", 1, THREADS_MAX)?;
    let threads = *raw.threads.get_ref();
    place.count(&raw.outstanding, "outstanding", 1, OUTSTANDING_MAX)?;
    if *raw.outstanding.get_ref() < threads {
        let message = format!(
            "{} requests in flight are fewer than the {threads} threads that are to have one each",
            raw.outstanding.get_ref()
        );
        return Err(place.error(&raw.outstanding, "outstanding", &message));
    }
    if let Some(rate) = &raw.rate
        && !is_rate(*rate.get_ref())
    {
        return Err(place.error(rate, "rate", &no_rate(*rate.get_ref())));
    }
    let sizes = place.sizes(&raw.sizes)?;
    let skew = raw.skew.map(|skew| {
        place.share(&skew.requests_percent, "skew.requests_percent", true)?;
        place.share(&skew.space_percent, "skew.space_percent", true)?;
        Ok(Skew {
            requests_percent: skew.requests_percent.into_inner(),
            space_percent: skew.space_percent.into_inner(),
        })
    });
    Ok(Profile {
        origin: Origin {
            file: file.to_owned(),
            threads_line: place.line(raw.threads.span().start),
        },
        name: raw.name.into_inner(),
        description: raw.description,
        source: raw.source,
        approximation: raw.approximation,
        read_percent: raw.read_percent.into_inner(),
        seek_percent: raw.seek_percent.into_inner(),
        threads,
        outstanding: raw.outstanding.into_inner(),
        rate: raw.rate.map(Spanned::into_inner),
        sizes,
        skew: skew.transpose()?,
    })
}

/// Whether requests can arrive so many times a second.
pub(super) fn is_rate(rate: f64) -> bool {
    rate.is_finite() && rate > 0.0
}

/// What is wrong with one at which they cannot.
pub(super) fn no_rate(rate: f64) -> String {
    format!("at a rate of {rate} a second nothing arrives; give one above 0")
}

/// A file, to find places in it.
struct Place<'a> {
    file: &'a str,
    text: &'a str,
}

impl Place<'_> {
    /// The line of a byte, from 1.
    fn line(&self, offset: usize) -> usize {
        let before = self.text.as_bytes().iter().take(offset);
        1 + before.filter(|&&byte| byte == b'\n').count()
    }

    fn error<T>(&self, value: &Spanned<T>, field: &str, message: &str) -> Error {
        self.error_at(value.span().start, field, message)
    }

    fn error_at(&self, offset: usize, field: &str, message: &str) -> Error {
        let line = self.line(offset);
        Error::usage(format!("{}:{line}: {field}: {message}", self.file))
    }

    /// What the TOML itself says. It names keys that are unknown or missing; that of a value of the
    /// wrong type stands on the line.
    fn syntax(&self, cause: &toml::de::Error) -> Error {
        let offset = cause.span().map_or(0, |span| span.start);
        let line = self.line(offset);
        let text = self.text.lines().nth(line - 1).unwrap_or_default();
        let key = text.split_once('=').map_or("", |(key, _)| key.trim());
        let message = cause.message();
        // Of a key that is missing no line is the place, and one that is unknown is named already.
        let names_key = ["missing field", "unknown field"];
        let is_named = names_key.iter().any(|start| message.starts_with(start));
        let field = if is_named || key.is_empty() {
            String::new()
        } else {
            format!("{key}: ")
        };
        Error::usage(format!("{}:{line}: {field}{message}", self.file))
    }

    fn share(&self, value: &Spanned<f64>, field: &str, is_above_zero: bool) -> Result<()> {
        let percent = *value.get_ref();
        if (0.0..=100.0).contains(&percent) && (percent > 0.0 || !is_above_zero) {
            return Ok(());
        }
        let range = if is_above_zero {
            "above 0, up to 100"
        } else {
            "0 to 100"
        };
        let message = format!("{percent} is not a share in per cent ({range})");
        Err(self.error(value, field, &message))
    }

    fn count(&self, value: &Spanned<u32>, field: &str, min: u32, max: u32) -> Result<()> {
        let count = *value.get_ref();
        if (min..=max).contains(&count) {
            return Ok(());
        }
        Err(self.error(value, field, &format!("{count} is not from {min} to {max}")))
    }

    fn sizes(&self, raw: &[RawSize]) -> Result<Vec<SizeShare>> {
        let mut sizes = Vec::with_capacity(raw.len());
        for size in raw {
            let text = size.bytes.get_ref();
            let bytes = parse_size(text)
                .map_err(|cause| self.error(&size.bytes, "sizes.bytes", &cause.to_string()))?;
            if bytes > BLOCK_BYTES_MAX {
                let message = format!("{text} is more than the 1g that a request can have");
                return Err(self.error(&size.bytes, "sizes.bytes", &message));
            }
            self.share(&size.percent, "sizes.percent", true)?;
            sizes.push(SizeShare {
                bytes,
                percent: *size.percent.get_ref(),
                line: self.line(size.bytes.span().start),
            });
        }
        let sum: f64 = sizes.iter().map(|size| size.percent).sum();
        if (sum - 100.0).abs() > SUM_TOLERANCE {
            let offset = raw.last().map_or(0, |size| size.percent.span().start);
            let shares: Vec<String> = sizes.iter().map(|size| size.percent.to_string()).collect();
            let message = format!(
                "the shares add up to {sum}, not 100 ({})",
                shares.join(" + ")
            );
            return Err(self.error_at(offset, "sizes.percent", &message));
        }
        Ok(sizes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"name = "mine"
description = "a mix"
source = "made up"
read_percent = 70
seek_percent = 80.5
threads = 2
outstanding = 16

[[sizes]]
bytes = "4k"
percent = 25

[[sizes]]
bytes = "64k"
percent = 75

[skew]
requests_percent = 80
space_percent = 20
"#;

    #[test]
    fn a_profile_is_read_with_all_its_parts() {
        let profile = parse("mine.toml", GOOD).unwrap();
        assert_eq!((profile.threads, profile.outstanding), (2, 16));
        assert_eq!(profile.sizes[1].bytes, 64 << 10);
        assert!(profile.writes() && !profile.approximation && profile.rate.is_none());
        assert_eq!(
            profile.summary(),
            "70% reads, 80.5% seeks, 4k 25% + 64k 75%, 80% of the seeks to 20% of the space, 16 \
             outstanding on 2 threads"
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_file_line_and_field() {
        let cases = [
            (
                "read_percent = 70",
                "read_percent = 170",
                ":4: read_percent: 170",
            ),
            (
                "read_percent = 70",
                "read_percent = \"all\"",
                ":4: read_percent: invalid type",
            ),
            ("read_percent = 70\n", "", "missing field `read_percent`"),
            (
                "seek_percent = 80.5",
                "seek_percent = -1",
                ":5: seek_percent: -1",
            ),
            ("threads = 2", "threads = 0", ":6: threads: 0"),
            ("threads = 2", "threads = -2", ":6: threads: invalid value"),
            (
                "threads = 2",
                "threads = 17",
                ":7: outstanding: 16 requests",
            ),
            (
                "threads = 2",
                "threads = 2\nrate = 0",
                ":7: rate: at a rate of 0",
            ),
            (
                "threads = 2",
                "threads = 2\nread_percnt = 1",
                ":7: unknown field `read_percnt`",
            ),
            (
                "outstanding = 16",
                "outstanding = 5000",
                ":7: outstanding: 5000",
            ),
            ("outstanding = 16", "outstanding = ", ":7: outstanding: "),
            (
                "bytes = \"64k\"",
                "bytes = \"64q\"",
                ":14: sizes.bytes: '64q'",
            ),
            (
                "bytes = \"64k\"",
                "bytes = \"2g\"",
                ":14: sizes.bytes: 2g is more",
            ),
            (
                "percent = 75",
                "percent = 65",
                ":15: sizes.percent: the shares add up to 90",
            ),
            ("percent = 75", "percent = 0", ":15: sizes.percent: 0"),
            (
                "percent = 75",
                "procent = 75",
                ":15: unknown field `procent`",
            ),
            (
                "space_percent = 20",
                "space_percent = 0",
                ":19: skew.space_percent: 0",
            ),
            ("name = \"mine\"", "name = \" \"", ":1: name: is empty"),
        ];
        for (good, bad, part) in cases {
            let error = parse("mine.toml", &GOOD.replacen(good, bad, 1)).unwrap_err();
            let message = error.to_string();
            assert!(message.starts_with("mine.toml:"), "{message}");
            assert!(message.contains(part), "'{part}' is not in: {message}");
            assert_eq!(error.exit_code(), 2);
        }
        let none = GOOD.replace("[[sizes]]", "[[other]]");
        assert!(
            parse("mine.toml", &none)
                .unwrap_err()
                .to_string()
                .contains("`other`")
        );
    }
}
