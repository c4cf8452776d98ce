//! Ranks as processes: each has tensors of its own in memory of its own, saves them by a lease of
//! the run's session, and loads them from members that it opens itself.
//!
//! ```text
//! the run                               a rank: this program, started again
//! session.lease       -- save, lease --> opens the members beside the run, writes
//! session.accept     <-- receipt ------- closes them
//! session.commit
//!
//! closes its volume   -- open ---------> opens the members to read
//!                     -- load ---------> reads, and again
//! opens its volume    -- close --------> closes them
//! ```
//!
//! - Ranks start once and stay, as those of a training job do: what counts is what they are told to
//!   do. A save counts from `begin` to the return of `commit`, opening the members by a lease
//!   included, for that is a part of every save. Opening members to read is not a part of a load: a
//!   thread finds its store open, too.
//! - CPU time and memory are those of the run and of all ranks together.
//! - A rank that fails fails what the run is at, with the rank's own error. Then all of them are
//!   ended, before anything else is done to the volume: nobody writes to it later.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use swath_checkpoint::{BeginOptions, Lease, Receipt, Store};

use crate::checkpoint::memory::Pages;
use crate::checkpoint::saves::{Loading, SaveSettings, Saved, cannot_save};
use crate::checkpoint::shapes::{Model, TensorSpec};
use crate::checkpoint::usage::{Sample, Usage, measure};
use crate::checkpoint::worker::Worker;
use crate::error::{Error, ErrorKind, Result};
use crate::interrupt::Interrupt;

/// What a writer may leave unused of its last block.
const WRITER_BYTES: u64 = 1 << 20;

/// Tensors from here on take whole units of the volume.
const LARGE_BYTES: u64 = 1 << 20;
const UNIT_BYTES: u64 = 4096;

/// The program that a rank is, and the argument that makes it one: see
/// [`serve_rank`](crate::checkpoint::serve_rank).
#[derive(Debug, Clone)]
pub struct RankProgram {
    /// Its path.
    pub path: PathBuf,
    /// What it is called with.
    pub arguments: Vec<String>,
}

/// What a rank is told first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) tensors: Vec<TensorSpec>,
    pub(crate) pages: Pages,
    pub(crate) skew_bytes: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) seed: u64,
    pub(crate) backend: String,
    pub(crate) depth: u32,
    pub(crate) pool_bytes: u64,
}

/// What a rank is asked to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// To save all its tensors within a lease.
    Save { lease: Lease, members: Vec<PathBuf> },
    /// To open the store to read.
    Open { members: Vec<PathBuf> },
    /// To load all its tensors of a step.
    Load { step: u64, loading: Loading },
    /// To close the store.
    Close,
}

/// What a rank answers. The first answer comes when it is ready to be asked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Saved {
        receipt: Receipt,
        buffers_used: u64,
        usage: Usage,
    },
    Loaded {
        usage: Usage,
    },
    Failed {
        kind: FailedKind,
        message: String,
    },
}

/// What of the kind of a rank's error its run can use.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum FailedKind {
    NoSpace,
    Interrupted,
    Other,
}

impl FailedKind {
    pub(crate) fn of(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::NoSpace => Self::NoSpace,
            ErrorKind::Interrupted => Self::Interrupted,
            _ => Self::Other,
        }
    }

    fn kind(self) -> ErrorKind {
        match self {
            Self::NoSpace => ErrorKind::NoSpace,
            Self::Interrupted => ErrorKind::Interrupted,
            Self::Other => ErrorKind::Failed,
        }
    }
}

/// The processes of a run.
pub(crate) struct Ranks {
    ranks: Vec<Rank>,
    model_bytes: u64,
    members: Vec<PathBuf>,
    interrupt: Interrupt,
}

struct Rank {
    number: usize,
    /// What it needs of a session's space.
    lease_bytes: u64,
    worker: Worker,
}

