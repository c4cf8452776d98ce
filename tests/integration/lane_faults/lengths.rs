//! Lengths that the kernel does not take at once, on a device that only counts.
//!
//! What could go wrong: a length that wraps to nothing, bytes left out between two operations, more
//! pieces of memory than one operation may have.

use bytes::Bytes;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use swath_engine::queue::{RAW_BYTES_MAX, RAW_IOVECS_MAX};
use swath_engine::{AlignedBuf, Buffer, Geometry, Lane, LaneOptions, OpKind, Request, Segment};
use swath_tests::seed::Seed;
use swath_tests::sim::{Fault, SimPlatform, Store, Traced};

use super::open;

/// Memory of any size that costs nothing until it is touched.
struct Mapping {
    pointer: *mut std::ffi::c_void,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone, and nothing about it is tied to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(length: usize) -> Self {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses a range that nothing else uses.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), length, protection, flags) };
        Self {
            pointer: mapped.unwrap(),
            length,
        }
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the mapping is `length` bytes that read as zeroes until they are written.
        unsafe { std::slice::from_raw_parts(self.pointer.cast(), self.length) }
    }
}

impl AsMut<[u8]> for Mapping {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_ref`; the exclusive reference makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.cast(), self.length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and no reference to it is left.
        let unmapped = unsafe { munmap(self.pointer, self.length) };
        unmapped.unwrap();
    }
}

/// A lane over one device of 4 TiB that only counts.
fn huge() -> (Seed, SimPlatform, Lane) {
    let seed = Seed::new();
    let platform = SimPlatform::new(seed.value());
    platform.add("huge", Geometry::uniform(4 << 40, 4096), Store::Counting);
    let devices = open(&platform, &["huge".into()]);
    let lane = Lane::open(&platform, &devices, &LaneOptions::default()).unwrap();
    (seed, platform, lane)
}

/// The operations of one request, which followed one another without gap or overlap.
#[track_caller]
fn assert_covers(trace: &[Traced], offset: u64, length: u64) {
    let mut next = offset;
    for op in trace {
        assert_eq!(op.offset, next);
        assert!(op.length <= RAW_BYTES_MAX && op.memory_pieces <= RAW_IOVECS_MAX);
        next += op.length;
    }
    assert_eq!(next, offset + length);
}

#[test]
fn transfers_beyond_what_the_kernel_moves_at_once_are_split() {
    let gib = 1_u64 << 30;
    for length in [
        RAW_BYTES_MAX,
        RAW_BYTES_MAX + 4096,
        2 * gib - 4096,
        2 * gib,
        3 * gib,
        // Where a length of 32 bits wraps to nothing.
        4 * gib,
        4 * gib + 4096,
        9 * gib,
    ] {
        let (_seed, platform, mut lane) = huge();
        let mut memory = Mapping::new(length as usize);
        let place = [Segment::whole(0, gib, length)];
        lane.read_blocking(memory.as_mut(), &place).unwrap();
        let trace = platform.take_trace();
        assert_eq!(trace.len() as u64, length.div_ceil(RAW_BYTES_MAX));
        assert_covers(&trace, gib, length);

        let shared = Bytes::from_owner(memory);
        let completion = lane.call(Request::write(shared, 1), &place).unwrap();
        assert_eq!(completion.result.unwrap(), length);
        assert_eq!(completion.buffers.total_len(), length);
        assert_covers(&platform.take_trace(), gib, length);
    }
}

#[test]
fn thousands_of_buffers_of_gigabytes_are_one_request() {
    let (_seed, platform, mut lane) = huge();
    let shared = AlignedBuf::zeroed(1 << 20).unwrap().into_bytes();
    let buffers: Vec<Buffer> = (0..3072).map(|_| shared.clone().into()).collect();
    let length = 3 << 30;
    let completion = lane.call(
        Request::write(buffers, 1),
        &[Segment::whole(0, 4096, length)],
    );
    let completion = completion.unwrap();
    assert_eq!(completion.result.unwrap(), length);
    assert_eq!(completion.buffers.into_vec().len(), 3072);
    let trace = platform.take_trace();
    assert_covers(&trace, 4096, length);
    assert!(
        trace.iter().any(|op| op.memory_pieces == RAW_IOVECS_MAX),
        "{trace:?}"
    );
}

#[test]
fn a_short_transfer_of_gigabytes_is_continued() {
    let (_seed, platform, mut lane) = huge();
    let short = RAW_BYTES_MAX - (5 << 20);
    platform.inject(Fault::short(short).times(1));
    let length = 3_u64 << 30;
    let memory = Bytes::from_owner(Mapping::new(length as usize));
    let completion = lane.call(Request::write(memory, 1), &[Segment::whole(0, 0, length)]);
    assert_eq!(completion.unwrap().result.unwrap(), length);
    let trace = platform.take_trace();
    assert_eq!(trace[1].offset, short);
    let moved: u64 = trace
        .iter()
        .map(|op| u64::try_from(op.result).unwrap())
        .sum();
    assert_eq!(moved, length);
}

#[test]
fn ranges_of_terabytes_are_discarded_and_zeroed() {
    for kind in [OpKind::Discard, OpKind::WriteZeroes] {
        let (_seed, platform, mut lane) = huge();
        let length = 1 << 40;
        let place = [Segment::whole(0, 8192, length)];
        let completion = lane.call(Request::without_memory(kind, 1), &place).unwrap();
        assert_eq!(completion.result.unwrap(), length);
        let total: u64 = platform.take_trace().iter().map(|op| op.length).sum();
        assert_eq!(total, length);
    }
}
