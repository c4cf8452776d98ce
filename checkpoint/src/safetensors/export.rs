//! A checkpoint as files again.
//!
//! - One that was imported gives the same files, byte for byte. Any other gives one safetensors
//!   file, laid out as the official library does it, the checkpoint's metadata as its own.
//! - What is told of the files is not believed before it is checked: every header must be that of
//!   the tensors, and every tensor be in one file.
//! - Files are written in units of up to 4 MiB, by a few threads; each thread has one such buffer and
//!   a reader, and all readers together the memory of one, as far as that goes. The last unit of a file makes it durable; when all are, they get their
//!   names. See `target.rs`.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use swath_engine::AlignedBuf;

use super::files::{FileEntry, FileKind, FileList, LIST_BYTES_MAX, LIST_TENSOR, is_hidden};
use super::header::{HEADER_BYTES_MAX, Header, PREFIX_BYTES};
use super::target::Target;
use super::work::{Team, Worker};
use super::{ExportOptions, FileProgress};
use crate::blob::usize_of;
use crate::checkpoint::{Checkpoint, ReadOptions};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::index::TensorEntry;
use crate::reader::{Reader, Want};

/// The file that a checkpoint which was not made of files becomes.
const FILE_NAME: &str = "model.safetensors";

/// The most bytes of one unit: enough reads at once to keep every member busy.
const UNIT_BYTES_MAX: u64 = 4 << 20;

/// The same where there are more threads than [`FEW_THREADS`].
const SHORT_UNIT_BYTES_MAX: u64 = 2 << 20;

const FEW_THREADS: usize = 4;

/// The most threads, which are more than it takes to keep drives busy. A reader has 4 MiB at least,
/// so this many have 40 MiB and their units 20 MiB, however many threads are asked for.
const THREADS_MAX: usize = 10;

/// Writes a checkpoint as files into a directory, which is made if it is not there. Returns their
/// paths.
///
/// `progress` is called now and then, on this thread, and stops the export by returning `false`.
///
/// # Errors
///
/// A file that exists already; too little space; damaged data; headers or names that are not what an
/// import writes; a checkpoint with more tensors than a safetensors file can have; stopped. No file
/// is there then.
pub fn export(
    checkpoint: &Checkpoint,
    directory: &Path,
    options: &ExportOptions,
    progress: &mut dyn FnMut(FileProgress) -> bool,
) -> Result<Vec<PathBuf>> {
    let name = checkpoint.info().name;
    export_named(checkpoint, directory, options, progress)
        .map_err(|error| error.with_checkpoint(name))
}

fn export_named(
    checkpoint: &Checkpoint,
    directory: &Path,
    options: &ExportOptions,
    progress: &mut dyn FnMut(FileProgress) -> bool,
) -> Result<Vec<PathBuf>> {
    let read = ReadOptions {
        trust: options.trust,
    };
    let threads = options.threads.clamp(1, THREADS_MAX);
    let unit_bytes_max = if threads > FEW_THREADS {
        SHORT_UNIT_BYTES_MAX
    } else {
        UNIT_BYTES_MAX
    };
    let files = plan(checkpoint, &mut checkpoint.reader(read)?)?;
    let names = files.iter().map(|file| file.name.clone()).collect();
    let mut target = Target::open(directory, names)?;
    for (number, file) in files.iter().enumerate() {
        target.make(number, file.length)?;
    }
    let export = Export {
        checkpoint,
        target: &target,
        units: files
            .iter()
            .enumerate()
            .flat_map(|(number, file)| units_of(number, file, unit_bytes_max))
            .collect(),
        states: files.iter().map(|_| FileState::default()).collect(),
        next: AtomicUsize::new(0),
        files: &files,
    };
    for unit in &export.units {
        export.states[unit.file]
            .left
            .fetch_add(1, Ordering::Relaxed);
    }
    let threads = threads.min(export.units.len().max(1));
    let team = Team {
        threads,
        total_bytes: files.iter().map(|file| file.length).sum(),
    };
    let unit_bytes = export.units.iter().map(|unit| unit.length).max();
    let means = Means {
        read,
        readers: threads,
        unit_bytes: usize_of(unit_bytes.unwrap_or_default()),
    };
    team.run(progress, |worker| export.work(means, worker))?;
    target.publish()
}

/// A file to be written.
struct OutFile {
    name: String,
    length: u64,
    /// What it is made of, in this order.
    parts: Vec<Part>,
}

impl OutFile {
    fn new(name: String, parts: Vec<Part>) -> Result<Self> {
        let length = parts
            .iter()
            .try_fold(0_u64, |total, part| total.checked_add(part.length()))
            .ok_or_else(|| Error::invalid("the file would be larger than a file can be"))?;
        Ok(Self {
            name,
            length,
            parts,
        })
    }
}