impl Ranks {
    /// Starts a process for every rank that has tensors, and waits until all are ready.
    ///
    /// # Errors
    ///
    /// One cannot be started, fails, or the run was interrupted. None is left then.
    pub(crate) fn start(
        program: &RankProgram,
        model: &Model,
        settings: &SaveSettings,
        skew_bytes: u64,
        seed: u64,
    ) -> Result<Self> {
        let shares: Vec<Vec<usize>> = model
            .ranks(settings.ranks)
            .into_iter()
            .filter(|share| !share.is_empty())
            .collect();
        let memory_bytes = settings.memory_bytes / shares.len().max(1) as u64;
        let mut ranks = Self {
            ranks: Vec::with_capacity(shares.len()),
            model_bytes: model.total_bytes(),
            members: Vec::new(),
            interrupt: settings.interrupt.clone(),
        };
        for (number, share) in shares.iter().enumerate() {
            let mut command = Command::new(&program.path);
            command.args(&program.arguments);
            let worker = Worker::start(format!("the process of rank {number}"), command)
                .map_err(|cause| Error::failed(format!("cannot start rank {number}"), cause))?;
            let tensors = share.iter().map(|&place| model.tensors()[place].clone());
            let setup = Setup {
                tensors: tensors.collect(),
                pages: settings.pages,
                skew_bytes,
                memory_bytes,
                seed: seed ^ ((number as u64) << 32),
                backend: settings.store.lane.queue.backend.to_string(),
                depth: settings.store.depth,
                pool_bytes: settings.store.pool_bytes,
            };
            let mut rank = Rank {
                number,
                lease_bytes: lease_bytes(&setup.tensors),
                worker,
            };
            rank.worker.tell(&setup)?;
            ranks.ranks.push(rank);
        }
        ranks.hear_all(|_, answer| match answer {
            Answer::Done => Ok(()),
            other => Err(misunderstood(&other)),
        })?;
        Ok(ranks)
    }

    /// Which members the store is on.
    pub(crate) fn use_members(&mut self, members: &[impl AsRef<Path>]) {
        let paths = members.iter().map(|path| path.as_ref().to_path_buf());
        self.members = paths.collect();
    }

    /// Saves the model as a step, from `begin` to the return of `commit`.
    pub(crate) fn save(&mut self, store: &Store, step: u64) -> Result<Saved> {
        let mut usages = Vec::with_capacity(self.ranks.len());
        let outcome = measure(self.model_bytes, || {
            let needed = self.ranks.iter().map(|rank| rank.lease_bytes).sum();
            let begin = BeginOptions {
                data_bytes: Some(needed),
                ..BeginOptions::default()
            };
            let session = store.begin(step, begin).map_err(cannot_save)?;
            let members = self.members.clone();
            self.tell_all(|rank| {
                let lease = session.lease(rank.lease_bytes).map_err(cannot_save)?;
                let members = members.clone();
                Ok(Ask::Save { lease, members })
            })?;
            let mut buffers_used = 0;
            self.hear_all(|_, answer| match answer {
                Answer::Saved {
                    receipt,
                    buffers_used: used,
                    usage,
                } => {
                    buffers_used += used;
                    usages.push(usage);
                    session.accept(receipt).map_err(cannot_save)
                }
                other => Err(misunderstood(&other)),
            })?;
            let began = Instant::now();
            session.commit().map_err(cannot_save)?;
            let commit_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            Ok((commit_ns, buffers_used))
        });
        let (mut sample, (commit_ns, buffers_used)) = outcome?;
        add_all(&mut sample, &usages);
        Ok(Saved {
            sample,
            commit_ns,
            buffers_used,
        })
    }

    /// Opens the store in every rank, to read. The run's own volume must be closed.
    pub(crate) fn open(&mut self) -> Result<()> {
        let members = self.members.clone();
        self.tell_all(|_| {
            let members = members.clone();
            Ok(Ask::Open { members })
        })?;
        self.hear_done()
    }

    /// Loads a step from the open store.
    pub(crate) fn load(&mut self, step: u64, loading: Loading) -> Result<Sample> {
        let mut usages = Vec::with_capacity(self.ranks.len());
        let (mut sample, ()) = measure(self.model_bytes, || {
            self.tell_all(|_| Ok(Ask::Load { step, loading }))?;
            self.hear_all(|_, answer| match answer {
                Answer::Loaded { usage } => {
                    usages.push(usage);
                    Ok(())
                }
                other => Err(misunderstood(&other)),
            })
        })?;
        add_all(&mut sample, &usages);
        Ok(sample)
    }

