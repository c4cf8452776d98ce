//! [`Store::verify`]: does everything that the store leads to still hold what was written?
//!
//! - Quick: the root record's payload, the catalog, and every index, read anew, decoded, and its
//!   places checked. Deep: besides, every block of every tensor, against its checksum.
//! - What is damaged, or cannot be read, is reported and the rest goes on.
//! - One checkpoint is held at a time, so that what is removed meanwhile is soon free.
//! - Memory: a pool no larger than a reader's, and about 32 bytes for each run of a tensor, beside
//!   the index; and the report, whose damages are cut at 10,000.

mod data;

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::catalog::CheckpointEntry;
use crate::checkpoint::{Checkpoint, places_of};
use crate::error::{DevicePlace, Error, ErrorKind, Result};
use crate::extent::{Extent, Run};
use crate::names::CheckpointName;
use crate::store::Store;
use crate::verify::data::{DataCheck, Reading};

/// The most damages that a report lists; it counts the others.
const DAMAGES_MAX: usize = 10_000;

/// How thoroughly to verify.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerifyOptions {
    /// Whether the data is read, too. Default: only what leads to it.
    pub deep: bool,
}

/// How far a verification has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerifyProgress {
    /// Bytes that are done, damaged or not.
    pub checked_bytes: u64,
    /// Bytes to be done: indexes, and tensors if it is deep. Less when checkpoints are removed
    /// meanwhile.
    pub total_bytes: u64,
    /// The checkpoint at hand.
    pub checkpoint: CheckpointName,
}

/// What a verification found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// How many checkpoints were looked at, damaged ones included.
    pub checkpoints: u64,
    /// How many tensors these have, as far as their indexes can be read.
    pub tensors: u64,
    /// How many bytes of tensors were read and compared with their checksums.
    pub bytes: u64,
    /// What is damaged, by checkpoint, tensor and block: at most 10,000.
    pub damages: Vec<Damage>,
    /// How many more damages there are.
    pub damages_left_out: u64,
    /// Whether everything was looked at: false when the caller stopped it.
    pub complete: bool,
}

impl VerifyReport {
    /// Whether no damage was found. [`complete`](Self::complete) tells how much was looked at.
    pub fn is_clean(&self) -> bool {
        self.damages.is_empty()
    }
}

/// One damage: a block of a tensor, an index, or the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// The checkpoint; none when it is the catalog.
    pub checkpoint: Option<CheckpointName>,
    /// The tensor; none when it is the index.
    pub tensor: Option<String>,
    /// The checksum block of the tensor.
    pub block: Option<u64>,
    /// Where on the members: the units that cannot be read, or all that a wrong checksum covers.
    pub places: Vec<DevicePlace>,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An error says all this in its way.
        let mut error = Error::damaged(self.message.clone());
        if let Some(checkpoint) = &self.checkpoint {
            error = error.with_checkpoint(checkpoint);
        }
        if let Some(tensor) = &self.tensor {
            error = error.with_tensor(tensor);
        }
        if let Some(block) = self.block {
            error = error.with_block(block);
        }
        let places = self.places.iter().cloned();
        write!(f, "{}", places.fold(error, Error::with_place))
    }
}

impl Store {
    /// Verifies all checkpoints that there are when it begins. Sessions may go on, and a checkpoint
    /// that is removed before its turn comes is left out; the one at hand is held. Nothing is
    /// written: a volume opened for reading only will do.
    ///
    /// `progress` is told after each index and each few transfers, and stops the verification by
    /// returning false.
    ///
    /// # Errors
    ///
    /// Only what keeps it from looking: no lane or no buffers. Damage, and what cannot be read, is
    /// in the report.
    pub fn verify(
        &self,
        options: &VerifyOptions,
        progress: &mut dyn FnMut(VerifyProgress) -> bool,
    ) -> Result<VerifyReport> {
        self.verify_entries(&self.entries(), options, progress)
    }

    /// Verifies one checkpoint, and the catalog that leads to it.
    ///
    /// # Errors
    ///
    /// No such checkpoint; as [`verify`](Self::verify).
    pub fn verify_only(
        &self,
        name: impl Into<CheckpointName>,
        options: &VerifyOptions,
        progress: &mut dyn FnMut(VerifyProgress) -> bool,
    ) -> Result<VerifyReport> {
        let name = name.into();
        let mut entries = self.entries();
        entries.retain(|entry| entry.name == name);
        if entries.is_empty() {
            return Err(self.unknown(&name));
        }
        self.verify_entries(&entries, options, progress)
    }

    fn verify_entries(
        &self,
        entries: &[CheckpointEntry],
        options: &VerifyOptions,
        progress: &mut dyn FnMut(VerifyProgress) -> bool,
    ) -> Result<VerifyReport> {
        let mut verifier = Verifier {
            store: self,
            deep: options.deep,
            progress,
            checked_bytes: 0,
            total_bytes: 0,
            report: VerifyReport::default(),
        };
        verifier.total_bytes = entries.iter().map(|entry| verifier.bytes_of(entry)).sum();
        verifier.check_catalog()?;
        let mut reading = options.deep.then(|| Reading::open(self)).transpose()?;
        verifier.report.complete = true;
        for entry in entries {
            if !verifier.check_checkpoint(entry, reading.as_mut())? {
                verifier.report.complete = false;
                break;
            }
        }
        Ok(verifier.report)
    }
}

