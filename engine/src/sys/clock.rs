//! The clock that latencies are measured by.

/// Nanoseconds of `CLOCK_MONOTONIC`, see clock_gettime(2). About 20 ns: no system call where the
/// vDSO has it.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a timespec of ours, alive and writable for the length of the call, and the
    // call writes nothing else.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    // Every Linux has this clock, so the call cannot fail with a valid address.
    debug_assert_eq!(code, 0, "CLOCK_MONOTONIC is always there");
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + nanoseconds
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_clock_runs_forward_by_what_was_slept() {
        let before = monotonic_ns();
        std::thread::sleep(Duration::from_millis(5));
        assert!(monotonic_ns() - before >= 5_000_000);
    }
}
