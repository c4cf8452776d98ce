//! How far a long step has come: a bar on a terminal, elsewhere nothing, or plain lines when they
//! were asked for. All on standard error.

use std::cell::Cell;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::bytes::{self, Exact};

/// How often a plain line is printed.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// Progress of a step whose length in bytes may be known.
#[derive(Debug)]
pub(crate) struct Progress {
    what: String,
    bytes_total: Option<u64>,
    bar: ProgressBar,
    /// When the step began and when the last line was printed; none where no lines are wanted.
    lines: Option<(Instant, Cell<Instant>)>,
}

impl Progress {
    /// Shows `what`, and how much of `bytes_total` there is where that is known. `insist` asks for
    /// lines where there is no terminal.
    pub(crate) fn new(what: impl Into<String>, bytes_total: Option<u64>, insist: bool) -> Self {
        let what = what.into();
        let bar = ProgressBar::with_draw_target(bytes_total, ProgressDrawTarget::stderr());
        let lines = (insist && bar.is_hidden()).then(|| {
            let now = Instant::now();
            (now, Cell::new(now))
        });
        let template = if bytes_total.is_some() {
            "{msg} [{bar:30}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}"
        } else {
            "{msg} {binary_bytes} {binary_bytes_per_sec}"
        };
        let style = ProgressStyle::with_template(template)
            .expect("the template is a constant and well formed")
            .progress_chars("=> ");
        bar.set_style(style);
        bar.set_message(what.clone());
        Self {
            what,
            bytes_total,
            bar,
            lines,
        }
    }

    /// The step has come to `bytes` in all.
    pub(crate) fn reached(&self, bytes: u64) {
        self.bar.set_position(bytes);
        if let Some((started, last)) = &self.lines
            && last.get().elapsed() >= LINE_INTERVAL
        {
            last.set(Instant::now());
            let of = self
                .bytes_total
                .map_or(String::new(), |total| format!(" of {}", Exact(total)));
            let rate = bytes::rate(bytes, started.elapsed());
            eprintln!("{}: {}{of}, {rate}", self.what, Exact(bytes));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
