//! What runs and how long is left: a bar on a terminal, plain lines elsewhere, on standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::size::{format_bytes, format_duration};
use crate::subject::Preparation;

/// How often plain lines tell about something long.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);

/// Tells a person how far a run is.
#[derive(Debug)]
pub struct Progress {
    output: Output,
    last_line: Option<Instant>,
}

#[derive(Debug)]
enum Output {
    Bar(ProgressBar),
    Lines,
    Quiet,
}

impl Progress {
    /// A bar if standard error is a terminal, else lines.
    pub fn new() -> Self {
        let output = if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:30.cyan/blue} {wide_msg}");
            Output::Bar(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
        } else {
            Output::Lines
        };
        Self {
            output,
            last_line: None,
        }
    }

    /// Tells nothing.
    pub fn quiet() -> Self {
        Self {
            output: Output::Quiet,
            last_line: None,
        }
    }

    /// The volume is being made ready.
    pub fn preparing(&mut self, step: Preparation) {
        let (what, done_bytes, total_bytes) = match step {
            Preparation::Making {
                number,
                count,
                done_bytes,
                total_bytes,
            } => (
                format!("making member {} of {count}", number + 1),
                done_bytes,
                total_bytes,
            ),
            Preparation::Filling {
                done_bytes,
                total_bytes,
            } => ("filling the volume".to_owned(), done_bytes, total_bytes),
            Preparation::Verifying {
                done_bytes,
                total_bytes,
            } => ("verifying the volume".to_owned(), done_bytes, total_bytes),
        };
        let text = || {
            format!(
                "{what}: {} of {}",
                format_bytes(done_bytes),
                format_bytes(total_bytes)
            )
        };
        match &self.output {
            Output::Bar(bar) => {
                revive(bar);
                bar.set_length(total_bytes.max(1));
                bar.set_position(done_bytes);
                bar.set_message(text());
            }
            Output::Lines if is_time(&mut self.last_line) => eprintln!("{}", text()),
            Output::Lines | Output::Quiet => {}
        }
    }

    /// Something long is being written: how far it is, how fast, and how long it will take.
    pub fn writing(&mut self, what: &str, done_bytes: u64, total_bytes: u64, elapsed: Duration) {
        let text = || {
            let (done, total) = (format_bytes(done_bytes), format_bytes(total_bytes));
            // Before anything is done there is no rate to tell the time by.
            if done_bytes == 0 {
                return format!("{what}: {done} of {total}");
            }
            let rate = done_bytes as f64 / elapsed.as_secs_f64().max(1e-3);
            let left_s = total_bytes.saturating_sub(done_bytes) as f64 / rate;
            let left = Duration::try_from_secs_f64(left_s).unwrap_or_default();
            format!(
                "{what}: {done} of {total}, {:.2} GB/s, {} left",
                rate / 1e9,
                format_duration(whole_seconds(left))
            )
        };
        match &self.output {
            Output::Bar(bar) => {
                revive(bar);
                bar.set_length(total_bytes.max(1));
                bar.set_position(done_bytes);
                bar.set_message(text());
            }
            Output::Lines if is_time(&mut self.last_line) => eprintln!("{}", text()),
            Output::Lines | Output::Quiet => {}
        }
    }

    /// A measurement is under way: what it is, how far the whole run is, and how long is left.
    pub fn measuring(&mut self, what: &str, total: Duration, left: Duration) {
        if let Output::Bar(bar) = &self.output {
            revive(bar);
            let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            bar.set_length(millis(total).max(1));
            bar.set_position(millis(total.saturating_sub(left)));
            bar.set_message(format!(
                "{what}, {} left",
                format_duration(whole_seconds(left))
            ));
        }
    }

    /// A cell is done: a line that stays.
    pub fn line(&mut self, text: &str) {
        match &self.output {
            Output::Bar(bar) => bar.println(text),
            Output::Lines => eprintln!("{text}"),
            Output::Quiet => {}
        }
    }

    /// A part of the run is over: the bar goes, until the next part.
    pub fn finish(&mut self) {
        if let Output::Bar(bar) = &self.output {
            bar.finish_and_clear();
        }
    }
}

/// Rounded up: what is left is a guess, and tenths of seconds would flicker.
fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

/// Lets a bar be drawn again after it was cleared.
fn revive(bar: &ProgressBar) {
    if bar.is_finished() {
        bar.reset();
    }
}

/// Whether it is time for another plain line; notes that one is printed now.
fn is_time(last_line: &mut Option<Instant>) -> bool {
    let is_time = last_line.is_none_or(|last| last.elapsed() >= PLAIN_INTERVAL);
    if is_time {
        *last_line = Some(Instant::now());
    }
    is_time
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}
