//! The processor cores this process may use, pinning to one, and the time spent on them.
//!
//! - Cores are named by the numbers Linux gives them, which need not start at 0 or be without
//!   gaps: a container may be given cores 4 and 6.
//! - Affinity is per thread. [`available`] says what the calling thread may use, so after
//!   [`pin_to`] it says one core: ask first, then pin.

use std::fs;

use crate::error::{Error, ErrorKind, Result};

/// Enough bits for every core Linux can be built for (8192), as the words of a CPU set.
const MASK_WORDS: usize = 8192 / WORD_BITS;
const WORD_BITS: usize = u64::BITS as usize;

/// The cores the calling thread may run on, in ascending order; never empty.
pub fn available() -> Vec<usize> {
    let mut mask = [0_u64; MASK_WORDS];
    // SAFETY: the mask is writable for the number of bytes given, and the kernel writes no more;
    // `cpu_set_t` is an array of words, which the pointer only names.
    let status = unsafe {
        libc::sched_getaffinity(
            0,
            size_of_val(&mask),
            mask.as_mut_ptr().cast::<libc::cpu_set_t>(),
        )
    };
    let cores: Vec<usize> = (0..MASK_WORDS * WORD_BITS)
        .filter(|core| mask[core / WORD_BITS] >> (core % WORD_BITS) & 1 == 1)
        .collect();
    if status == 0 && !cores.is_empty() {
        return cores;
    }
    // A sandbox may forbid the call; the numbers are then a guess, and pinning will fail as well.
    (0..std::thread::available_parallelism().map_or(1, usize::from)).collect()
}

/// Keeps the calling thread on one core.
///
/// # Errors
///
/// There is no such core, or this process may not use it.
pub fn pin_to(core: usize) -> Result<()> {
    if core >= MASK_WORDS * WORD_BITS {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("there is no core {core}"),
        ));
    }
    let mut mask = [0_u64; MASK_WORDS];
    mask[core / WORD_BITS] = 1 << (core % WORD_BITS);
    // SAFETY: the mask is readable for the number of bytes given.
    let status = unsafe {
        libc::sched_setaffinity(
            0,
            size_of_val(&mask),
            mask.as_ptr().cast::<libc::cpu_set_t>(),
        )
    };
    if status == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Error::from_io(
        error,
        format!(
            "cannot pin a thread to core {core}; this process may use {:?}",
            available()
        ),
    ))
}

/// Processor time of the calling thread so far, user and system together.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Processor time of the whole process so far, user and system together.
pub fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// The NUMA node of a core, where the kernel knows of nodes.
pub fn numa_node_of(core: usize) -> Option<u32> {
    fs::read_dir(format!("/sys/devices/system/cpu/cpu{core}"))
        .ok()?
        .filter_map(|entry| {
            entry
                .ok()?
                .file_name()
                .to_str()?
                .strip_prefix("node")?
                .parse()
                .ok()
        })
        .next()
}

/// See clock_gettime(2).
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec to a place that holds one.
    let status = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(
        status, 0,
        "the clocks of processor time are there since Linux 2.6.12"
    );
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_has_one_core() {
        let cores = available();
        for &core in &cores {
            let seen = std::thread::spawn(move || {
                pin_to(core).unwrap();
                available()
            });
            assert_eq!(seen.join().unwrap(), [core]);
        }
        assert_eq!(available(), cores, "pinning is per thread");
    }

    #[test]
    fn a_core_that_is_not_there_is_an_error() {
        assert!(pin_to(MASK_WORDS * WORD_BITS - 1).is_err());
        assert_eq!(
            pin_to(usize::MAX).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }

    #[test]
    fn processor_time_grows_with_work() {
        // The process first: whatever passes between the two calls then counts for it.
        let (process, thread) = (process_cpu_ns(), thread_cpu_ns());
        let mut work = 1_u64;
        while thread_cpu_ns() < thread + 2_000_000 {
            work = std::hint::black_box(work.wrapping_mul(3));
        }
        assert!(process_cpu_ns() >= process + 2_000_000);
    }

    #[test]
    fn a_core_has_at_most_one_node() {
        for core in available() {
            if let Some(node) = numa_node_of(core) {
                assert!(node < 1024, "core {core} on node {node}");
            }
        }
        assert_eq!(numa_node_of(usize::MAX), None);
    }
}
