//! What makes every write unlike any other: a counter in each 4 KiB of incompressible data.

/// The unit that is made unique in what is written: the smallest a drive would find a duplicate of.
pub(crate) const STAMP_BYTES: usize = 4096;

/// The counter.
#[derive(Debug)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// One that begins somewhere: lanes begin at different places.
    pub(crate) fn new(first: u64) -> Self {
        Self(first)
    }

    /// Makes bytes unlike anything marked before.
    #[inline]
    pub(crate) fn mark(&mut self, bytes: &mut [u8]) {
        for unit in bytes.chunks_mut(STAMP_BYTES) {
            self.0 = self.0.wrapping_add(1);
            // The last unit may be shorter than a counter.
            let counter = self.0.to_le_bytes();
            let length = counter.len().min(unit.len());
            unit[..length].copy_from_slice(&counter[..length]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_differs_from_every_other() {
        let mut stamp = Stamp::new(u64::MAX);
        let mut bytes = vec![7; 3 * STAMP_BYTES];
        let mut seen = Vec::new();
        for _ in 0..2 {
            stamp.mark(&mut bytes);
            seen.extend(bytes.chunks(STAMP_BYTES).map(<[u8]>::to_vec));
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 6);
    }
}
