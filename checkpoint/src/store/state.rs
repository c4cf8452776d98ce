//! [`State`]: the last commit of a store, and who has which of its space.
//!
//! - What is committed, held, taken by sessions and free is disjoint, and is all there is.
//! - Space that a commit frees is held until the next commit is durable, and until nobody reads it
//!   any more.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::catalog::{Catalog, CheckpointEntry};
use crate::extent::{Extent, FreeSpace, UNIT_BYTES};
use crate::names::CheckpointName;

pub(super) struct State {
    /// The last commit: what the root record leads to.
    pub(super) catalog: Catalog,
    pub(super) catalog_extents: Vec<Extent>,
    pub(super) free: FreeSpace,
    /// What commits freed and is not free yet.
    pub(super) held: Vec<Held>,
    /// The checkpoints that are open to be read, by their numbers. Pinning makes another entry of
    /// the same checkpoint, so there may be several.
    pub(super) open: HashMap<u64, Vec<Weak<CheckpointEntry>>>,
}

/// Space that is not free yet.
pub(super) struct Held {
    pub(super) extents: Vec<Extent>,
    /// The checkpoint whose space it was; none for a catalog's.
    pub(super) owner: Option<u64>,
    /// The commit that freed it.
    pub(super) freed_by: u64,
}

impl State {
    /// What sessions leave to the catalogs: that of their own commit, and those of two more, so
    /// that something can be removed from a store that is full, and its space made free.
    pub(super) fn reserve_bytes(&self) -> u64 {
        // A checkpoint more makes the catalog longer.
        3 * (catalog_bytes(&self.catalog) + UNIT_BYTES)
    }

    /// Takes free space, of which at least `left` bytes stay free.
    pub(super) fn take(
        &mut self,
        length: u64,
        left: u64,
        prefer_align: u64,
    ) -> Option<Vec<Extent>> {
        let wanted = length.checked_add(left)?;
        if wanted > self.free.free_bytes() {
            return None;
        }
        self.free.allocate(length, prefer_align)
    }

    /// A checkpoint's entry, to be held by those who read it.
    pub(super) fn open(&mut self, name: &CheckpointName) -> Option<Arc<CheckpointEntry>> {
        let entry = self.catalog.find(name)?;
        let open = self.open.entry(entry.id).or_default();
        open.retain(|entry| entry.strong_count() > 0);
        if let Some(same) = open
            .iter()
            .filter_map(Weak::upgrade)
            .find(|open| **open == *entry)
        {
            return Some(same);
        }
        let entry = Arc::new(entry.clone());
        open.push(Arc::downgrade(&entry));
        Some(entry)
    }

    /// Makes free what commits before `commit` freed and nobody reads.
    pub(super) fn settle(&mut self, commit: u64) {
        let Self {
            held, free, open, ..
        } = self;
        open.retain(|_, entries| {
            entries.retain(|entry| entry.strong_count() > 0);
            !entries.is_empty()
        });
        held.retain(|held| {
            let is_read = held.owner.is_some_and(|owner| open.contains_key(&owner));
            if held.freed_by >= commit || is_read {
                return true;
            }
            held.extents.iter().for_each(|extent| free.free(*extent));
            false
        });
    }
}

/// How much space a catalog takes.
pub(super) fn catalog_bytes(catalog: &Catalog) -> u64 {
    (catalog.encoded_bytes() as u64).next_multiple_of(UNIT_BYTES)
}
