//! `swath tune`: which transfers the drives of a volume want, found by reads.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use swath_volume::{Answered, Tried, TuneOptions, Tuned, Volume};

use super::{OpenArguments, list, member_paths, title};
use crate::bytes::Short;
use crate::failure::{Context as _, Result};
use crate::output::{self, Text};
use crate::time;

/// Find out by reads how large transfers should be, and how many in flight
#[derive(Debug, Args)]
#[command(after_help = "\
Only reads, of the volume's own data: not a byte is changed. The least that comes within 5 % of the best \
rate is chosen, since more in flight only makes every request wait longer. Run it while nothing else uses \
the drives, on a volume that was written: blocks that never were are read without a drive, and it says so.

Examples:
  swath tune /data/volume
  swath tune --runtime 10s /dev/nvme1n1 /dev/nvme2n1    a longer look, for drives that are busy
  swath tune --json /data/volume")]
pub(crate) struct Tune {
    /// About how long to read: seconds, or 500ms, 2s, 1m
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time::parse)]
    runtime: Duration,

    /// How often everything is tried, in turn; the middle one counts
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,

    /// Print it as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    open: OpenArguments,
}

impl Tune {
    pub(super) fn run(&self) -> Result<()> {
        let volume = self.open.open(true)?;
        let options = TuneOptions {
            runtime: self.runtime,
            rounds: self.rounds,
            ..TuneOptions::default()
        };
        let tuned = volume.tuned(&options).context(|| {
            format!(
                "{} on {} was not tuned, and nothing was changed",
                title(&volume),
                list(&member_paths(&volume))
            )
        })?;
        let members = self.open.members.paths.iter();
        let members: Vec<String> = members
            .map(|path| quoted(&path.to_string_lossy()))
            .collect();
        let report = Report::of(&volume, &tuned, &members.join(" "));
        if self.json {
            output::json(&report)
        } else {
            report.text(&tuned).print()
        }
    }
}

/// What was tried and found.
#[derive(Debug, Serialize)]
struct Report {
    command: &'static str,
    uuid: String,
    name: String,
    members: usize,
    chunk_bytes: u64,
    backend: String,
    /// What answered the reads; anything but `drives` takes the caution below.
    answered: &'static str,
    caution: Option<&'static str>,
    large: Setting,
    depth_per_member: u32,
    small: Setting,
    small_batch: u32,
    /// Command lines that measure with what was chosen.
    use_it: [String; 2],
    large_tried: Vec<Setting>,
    small_tried: Vec<Setting>,
}

#[derive(Debug, Serialize)]
struct Setting {
    transfer_bytes: u64,
    depth: u32,
    in_flight_bytes: u64,
    bytes_per_s: f64,
    requests_per_s: f64,
}

impl From<&Tried> for Setting {
    fn from(tried: &Tried) -> Self {
        Self {
            transfer_bytes: tried.transfer_bytes,
            depth: tried.depth,
            in_flight_bytes: tried.in_flight_bytes(),
            bytes_per_s: tried.bytes_per_s,
            requests_per_s: tried.requests_per_s(),
        }
    }
}

impl Report {
    fn of(volume: &Volume, tuned: &Tuned, members: &str) -> Self {
        let (large, small) = (&tuned.large, &tuned.small);
        let (bs, depth) = (size(large.transfer_bytes), large.depth);
        let (small_bs, small_depth) = (size(small.transfer_bytes), small.depth);
        let batch = tuned.small_batch;
        Self {
            command: "tune",
            uuid: volume.uuid().to_string(),
            name: volume.name(),
            members: volume.members().len(),
            chunk_bytes: volume.chunk_bytes(),
            backend: tuned.queue.to_string(),
            answered: word(tuned.answered),
            caution: tuned.answered.caution(),
            large: large.into(),
            depth_per_member: tuned.depth_per_member,
            small: small.into(),
            small_batch: batch,
            use_it: [
                format!("swath-matrix --rw read --bs {bs} --iodepth {depth} {members}"),
                format!(
                    "swath-matrix --rw randread --bs {small_bs} --iodepth {small_depth} --batch \
                     {batch} {members}"
                ),
            ],
            large_tried: tuned.large_tried.iter().map(Setting::from).collect(),
            small_tried: tuned.small_tried.iter().map(Setting::from).collect(),
        }
    }

    fn text(&self, tuned: &Tuned) -> Text {
        let mut text = Text::default();
        text.field("Name", &self.name)
            .field("UUID", &self.uuid)
            .field("Raid Devices", &self.members)
            .field("Chunk Size", &Short(self.chunk_bytes))
            .field("Backend", &self.backend)
            .field("Reads From", &self.answered)
            .line("");
        let large = table_rows(&tuned.large_tried, &tuned.large, |tried| {
            format!("{:.0}", tried.bytes_per_s / 1e6)
        });
        text.table(["Read", "Depth", "In Flight", "MB/s", ""], &large)
            .line("");
        let small = table_rows(&tuned.small_tried, &tuned.small, |tried| {
            format!("{:.0}", tried.requests_per_s())
        });
        text.table(["Random Read", "Depth", "In Flight", "IOPS", ""], &small)
            .line("");
        text.field("Transfer Size", &Short(self.large.transfer_bytes))
            .field(
                "Depth",
                &format_args!(
                    "{} on the volume, {} on each member, {} in flight",
                    self.large.depth,
                    self.depth_per_member,
                    Short(self.large.in_flight_bytes)
                ),
            )
            .field(
                "Small Requests",
                &format_args!(
                    "depth {}, batches of {}",
                    self.small.depth, self.small_batch
                ),
            )
            .line("")
            .line("Measure with it:");
        for line in &self.use_it {
            text.line(format!("  {line}"));
        }
        if let Some(caution) = self.caution {
            text.line("").line(format!("Caution: {caution}."));
        }
        text
    }
}

fn table_rows(
    tried: &[Tried],
    chosen: &Tried,
    rate: impl Fn(&Tried) -> String,
) -> Vec<[String; 5]> {
    let row = |one: &Tried| {
        let mark = if one == chosen { "<- chosen" } else { "" };
        [
            size(one.transfer_bytes),
            one.depth.to_string(),
            Short(one.in_flight_bytes()).to_string(),
            rate(one),
            mark.to_owned(),
        ]
    };
    tried.iter().map(row).collect()
}

fn word(answered: Answered) -> &'static str {
    match answered {
        Answered::Drives => "drives",
        Answered::Unknown => "unknown",
        Answered::Partly => "partly-unwritten",
        Answered::Unwritten => "unwritten",
        Answered::Memory => "memory",
    }
}

/// A size as options take it: `128k`, `1m`.
fn size(bytes: u64) -> String {
    for (unit, letter) in [(1 << 20, 'm'), (1 << 10, 'k')] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{}{letter}", bytes / unit);
        }
    }
    bytes.to_string()
}

/// A word that a shell takes as one.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:,@".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    let mut text = String::from("'");
    for part in word.chars() {
        let _ = if part == '\'' {
            write!(text, "'\\''")
        } else {
            write!(text, "{part}")
        };
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_paths_are_as_a_shell_takes_them() {
        assert_eq!(size(128 << 10), "128k");
        assert_eq!(size(3 << 20), "3m");
        assert_eq!(size(1500), "1500");
        assert_eq!(quoted("/dev/nvme0n1"), "/dev/nvme0n1");
        assert_eq!(quoted("a b'c"), "'a b'\\''c'");
    }
}
