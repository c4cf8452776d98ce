//! [`Ledger`]: what the writers of one checkpoint share, in the process that owns it or in one that
//! writes a part of it.
//!
//! It hands out space, keeps names apart, collects the tensors that are written, and remembers the
//! first failure, so that nothing is committed over it.
//!
//! Space that is reserved is a promise that it is there, not a duty to use it: where it would cut a
//! tensor into pieces, the store is asked first.

use std::collections::{BTreeMap, BTreeSet};

use swath_engine::{BufPool, Gate};
use swath_volume::{Guest, Volume};

use crate::error::{Error, ErrorKind, Result};
use crate::extent::{Extent, FreeSpace, UNIT_BYTES};
use crate::index::TensorEntry;
use crate::lent::Lent;
use crate::names::CheckpointName;
use crate::options::StoreOptions;
use crate::spare_pools::SparePools;
use crate::store::{Store, usable_bytes};

pub(crate) struct Ledger {
    pub(crate) name: CheckpointName,
    pub(crate) volume: Volume,
    pub(crate) options: StoreOptions,
    pub(crate) verify_source: bool,
    /// Where more space comes from; none in a process that writes a part, which has its lease.
    store: Option<Store>,
    state: Gate<LedgerState>,
}

struct LedgerState {
    /// Space reserved and not used yet.
    reserved: FreeSpace,
    /// All space that was taken from the store.
    taken: Vec<Extent>,
    /// Every name that was claimed; none: its data is still being written.
    tensors: BTreeMap<String, Option<TensorEntry>>,
    /// The first failure of any writer.
    error: Option<Error>,
    /// Writers that are not done.
    open: usize,
    /// What other processes have.
    lent: Lent,
    finished: bool,
}

impl LedgerState {
    fn check_unfinished(&self) -> Result<()> {
        if self.finished {
            return Err(Error::new(
                ErrorKind::Finished,
                "the checkpoint is committed: nothing can be added",
            ));
        }
        Ok(())
    }
}

/// What a ledger held when it was closed.
pub(crate) struct Closed {
    pub(crate) tensors: Vec<TensorEntry>,
    /// All space that was taken, used or not.
    pub(crate) taken: Vec<Extent>,
}

impl Ledger {
    pub(crate) fn new(
        name: CheckpointName,
        volume: Volume,
        options: StoreOptions,
        verify_source: bool,
        store: Option<Store>,
        reserved: Vec<Extent>,
    ) -> Self {
        let mut space = FreeSpace::none(usable_bytes(&volume));
        for &extent in &reserved {
            space.free(extent);
        }
        let state = LedgerState {
            reserved: space,
            taken: reserved,
            tensors: BTreeMap::new(),
            error: None,
            open: 0,
            lent: Lent::default(),
            finished: false,
        };
        Self {
            name,
            options,
            verify_source,
            store,
            state: Gate::new(volume.platform(), "the ledger of a session", state),
            volume,
        }
    }

    /// Closes it: nothing can be added any more.
    ///
    /// # Errors
    ///
    /// Closed already; somebody is still writing, here or with a lease; somebody failed.
    pub(crate) fn close(&self) -> Result<Closed> {
        let mut state = self.state.lock();
        if state.finished {
            return Err(self.name_error(Error::new(
                ErrorKind::Finished,
                "the checkpoint is committed already, or given up",
            )));
        }
        if state.open > 0 {
            return Err(self.name_error(Error::new(
                ErrorKind::Busy,
                format!("{} writers are still open: finish them first", state.open),
            )));
        }
        if let Some(lease_id) = state.lent.first_out() {
            return Err(self.name_error(Error::new(
                ErrorKind::Busy,
                format!("lease {lease_id} is still out: accept its receipt, or revoke it"),
            )));
        }
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        if let Some((tensor, _)) = state.tensors.iter().find(|(_, entry)| entry.is_none()) {
            let error = Error::new(ErrorKind::Busy, "the tensor was begun and not finished");
            return Err(self.tensor_error(tensor, error));
        }
        state.finished = true;
        state.reserved = FreeSpace::none(0);
        let tensors = std::mem::take(&mut state.tensors)
            .into_values()
            .flatten()
            .collect();
        Ok(Closed {
            tensors,
            taken: std::mem::take(&mut state.taken),
        })
    }

