//! A verifying run from its beginning to its verdict: what the journal knows is checked before
//! anything is written, and everything that is known once more at the end.

use std::path::{Path, PathBuf};

use swath_engine::QueueOptions;
use swath_volume::{Uuid, Volume, examine, members_in};

use super::Verifier;
use super::journal::{Journal, JournalHeader};
use super::pass::Pass;
use super::report::{Tally, VerifyReport};
use super::unit::UNIT_BYTES;
use crate::error::{Error, ErrorKind, Result};
use crate::interrupt::Interrupt;

/// How a run verifies.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// The file that outlives the process.
    pub journal: Option<PathBuf>,
    /// What the data of a new journal, or of a run without one, is drawn from.
    pub seed: u64,
    /// The queue that passes go by.
    pub queue: QueueOptions,
    /// What stops a run early.
    pub interrupt: Interrupt,
}

/// A verifying run.
#[derive(Debug)]
pub struct VerifySession {
    options: VerifyOptions,
    verifier: Verifier,
    /// Whether the journal is of earlier runs.
    has_past: bool,
    before: Option<Tally>,
    open_units: u64,
    after: Option<Tally>,
    is_wrong_before: bool,
}

/// Refuses a journal that is there and is of another volume than these members carry, so that this
/// is known before anything is made of them.
///
/// # Errors
///
/// It is, or cannot be used, or a member cannot be looked at.
pub fn require_journal_of(journal: &Path, members: &[PathBuf]) -> Result<()> {
    let Some(journal) = Journal::open(journal, true)? else {
        return Ok(());
    };
    let paths =
        members_in(members).map_err(|cause| Error::failed("cannot find the members", cause))?;
    for path in paths {
        let examination =
            examine(&path).map_err(|cause| Error::failed("cannot look for a volume", cause))?;
        let Some(superblock) = examination.superblock else {
            let message = format!(
                "the journal {} is of volume {}, and {} carries none; to begin anew, move the \
                 journal away",
                journal.path().display(),
                journal.header().volume,
                path.display()
            );
            return Err(Error::new(ErrorKind::Refused, message));
        };
        journal.require_volume(superblock.volume_uuid, journal.header().capacity_bytes)?;
    }
    Ok(())
}

impl VerifySession {
    /// Opens the journal, or makes one.
    ///
    /// # Errors
    ///
    /// A journal that cannot be used or is of another volume, nothing to check, too little memory.
    pub fn open(options: VerifyOptions, volume: &Volume) -> Result<Self> {
        let path = options.journal.as_deref();
        let existing = match path {
            Some(path) => Journal::open(path, volume.is_read_only())?,
            None => None,
        };
        let has_past = existing.is_some();
        let journal = match (existing, path) {
            (Some(journal), _) => {
                journal.require_volume(volume.uuid(), volume.capacity_bytes())?;
                Some(journal)
            }
            (None, _) if volume.is_read_only() => return Err(nothing_to_check(path)),
            (None, Some(path)) => Some(Journal::create(
                path,
                JournalHeader {
                    volume: volume.uuid(),
                    run: Uuid::new_v4(),
                    seed: options.seed,
                    capacity_bytes: volume.capacity_bytes(),
                },
            )?),
            (None, None) => None,
        };
        let verifier = Verifier::new(volume, journal, options.seed)?;
        Ok(Self {
            open_units: verifier.open_units(),
            options,
            verifier,
            has_past,
            before: None,
            after: None,
            is_wrong_before: false,
        })
    }

    /// Checks the volume against a journal that was there; units whose write was open are known from
    /// then on. `progress` is told how many bytes are done, of how many.
    ///
    /// # Errors
    ///
    /// A failed read, an interrupt. That something is wrong is none: see [`is_wrong`](Self::is_wrong).
    pub fn check_before(
        &mut self,
        volume: &Volume,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        if self.has_past {
            let settles = !volume.is_read_only();
            self.before = Some(self.pass(volume).read_back(settles, progress)?);
            self.is_wrong_before = self.is_wrong();
        }
        Ok(())
    }

    /// Writes every unit once.
    ///
    /// # Errors
    ///
    /// A failed write, an interrupt.
    pub fn fill(&self, volume: &Volume, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.pass(volume).fill(progress)
    }

    /// The check at the end: everything that is known.
    ///
    /// # Errors
    ///
    /// A failed read, an interrupt.
    pub fn check_after(
        &mut self,
        volume: &Volume,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        self.after = Some(self.pass(volume).read_back(false, progress)?);
        Ok(())
    }

    /// What cells stamp and check by.
    pub fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// Whether anything is wrong so far. Before the cells it means: leave everything as it is.
    pub fn is_wrong(&self) -> bool {
        self.verifier.findings.count() > 0
    }

    /// What was found.
    pub fn report(&self) -> VerifyReport {
        let journal = self.verifier.journal.as_ref();
        VerifyReport {
            unit_bytes: UNIT_BYTES,
            run: self.verifier.run.to_string(),
            journal: journal.map(|journal| journal.path().display().to_string()),
            before: self.before,
            open_units: self.open_units,
            reads: self.verifier.reads(),
            after: self.after,
            wrong_units: self.verifier.findings.count(),
            wrong: self.verifier.findings.told(),
        }
    }

    /// An error when anything is wrong.
    ///
    /// # Errors
    ///
    /// That.
    pub fn verdict(&self) -> Result<()> {
        let count = self.verifier.findings.count();
        if count == 0 {
            return Ok(());
        }
        let units = if count == 1 { "unit is" } else { "units are" };
        let mut message = format!(
            "{count} {units} not what was written: lost or changed by a drive, its link or memory, or \
             overwritten by another program"
        );
        if self.is_wrong_before {
            message.push_str("; nothing was written in this run");
        }
        message.push_str(&match &self.options.journal {
            Some(path) => format!(
                "; look again with --verify-only --journal {0}, and move {0} away to begin anew",
                path.display()
            ),
            None => "; with --journal FILE another run could look again".to_owned(),
        });
        Err(Error::new(ErrorKind::Failed, message))
    }

    fn pass<'run>(&'run self, volume: &'run Volume) -> Pass<'run> {
        Pass {
            verifier: &self.verifier,
            volume,
            queue: &self.options.queue,
            interrupt: &self.options.interrupt,
        }
    }
}

fn nothing_to_check(journal: Option<&Path>) -> Error {
    let message = match journal {
        Some(path) => format!(
            "nothing to check: there is no journal {0}, and nothing is written; an earlier run with \
             --verify --journal {0} makes it",
            path.display()
        ),
        None => "nothing to check: nothing is written, and no --journal knows what was; let cells \
                 write, or fill the volume with --fill written --destructive"
            .to_owned(),
    };
    Error::new(ErrorKind::Refused, message)
}