    /// Closes the store in every rank.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.tell_all(|_| Ok(Ask::Close))?;
        self.hear_done()
    }

    fn hear_done(&mut self) -> Result<()> {
        self.hear_all(|_, answer| match answer {
            Answer::Done => Ok(()),
            other => Err(misunderstood(&other)),
        })
    }

    fn tell_all(&mut self, mut ask: impl FnMut(&Rank) -> Result<Ask>) -> Result<()> {
        let told = self.ranks.iter_mut().try_for_each(|rank| {
            let ask = ask(rank)?;
            rank.worker.tell(&ask)
        });
        told.inspect_err(|_| self.end())
    }

    /// Takes the answer of each in turn. After an error all of them are gone.
    fn hear_all(&mut self, mut take: impl FnMut(usize, Answer) -> Result<()>) -> Result<()> {
        let interrupt = self.interrupt.clone();
        let heard =
            self.ranks
                .iter_mut()
                .try_for_each(|rank| match rank.worker.hear(&interrupt)? {
                    Answer::Failed { kind, message } => {
                        let text = format!("rank {} failed: {message}", rank.number);
                        Err(Error::new(kind.kind(), text))
                    }
                    answer => take(rank.number, answer),
                });
        heard.inspect_err(|_| self.end())
    }

    /// Ends all of them, and waits until they are gone.
    fn end(&mut self) {
        self.ranks.clear();
    }
}

fn add_all(sample: &mut Sample, usages: &[Usage]) {
    for usage in usages {
        sample.add(usage);
    }
}

/// What tensors take of a lease.
fn lease_bytes(tensors: &[TensorSpec]) -> u64 {
    let taken = tensors.iter().map(|tensor| {
        if tensor.bytes < LARGE_BYTES {
            tensor.bytes
        } else {
            tensor.bytes.next_multiple_of(UNIT_BYTES)
        }
    });
    taken.sum::<u64>() + WRITER_BYTES
}

fn misunderstood(answer: &Answer) -> Error {
    let answer = match answer {
        Answer::Done => "done",
        Answer::Saved { .. } => "saved",
        Answer::Loaded { .. } => "loaded",
        Answer::Failed { .. } => "failed",
    };
    Error::new(
        ErrorKind::Failed,
        format!("a rank answers '{answer}' to something else"),
    )
}

#[cfg(test)]
mod tests {
    use swath_checkpoint::FormatOptions;
    use swath_engine::{FileFill, create_file};
    use swath_volume::{CreateOptions, Volume};

    use super::*;
    use crate::checkpoint::shapes::ModelShape;

    const SETTINGS_RANKS: usize = 2;

    /// Ranks that answer what the script says. It has read what they are told first.
    fn ranks(script: &str) -> Result<Ranks> {
        let model = Model::new(ModelShape::B8, 4 << 20, false).unwrap();
        let program = RankProgram {
            path: "sh".into(),
            arguments: vec!["-c".to_owned(), format!("read setup; {script}")],
        };
        let settings = SaveSettings {
            ranks: SETTINGS_RANKS,
            ..SaveSettings::new(Interrupt::new())
        };
        Ranks::start(&program, &model, &settings, 0, 7)
    }

    fn store(folder: &Path) -> Store {
        let path = folder.join("member");
        create_file(&path, 64 << 20, FileFill::Unwritten).unwrap();
        let volume = Volume::create(&[path], &CreateOptions::default()).unwrap();
        Store::format(volume, &FormatOptions::default()).unwrap()
    }

    #[test]
    fn a_rank_that_fails_fails_the_save_with_its_own_error_and_none_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let script = r#"echo '"Done"'; read ask
            echo '{"Failed": {"kind": "NoSpace", "message": "the moon is full"}}'; exec sleep 1000"#;
        let mut ranks = ranks(script).unwrap();
        assert_eq!(ranks.ranks.len(), SETTINGS_RANKS);
        let error = ranks.save(&store, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert_eq!(error.to_string(), "rank 0 failed: the moon is full");
        assert!(ranks.ranks.is_empty());
        // Nothing of the checkpoint is there, and its space is free.
        assert!(store.list().is_empty());
        assert_eq!(store.space().session_bytes, 0);
    }

    #[test]
    fn a_rank_that_ends_fails_the_save() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let mut ranks = ranks(r#"echo '"Done"'; read ask; kill -9 $$"#).unwrap();
        let error = ranks.save(&store, 1).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("the process of rank 0 has ended: signal: 9"),
            "{text}"
        );
        assert!(store.list().is_empty());
    }

    #[test]
    fn a_rank_that_fails_from_the_start_is_told() {
        let script = r#"echo '{"Failed": {"kind": "Other", "message": "no memory"}}'; cat"#;
        let error = ranks(script).err().unwrap();
        assert_eq!(error.to_string(), "rank 0 failed: no memory");
        let error = ranks("echo hello").err().unwrap();
        assert!(error.to_string().contains("\"hello\""), "{error}");
        // An answer to something else.
        let error = ranks(r#"echo '{"Loaded": {"usage": {"cpu_ns": 1}}}'"#)
            .err()
            .unwrap();
        assert!(error.to_string().contains("'loaded'"), "{error}");
    }
}
