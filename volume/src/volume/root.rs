//! The root record of an open volume: its I/O, for commits and at open. Why it is safe is argued in
//! [`crate::root`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use swath_engine::{AlignedBuf, Lane, Segment};

use crate::error::{Error, ErrorKind, Result};
use crate::metadata;
use crate::root::{
    MemberRings, RECORD_BYTES, ROOT_BYTES_MAX, Record, RecordFault, RecordResult, Ring, RingPlace,
    RootRecord, Step, decode, encode,
};
use crate::superblock::{RING_SLOT_COUNT, Superblock};
use crate::volume::Volume;

impl Volume {
    /// The newest root record that is known to be committed; none before the first commit.
    ///
    /// Opening a volume for writing puts a record of its own, with the same payload, after the one
    /// that it finds. A guest sees the one of the time when it was opened. Waits while a commit is under way.
    pub fn root(&self) -> Option<RootRecord> {
        let newest = self.0.root.lock();
        newest.as_ref().map(|record| record.root.clone())
    }

    /// Replaces the root record by `payload`, atomically and durably. All writes that completed
    /// before are made durable first, on every member, so that the payload may point to them.
    ///
    /// After a crash at any moment an open finds this payload or the one before, and this one once
    /// the call has returned. Commits from several threads take turns. One takes three flushes and
    /// two writes of a block, each on all members at once, and the next begins when the one before
    /// has ended on every member.
    ///
    /// # Errors
    ///
    /// More than [`ROOT_BYTES_MAX`] bytes; opened for reading only, or as a guest; poisoned; a member that fails,
    /// which poisons the volume. Unless the error says that nothing was committed, it is then not
    /// known whether this payload or the one before is in force: opening the volume again decides.
    pub fn commit_root(&self, payload: &[u8]) -> Result<RootRecord> {
        let shared = &*self.0;
        if payload.len() > ROOT_BYTES_MAX {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "a root record holds at most {ROOT_BYTES_MAX} bytes, not {}",
                    payload.len()
                ),
            ));
        }
        shared.check_is_owner()?;
        let mut newest = shared.root.lock();
        shared.check_writable()?;
        let record = match &*newest {
            Some(newest) => newest.successor(payload.to_vec())?,
            None => Record::first(payload.to_vec()),
        };
        let steps = record.steps(shared.devices.len());
        let writes = prepare(&steps, &shared.superblocks.lock())?;
        // The lane shares the volume's poison: it stops between any two operations when another
        // way into the volume fails.
        let poison = Arc::clone(&shared.poison);
        let mut lane = metadata::commit_lane(
            &*shared.platform,
            &shared.devices,
            poison,
            shared.probe_offset(false),
        )?;
        shared.remember(lane.description(), false);
        metadata::flush(&mut lane).map_err(|cause| {
            self.stop(&cause);
            cause.context("nothing was committed: the flush before the root record failed")
        })?;
        // A failed flush is told once, and perhaps not to the lane that commits but to another. So
        // the poison is looked at once more before success is reported.
        write(&mut lane, &writes)
            .and_then(|()| shared.check_writable())
            .map_err(|cause| {
                self.stop(&cause);
                cause.context(
                    "it is not known whether the root record was committed; open the volume again \
                     to find out",
                )
            })?;
        let committed = record.root.clone();
        *newest = Some(record);
        Ok(committed)
    }

    /// Claims the root record: until the claim is dropped, nobody else can. What a store takes that
    /// is alone in knowing which space is free. It binds only those who claim.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InUse`]: somebody has it, on this volume or a clone of it.
    pub fn claim_root(&self) -> Result<RootClaim> {
        if self.0.root_is_claimed.swap(true, Ordering::AcqRel) {
            return Err(Error::new(
                ErrorKind::InUse,
                "another store is open on this very volume: use that one, or clone it",
            ));
        }
        Ok(RootClaim(self.clone()))
    }

    /// Poisons the volume, whatever the failure was. A refusal because of an earlier one is none.
    fn stop(&self, cause: &Error) {
        if let Some(cause) = cause.engine_error() {
            self.0.poison.set(cause);
        }
    }
}

