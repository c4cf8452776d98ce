//! The root record: one small piece of bytes, replaced atomically, on all members. What a store
//! keeps in the volume hangs on it.
//!
//! Every member has two rings of 64 slots of 4 KiB, one near the start (record A) and one near the
//! end (record B). A record with sequence s lies in slot s mod 64 of both rings of all members;
//! [`codec`] has its bytes and [`mod@recover`] the rules by which one of them is chosen at open.
//!
//! # The protocol
//!
//! Let n be the newest record, with sequence s. To replace it, by a commit or at open:
//!
//! ```text
//! 1  flush all members            what the new record points to is durable
//! 2  write A(s+1) on all members
//! 3  flush all members
//! 4  write B(s+1) on all members
//! 5  flush all members
//! 6  acknowledge
//! ```
//!
//! Any error on the way stops it for good: the volume is poisoned, so a sequence number is used
//! once by one process.
//!
//! Opening reads all slots of all members, chooses the newest good record n, and, when it is for
//! writing, *settles* n: step 1, then A(s) where it is not, flush, B(s) where it is not, flush.
//! Then it replaces n by a record of the same payload with sequence s+1 and epoch e+1 (steps 2 to
//! 6, for step 1 was done), and only then returns. Opening for reading only chooses and writes
//! nothing.
//!
//! # Why a crash at any moment is safe
//!
//! A crash keeps any part of what was written since the last flush: each block whole, torn or not
//! at all. A torn block is no good record (its checksum is wrong) and is never believed.
//!
//! - *The newest record is never overwritten.* The slot written is that of s+1; what it held is
//!   64 commits old. Settling writes only to slots that do not hold n.
//! - *In step 1:* no slot has changed. The choice is n.
//! - *In steps 2 and 3:* no A(s+1) intact: n, which stands in both rings of every member. One or
//!   more intact: s+1. It was not acknowledged, and it is whole: all it points to became durable in
//!   step 1, and the record itself is in any one copy. Either choice is allowed, and settling
//!   makes it final before anything else is written.
//! - *In steps 4 and 5:* A(s+1) stands on every member: s+1.
//! - *After step 6:* s+1 stands in both rings of every member: 2N blocks would have to be lost
//!   before it is. When all 2N of the record after the newest are damaged, no crash explains it
//!   (none can reach B before A stands everywhere), and the volume is not opened for writing.
//! - *During an open for writing:* step 1 first makes durable what was read. From there on n
//!   stands in at least one slot that nothing writes to, so a crash while settling leads to the
//!   same choice. So does a crash while n is replaced: n or its successor of the same payload.
//!   This holds again for the open after that, and any number of them.
//!
//! A process may die and leave the devices running. What it wrote is then read back from their
//! caches and is chosen, though a power failure could still take it away. Step 1 of the open is
//! there for that: nothing is built on n before n is durable. (Opening for reading only may show a
//! record that a power failure then takes back; it was never acknowledged.)
//!
//! # Why two histories are never mixed
//!
//! Settling gives one more thing: *when any slot of s+1 is written, record s stands in both rings
//! of every member.* So the records of an undamaged volume form one chain; sequence and epoch rise
//! along it, and each names the checksum of the one before. What does not fit was written elsewhere:
//!
//! - Every open for writing raises the epoch, so what two openers commit differs in epoch, unless
//!   both began from the same record without seeing each other: two copies of the members, or two
//!   hosts at one time. Equal epoch and sequence with other content, a record that does not name
//!   the one before it, or a sequence that falls while the epoch rises, is such a fork: refused.
//! - A member that misses a record it must have, and still shows in that record's slot what was
//!   there before, is an old copy, or was away: refused as stale. (A slot that is damaged says
//!   nothing.)
//!
//! A slot knows the volume, the member, the ring and the offset it belongs to, so that one read
//! from or written to a wrong place is found.

mod codec;
mod recover;

use std::ops::Range;

use crc32fast::Hasher;
use uuid::Uuid;

pub(crate) use codec::{RECORD_BYTES, RecordFault, RecordResult, decode, encode};
pub(crate) use recover::{MemberRings, newest_of_one_chain, recover};

use crate::error::{Error, ErrorKind, Result};
use crate::superblock::{MemberMap, RING_SLOT_COUNT, Superblock};

/// The most bytes of payload in a root record.
pub const ROOT_BYTES_MAX: usize = 3584;

