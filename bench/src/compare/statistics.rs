//! Medians, ratios and their spread. Arithmetic only.

use serde::Serialize;

/// The median; of an even number, the mean of the middle two. None of nothing.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len().is_multiple_of(2) {
        Some(f64::midpoint(sorted[sorted.len() / 2 - 1], upper))
    } else {
        Some(upper)
    }
}

/// The geometric mean: what a typical cell's ratio is, with twice as fast and half as fast equally
/// far from 1. None of nothing.
pub(crate) fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let logarithms: Vec<f64> = values.into_iter().map(f64::ln).collect();
    let count = logarithms.len() as f64;
    (count > 0.0).then(|| (logarithms.iter().sum::<f64>() / count).exp())
}

/// Swath's rate divided by that of another, of each round, and what they come to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ratio {
    /// The median of all rounds.
    pub median: f64,
    /// The lowest.
    pub min: f64,
    /// The highest.
    pub max: f64,
    /// Every round's, in order.
    pub rounds: Vec<f64>,
}

impl Ratio {
    /// Of each pair: one rate divided by the other of the same round. None without a round.
    pub(crate) fn of(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        let pairs = pairs.into_iter();
        let rounds: Vec<f64> = pairs.map(|(ours, theirs)| rounded(ours / theirs)).collect();
        Some(Self {
            median: rounded(median(rounds.iter().copied())?),
            min: rounds.iter().copied().reduce(f64::min)?,
            max: rounds.iter().copied().reduce(f64::max)?,
            rounds,
        })
    }

    /// How far apart the rounds are, as a part of the median.
    pub fn spread(&self) -> f64 {
        (self.max - self.min) / self.median
    }
}

/// Four digits after the point.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one_or_between_the_middle_two() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([]), None);
    }

    #[test]
    fn twice_as_fast_and_half_as_fast_are_a_mean_of_one() {
        let mean = geometric_mean([2.0, 0.5]).unwrap();
        assert!((mean - 1.0).abs() < 1e-12);
        let mean = geometric_mean([1.0, 10.0, 100.0]).unwrap();
        assert!((mean - 10.0).abs() < 1e-9);
        assert_eq!(geometric_mean([]), None);
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine was half as fast in the second round: the ratio does not care.
        let ratio = Ratio::of([(120.0, 100.0), (60.0, 50.0), (100.0, 100.0)]).unwrap();
        assert_eq!(ratio.rounds, [1.2, 1.2, 1.0]);
        assert_eq!((ratio.median, ratio.min, ratio.max), (1.2, 1.0, 1.2));
        assert!((ratio.spread() - 0.2 / 1.2).abs() < 1e-12);
        assert_eq!(Ratio::of([]), None);
    }
}