/// The claim of a volume's root record; given up when it is dropped.
#[derive(Debug)]
pub struct RootClaim(Volume);

impl Drop for RootClaim {
    fn drop(&mut self) {
        self.0.0.root_is_claimed.store(false, Ordering::Release);
    }
}

/// One step of the protocol as one request.
pub(super) struct StepWrite {
    blocks: AlignedBuf,
    places: Vec<Segment>,
}

/// The bytes of each step, before any of them is written. Superblocks are in index order.
pub(super) fn prepare(steps: &[Step], superblocks: &[Superblock]) -> Result<Vec<StepWrite>> {
    let prepare_step = |step: &Step| {
        let mut blocks = AlignedBuf::zeroed(step.members.len() * RECORD_BYTES)?;
        let mut places = Vec::with_capacity(step.members.len());
        let pieces = blocks.chunks_exact_mut(RECORD_BYTES);
        for ((piece, buffer_offset), &member) in
            pieces.zip((0..).step_by(RECORD_BYTES)).zip(&step.members)
        {
            let place = RingPlace::new(&superblocks[member], step.ring)?;
            let (offset, block) = encode(&step.record, &place);
            piece.copy_from_slice(&block);
            places.push(Segment {
                device: device_of(member),
                offset,
                buffer_offset,
                length: RECORD_BYTES as u64,
            });
        }
        Ok(StepWrite { blocks, places })
    };
    steps.iter().map(prepare_step).collect()
}

/// Writes the steps, each to all its members at once and followed by a flush of every member. A
/// flush of every member has gone before. The lane's devices are in index order.
pub(super) fn write(lane: &mut Lane, writes: &[StepWrite]) -> Result<()> {
    for step in writes {
        lane.write_blocking(&step.blocks, false, &step.places)?;
        metadata::flush(lane)?;
    }
    Ok(())
}

/// Reads every slot of every member. The lane's devices and `superblocks` are in index order.
pub(super) fn read(lane: &mut Lane, superblocks: &[Superblock]) -> Result<Vec<MemberRings>> {
    let mut members = Vec::with_capacity(superblocks.len());
    for (member, superblock) in superblocks.iter().enumerate() {
        let mut rings = [const { Vec::new() }; 2];
        for (ring, slots) in Ring::ALL.into_iter().zip(&mut rings) {
            let place = RingPlace::new(superblock, ring)?;
            *slots = read_ring(lane, device_of(member), &place)?;
        }
        let path = lane.devices()[member].path().to_path_buf();
        members.push(MemberRings { path, rings });
    }
    Ok(members)
}

/// Reads a ring at once, or slot by slot when that fails: one sector that cannot be read shall not
/// hide the others.
fn read_ring(lane: &mut Lane, device: u32, place: &RingPlace) -> Result<Vec<RecordResult>> {
    let slot_bytes = RECORD_BYTES as u64;
    match metadata::read_range(lane, device, place.offset(), RING_SLOT_COUNT * slot_bytes) {
        Ok(bytes) => Ok((0..)
            .zip(bytes.chunks_exact(RECORD_BYTES))
            .map(|(slot, bytes)| decode_slot(bytes, place, slot))
            .collect()),
        Err(error) if error.kind() == ErrorKind::Device => (0..RING_SLOT_COUNT)
            .map(|slot| {
                let offset = place.slot_offset(slot);
                match metadata::read_range(lane, device, offset, slot_bytes) {
                    Ok(bytes) => Ok(decode_slot(&bytes, place, slot)),
                    Err(error) if error.kind() == ErrorKind::Device => {
                        tracing::warn!(%error, "a slot of the root record cannot be read");
                        Ok(Err(RecordFault::Unreadable(error)))
                    }
                    Err(error) => Err(error),
                }
            })
            .collect(),
        Err(error) => Err(error),
    }
}

fn decode_slot(bytes: &[u8], place: &RingPlace, slot: u64) -> RecordResult {
    let mut block = [0; RECORD_BYTES];
    block.copy_from_slice(bytes);
    decode(&block, place, slot)
}

fn device_of(member: usize) -> u32 {
    u32::try_from(member).expect("a volume has at most 128 members")
}

#[cfg(test)]
mod tests;
