//! The commit of a store: the atomic event that makes a checkpoint visible, or takes one away.
//!
//! Index and catalog go into free space first; then the root record, which makes every member
//! durable before and after, leads to them.

use std::time::{SystemTime, UNIX_EPOCH};

use swath_engine::GateGuard;
use swath_volume::VolumeLane;

use crate::blob;
use crate::catalog::{Catalog, CheckpointEntry};
use crate::error::{Error, ErrorKind, Result};
use crate::extent::{Extent, UNIT_BYTES};
use crate::index::Index;
use crate::ledger::Closed;
use crate::names::CheckpointName;
use crate::place::{BlobPlace, CATALOG_EXTENTS_MAX, StoreHeader};
use crate::session::BeginOptions;
use crate::store::space::Taken;
use crate::store::state::{Held, catalog_bytes};
use crate::store::{CheckpointInfo, Store, lane_of};

/// The right to commit, which one has at a time; and a lane for what a commit writes.
pub(super) struct Committing<'a> {
    lane: VolumeLane,
    _turn: GateGuard<'a, ()>,
}

impl Store {
    pub(super) fn begin_commit(&self) -> Result<Committing<'_>> {
        let turn = self.0.committing.lock();
        self.check_writable()?;
        Ok(Committing {
            lane: lane_of(&self.0.volume, &self.0.options)?,
            _turn: turn,
        })
    }

    /// The catalog of the next commit, as it is before anything is changed.
    pub(super) fn next_catalog(&self) -> Catalog {
        let mut catalog = self.0.state.lock().catalog.clone();
        catalog.advance();
        catalog
    }

    /// Makes a session's checkpoint visible.
    pub(crate) fn commit_session(
        &self,
        name: &CheckpointName,
        options: &BeginOptions,
        closed: Closed,
    ) -> Result<CheckpointInfo> {
        let Closed { tensors, taken } = closed;
        // What is taken is given back by whoever fails, as long as nothing can lead to it.
        let mut space = Taken {
            store: self,
            extents: taken,
        };
        let mut committing = self.begin_commit()?;
        let mut catalog = self.next_catalog();
        let id = catalog.reserve_id();
        let replaced = if options.replace {
            catalog.remove(name).ok()
        } else {
            None
        };
        let index = Index::new(catalog.store_uuid(), id, tensors)?;
        let runs = index.tensors().iter().flat_map(|tensor| &tensor.runs);
        let used = Extent::covering(runs.copied());
        space.keep_only(&used);
        let place = self.write_blob(&mut committing, &index.encode(), 0)?;
        space.extents.extend(&place.extents);
        let entry = CheckpointEntry {
            id,
            name: name.clone(),
            created_unix_s: options.created_unix_s.unwrap_or_else(now_unix_s),
            pinned: false,
            metadata: options.metadata.clone(),
            tensor_count: index.tensors().len() as u64,
            data_bytes: index.data_bytes(),
            extents: Extent::merge(space.extents.clone()),
            index: place,
        };
        let info = CheckpointInfo::of(&entry);
        catalog.push(entry)?;
        let left = 2 * catalog_bytes(&catalog);
        let written = self.write_commit(
            &mut committing,
            catalog,
            replaced.into_iter().collect(),
            left,
        );
        if written.is_ok() || self.0.volume.poisoned().is_some() {
            // It is the checkpoint's now; or, after a failure in the last step, perhaps: the next
            // open decides.
            space.extents.clear();
        }
        written.map(|()| info)
    }

    /// Writes a catalog and the root record that leads to it: the atomic event. `removed` are the
    /// checkpoints that it no longer has. At least `left` bytes stay free.
    pub(super) fn write_commit(
        &self,
        committing: &mut Committing<'_>,
        catalog: Catalog,
        removed: Vec<CheckpointEntry>,
        left: u64,
    ) -> Result<()> {
        let place = self.write_blob(committing, &catalog.encode(), left)?;
        if place.extents.len() > CATALOG_EXTENTS_MAX {
            let pieces = place.extents.len();
            self.release(place.extents);
            return Err(Error::new(
                ErrorKind::NoSpace,
                format!(
                    "free space is in too small pieces: the catalog would lie in {pieces}, and may \
                     lie in {CATALOG_EXTENTS_MAX}"
                ),
            ));
        }
        let header = StoreHeader {
            store_uuid: catalog.store_uuid(),
            commit: catalog.commit(),
            catalog: place,
        };
        let written = self.0.volume.commit_root(&header.encode());
        let place = header.catalog;
        if let Err(error) = written {
            if self.0.volume.poisoned().is_none() {
                // Refused before anything was written.
                self.release(place.extents);
            }
            return Err(error.into());
        }
        let commit = catalog.commit();
        let mut state = self.0.state.lock();
        state.catalog = catalog;
        state.settle(commit);
        let old = std::mem::replace(&mut state.catalog_extents, place.extents);
        state.held.push(Held {
            extents: old,
            owner: None,
            freed_by: commit,
        });
        state.held.extend(removed.into_iter().map(|entry| Held {
            owner: Some(entry.id),
            extents: entry.extents,
            freed_by: commit,
        }));
        Ok(())
    }

    /// Writes a blob into free space, of which at least `left` bytes stay free.
    fn write_blob(
        &self,
        committing: &mut Committing<'_>,
        bytes: &[u8],
        left: u64,
    ) -> Result<BlobPlace> {
        let length = (bytes.len() as u64).next_multiple_of(UNIT_BYTES);
        let chunk_bytes = self.0.volume.chunk_bytes();
        let taken = self.0.state.lock().take(length, left, chunk_bytes);
        let extents = taken.ok_or_else(|| {
            Error::new(
                ErrorKind::NoSpace,
                format!("the store is too full: {length} bytes are needed for its own records"),
            )
        })?;
        blob::write(&mut committing.lane, extents.clone(), bytes, chunk_bytes)
            .inspect_err(|_| self.release(extents))
    }

    pub(crate) fn read_blob(&self, place: &BlobPlace) -> Result<Vec<u8>> {
        let mut lane = lane_of(&self.0.volume, &self.0.options)?;
        blob::read(&mut lane, place, self.0.volume.chunk_bytes())
    }
}

fn now_unix_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
