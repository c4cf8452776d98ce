//! Latencies of requests: an HDR histogram and the few numbers read off it.

use std::fmt;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longer ones are counted as this: an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// A histogram of latencies in nanoseconds, true to three digits (0.1 %).
pub struct Latency {
    histogram: Histogram<u64>,
}

impl Latency {
    /// An empty histogram.
    ///
    /// # Panics
    ///
    /// Never: the bounds are constants that the histogram takes.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
            .expect("1 ns to an hour at three digits is a histogram's range");
        Self { histogram }
    }

    /// Counts `count` requests that took `latency_ns` each.
    #[inline]
    pub fn record(&mut self, latency_ns: u64, count: u64) {
        self.histogram.saturating_record_n(latency_ns.max(1), count);
    }

    /// Adds another histogram's counts.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same bounds, so the addition cannot be refused.
        let _ = self.histogram.add(&other.histogram);
    }

    /// How many requests were counted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The numbers a report shows.
    pub fn summary(&self) -> LatencySummary {
        let at = |quantile| self.histogram.value_at_quantile(quantile);
        LatencySummary {
            mean: (self.histogram.mean() * 10.0).round() / 10.0,
            p50: at(0.5),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: self.histogram.max(),
        }
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latency")
            .field("count", &self.count())
            .finish()
    }
}

/// Mean, percentiles and maximum, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct LatencySummary {
    /// The mean.
    pub mean: f64,
    /// Half of the requests took at most this.
    pub p50: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p99_9: u64,
    /// 99.99 %.
    pub p99_99: u64,
    /// The slowest.
    pub max: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut first = Latency::new();
        let mut second = Latency::new();
        first.record(1_000, 9_900);
        second.record(50_000, 99);
        second.record(7_000_000, 1);
        first.merge(&second);
        let summary = first.summary();
        let near = |value: u64, expected: u64| value.abs_diff(expected) <= expected / 500;
        assert_eq!(first.count(), 10_000);
        assert!(near(summary.p50, 1_000), "{summary:?}");
        assert!(near(summary.p99, 1_000), "{summary:?}");
        assert!(near(summary.p99_9, 50_000), "{summary:?}");
        assert!(near(summary.max, 7_000_000), "{summary:?}");
        assert!((summary.mean - 2185.0).abs() < 10.0, "{summary:?}");
    }

    #[test]
    fn what_is_beyond_the_range_is_counted_all_the_same() {
        let mut latency = Latency::new();
        latency.record(0, 1);
        latency.record(u64::MAX, 1);
        assert_eq!(latency.count(), 2);
    }
}
