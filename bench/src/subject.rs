//! What is measured, and how it came about: a volume on members of the run's own, a volume that
//! was there, or a new one on members that were given up for it.
//!
//! The refusals live here. Nothing is written before all of them have been passed.

use std::fmt;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use swath_engine::{FileFill, QueueOptions, WrittenState, written_state};
use swath_volume::{CreateOptions, OpenOptions, Volume, examine, members_in};

use crate::error::{Error, ErrorKind, Result};
use crate::fill::fill;
use crate::interrupt::Interrupt;
use crate::members::{MembersOptions, TemporaryMembers};
use crate::size::format_size;

/// Whether the blocks a cell works on were written before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DataState {
    /// All of them.
    #[serde(rename = "written")]
    Written,
    /// Some of them; reads of the others never reach a drive.
    #[serde(rename = "partly written")]
    Partly,
    /// None: the file system has reserved them only, and reads cost software alone.
    #[serde(rename = "unwritten")]
    Unwritten,
    /// The device does not tell.
    #[serde(rename = "unknown")]
    Unknown,
}

impl fmt::Display for DataState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Written => "written",
            Self::Partly => "partly written",
            Self::Unwritten => "unwritten",
            Self::Unknown => "unknown",
        })
    }
}

/// How to come by a volume.
#[derive(Debug, Clone)]
pub struct SubjectOptions {
    /// The name of a volume that is made.
    pub name: String,
    /// The members given. Empty: the run makes its own.
    pub members: Vec<PathBuf>,
    /// Its own members.
    pub own: MembersOptions,
    /// Chunk of a volume that is made; one that is there must have it. Default: the volume's own.
    pub chunk_bytes: Option<u64>,
    /// Whether to write a volume that is there in full first. A new one always is.
    pub fill: bool,
    /// Whether the run writes all of it itself before it measures, so that nothing is filled.
    pub precondition: bool,
    /// Whether the run will write.
    pub writes: bool,
    /// Whether members may be overwritten.
    pub destructive: bool,
    /// The queue that fills are written by.
    pub queue: QueueOptions,
    /// What fills are made of.
    pub seed: u64,
}

impl SubjectOptions {
    /// A volume on members of the run's own, with the default chunk.
    pub fn new(own: MembersOptions) -> Self {
        Self {
            name: "swath-bench".to_owned(),
            members: Vec::new(),
            own,
            chunk_bytes: None,
            fill: false,
            precondition: false,
            writes: true,
            destructive: false,
            queue: QueueOptions::default(),
            seed: 42,
        }
    }
}

/// What a run tells while a volume is being made ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preparation {
    /// Making members.
    Making {
        /// Which, from 0.
        number: u32,
        /// Of how many.
        count: u32,
        /// Bytes of all of them written so far.
        done_bytes: u64,
        /// Bytes of all of them.
        total_bytes: u64,
    },
    /// Filling the volume.
    Filling {
        /// Bytes written so far.
        done_bytes: u64,
        /// Bytes in all.
        total_bytes: u64,
    },
    /// Reading the volume back, to check it.
    Verifying {
        /// Bytes done so far.
        done_bytes: u64,
        /// Bytes in all.
        total_bytes: u64,
    },
}

/// A volume ready to be measured.
#[derive(Debug)]
pub struct Subject {
    /// Dropped, and its members closed, before the files below are removed. None when it was closed
    /// and could not be opened again.
    volume: Option<Volume>,
    is_new: bool,
    state_known: Option<DataState>,
    preconditioning: String,
    _own: Option<TemporaryMembers>,
}

impl Subject {
    /// Makes the volume ready.
    ///
    /// # Errors
    ///
    /// Every refusal of the bench, and what the volume refuses.
    pub fn prepare(
        options: &SubjectOptions,
        interrupt: &Interrupt,
        progress: &mut dyn FnMut(Preparation),
    ) -> Result<Self> {
        let subject = if options.members.is_empty() {
            Self::on_own_members(options, interrupt, progress)
        } else {
            Self::on_given_members(options, interrupt, progress)
        }?;
        for member in subject.volume().members() {
            if !member.device.is_direct() {
                let path = member.path().display();
                return Err(refused(format!("{path} is not open for direct I/O")));
            }
        }
        Ok(subject)
    }

