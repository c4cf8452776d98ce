//! [`SimQueue`]: completes operations in an order of chance, one at a time, each whole or as a
//! fault has it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::iovec;
use rand::RngExt;
use swath_engine::queue::{
    Memory, Queue, RAW_BYTES_MAX, RAW_IOVECS_MAX, RawCompletion, RawOp, Wake,
};
use swath_engine::{Backend, OpKind, QueueDescription};

use super::faults::Outcome;
use super::platform::{State, Traced, World, refusal};

/// What a drive writes as a whole even when it stops in the middle.
const SECTOR_BYTES: u64 = 512;

/// A queue over simulated devices.
#[derive(Debug)]
pub struct SimQueue {
    world: Arc<World>,
    devices: Vec<u64>,
    capacity: usize,
    in_flight: Vec<RawOp>,
    description: QueueDescription,
    waker: Arc<SimWaker>,
}

/// Wakes one queue.
#[derive(Debug)]
struct SimWaker {
    world: Arc<World>,
    /// Read and written under the world's lock only.
    is_woken: AtomicBool,
}

impl Wake for SimWaker {
    fn wake(&self) {
        let _state = self.world.state.lock();
        self.is_woken.store(true, Ordering::Relaxed);
        self.world.moved.notify_all();
    }
}

impl SimQueue {
    pub(super) fn new(world: Arc<World>, devices: Vec<u64>, capacity: usize) -> Self {
        let waker = SimWaker {
            world: Arc::clone(&world),
            is_woken: AtomicBool::new(false),
        };
        let description = QueueDescription {
            backend: Backend::Sync,
            flags: "simulated".to_owned(),
            reasons: Vec::new(),
        };
        let in_flight = Vec::with_capacity(capacity);
        Self {
            world,
            devices,
            capacity,
            in_flight,
            description,
            waker: Arc::new(waker),
        }
    }

    /// Completes `min` operations, and by chance more.
    fn deliver(
        &mut self,
        state: &mut State,
        min: usize,
        completions: &mut Vec<RawCompletion>,
    ) -> io::Result<()> {
        if state.refused_visits > 0 {
            state.refused_visits -= 1;
            return Err(refusal());
        }
        let count = state
            .rng
            .random_range(min.min(self.in_flight.len())..=self.in_flight.len());
        for _ in 0..count {
            let next = state.rng.random_range(0..self.in_flight.len());
            let op = self.in_flight.swap_remove(next);
            state.now_ns += state.rng.random_range(1_000..100_000);
            let result = perform(state, self.devices[op.device as usize], &op);
            completions.push(RawCompletion {
                token: op.token,
                result,
            });
        }
        Ok(())
    }

    fn check(&self, op: &RawOp) {
        assert!(
            self.in_flight.len() < self.capacity,
            "more in flight than the queue takes"
        );
        assert!(
            self.in_flight.iter().all(|other| other.token != op.token),
            "token {} is in flight already",
            op.token
        );
        let number = self.devices[op.device as usize];
        let mut state = self.world.state.lock();
        let geometry = &state.media(number).geometry;
        let mask = u64::from(geometry.offset_align_bytes) - 1;
        assert_eq!((op.offset | op.length) & mask, 0, "{op:?} is not aligned");
        assert!(op.offset.checked_add(op.length).is_some(), "{op:?} wraps");
        assert_eq!(
            op.length == 0,
            op.kind == OpKind::Flush,
            "{op:?} has an odd length"
        );
        let runs = runs_of(op);
        assert_eq!(
            runs.is_empty(),
            !op.kind.has_memory(),
            "{op:?} has odd memory"
        );
        if runs.is_empty() {
            return;
        }
        assert!(
            op.length <= RAW_BYTES_MAX,
            "{op:?} is longer than the kernel takes"
        );
        assert!(
            runs.len() <= RAW_IOVECS_MAX,
            "{op:?} has more pieces than the kernel takes"
        );
        let total: u64 = runs.iter().map(|&(_, length)| length).sum();
        assert_eq!(total, op.length, "{op:?} has memory of another length");
        for (pointer, length) in runs {
            let align = geometry.memory_align_bytes as usize;
            assert_eq!(
                pointer.addr() % align,
                0,
                "{op:?}: {pointer:p} is not aligned"
            );
            assert_eq!(
                length & mask,
                0,
                "{op:?}: a piece of {length} bytes is not aligned"
            );
        }
    }
}

