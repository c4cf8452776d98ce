//! Which backend serves a list of devices, and why.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::device::{Device, DeviceKind};
use crate::error::{Error, ErrorKind, Result};
use crate::queue::aio::AioQueue;
use crate::queue::sync::SyncQueue;
use crate::queue::uring::UringQueue;
use crate::queue::{Queue, QueueOptions};

/// A way to move bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Backend {
    /// The best that is to be had for the devices at hand.
    #[default]
    Auto,
    /// io_uring(7).
    Uring,
    /// Linux AIO: io_submit(2).
    Aio,
    /// preadv2(2) and pwritev2(2).
    Sync,
}

impl Backend {
    /// The three that do the work, best first.
    pub const ALL: [Self; 3] = [Self::Uring, Self::Aio, Self::Sync];
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Uring => "uring",
            Self::Aio => "aio",
            Self::Sync => "sync",
        })
    }
}

impl FromStr for Backend {
    type Err = Error;

    /// Takes the names that fio knows too: `io_uring`, `libaio`, `psync`.
    fn from_str(name: &str) -> Result<Self> {
        match name.to_ascii_lowercase().as_str() {
            "auto" => Ok(Self::Auto),
            "uring" | "io_uring" | "io-uring" => Ok(Self::Uring),
            "aio" | "libaio" => Ok(Self::Aio),
            "sync" | "psync" => Ok(Self::Sync),
            _ => Err(Error::new(
                ErrorKind::InvalidInput,
                format!("no backend is called '{name}'; there are auto, uring, aio and sync"),
            )),
        }
    }
}

/// What a queue is, and why it was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueDescription {
    /// The backend at work; never [`Backend::Auto`].
    pub backend: Backend,
    /// The settings it runs with, in the kernel's words.
    pub flags: String,
    /// Why a better backend, or a setting that was asked for, was not to be had. Empty: it was.
    pub reasons: Vec<String>,
}

impl fmt::Display for QueueDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.backend)?;
        if !self.flags.is_empty() {
            write!(f, " ({})", self.flags)?;
        }
        for reason in &self.reasons {
            write!(f, "; {reason}")?;
        }
        Ok(())
    }
}

/// Makes the queue that `options` ask for over devices of the kernel.
pub(crate) fn open_kernel_queue(
    devices: &[Arc<dyn Device>],
    options: &QueueOptions,
) -> Result<Box<dyn Queue>> {
    if !(1..=DEPTH_MAX).contains(&options.depth) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("a queue's depth is 1 to {DEPTH_MAX}, not {}", options.depth),
        ));
    }
    match options.backend {
        Backend::Auto => open_best(devices, options),
        Backend::Uring => Ok(Box::new(UringQueue::open(devices, options, Vec::new())?)),
        Backend::Aio => Ok(Box::new(AioQueue::open(devices, options, Vec::new())?)),
        Backend::Sync => open_sync(devices, options, Vec::new()),
    }
}

/// The most raw operations in flight on one queue.
const DEPTH_MAX: u32 = 4096;

/// Threads of a sync queue at the most, when their number is not given.
const SYNC_THREADS_MAX: usize = 16;

fn open_best(devices: &[Arc<dyn Device>], options: &QueueOptions) -> Result<Box<dyn Queue>> {
    let in_memory = devices
        .iter()
        .find(|device| device.kind() == DeviceKind::MemoryFile);
    if let Some(device) = in_memory {
        let path = device.path().display();
        let reason = format!(
            "{path} lies in memory (tmpfs), which has no non-blocking I/O: plain reads and writes \
             are faster there"
        );
        return open_sync(devices, options, vec![reason]);
    }
    let mut reasons = Vec::new();
    let mut options = options.clone();
    if options.iopoll {
        match UringQueue::open(devices, &options, Vec::new()) {
            Ok(queue) => return Ok(Box::new(queue)),
            Err(error) => reasons.push(reason("IOPOLL", &error)),
        }
        options.iopoll = false;
    }
    match UringQueue::open(devices, &options, reasons.clone()) {
        Ok(queue) => return Ok(Box::new(queue)),
        Err(error) => reasons.push(reason("io_uring", &error)),
    }
    match AioQueue::open(devices, &options, reasons.clone()) {
        Ok(queue) => return Ok(Box::new(queue)),
        Err(error) => reasons.push(reason("aio", &error)),
    }
    open_sync(devices, &options, reasons)
}

fn open_sync(
    devices: &[Arc<dyn Device>],
    options: &QueueOptions,
    reasons: Vec<String>,
) -> Result<Box<dyn Queue>> {
    let is_in_memory = devices
        .iter()
        .all(|device| device.kind() == DeviceKind::MemoryFile);
    let threads = options.sync_threads.unwrap_or_else(|| {
        if is_in_memory {
            0
        } else {
            SYNC_THREADS_MAX.min(options.depth as usize)
        }
    });
    Ok(Box::new(SyncQueue::open(
        devices, options, threads, reasons,
    )?))
}

/// One line: what was not to be had, and the whole chain of why.
fn reason(what: &str, error: &Error) -> String {
    let mut line = format!("no {what}: {error}");
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        line = format!("{line}: {source}");
        cause = source.source();
    }
    line
}