    fn on_own_members(
        options: &SubjectOptions,
        interrupt: &Interrupt,
        progress: &mut dyn FnMut(Preparation),
    ) -> Result<Self> {
        let MembersOptions {
            count,
            member_bytes,
            ..
        } = options.own;
        let total_bytes = options.own.total_bytes();
        let own = TemporaryMembers::make(&options.own, interrupt, &mut |number, bytes| {
            let done_bytes = u64::from(number) * member_bytes + bytes;
            progress(Preparation::Making {
                number,
                count,
                done_bytes,
                total_bytes,
            });
        })?;
        let volume = create(own.paths(), options)?;
        let (state, preconditioning) = match options.own.fill {
            FileFill::Unwritten => (
                DataState::Unwritten,
                "files preallocated for this run, never written",
            ),
            _ => (
                DataState::Written,
                "files written in full for this run, incompressible data",
            ),
        };
        Ok(Self {
            volume: Some(volume),
            is_new: true,
            state_known: Some(state),
            preconditioning: preconditioning.to_owned(),
            _own: Some(own),
        })
    }

    fn on_given_members(
        options: &SubjectOptions,
        interrupt: &Interrupt,
        progress: &mut dyn FnMut(Preparation),
    ) -> Result<Self> {
        let paths = members_in(&options.members)
            .map_err(|cause| Error::failed("cannot find the members", cause))?;
        let has_volume = carries_volume(&paths)?;
        let fills = !options.precondition && (options.fill || !has_volume);
        if !has_volume && !options.destructive {
            return Err(refused(format!(
                "{} {} no volume; create one with `swath create`, or let --destructive make one \
                 here and overwrite everything on {}",
                join(&paths),
                if paths.len() == 1 { "carries" } else { "carry" },
                if paths.len() == 1 { "it" } else { "them" },
            )));
        }
        if !options.destructive {
            refuse_to_overwrite(&paths, options.writes, fills)?;
        }
        let volume = if has_volume {
            let read_only = !options.writes && !fills;
            let open = OpenOptions {
                read_only,
                ..OpenOptions::default()
            };
            let volume = Volume::open(&paths, &open).map_err(cannot_open)?;
            require_chunk(&volume, options.chunk_bytes)?;
            if options.writes && !options.destructive && volume.root().is_some() {
                return Err(refused(format!(
                    "the volume on {} holds a checkpoint store, or another program's records, and \
                     writing would destroy them; say so with --destructive, or only read \
                     {READS_ONLY}",
                    join(&paths)
                )));
            }
            volume
        } else {
            create(&paths, options)?
        };
        if fills {
            let total_bytes = volume.capacity_bytes();
            progress(Preparation::Filling {
                done_bytes: 0,
                total_bytes,
            });
            fill(
                &volume,
                &options.queue,
                options.seed,
                interrupt,
                &mut |done_bytes| {
                    progress(Preparation::Filling {
                        done_bytes,
                        total_bytes,
                    });
                },
            )?;
        }
        let (state_known, preconditioning) = if fills {
            let text = "volume written in full for this run, sequentially, incompressible data";
            (Some(DataState::Written), text)
        } else if has_volume {
            (None, "volume as it was found")
        } else {
            (None, "new volume on members as they were found")
        };
        let preconditioning = preconditioning.to_owned();
        Ok(Self {
            volume: Some(volume),
            is_new: !has_volume,
            state_known,
            preconditioning,
            _own: None,
        })
    }

    /// The volume.
    ///
    /// # Panics
    ///
    /// [`while_closed`](Self::while_closed) could not open it again: see [`is_open`](Self::is_open).
    pub fn volume(&self) -> &Volume {
        let volume = self.volume.as_ref();
        volume.expect("nobody works on a volume that could not be opened again")
    }

    /// Whether the volume is open: always, unless it was closed for a while and could not be opened
    /// again, which was told then.
    pub fn is_open(&self) -> bool {
        self.volume.is_some()
    }

    /// Whether the volume was made for this run.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The run has written every block itself, each with a stamp.
    pub fn all_is_stamped(&mut self) {
        self.state_known = Some(DataState::Written);
        "volume written in full for this run, sequentially, every block stamped"
            .clone_into(&mut self.preconditioning);
    }

