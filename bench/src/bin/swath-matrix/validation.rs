//! `--verify`: a verifying session around the cells.

use swath_bench::report::Report;
use swath_bench::verify::{Verifier, VerifySession};
use swath_bench::{
    Cursor, Error, ErrorKind, Interrupt, Plan, Preparation, Progress, Result, Side, Subject,
};
use swath_volume::Volume;

use crate::options::Options;

/// The session, if the run verifies.
#[derive(Debug)]
pub(crate) struct Validation(Option<VerifySession>);

impl Validation {
    /// Checks the volume against the journal, and fills it if that is asked for. A volume on which
    /// something is wrong is left as it is: no cell runs.
    pub(crate) fn begin(
        options: &Options,
        plan: &mut Plan,
        subject: &mut Subject,
        interrupt: &Interrupt,
        progress: &mut Progress,
    ) -> Result<Self> {
        if !options.verify.is_on() {
            return Ok(Self(None));
        }
        check_regions(plan, subject.volume())?;
        let verify = options
            .verify
            .options(options.seed, options.queue.fill_queue(), interrupt);
        let mut session = VerifySession::open(verify, subject.volume())?;
        let checked = session.check_before(subject.volume(), &mut |done_bytes, total_bytes| {
            progress.preparing(Preparation::Verifying {
                done_bytes,
                total_bytes,
            });
        });
        progress.finish();
        checked?;
        if session.is_wrong() {
            plan.cells.clear();
        } else if options.fills_for_verify(subject.is_new()) {
            let filled = session.fill(subject.volume(), &mut |done_bytes, total_bytes| {
                progress.preparing(Preparation::Filling {
                    done_bytes,
                    total_bytes,
                });
            });
            progress.finish();
            filled?;
            subject.all_is_stamped();
        }
        Ok(Self(Some(session)))
    }

    /// What cells go by.
    pub(crate) fn verifier(&self) -> Option<&Verifier> {
        self.0.as_ref().map(VerifySession::verifier)
    }

    /// Checks everything at the end of a run that was not stopped, and takes in what was found. What
    /// is wrong with the volume comes before whatever else stopped the run.
    pub(crate) fn end(
        self,
        stopped: Option<Error>,
        has_cells: bool,
        volume: &Volume,
        report: &mut Report,
        progress: &mut Progress,
    ) -> Option<Error> {
        let Some(mut session) = self.0 else {
            return stopped;
        };
        let mut stopped = stopped;
        if stopped.is_none() && has_cells {
            let checked = session.check_after(volume, &mut |done_bytes, total_bytes| {
                progress.preparing(Preparation::Verifying {
                    done_bytes,
                    total_bytes,
                });
            });
            progress.finish();
            stopped = checked.err();
            report.interrupted |= stopped
                .as_ref()
                .is_some_and(|error| error.kind() == ErrorKind::Interrupted);
        }
        report.verify = Some(session.report());
        session.verdict().err().or(stopped)
    }
}

/// Sees that each lane has a block of its own in every cell, at random as well.
fn check_regions(plan: &Plan, volume: &Volume) -> Result<()> {
    let spaces = Side::Volume.spaces(volume);
    plan.cells
        .iter()
        .try_for_each(|cell| Cursor::apart(cell, &spaces, 0, 0).map(|_| ()))
}
