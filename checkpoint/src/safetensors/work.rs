//! A few threads at one piece of work, told of and stopped from the thread that waits for them.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

use super::FileProgress;
use crate::error::{Error, ErrorKind, Result};

/// How many bytes are done before a thread says so again.
const REPORT_BYTES: u64 = 1 << 20;

/// Threads for work on so many bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Team {
    pub(super) threads: usize,
    pub(super) total_bytes: u64,
}

/// What a thread of a team knows of the others.
pub(super) struct Worker<'a> {
    stopped: &'a AtomicBool,
    reports: Sender<u64>,
    unreported: Cell<u64>,
    succeeded: Cell<bool>,
}

impl Team {
    /// Does `work` on every thread, until all are done, one fails, or `progress` returns `false`.
    /// The first failure of any is told; the others end as soon as they ask whether to.
    pub(super) fn run(
        self,
        progress: &mut dyn FnMut(FileProgress) -> bool,
        work: impl Fn(&Worker<'_>) -> Result<()> + Sync,
    ) -> Result<()> {
        let total_bytes = self.total_bytes;
        let mut done_bytes = 0;
        let mut tell = |bytes: u64| {
            done_bytes += bytes;
            progress(FileProgress {
                done_bytes,
                total_bytes,
            })
        };
        if !tell(0) {
            return Err(cancelled());
        }
        let stopped = AtomicBool::new(false);
        let (reports, received) = mpsc::channel();
        thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads)
                .map(|_| {
                    let worker = Worker {
                        stopped: &stopped,
                        reports: reports.clone(),
                        unreported: Cell::new(0),
                        succeeded: Cell::new(false),
                    };
                    let work = &work;
                    scope.spawn(move || {
                        work(&worker)?;
                        worker.succeeded.set(true);
                        Ok(())
                    })
                })
                .collect();
            drop(reports);
            let mut is_cancelled = false;
            for bytes in received {
                if !is_cancelled && !tell(bytes) {
                    is_cancelled = true;
                    stopped.store(true, Ordering::Relaxed);
                }
            }
            let mut outcome = if is_cancelled {
                Err(cancelled())
            } else {
                Ok(())
            };
            for worker in workers {
                let ended = worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                outcome = match (outcome, ended) {
                    // That the others were stopped is not why it failed.
                    (Err(first), Err(error)) if first.kind() == ErrorKind::Cancelled => Err(error),
                    (outcome, ended) => outcome.and(ended),
                };
            }
            outcome
        })
    }
}

impl Worker<'_> {
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// For work that cannot be left half done and called good.
    pub(super) fn check_stopped(&self) -> Result<()> {
        if self.is_stopped() {
            return Err(cancelled());
        }
        Ok(())
    }

    /// Some bytes more are done.
    pub(super) fn did(&self, bytes: u64) {
        let unreported = self.unreported.get() + bytes;
        if unreported < REPORT_BYTES {
            self.unreported.set(unreported);
        } else {
            self.unreported.set(0);
            // The receiver outlives every worker.
            let _ = self.reports.send(unreported);
        }
    }
}

/// The end of one that did not succeed, by an error or by a panic, is the end of all.
impl Drop for Worker<'_> {
    fn drop(&mut self) {
        if !self.succeeded.get() {
            self.stopped.store(true, Ordering::Relaxed);
        }
        let _ = self.reports.send(self.unreported.get());
    }
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "stopped before it was done")
}
