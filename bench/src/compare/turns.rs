//! Whose turn it is: everybody once a round, and another one first each time.

use std::fmt;

use serde::Serialize;

/// Who takes a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub(crate) enum Side {
    /// The volume, by Swath.
    #[serde(rename = "swath")]
    Swath,
    /// fio as it is fastest.
    #[serde(rename = "fio")]
    Best,
    /// fio as it comes.
    #[serde(rename = "fio_defaults")]
    Defaults,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Swath => "Swath",
            Self::Best => "fio at its best",
            Self::Defaults => "fio by default",
        })
    }
}

/// The order of round number `round`, from 0. What stays warm or gets tired from one turn to the
/// next strikes each of them equally often.
pub(crate) fn order(sides: &[Side], round: u32) -> Vec<Side> {
    let mut order = sides.to_vec();
    let count = u32::try_from(order.len()).unwrap_or(1).max(1);
    order.rotate_left((round % count) as usize);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_first_in_turn_and_nobody_is_left_out() {
        use Side::{Best, Defaults, Swath};
        let all = [Swath, Best, Defaults];
        assert_eq!(order(&all, 0), all);
        assert_eq!(order(&all, 1), [Best, Defaults, Swath]);
        assert_eq!(order(&all, 2), [Defaults, Swath, Best]);
        assert_eq!(order(&all, 3), all);
        assert_eq!(order(&[Swath, Best], 1), [Best, Swath]);
    }
}
