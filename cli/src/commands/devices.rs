//! `swath devices`: which drives this machine has, how they are, and which can be taken.
//!
//! The engine tells what the kernel and the drives say, the volume crate what lies on them; here it
//! is put together ([`entry`]) and printed ([`text`]). Nothing is locked and nothing is written.

mod entry;
mod text;

use std::fs;
use std::io::IsTerminal as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use serde::Serialize;
use swath_engine::inventory::{Drives, Event, EventKind, Events, Roots, Scope, drives};

use self::entry::{Entry, Summary};
use crate::failure::{Context as _, Failure, Result};
use crate::interrupt::Interrupt;
use crate::output::{self, Text};
use crate::time::utc;

/// How often ctrl-c is looked for between two looks at the drives.
const PATIENCE: Duration = Duration::from_millis(50);

/// How many changes are shown beside the table of a watch.
const CHANGES_MAX: usize = 10;

/// List the drives of this machine: what they are, how they are, which can be taken
#[derive(Debug, Args)]
#[command(after_help = "\
Without names: a table of all disks. With names: all that is known of each.
State: ready (blank, and nobody has it), member (of a volume), not ready, or unknown.
Works without root and shows less then: SMART and what lies on a drive need it, most often.
Drives are asked only questions that change nothing (NVMe: Identify, and the SMART log).

Examples:
  swath devices                       a table
  swath devices /dev/nvme1n1          one drive, in full
  swath devices --json | jq -r '.devices[] | select(.state == \"ready\") | .node'
  swath devices --watch 2             a new table every two seconds
  swath devices --events              drives that came and went since the kernel started")]
pub(crate) struct Devices {
    /// List loop, md, device mapper, RAM and optical devices too
    #[arg(long, conflicts_with = "nodes")]
    all: bool,

    /// Look again every SECONDS, until ctrl-c
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "5",
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    watch: Option<u64>,

    /// Look so many times, then end
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,

    /// List the kernel's messages of drives that came and went instead
    #[arg(long, conflicts_with_all = ["all", "watch", "nodes"])]
    events: bool,

    /// Print it as JSON: one object for each look
    #[arg(long)]
    json: bool,

    /// Only these drives, with all that is known of them
    #[arg(value_name = "DEVICE")]
    nodes: Vec<PathBuf>,
}

/// The answer of one look.
#[derive(Debug, Serialize)]
struct Report<'a> {
    command: &'static str,
    unix_s: u64,
    devices: &'a [Entry],
    summary: Summary,
    /// Nodes that were not there at the look before, in a watch.
    came: Vec<&'a Path>,
    /// Nodes that are not there any more.
    went: Vec<&'a Path>,
}

/// The answer of `--events`.
#[derive(Debug, Serialize)]
struct EventsReport {
    command: &'static str,
    events: Vec<EventReport>,
}

#[derive(Debug, Serialize)]
struct EventReport {
    /// By the clock of now: when the clock was set since, off by that.
    unix_s: u64,
    #[serde(flatten)]
    event: Event,
}

impl Devices {
    pub(super) fn run(&self) -> Result<()> {
        if self.events {
            return self.print_events();
        }
        let scope = if !self.nodes.is_empty() {
            let numbers = self.nodes.iter().map(|node| number_of(node));
            Scope::Numbers(numbers.collect::<Result<_>>()?)
        } else if self.all {
            Scope::All
        } else {
            Scope::Disks
        };
        match self.watch {
            Some(seconds) => self.watch(&scope, Duration::from_secs(seconds)),
            None => {
                let entries = look(&scope)?;
                self.refuse_parts(&entries)?;
                self.print(&entries, None, &[])
            }
        }
    }

    /// Partitions have no entry of their own: what was named and is not there is one of those.
    fn refuse_parts(&self, entries: &[Entry]) -> Result<()> {
        for node in &self.nodes {
            let number = number_of(node)?;
            if entries.iter().all(|entry| entry.drive.number != number) {
                return Err(Failure::new(format!(
                    "{}: no disk but a part of one, or gone: name the whole disk",
                    node.display()
                )));
            }
        }
        Ok(())
    }

