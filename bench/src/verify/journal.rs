//! The journal: the table in a file, so that another process can check what this one wrote.
//!
//! ```text
//! 0     header   4096   magic SWATHJNL, version, checksum, volume, run, seed, capacity, unit
//! 4096  entries    16   for each unit: confirmed 4, intended 4, zero 4, checksum 4
//! ```
//!
//! - An intent is in the file before its write is submitted, a confirmation after its completion.
//!   A killed process leaves what it wrote to the file with the kernel, so every write that was
//!   under way is open there, and none that is confirmed can be missing from the drives.
//! - Nothing is flushed: **a journal survives a kill, not a loss of power**, and no more does it
//!   vouch for what a drive still had in its cache.
//! - An entry lies in one page of the file and has a checksum of its own, over the unit's number as
//!   well. Zeroes are a unit that nobody wrote.
//! - A file that is not whole is not there: it is made under another name and renamed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use swath_volume::Uuid;

use super::table::{Entry, Table};
use super::unit::UNIT_BYTES;
use crate::error::{Error, ErrorKind, Result};
use crate::size::format_bytes;

const MAGIC: [u8; 8] = *b"SWATHJNL";
const VERSION: u32 = 1;
const HEADER_LEN: usize = 4096;
const HEADER_BYTES: u64 = 4096;
const HEADER_USED: usize = 72;
const ENTRY_LEN: usize = 16;
const ENTRY_BYTES: u64 = 16;

/// How many entries are read at once.
const READ_UNITS: u64 = 1 << 16;

/// What a journal is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JournalHeader {
    /// The volume.
    pub(super) volume: Uuid,
    /// The run that all units say they are of.
    pub(super) run: Uuid,
    /// What their data is drawn from.
    pub(super) seed: u64,
    /// The size of the volume.
    pub(super) capacity_bytes: u64,
}

/// An open journal.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    header: JournalHeader,
}

impl JournalHeader {
    fn units(&self) -> u64 {
        self.capacity_bytes / UNIT_BYTES
    }

    fn file_bytes(&self) -> u64 {
        let entries = self.units().saturating_mul(ENTRY_BYTES);
        entries.saturating_add(HEADER_BYTES)
    }

    fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(self.volume.as_bytes());
        bytes[32..48].copy_from_slice(self.run.as_bytes());
        bytes[48..56].copy_from_slice(&self.seed.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.capacity_bytes.to_le_bytes());
        bytes[64..72].copy_from_slice(&UNIT_BYTES.to_le_bytes());
        let checksum = checksum_around(&bytes, 12);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The header, or what is wrong with it.
    fn decode(bytes: &[u8; HEADER_LEN]) -> std::result::Result<Self, String> {
        if bytes[..8] != MAGIC {
            return Err("it is not a journal of swath-matrix".to_owned());
        }
        let version = u32::from_le_bytes(field(bytes, 8));
        if version != VERSION {
            return Err(format!(
                "it is of version {version}, and this program knows version {VERSION} only"
            ));
        }
        if u32::from_le_bytes(field(bytes, 12)) != checksum_around(bytes, 12) {
            return Err("its header is damaged (checksum)".to_owned());
        }
        let unit_bytes = u64::from_le_bytes(field(bytes, 64));
        let header = Self {
            volume: Uuid::from_bytes(field(bytes, 16)),
            run: Uuid::from_bytes(field(bytes, 32)),
            seed: u64::from_le_bytes(field(bytes, 48)),
            capacity_bytes: u64::from_le_bytes(field(bytes, 56)),
        };
        let is_padded = bytes[HEADER_USED..].iter().all(|byte| *byte == 0);
        if unit_bytes != UNIT_BYTES
            || !header.capacity_bytes.is_multiple_of(UNIT_BYTES)
            || !is_padded
        {
            return Err("its header makes no sense".to_owned());
        }
        Ok(header)
    }
}

