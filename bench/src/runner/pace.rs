//! The measured window of one lane: nothing counts before the ramp is over, then everything does
//! until the time is up.
//!
//! Pure arithmetic on nanoseconds since the start; the lane reads the clock once for each batch
//! and asks here what that means.

/// What a lane does after a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The ramp: run, count nothing.
    Ramp,
    /// This batch was the last of the ramp: counting begins with the next one.
    Begin,
    /// Counting.
    Measure,
    /// The time is up; this batch still counted.
    End,
}

/// A lane's clockwork.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    ramp_ns: u64,
    runtime_ns: u64,
    began_ns: Option<u64>,
}

impl Pace {
    /// A window of `runtime_ns` that opens `ramp_ns` after the start.
    pub(super) const fn new(ramp_ns: u64, runtime_ns: u64) -> Self {
        Self {
            ramp_ns,
            runtime_ns,
            began_ns: None,
        }
    }

    /// Moves on to `now_ns`, at the end of a batch.
    #[inline]
    pub(super) fn advance(&mut self, now_ns: u64) -> Phase {
        match self.began_ns {
            None if now_ns < self.ramp_ns => Phase::Ramp,
            None => {
                self.began_ns = Some(now_ns);
                Phase::Begin
            }
            Some(began_ns) if now_ns - began_ns < self.runtime_ns => Phase::Measure,
            Some(_) => Phase::End,
        }
    }

    /// How long the window has been open at `now_ns`.
    pub(super) fn window_ns(&self, now_ns: u64) -> u64 {
        self.began_ns.map_or(0, |began_ns| now_ns - began_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_opens_after_the_ramp_and_lasts_the_runtime() {
        let mut pace = Pace::new(100, 1000);
        assert_eq!(pace.advance(50), Phase::Ramp);
        assert_eq!(pace.advance(130), Phase::Begin);
        assert_eq!(pace.advance(1129), Phase::Measure);
        assert_eq!(pace.advance(1150), Phase::End);
        assert_eq!(pace.window_ns(1150), 1020);
    }

    #[test]
    fn without_a_ramp_the_first_batch_only_opens_the_window() {
        let mut pace = Pace::new(0, 10);
        assert_eq!(pace.advance(0), Phase::Begin);
        assert_eq!(pace.window_ns(0), 0);
    }
}
