//! When requests are meant to start: a schedule of arrivals at a set rate.
//!
//! - Pure arithmetic: no clock is read here, and whoever asks decides what the time is.
//! - A schedule never drifts: arrivals are where the rate puts them, however late the one before was
//!   asked for. An arrival that is not taken waits, with its time.
//! - Lanes share a rate: each has a schedule of its own part.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::error::{Error, Result};
use crate::random::Random;
use crate::report::whole;

const NS_PER_S: f64 = 1e9;

/// How arrivals are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arrivals {
    /// One like the other. Vdbench: `distribution=deterministic`.
    Even,
    /// At random and independently of one another, as those of many users are. Vdbench:
    /// `distribution=exponential`, its default.
    #[default]
    Poisson,
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Even => "even",
            Self::Poisson => "poisson",
        })
    }
}

impl Serialize for Arrivals {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Arrivals {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "even" => Ok(Self::Even),
            "poisson" => Ok(Self::Poisson),
            _ => Err(Error::usage(format!(
                "arrivals are even or poisson, not '{name}'"
            ))),
        }
    }
}

/// One lane's arrivals, one after the other, for ever.
#[derive(Debug, Clone)]
pub struct Schedule {
    kind: Kind,
    next_ns: u64,
}

#[derive(Debug, Clone)]
enum Kind {
    /// Arrival number `place` of all lanes together is this lane's next.
    Even { place: u64, lanes: u64, gap_ns: f64 },
    Poisson {
        random: Random,
        at_ns: f64,
        mean_gap_ns: f64,
    },
}

impl Schedule {
    /// The arrivals of lane number `lane` of `lanes`, which together have `rate_per_s`, above 0.
    pub fn new(arrivals: Arrivals, rate_per_s: f64, (lane, lanes): (u32, u32), seed: u64) -> Self {
        let kind = match arrivals {
            Arrivals::Even => Kind::Even {
                place: u64::from(lane),
                lanes: u64::from(lanes),
                gap_ns: NS_PER_S / rate_per_s,
            },
            Arrivals::Poisson => Kind::Poisson {
                // A stream that neither offsets nor data are drawn from.
                random: Random::new(seed, u64::from(lane) ^ (2 << 32)),
                at_ns: 0.0,
                mean_gap_ns: NS_PER_S * f64::from(lanes) / rate_per_s,
            },
        };
        let mut schedule = Self { kind, next_ns: 0 };
        schedule.next_ns = schedule.following_ns();
        schedule
    }

    /// When the next one is, in nanoseconds since the start.
    #[inline]
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Goes on to the one after it.
    #[inline]
    pub fn advance(&mut self) {
        self.next_ns = self.following_ns();
    }

    #[inline]
    fn following_ns(&mut self) -> u64 {
        match &mut self.kind {
            Kind::Even {
                place,
                lanes,
                gap_ns,
            } => {
                // Multiplied, not added up, so that no error adds up either.
                let at_ns = *place as f64 * *gap_ns;
                *place += *lanes;
                whole(at_ns)
            }
            Kind::Poisson {
                random,
                at_ns,
                mean_gap_ns,
            } => {
                *at_ns -= *mean_gap_ns * (1.0 - random.unit()).ln();
                whole(*at_ns)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(schedule: &mut Schedule, until_ns: u64) -> Vec<u64> {
        let mut times = Vec::new();
        while schedule.next_ns() < until_ns {
            times.push(schedule.next_ns());
            schedule.advance();
        }
        times
    }

    #[test]
    fn even_arrivals_of_all_lanes_interleave() {
        let of_lane = |lane| {
            let mut schedule = Schedule::new(Arrivals::Even, 1000.0, (lane, 2), 1);
            times(&mut schedule, 4_000_000)
        };
        assert_eq!(of_lane(0), [0, 2_000_000]);
        assert_eq!(of_lane(1), [1_000_000, 3_000_000]);
    }

    #[test]
    fn even_arrivals_do_not_drift_in_an_hour() {
        // A gap that no binary fraction is.
        let mut schedule = Schedule::new(Arrivals::Even, 3000.0, (0, 1), 1);
        for _ in 0..3000 * 3600 {
            schedule.advance();
        }
        assert_eq!(schedule.next_ns(), 3_600_000_000_000);
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_gaps_that_vary() {
        let mut all: Vec<u64> = (0..4)
            .flat_map(|lane| {
                let mut schedule = Schedule::new(Arrivals::Poisson, 50_000.0, (lane, 4), 7);
                times(&mut schedule, 4_000_000_000)
            })
            .collect();
        all.sort_unstable();
        // 200,000 are expected, with a standard deviation of 447.
        assert!(all.len().abs_diff(200_000) < 2000, "{}", all.len());
        let gaps: Vec<f64> = all
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // Those of an exponential distribution are equal.
        let ratio = variance.sqrt() / mean;
        assert!((0.98..1.02).contains(&ratio), "{ratio}");
        let short = gaps.iter().filter(|&&gap| gap < mean).count() as f64 / gaps.len() as f64;
        assert!((short - 0.632).abs() < 0.01, "{short}");
    }

    #[test]
    fn a_seed_gives_the_same_arrivals_again_and_another_others() {
        let first = |seed| Schedule::new(Arrivals::Poisson, 10.0, (0, 1), seed).next_ns();
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn what_is_not_taken_waits() {
        let mut schedule = Schedule::new(Arrivals::Even, 1000.0, (0, 1), 1);
        schedule.advance();
        // However late it is by now: the next one is still where it was meant to be.
        assert_eq!(
            times(&mut schedule, 3_500_000),
            [1_000_000, 2_000_000, 3_000_000]
        );
    }

    #[test]
    fn arrivals_go_by_their_names() {
        for arrivals in [Arrivals::Even, Arrivals::Poisson] {
            assert_eq!(arrivals.to_string().parse::<Arrivals>().unwrap(), arrivals);
        }
        assert!("normal".parse::<Arrivals>().is_err());
    }
}