    fn watch(&self, scope: &Scope, interval: Duration) -> Result<()> {
        let interrupt = Interrupt::watch()?;
        let clears = !self.json && std::io::stdout().is_terminal();
        let mut before: Option<Vec<Entry>> = None;
        let mut changes: Vec<String> = Vec::new();
        let mut round = 0;
        loop {
            let start = Instant::now();
            let entries = look(scope)?;
            if let Some(before) = &before {
                let now = utc(now_unix_s());
                let went = missing(before, &entries).map(|entry| (entry, "went"));
                let came = missing(&entries, before).map(|entry| (entry, "came"));
                for (entry, what) in went.chain(came) {
                    changes.push(format!("{now}: {} {what}", entry.title()));
                }
                let extra = changes.len().saturating_sub(CHANGES_MAX);
                changes.drain(..extra);
            }
            if clears {
                // Home, and clear to the end.
                output::raw("\x1b[H\x1b[2J")?;
            }
            self.print(&entries, before.as_deref(), &changes)?;
            before = Some(entries);
            round += 1;
            if self.rounds == Some(round) {
                return Ok(());
            }
            while start.elapsed() < interval {
                if interrupt.is_wanted() {
                    return Ok(());
                }
                thread::sleep(PATIENCE.min(interval.saturating_sub(start.elapsed())));
            }
        }
    }

    /// One look, as JSON or for people. `before` is the look before it, in a watch.
    fn print(&self, entries: &[Entry], before: Option<&[Entry]>, changes: &[String]) -> Result<()> {
        let summary = Summary::of(entries);
        if self.json {
            let before = before.unwrap_or(entries);
            return output::json(&Report {
                command: "devices",
                unix_s: now_unix_s(),
                devices: entries,
                summary,
                came: nodes(missing(entries, before)),
                went: nodes(missing(before, entries)),
            });
        }
        let mut text = Text::default();
        if self.watch.is_some() {
            text.line(utc(now_unix_s()));
        }
        if self.nodes.is_empty() {
            text::table(entries, &summary, &mut text);
        } else {
            entries
                .iter()
                .for_each(|entry| text::fields(entry, &mut text));
        }
        for change in changes {
            text.line(change);
        }
        text.print()
    }

    fn print_events(&self) -> Result<()> {
        let read = Events::read(Path::new("/dev/kmsg"))?;
        let now_unix_s = now_unix_s();
        let events: Vec<EventReport> = read
            .events
            .into_iter()
            .map(|event| EventReport {
                unix_s: now_unix_s
                    .saturating_sub(read.now_us.saturating_sub(event.since_boot_us) / 1_000_000),
                event,
            })
            .collect();
        if self.json {
            return output::json(&EventsReport {
                command: "devices",
                events,
            });
        }
        let mut text = Text::default();
        if events.is_empty() {
            text.line("the kernel has no messages of drives that came or went");
            return text.print();
        }
        let rows: Vec<[String; 3]> = events
            .iter()
            .map(|report| {
                let kind = match report.event.kind {
                    EventKind::Inserted => "inserted",
                    EventKind::Removed => "removed",
                };
                [
                    utc(report.unix_s),
                    kind.to_owned(),
                    report.event.message.clone(),
                ]
            })
            .collect();
        text.table(["Time", "Event", "Message"], &rows).print()
    }
}

fn look(scope: &Scope) -> Result<Vec<Entry>> {
    let drives = drives(&Roots::default(), &Drives, scope)?;
    Ok(drives.into_iter().map(Entry::of).collect())
}

/// What one look has and another has not.
fn missing<'a>(from: &'a [Entry], others: &'a [Entry]) -> impl Iterator<Item = &'a Entry> {
    from.iter()
        .filter(|one| !others.iter().any(|other| other.is(one)))
}

fn nodes<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<&'a Path> {
    entries.map(|entry| entry.drive.node.as_path()).collect()
}

/// The device number of the block device at a path, links followed.
fn number_of(node: &Path) -> Result<String> {
    let metadata = fs::metadata(node).context(|| node.display().to_string())?;
    if !metadata.file_type().is_block_device() {
        return Err(Failure::new(format!(
            "{}: not a block device",
            node.display()
        )));
    }
    let number = metadata.rdev();
    Ok(format!(
        "{}:{}",
        rustix::fs::major(number),
        rustix::fs::minor(number)
    ))
}

fn now_unix_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}
