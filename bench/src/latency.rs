//! The few numbers of a latency histogram that a report shows.

use hdrhistogram::Histogram;
use serde::Serialize;

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

#[cfg(test)]
mod tests {
    use super::*;

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
