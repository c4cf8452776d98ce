//! [`InFlight`]: an operation between its submission and its completion, and what it does.

use libc::iovec;
use rand::RngExt;
use swath_engine::OpKind;
use swath_engine::queue::{Memory, RawOp};

use super::faults::Outcome;
use super::media::{Cover, Media};
use super::platform::State;
use super::trace::Traced;

/// An operation in flight. It takes effect when its completion is given.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) raw: RawOp,
    pub(super) number: u64,
    pub(super) queue: u64,
    /// The device's number.
    pub(super) device: u64,
    pub(super) submitted_ns: u64,
    /// Not to be completed before.
    pub(super) due_ns: u64,
    /// Whether it has been made late: once is enough.
    pub(super) is_late: bool,
    /// For a flush: what it makes durable.
    pub(super) cover: Option<Cover>,
}

// SAFETY: the memory of an operation is valid until its completion is given, whoever submitted it.
// It is looked at only under the lock of the world, and by then the operation is still in the list
// of those in flight, or was taken off it by the queue that is about to give its completion.
unsafe impl Send for InFlight {}

impl InFlight {
    /// The bytes that a write writes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        if self.raw.kind != OpKind::Write {
            return Vec::new();
        }
        let mut bytes = Vec::new();
        for (pointer, length) in runs_of(&self.raw) {
            let length = usize::try_from(length).expect("memory fits in memory");
            // SAFETY: whoever submitted the operation promised that this run is valid for reads,
            // and that nobody changes it, until the completion, which has not been given yet.
            let run = unsafe { std::slice::from_raw_parts(pointer.cast_const(), length) };
            bytes.extend_from_slice(run);
        }
        bytes
    }
}

/// Does what an operation asks, as far as faults let it, and gives its result.
pub(super) fn perform(state: &mut State, op: &InFlight, fault: Option<Outcome>) -> i32 {
    let result = outcome(state, op, fault);
    let (raw, now_ns) = (&op.raw, state.now_ns);
    let device = state.media(op.device).path.clone();
    if let Some(fault) = &fault {
        state.struck.add(raw.kind, fault);
    }
    state.trace.push(Traced {
        number: op.number,
        queue: op.queue,
        device,
        kind: raw.kind,
        fua: raw.fua,
        offset: raw.offset,
        length: raw.length,
        memory_pieces: pieces_of(raw),
        result,
        fault,
        submitted_ns: op.submitted_ns,
        ended_ns: now_ns,
    });
    result
}

fn outcome(state: &mut State, op: &InFlight, fault: Option<Outcome>) -> i32 {
    let raw = &op.raw;
    if state.is_off || state.media(op.device).is_gone {
        return -libc::ENODEV;
    }
    let media = state.media(op.device);
    // A device that has shrunk ends early.
    let reachable = media
        .geometry
        .capacity_bytes
        .saturating_sub(raw.offset)
        .min(raw.length);
    let whole = |state: &mut State| match raw.kind {
        OpKind::Flush => {
            let cover = op.cover.as_ref().expect("a flush covers something");
            state.media(op.device).flush(cover);
            0
        }
        kind if reachable == 0 && kind != OpKind::Read => -libc::ENOSPC,
        _ => transfer(state, op, raw.offset, reachable),
    };
    match fault {
        Some(Outcome::Errno(errno)) => {
            fail(state, op, reachable, errno);
            -errno
        }
        Some(Outcome::Gone) => {
            fail(state, op, reachable, libc::EAGAIN);
            state.media(op.device).is_gone = true;
            -libc::ENODEV
        }
        Some(Outcome::Short(bytes)) if raw.kind.has_memory() => {
            transfer(state, op, raw.offset, bytes.min(reachable))
        }
        Some(Outcome::Ignored) if raw.kind != OpKind::Read => match raw.kind {
            OpKind::Write => moved(reachable),
            _ => 0,
        },
        Some(Outcome::Torn) if raw.kind == OpKind::Write && reachable == raw.length => {
            tear(state, op);
            moved(reachable)
        }
        Some(Outcome::Misdirected(offset)) if raw.kind.has_memory() => {
            transfer(state, op, offset, reachable)
        }
        Some(Outcome::Rot(bit)) if raw.kind.has_memory() && reachable > 0 => {
            let place = raw.offset + bit / 8 % reachable;
            let mask = 1_u8 << (bit % 8);
            if raw.kind == OpKind::Read {
                state.media(op.device).flip(place, mask);
            }
            let result = whole(state);
            if raw.kind == OpKind::Write {
                state.media(op.device).flip(place, mask);
            }
            result
        }
        _ => whole(state),
    }
}

