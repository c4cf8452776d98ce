//! The private parsers of bytes from devices, within reach of the tests that throw bytes at them.
//!
//! The public ones ([`superblock::decode`](crate::superblock::decode),
//! [`assemble`](crate::superblock::assemble), [`recognise`](crate::signature::recognise)) need no
//! door. What is here is hidden: no promise, nothing that a program needs, and nothing that
//! production code does not run as well. `fuzz/` and `tests/support/parsers.rs` use it.

use crate::error::Result;
use crate::root::{self, MemberRings, Record, RecordFault, Ring, RingPlace, RootRecord};
use crate::superblock::{RING_SLOT_COUNT, Superblock};

/// The size of a slot.
pub const RECORD_BYTES: usize = root::RECORD_BYTES;

/// The bytes of a slot.
pub type Block = [u8; RECORD_BYTES];

/// What a slot holds, and the bytes that would have been written for it; or why it holds nothing.
pub type Found = std::result::Result<(RootRecord, Box<Block>), String>;

/// One slot of a ring: its number, and whether the ring is the one near the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Whether it belongs to the ring near the end: record B.
    pub in_tail: bool,
    /// Its number, below 64.
    pub number: u64,
}

impl Slot {
    fn ring(self) -> Ring {
        if self.in_tail { Ring::Tail } else { Ring::Head }
    }
}

/// What one slot of the member that `superblock` describes holds.
///
/// # Errors
///
/// The member cannot be.
pub fn root_record(superblock: &Superblock, slot: Slot, block: &Block) -> Result<Found> {
    let place = RingPlace::new(superblock, slot.ring())?;
    Ok(match root::decode(block, &place, slot.number) {
        Ok(record) => {
            let (_, encoded) = root::encode(&record, &place);
            Ok((record.root, Box::new(encoded)))
        }
        Err(fault) => Err(fault.to_string()),
    })
}

/// The bytes of a record in its slot, and the slot. `previous` names the record before.
///
/// # Errors
///
/// The member cannot be.
///
/// # Panics
///
/// When the record cannot be.
pub fn encode_root_record(
    superblock: &Superblock,
    in_tail: bool,
    record: &RootRecord,
    previous: u32,
) -> Result<(Slot, Box<Block>)> {
    let number = root::slot_of(record.sequence);
    let slot = Slot { in_tail, number };
    let place = RingPlace::new(superblock, slot.ring())?;
    let record = Record {
        root: record.clone(),
        previous,
    };
    let (_, block) = root::encode(&record, &place);
    Ok((slot, Box::new(block)))
}

/// By what the record after this one names it.
pub fn root_link(record: &RootRecord, previous: u32) -> u32 {
    let record = Record {
        root: record.clone(),
        previous,
    };
    record.link()
}

/// The record that is chosen from these slots of a volume's members; all other slots are blank. And
/// whether the volume may be opened for writing.
///
/// # Errors
///
/// What the rules refuse.
pub fn root_history(
    superblocks: &[Superblock],
    slots: &[(usize, Slot, &Block)],
) -> Result<(Option<RootRecord>, bool)> {
    let blank = || {
        (0..RING_SLOT_COUNT)
            .map(|_| Err(RecordFault::Blank))
            .collect()
    };
    let mut members: Vec<MemberRings> = superblocks
        .iter()
        .map(|superblock| MemberRings {
            path: format!("m{}", superblock.member_index).into(),
            rings: [blank(), blank()],
        })
        .collect();
    for &(member, slot, block) in slots {
        let place = RingPlace::new(&superblocks[member], slot.ring())?;
        let found = root::decode(block, &place, slot.number);
        let number = usize::try_from(slot.number).expect("a ring has 64 slots");
        members[member].rings[slot.ring() as usize][number] = found;
    }
    let recovery = root::recover(&members)?;
    let may_write = recovery.clone().read_write().is_ok();
    Ok((recovery.read_only().map(|record| record.root), may_write))
}