impl Journal {
    /// Makes a new journal in which nothing was written.
    ///
    /// # Errors
    ///
    /// The file is there, or cannot be made, or there is no room.
    pub(super) fn create(path: &Path, header: JournalHeader) -> Result<Self> {
        let failed = |cause| Error::failed(format!("cannot make {}", path.display()), cause);
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let unfinished = path.with_file_name(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&unfinished)
            .map_err(failed)?;
        let made = reserve(&file, header.file_bytes())
            .and_then(|()| file.write_all_at(&header.encode(), 0))
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&unfinished, path));
        if let Err(cause) = made {
            let _ = fs::remove_file(&unfinished);
            if cause.kind() == io::ErrorKind::StorageFull {
                let message = format!(
                    "the journal {} needs {}",
                    path.display(),
                    format_bytes(header.file_bytes())
                );
                return Err(Error::new(ErrorKind::NoSpace, message).with_source(cause));
            }
            return Err(failed(cause));
        }
        Ok(Self {
            path: path.to_path_buf(),
            file,
            header,
        })
    }

    /// Opens a journal that is there, and believes it no further than its header. None: there is
    /// no such file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is something else, of another version, cut off or damaged.
    pub(super) fn open(path: &Path, is_read_only: bool) -> Result<Option<Self>> {
        let file = OpenOptions::new()
            .read(true)
            .write(!is_read_only)
            .open(path);
        let file = match file {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => {
                let message = format!("cannot open the journal {}", path.display());
                return Err(Error::failed(message, cause));
            }
            Ok(file) => file,
        };
        let length = file.metadata().map_err(|cause| unreadable(path, cause))?;
        let length = length.len();
        let mut bytes = [0; HEADER_LEN];
        if length < HEADER_BYTES {
            return Err(refused(path, "it is cut off, or not a journal at all"));
        }
        file.read_exact_at(&mut bytes, 0)
            .map_err(|cause| unreadable(path, cause))?;
        let header = JournalHeader::decode(&bytes).map_err(|why| refused(path, &why))?;
        if length != header.file_bytes() {
            let why = format!(
                "it has {length} bytes and should have {}",
                header.file_bytes()
            );
            return Err(refused(path, &why));
        }
        Ok(Some(Self {
            path: path.to_path_buf(),
            file,
            header,
        }))
    }

    /// What it is of.
    pub(super) fn header(&self) -> &JournalHeader {
        &self.header
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses a journal of another volume.
    ///
    /// # Errors
    ///
    /// It is.
    pub(super) fn require_volume(&self, volume: Uuid, capacity_bytes: u64) -> Result<()> {
        let of = &self.header;
        if of.volume != volume {
            let why = format!("it is of volume {}, and this is volume {volume}", of.volume);
            return Err(refused(&self.path, &why));
        }
        if of.capacity_bytes != capacity_bytes {
            let why = format!(
                "it is of a volume of {} bytes, and this one has {capacity_bytes}",
                of.capacity_bytes
            );
            return Err(refused(&self.path, &why));
        }
        Ok(())
    }

    /// Reads the table.
    ///
    /// # Errors
    ///
    /// The file cannot be read, an entry is damaged, there is not enough memory.
    pub(super) fn load(&self) -> Result<Table> {
        let units = self.header.units();
        let table = Table::new(units)?;
        let mut bytes = Vec::new();
        let mut unit = 0;
        while unit < units {
            let count = (units - unit).min(READ_UNITS);
            let length = usize::try_from(count * ENTRY_BYTES).unwrap_or(usize::MAX);
            bytes.resize(length, 0);
            self.file
                .read_exact_at(&mut bytes, place(unit))
                .map_err(|cause| unreadable(&self.path, cause))?;
            for entry in bytes.as_chunks().0 {
                let Some(entry) = decode_entry(unit, entry) else {
                    let why = format!("its entry of unit {unit} is damaged");
                    return Err(refused(&self.path, &why));
                };
                table.set(unit, entry);
                unit += 1;
            }
        }
        Ok(table)
    }

    /// Writes the entries of `count` units from `first` on; `scratch` is memory to do it in.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn store(
        &self,
        table: &Table,
        first: u64,
        count: u64,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        scratch.clear();
        for unit in first..first + count {
            scratch.extend_from_slice(&encode_entry(unit, table.entry(unit)));
        }
        self.file
            .write_all_at(scratch, place(first))
            .map_err(|cause| {
                let message = format!("cannot write the journal {}", self.path.display());
                Error::failed(message, cause)
            })
    }
}

/// Room for the whole file, so that no write of an entry finds the disk full.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(bytes),
        Err(errno) => Err(errno.into()),
    }
}

fn place(unit: u64) -> u64 {
    HEADER_BYTES + unit * ENTRY_BYTES
}

fn encode_entry(unit: u64, entry: Entry) -> [u8; ENTRY_LEN] {
    let mut bytes = [0; ENTRY_LEN];
    if entry != Entry::default() {
        bytes[..4].copy_from_slice(&entry.confirmed.to_le_bytes());
        bytes[4..8].copy_from_slice(&entry.intended.to_le_bytes());
        let checksum = entry_checksum(unit, &bytes);
        bytes[12..].copy_from_slice(&checksum.to_le_bytes());
    }
    bytes
}

fn decode_entry(unit: u64, bytes: &[u8; ENTRY_LEN]) -> Option<Entry> {
    if *bytes == [0; ENTRY_LEN] {
        return Some(Entry::default());
    }
    let entry = Entry {
        confirmed: u32::from_le_bytes(field(bytes, 0)),
        intended: u32::from_le_bytes(field(bytes, 4)),
    };
    let is_whole = u32::from_le_bytes(field(bytes, 12)) == entry_checksum(unit, bytes);
    (is_whole && entry.is_sound()).then_some(entry)
}

