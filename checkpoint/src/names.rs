//! What checkpoints and tensors may be called.
//!
//! - A checkpoint is called by a step number or by a name: [`CheckpointName`]. Its text and the
//!   value are one to one, so a name may not look like a number: `120` is always step 120.
//! - A tensor name is any UTF-8 of 1 to 4096 bytes without NUL. It is data, and never a path; what
//!   makes a file of it must look at it again.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The most bytes the name of a checkpoint or a tensor may have.
pub const NAME_BYTES_MAX: usize = 4096;

/// What is wrong with a name, if anything is.
pub(crate) fn name_problem(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("a name may not be empty")
    } else if name.len() > NAME_BYTES_MAX {
        Some("a name has at most 4096 bytes")
    } else if name.contains('\0') {
        Some("a name may not contain NUL")
    } else {
        None
    }
}

/// The name of a checkpoint.
///
/// ```
/// use swath_checkpoint::CheckpointName;
///
/// let step: CheckpointName = "120".parse()?;
/// assert_eq!(step, CheckpointName::Step(120));
/// let name: CheckpointName = "before the merge".parse()?;
/// assert_eq!(name.to_string(), "before the merge");
/// # Ok::<(), swath_checkpoint::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointName {
    /// The step of a training run.
    Step(u64),
    /// A name: 1 to 4096 bytes of UTF-8, no NUL, not only digits.
    Name(String),
}

impl CheckpointName {
    /// The step, where it is one.
    pub fn step(&self) -> Option<u64> {
        match self {
            Self::Step(step) => Some(*step),
            Self::Name(_) => None,
        }
    }

    /// Whether it may be used. A step always may.
    pub fn check(&self) -> Result<()> {
        match self.problem() {
            Some(problem) => Err(Error::invalid(problem)),
            None => Ok(()),
        }
    }

    pub(crate) fn problem(&self) -> Option<&'static str> {
        match self {
            Self::Step(_) => None,
            Self::Name(name) if is_digits(name) => {
                Some("a name of digits only is a step number, without leading zeroes")
            }
            Self::Name(name) => name_problem(name),
        }
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

impl FromStr for CheckpointName {
    type Err = Error;

    /// Digits are a step, anything else a name. Digits that no step prints as (leading zeroes, too
    /// many of them) are refused.
    fn from_str(text: &str) -> Result<Self> {
        let leading_zero = text.len() > 1 && text.starts_with('0');
        let name = match text.parse() {
            Ok(step) if is_digits(text) && !leading_zero => Self::Step(step),
            _ => Self::Name(text.to_owned()),
        };
        name.check()?;
        Ok(name)
    }
}

impl From<u64> for CheckpointName {
    fn from(step: u64) -> Self {
        Self::Step(step)
    }
}

/// The text that reads back, with characters that a terminal would obey escaped.
impl fmt::Display for CheckpointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(step) => fmt::Display::fmt(step, f),
            Self::Name(name) => f.pad(&escaped(name)),
        }
    }
}

/// `text` with control characters escaped, for a terminal.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_control) {
        let escape = |c: char| {
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = (!c.is_control()).then_some(c);
            escaped.into_iter().flatten().chain(plain)
        };
        text.chars().flat_map(escape).collect()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_steps_and_the_rest_are_names() {
        for step in [0, 1, 120, u64::MAX] {
            let name: CheckpointName = step.to_string().parse().unwrap();
            assert_eq!(name, CheckpointName::Step(step));
            assert_eq!(name.to_string(), step.to_string());
            assert_eq!(name.step(), Some(step));
        }
        for text in [
            "a",
            "+5",
            "-1",
            "1e3",
            " 7",
            "../x",
            "Ελλ",
            &"n".repeat(4096),
        ] {
            let name: CheckpointName = text.parse().unwrap();
            assert_eq!(name, CheckpointName::Name(text.to_owned()));
            assert_eq!(name.to_string(), text);
        }
    }

    #[test]
    fn names_that_cannot_be_told_apart_or_written_down_are_refused() {
        let long = "n".repeat(4097);
        for text in ["", "007", "00", "18446744073709551616", "a\0b", &long] {
            assert!(text.parse::<CheckpointName>().is_err(), "{text:?}");
            assert!(CheckpointName::Name(text.to_owned()).check().is_err());
        }
        assert!(CheckpointName::Name("12".into()).check().is_err());
    }

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        let name = CheckpointName::Name("a\x1b[2J\nü".into());
        assert_eq!(name.to_string(), "a\\u{1b}[2J\\nü");
    }

    proptest::proptest! {
        #[test]
        fn every_accepted_text_reads_back(text in ".{1,40}") {
            if let Ok(name) = text.parse::<CheckpointName>() {
                let shown = match &name {
                    CheckpointName::Step(step) => step.to_string(),
                    CheckpointName::Name(name) => name.clone(),
                };
                proptest::prop_assert_eq!(shown, text);
            }
        }
    }
}
