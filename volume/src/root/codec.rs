//! A root record to bytes and back. One block of 4 KiB, little-endian, fixed offsets.
//!
//! ```text
//! offset bytes field
//!      0     8 magic "SWROOT\r\n"
//!      8     4 version                 1
//!     12     4 length                  4096
//!     16    16 volume UUID
//!     32    16 member UUID
//!     48     4 member index
//!     52     4 ring                    0: near the start (A), 1: near the end (B)
//!     56     8 epoch                   1 to 2^63 - 1
//!     64     8 sequence                1 to 2^63 - 1; the slot is this mod 64
//!     72     8 own offset              where on the device this copy belongs
//!     80     4 previous                names the record before; 0 in the first
//!     84     4 payload length          0 to 3584
//!     88   168 zero
//!    256  3584 payload                 the rest behind its length is zero
//!   3840   252 zero
//!   4092     4 checksum                CRC-32 (IEEE) of bytes 0 to 4091
//! ```
//!
//! - *Previous* is the CRC-32 of the record before: of its epoch, sequence, previous, payload
//!   length and payload, in this order, as the bytes stand in it. These are the same in all copies
//!   of a record; the rest tells where a copy belongs.
//! - [`decode`] takes any 4096 bytes and never panics, and believes no field but magic and version
//!   before the checksum is right. [`encode`] writes only what [`decode`] accepts, and checks it.
//! - Magic, version and the checksum's place and kind stay what they are in later versions.

use std::ops::Range;

use super::{COUNTER_MAX, ROOT_BYTES_MAX, Record, RingPlace, RootRecord, payload_length, slot_of};
use crate::checksum::{self, CHECKSUM_BYTES};
use crate::error::Error;
use crate::fields::{Block, bytes_at, is_zero, put, u32_at, u64_at, uuid_at};

/// The size of a record: one slot.
pub(crate) const RECORD_BYTES: usize = 4096;

/// The first bytes of a record. The line end shows damage done by transfers as text.
const MAGIC: [u8; 8] = *b"SWROOT\r\n";

/// The version written and read here.
const VERSION: u32 = 1;

const LENGTH: u32 = 4096;

/// Where the fields are.
mod at {
    use super::{CHECKSUM_BYTES, LENGTH, MAGIC, RECORD_BYTES, ROOT_BYTES_MAX};

    pub(super) const MAGIC_BYTES: usize = 0;
    pub(super) const VERSION: usize = 8;
    pub(super) const LENGTH_FIELD: usize = 12;
    pub(super) const VOLUME_UUID: usize = 16;
    pub(super) const MEMBER_UUID: usize = 32;
    pub(super) const MEMBER_INDEX: usize = 48;
    pub(super) const RING: usize = 52;
    pub(super) const EPOCH: usize = 56;
    pub(super) const SEQUENCE: usize = 64;
    pub(super) const OWN_OFFSET: usize = 72;
    pub(super) const PREVIOUS: usize = 80;
    pub(super) const PAYLOAD_LENGTH: usize = 84;
    pub(super) const PAYLOAD_LENGTH_END: usize = 88;
    pub(super) const PAYLOAD: usize = 256;
    pub(super) const PAYLOAD_END: usize = 3840;
    pub(super) const CHECKSUM: usize = 4092;

    const _: () = {
        assert!(MAGIC_BYTES + MAGIC.len() == VERSION);
        assert!(VERSION + 4 == LENGTH_FIELD);
        assert!(LENGTH_FIELD + 4 == VOLUME_UUID);
        assert!(VOLUME_UUID + 16 == MEMBER_UUID);
        assert!(MEMBER_UUID + 16 == MEMBER_INDEX);
        assert!(MEMBER_INDEX + 4 == RING);
        assert!(RING + 4 == EPOCH);
        assert!(EPOCH + 8 == SEQUENCE);
        assert!(SEQUENCE + 8 == OWN_OFFSET);
        assert!(OWN_OFFSET + 8 == PREVIOUS);
        assert!(PREVIOUS + 4 == PAYLOAD_LENGTH);
        assert!(PAYLOAD_LENGTH + 4 == PAYLOAD_LENGTH_END);
        assert!(PAYLOAD_LENGTH_END < PAYLOAD);
        assert!(PAYLOAD + ROOT_BYTES_MAX == PAYLOAD_END);
        assert!(PAYLOAD_END < CHECKSUM);
        assert!(CHECKSUM + CHECKSUM_BYTES == RECORD_BYTES);
        assert!(LENGTH as usize == RECORD_BYTES);
    };
}

/// The bytes that no field uses.
const PADDING: [Range<usize>; 2] = [
    at::PAYLOAD_LENGTH_END..at::PAYLOAD,
    at::PAYLOAD_END..at::CHECKSUM,
];