enum Part {
    Bytes(Vec<u8>),
    /// A tensor, by its place among all, and its length.
    Tensor(usize, u64),
}

impl Part {
    fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Tensor(_, length) => *length,
        }
    }
}

/// Some bytes of a file that are written at once: `length` of them from `skip` bytes into the first
/// of its parts on.
struct Unit {
    file: usize,
    position: u64,
    length: u64,
    first_part: usize,
    skip: u64,
}

/// Cuts a file into units. Large parts are cut at multiples of a unit, so that whole blocks of a
/// tensor go straight into aligned memory, and none is read for two units.
fn units_of(number: usize, file: &OutFile, unit_bytes_max: u64) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    let mut position = 0;
    // Whether the last unit may grow.
    let mut is_open = false;
    for (part_number, part) in file.parts.iter().enumerate() {
        let length = part.length();
        match units.last_mut() {
            Some(unit) if is_open && unit.length + length <= unit_bytes_max => {
                unit.length += length;
            }
            _ => {
                let mut skip = 0;
                loop {
                    let unit_bytes = (length - skip).min(unit_bytes_max);
                    units.push(Unit {
                        file: number,
                        position: position + skip,
                        length: unit_bytes,
                        first_part: part_number,
                        skip,
                    });
                    skip += unit_bytes;
                    if skip == length {
                        break;
                    }
                }
                is_open = length < unit_bytes_max;
            }
        }
        position += length;
    }
    units
}

// ---- what there is to write ------------------------------------------------------------------

/// Works out the files.
fn plan(checkpoint: &Checkpoint, reader: &mut Reader) -> Result<Vec<OutFile>> {
    if checkpoint.tensor(LIST_TENSOR).is_err() {
        return Ok(vec![plan_one(checkpoint)?]);
    }
    let list = read_bytes(checkpoint, reader, LIST_TENSOR, LIST_BYTES_MAX)?;
    let list = FileList::decode(&list).map_err(|error| error.with_tensor(LIST_TENSOR))?;
    let mut used = vec![false; checkpoint.tensors().len()];
    let mut use_tensor = |name: &str| -> Result<(usize, &TensorEntry)> {
        let tensors = checkpoint.tensors();
        let found = tensors.binary_search_by(|tensor| tensor.name.as_str().cmp(name));
        let fail = |message: &'static str| Err(Error::damaged(message).with_tensor(name));
        match found {
            Err(_) => fail("a file needs the tensor, and the checkpoint does not have it"),
            Ok(place) if std::mem::replace(&mut used[place], true) => {
                fail("two files need the tensor")
            }
            Ok(place) => Ok((place, &tensors[place])),
        }
    };
    let mut files = Vec::with_capacity(list.files.len());
    for file in list.files {
        let FileEntry {
            name,
            length,
            kind,
            tensor,
        } = file;
        let (place, entry) = use_tensor(&tensor)?;
        let mut parts = vec![Part::Tensor(place, entry.length)];
        if kind == FileKind::Safetensors {
            let bytes = read_bytes(checkpoint, reader, &tensor, HEADER_BYTES_MAX + 8)?;
            for info in parse_beginning(&bytes, length)
                .map_err(|error| error.context(format!("the header of the file {name:?}")))?
                .tensors_by_offset()
            {
                let (place, entry) = use_tensor(&info.name)?;
                if (entry.dtype, &entry.shape) != (info.dtype, &info.shape) {
                    return Err(Error::damaged(format!(
                        "the header of the file {name:?} has another type or shape for it"
                    ))
                    .with_tensor(&info.name));
                }
                parts.push(Part::Tensor(place, entry.length));
            }
        }
        let file = OutFile::new(name, parts)?;
        if file.length != length {
            return Err(Error::damaged(format!(
                "the file {:?} has {length} bytes, and its tensors have {}",
                file.name, file.length
            )));
        }
        files.push(file);
    }
    let mut tensors = checkpoint.tensors().iter().zip(&used);
    match tensors.find(|(tensor, used)| !**used && !is_hidden(&tensor.name)) {
        Some((tensor, _)) => {
            Err(Error::damaged("none of the files has the tensor").with_tensor(&tensor.name))
        }
        None => Ok(files),
    }
}

