//! [`Media`]: what a device holds, in two layers: what reads see, and what a crash cannot take.
//!
//! ```text
//! write --> current        what reads see: a volatile cache over the durable image
//!              |  flush, FUA, or the drive's own whim
//!              v
//!           durable        what is there after a crash
//! ```
//!
//! - A flush makes durable what had completed when it was submitted. What completes between that
//!   and the flush's own end stays in the cache.
//! - A drive may make a sector durable at any time. It is done when a cached sector is written over,
//!   by chance: so a crash can also show a version in between.
//! - A flush that fails leaves each cached sector durable, lost, or cached still.
//! - The unit that is kept or lost as a whole is the sector, of 512 bytes unless told otherwise.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use swath_engine::Geometry;

use super::image::{Image, PAGE_BYTES, SECTOR_BYTES};
use super::locks::Locks;

/// What keeps the bytes of a simulated device.
#[derive(Debug, Clone)]
pub enum Store {
    /// All that is written is kept; what was not reads as zeroes. A huge device costs nothing.
    Kept(Image),
    /// Nothing: bytes are only counted, and memory is not touched. For transfers larger than the
    /// machine.
    Counting,
}

impl Store {
    /// A store that keeps what is written, with nothing in it.
    pub fn sparse() -> Self {
        Self::Kept(Image::new())
    }
}

/// One device's bytes and what is known about them.
#[derive(Debug)]
pub(super) struct Media {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    pub(super) geometry: Geometry,
    pub(super) locks: Locks,
    /// Whether it was pulled out.
    pub(super) is_gone: bool,
    /// Whether its operations are held back.
    pub(super) is_hung: bool,
    /// Whether bytes are counted and not kept.
    pub(super) is_counting: bool,
    /// What is written as a whole or not at all.
    pub(super) tear_bytes: u64,
    current: Image,
    durable: Image,
    /// By page, a bit for each sector that is in the cache only.
    dirty: Arc<BTreeMap<u64, u8>>,
    /// Sectors that FUA writes made durable, and which change did.
    forced: BTreeMap<u64, u64>,
    /// How many changes there were, and how many of them the last flush covered.
    changes: u64,
    flushed: u64,
}

/// What a flush covers: taken when it is submitted.
#[derive(Debug)]
pub(super) struct Cover {
    changes: u64,
    current: Image,
    dirty: Arc<BTreeMap<u64, u8>>,
}

impl Media {
    pub(super) fn new(number: u64, path: PathBuf, geometry: Geometry, store: Store) -> Self {
        let is_counting = matches!(store, Store::Counting);
        let image = match store {
            Store::Kept(image) => image,
            Store::Counting => Image::new(),
        };
        Self {
            number,
            path,
            locks: Locks::default(),
            is_gone: false,
            is_hung: false,
            is_counting,
            tear_bytes: u64::from(geometry.logical_block_bytes).clamp(SECTOR_BYTES, PAGE_BYTES),
            geometry,
            current: image.clone(),
            durable: image,
            dirty: Arc::default(),
            forced: BTreeMap::new(),
            changes: 0,
            flushed: 0,
        }
    }

    /// What reads see.
    pub(super) fn current(&self) -> &Image {
        &self.current
    }

    /// What a crash cannot take.
    pub(super) fn durable(&self) -> &Image {
        &self.durable
    }

