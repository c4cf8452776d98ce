//! A platform whose devices hold nothing: every operation completes at the next visit, in full, and
//! touches no memory. What is left is the software's own work.
//!
//! - A read leaves its buffer as it was, so a new buffer reads as zeroes: a volume can be created
//!   here, not opened.
//! - Its clock goes on by a fixed step with each look: every run is the same to the instruction.
//! - A lane reaches it through `dyn Queue`, as it does every queue but the ring (which it knows by
//!   type), so a submit costs a call more here, and the entry of the ring less.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use swath_engine::queue::{Queue, RawCompletion, RawOp, Wake};
use swath_engine::{
    Backend, Device, DeviceKind, Geometry, Identity, OpenOptions, Platform, QueueDescription,
    QueueOptions, Result,
};

/// How far the clock goes on with each look.
const STEP_NS: u64 = 1000;

/// Opens a device at every path, all of one size.
#[derive(Debug)]
pub(crate) struct NullPlatform {
    capacity_bytes: u64,
    opened: AtomicU64,
}

impl NullPlatform {
    pub(crate) fn new(capacity_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            capacity_bytes,
            opened: AtomicU64::new(0),
        })
    }
}

impl Platform for NullPlatform {
    fn open(&self, path: &Path, _: &OpenOptions) -> Result<Arc<dyn Device>> {
        Ok(Arc::new(NullDevice {
            path: path.to_path_buf(),
            number: self.opened.fetch_add(1, Ordering::Relaxed),
            geometry: Geometry::uniform(self.capacity_bytes, 512),
        }))
    }

    fn queue(&self, _: &[Arc<dyn Device>], options: &QueueOptions) -> Result<Box<dyn Queue>> {
        let capacity = options.depth as usize;
        Ok(Box::new(NullQueue {
            done: Vec::with_capacity(capacity),
            capacity,
            now_ns: Cell::new(0),
            description: QueueDescription {
                backend: Backend::Sync,
                flags: "null".to_owned(),
                reasons: Vec::new(),
            },
        }))
    }
}

/// A device without a byte.
#[derive(Debug)]
struct NullDevice {
    path: PathBuf,
    number: u64,
    geometry: Geometry,
}

impl Device for NullDevice {
    fn path(&self) -> &Path {
        &self.path
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> Identity {
        Identity::Simulated {
            number: self.number,
        }
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Simulated
    }

    fn is_direct(&self) -> bool {
        true
    }
}

/// Completes what is submitted, at the next visit.
#[derive(Debug)]
struct NullQueue {
    done: Vec<RawCompletion>,
    capacity: usize,
    now_ns: Cell<u64>,
    description: QueueDescription,
}

/// Nobody sleeps here.
#[derive(Debug)]
struct NullWake;

impl Wake for NullWake {
    fn wake(&self) {}
}

// SAFETY: no memory is ever touched, and each operation puts one completion on the list, which a
// visit hands out and empties.
unsafe impl Queue for NullQueue {
    fn description(&self) -> &QueueDescription {
        &self.description
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    unsafe fn submit(&mut self, op: &RawOp) {
        assert!(self.done.len() < self.capacity, "the queue is full");
        let bytes = if op.kind.has_memory() { op.length } else { 0 };
        self.done.push(RawCompletion {
            token: op.token,
            result: i32::try_from(bytes).expect("a raw operation is below 2 GiB"),
        });
    }

    fn poll(&mut self, completions: &mut Vec<RawCompletion>) -> io::Result<()> {
        completions.append(&mut self.done);
        Ok(())
    }

    fn wait(&mut self, _: usize, completions: &mut Vec<RawCompletion>) -> io::Result<()> {
        self.poll(completions)
    }

    fn waker(&mut self) -> Arc<dyn Wake> {
        Arc::new(NullWake)
    }

    fn now_ns(&self) -> u64 {
        let now_ns = self.now_ns.get() + STEP_NS;
        self.now_ns.set(now_ns);
        now_ns
    }
}
