//! Other programs that save tensors to files, driven in turn with ours.
//!
//! They are Python packages, so a script does their part: `bench/peers/peers.py`, which is a part of
//! this program and says itself what counts. It runs from the first round to the last, and works
//! only while it is asked to: a line of JSON to it, a line back.

use std::fmt;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize, Serializer};

use crate::checkpoint::shapes::{Model, TensorSpec};
use crate::checkpoint::usage::Sample;
use crate::checkpoint::worker::Worker;
use crate::environment::memory_available_bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::interrupt::Interrupt;
use crate::members::TemporaryMembers;
use crate::report::{format_bandwidth, whole};
use crate::size::format_bytes;

const SCRIPT: &str = include_str!("../../peers/peers.py");

/// What Python takes with the libraries of the peers.
const LIBRARIES_BYTES: u64 = 1 << 30;

/// How to come by what they need.
pub const PEERS_HOW_TO: &str = "\
    python3 -m venv DIR && DIR/bin/pip install torch numpy safetensors, then --python DIR/bin/python";

/// What a peer is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerPhase {
    /// A save to names that were not there.
    SaveFirst,
    /// A save over the files of the last.
    Save,
    /// A load into memory that is there, from files that were dropped from the page cache.
    Load,
    /// A load into memory that the peer gets for it, from such files.
    LoadNew,
}

impl PeerPhase {
    /// In the order in which they are asked for.
    pub const ALL: [Self; 4] = [Self::SaveFirst, Self::Save, Self::Load, Self::LoadNew];

    /// Its name in reports and requests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SaveFirst => "save, new file",
            Self::Save => "save again",
            Self::Load => "load",
            Self::LoadNew => "load, new memory",
        }
    }

    /// Whether it reads.
    pub const fn is_load(self) -> bool {
        matches!(self, Self::Load | Self::LoadNew)
    }
}

impl fmt::Display for PeerPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for PeerPhase {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What one peer did.
#[derive(Debug)]
pub(crate) struct PeerFindings {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) phases: [PeerPhaseFindings; 4],
}

/// One sample a round of what a peer did.
#[derive(Debug)]
pub(crate) struct PeerPhaseFindings {
    pub(crate) phase: PeerPhase,
    pub(crate) samples: Vec<Sample>,
    /// What it did to its files, or where a load went, in words.
    pub(crate) how: String,
    /// Of each load: how much of what it read came from the device, and not from the page cache.
    /// None where the kernel does not tell.
    pub(crate) device_ratios: Vec<Option<f64>>,
}

/// The peers, ready to be asked.
pub struct Peers {
    worker: Worker,
    bytes: u64,
    peers: Vec<PeerFindings>,
    /// Names of those that failed, and what they failed of.
    left_out: Vec<(String, String)>,
    /// Where they write. Removed when the process has ended.
    _directory: TemporaryMembers,
}

#[derive(Serialize)]
struct Setup<'a> {
    tensors: &'a [TensorSpec],
    source_bytes: u64,
}

#[derive(Deserialize)]
struct Hello {
    python: String,
    peers: Vec<Found>,
    missing: Vec<Missing>,
}

#[derive(Deserialize)]
struct Found {
    name: String,
    version: String,
}

#[derive(Deserialize)]
struct Missing {
    name: String,
    reason: String,
}

#[derive(Serialize)]
struct Ask<'a> {
    peer: &'a str,
    what: &'a str,
}

#[derive(Deserialize)]
struct Answer {
    error: Option<String>,
    seconds: Option<f64>,
    cpu_seconds: Option<f64>,
    peak_bytes: Option<u64>,
    device_ratio: Option<f64>,
    how: Option<String>,
}

