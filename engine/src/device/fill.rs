//! Bytes that neither compress nor repeat, a pure function of a seed and a place.
//!
//! A drive that compresses or deduplicates would make zeroes, or one block written over and over,
//! look faster than real data. Each 8-byte word is a function of the seed and the word's number on
//! the device, so any range can be made or checked again without what lies before it, and no two
//! blocks are alike. One multiplication a word, as in the generator wyrand: one core makes the
//! pattern faster than several drives take it.

/// Bytes of one word of the pattern.
const WORD_BYTES: u64 = 8;

/// Fills `buf` with the pattern of `seed` as it lies on the device from byte `offset` on.
///
/// Two calls with neighbouring ranges give what one call for both gives.
pub fn fill_incompressible(buf: &mut [u8], seed: u64, offset: u64) {
    // The seed is mixed first: otherwise two seeds would give one sequence at two places.
    let base = mix(seed ^ 0x5357_4154_485f_4644);
    let mut index = offset / WORD_BYTES;
    let mut rest = buf;

    let skip = offset % WORD_BYTES;
    if skip != 0 {
        let word = word(base, index);
        let part = &word[usize::try_from(skip).expect("less than 8")..];
        let count = part.len().min(rest.len());
        let (head, tail) = rest.split_at_mut(count);
        head.copy_from_slice(&part[..count]);
        rest = tail;
        index += 1;
    }
    let (words, tail) = rest.as_chunks_mut::<8>();
    for bytes in words {
        *bytes = word(base, index);
        index = index.wrapping_add(1);
    }
    tail.copy_from_slice(&word(base, index)[..tail.len()]);
}

/// The word of that number: the two halves of a long product, folded, as in wyrand.
fn word(base: u64, index: u64) -> [u8; 8] {
    const STEP: u64 = 0xa076_1d64_78bd_642f;
    const FLIP: u64 = 0xe703_7ed1_a0b4_28db;
    let state = base.wrapping_add(index.wrapping_mul(STEP));
    fold(u128::from(state) * u128::from(state ^ FLIP)).to_le_bytes()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the halves are taken apart on purpose"
)]
fn fold(product: u128) -> u64 {
    product as u64 ^ (product >> 64) as u64
}

/// Spreads every bit of `value` over the whole result: the finaliser of splitmix64.
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn any_split_gives_the_same_bytes() {
        let mut whole = vec![0; 200];
        fill_incompressible(&mut whole, 7, 1000);
        for cut in 0..=whole.len() {
            let mut parts = vec![0; whole.len()];
            let (head, tail) = parts.split_at_mut(cut);
            fill_incompressible(head, 7, 1000);
            fill_incompressible(tail, 7, 1000 + cut as u64);
            assert_eq!(parts, whole, "cut at {cut}");
        }
    }

    #[test]
    fn no_two_blocks_are_alike() {
        let mut seen = HashSet::new();
        for seed in 0..4 {
            for block in 0..256 {
                let mut bytes = [0; 512];
                fill_incompressible(&mut bytes, seed, block * 512);
                assert!(seen.insert(bytes), "seed {seed}, block {block}");
            }
        }
    }

    #[test]
    fn every_byte_value_is_about_as_frequent() {
        let mut bytes = vec![0; 1 << 20];
        fill_incompressible(&mut bytes, 1, 0);
        let mut counts = [0_u32; 256];
        for byte in bytes {
            counts[usize::from(byte)] += 1;
        }
        // 4096 expected of each, standard deviation 64.
        assert!(
            counts.iter().all(|count| (3600..4600).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn the_last_offset_does_not_overflow() {
        let mut bytes = [0; 8];
        fill_incompressible(&mut bytes, u64::MAX, u64::MAX - 15);
        assert_ne!(bytes, [0; 8]);
    }
}