fn entry_checksum(unit: u64, bytes: &[u8; ENTRY_LEN]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&unit.to_le_bytes());
    hasher.update(&bytes[..12]);
    hasher.finalize()
}

/// Of all bytes but the four at `place`, where it goes.
fn checksum_around(bytes: &[u8], place: usize) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..place]);
    hasher.update(&bytes[place + 4..]);
    hasher.finalize()
}

fn field<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[offset..offset + N]);
    field
}

fn unreadable(path: &Path, cause: io::Error) -> Error {
    Error::failed(format!("cannot read the journal {}", path.display()), cause)
}

fn refused(path: &Path, why: &str) -> Error {
    let path = path.display();
    let message = format!(
        "the journal {path} cannot be used: {why}; to begin anew, move it away (what was written \
         before is then not checked any more)"
    );
    Error::new(ErrorKind::Refused, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: u64 = 300;

    fn header() -> JournalHeader {
        JournalHeader {
            volume: Uuid::from_u128(1),
            run: Uuid::from_u128(2),
            seed: 3,
            capacity_bytes: UNITS * UNIT_BYTES,
        }
    }

    fn entry(unit: u64) -> Entry {
        let generation = u32::try_from(unit).unwrap();
        Entry {
            confirmed: generation,
            intended: generation * 2,
        }
    }

    /// A journal with entries, its folder, and where it is.
    fn journal() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let journal = Journal::create(&path, header()).unwrap();
        let table = Table::new(UNITS).unwrap();
        (0..UNITS).for_each(|unit| table.set(unit, entry(unit)));
        journal.store(&table, 10, 280, &mut Vec::new()).unwrap();
        (folder, path)
    }

    fn why(path: &Path) -> String {
        let opened = Journal::open(path, true).and_then(|journal| journal.unwrap().load());
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        error.to_string()
    }

    #[test]
    fn what_is_stored_is_loaded_again() {
        let (folder, path) = journal();
        let journal = Journal::open(&path, true).unwrap().unwrap();
        assert_eq!(*journal.header(), header());
        journal
            .require_volume(Uuid::from_u128(1), UNITS * UNIT_BYTES)
            .unwrap();
        let table = journal.load().unwrap();
        for unit in 0..UNITS {
            let expected = if (10..290).contains(&unit) {
                entry(unit)
            } else {
                Entry::default()
            };
            assert_eq!(table.entry(unit), expected);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(
            Journal::open(&folder.path().join("no"), true)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_journal_of_another_volume_is_refused_with_both_names() {
        let (_folder, path) = journal();
        let journal = Journal::open(&path, true).unwrap().unwrap();
        let other = journal.require_volume(Uuid::from_u128(9), UNITS * UNIT_BYTES);
        let message = other.unwrap_err().to_string();
        for part in [Uuid::from_u128(1), Uuid::from_u128(9)].map(|uuid| uuid.to_string()) {
            assert!(message.contains(&part), "{message}");
        }
        assert!(journal.require_volume(Uuid::from_u128(1), 4096).is_err());
    }

    #[test]
    fn every_flipped_bit_of_a_journal_is_found() {
        let (_folder, path) = journal();
        let good = fs::read(&path).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let header = 0..HEADER_USED + 8;
        let first_entry = HEADER_LEN + 10 * ENTRY_LEN;
        for byte in header.chain(first_entry..first_entry + 4 * ENTRY_LEN) {
            for bit in 0..8 {
                let place = byte as u64;
                file.write_all_at(&[good[byte] ^ (1 << bit)], place)
                    .unwrap();
                why(&path);
                file.write_all_at(&good[byte..=byte], place).unwrap();
            }
        }
        Journal::open(&path, true).unwrap().unwrap().load().unwrap();
    }

    #[test]
    fn an_entry_of_another_unit_is_damage() {
        let (_folder, path) = journal();
        let mut bytes = fs::read(&path).unwrap();
        let first = HEADER_LEN + 20 * ENTRY_LEN;
        bytes.copy_within(first..first + ENTRY_LEN, first + ENTRY_LEN);
        fs::write(&path, bytes).unwrap();
        assert!(why(&path).contains("unit 21"));
    }

    #[test]
    fn other_files_versions_and_lengths_are_refused_in_words() {
        let (_folder, path) = journal();
        let good = fs::read(&path).unwrap();
        let mut version = good.clone();
        version[8] = 2;
        let mut longer = good.clone();
        longer.push(0);
        for (bytes, part) in [
            (&b"something"[..], "cut off"),
            (&[7; 5000], "not a journal"),
            (&version, "version 2"),
            (&good[..good.len() - 1], "bytes and should have"),
            (&longer, "bytes and should have"),
            (&good[..4096], "bytes and should have"),
        ] {
            fs::write(&path, bytes).unwrap();
            let message = why(&path);
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}
