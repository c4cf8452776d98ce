//! Steady state: whether the last rounds of a cell agree, and how far they are from it.
//!
//! A drive that was just written is faster than it will be, and slower while it collects garbage. So
//! a cell is measured in rounds until the last few of them, the *window*, satisfy both:
//!
//! - **spread**: the largest less the smallest is at most a part of their mean;
//! - **slope**: the straight line that fits them best (least squares) rises or falls over the window
//!   by at most a part of their mean.
//!
//! These are the words of SNIA's Solid State Storage Performance Test Specification (version 2.0.2,
//! "Steady State" in its definitions), which asks for five rounds within 20 % and 10 %, gives up
//! after 25, and has what the window says reported either way
//! (<https://www.snia.org/tech_activities/standards/curr_standards/pts>). fio's `steadystate`
//! (<https://fio.readthedocs.io/en/latest/fio_doc.html#steady-state>) takes one of the two alone, and
//! other numbers: the largest distance from the mean, which is at most the spread here, and the slope
//! from one sample to the next, which is the slope here divided by the window's steps.
//!
//! What is judged is the rate. At one block size IOPS and bandwidth are the same but for a factor, and
//! at one depth the mean latency is the depth divided by the rate, so a window that is steady in one
//! is about steady in all three. Percentiles are not judged.
//!
//! All of it is arithmetic: numbers in, a verdict out.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What rounds must satisfy, and when to give up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SteadyOptions {
    /// How many rounds are looked at: the last so many.
    pub window: u32,
    /// The most rounds of a cell.
    pub rounds_max: u32,
    /// The largest spread of a window that is steady, in percent of its mean.
    pub spread_percent_max: f64,
    /// The largest slope of a window that is steady, in percent of its mean.
    pub slope_percent_max: f64,
}

impl Default for SteadyOptions {
    /// SNIA's.
    fn default() -> Self {
        Self {
            window: 5,
            rounds_max: 25,
            spread_percent_max: 20.0,
            slope_percent_max: 10.0,
        }
    }
}

/// The rounds that one cell may have.
const ROUNDS_MAX: u32 = 1000;

/// The largest part of a mean that can be asked for, in percent. Rates are positive, so that a window
/// of five is never further apart than five times its mean.
const PERCENT_MAX: f64 = 1000.0;

/// How a window is asked for.
const GRAMMAR: &str = "write it as spread:20%,slope:10%,window:5,rounds:25, or a part of that";

impl FromStr for SteadyOptions {
    type Err = Error;

    /// `spread:20%,slope:10%,window:5,rounds:25`, in any order; what is left out is SNIA's.
    fn from_str(text: &str) -> Result<Self> {
        let mut options = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for item in text.split(',').map(str::trim) {
            let Some((name, value)) = item.split_once(':') else {
                return Err(Error::usage(format!(
                    "'{item}' is no criterion of a steady state; {GRAMMAR}"
                )));
            };
            if seen.contains(&name) {
                return Err(Error::usage(format!("'{name}' is given twice in '{text}'")));
            }
            seen.push(name);
            match name {
                "spread" => options.spread_percent_max = percent(item, value)?,
                "slope" => options.slope_percent_max = percent(item, value)?,
                "window" => options.window = count(item, value, 2)?,
                "rounds" => options.rounds_max = count(item, value, 2)?,
                _ => {
                    return Err(Error::usage(format!(
                        "'{name}' is no criterion of a steady state; {GRAMMAR}"
                    )));
                }
            }
        }
        if options.rounds_max < options.window {
            return Err(Error::usage(format!(
                "a window of {} rounds is never full within {}; ask for more rounds or a smaller \
                 window",
                options.window, options.rounds_max
            )));
        }
        Ok(options)
    }
}

fn percent(item: &str, value: &str) -> Result<f64> {
    let number = value.strip_suffix('%').unwrap_or(value).parse::<f64>();
    let number = number.ok().filter(|it| (0.0..=PERCENT_MAX).contains(it));
    number.ok_or_else(|| {
        Error::usage(format!(
            "'{item}' must be 0 to {PERCENT_MAX} percent of the window's mean"
        ))
    })
}

fn count(item: &str, value: &str, least: u32) -> Result<u32> {
    let number = value.parse::<u32>().ok();
    let number = number.filter(|number| (least..=ROUNDS_MAX).contains(number));
    number.ok_or_else(|| Error::usage(format!("'{item}' must be {least} to {ROUNDS_MAX} rounds")))
}

impl fmt::Display for SteadyOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "spread:{}%,slope:{}%,window:{},rounds:{}",
            self.spread_percent_max, self.slope_percent_max, self.window, self.rounds_max
        )
    }
}

/// What a window of rounds says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SteadyWindow {
    /// The mean of its rates.
    pub mean: f64,
    /// The largest less the smallest, in percent of the mean.
    pub spread_percent: f64,
    /// What the line that fits best rises from the first round to the last, in percent of the mean;
    /// negative: it falls.
    pub slope_percent: f64,
}

