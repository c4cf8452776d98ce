//! Changes to a few blocks that are good together, as bytes: how a fuzzer reaches the rules over many
//! blocks without making them all.
//!
//! A change takes 12 bytes: what to do, which block, an offset (2 bytes), a value (8 bytes). What to
//! do: the lowest two bits say how much (0: one byte, 1: four, 2: eight, 3: the whole block becomes
//! zero), the highest says that the checksum is left as it was.

use super::seal_block;

/// How many bytes a change takes.
pub(super) const CHANGE_BYTES: usize = 12;

const KEEPS_CHECKSUM: u8 = 0x80;

/// Carries the changes out; what is left of less than a whole one is nothing.
pub(super) fn apply(blocks: &mut [[u8; 4096]], changes: &[u8]) {
    for change in changes.as_chunks::<CHANGE_BYTES>().0 {
        let [kind, block, low, high, value @ ..] = *change;
        let count = blocks.len();
        let block = &mut blocks[usize::from(block) % count];
        let width = match kind & 3 {
            0 => 1,
            1 => 4,
            2 => 8,
            _ => {
                block.fill(0);
                continue;
            }
        };
        let offset = usize::from(u16::from_le_bytes([low, high])) % (4096 - width);
        block[offset..offset + width].copy_from_slice(&value[..width]);
        if kind & KEEPS_CHECKSUM == 0 {
            seal_block(block);
        }
    }
}

/// One change as bytes; `keeps` leaves the checksum as it was.
pub(super) fn change(block: u8, offset: u16, width: u8, value: u64, keeps: bool) -> Vec<u8> {
    let width = match width {
        1 => 0,
        4 => 1,
        8 => 2,
        _ => 3,
    };
    let kind = width | if keeps { KEEPS_CHECKSUM } else { 0 };
    let mut bytes = vec![kind, block];
    bytes.extend(offset.to_le_bytes());
    bytes.extend(value.to_le_bytes());
    bytes
}