struct Verifier<'a> {
    store: &'a Store,
    deep: bool,
    progress: &'a mut dyn FnMut(VerifyProgress) -> bool,
    checked_bytes: u64,
    total_bytes: u64,
    report: VerifyReport,
}

impl Verifier<'_> {
    fn bytes_of(&self, entry: &CheckpointEntry) -> u64 {
        let data_bytes = if self.deep { entry.data_bytes } else { 0 };
        entry.index.length + data_bytes
    }

    fn check_catalog(&mut self) -> Result<()> {
        let (extents, outcome) = self.store.reread_catalog();
        outcome.or_else(|error| self.add_blob_damage(None, &extents, &error))
    }

    /// Checks one checkpoint. False when the caller stops it.
    fn check_checkpoint(
        &mut self,
        listed: &CheckpointEntry,
        reading: Option<&mut Reading>,
    ) -> Result<bool> {
        let Some(entry) = self.store.hold(listed) else {
            self.total_bytes -= self.bytes_of(listed);
            return Ok(true);
        };
        self.report.checkpoints += 1;
        let checkpoint = match self.open_checkpoint(&entry) {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                self.add_blob_damage(Some(&entry.name), &entry.index.extents, &error)?;
                self.checked_bytes += self.bytes_of(listed);
                return Ok(self.tell(&entry.name));
            }
        };
        self.report.tensors += checkpoint.tensors().len() as u64;
        self.checked_bytes += entry.index.length;
        if !self.tell(&entry.name) {
            return Ok(false);
        }
        match reading {
            None => Ok(true),
            Some(reading) => {
                let first = self.report.damages.len();
                let outcome = DataCheck::new(self, reading, &checkpoint).run();
                self.report.damages[first..]
                    .sort_by(|a, b| (&a.tensor, a.block).cmp(&(&b.tensor, b.block)));
                outcome
            }
        }
    }

    fn open_checkpoint(&self, entry: &Arc<CheckpointEntry>) -> Result<Checkpoint> {
        let checkpoint = Checkpoint::open(self.store.clone(), Arc::clone(entry))?;
        let index = &checkpoint.index;
        if (index.tensors().len() as u64, index.data_bytes())
            == (entry.tensor_count, entry.data_bytes)
        {
            Ok(checkpoint)
        } else {
            Err(Error::damaged(
                "the index has other tensors than the catalog says",
            ))
        }
    }

    /// Tells how far it has come. False when the caller stops it.
    fn tell(&mut self, checkpoint: &CheckpointName) -> bool {
        (self.progress)(VerifyProgress {
            checked_bytes: self.checked_bytes,
            total_bytes: self.total_bytes,
            checkpoint: checkpoint.clone(),
        })
    }

    /// Adds the damage of a blob; an error that is none goes on.
    fn add_blob_damage(
        &mut self,
        checkpoint: Option<&CheckpointName>,
        extents: &[Extent],
        error: &Error,
    ) -> Result<()> {
        if !is_damage(error) {
            return Err(error.clone());
        }
        let places = place_of_error(error).map_or_else(
            || {
                let runs = extents
                    .iter()
                    .map(|extent| Run::new(extent.offset, extent.length));
                runs.flat_map(|run| places_of(self.store.volume(), run))
                    .collect()
            },
            |place| vec![place],
        );
        self.add(Damage {
            checkpoint: checkpoint.cloned(),
            tensor: error.tensor().map(str::to_owned),
            block: None,
            places,
            message: told(
                if checkpoint.is_none() {
                    "catalog"
                } else {
                    "index"
                },
                error,
            ),
        });
        Ok(())
    }

    fn add(&mut self, damage: Damage) {
        if self.report.damages.len() < DAMAGES_MAX {
            self.report.damages.push(damage);
        } else {
            self.report.damages_left_out += 1;
        }
    }
}

/// Whether an error is about what lies on the drives, and not about this process.
fn is_damage(error: &Error) -> bool {
    use swath_volume::ErrorKind as Volume;
    match error.volume_error().map(swath_volume::Error::kind) {
        Some(kind) => matches!(kind, Volume::Device | Volume::Gone | Volume::Shrunk),
        None => matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Unsupported),
    }
}

/// Where on a member it was, when a device said so.
fn place_of_error(error: &Error) -> Option<DevicePlace> {
    let error = error.volume_error()?.engine_error()?;
    let (offset, length) = error.range()?;
    Some(DevicePlace {
        path: error.path()?.to_path_buf(),
        offset,
        length,
    })
}

/// An error and its causes, as one line.
fn told(what: &str, error: &Error) -> String {
    let mut text = if error.volume_error().is_some() {
        format!("the {what} cannot be read: {error}")
    } else {
        format!("the {what} is damaged: {error}")
    };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
