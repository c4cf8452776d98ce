//! Other programs that save tensors to files, driven in turn with ours.
//!
//! They are Python packages, so a script does their part: `bench/peers/peers.py`, which is a part of
//! this program and says itself what counts. It runs from the first round to the last, and works
//! only while it is asked to: a line of JSON to it, a line back.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize, Serializer};

use crate::checkpoint::shapes::{Model, TensorSpec};
use crate::checkpoint::usage::Sample;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::members::TemporaryMembers;
use crate::report::{format_bandwidth, whole};

const SCRIPT: &str = include_str!("../../peers/peers.py");

/// What a peer is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerPhase {
    /// A save to names that were not there.
    SaveFirst,
    /// A save over the files of the last.
    Save,
    /// A load from files that are not in the page cache.
    Load,
}

impl PeerPhase {
    /// In the order in which they are asked for.
    pub const ALL: [Self; 3] = [Self::SaveFirst, Self::Save, Self::Load];

    /// Its name in reports and requests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SaveFirst => "save first",
            Self::Save => "save",
            Self::Load => "load",
        }
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

/// What one peer did: of each phase, one sample a round.
#[derive(Debug)]
pub(crate) struct PeerFindings {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) phases: [(PeerPhase, Vec<Sample>); 3],
}

/// The peers, ready to be asked.
pub struct Peers {
    process: Process,
    bytes: u64,
    peers: Vec<PeerFindings>,
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
    what: PeerPhase,
}

#[derive(Deserialize)]
struct Answer {
    error: Option<String>,
    seconds: Option<f64>,
    cpu_seconds: Option<f64>,
    peak_bytes: Option<u64>,
}

impl Peers {
    /// Starts `python`, whose peers are to save `model` into `directory` (one without members).
    /// Tells `note` what is missing; none when nothing is there.
    ///
    /// # Errors
    ///
    /// The script fails in a way of its own.
    pub fn start(
        python: &Path,
        model: &Model,
        source_bytes: u64,
        directory: TemporaryMembers,
        note: &mut dyn FnMut(String),
    ) -> Result<Option<Self>> {
        let mut process = match Process::start(python, directory.directory()) {
            Ok(process) => process,
            Err(cause) => {
                note(format!(
                    "no peers: {} cannot be started ({cause}); give a Python with torch, numpy \
                     and safetensors by --python",
                    python.display()
                ));
                return Ok(None);
            }
        };
        process.tell(&Setup {
            tensors: model.tensors(),
            source_bytes,
        })?;
        let hello: Hello = process.hear()?;
        for Missing { name, reason } in &hello.missing {
            note(format!(
                "no {name}: {reason} (Python {}; --python names another)",
                hello.python
            ));
        }
        let peers: Vec<_> = hello
            .peers
            .into_iter()
            .map(|Found { name, version }| PeerFindings {
                name,
                version,
                phases: PeerPhase::ALL.map(|phase| (phase, Vec::new())),
            })
            .collect();
        Ok((!peers.is_empty()).then_some(Self {
            process,
            bytes: model.total_bytes(),
            peers,
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
            for (phase, samples) in &mut peer.phases {
                interrupt.check()?;
                let (name, what) = (peer.name.as_str(), *phase);
                self.process.tell(&Ask { peer: name, what })?;
                let answer: Answer = self.process.hear()?;
                let (Some(seconds), Some(cpu_seconds)) = (answer.seconds, answer.cpu_seconds)
                else {
                    let reason = answer.error.unwrap_or_default();
                    tell(&format!("{name}, {what}: left out: {reason}"));
                    failed.push(name.to_owned());
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
                samples.push(sample);
            }
        }
        self.peers.retain(|peer| !failed.contains(&peer.name));
        Ok(())
    }

    pub(crate) fn into_findings(self) -> Vec<PeerFindings> {
        self.peers
    }
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers")
            .field("peers", &self.peers)
            .finish_non_exhaustive()
    }
}

/// The script at work. It ends when its input does.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(python: &Path, directory: &Path) -> std::io::Result<Self> {
        let mut child = Command::new(python)
            .arg("-c")
            .arg(SCRIPT)
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| std::io::Error::other("it has no output"))?;
        Ok(Self {
            child,
            input,
            output: BufReader::new(output),
        })
    }

    fn tell(&mut self, value: &impl Serialize) -> Result<()> {
        let input = self.input.as_mut();
        let written = input.map_or(Ok(()), |input| {
            serde_json::to_writer(&mut *input, value)?;
            input.write_all(b"\n")?;
            input.flush()
        });
        written.map_err(|cause| Error::failed("the script for peers has ended", cause))
    }

    fn hear<T: for<'de> Deserialize<'de>>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.output
            .read_line(&mut line)
            .map_err(|cause| Error::failed("the script for peers does not answer", cause))?;
        serde_json::from_str(&line)
            .map_err(|cause| Error::failed("the script for peers has failed", cause))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input.take();
        let _ = self.child.wait();
    }
}