/// A committed root record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootRecord {
    /// Counts how often the volume was opened for writing since its first record, from 1.
    pub epoch: u64,
    /// Counts records, from 1. Opening for writing adds one of its own, with the same payload.
    pub sequence: u64,
    /// What was committed.
    pub payload: Vec<u8>,
}

/// A record as it is on the members: what is the same in all its copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) root: RootRecord,
    /// The [`link`](Self::link) of the record before; 0 for the first.
    pub(crate) previous: u32,
}

/// Epochs and sequences end here: one more still fits a u64.
const COUNTER_MAX: u64 = (1 << 63) - 1;

impl Record {
    /// The first record of a volume.
    pub(crate) const fn first(payload: Vec<u8>) -> Self {
        Self {
            root: RootRecord {
                epoch: 1,
                sequence: 1,
                payload,
            },
            previous: 0,
        }
    }

    /// The record that a commit in the same epoch puts after this one.
    pub(crate) fn successor(&self, payload: Vec<u8>) -> Result<Self> {
        self.after(self.root.epoch, payload)
    }

    /// The record that an open for writing puts after this one.
    pub(crate) fn renewed(&self) -> Result<Self> {
        self.after(self.root.epoch + 1, self.root.payload.clone())
    }

    fn after(&self, epoch: u64, payload: Vec<u8>) -> Result<Self> {
        let sequence = self.root.sequence + 1;
        if epoch.max(sequence) > COUNTER_MAX {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the root record's counters have reached their end",
            ));
        }
        Ok(Self {
            root: RootRecord {
                epoch,
                sequence,
                payload,
            },
            previous: self.link(),
        })
    }

    /// The checksum by which the next record names this one: of what all its copies share.
    pub(crate) fn link(&self) -> u32 {
        let mut hasher = Hasher::new();
        hasher.update(&self.root.epoch.to_le_bytes());
        hasher.update(&self.root.sequence.to_le_bytes());
        hasher.update(&self.previous.to_le_bytes());
        hasher.update(&payload_length(&self.root.payload).to_le_bytes());
        hasher.update(&self.root.payload);
        hasher.finalize()
    }

    /// What the order of records goes by.
    const fn age(&self) -> (u64, u64) {
        (self.root.epoch, self.root.sequence)
    }

    /// The protocol: the two steps that put this record on all of a volume's members.
    pub(crate) fn steps(&self, member_count: usize) -> [Step; 2] {
        Ring::ALL.map(|ring| Step {
            ring,
            record: self.clone(),
            members: (0..member_count).collect(),
        })
    }
}

fn payload_length(payload: &[u8]) -> u32 {
    u32::try_from(payload.len()).expect("a payload has at most 3584 bytes")
}

/// One step of the protocol: write a record to one ring of some members, at once; then flush
/// *every* member before the next step begins. A flush of every member goes before the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) ring: Ring,
    pub(crate) record: Record,
    /// By their index.
    pub(crate) members: Vec<usize>,
}

/// One of a member's two rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ring {
    /// Near the start: record A.
    Head = 0,
    /// Near the end: record B.
    Tail = 1,
}

impl Ring {
    /// Both, in the order in which they are written.
    pub(crate) const ALL: [Self; 2] = [Self::Head, Self::Tail];

    /// Its number, as records have it.
    const fn number(self) -> u32 {
        self as u32
    }

    /// Where it lies on a member.
    const fn range(self, map: &MemberMap) -> Range<u64> {
        match self {
            Self::Head => map.head_ring(),
            Self::Tail => map.tail_ring(),
        }
    }
}

/// A ring of a certain member, as its records know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingPlace {
    volume_uuid: Uuid,
    member_uuid: Uuid,
    member_index: u32,
    ring: Ring,
    offset: u64,
}

impl RingPlace {
    /// The ring of the member that `superblock` describes.
    pub(crate) fn new(superblock: &Superblock, ring: Ring) -> Result<Self> {
        let map = MemberMap::new(superblock.device_bytes)?;
        Ok(Self {
            volume_uuid: superblock.volume_uuid,
            member_uuid: superblock.member_uuid,
            member_index: superblock.member_index,
            ring,
            offset: ring.range(&map).start,
        })
    }

    /// Where on the device the ring begins.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Where on the device a slot lies.
    pub(crate) const fn slot_offset(&self, slot: u64) -> u64 {
        self.offset + slot * RECORD_BYTES as u64
    }
}

/// The slot of a record, in every ring.
pub(crate) const fn slot_of(sequence: u64) -> u64 {
    sequence % RING_SLOT_COUNT
}
