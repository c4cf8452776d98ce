//! Inputs made of other inputs, by chance.

use rand::RngExt;
use rand::rngs::ChaCha8Rng;

/// Numbers at which rules change.
const NUMBERS: [u64; 16] = [
    0,
    1,
    7,
    63,
    64,
    127,
    128,
    4095,
    4096,
    1 << 20,
    u32::MAX as u64,
    1 << 32,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// The most bytes an input becomes.
const BYTES_MAX: usize = 16 << 10;

/// Changes `input` a little. `other` is one to take pieces from.
pub fn mutate(input: &[u8], other: &[u8], rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..rng.random_range(1..=4) {
        let at = rng.random_range(0..=bytes.len());
        let left = bytes.len() - at;
        match rng.random_range(0..8) {
            0 if left > 0 => bytes[at] ^= 1 << rng.random_range(0..8),
            1 if left > 0 => bytes[at] = rng.random(),
            2 | 3 => {
                let number = NUMBERS[rng.random_range(0..NUMBERS.len())];
                let width = [1, 2, 4, 8][rng.random_range(0..4)];
                for (to, from) in bytes[at..].iter_mut().zip(&number.to_le_bytes()[..width]) {
                    *to = *from;
                }
            }
            4 => bytes.truncate(at),
            5 => {
                let length = rng.random_range(0..=left.min(64));
                bytes.drain(at..at + length);
            }
            6 => {
                let from = rng.random_range(0..=other.len());
                let length = rng.random_range(0..=(other.len() - from).min(256));
                bytes.splice(at..at, other[from..from + length].iter().copied());
            }
            _ => {
                let length = rng.random_range(0..=left.min(128));
                let piece = bytes[at..at + length].to_vec();
                bytes.splice(at..at, piece);
            }
        }
        bytes.truncate(BYTES_MAX);
    }
    bytes
}