impl SteadyWindow {
    /// Looks at rates, one a round, in order. None when there are none, or one is no number.
    pub fn of(rates: &[f64]) -> Option<Self> {
        let count = rates.len() as f64;
        let mean = rates.iter().sum::<f64>() / count;
        if !mean.is_finite() || mean <= 0.0 {
            return None;
        }
        let (low, high) = rates
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), rate| {
                (low.min(*rate), high.max(*rate))
            });
        // Rounds are numbered from the middle, so that their own sum is 0 and the line's slope is
        // a quotient of two sums.
        let middle = (count - 1.0) / 2.0;
        let mut products = 0.0;
        let mut squares = 0.0;
        for (number, rate) in rates.iter().enumerate() {
            let distance = number as f64 - middle;
            products += distance * (rate - mean);
            squares += distance * distance;
        }
        let per_round = if squares > 0.0 {
            products / squares
        } else {
            0.0
        };
        Some(Self {
            mean,
            spread_percent: (high - low) / mean * 100.0,
            slope_percent: per_round * (count - 1.0) / mean * 100.0,
        })
    }

    /// Whether it keeps within both criteria.
    fn satisfies(&self, options: &SteadyOptions) -> bool {
        self.spread_percent <= options.spread_percent_max
            && self.slope_percent.abs() <= options.slope_percent_max
    }
}

impl SteadyOptions {
    /// The last rounds, those that are looked at.
    pub fn window_of<'rounds, T>(&self, rounds: &'rounds [T]) -> &'rounds [T] {
        let window = usize::try_from(self.window).unwrap_or(usize::MAX);
        &rounds[rounds.len().saturating_sub(window)..]
    }

    /// Whether the last of these rounds, given by their rates, are steady.
    pub fn is_steady(&self, rates: &[f64]) -> bool {
        let window = self.window_of(rates);
        let is_full = u32::try_from(window.len()).is_ok_and(|length| length >= self.window);
        is_full && SteadyWindow::of(window).is_some_and(|window| window.satisfies(self))
    }
}

/// What became of a cell's rounds, as reports have it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SteadyReport {
    /// Whether the last rounds were steady.
    pub is_steady: bool,
    /// How many rounds there were.
    pub rounds: u32,
    /// How many of them, the last, the cell's numbers are of.
    pub window: u32,
    /// The largest rate of these less the smallest, in percent of the mean.
    pub spread_percent: f64,
    /// What the line that fits them best rises over the window, in percent of the mean.
    pub slope_percent: f64,
}

impl SteadyReport {
    /// Of all rounds of a cell, by their rates. None when there are none.
    pub fn of(options: &SteadyOptions, rates: &[f64]) -> Option<Self> {
        let last = options.window_of(rates);
        let window = SteadyWindow::of(last)?;
        let length = |rates: &[f64]| u32::try_from(rates.len()).unwrap_or(u32::MAX);
        let hundredths = |value: f64| (value * 100.0).round() / 100.0;
        Some(Self {
            is_steady: options.is_steady(rates),
            rounds: length(rates),
            window: length(last),
            spread_percent: hundredths(window.spread_percent),
            slope_percent: hundredths(window.slope_percent),
        })
    }

    /// `steady after 7 rounds`, `not steady after 25 rounds`.
    pub fn verdict(&self) -> String {
        let not = if self.is_steady { "" } else { "not " };
        let plural = if self.rounds == 1 { "" } else { "s" };
        format!("{not}steady after {} round{plural}", self.rounds)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() <= 1e-6 * (1.0 + other.abs())
    }

    #[test]
    fn spread_and_slope_are_those_of_the_definition() {
        // Mean 100; 90 to 110; the line through them rises by 4 a round, 16 over the window.
        let window = SteadyWindow::of(&[90.0, 98.0, 102.0, 110.0, 100.0]).unwrap();
        assert!(near(window.mean, 100.0), "{window:?}");
        assert!(near(window.spread_percent, 20.0), "{window:?}");
        assert!(near(window.slope_percent, 12.8), "{window:?}");
        let down = SteadyWindow::of(&[110.0, 105.0, 100.0, 95.0, 90.0]).unwrap();
        assert!(near(down.slope_percent, -20.0), "{down:?}");
        let one = SteadyWindow::of(&[7.0]).unwrap();
        assert!(near(one.spread_percent, 0.0) && near(one.slope_percent, 0.0));
        for rates in [&[][..], &[0.0, 0.0], &[f64::NAN, 1.0], &[f64::INFINITY]] {
            assert_eq!(SteadyWindow::of(rates), None, "{rates:?}");
        }
    }

