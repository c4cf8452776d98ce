//! The space of a store: how it is used, and how sessions take it and give it back.

use crate::error::{Error, ErrorKind, Result};
use crate::extent::Extent;
use crate::store::{Store, usable_bytes};

/// How the space of a store is used, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct SpaceReport {
    /// What the volume holds.
    pub capacity_bytes: u64,
    /// What committed checkpoints take, data and index.
    pub checkpoint_bytes: u64,
    /// What the catalog takes.
    pub catalog_bytes: u64,
    /// What the last commit freed and the next one will make free, or a reader still holds.
    pub held_bytes: u64,
    /// What sessions in progress have taken.
    pub session_bytes: u64,
    /// What can be taken now, but for a little that is left to the store's own records.
    pub free_bytes: u64,
    /// The largest run of it.
    pub largest_free_bytes: u64,
}

impl Store {
    /// How the space is used.
    pub fn space(&self) -> SpaceReport {
        let state = self.0.state.lock();
        let sum = |extents: &[Extent]| extents.iter().map(|extent| extent.length).sum::<u64>();
        let checkpoint_bytes = state.catalog.extents().map(|extent| extent.length).sum();
        let catalog_bytes = sum(&state.catalog_extents);
        let held_bytes = state.held.iter().map(|held| sum(&held.extents)).sum();
        let capacity_bytes = usable_bytes(&self.0.volume);
        let free_bytes = state.free.free_bytes();
        SpaceReport {
            capacity_bytes,
            checkpoint_bytes,
            catalog_bytes,
            held_bytes,
            session_bytes: capacity_bytes
                - (checkpoint_bytes + catalog_bytes + held_bytes + free_bytes),
            free_bytes,
            largest_free_bytes: state.free.largest_bytes(),
        }
    }

    /// Takes `length` bytes of free space, in as few extents as there can be.
    pub(crate) fn take_space(&self, length: u64) -> Result<Vec<Extent>> {
        if let Some(extents) = self.try_take(length) {
            return Ok(extents);
        }
        let (have, held) = self.available_bytes();
        if held > 0 && have + held >= length {
            self.commit_nothing()?;
            if let Some(extents) = self.try_take(length) {
                return Ok(extents);
            }
        }
        let (have, _) = self.available_bytes();
        Err(Error::new(
            ErrorKind::NoSpace,
            format!("the store is too full: {length} bytes are needed, and {have} are free"),
        ))
    }

    /// As [`take_space`](Self::take_space), but when there is less than that, all there is.
    pub(crate) fn take_space_up_to(&self, length: u64) -> Result<Vec<Extent>> {
        self.take_space(length).or_else(|error| {
            if error.kind() != ErrorKind::NoSpace {
                return Err(error);
            }
            if self.available_bytes().1 > 0 {
                self.commit_nothing()?;
            }
            let (have, _) = self.available_bytes();
            Some(have.min(length))
                .filter(|length| *length > 0)
                .and_then(|length| self.try_take(length))
                .ok_or(error)
        })
    }

    /// Commits what there is once more: what the commit before freed is free then.
    fn commit_nothing(&self) -> Result<()> {
        let mut committing = self.begin_commit()?;
        self.write_commit(&mut committing, self.next_catalog(), Vec::new(), 0)
    }

    /// What sessions can take now, and what they could after a commit if nobody read it.
    fn available_bytes(&self) -> (u64, u64) {
        let state = self.0.state.lock();
        let held = state.held.iter().flat_map(|held| &held.extents);
        let free = state.free.free_bytes();
        (
            free.saturating_sub(state.reserve_bytes()),
            held.map(|extent| extent.length).sum(),
        )
    }

    /// Takes one extent of `length` bytes, if there is one, without a commit for its sake. It begins
    /// at a multiple of `align` where that can be had.
    pub(crate) fn try_take_one(&self, length: u64, align: u64) -> Option<Extent> {
        let mut state = self.0.state.lock();
        if state.free.largest_bytes() < length {
            return None;
        }
        let left = state.reserve_bytes();
        let extents = state.take(length, left, align)?;
        extents.into_iter().next()
    }

    /// What sessions can take now.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.available_bytes().0
    }

    /// Takes space for a session.
    fn try_take(&self, length: u64) -> Option<Vec<Extent>> {
        let mut state = self.0.state.lock();
        let left = state.reserve_bytes();
        state.take(length, left, self.0.volume.chunk_bytes())
    }

    /// Gives space back that no commit ever named.
    pub(crate) fn release(&self, extents: Vec<Extent>) {
        let mut state = self.0.state.lock();
        for extent in extents {
            state.free.free(extent);
        }
    }
}

/// Space that belongs to nobody yet; free again when dropped.
pub(super) struct Taken<'a> {
    pub(super) store: &'a Store,
    pub(super) extents: Vec<Extent>,
}

impl Taken<'_> {
    /// Gives back all but `used`, which lies within it.
    pub(super) fn keep_only(&mut self, used: &[Extent]) {
        let all = std::mem::take(&mut self.extents);
        self.store.release(Extent::minus(all, used));
        self.extents = used.to_vec();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.store.release(std::mem::take(&mut self.extents));
    }
}
