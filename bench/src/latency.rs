//! The few numbers of a latency histogram that a report shows, and its shape in coarse bins.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Mean, percentiles and maximum, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
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

impl LatencySummary {
    /// The numbers of a histogram of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Self {
            mean: (histogram.mean() * 10.0).round() / 10.0,
            p50: at(0.5),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: histogram.max(),
        }
    }
}

/// Bins of a doubling: each is an eighth of it wide, so that a request lies within 12.5 % of what
/// its bin says.
const BINS_PER_DOUBLING_LOG2: u32 = 3;

/// The shape of a latency histogram: how many requests took at most so many nanoseconds, and more
/// than the bin before. In JSON an object, as fio's `json+` has its `bins`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LatencyBins(pub BTreeMap<u64, u64>);

impl LatencyBins {
    /// The bins of a histogram of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let mut bins = BTreeMap::new();
        for step in histogram.iter_recorded() {
            *bins.entry(bin_end(step.value_iterated_to())).or_insert(0) +=
                step.count_since_last_iteration();
        }
        Self(bins)
    }

    /// How many requests there are.
    pub fn total(&self) -> u64 {
        self.0
            .values()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// What this part of all requests took at most, 0 where there is none.
    pub fn at_quantile(&self, quantile: f64) -> u64 {
        let wanted = quantile * self.total() as f64;
        let mut seen = 0.0;
        for (end_ns, count) in &self.0 {
            seen += *count as f64;
            if seen >= wanted {
                return *end_ns;
            }
        }
        0
    }
}

/// The smallest value of the bin that `value` is in.
pub(crate) fn bin_start(value: u64) -> u64 {
    value & !bin_mask(value)
}

/// The largest value of the bin that `value` is in.
fn bin_end(value: u64) -> u64 {
    value | bin_mask(value)
}

/// The bits in which the values of a bin differ.
fn bin_mask(value: u64) -> u64 {
    let doublings = value.checked_ilog2().unwrap_or(0);
    (1 << doublings.saturating_sub(BINS_PER_DOUBLING_LOG2)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_an_eighth_of_a_doubling_wide_and_lose_no_request() {
        for (value, end) in [
            (0, 0),
            (7, 7),
            (15, 15),
            (16, 17),
            (4096, 4607),
            (4608, 5119),
        ] {
            assert_eq!(bin_end(value), end, "{value}");
            assert_eq!(bin_end(bin_start(value)), end, "{value}");
            assert!(bin_start(value) == 0 || bin_end(bin_start(value) - 1) < bin_start(value));
        }
        assert_eq!(bin_end(u64::MAX), u64::MAX);
        let mut histogram = Histogram::new(3).unwrap();
        histogram.record_n(4_100, 90).unwrap();
        histogram.record_n(4_500, 9).unwrap();
        histogram.record_n(7_000_000, 1).unwrap();
        let bins = LatencyBins::of(&histogram);
        assert_eq!(bins.0.get(&4607), Some(&99));
        assert_eq!(bins.total(), 100);
        assert_eq!(bins.at_quantile(0.99), 4607);
        assert!(bins.at_quantile(1.0) >= 7_000_000);
        assert_eq!(LatencyBins::default().at_quantile(0.5), 0);
    }

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut histogram = Histogram::new(3).unwrap();
        histogram.record_n(1_000, 9_900).unwrap();
        histogram.record_n(50_000, 99).unwrap();
        histogram.record_n(7_000_000, 1).unwrap();
        let summary = LatencySummary::of(&histogram);
        let near = |value: u64, expected: u64| value.abs_diff(expected) <= expected / 500;
        assert!(near(summary.p50, 1_000), "{summary:?}");
        assert!(near(summary.p99, 1_000), "{summary:?}");
        assert!(near(summary.p99_9, 50_000), "{summary:?}");
        assert!(near(summary.max, 7_000_000), "{summary:?}");
        assert!((summary.mean - 2185.0).abs() < 10.0, "{summary:?}");
    }
}