    /// Takes at least `length` bytes of space: one extent where one is to be had, of what is
    /// reserved first, then of the store. One extent begins at a multiple of `align` where that can
    /// be had.
    pub(crate) fn allocate(&self, length: u64, align: u64) -> Result<Vec<Extent>> {
        let mut state = self.state.lock();
        let LedgerState {
            reserved, taken, ..
        } = &mut *state;
        if reserved.largest_bytes() >= length {
            let align = if self.can_skip(reserved, align) {
                align
            } else {
                1
            };
            return Ok(reserved.allocate(length, align).expect("it fits"));
        }
        // What is reserved lies in pieces: it stays for what fits, as long as there is more.
        if let Some(store) = &self.store
            && let Some(extent) = store.try_take_one(length, align)
        {
            taken.push(extent);
            return Ok(vec![extent]);
        }
        let have = reserved.free_bytes().min(length);
        let mut extents = reserved.allocate(have, 1).expect("so much is there");
        let missing = length - have;
        if missing > 0 {
            let more = match &self.store {
                Some(store) => store.take_space(missing),
                None => Err(Error::new(
                    ErrorKind::NoSpace,
                    format!("the lease is used up: {missing} bytes more are needed"),
                )),
            };
            match more {
                Ok(more) => {
                    taken.extend(&more);
                    extents.extend(more);
                }
                Err(error) => {
                    extents.into_iter().for_each(|extent| reserved.free(extent));
                    return Err(error);
                }
            }
        }
        Ok(extents)
    }

    /// Whether bytes of what is reserved may be left behind, so that a tensor begins on a border:
    /// only while the store has as many elsewhere. Or the tensors that come last would have to make
    /// do with what was left behind, in many small pieces.
    fn can_skip(&self, reserved: &FreeSpace, align: u64) -> bool {
        let left_behind = reserved.free_bytes() - reserved.largest_bytes();
        self.store
            .as_ref()
            .is_some_and(|store| store.spare_bytes() >= left_behind + align)
    }

    /// Takes one extent of at most `length` bytes: what is left of reserved space, or of the store,
    /// however little.
    pub(crate) fn allocate_up_to(&self, length: u64) -> Result<Extent> {
        if let Some(extent) = self.state.lock().reserved.allocate_up_to(length, 1) {
            return Ok(extent);
        }
        let Some(store) = &self.store else {
            return Err(Error::new(
                ErrorKind::NoSpace,
                format!("the lease is used up: {length} bytes more are needed"),
            ));
        };
        let taken = store.take_space_up_to(length)?;
        self.state.lock().taken.extend(&taken);
        let mut extents = taken.into_iter();
        let first = extents.next().expect("an allocation has an extent");
        // It lies in pieces.
        extents.for_each(|extent| self.give_back(extent));
        Ok(first)
    }

    /// Gives back what of an allocation was not used; the next allocations use it.
    pub(crate) fn give_back(&self, extent: Extent) {
        if extent.length > 0 {
            self.state.lock().reserved.free(extent);
        }
    }

    /// Claims a tensor's name.
    pub(crate) fn claim(&self, name: &str) -> Result<()> {
        let mut state = self.state.lock();
        let refusal = if let Err(error) = state.check_unfinished() {
            error
        } else if state.tensors.contains_key(name) {
            name_is_taken()
        } else {
            state.tensors.insert(name.to_owned(), None);
            return Ok(());
        };
        Err(self.tensor_error(name, refusal))
    }

    /// Gives up a claim of which nothing has come.
    pub(crate) fn disclaim(&self, name: &str) {
        self.state.lock().tensors.remove(name);
    }

    /// Enters a tensor whose bytes are all on their way.
    pub(crate) fn enter(&self, entry: TensorEntry) {
        self.state
            .lock()
            .tensors
            .insert(entry.name.clone(), Some(entry));
    }

