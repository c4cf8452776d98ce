//! What is written to a volume before anything is measured, so that drives are as they will be.
//!
//! A drive that is new, or was just discarded, writes to empty blocks, and faster than it ever will
//! again. SNIA's Solid State Storage Performance Test Specification therefore begins with
//! *workload independent preconditioning*: twice the capacity, sequentially, in blocks of 128 KiB.
//! Random writes after that, until their rate is steady, are what its tests of IOPS go on with
//! (*workload dependent preconditioning*; <https://www.snia.org/tech_activities/standards/curr_standards/pts>).
//!
//! - Sequential passes write every block of the volume, each pass other incompressible data.
//! - Random writes draw every offset from the whole volume, with repetition: once its capacity in
//!   bytes leaves about a third of the blocks as the passes wrote them.
//! - What was done goes into the report's environment, in words that do not change from run to run, so
//!   that runs that were made alike can be merged; times are told beside.

mod run;

pub use run::precondition;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::steady::SteadyReport;

/// Bytes of each sequential write.
pub(crate) const SEQUENTIAL_BYTES: u64 = 128 << 10;

/// Bytes of each random write.
pub(crate) const RANDOM_BYTES: u64 = 4 << 10;

/// The passes that SNIA asks for.
const PASSES: u32 = 2;

/// Nobody waits for more.
const PASSES_MAX: u32 = 100;

/// What to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Precondition {
    /// How often the whole volume is written sequentially.
    pub passes: u32,
    /// What is written at random after that.
    pub random: Option<RandomWrites>,
}

/// How much is written at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RandomWrites {
    /// So many times the volume's capacity.
    Capacity(u32),
    /// Rounds until their rate is steady.
    UntilSteady,
}

impl Default for Precondition {
    fn default() -> Self {
        Self {
            passes: PASSES,
            random: None,
        }
    }
}

impl FromStr for Precondition {
    type Err = Error;

    /// `2`, `random`, or `seq:2,rand:1`, `rand:steady`.
    fn from_str(text: &str) -> Result<Self> {
        if text.starts_with(|letter: char| letter.is_ascii_digit()) {
            return Ok(Self {
                passes: passes(text)?,
                random: None,
            });
        }
        if text == "random" {
            return Ok(Self {
                passes: PASSES,
                random: Some(RandomWrites::Capacity(1)),
            });
        }
        let (mut sequential, mut random) = (None, None);
        for item in text.split(',').map(str::trim) {
            let is_again = match item.split_once(':') {
                Some(("seq", number)) => sequential.replace(passes(number)?).is_some(),
                Some(("rand", "steady")) => random.replace(RandomWrites::UntilSteady).is_some(),
                Some(("rand", number)) => {
                    let capacity = RandomWrites::Capacity(passes(number)?);
                    random.replace(capacity).is_some()
                }
                _ => {
                    return Err(Error::usage(format!(
                        "'{item}' is no preconditioning; write a number of passes, random, or \
                         seq:2,rand:1, or rand:steady"
                    )));
                }
            };
            if is_again {
                return Err(Error::usage(format!("'{item}' is given twice in '{text}'")));
            }
        }
        Ok(Self {
            passes: sequential.unwrap_or(0),
            random,
        })
    }
}

fn passes(text: &str) -> Result<u32> {
    let number = text.parse().ok();
    let number = number.filter(|number| (1..=PASSES_MAX).contains(number));
    number.ok_or_else(|| {
        Error::usage(format!(
            "'{text}' is no number of passes over the volume; give 1 to {PASSES_MAX}"
        ))
    })
}

impl Precondition {
    /// How many bytes that is on a volume of so many, but for what is written until it is steady.
    pub fn bytes(&self, capacity_bytes: u64) -> u64 {
        let random = match self.random {
            Some(RandomWrites::Capacity(times)) => times,
            Some(RandomWrites::UntilSteady) | None => 0,
        };
        capacity_bytes.saturating_mul(u64::from(self.passes) + u64::from(random))
    }
}

impl fmt::Display for Precondition {
    /// In words: `written 2 times over, sequentially in 128k, then once over at random in 4k`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = |count: u32| match count {
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        f.write_str("written")?;
        if self.passes > 0 {
            write!(f, " {} over, sequentially in 128k", times(self.passes))?;
        }
        let then = if self.passes > 0 { ", then" } else { "" };
        match self.random {
            None => Ok(()),
            Some(RandomWrites::Capacity(count)) => {
                write!(f, "{then} {} its capacity at random in 4k", times(count))
            }
            Some(RandomWrites::UntilSteady) => {
                write!(f, "{then} at random in 4k until steady")
            }
        }
    }
}

/// What was written, and how long it took.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PreconditionReport {
    /// Passes over the whole volume.
    pub sequential_passes: u32,
    /// Bytes that they wrote.
    pub sequential_bytes: u64,
    /// How long they took.
    pub sequential_ms: u64,
    /// Bytes that were written at random.
    pub random_bytes: u64,
    /// How long that took.
    pub random_ms: u64,
    /// Bytes a second of every round of random writes, in order.
    pub random_bw_bytes_rounds: Vec<u64>,
    /// Whether they became steady, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random_steady: Option<SteadyReport>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_as_it_is_typed() {
        let parse = |text: &str| text.parse::<Precondition>().unwrap();
        let both = |passes, random| Precondition { passes, random };
        assert_eq!(parse("2"), Precondition::default());
        assert_eq!(parse("random"), both(2, Some(RandomWrites::Capacity(1))));
        assert_eq!(
            parse("seq:1, rand:3"),
            both(1, Some(RandomWrites::Capacity(3)))
        );
        assert_eq!(
            parse("rand:steady"),
            both(0, Some(RandomWrites::UntilSteady))
        );
        assert_eq!(parse("seq:3"), both(3, None));
        assert_eq!(parse("seq:2,rand:1").bytes(10), 30);
        for (text, part) in [
            ("0", "'0' is no number of passes"),
            ("101", "1 to 100"),
            ("seq:0", "'0' is no number"),
            ("rand:often", "'often' is no number"),
            ("sideways", "'sideways' is no preconditioning"),
            ("", "'' is no preconditioning"),
            ("seq:1,seq:2", "given twice"),
            ("2,rand:1", "'2,rand:1' is no number"),
        ] {
            let error = text.parse::<Precondition>().unwrap_err();
            assert_eq!(error.exit_code(), 2, "{text}");
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn it_is_told_in_words() {
        let words = |text: &str| text.parse::<Precondition>().unwrap().to_string();
        assert_eq!(words("2"), "written 2 times over, sequentially in 128k");
        assert_eq!(
            words("seq:1,rand:1"),
            "written once over, sequentially in 128k, then once its capacity at random in 4k"
        );
        assert_eq!(words("rand:steady"), "written at random in 4k until steady");
    }
}