    /// Whether nothing is in the cache only.
    pub(super) fn is_clean(&self) -> bool {
        self.dirty.is_empty()
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8], fua: bool, rng: &mut ChaCha8Rng) {
        self.change(offset, bytes.len() as u64, fua, rng, |image| {
            image.write(offset, bytes);
        });
    }

    /// Only what is there can change: a range may be as long as the device, which may be huge.
    pub(super) fn zero(&mut self, offset: u64, length: u64, rng: &mut ChaCha8Rng) {
        for (offset, length) in self.current.parts(offset, length) {
            self.change(offset, length, false, rng, |image| {
                image.zero(offset, length);
            });
        }
    }

    fn change(
        &mut self,
        offset: u64,
        length: u64,
        fua: bool,
        rng: &mut ChaCha8Rng,
        apply: impl FnOnce(&mut Image),
    ) {
        if self.is_counting || length == 0 {
            return;
        }
        self.changes += 1;
        for (page, mask) in pages(offset, length) {
            let cached = self.dirty.get(&page).copied().unwrap_or(0) & mask;
            if cached != 0 && rng.random() {
                self.settle(page, cached);
            }
        }
        apply(&mut self.current);
        let dirty = Arc::make_mut(&mut self.dirty);
        for (page, mask) in pages(offset, length) {
            if fua {
                copy(&mut self.durable, &self.current, page, mask);
                for sector in sectors(page, mask) {
                    self.forced.insert(sector, self.changes);
                }
                clear(dirty, page, mask);
            } else {
                *dirty.entry(page).or_default() |= mask;
            }
        }
    }

    /// Makes some cached sectors of a page durable.
    fn settle(&mut self, page: u64, mask: u8) {
        copy(&mut self.durable, &self.current, page, mask);
        clear(Arc::make_mut(&mut self.dirty), page, mask);
    }

    /// A flush begins: what it will cover.
    pub(super) fn cover(&self) -> Cover {
        Cover {
            changes: self.changes,
            current: self.current.clone(),
            dirty: Arc::clone(&self.dirty),
        }
    }

    /// A flush has succeeded.
    pub(super) fn flush(&mut self, cover: &Cover) {
        if cover.changes < self.flushed {
            // A flush that was submitted later has ended before, and covered all that.
            return;
        }
        self.flushed = cover.changes;
        if self.changes == cover.changes {
            self.durable = self.current.clone();
            self.dirty = Arc::default();
            self.forced.clear();
            return;
        }
        for (&page, &mask) in &*cover.dirty {
            for sector in sectors(page, mask) {
                let is_newer = self.forced.get(&sector);
                if is_newer.is_some_and(|&change| change > cover.changes) {
                    continue;
                }
                let bit = 1_u8 << (sector % 8);
                copy(&mut self.durable, &cover.current, page, bit);
                if same(&self.current, &cover.current, sector) {
                    clear(Arc::make_mut(&mut self.dirty), page, bit);
                }
            }
        }
    }

    /// A flush has failed: nothing is known of what was cached.
    pub(super) fn fail_flush(&mut self, rng: &mut ChaCha8Rng) {
        for (offset, length) in self.cached() {
            match rng.random_range(0..3) {
                0 => self.durable.copy_from(&self.current, offset, length),
                1 => self.current.copy_from(&self.durable, offset, length),
                _ => continue,
            }
            let dirty = Arc::make_mut(&mut self.dirty);
            for (page, mask) in pages(offset, length) {
                clear(dirty, page, mask);
            }
        }
    }

    /// Changes bytes on the media themselves, past the cache.
    pub(super) fn poke(&mut self, offset: u64, bytes: &[u8]) {
        self.current.write(offset, bytes);
        self.durable.write(offset, bytes);
    }

    /// A bit rots where it lies: in the cache if it is there, else on the media.
    pub(super) fn flip(&mut self, offset: u64, mask: u8) {
        self.current.flip(offset, mask);
        let (page, bit) = pages(offset, 1).next().expect("one byte lies on a page");
        if self.dirty.get(&page).is_none_or(|dirty| dirty & bit == 0) {
            self.durable.flip(offset, mask);
        }
    }

    /// What is in the cache only, in units that are kept or lost as a whole: offset and length.
    pub(super) fn cached(&self) -> Vec<(u64, u64)> {
        let mut units = Vec::new();
        for (&page, &mask) in &*self.dirty {
            for sector in sectors(page, mask) {
                let offset = sector * SECTOR_BYTES / self.tear_bytes * self.tear_bytes;
                if units.last() != Some(&(offset, self.tear_bytes)) {
                    units.push((offset, self.tear_bytes));
                }
            }
        }
        units
    }

    /// A range of whole or partial units, cut at their borders.
    pub(super) fn units(&self, offset: u64, length: u64) -> Vec<(u64, u64)> {
        let (mut at, end) = (offset, offset + length);
        let mut units = Vec::new();
        while at < end {
            let next = (at / self.tear_bytes + 1) * self.tear_bytes;
            units.push((at, next.min(end) - at));
            at = next;
        }
        units
    }
}

/// The pages of a range, each with the bits of the sectors that it touches.
fn pages(offset: u64, length: u64) -> impl Iterator<Item = (u64, u8)> {
    let end = offset + length;
    (offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES)).map(move |page| {
        let start = page * PAGE_BYTES;
        let from = (offset.max(start) - start) / SECTOR_BYTES;
        let to = (end.min(start + PAGE_BYTES) - start).div_ceil(SECTOR_BYTES);
        let bits = (1_u32 << to) - (1_u32 << from);
        (page, u8::try_from(bits).expect("a page has eight sectors"))
    })
}

/// The sectors of a page that `mask` names.
fn sectors(page: u64, mask: u8) -> impl Iterator<Item = u64> {
    let first = page * (PAGE_BYTES / SECTOR_BYTES);
    (0..8)
        .filter(move |bit| mask & (1 << bit) != 0)
        .map(move |bit| first + bit)
}

fn copy(to: &mut Image, from: &Image, page: u64, mask: u8) {
    if mask == u8::MAX {
        to.copy_from(from, page * PAGE_BYTES, PAGE_BYTES);
        return;
    }
    for sector in sectors(page, mask) {
        to.copy_from(from, sector * SECTOR_BYTES, SECTOR_BYTES);
    }
}

fn same(one: &Image, two: &Image, sector: u64) -> bool {
    let (mut left, mut right) = ([0; 512], [0; 512]);
    one.read(sector * SECTOR_BYTES, &mut left);
    two.read(sector * SECTOR_BYTES, &mut right);
    left == right
}

fn clear(dirty: &mut BTreeMap<u64, u8>, page: u64, mask: u8) {
    if let Some(left) = dirty.get_mut(&page) {
        *left &= !mask;
        if *left == 0 {
            dirty.remove(&page);
        }
    }
}
