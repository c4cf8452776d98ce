//! A workload: what share of it reads, what share seeks, in which sizes, how skewed, and from how
//! many threads. Read from a TOML file that a user can copy and edit.
//!
//! | key | meaning |
//! |---|---|
//! | `name`, `description` | for people |
//! | `source` | where the numbers come from |
//! | `approximation` | true where whoever made the workload has not published it (default false) |
//! | `read_percent` | share of the requests that read; the others write (Vdbench: `rdpct`) |
//! | `seek_percent` | share of the requests that go to a random place; each of the others follows the request before it (Vdbench: `seekpct`) |
//! | `threads` | threads, each with a region of its own of the volume |
//! | `outstanding` | requests in flight on all threads together at most (Vdbench: `threads`) |
//! | `rate` | requests a second that count as 100 %, in place of the peak (may be left out) |
//! | `[[sizes]]`: `bytes`, `percent` | a size of requests and its share |
//! | `[skew]`: `requests_percent`, `space_percent` | a hot share: so much of what seeks goes to the first so much of each region. Left out: every place is as likely as any other |

use crate::error::{Error, Result};
use crate::size::{format_bytes, format_size};

/// Where a profile was read from, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) file: String,
    pub(super) threads_line: usize,
}

/// A size of requests.
#[derive(Debug, Clone, PartialEq)]
pub struct SizeShare {
    /// Bytes of a request.
    pub bytes: u64,
    /// How many per cent of the requests have this size.
    pub percent: f64,
    /// The line that says so.
    pub(super) line: usize,
}

/// A hot share of the space.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Skew {
    /// How many per cent of the requests that seek go there.
    pub requests_percent: f64,
    /// How many per cent of each region it is, from the region's first byte on.
    pub space_percent: f64,
}

/// A workload that was checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// What it is called.
    pub name: String,
    /// What it stands for.
    pub description: String,
    /// Where its numbers come from.
    pub source: String,
    /// Whether these only come near an original that is not published.
    pub approximation: bool,
    /// Share of the requests that read.
    pub read_percent: f64,
    /// Share of the requests that seek.
    pub seek_percent: f64,
    /// Threads.
    pub threads: u32,
    /// Requests in flight on all threads together.
    pub outstanding: u32,
    /// What counts as 100 %, if not the peak.
    pub rate: Option<f64>,
    /// Sizes; their shares add up to 100 %.
    pub sizes: Vec<SizeShare>,
    /// The hot share, if there is one.
    pub skew: Option<Skew>,
    pub(super) origin: Origin,
}

/// A thread's part of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Its first byte.
    pub base: u64,
    /// How many bytes.
    pub bytes: u64,
}

impl Profile {
    /// Whether any of its requests write.
    pub fn writes(&self) -> bool {
        self.read_percent < 100.0
    }

    /// The largest of its requests.
    pub fn block_bytes_max(&self) -> u64 {
        self.sizes.iter().map(|size| size.bytes).max().unwrap_or(1)
    }

    /// How many requests thread number `thread` has in flight.
    pub fn depth_of(&self, thread: u32) -> u32 {
        self.outstanding / self.threads + u32::from(thread < self.outstanding % self.threads)
    }

    /// Memory that its requests take together.
    pub fn buffer_bytes(&self) -> u64 {
        self.block_bytes_max()
            .saturating_mul(u64::from(self.outstanding))
    }

    /// The region of thread number `thread` in a volume of `volume_bytes`: a multiple of the largest
    /// request.
    pub fn region(&self, volume_bytes: u64, thread: u32) -> Region {
        let unit = self.block_bytes_max();
        let bytes = volume_bytes / u64::from(self.threads) / unit * unit;
        Region {
            base: bytes * u64::from(thread),
            bytes,
        }
    }

    /// Sees that it can run on a volume of `volume_bytes` whose blocks are `block_bytes`.
    ///
    /// # Errors
    ///
    /// A size that is no multiple of the blocks, or more threads than regions, with the place in the
    /// profile's file.
    pub fn check(&self, block_bytes: u64, volume_bytes: u64) -> Result<()> {
        for size in &self.sizes {
            if !size.bytes.is_multiple_of(block_bytes) {
                return Err(self.error(
                    size.line,
                    "sizes.bytes",
                    &format!(
                        "{} is not a multiple of the volume's blocks of {block_bytes} bytes",
                        format_size(size.bytes)
                    ),
                ));
            }
        }
        let unit = self.block_bytes_max();
        let regions = volume_bytes / unit;
        if regions < u64::from(self.threads) {
            return Err(self.error(
                self.origin.threads_line,
                "threads",
                &format!(
                    "{} threads are more than the {regions} regions of one request of {} that the \
                     volume of {} has",
                    self.threads,
                    format_size(unit),
                    format_bytes(volume_bytes)
                ),
            ));
        }
        Ok(())
    }

    fn error(&self, line: usize, field: &str, message: &str) -> Error {
        Error::usage(format!("{}:{line}: {field}: {message}", self.origin.file))
    }

    /// In a few words: `70% reads, 80% seeks, 4k 20% + 8k 80%, 64 outstanding on 2 threads`.
    pub fn summary(&self) -> String {
        let sizes: Vec<String> = match self.sizes.as_slice() {
            [one] => vec![format_size(one.bytes)],
            many => many
                .iter()
                .map(|size| format!("{} {}%", format_size(size.bytes), size.percent))
                .collect(),
        };
        let plural = if self.threads == 1 { "" } else { "s" };
        let skew = self.skew.map_or_else(String::new, |skew| {
            format!(
                ", {}% of the seeks to {}% of the space",
                skew.requests_percent, skew.space_percent
            )
        });
        format!(
            "{}% reads, {}% seeks, {}{skew}, {} outstanding on {} thread{plural}",
            self.read_percent,
            self.seek_percent,
            sizes.join(" + "),
            self.outstanding,
            self.threads
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::shipped::find;

    #[test]
    fn threads_share_what_is_outstanding_and_the_volume() {
        let mut profile = find("oltp").unwrap();
        profile.threads = 3;
        profile.outstanding = 8;
        let depths: Vec<u32> = (0..3).map(|thread| profile.depth_of(thread)).collect();
        assert_eq!(depths, [3, 3, 2]);
        let unit = profile.block_bytes_max();
        let last = profile.region(10 * unit + 1, 2);
        assert_eq!((last.base, last.bytes), (6 * unit, 3 * unit));
    }

    #[test]
    fn more_threads_than_regions_are_refused_with_file_line_and_field() {
        let mut profile = find("4k-randread").unwrap();
        profile.threads = 3;
        profile.check(512, 3 * 4096).unwrap();
        let message = profile.check(512, 2 * 4096).unwrap_err().to_string();
        assert!(
            message.starts_with("4k-randread.toml (shipped):"),
            "{message}"
        );
        assert!(message.contains(": threads: 3 threads"), "{message}");
        assert!(message.contains("2 regions"), "{message}");
        let message = profile.check(8192, 1 << 30).unwrap_err().to_string();
        assert!(message.contains(": sizes.bytes: 4k is not"), "{message}");
    }
}