// SAFETY: memory is touched in `perform` only, which runs between taking the operation off
// `in_flight` and handing out its completion within one visit; that happens once for each. Nothing
// else holds the operations, so dropping the queue ends all use of memory.
unsafe impl Queue for SimQueue {
    fn description(&self) -> &QueueDescription {
        &self.description
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    unsafe fn submit(&mut self, op: &RawOp) {
        self.check(op);
        self.in_flight.push(*op);
    }

    fn poll(&mut self, completions: &mut Vec<RawCompletion>) -> io::Result<()> {
        let world = Arc::clone(&self.world);
        let mut state = world.state.lock();
        if state.is_held {
            return Ok(());
        }
        self.deliver(&mut state, 0, completions)
    }

    fn wait(&mut self, min: usize, completions: &mut Vec<RawCompletion>) -> io::Result<()> {
        let world = Arc::clone(&self.world);
        let mut state = world.state.lock();
        loop {
            if self.waker.is_woken.swap(false, Ordering::Relaxed) {
                return if state.is_held {
                    Ok(())
                } else {
                    self.deliver(&mut state, 0, completions)
                };
            }
            if !state.is_held && !self.in_flight.is_empty() {
                return self.deliver(&mut state, min, completions);
            }
            world.moved.wait(&mut state);
        }
    }

    fn waker(&mut self) -> Arc<dyn Wake> {
        Arc::clone(&self.waker) as Arc<dyn Wake>
    }

    fn now_ns(&self) -> u64 {
        self.world.state.lock().now_ns
    }
}

/// Does what an operation asks, as far as faults let it, and gives its result.
fn perform(state: &mut State, number: u64, op: &RawOp) -> i32 {
    let device = state.path_of(number).to_path_buf();
    let outcome = state
        .faults
        .iter_mut()
        .find_map(|fault| fault.strike(op.kind, &device));
    let runs = runs_of(op);
    let media = state.media(number);
    // A device that has shrunk ends early.
    let reachable = media
        .geometry
        .capacity_bytes
        .saturating_sub(op.offset)
        .min(op.length);
    let result = match outcome {
        Some(Outcome::Errno(errno)) => {
            let sectors = state.rng.random_range(0..=reachable / SECTOR_BYTES);
            transfer(state, number, op, &runs, sectors * SECTOR_BYTES);
            -errno
        }
        Some(Outcome::Short(bytes)) if op.kind.has_memory() => {
            transfer(state, number, op, &runs, bytes.min(reachable))
        }
        _ if op.kind == OpKind::Flush => 0,
        _ if reachable == 0 && op.kind != OpKind::Read => -libc::ENOSPC,
        _ => transfer(state, number, op, &runs, reachable),
    };
    state.trace.push(Traced {
        device,
        kind: op.kind,
        fua: op.fua,
        offset: op.offset,
        length: op.length,
        memory_pieces: runs.len(),
        result,
    });
    result
}

/// Moves the first `bytes` of an operation, and gives the result of one that moved so many.
fn transfer(
    state: &mut State,
    number: u64,
    op: &RawOp,
    runs: &[(*mut u8, u64)],
    bytes: u64,
) -> i32 {
    let store = &mut state.media(number).store;
    match op.kind {
        OpKind::Flush => return 0,
        // After a discard a drive may return anything; zeroes are what most of them do.
        OpKind::Discard | OpKind::WriteZeroes => {
            store.zero(op.offset, bytes);
            return 0;
        }
        OpKind::Read | OpKind::Write => {}
    }
    let mut offset = op.offset;
    let mut left = bytes;
    for &(pointer, length) in runs {
        let part = usize::try_from(length.min(left)).expect("memory fits in memory");
        if part == 0 || matches!(store, super::Store::Counting) {
            break;
        }
        if op.kind == OpKind::Read {
            // SAFETY: whoever submitted the operation promised that this run is valid for writes
            // and nobody else's until the completion, which has not been given yet.
            let memory = unsafe { std::slice::from_raw_parts_mut(pointer, part) };
            store.read(offset, memory);
        } else {
            // SAFETY: likewise valid for reads, and nobody changes it.
            let memory = unsafe { std::slice::from_raw_parts(pointer.cast_const(), part) };
            store.write(offset, memory);
        }
        offset += part as u64;
        left -= part as u64;
    }
    i32::try_from(bytes).expect("one operation is below 2 GiB")
}

/// The runs of memory of an operation: first byte and length.
fn runs_of(op: &RawOp) -> Vec<(*mut u8, u64)> {
    match op.memory {
        Memory::None => Vec::new(),
        Memory::Flat { pointer, .. } => vec![(pointer, op.length)],
        Memory::Vector { iovecs, count } => {
            // SAFETY: whoever submitted the operation promised that the list is valid until the
            // completion.
            let iovecs: &[iovec] = unsafe { std::slice::from_raw_parts(iovecs, count as usize) };
            iovecs
                .iter()
                .map(|iovec| (iovec.iov_base.cast(), iovec.iov_len as u64))
                .collect()
        }
    }
}