    /// Sets space apart for another process, and invites it.
    pub(crate) fn lend(&self, bytes: u64) -> Result<(Guest, Vec<Extent>)> {
        let length = bytes
            .checked_next_multiple_of(UNIT_BYTES)
            .unwrap_or(u64::MAX - u64::MAX % UNIT_BYTES);
        self.state.lock().check_unfinished()?;
        let extents = self.allocate(length, self.volume.chunk_bytes())?;
        let guest = self.volume.invite().inspect_err(|_| {
            for extent in &extents {
                self.give_back(*extent);
            }
        })?;
        let mut state = self.state.lock();
        // Looked at once more under the same lock as the lease is entered: what another thread has
        // committed meanwhile has given this space back, and nobody knows of the lease yet.
        state.check_unfinished()?;
        state.lent.add(guest, extents.clone());
        Ok((guest, extents))
    }

    /// Takes back what was lent, with what was written there.
    pub(crate) fn accept(&self, lease_id: u64, tensors: Vec<TensorEntry>) -> Result<()> {
        let guest = {
            let state = self.state.lock();
            state.check_unfinished()?;
            state.lent.guest(lease_id)?
        };
        // Waits a moment for a process that is just leaving, so not under the lock.
        self.close_seat(&guest)?;
        let mut state = self.state.lock();
        let mut names = BTreeSet::new();
        for tensor in &tensors {
            if state.tensors.contains_key(&tensor.name) || !names.insert(&tensor.name) {
                return Err(name_is_taken().with_tensor(&tensor.name));
            }
        }
        let unused = state.lent.accept(lease_id, &tensors)?;
        unused
            .into_iter()
            .for_each(|extent| state.reserved.free(extent));
        for tensor in tensors {
            state.tensors.insert(tensor.name.clone(), Some(tensor));
        }
        Ok(())
    }

    /// Takes back what was lent, with nothing.
    pub(crate) fn revoke(&self, lease_id: u64) -> Result<()> {
        let guest = self.state.lock().lent.guest(lease_id)?;
        self.close_seat(&guest)?;
        let mut state = self.state.lock();
        let extents = state.lent.revoke(lease_id)?;
        extents
            .into_iter()
            .for_each(|extent| state.reserved.free(extent));
        Ok(())
    }

    /// Makes sure that nobody writes to what was lent, now or later.
    fn close_seat(&self, guest: &Guest) -> Result<()> {
        self.volume.close_seat(guest).map_err(|error| {
            if error.kind() != swath_volume::ErrorKind::InUse {
                return error.into();
            }
            let lease_id = guest.seat;
            Error::new(
                ErrorKind::Busy,
                format!("lease {lease_id} is still held: let its process end, and try again"),
            )
            .with_source(error)
        })
    }

    /// Takes note of a failure that the commit must tell.
    pub(crate) fn fail(&self, error: &Error) {
        self.state.lock().error.get_or_insert_with(|| error.clone());
    }

    /// The buffers of a writer.
    pub(crate) fn take_pool(&self) -> Result<BufPool> {
        match &self.store {
            Some(store) => store.spare_pools().take(&self.options),
            None => SparePools::default().take(&self.options),
        }
    }

    /// Keeps the buffers of a writer that is done.
    pub(crate) fn keep_pool(&self, pool: &BufPool) {
        if let Some(store) = &self.store {
            store.spare_pools().keep(pool);
        }
    }

    /// A writer begins.
    pub(crate) fn opened(&self) {
        self.state.lock().open += 1;
    }

    /// And is done.
    pub(crate) fn done(&self) {
        self.state.lock().open -= 1;
    }

    pub(crate) fn name_error(&self, error: Error) -> Error {
        error.with_checkpoint(&self.name)
    }

    pub(crate) fn tensor_error(&self, tensor: &str, error: Error) -> Error {
        error.with_checkpoint(&self.name).with_tensor(tensor)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // The last of session and writers is gone, and with them every write in flight here.
        let Some(store) = &self.store else { return };
        let state = self.state.get_mut();
        let mut taken = std::mem::take(&mut state.taken);
        for (guest, extents) in state.lent.take_out() {
            if let Err(error) = self.volume.close_seat(&guest) {
                tracing::warn!(
                    lease = guest.seat,
                    %error,
                    "a lease is still held, so its space stays taken until the store is opened again"
                );
                taken = Extent::minus(taken, &Extent::merge(extents));
            }
        }
        store.release(taken);
    }
}

fn name_is_taken() -> Error {
    Error::new(
        ErrorKind::AlreadyExists,
        "the checkpoint has a tensor of this name already",
    )
}

#[cfg(test)]
mod tests;