    /// Closes the volume, lets `work` have the members, and opens it again, whatever became of the
    /// work. Nobody else may hold the volume: a clone of it, or a store on it, keeps it open.
    ///
    /// # Errors
    ///
    /// Those of the work, and of opening the volume.
    pub fn while_closed<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let volume = self.volume();
        let members = volume.members().iter();
        let paths: Vec<PathBuf> = members.map(|member| member.path().to_path_buf()).collect();
        let open = OpenOptions {
            read_only: volume.is_read_only(),
            ..OpenOptions::default()
        };
        self.volume = None;
        let outcome = work();
        match Volume::open(&paths, &open) {
            Ok(volume) => {
                self.volume = Some(volume);
                outcome
            }
            // What the work failed of came first.
            Err(cause) => outcome.and(Err(cannot_open(cause))),
        }
    }

    /// What was done to the drives before they were measured, in words.
    pub fn preconditioning(&self) -> &str {
        &self.preconditioning
    }

    /// Adds what the run did to them itself.
    pub(crate) fn add_preconditioning(&mut self, what: &str) {
        self.preconditioning.push_str(what);
    }

    /// The state that the run gave all blocks.
    pub(crate) fn know_state(&mut self, state: DataState) {
        self.state_known = Some(state);
    }

    /// Whether the volume's blocks are written at this moment. What the run wrote itself it knows;
    /// the rest it asks the file system.
    pub fn data_state(&self) -> DataState {
        self.state_known.unwrap_or_else(|| {
            let states = self.member_states().into_iter();
            states.reduce(combine).unwrap_or(DataState::Unknown)
        })
    }

    /// What the file system says at this moment of the blocks of each member, in the volume's
    /// order, whatever is known besides.
    pub fn member_states(&self) -> Vec<DataState> {
        let members = self.volume.iter().flat_map(Volume::members);
        let states = members.map(|member| {
            match written_state(
                member.device.as_ref(),
                member.data_offset,
                member.data_bytes,
            ) {
                WrittenState::Written => DataState::Written,
                WrittenState::Partly { .. } => DataState::Partly,
                WrittenState::Unwritten => DataState::Unwritten,
                WrittenState::Unknown => DataState::Unknown,
            }
        });
        states.collect()
    }
}

/// The state of two members together.
fn combine(one: DataState, other: DataState) -> DataState {
    match (one, other) {
        _ if one == other => one,
        (DataState::Unknown, _) | (_, DataState::Unknown) => DataState::Unknown,
        _ => DataState::Partly,
    }
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Refused, message)
}

fn join(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    names.join(", ")
}

fn create(paths: &[PathBuf], options: &SubjectOptions) -> Result<Volume> {
    let mut create = CreateOptions {
        name: options.name.clone(),
        force: true,
        ..CreateOptions::default()
    };
    if let Some(chunk_bytes) = options.chunk_bytes {
        create.chunk_bytes = chunk_bytes;
    }
    Volume::create(paths, &create).map_err(|cause| {
        let kind = match cause.kind() {
            swath_volume::ErrorKind::InvalidInput => ErrorKind::Usage,
            _ => ErrorKind::Failed,
        };
        Error::new(kind, "cannot create the volume").with_source(cause)
    })
}

/// Whether the members carry a volume: any of them, for a set with some foreign or lost is the
/// volume's to refuse, not ours to overwrite.
fn carries_volume(paths: &[PathBuf]) -> Result<bool> {
    let mut found = false;
    for path in paths {
        let examination =
            examine(path).map_err(|cause| Error::failed("cannot look for a volume", cause))?;
        found |= examination.superblock.is_some();
    }
    Ok(found)
}

/// A set that is not whole is not overwritten even with `--destructive`: what is left of it may be
/// all that is left of somebody's data.
fn cannot_open(cause: swath_volume::Error) -> Error {
    use swath_volume::ErrorKind::{
        Damaged, Duplicate, Foreign, Missing, NotAMember, Shrunk, Stale,
    };
    let message = match cause.kind() {
        Damaged | Duplicate | Foreign | Missing | NotAMember | Shrunk | Stale => {
            "cannot open the volume (to begin anew, wipe its members with `swath wipe`)"
        }
        _ => "cannot open the volume",
    };
    Error::failed(message, cause)
}

fn require_chunk(volume: &Volume, chunk_bytes: Option<u64>) -> Result<()> {
    match chunk_bytes {
        Some(asked) if asked != volume.chunk_bytes() => Err(Error::usage(format!(
            "the volume has chunks of {}, not {}; leave --chunk out to measure it as it is, or wipe \
             it with `swath wipe` to make another",
            format_size(volume.chunk_bytes()),
            format_size(asked)
        ))),
        _ => Ok(()),
    }
}

/// How the programs are told to write nothing.
const READS_ONLY: &str = "(--rw read,randread, or a --profile that does not write)";

/// Block devices are drives with something on them, and so is a volume that is to be filled.
fn refuse_to_overwrite(paths: &[PathBuf], writes: bool, fills: bool) -> Result<()> {
    if fills {
        return Err(refused(
            "filling overwrites the volume; say so with --destructive".to_owned(),
        ));
    }
    match paths.iter().find(|path| is_block_device(path)) {
        Some(path) if writes => Err(refused(format!(
            "{} is a block device and writing would destroy what is on it; say so with \
             --destructive, or only read {READS_ONLY}",
            path.display()
        ))),
        _ => Ok(()),
    }
}

pub(crate) fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_differ_are_partly_written_and_one_that_is_unknown_makes_all_unknown() {
        use DataState::{Partly, Unknown, Unwritten, Written};
        assert_eq!(combine(Written, Written), Written);
        assert_eq!(combine(Written, Unwritten), Partly);
        assert_eq!(combine(Partly, Unwritten), Partly);
        assert_eq!(combine(Unknown, Written), Unknown);
    }
}
