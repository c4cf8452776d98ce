//! The time that a lane goes by: that of the machine, or a test's own.

use std::time::{Duration, Instant};

/// Tells a lane how late it is, and lets it rest.
pub(super) trait Clock {
    /// Nanoseconds since the start.
    fn now_ns(&mut self) -> u64;

    /// Returns at `until_ns`, or before it: whoever rests looks at the time again.
    fn rest_until(&mut self, until_ns: u64);
}

/// A sleep ends this much before the time, and the rest is spun away: Linux may let a timer be 50 us
/// late (timer slack, see prctl(2)), and waking up takes its time on top.
const SPIN_NS: u64 = 200_000;

/// The longest a lane sleeps before it looks whether it is to stop.
const SLEEP_NS_MAX: u64 = 20_000_000;

/// The machine's clock.
#[derive(Debug)]
pub(super) struct WallClock(Instant);

impl WallClock {
    /// A clock that began at `start`.
    pub(super) fn since(start: Instant) -> Self {
        Self(start)
    }
}

impl Clock for WallClock {
    #[inline]
    fn now_ns(&mut self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn rest_until(&mut self, until_ns: u64) {
        let left_ns = until_ns.saturating_sub(self.now_ns());
        if left_ns > SPIN_NS {
            let sleep_ns = (left_ns - SPIN_NS).min(SLEEP_NS_MAX);
            std::thread::sleep(Duration::from_nanos(sleep_ns));
        } else {
            std::hint::spin_loop();
        }
    }
}