/// What a slot held: a record, or the reason why not.
pub(crate) type RecordResult = Result<Record, RecordFault>;

/// Why a slot holds no record that can be used.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum RecordFault {
    /// Every byte is zero: never written.
    #[error("blank")]
    Blank,
    /// Something else, or a record whose first bytes are damaged.
    #[error("not a root record")]
    NotARecord,
    /// A version that is unknown here; intact when the checksum is right.
    #[error("unsupported version {found}")]
    Version { found: u32, intact: bool },
    /// Damaged: the checksum is wrong.
    #[error("checksum mismatch")]
    Checksum,
    /// Intact, but of another place: volume, member, ring or slot.
    #[error("belongs elsewhere, by its {name}")]
    Misplaced { name: &'static str },
    /// A field makes no sense.
    #[error("{name} makes no sense")]
    Field { name: &'static str },
    /// It could not be read.
    #[error("unreadable")]
    Unreadable(#[source] Error),
}

/// The bytes of `record` for a ring, and where on the device they belong.
///
/// # Panics
///
/// When the record is not one that [`decode`] would accept there.
pub(crate) fn encode(record: &Record, place: &RingPlace) -> (u64, Block) {
    let root = &record.root;
    assert!(
        root.payload.len() <= ROOT_BYTES_MAX,
        "a payload has at most {ROOT_BYTES_MAX} bytes"
    );
    let slot = slot_of(root.sequence);
    let own_offset = place.slot_offset(slot);
    let mut block = [0; RECORD_BYTES];
    put(&mut block, at::MAGIC_BYTES, &MAGIC);
    put(&mut block, at::VERSION, &VERSION.to_le_bytes());
    put(&mut block, at::LENGTH_FIELD, &LENGTH.to_le_bytes());
    put(&mut block, at::VOLUME_UUID, place.volume_uuid.as_bytes());
    put(&mut block, at::MEMBER_UUID, place.member_uuid.as_bytes());
    put(
        &mut block,
        at::MEMBER_INDEX,
        &place.member_index.to_le_bytes(),
    );
    put(&mut block, at::RING, &place.ring.number().to_le_bytes());
    put(&mut block, at::EPOCH, &root.epoch.to_le_bytes());
    put(&mut block, at::SEQUENCE, &root.sequence.to_le_bytes());
    put(&mut block, at::OWN_OFFSET, &own_offset.to_le_bytes());
    put(&mut block, at::PREVIOUS, &record.previous.to_le_bytes());
    let length = payload_length(&root.payload);
    put(&mut block, at::PAYLOAD_LENGTH, &length.to_le_bytes());
    put(&mut block, at::PAYLOAD, &root.payload);
    checksum::seal(&mut block);

    let read_back = decode(&block, place, slot);
    assert!(
        read_back.as_ref().is_ok_and(|found| found == record),
        "a root record must read back as it was written: {read_back:?}"
    );
    (own_offset, block)
}

/// The record in `block`, which was read from slot `slot` of the ring at `place`.
///
/// # Errors
///
/// See [`RecordFault`]. An unknown version is told before the checksum is looked at.
pub(crate) fn decode(block: &Block, place: &RingPlace, slot: u64) -> RecordResult {
    check_envelope(block)?;
    let epoch = u64_at(block, at::EPOCH);
    let sequence = u64_at(block, at::SEQUENCE);
    let misplaced = |name| Err(RecordFault::Misplaced { name });
    if uuid_at(block, at::VOLUME_UUID) != place.volume_uuid {
        return misplaced("volume UUID");
    }
    if uuid_at(block, at::MEMBER_UUID) != place.member_uuid {
        return misplaced("member UUID");
    }
    if u32_at(block, at::MEMBER_INDEX) != place.member_index {
        return misplaced("member index");
    }
    if u32_at(block, at::RING) != place.ring.number() {
        return misplaced("ring");
    }
    if u64_at(block, at::OWN_OFFSET) != place.slot_offset(slot) {
        return misplaced("own offset");
    }
    let field = |name| Err(RecordFault::Field { name });
    if epoch == 0 || epoch > COUNTER_MAX {
        return field("epoch");
    }
    if sequence == 0 || sequence > COUNTER_MAX || slot_of(sequence) != slot {
        return field("sequence");
    }
    let previous = u32_at(block, at::PREVIOUS);
    if sequence == 1 && previous != 0 {
        return field("previous");
    }
    let length = u32_at(block, at::PAYLOAD_LENGTH) as usize;
    if length > ROOT_BYTES_MAX {
        return field("payload length");
    }
    let (payload, rest) = block[at::PAYLOAD..at::PAYLOAD_END].split_at(length);
    if !is_zero(rest) || PADDING.into_iter().any(|range| !is_zero(&block[range])) {
        return field("padding");
    }
    Ok(Record {
        root: RootRecord {
            epoch,
            sequence,
            payload: payload.to_vec(),
        },
        previous,
    })
}

/// What must be right before anything else is believed.
fn check_envelope(block: &Block) -> Result<(), RecordFault> {
    if is_zero(block) {
        return Err(RecordFault::Blank);
    }
    if bytes_at(block, at::MAGIC_BYTES) != MAGIC {
        return Err(RecordFault::NotARecord);
    }
    let intact = checksum::is_intact(block);
    let found = u32_at(block, at::VERSION);
    if found != VERSION {
        return Err(RecordFault::Version { found, intact });
    }
    if !intact {
        return Err(RecordFault::Checksum);
    }
    if u32_at(block, at::LENGTH_FIELD) != LENGTH {
        return Err(RecordFault::Field { name: "length" });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Ring;
    use crate::superblock::{RING_SLOT_COUNT, fixtures};

    const SEQUENCE: u64 = 64 * 5 + 7;
    const SLOT: u64 = 7;

    fn place(member: usize, ring: Ring) -> RingPlace {
        RingPlace::new(&fixtures::volume(7, 3, 5)[member], ring).unwrap()
    }

    fn sample() -> Record {
        Record {
            root: RootRecord {
                epoch: 3,
                sequence: SEQUENCE,
                payload: (0..1000_u32).map(|i| i.to_le_bytes()[0]).collect(),
            },
            previous: 0x1234_5678,
        }
    }

    fn block_of(record: &Record) -> Block {
        encode(record, &place(1, Ring::Tail)).1
    }

    fn refused(change: impl FnOnce(&mut Block)) -> String {
        let mut block = block_of(&sample());
        change(&mut block);
        checksum::seal(&mut block);
        let found = decode(&block, &place(1, Ring::Tail), SLOT);
        found.unwrap_err().to_string()
    }

    #[test]
    fn every_place_and_length_reads_back_as_written() {
        for length in [0, 1, 511, 3583, ROOT_BYTES_MAX] {
            for member in 0..3 {
                for ring in Ring::ALL {
                    let place = place(member, ring);
                    for sequence in [1, 63, 64, 65, COUNTER_MAX] {
                        let record = Record {
                            root: RootRecord {
                                epoch: COUNTER_MAX,
                                sequence,
                                payload: vec![0xa5; length],
                            },
                            previous: 0,
                        };
                        let (offset, block) = encode(&record, &place);
                        assert_eq!(offset, place.offset() + sequence % 64 * 4096);
                        assert_eq!(decode(&block, &place, sequence % 64).unwrap(), record);
                    }
                }
            }
        }
    }

    /// The bytes on media are the format; a change of the code must not change them.
    #[test]
    fn the_bytes_are_those_of_the_table() {
        let superblock = fixtures::volume(7, 3, 5).remove(1);
        let (offset, block) = encode(&sample(), &place(1, Ring::Tail));
        assert_eq!(offset, (14 << 20) + 7 * 4096);
        assert_eq!(&block[..16], b"SWROOT\r\n\x01\0\0\0\0\x10\0\0");
        assert_eq!(&block[16..32], superblock.volume_uuid.as_bytes());
        assert_eq!(&block[32..48], superblock.member_uuid.as_bytes());
        assert_eq!(&block[48..56], [1, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(&block[56..64], 3u64.to_le_bytes());
        assert_eq!(&block[64..72], SEQUENCE.to_le_bytes());
        assert_eq!(&block[72..80], offset.to_le_bytes());
        assert_eq!(&block[80..88], [0x78, 0x56, 0x34, 0x12, 0xe8, 3, 0, 0]);
        assert_eq!(&block[88..256], [0; 168]);
        assert_eq!(&block[256..1256], &sample().root.payload);
        assert_eq!(
            &block[4092..],
            crc32fast::hash(&block[..4092]).to_le_bytes()
        );
        let mut linked = block[56..72].to_vec();
        linked.extend_from_slice(&block[80..88]);
        linked.extend_from_slice(&block[256..1256]);
        assert_eq!(sample().link(), crc32fast::hash(&linked));
    }

    #[test]
    fn every_single_bit_flip_is_refused() {
        let place = place(1, Ring::Tail);
        let mut block = block_of(&sample());
        for bit in 0..RECORD_BYTES * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            let fault = decode(&block, &place, SLOT).unwrap_err();
            assert!(
                !matches!(
                    fault,
                    RecordFault::Blank | RecordFault::Version { intact: true, .. }
                ),
                "a flip of bit {bit} looks like {fault}"
            );
            block[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(decode(&block, &place, SLOT).is_ok());
    }

    /// A torn write keeps any of the old and the new 512-byte sectors.
    #[test]
    fn every_tear_is_the_old_the_new_or_refused() {
        let new = sample();
        let mut old = sample();
        old.root.sequence -= RING_SLOT_COUNT;
        old.root.payload = vec![9; ROOT_BYTES_MAX];
        let place = place(1, Ring::Tail);
        let new_block = block_of(&new);
        for before in [block_of(&old), [0; RECORD_BYTES]] {
            for kept in 0..256_usize {
                let mut block = before;
                for sector in (0..8).filter(|sector| kept & (1 << sector) != 0) {
                    let range = sector * 512..(sector + 1) * 512;
                    block[range.clone()].copy_from_slice(&new_block[range]);
                }
                match decode(&block, &place, SLOT) {
                    Ok(found) => assert!(found == new || (found == old && block == before)),
                    Err(RecordFault::Blank) => assert_eq!(block, [0; RECORD_BYTES]),
                    Err(fault) => assert!(
                        matches!(fault, RecordFault::Checksum | RecordFault::NotARecord),
                        "{fault}"
                    ),
                }
            }
        }
    }

    /// A read from, or a write to, a wrong slot, ring, member or volume.
    #[test]
    fn a_record_is_good_in_its_own_slot_only() {
        let block = block_of(&sample());
        for member in 0..3 {
            for ring in Ring::ALL {
                for slot in 0..RING_SLOT_COUNT {
                    let found = decode(&block, &place(member, ring), slot);
                    let is_own = (member, ring, slot) == (1, Ring::Tail, SLOT);
                    assert_eq!(found.is_ok(), is_own, "{member} {ring:?} {slot}");
                    if let Err(fault) = found {
                        assert!(matches!(fault, RecordFault::Misplaced { .. }), "{fault}");
                    }
                }
            }
        }
        let other = RingPlace::new(&fixtures::volume(8, 3, 5)[1], Ring::Tail).unwrap();
        let fault = decode(&block, &other, SLOT).unwrap_err();
        assert_eq!(fault.to_string(), "belongs elsewhere, by its volume UUID");
    }

    #[test]
    fn blank_other_and_newer_content_are_told_apart() {
        let place = place(1, Ring::Tail);
        let fault = |block: &Block| decode(block, &place, SLOT).unwrap_err();
        assert!(matches!(fault(&[0; RECORD_BYTES]), RecordFault::Blank));
        assert!(matches!(
            fault(&[0xe5; RECORD_BYTES]),
            RecordFault::NotARecord
        ));
        let mut block = block_of(&sample());
        block[at::VERSION] = 2;
        let intact = |block: &Block| match fault(block) {
            RecordFault::Version { found: 2, intact } => intact,
            other => panic!("{other}"),
        };
        assert!(!intact(&block));
        checksum::seal(&mut block);
        assert!(intact(&block));
    }

    #[test]
    fn fields_that_make_no_sense_are_refused_by_name() {
        let cases: &[(&str, usize, u8)] = &[
            ("length", at::LENGTH_FIELD, 1),
            ("epoch", at::EPOCH, 0),
            ("epoch", at::EPOCH + 7, 0x80),
            ("sequence", at::SEQUENCE, 8),
            ("sequence", at::SEQUENCE + 7, 0x80),
            ("payload length", at::PAYLOAD_LENGTH + 1, 0x0f),
            ("payload length", at::PAYLOAD_LENGTH + 3, 0xff),
            ("padding", at::PAYLOAD_LENGTH, 0),
            ("padding", at::PAYLOAD_LENGTH_END, 1),
            ("padding", at::PAYLOAD - 1, 1),
            ("padding", at::PAYLOAD_END - 1, 1),
            ("padding", at::PAYLOAD_END, 1),
            ("padding", at::CHECKSUM - 1, 1),
        ];
        for &(expected, offset, value) in cases {
            let found = refused(|block| block[offset] = value);
            assert_eq!(found, format!("{expected} makes no sense"), "at {offset}");
        }
    }

    #[test]
    #[should_panic(expected = "read back")]
    fn what_could_not_be_read_is_never_written() {
        let mut record = sample();
        record.root.epoch = 0;
        encode(&record, &place(0, Ring::Head));
    }

    proptest::proptest! {
        /// Bytes changed at will and sealed again reach every check behind the checksum.
        #[test]
        fn no_bytes_make_it_panic(
            changes in proptest::collection::vec((0..4092_usize, proptest::num::u8::ANY), 0..24),
            in_fields in proptest::collection::vec((0..96_usize, proptest::num::u8::ANY), 0..4),
            slot in 0..RING_SLOT_COUNT,
        ) {
            let mut block = block_of(&sample());
            for (offset, value) in changes.into_iter().chain(in_fields) {
                block[offset] = value;
            }
            checksum::seal(&mut block);
            let place = place(1, Ring::Tail);
            if let Ok(found) = decode(&block, &place, slot) {
                proptest::prop_assert_eq!(encode(&found, &place).1, block);
            }
        }
    }
}
