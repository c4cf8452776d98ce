//! [`LatencyCounts`]: a latency histogram that costs a few instructions to record into.
//!
//! Log-linear, as HDR histograms are: 128 steps to each power of two, so that a value is known to
//! 0.8 %. A lane records into these; a reader gets a [`Histogram`] with all of its questions.

use hdrhistogram::Histogram;

/// Steps to a power of two, as a power of two.
const STEP_BITS: u32 = 7;

/// The longest latency that is told apart: 137 seconds. Longer ones count as this.
const NS_MAX: u64 = (1 << 37) - 1;

const COUNTS: usize = index_of(NS_MAX) + 1;

/// Counts of latencies.
#[derive(Clone)]
pub(crate) struct LatencyCounts {
    counts: Box<[u64; COUNTS]>,
    /// The latency that was recorded last, and its step: what is submitted together and completes
    /// together has the same.
    last_ns: u64,
    last_index: usize,
}

impl LatencyCounts {
    #[inline]
    pub(crate) fn record(&mut self, latency_ns: u64) {
        if latency_ns != self.last_ns {
            self.last_ns = latency_ns;
            self.last_index = index_of(latency_ns);
        }
        self.counts[self.last_index] += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&*other.counts) {
            *mine += theirs;
        }
    }

    /// The same counts, each at the middle of its step.
    pub(crate) fn histogram(&self) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, NS_MAX, 3)
            .expect("nanoseconds up to two minutes at three digits are a histogram");
        for (index, &count) in self
            .counts
            .iter()
            .enumerate()
            .filter(|&(_, &count)| count > 0)
        {
            histogram
                .record_n(middle_of(index).max(1), count)
                .expect("every step lies within the histogram's bounds");
        }
        histogram
    }
}

impl Default for LatencyCounts {
    fn default() -> Self {
        Self {
            counts: Box::new([0; COUNTS]),
            last_ns: 0,
            last_index: index_of(0),
        }
    }
}

/// The step that a latency belongs to.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "an index is below COUNTS")]
const fn index_of(latency_ns: u64) -> usize {
    let value = if latency_ns < NS_MAX {
        latency_ns
    } else {
        NS_MAX
    };
    // Below 2^(STEP_BITS + 1) every value has a step of its own.
    let bits = u64::BITS - (value | 1 << STEP_BITS).leading_zeros();
    let shift = bits - 1 - STEP_BITS;
    ((shift << STEP_BITS) as u64 + (value >> shift)) as usize
}

/// The middle of a step.
fn middle_of(index: usize) -> u64 {
    let steps = 1_usize << STEP_BITS;
    let shift = (index / steps).saturating_sub(1);
    let lowest = ((index - shift * steps) as u64) << shift;
    lowest + (1_u64 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_known_to_less_than_one_percent() {
        let values = (0..1000).chain((10..37).flat_map(|bits| {
            let base = 1_u64 << bits;
            [base - 1, base, base + 1, base + base / 3]
        }));
        for value in values {
            let told = middle_of(index_of(value));
            assert!(
                told.abs_diff(value) <= value / 128,
                "{value} is told as {told}"
            );
        }
    }

    #[test]
    fn steps_rise_without_a_gap_up_to_the_longest_latency() {
        for index in 1..COUNTS {
            assert!(middle_of(index - 1) < middle_of(index));
            assert_eq!(index_of(middle_of(index)), index);
        }
        assert_eq!(index_of(u64::MAX), COUNTS - 1);
    }

    #[test]
    fn a_histogram_has_every_count() {
        let mut counts = LatencyCounts::default();
        for value in [0, 1, 500, 500, 1_000_000, u64::MAX] {
            counts.record(value);
        }
        let histogram = counts.histogram();
        assert_eq!(histogram.len(), 6);
        assert!(histogram.value_at_quantile(0.5).abs_diff(500) <= 4);
    }
}
