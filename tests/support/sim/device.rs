//! [`SimDevice`]: a device of memory, open and locked; and [`Store`], what keeps its bytes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use swath_engine::{Access, Device, DeviceKind, Geometry, Identity, Lock, OpenOptions};

use super::platform::World;

const PAGE_BYTES: u64 = 4096;

type Page = [u8; 4096];

/// What keeps the bytes of a simulated device.
#[derive(Debug, Clone)]
pub enum Store {
    /// Pages that were written; all others read as zeroes. A huge device costs nothing.
    Sparse(BTreeMap<u64, Box<Page>>),
    /// Nothing: bytes are only counted, and memory is not touched. For transfers larger than the
    /// machine.
    Counting,
}

impl Store {
    /// A store that keeps what is written.
    pub const fn sparse() -> Self {
        Self::Sparse(BTreeMap::new())
    }

    /// Fills `bytes` from `offset` on.
    pub fn read(&self, mut offset: u64, mut bytes: &mut [u8]) {
        let Self::Sparse(pages) = self else { return };
        while !bytes.is_empty() {
            let (number, within, length) = split(offset, bytes.len());
            let (part, rest) = bytes.split_at_mut(length);
            match pages.get(&number) {
                Some(page) => part.copy_from_slice(&page[within..within + length]),
                None => part.fill(0),
            }
            bytes = rest;
            offset += length as u64;
        }
    }

    /// Keeps `bytes` from `offset` on.
    pub fn write(&mut self, mut offset: u64, mut bytes: &[u8]) {
        let Self::Sparse(pages) = self else { return };
        while !bytes.is_empty() {
            let (number, within, length) = split(offset, bytes.len());
            let (part, rest) = bytes.split_at(length);
            let page = pages.entry(number).or_insert_with(|| Box::new([0; 4096]));
            page[within..within + length].copy_from_slice(part);
            bytes = rest;
            offset += length as u64;
        }
    }

    /// Makes a range read as zeroes.
    pub fn zero(&mut self, offset: u64, length: u64) {
        let Self::Sparse(pages) = self else { return };
        let end = offset + length;
        let touched: Vec<u64> = pages
            .range(offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES))
            .map(|(&n, _)| n)
            .collect();
        for number in touched {
            let start = number * PAGE_BYTES;
            let from = size(offset.max(start) - start);
            let to = size(end.min(start + PAGE_BYTES) - start);
            pages.get_mut(&number).expect("it was found just now")[from..to].fill(0);
        }
    }
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

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("it fits in memory")
}

/// The media of a device, whoever has it open.
#[derive(Debug)]
pub(super) struct Media {
    pub(super) number: u64,
    pub(super) geometry: Geometry,
    pub(super) store: Store,
    pub(super) readers: u32,
    pub(super) has_writer: bool,
}

impl Media {
    /// Locks the device as an opener asks, if others let it.
    pub(super) fn lock(&mut self, options: &OpenOptions) -> bool {
        match options.lock {
            Lock::None => return true,
            Lock::Own => {}
            // There is one process here.
            Lock::Guest(_) => return false,
        }
        let free = match options.access {
            Access::Read => !self.has_writer,
            Access::ReadWrite => !self.has_writer && self.readers == 0,
        };
        if free {
            match options.access {
                Access::Read => self.readers += 1,
                Access::ReadWrite => self.has_writer = true,
            }
        }
        free
    }

    fn unlock(&mut self, options: &OpenOptions) {
        match options {
            OpenOptions {
                lock: Lock::None | Lock::Guest(_),
                ..
            } => {}
            OpenOptions {
                access: Access::Read,
                ..
            } => self.readers -= 1,
            OpenOptions {
                access: Access::ReadWrite,
                ..
            } => self.has_writer = false,
        }
    }
}

/// A simulated device that is open; lets go of its lock when dropped.
#[derive(Debug)]
pub struct SimDevice {
    pub(super) world: Arc<World>,
    pub(super) path: PathBuf,
    pub(super) number: u64,
    pub(super) geometry: Geometry,
    pub(super) options: OpenOptions,
}

impl Device for SimDevice {
    fn path(&self) -> &Path {
        &self.path
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> Identity {
        Identity::Simulated {
            number: self.number,
        }
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Simulated
    }

    fn is_direct(&self) -> bool {
        true
    }
}

impl Drop for SimDevice {
    fn drop(&mut self) {
        self.world
            .state
            .lock()
            .media(self.number)
            .unlock(&self.options);
    }
}
