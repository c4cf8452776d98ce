//! [`Image`]: the bytes of a device, in pages that clones share.
//!
//! - A clone costs nothing, and a write after it copies one page and the list of pages. So a test can
//!   keep the state of a device at every step, and make millions of states that differ in little.
//! - What was never written reads as zeroes and takes no memory.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

/// The unit in which pages are shared.
pub(super) const PAGE_BYTES: u64 = 4096;

/// The smallest unit that any drive writes as a whole.
pub(super) const SECTOR_BYTES: u64 = 512;

type Page = [u8; 4096];

/// The bytes of a device. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    pages: Arc<BTreeMap<u64, Arc<Page>>>,
}

impl Image {
    /// Zeroes, as far as anybody looks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fills `bytes` from `offset` on.
    pub fn read(&self, mut offset: u64, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let (number, within, length) = split(offset, bytes.len());
            let (part, rest) = bytes.split_at_mut(length);
            match self.pages.get(&number) {
                Some(page) => part.copy_from_slice(&page[within..within + length]),
                None => part.fill(0),
            }
            bytes = rest;
            offset += length as u64;
        }
    }

    /// Keeps `bytes` from `offset` on.
    pub fn write(&mut self, mut offset: u64, mut bytes: &[u8]) {
        let pages = Arc::make_mut(&mut self.pages);
        while !bytes.is_empty() {
            let (number, within, length) = split(offset, bytes.len());
            let (part, rest) = bytes.split_at(length);
            let page = pages.entry(number).or_insert_with(|| Arc::new([0; 4096]));
            Arc::make_mut(page)[within..within + length].copy_from_slice(part);
            bytes = rest;
            offset += length as u64;
        }
    }

    /// Makes a range read as zeroes.
    pub fn zero(&mut self, offset: u64, length: u64) {
        let parts = self.parts(offset, length);
        let pages = Arc::make_mut(&mut self.pages);
        for (offset, length) in parts {
            let (number, within) = (offset / PAGE_BYTES, size(offset % PAGE_BYTES));
            if length == PAGE_BYTES {
                pages.remove(&number);
            } else if let Some(page) = pages.get_mut(&number) {
                Arc::make_mut(page)[within..within + size(length)].fill(0);
            }
        }
    }

    /// The parts of a range that may hold anything but zeroes: offset and length, at most a page.
    pub fn parts(&self, offset: u64, length: u64) -> Vec<(u64, u64)> {
        let end = offset + length;
        self.pages
            .range(offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES))
            .map(|(&number, _)| {
                let start = offset.max(number * PAGE_BYTES);
                (start, end.min((number + 1) * PAGE_BYTES) - start)
            })
            .collect()
    }

    /// Makes a range read as it does in `other`.
    pub fn copy_from(&mut self, other: &Self, offset: u64, length: u64) {
        if Arc::ptr_eq(&self.pages, &other.pages) {
            return;
        }
        let mut page = [0; 4096];
        let mut done = 0;
        while done < length {
            let (_, _, step) = split(offset + done, size(length - done));
            other.read(offset + done, &mut page[..step]);
            self.write(offset + done, &page[..step]);
            done += step as u64;
        }
    }

    /// Changes the bits of `mask` in one byte.
    pub fn flip(&mut self, offset: u64, mask: u8) {
        let mut byte = [0];
        self.read(offset, &mut byte);
        self.write(offset, &[byte[0] ^ mask]);
    }

    /// A number that tells images apart: the sum of what [`sector_digest`] says of each sector, so
    /// that it can be kept up to date sector by sector.
    pub fn digest(&self, salt: u64) -> u128 {
        let mut sum = 0_u128;
        for (number, page) in &*self.pages {
            let first = number * (PAGE_BYTES / SECTOR_BYTES);
            for (sector, bytes) in (first..).zip(page.chunks_exact(size(SECTOR_BYTES))) {
                sum = sum.wrapping_add(sector_digest(salt, sector, bytes));
            }
        }
        sum
    }
}

/// A number for the bytes of one sector at its place: zero for zeroes. `salt` keeps devices apart.
pub fn sector_digest(salt: u64, sector: u64, bytes: &[u8]) -> u128 {
    if bytes.iter().all(|&byte| byte == 0) {
        return 0;
    }
    let half = |side: u64| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(salt);
        hasher.write_u64(side);
        hasher.write_u64(sector);
        hasher.write(bytes);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

/// The page of an offset, the place within, and how many of `length` bytes lie in it.
fn split(offset: u64, length: usize) -> (u64, usize, usize) {
    let within = size(offset % PAGE_BYTES);
    (
        offset / PAGE_BYTES,
        within,
        length.min(size(PAGE_BYTES) - within),
    )
}

pub(super) fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("it fits in memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_are_apart_and_digests_follow_the_bytes() {
        let mut one = Image::new();
        one.write(4000, &[7; 5000]);
        let mut two = one.clone();
        assert_eq!(one.digest(1), two.digest(1));
        two.write(5000, &[8]);
        let mut bytes = [0; 3];
        one.read(4999, &mut bytes);
        assert_eq!(bytes, [7, 7, 7]);
        two.read(4999, &mut bytes);
        assert_eq!(bytes, [7, 8, 7]);
        assert_ne!(one.digest(1), two.digest(1));
        assert_ne!(one.digest(1), one.digest(2));
        two.copy_from(&one, 4608, 512);
        assert_eq!(one.digest(1), two.digest(1));
        two.flip(8999, 1);
        two.zero(4000, 5000);
        assert_eq!(two.digest(3), 0);
    }
}