/// The one file of a checkpoint that was not made of files.
fn plan_one(checkpoint: &Checkpoint) -> Result<OutFile> {
    let metadata = checkpoint.info().metadata;
    let tensors = checkpoint.tensors();
    let mut specs: Vec<(String, DType, Vec<u64>)> = tensors
        .iter()
        .map(|tensor| (tensor.name.clone(), tensor.dtype, tensor.shape.clone()))
        .collect();
    Header::sort_for_layout(&mut specs);
    let header = Header::lay_out((!metadata.is_empty()).then_some(metadata), specs)?;
    let mut parts = vec![Part::Bytes(header.encode()?)];
    for info in header.tensors() {
        let place = tensors
            .binary_search_by(|tensor| tensor.name.cmp(&info.name))
            .expect("the header was made of these tensors");
        parts.push(Part::Tensor(place, info.length()));
    }
    OutFile::new(FILE_NAME.to_owned(), parts)
}

/// The header in the first bytes of a file of `file_bytes`, which end where its data begins.
fn parse_beginning(bytes: &[u8], file_bytes: u64) -> Result<Header> {
    let Some((prefix, json)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
        return Err(Error::damaged("it is too short"));
    };
    if Header::length_from(*prefix, bytes.len() as u64)? != json.len() {
        return Err(Error::damaged("it does not end where it says"));
    }
    let data_bytes = file_bytes.checked_sub(bytes.len() as u64);
    Header::parse(json, data_bytes.unwrap_or_default())
}

/// Reads a tensor that must be of bytes, and not too many.
fn read_bytes(
    checkpoint: &Checkpoint,
    reader: &mut Reader,
    name: &str,
    bytes_max: u64,
) -> Result<Vec<u8>> {
    let length = checkpoint.tensor(name)?.length;
    if length > bytes_max {
        return Err(Error::new(
            ErrorKind::Damaged,
            format!("it has {length} bytes, and {bytes_max} is the most there may be"),
        )
        .with_tensor(name));
    }
    let mut bytes = vec![0; usize_of(length)];
    reader.read(name, &mut bytes)?;
    Ok(bytes)
}

// ---- writing it ------------------------------------------------------------------------------

struct Export<'a> {
    checkpoint: &'a Checkpoint,
    target: &'a Target,
    files: &'a [OutFile],
    units: Vec<Unit>,
    states: Vec<FileState>,
    next: AtomicUsize,
}

/// How far a file has come.
#[derive(Default)]
struct FileState {
    /// Units that are not written yet.
    left: AtomicU64,
    /// Open from its first unit to its last, so that no failure to write it goes unseen.
    open: Mutex<Option<Arc<File>>>,
}

/// What each thread has.
#[derive(Clone, Copy)]
struct Means {
    read: ReadOptions,
    /// How many threads have a reader.
    readers: usize,
    unit_bytes: usize,
}

impl Export<'_> {
    /// What one thread does.
    fn work(&self, means: Means, worker: &Worker<'_>) -> Result<()> {
        let mut reader = Reader::open(self.checkpoint.clone(), means.read, means.readers)?;
        let mut memory = AlignedBuf::zeroed(means.unit_bytes)?;
        while !worker.is_stopped()
            && let Some(unit) = self.units.get(self.next.fetch_add(1, Ordering::Relaxed))
        {
            let memory = &mut memory[..usize_of(unit.length)];
            self.fill(unit, &mut reader, memory)?;
            self.write(unit, memory)?;
            worker.did(unit.length);
        }
        Ok(())
    }

    /// Reads what a unit is made of.
    fn fill(&self, unit: &Unit, reader: &mut Reader, memory: &mut [u8]) -> Result<()> {
        let mut rest = memory;
        let mut skip = unit.skip;
        let mut wants = Vec::new();
        for part in &self.files[unit.file].parts[unit.first_part..] {
            let length = (part.length() - skip).min(rest.len() as u64);
            let (now, later) = rest.split_at_mut(usize_of(length));
            match part {
                Part::Bytes(bytes) => now.copy_from_slice(&bytes[usize_of(skip)..][..now.len()]),
                Part::Tensor(place, _) => wants.push(Want {
                    entry: &self.checkpoint.tensors()[*place],
                    offset: skip,
                    memory: now,
                }),
            }
            rest = later;
            skip = 0;
            if rest.is_empty() {
                break;
            }
        }
        reader.read_wants(self.checkpoint, wants)
    }

    fn write(&self, unit: &Unit, bytes: &[u8]) -> Result<()> {
        let state = &self.states[unit.file];
        let fail = |error| {
            let path = self.target.path_of(unit.file);
            let length = self.files[unit.file].length;
            self.target.write_error(error, length, &path)
        };
        let file = {
            let mut open = state.open.lock();
            match &*open {
                Some(file) => Arc::clone(file),
                None => {
                    let file = Arc::new(self.target.open_to_write(unit.file)?);
                    *open = Some(Arc::clone(&file));
                    file
                }
            }
        };
        file.write_all_at(bytes, unit.position).map_err(fail)?;
        if state.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            file.sync_all().map_err(fail)?;
            *state.open.lock() = None;
        }
        Ok(())
    }
}
