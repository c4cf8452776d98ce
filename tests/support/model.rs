//! [`FlatModel`]: a volume as an array of bytes, some of which nobody knows.

use std::ops::Range;

/// What a volume must read as.
#[derive(Debug, Clone)]
pub struct FlatModel {
    bytes: Vec<u8>,
    is_known: Vec<bool>,
}

impl FlatModel {
    /// A volume of `capacity` bytes that may hold anything.
    pub fn unknown(capacity: usize) -> Self {
        Self {
            bytes: vec![0; capacity],
            is_known: vec![false; capacity],
        }
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes were written.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.is_known[offset..offset + bytes.len()].fill(true);
    }

    /// Zeroes were written.
    pub fn write_zeroes(&mut self, range: Range<usize>) {
        self.bytes[range.clone()].fill(0);
        self.is_known[range].fill(true);
    }

    /// A range was discarded: what it reads as is nobody's promise.
    pub fn discard(&mut self, range: Range<usize>) {
        self.is_known[range].fill(false);
    }

    /// The first place where what was read differs from what was written, in words.
    ///
    /// # Errors
    ///
    /// There is such a place.
    pub fn compare(&self, offset: usize, read: &[u8]) -> Result<(), String> {
        let wrong = read.iter().enumerate().find(|&(place, byte)| {
            self.is_known[offset + place] && self.bytes[offset + place] != *byte
        });
        match wrong {
            None => Ok(()),
            Some((place, byte)) => Err(format!(
                "byte {} of the volume reads as {byte:#04x} and was written as {:#04x} (byte \
                 {place} of a read of {} from {offset})",
                offset + place,
                self.bytes[offset + place],
                read.len(),
            )),
        }
    }
}
