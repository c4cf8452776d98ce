//! What a piece of work costs the process: time, CPU time and memory.

use std::fs;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use swath_engine::cpu;

use crate::error::Result;

/// What one piece of work cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    /// How many bytes it moved.
    pub(crate) bytes: u64,
    /// How long it took.
    pub(crate) seconds: f64,
    /// CPU time of the process, helper threads and the kernel's work for it included.
    pub(crate) cpu_ns: u64,
    /// The most memory it held at once beyond what was there before; none where the kernel does
    /// not let one ask.
    pub(crate) peak_bytes: Option<u64>,
}

impl Sample {
    pub(crate) fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }

    /// Adds what another process spent on it. Peaks are added as if they came at one moment, so the
    /// sum may be more than there ever was, never less.
    pub(crate) fn add(&mut self, usage: &Usage) {
        self.cpu_ns += usage.cpu_ns;
        self.peak_bytes = self
            .peak_bytes
            .zip(usage.peak_bytes)
            .map(|(ours, its)| ours + its);
    }

    /// CPU seconds for each 10^9 bytes.
    pub(crate) fn cpu_s_per_gb(&self) -> f64 {
        // Nanoseconds for each byte are seconds for each gigabyte.
        self.cpu_ns as f64 / self.bytes.max(1) as f64
    }
}

/// What another process spent on a part of a piece of work.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Usage {
    cpu_ns: u64,
    peak_bytes: Option<u64>,
}

impl Usage {
    pub(crate) fn of(sample: &Sample) -> Self {
        Self {
            cpu_ns: sample.cpu_ns,
            peak_bytes: sample.peak_bytes,
        }
    }
}

/// Does `work` on so many bytes and takes its measure.
pub(crate) fn measure<T>(bytes: u64, work: impl FnOnce() -> Result<T>) -> Result<(Sample, T)> {
    let meter = Meter::start();
    let outcome = work()?;
    Ok((meter.stop(bytes), outcome))
}

/// A measurement under way.
pub(crate) struct Meter {
    memory: Option<u64>,
    cpu_began_ns: u64,
    began: Instant,
}

impl Meter {
    pub(crate) fn start() -> Self {
        let memory = reset_peak();
        let cpu_began_ns = cpu::process_cpu_ns();
        Self {
            memory,
            cpu_began_ns,
            began: Instant::now(),
        }
    }

    /// Begins anew, but for the memory: what follows counts.
    pub(crate) fn restart_clock(&mut self) {
        self.cpu_began_ns = cpu::process_cpu_ns();
        self.began = Instant::now();
    }

    pub(crate) fn stop(self, bytes: u64) -> Sample {
        let seconds = self.began.elapsed().as_secs_f64();
        let cpu_ns = cpu::process_cpu_ns().saturating_sub(self.cpu_began_ns);
        let peak_bytes = self
            .memory
            .and_then(|before| Some(status_bytes("VmHWM:")?.saturating_sub(before)));
        Sample {
            bytes,
            seconds,
            cpu_ns,
            peak_bytes,
        }
    }
}

/// Sets the process's highest memory use to what it uses now, which is returned.
fn reset_peak() -> Option<u64> {
    // See proc_pid_clear_refs(5): 5 resets the high-water mark.
    fs::write("/proc/self/clear_refs", "5").ok()?;
    status_bytes("VmHWM:")
}

fn status_bytes(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The peak itself is shared with the tests that run beside this one: only that it is told.
    #[test]
    fn a_sample_tells_time_bytes_and_where_it_can_memory() {
        let (sample, held) = measure(1000, || Ok(vec![1_u8; 32 << 20])).unwrap();
        assert_eq!(sample.bytes, 1000);
        assert!(sample.cpu_ns > 0 && sample.seconds > 0.0);
        assert_eq!(sample.peak_bytes.is_some(), reset_peak().is_some());
        assert_eq!(held.len(), 32 << 20);
    }
}
