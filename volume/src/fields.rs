//! Fields of a block of 4 KiB, as superblocks and root records have them: fixed offsets,
//! little-endian. Offsets are constants of their codecs, which assert that they lie within the block.

use uuid::Uuid;

/// One block on a member.
pub(crate) type Block = [u8; 4096];

pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

pub(crate) fn put(block: &mut Block, offset: usize, bytes: &[u8]) {
    block[offset..offset + bytes.len()].copy_from_slice(bytes);
}

pub(crate) fn bytes_at<const N: usize>(block: &Block, offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&block[offset..offset + N]);
    bytes
}

pub(crate) fn u32_at(block: &Block, offset: usize) -> u32 {
    u32::from_le_bytes(bytes_at(block, offset))
}

pub(crate) fn u64_at(block: &Block, offset: usize) -> u64 {
    u64::from_le_bytes(bytes_at(block, offset))
}

pub(crate) fn uuid_at(block: &Block, offset: usize) -> Uuid {
    Uuid::from_bytes(bytes_at(block, offset))
}