impl Peers {
    /// Sees that there is memory for the process: what tensors are saved from, what they are loaded
    /// into, and another copy of them, for some of the programs make one, mapped files included.
    ///
    /// # Errors
    ///
    /// There is not: what is needed and what there is.
    pub fn check_memory(model: &Model, source_bytes: u64) -> Result<()> {
        let needed = source_bytes + 2 * model.total_bytes() + LIBRARIES_BYTES;
        match memory_available_bytes() {
            Some(available) if needed > available => Err(Error::new(
                ErrorKind::NoSpace,
                format!(
                    "peers need about {} of memory, and {} are available; take a smaller --size, \
                     or leave --peers out",
                    format_bytes(needed),
                    format_bytes(available)
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Starts `python`, whose peers are to save `model` into `directory` (one without members).
    /// Tells `note` what is missing; none when nothing is there.
    ///
    /// # Errors
    ///
    /// The script fails in a way of its own, or the run was interrupted.
    pub fn start(
        python: &Path,
        model: &Model,
        source_bytes: u64,
        directory: TemporaryMembers,
        interrupt: &Interrupt,
        note: &mut dyn FnMut(String),
    ) -> Result<Option<Self>> {
        let mut command = Command::new(python);
        command.arg("-c").arg(SCRIPT).arg(directory.directory());
        for pool in ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"] {
            command.env(pool, "1");
        }
        let mut worker = match Worker::start("the script for peers", command) {
            Ok(worker) => worker,
            Err(cause) => {
                note(format!("{} cannot be started: {cause}", python.display()));
                return Ok(None);
            }
        };
        worker.tell(&Setup {
            tensors: model.tensors(),
            source_bytes,
        })?;
        let hello: Hello = worker.hear(interrupt)?;
        for Missing { name, reason } in &hello.missing {
            note(format!(
                "no {name}: {reason} (Python {}, {})",
                hello.python,
                python.display()
            ));
        }
        let peers: Vec<_> = hello
            .peers
            .into_iter()
            .map(|Found { name, version }| PeerFindings {
                name,
                version,
                phases: PeerPhase::ALL.map(|phase| PeerPhaseFindings {
                    phase,
                    samples: Vec::new(),
                    how: String::new(),
                    device_ratios: Vec::new(),
                }),
            })
            .collect();
        Ok((!peers.is_empty()).then_some(Self {
            worker,
            bytes: model.total_bytes(),
            peers,
            left_out: Vec::new(),
            _directory: directory,
        }))
    }

    /// Asks each of them for everything once. One that fails is left out from then on, and `tell`
    /// is told.
    pub(crate) fn round(
        &mut self,
        interrupt: &Interrupt,
        tell: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let mut failed = Vec::new();
        for peer in &mut self.peers {
            let name = peer.name.as_str();
            let mut ask = |what: &str| -> Result<Answer> {
                interrupt.check()?;
                self.worker.tell(&Ask { peer: name, what })?;
                self.worker.hear(interrupt)
            };
            for found in &mut peer.phases {
                let what = found.phase;
                let answer = ask(what.name())?;
                let (Some(seconds), Some(cpu_seconds)) = (answer.seconds, answer.cpu_seconds)
                else {
                    let reason = answer.error.unwrap_or_default();
                    tell(&format!("{name}, {what}: left out: {reason}"));
                    failed.push((name.to_owned(), reason));
                    break;
                };
                let sample = Sample {
                    bytes: self.bytes,
                    seconds,
                    cpu_ns: whole(cpu_seconds * 1e9),
                    peak_bytes: answer.peak_bytes,
                };
                let speed = format_bandwidth(whole(sample.bytes_per_s()));
                tell(&format!("{name}, {what}: {speed}"));
                found.samples.push(sample);
                found.device_ratios.push(answer.device_ratio);
                found.how = answer.how.unwrap_or_default();
            }
            // The next one needs the space.
            ask("remove")?;
        }
        self.peers.retain(|peer| {
            let is_one = |(name, _): &(String, String)| *name == peer.name;
            !failed.iter().any(is_one)
        });
        self.left_out.append(&mut failed);
        Ok(())
    }

    /// What they did, and what was left out with its reason.
    pub(crate) fn into_findings(self) -> (Vec<PeerFindings>, Vec<String>) {
        let left_out = self.left_out.iter();
        let notes = left_out.map(|(name, reason)| format!("{name} is left out: {reason}"));
        let notes = notes.collect();
        (self.peers, notes)
    }
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers")
            .field("peers", &self.peers)
            .finish_non_exhaustive()
    }
}
