//! [`WriteLocks`]: keeps a read-modify-write of a block apart from every other write to it.
//!
//! A write that covers a block in part reads the block, changes its bytes and writes it whole.
//! Between its read and its write nobody else may write that block, or their bytes would be
//! undone. Writes of whole blocks may overlap each other as the caller pleases.

use std::ops::Range;

use swath_engine::{Gate, Platform};

/// The block ranges that are being written.
#[derive(Debug)]
pub(super) struct WriteLocks {
    /// Changes when a range is let go.
    held: Gate<Held>,
}

#[derive(Debug, Default)]
struct Held {
    claims: Vec<(u64, Claim)>,
    next_number: u64,
}

/// A range of bytes that one write touches, in whole blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Claim {
    range: Range<u64>,
    /// Whether the range is read before it is written.
    reads_first: bool,
}

impl Claim {
    fn collides(&self, other: &Self) -> bool {
        (self.reads_first || other.reads_first)
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

/// The hold on what one write touches; ends when dropped.
#[derive(Debug)]
pub(super) struct WriteGuard<'a> {
    locks: &'a WriteLocks,
    number: u64,
}

impl WriteLocks {
    pub(super) fn new(platform: &dyn Platform) -> Self {
        Self {
            held: Gate::new(platform, "blocks that are being written", Held::default()),
        }
    }

    /// Waits until the bytes of `range` can be written, and holds them.
    pub(super) fn lock(&self, range: Range<u64>, block_bytes: u64) -> WriteGuard<'_> {
        self.lock_claims(claims_of(range, block_bytes))
    }

    /// As [`lock`](Self::lock), for a write that may read any block of the range before it writes
    /// it.
    pub(super) fn lock_all(&self, range: Range<u64>, block_bytes: u64) -> WriteGuard<'_> {
        let start = range.start - range.start % block_bytes;
        let range = start..range.end.next_multiple_of(block_bytes);
        self.lock_claims(vec![Claim {
            range,
            reads_first: true,
        }])
    }

    fn lock_claims(&self, claims: Vec<Claim>) -> WriteGuard<'_> {
        let mut held = self.held.lock();
        // All of a write's claims at once: two writes never hold what the other waits for.
        while held
            .claims
            .iter()
            .any(|(_, other)| claims.iter().any(|mine| mine.collides(other)))
        {
            held.wait();
        }
        let number = held.next_number;
        held.next_number += 1;
        held.claims
            .extend(claims.into_iter().map(|claim| (number, claim)));
        WriteGuard {
            locks: self,
            number,
        }
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.locks
            .held
            .lock()
            .claims
            .retain(|&(number, _)| number != self.number);
        self.locks.held.notify_all();
    }
}

/// The blocks at the ends that are covered in part, and those between that are covered whole.
fn claims_of(range: Range<u64>, block_bytes: u64) -> Vec<Claim> {
    let floor = |offset: u64| offset - offset % block_bytes;
    let ceil = |offset: u64| offset.next_multiple_of(block_bytes);
    let whole = ceil(range.start)..floor(range.end);
    let head = floor(range.start)..ceil(range.start);
    let tail = floor(range.end)..ceil(range.end);
    [(head, true), (whole, false), (tail, true)]
        .into_iter()
        .filter(|(range, _)| range.start < range.end)
        .map(|(range, reads_first)| Claim { range, reads_first })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(range: Range<u64>) -> Vec<(u64, u64, bool)> {
        claims_of(range, 512)
            .into_iter()
            .map(|claim| (claim.range.start, claim.range.end, claim.reads_first))
            .collect()
    }

    #[test]
    fn only_blocks_covered_in_part_are_read_first() {
        assert_eq!(claims(0..1024), [(0, 1024, false)]);
        assert_eq!(claims(1..1024), [(0, 512, true), (512, 1024, false)]);
        assert_eq!(claims(0..1025), [(0, 1024, false), (1024, 1536, true)]);
        assert_eq!(claims(10..20), [(0, 512, true), (0, 512, true)]);
        assert_eq!(claims(500..520), [(0, 512, true), (512, 1024, true)]);
        assert_eq!(claims(512..512), []);
    }

    #[test]
    fn whole_blocks_share_and_parts_do_not() {
        let locks = WriteLocks::new(&swath_engine::Kernel);
        let one = locks.lock(0..1024, 512);
        let two = locks.lock(512..2048, 512);
        let waits = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| drop(locks.lock(600..700, 512)));
            drop(one);
            drop(two);
            waiter.join().is_ok()
        });
        assert!(waits);
        assert!(locks.held.lock().claims.is_empty());
    }
}
