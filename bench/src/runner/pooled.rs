//! Several rounds of one cell as if they had been one.

use hdrhistogram::Histogram;

use super::Measurement;
use crate::latency::{LatencyBins, LatencySummary};

impl Measurement {
    /// All rounds together: their time, their requests, one histogram. None when there are none.
    pub fn pooled(rounds: &[Self]) -> Option<Self> {
        let (first, others) = rounds.split_first()?;
        let mut all = first.clone();
        let mut cpu_ns = first.cpu_ns_per_io * first.ios as f64;
        for round in others {
            all.window += round.window;
            all.ios += round.ios;
            all.bytes += round.bytes;
            cpu_ns += round.cpu_ns_per_io * round.ios as f64;
            add(&mut all.histogram, &round.histogram);
        }
        all.cpu_ns_per_io = cpu_ns / all.ios.max(1) as f64;
        all.latency = LatencySummary::of(&all.histogram);
        all.latency_bins = LatencyBins::of(&all.histogram);
        Some(all)
    }
}

/// Adds what was recorded. All are made alike, by the lanes' statistics, so that nothing is lost.
fn add(histogram: &mut Histogram<u64>, other: &Histogram<u64>) {
    for step in other.iter_recorded() {
        histogram.saturating_record_n(step.value_iterated_to(), step.count_since_last_iteration());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::measurement;

    #[test]
    fn rounds_together_have_all_requests_and_the_time_of_all() {
        let rounds = [100_000, 300_000].map(measurement);
        let all = Measurement::pooled(&rounds).unwrap();
        assert_eq!(all.ios, 400_000);
        assert_eq!(all.bytes, 400_000 * 4096);
        assert!((all.iops() - 200_000.0).abs() < 1e-6);
        assert_eq!(all.latency_bins.total(), 400_000);
        assert!(all.latency.max >= rounds[0].latency.max);
        assert!(all.latency.p50.abs_diff(60_000) < 100, "{:?}", all.latency);
        assert!((all.cpu_ns_per_io - 512.25).abs() < 1e-9);
        assert!(Measurement::pooled(&[]).is_none());
    }
}
