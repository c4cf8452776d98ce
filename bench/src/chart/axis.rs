//! Axes: where a value lies, and which values are written beside it.

use crate::size::format_size;

/// Writes a value of an axis.
type Label = fn(f64) -> String;

/// An axis, horizontal or vertical.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    name: String,
    scale: Scale,
    label: Label,
}

#[derive(Debug, Clone)]
enum Scale {
    /// By equal steps.
    Linear { min: f64, max: f64, step: f64 },
    /// From a power of ten or a part of it up.
    Log { min: f64, max: f64 },
    /// Values with their own places, at equal distances: block sizes.
    Steps(Vec<f64>),
}

impl Axis {
    /// From 0 to at least `max`.
    pub(crate) fn linear(name: &str, max: f64, label: Label) -> Self {
        let max = if max.is_finite() && max > 0.0 {
            max
        } else {
            1.0
        };
        let step = nice_step(max / 5.0);
        let scale = Scale::Linear {
            min: 0.0,
            max: (max / step * 1.02).ceil() * step,
            step,
        };
        Self {
            name: name.to_owned(),
            scale,
            label,
        }
    }

    /// Around 1, as far as the lowest and the highest of `values`.
    pub(crate) fn ratio(name: &str, values: impl Iterator<Item = f64>, label: Label) -> Self {
        let sound = values.filter(|value| value.is_finite() && *value >= 0.0);
        let (low, high) = sound.fold((0.95_f64, 1.05_f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let step = nice_step((high - low) / 5.0);
        let scale = Scale::Linear {
            min: ((low / step) - 0.02).floor().max(0.0) * step,
            max: (high / step + 0.02).ceil() * step,
            step,
        };
        Self {
            name: name.to_owned(),
            scale,
            label,
        }
    }

    /// Logarithmic, from at most the smallest to at least the largest of `values`.
    pub(crate) fn log(name: &str, values: impl Iterator<Item = f64>, label: Label) -> Self {
        let sound = values.filter(|value| value.is_finite() && *value > 0.0);
        let (min, max) = sound.fold((f64::INFINITY, 0.0_f64), |(min, max), value| {
            (min.min(value), max.max(value))
        });
        let (min, max) = if max > 0.0 { (min, max) } else { (1.0, 10.0) };
        let scale = Scale::Log {
            min: round_log(min, false),
            max: round_log(max * 1.05, true),
        };
        Self {
            name: name.to_owned(),
            scale,
            label,
        }
    }

    /// Block sizes, one beside the other.
    pub(crate) fn sizes(name: &str, sizes: &[u64]) -> Self {
        Self {
            name: name.to_owned(),
            scale: Scale::Steps(sizes.iter().map(|size| (*size as f64).log2()).collect()),
            label: |power| size_label(power.exp2()),
        }
    }

    /// Counts that are doubled from one to the next, or about: depths, lanes. Their values are powers
    /// of two, too.
    pub(crate) fn counts(name: &str, counts: &[u32]) -> Self {
        let powers = counts.iter().map(|count| f64::from(*count).log2());
        Self {
            name: name.to_owned(),
            scale: Scale::Steps(powers.collect()),
            label: |power| format!("{:.0}", power.exp2()),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where a value lies, from 0 to 1. Of sizes the value is the power of two.
    pub(crate) fn part(&self, value: f64) -> f64 {
        let part = match &self.scale {
            Scale::Linear { min, max, .. } => (value - min) / (max - min),
            Scale::Log { min, max } => {
                let value = value.max(min / 2.0);
                (value / min).ln() / (max / min).ln()
            }
            Scale::Steps(steps) => match (steps.first(), steps.last()) {
                (Some(first), Some(last)) if last > first => {
                    // A little room at both ends, so that points do not sit on the axis.
                    0.04 + 0.92 * (value - first) / (last - first)
                }
                _ => 0.5,
            },
        };
        if part.is_finite() {
            part.clamp(-0.05, 1.05)
        } else {
            0.0
        }
    }

    /// The values that are written beside the axis, about `most` of them.
    pub(crate) fn ticks(&self, most: f64) -> Vec<(f64, String)> {
        let values: Vec<f64> = match &self.scale {
            Scale::Linear { min, max, step } => {
                let values = (0..=20).map(|count| min + f64::from(count) * step);
                values
                    .take_while(|value| *value <= max + step / 100.0)
                    .collect()
            }
            Scale::Log { min, max } => log_ticks(*min, *max, most),
            Scale::Steps(steps) => {
                let keep = (steps.len() as f64 / most.max(1.0)).ceil().max(1.0);
                let is_kept = |index: usize| (index as f64) % keep < 0.5;
                let steps = steps.iter().enumerate();
                steps
                    .filter_map(|(index, value)| is_kept(index).then_some(*value))
                    .collect()
            }
        };
        values
            .into_iter()
            .map(|value| (value, (self.label)(value)))
            .collect()
    }
}

/// A block size as fio writes it, in large letters: `4K`.
fn size_label(bytes: f64) -> String {
    format_size(crate::report::whole(bytes)).to_uppercase()
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|times| times * power)
        .find(|step| *step >= least * 0.999)
        .unwrap_or(power * 10.0)
}

/// The next 1, 2 or 5 times a power of ten, downwards or upwards.
fn round_log(value: f64, up: bool) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|times| times * power);
    let found = if up {
        steps.into_iter().find(|step| *step >= value * 0.999)
    } else {
        steps.into_iter().rev().find(|step| *step <= value * 1.001)
    };
    found.unwrap_or(value)
}

/// 1, 2, 5 of each power of ten where there is room, else 1 of each, of each second, ...
fn log_ticks(min: f64, max: f64, most: f64) -> Vec<f64> {
    let decades = (max / min).log10().max(0.3);
    let times: &[f64] = if decades * 3.0 <= most {
        &[1.0, 2.0, 5.0]
    } else if decades * 2.0 <= most {
        &[1.0, 3.0]
    } else {
        &[1.0]
    };
    let stride = if times.len() == 1 {
        (decades / most.max(1.0)).ceil().max(1.0)
    } else {
        1.0
    };
    let mut ticks = Vec::new();
    let mut power = min.log10().floor();
    while power <= max.log10() + 1e-9 {
        let values = times.iter().map(|times| times * 10_f64.powf(power));
        ticks.extend(values.filter(|value| *value >= min * 0.999 && *value <= max * 1.001));
        power += stride;
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, most: f64) -> Vec<String> {
        axis.ticks(most).into_iter().map(|tick| tick.1).collect()
    }

    #[test]
    fn linear_axes_end_at_a_round_number_above_the_largest() {
        let axis = Axis::linear("GB/s", 7.3, |value| format!("{value}"));
        assert_eq!(labels(&axis, 9.0), ["0", "2", "4", "6", "8"]);
        assert!((axis.part(4.0) - 0.5).abs() < 1e-9);
        let axis = Axis::linear("GB/s", f64::NAN, |value| format!("{value:.1}"));
        assert!(axis.part(0.5) > 0.0);
    }

    #[test]
    fn axes_of_ratios_have_1_on_them() {
        for values in [
            &[1.0][..],
            &[0.9, 1.15],
            &[0.2, 3.0],
            &[1.5],
            &[f64::NAN],
            &[0.0],
        ] {
            let axis = Axis::ratio("after / before", values.iter().copied(), |v| {
                format!("{v:.2}")
            });
            let labels = labels(&axis, 9.0);
            assert!(labels.contains(&"1.00".to_owned()), "{values:?} {labels:?}");
            assert!((3..=9).contains(&labels.len()), "{values:?} {labels:?}");
            assert!(axis.part(1.0) > 0.0 && axis.part(1.0) < 1.0);
        }
    }

    #[test]
    fn logarithmic_axes_have_round_ends_and_no_more_ticks_than_room() {
        let axis = Axis::log("IOPS", [3_000.0, 800_000.0].into_iter(), |v| {
            format!("{v:.0}")
        });
        assert_eq!(labels(&axis, 4.0), ["10000", "100000", "1000000"]);
        assert!(axis.part(2_000.0).abs() < 1e-9);
        assert!((axis.part(1e6) - 1.0).abs() < 1e-9);
        assert!(axis.part(0.0) < 0.0 && axis.part(0.0).is_finite());
        let axis = Axis::log("x", std::iter::empty(), |v| format!("{v:.0}"));
        assert!(axis.part(5.0).is_finite());
    }

    #[test]
    fn counts_stand_at_their_powers_of_two() {
        let axis = Axis::counts("Depth", &[1, 3, 4, 4096]);
        assert_eq!(labels(&axis, 9.0), ["1", "3", "4", "4096"]);
        assert!((axis.part(0.0) - 0.04).abs() < 1e-9 && (axis.part(12.0) - 0.96).abs() < 1e-9);
    }

    #[test]
    fn sizes_stand_at_equal_distances() {
        let axis = Axis::sizes("Block size", &[4096, 8192, 16384]);
        assert_eq!(labels(&axis, 9.0), ["4K", "8K", "16K"]);
        assert!((axis.part(13.0) - 0.5).abs() < 1e-9);
        assert!((Axis::sizes("", &[4096]).part(12.0) - 0.5).abs() < 1e-9);
    }
}
