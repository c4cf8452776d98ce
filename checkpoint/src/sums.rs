//! [`BlockSums`]: the checksums of a tensor's blocks, made of its bytes as they come.

use std::mem;

use crc32fast::Hasher;

use crate::blob::usize_of;
use crate::index::BLOCK_BYTES;

/// Checksums of blocks in the making.
#[derive(Default)]
pub(crate) struct BlockSums {
    sums: Vec<u32>,
    hasher: Hasher,
    /// Bytes of the block that is not whole yet.
    begun: u64,
}

impl BlockSums {
    /// Takes the next bytes: those that are written, not those they were copied from, which may
    /// have changed meanwhile.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = (BLOCK_BYTES - self.begun).min(rest.len() as u64);
            let (now, later) = rest.split_at(usize_of(room));
            self.hasher.update(now);
            self.begun += room;
            rest = later;
            if self.begun == BLOCK_BYTES {
                self.end_block();
            }
        }
    }

    fn end_block(&mut self) {
        self.sums.push(mem::take(&mut self.hasher).finalize());
        self.begun = 0;
    }

    /// The checksums; the last block may be shorter than the others.
    pub(crate) fn finish(mut self) -> Vec<u32> {
        if self.begun > 0 {
            self.end_block();
        }
        self.sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_give_the_checksums_of_whole_blocks() {
        let bytes: Vec<u8> = (0..BLOCK_BYTES * 2 + 777)
            .map(|n| (n % 251) as u8)
            .collect();
        let whole: Vec<u32> = bytes
            .chunks(usize_of(BLOCK_BYTES))
            .map(crc32fast::hash)
            .collect();
        for step in [1000, 4096, 1 << 20, 3 << 20] {
            let mut sums = BlockSums::default();
            bytes.chunks(step).for_each(|piece| sums.add(piece));
            assert_eq!(sums.finish(), whole);
        }
        assert!(BlockSums::default().finish().is_empty());
    }
}