/// What an operation has done by the time it fails.
fn fail(state: &mut State, op: &InFlight, reachable: u64, errno: i32) {
    let State { media, rng, .. } = state;
    let media = media.get_mut(&op.device).expect("it is there");
    if op.raw.kind == OpKind::Flush {
        if !matches!(errno, libc::EAGAIN | libc::EINTR | libc::ECANCELED) {
            media.fail_flush(rng);
        }
        return;
    }
    let units = rng.random_range(0..=reachable / media.tear_bytes);
    let bytes = units * media.tear_bytes;
    transfer(state, op, op.raw.offset, bytes);
}

/// Writes some of the sectors of a write, but never all.
fn tear(state: &mut State, op: &InFlight) {
    let bytes = op.bytes();
    let State { media, rng, .. } = state;
    let media = media.get_mut(&op.device).expect("it is there");
    let mut units = media.units(op.raw.offset, op.raw.length);
    let lost = rng.random_range(0..units.len());
    units.remove(lost);
    units.retain(|_| rng.random());
    for (offset, length) in units {
        let from = super::image::size(offset - op.raw.offset);
        let part = &bytes[from..from + super::image::size(length)];
        media.write(offset, part, op.raw.fua, rng);
    }
}

/// Moves the first `bytes` of an operation, from or to `offset`, and gives the result of one that
/// moved so many.
fn transfer(state: &mut State, op: &InFlight, offset: u64, bytes: u64) -> i32 {
    let State { media, rng, .. } = state;
    let media: &mut Media = media.get_mut(&op.device).expect("it is there");
    let raw = &op.raw;
    match raw.kind {
        OpKind::Flush => return 0,
        // After a discard a drive may return anything; zeroes are what most of them do.
        OpKind::Discard | OpKind::WriteZeroes => {
            media.zero(offset, bytes, rng);
            return 0;
        }
        OpKind::Read | OpKind::Write => {}
    }
    let mut offset = offset;
    let mut left = bytes;
    for (pointer, length) in runs_of(raw) {
        let part = usize::try_from(length.min(left)).expect("memory fits in memory");
        if part == 0 || media.is_counting {
            break;
        }
        if raw.kind == OpKind::Read {
            // SAFETY: whoever submitted the operation promised that this run is valid for writes
            // and nobody else's until the completion, which has not been given yet.
            let memory = unsafe { std::slice::from_raw_parts_mut(pointer, part) };
            media.current().read(offset, memory);
        } else {
            // SAFETY: likewise valid for reads, and nobody changes it.
            let memory = unsafe { std::slice::from_raw_parts(pointer.cast_const(), part) };
            media.write(offset, memory, raw.fua, rng);
        }
        offset += part as u64;
        left -= part as u64;
    }
    moved(bytes)
}

fn moved(bytes: u64) -> i32 {
    i32::try_from(bytes).expect("one operation is below 2 GiB")
}

fn pieces_of(op: &RawOp) -> usize {
    match op.memory {
        Memory::None => 0,
        Memory::Flat { .. } => 1,
        Memory::Vector { count, .. } => count as usize,
    }
}

/// The runs of memory of an operation: first byte and length.
pub(super) fn runs_of(op: &RawOp) -> Vec<(*mut u8, u64)> {
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
