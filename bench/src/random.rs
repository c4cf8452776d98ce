//! A small fast generator for offsets: wyrand (Wang Yi), one multiplication for each number.
//!
//! A benchmark draws a number for every I/O, so the cost counts; secrecy does not. The same seed
//! gives the same numbers everywhere.

/// A generator of pseudo-random numbers.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator for `seed` and a `stream`: lanes share a seed and differ in their stream.
    pub fn new(seed: u64, stream: u64) -> Self {
        // The generator walks one cycle of 2^64 numbers. Mixed (splitmix64), near seeds begin far
        // apart on it.
        let mut word = seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self {
            state: word ^ (word >> 31),
        }
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0xa076_1d64_78bd_642f);
        let product = u128::from(self.state) * u128::from(self.state ^ 0xe703_7ed1_a0b4_28db);
        low(product) ^ low(product >> 64)
    }

    /// A number below `bound`: multiply and shift, whose bias is below `bound` in 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.next_u64()) * u128::from(bound);
        low(product >> 64)
    }

    /// A number from 0 on, below 1, of 53 bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[expect(clippy::cast_possible_truncation, reason = "that half is asked for")]
#[inline]
const fn low(word: u128) -> u64 {
    word as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_stays_below_and_reaches_everything() {
        let mut random = Random::new(7, 0);
        let mut hits = [0_u32; 10];
        for _ in 0..10_000 {
            hits[usize::try_from(random.below(10)).unwrap()] += 1;
        }
        assert!(
            hits.iter().all(|count| (800..1200).contains(count)),
            "{hits:?}"
        );
        assert_eq!(Random::new(1, 1).below(1), 0);
    }

    #[test]
    fn units_fill_the_interval() {
        let mut random = Random::new(7, 0);
        let units: Vec<f64> = (0..10_000).map(|_| random.unit()).collect();
        assert!(units.iter().all(|unit| (0.0..1.0).contains(unit)));
        let mean = units.iter().sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, stream| Random::new(seed, stream).next_u64();
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }
}
