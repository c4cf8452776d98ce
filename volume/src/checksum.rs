//! The checksum of a metadata block: CRC-32 of everything before its last four bytes, kept there.
//!
//! - A sealed block is intact until any bit of it changes: CRC-32 finds every error of up to 32
//!   bits in a row, so every single flip.
//! - An all-zero block is never intact.

/// How many bytes at the end of a block the checksum takes.
pub(crate) const CHECKSUM_BYTES: usize = 4;

/// Writes the checksum of the block into its last four bytes, little-endian.
pub(crate) fn seal<const N: usize>(block: &mut [u8; N]) {
    let sum = crc32fast::hash(&block[..N - CHECKSUM_BYTES]);
    block[N - CHECKSUM_BYTES..].copy_from_slice(&sum.to_le_bytes());
}

/// Whether the block is as it was when it was sealed.
pub(crate) fn is_intact<const N: usize>(block: &[u8; N]) -> bool {
    let sum = crc32fast::hash(&block[..N - CHECKSUM_BYTES]);
    block[N - CHECKSUM_BYTES..] == sum.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_single_flip_is_found() {
        let mut block: [u8; 64] = std::array::from_fn(|i| u8::try_from(i).unwrap());
        seal(&mut block);
        assert!(is_intact(&block));
        for bit in 0..64 * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_intact(&block), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn zeroes_are_not_intact() {
        assert!(!is_intact(&[0; 4096]));
        assert!(!is_intact(&[0xff; 4096]));
    }
}