    #[test]
    fn both_criteria_must_hold_and_their_limits_still_do() {
        let snia = SteadyOptions::default();
        // A spread of exactly 20 % without a slope, and a slope of exactly 10 %.
        assert!(snia.is_steady(&[90.0, 110.0, 100.0, 110.0, 90.0]));
        assert!(snia.is_steady(&[95.0, 97.5, 100.0, 102.5, 105.0]));
        // More than one of the two.
        assert!(!snia.is_steady(&[89.0, 110.0, 102.0, 110.0, 89.0]));
        assert!(!snia.is_steady(&[94.0, 97.0, 100.0, 103.0, 106.0]));
    }

    #[test]
    fn only_the_last_rounds_count_and_there_must_be_enough_of_them() {
        let snia = SteadyOptions::default();
        assert!(!snia.is_steady(&[100.0; 4]));
        assert!(snia.is_steady(&[100.0; 5]));
        assert!(snia.is_steady(&[900.0, 400.0, 100.0, 100.0, 100.0, 100.0, 100.0]));
        assert!(!snia.is_steady(&[100.0, 100.0, 100.0, 100.0, 100.0, 300.0]));
        let report = SteadyReport::of(&snia, &[400.0, 100.0, 100.0]).unwrap();
        assert!(!report.is_steady && report.rounds == 3 && report.window == 3);
        assert_eq!(report.verdict(), "not steady after 3 rounds");
    }

    #[test]
    fn criteria_are_read_as_they_are_written() {
        let parse = |text: &str| text.parse::<SteadyOptions>();
        assert_eq!(parse("window:5").unwrap(), SteadyOptions::default());
        let options = parse("slope:5%, rounds:40,window:8,spread:12.5").unwrap();
        assert_eq!(
            options.to_string(),
            "spread:12.5%,slope:5%,window:8,rounds:40"
        );
        assert_eq!(parse(&options.to_string()).unwrap(), options);
        for (text, part) in [
            ("", "no criterion"),
            ("20%", "no criterion"),
            ("iops_slope:10%", "'iops_slope'"),
            ("spread:-1%", "'spread:-1%'"),
            ("spread:nan", "'spread:nan'"),
            ("slope:2000%", "'slope:2000%'"),
            ("window:1", "'window:1'"),
            ("rounds:0", "'rounds:0'"),
            ("rounds:4", "window of 5 rounds is never full within 4"),
            ("window:30", "window of 30"),
            ("spread:1%,spread:2%", "given twice"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{text}");
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
    }

    /// Rates as drives have them: positive, of any size.
    fn rates() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(1.0..1e12_f64, 1..40)
    }

    fn config() -> ProptestConfig {
        ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn a_factor_changes_the_mean_and_nothing_else(rates in rates(), factor in 1e-3..1e3_f64) {
            // IOPS and bandwidth are the same verdict.
            let scaled: Vec<f64> = rates.iter().map(|rate| rate * factor).collect();
            let (one, other) = (SteadyWindow::of(&rates), SteadyWindow::of(&scaled));
            let (one, other) = (one.unwrap(), other.unwrap());
            prop_assert!(near(one.mean * factor / other.mean, 1.0));
            prop_assert!(near(one.spread_percent, other.spread_percent));
            prop_assert!(near(one.slope_percent, other.slope_percent));
        }

        #[test]
        fn backwards_is_the_same_spread_and_the_opposite_slope(rates in rates()) {
            let backwards: Vec<f64> = rates.iter().rev().copied().collect();
            let (one, other) = (SteadyWindow::of(&rates), SteadyWindow::of(&backwards));
            let (one, other) = (one.unwrap(), other.unwrap());
            prop_assert!(near(one.spread_percent, other.spread_percent));
            prop_assert!(near(one.slope_percent, -other.slope_percent));
        }

        #[test]
        fn a_line_has_its_own_slope(first in 1.0..1e6_f64, step in 0.0..1e5_f64, count in 2..40_u32) {
            let rates: Vec<f64> = (0..count).map(|number| first + f64::from(number) * step).collect();
            let window = SteadyWindow::of(&rates).unwrap();
            // Of a line the slope over the window is the spread.
            prop_assert!(near(window.slope_percent, window.spread_percent));
        }

        #[test]
        fn no_window_is_outside_what_can_be_asked_for(rates in prop::collection::vec(1.0..1e12_f64, 5)) {
            let all = SteadyOptions {
                spread_percent_max: PERCENT_MAX,
                slope_percent_max: PERCENT_MAX,
                ..SteadyOptions::default()
            };
            prop_assert!(all.is_steady(&rates));
        }

        #[test]
        fn what_is_steady_stays_so_under_weaker_criteria(
            rates in prop::collection::vec(90.0..110.0_f64, 5..20),
            spread in 0.0..40.0_f64,
            slope in 0.0..40.0_f64,
        ) {
            let strict = SteadyOptions {
                spread_percent_max: spread,
                slope_percent_max: slope,
                ..SteadyOptions::default()
            };
            let weak = SteadyOptions {
                spread_percent_max: spread + 1.0,
                slope_percent_max: slope + 1.0,
                ..strict
            };
            prop_assert!(!strict.is_steady(&rates) || weak.is_steady(&rates));
        }
    }
}
