//! Whoever walks away from an operation in flight: futures dropped, forgotten and given up on, lanes
//! dropped, pools dropped before their lane, scopes that panic. On real rings and real files.
//!
//! What could go wrong: the kernel, or a thread that works for it, still writes to memory whose owner
//! believes it free; memory that was registered with a ring is taken for other memory at its address.
//!
//! - Memory that was let go of is taken again at once and filled with a mark ([`Watch`]), and looked
//!   at when as much as was abandoned has been read anew. AddressSanitizer sees threads that use
//!   freed memory, but not the kernel; the mark shows that as well. docs/TESTING.md has the command.
//! - How much was in flight is printed, and is no verdict: a fast device may leave nothing.
//! - Tests with *forgotten* in their name leak on purpose.

use std::future::Future;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Waker};

use swath_engine::{
    AlignedBuf, Backend, BufPool, Completion, Device, Handle, HandleOptions, Kernel, Lane,
    LaneOptions, OpenOptions, Platform, Request, Segment, Submission, fill_incompressible,
};
use swath_tests::fixtures::{self, MIB};
use tempfile::TempDir;

const DEVICE_BYTES: u64 = 4 * MIB;
const KIB: usize = 1 << 10;
const ROUNDS: usize = 6;
const MARK: u8 = 0x5a;

/// A file with a pattern, and a way to it.
struct Rig {
    name: String,
    path: PathBuf,
    device: Arc<dyn Device>,
    options: LaneOptions,
    pattern: Vec<u8>,
    _folder: TempDir,
}

impl Rig {
    fn new(name: String, options: LaneOptions) -> Option<Self> {
        let folder = fixtures::folder();
        let path = fixtures::member(folder.path(), "m", DEVICE_BYTES);
        let device = Kernel.open(&path, &OpenOptions::read_write()).unwrap();
        let mut lane = match Lane::open(&Kernel, std::slice::from_ref(&device), &options) {
            Ok(lane) => lane,
            Err(error) => {
                println!("skipped: no {name} here: {error:?}");
                return None;
            }
        };
        let mut pattern = AlignedBuf::zeroed(DEVICE_BYTES as usize).unwrap();
        fill_incompressible(&mut pattern, 1, 0);
        lane.write_blocking(&pattern, false, &[Segment::whole(0, 0, DEVICE_BYTES)])
            .unwrap();
        Some(Self {
            name,
            path,
            device,
            options,
            pattern: pattern.to_vec(),
            _folder: folder,
        })
    }

    fn devices(&self) -> &[Arc<dyn Device>] {
        std::slice::from_ref(&self.device)
    }

    fn lane(&self) -> Lane {
        Lane::open(&Kernel, self.devices(), &self.options).unwrap()
    }

    fn handle(&self, workers: usize, backlog: usize) -> Handle {
        let platform: Arc<dyn Platform> = Arc::new(Kernel);
        let options = HandleOptions {
            workers,
            backlog,
            lane: self.options.clone(),
            ..HandleOptions::default()
        };
        Handle::start(&platform, self.devices(), &options).unwrap()
    }

    /// Reads everything anew: takes as long as what was abandoned, and shows that the device is as it
    /// was.
    fn assert_unchanged(&self) {
        let mut lane = self.lane();
        let mut all = AlignedBuf::zeroed(DEVICE_BYTES as usize).unwrap();
        lane.read_blocking(&mut all, &[Segment::whole(0, 0, DEVICE_BYTES)])
            .unwrap();
        assert!(all[..] == self.pattern[..], "{}", self.name);
    }
}

/// Every backend that is to be had, and a ring with a thread of the kernel.
fn for_each_rig(mut test: impl FnMut(&Rig)) {
    for backend in fixtures::backends() {
        let options = fixtures::lane_options(*backend);
        if let Some(rig) = Rig::new(backend.to_string(), options.clone()) {
            test(&rig);
        }
        if *backend == Backend::Uring {
            let mut options = options;
            options.queue.sqpoll_idle_ms = Some(1);
            if let Some(rig) = Rig::new("io_uring with SQPOLL".to_owned(), options) {
                test(&rig);
            }
        }
    }
}

/// Memory taken where other memory was let go of just now. Whoever still writes there is seen.
struct Watch(Vec<AlignedBuf>);

impl Watch {
    fn over(count: usize, bytes: usize) -> Self {
        let marked = || {
            let mut memory = AlignedBuf::zeroed(bytes).unwrap();
            memory.fill(MARK);
            memory
        };
        Self((0..count).map(|_| marked()).collect())
    }

    #[track_caller]
    fn assert_untouched(&self) {
        for memory in &self.0 {
            assert!(
                memory.iter().all(|byte| *byte == MARK),
                "somebody wrote to memory that is ours"
            );
        }
    }
}

fn place(token: usize, bytes: usize) -> [Segment; 1] {
    let count = DEVICE_BYTES as usize / bytes;
    [Segment::whole(
        0,
        (token % count * bytes) as u64,
        bytes as u64,
    )]
}

#[test]
fn a_lane_dropped_with_reads_in_flight_leaves_their_memory_alone() {
    for_each_rig(|rig| {
        let mut in_flight = 0;
        // Of the heap, and a mapping of its own.
        for (count, bytes) in [(64, 64 * KIB), (4, 2 << 20)] {
            for _ in 0..ROUNDS {
                let mut lane = rig.lane();
                for token in 0..count {
                    let memory = AlignedBuf::zeroed(bytes).unwrap();
                    lane.submit(Request::read(memory, token as u64), &place(token, bytes));
                }
                // Some have begun, some have ended, some have not even been handed over.
                let mut completions = Vec::new();
                lane.poll(&mut completions).unwrap();
                in_flight += lane.in_flight();
                drop(completions);
                drop(lane);
                let watch = Watch::over(count, bytes);
                rig.assert_unchanged();
                watch.assert_untouched();
            }
        }
        println!("{}: {in_flight} were in flight", rig.name);
    });
}

/// Several ways to want nothing more of a future.
fn give_up(submission: Submission, way: usize) {
    let mut context = Context::from_waker(Waker::noop());
    match way % 4 {
        0 => drop(submission),
        // One that was polled and has a waker.
        1 => {
            let mut submission = Box::pin(submission);
            let _ = submission.as_mut().poll(&mut context);
        }
        // One that a timer won against, after a while.
        2 => {
            let mut submission = Box::pin(submission);
            for _ in 0..20 {
                if submission.as_mut().poll(&mut context).is_ready() {
                    break;
                }
                std::thread::yield_now();
            }
        }
        // One that somebody else is left with.
        _ => drop(std::thread::spawn(move || drop(submission))),
    }
}

#[test]
fn futures_that_nobody_waits_for_keep_their_memory_until_they_end() {
    for_each_rig(|rig| {
        for workers in [1, 2] {
            let pool = BufPool::new(64 * KIB, 48).unwrap();
            let handle = rig.handle(workers, 16);
            let mut held = Vec::new();
            let mut given_up = 0;
            while given_up < 200 {
                match pool.take() {
                    // What came back is ours: every third piece is kept and watched.
                    Some(mut piece) if given_up % 3 == 2 && held.len() < 24 => {
                        piece.fill(MARK);
                        held.push(piece);
                        given_up += 1;
                    }
                    Some(piece) => {
                        let place = place(given_up, 64 * KIB).to_vec();
                        give_up(handle.submit(Request::read(piece, 0), place), given_up);
                        given_up += 1;
                    }
                    None => std::thread::yield_now(),
                }
            }
            drop(handle);
            for piece in &held {
                assert!(
                    piece.iter().all(|byte| *byte == MARK),
                    "a piece came back while the device had it"
                );
            }
            drop(held);
            // One that was left to another thread may be a moment late.
            while pool.available() < pool.count() {
                std::thread::yield_now();
            }
        }
        rig.assert_unchanged();
    });
}

#[test]
fn forgotten_futures_and_lanes_keep_their_memory_for_ever() {
    for_each_rig(|rig| {
        let pool = BufPool::new(64 * KIB, 8).unwrap();
        let handle = rig.handle(1, 16);
        for number in 0..4 {
            let place = place(number, 64 * KIB).to_vec();
            let read = Request::read(pool.take().unwrap(), 0);
            #[expect(clippy::mem_forget, reason = "this is what is tested")]
            std::mem::forget(handle.submit(read, place));
        }
        drop(handle);
        let mut lane = rig.lane();
        for number in 0..4 {
            let read = Request::read(pool.take().unwrap(), 0);
            lane.submit(read, &place(number, 64 * KIB));
        }
        lane.poll(&mut Vec::new()).unwrap();
        let came_back = pool.available();
        #[expect(clippy::mem_forget, reason = "this is what is tested")]
        std::mem::forget(lane);
        rig.assert_unchanged();
        assert_eq!(pool.available(), came_back, "memory came back from nowhere");
        assert!(came_back <= 4);
    });
}

#[test]
fn a_volume_dropped_before_its_futures_still_ends_them() {
    for backend in fixtures::backends() {
        let folder = fixtures::folder();
        let members = fixtures::members(folder.path(), 2, 8 * MIB);
        let volume = fixtures::volume(&members, 64 << 10);
        let submit = |token: u64| {
            let mut memory = AlignedBuf::zeroed(256 * KIB).unwrap();
            memory.fill(token as u8 + 1);
            let offset = token * 256 * KIB as u64;
            volume.submit(Request::write(memory, token), offset, 256 << 10)
        };
        let mut kept: Vec<_> = (0..8).map(submit).collect();
        // Of every other one nobody wants to know.
        for way in 0..4 {
            give_up(kept.remove(way), way);
        }
        let lane = volume.lane(&fixtures::lane_options(*backend)).unwrap();
        drop(volume);
        for submission in kept {
            let Completion { result, .. } = submission.wait();
            assert_eq!(result.unwrap(), 256 << 10);
        }
        // The last that knows the volume is a lane, and it goes with operations in flight.
        let mut lane = lane;
        for token in 0..8 {
            let memory = AlignedBuf::zeroed(256 * KIB).unwrap();
            lane.read(token * 256 * KIB as u64, memory, token);
        }
        lane.poll(&mut Vec::new()).unwrap();
        drop(lane);
        let watch = Watch::over(8, 256 * KIB);
        let volume = swath_volume::Volume::open(&members, &Default::default()).unwrap();
        for token in 0..8_u8 {
            let mut bytes = vec![0; 256 * KIB];
            volume
                .read_at(&mut bytes, u64::from(token) * 256 * KIB as u64)
                .unwrap();
            assert!(bytes.iter().all(|byte| *byte == token + 1));
        }
        watch.assert_untouched();
    }
}

#[test]
fn pools_may_go_before_their_lane() {
    for_each_rig(|rig| {
        for _ in 0..ROUNDS {
            let pool = BufPool::new(64 * KIB, 16).unwrap();
            let mut options = rig.options.clone();
            options.queue.pools = vec![pool.clone()];
            let mut lane = Lane::open(&Kernel, rig.devices(), &options).unwrap();
            drop(options);
            for token in 0..16 {
                let read = Request::read(pool.take().unwrap(), token as u64);
                lane.submit(read, &place(token, 64 * KIB));
            }
            lane.poll(&mut Vec::new()).unwrap();
            drop(pool);
            let mut completions = Vec::new();
            lane.drain(&mut completions).unwrap();
            for completion in &completions {
                let memory = completion.buffers.iter().next().unwrap();
                let from = completion.token as usize * 64 * KIB;
                assert!(memory.as_slice() == &rig.pattern[from..from + 64 * KIB]);
            }
            // The last pieces go after the lane, and the arena with them.
            drop(lane);
            drop(completions);
            let watch = Watch::over(2, 2 << 20);
            rig.assert_unchanged();
            watch.assert_untouched();
        }
    });
}

/// A lane knows registered memory by its address. Once memory that was mapped later, where a dropped
/// pool had been, was taken for that pool: the kernel moved bytes of the old pages.
#[test]
fn memory_mapped_where_a_dropped_pool_was_is_not_taken_for_it() {
    for_each_rig(|rig| {
        let pool = BufPool::new(64 * KIB, 32).unwrap();
        let mut options = rig.options.clone();
        options.queue.pools = vec![pool.clone()];
        let mut lane = Lane::open(&Kernel, rig.devices(), &options).unwrap();
        drop(options);
        drop(pool);
        let file = std::fs::File::open(&rig.path).unwrap();
        for round in 0..8_u8 {
            // As large as the one before: the kernel maps it where there is room.
            let later = BufPool::new(64 * KIB, 32).unwrap();
            let mut pieces: Vec<_> = std::iter::from_fn(|| later.take()).collect();
            for (number, piece) in (0..).zip(&mut pieces) {
                piece.fill(round * 32 + number);
            }
            for (token, piece) in pieces.into_iter().enumerate() {
                lane.submit(Request::write(piece, token as u64), &place(token, 64 * KIB));
            }
            let mut completions = Vec::new();
            lane.drain(&mut completions).unwrap();
            for completion in completions {
                completion.result.unwrap();
            }
            let mut written = vec![0; 64 * KIB];
            for number in 0..32_u8 {
                let offset = u64::from(number) * 64 * KIB as u64;
                file.read_exact_at(&mut written, offset).unwrap();
                assert!(
                    written.iter().all(|byte| *byte == round * 32 + number),
                    "{}: other bytes were written than the buffer had",
                    rig.name
                );
            }
            for token in 0..32 {
                let mut piece = later.take().unwrap();
                piece.fill(0xff);
                lane.submit(Request::read(piece, token as u64), &place(token, 64 * KIB));
            }
            let mut completions = Vec::new();
            lane.drain(&mut completions).unwrap();
            for completion in completions {
                let expected = round * 32 + completion.token as u8;
                let memory = completion.buffers.into_one().unwrap();
                assert!(
                    memory.as_slice().iter().all(|byte| *byte == expected),
                    "{}: the bytes that were read went elsewhere",
                    rig.name
                );
            }
        }
    });
}

#[test]
fn a_panic_in_a_scope_leaves_what_it_borrowed_alone() {
    for_each_rig(|rig| {
        let mut in_flight = 0;
        let mut lane = rig.lane();
        for round in 0..ROUNDS {
            let mut memory = AlignedBuf::zeroed(DEVICE_BYTES as usize).unwrap();
            let caught = catch_unwind(AssertUnwindSafe(|| {
                lane.scope(|scope| {
                    for (token, part) in memory.chunks_mut(64 * KIB).enumerate() {
                        scope.read(part, &place(token, 64 * KIB), token as u64);
                    }
                    let mut ends = Vec::new();
                    scope.wait(round % 3, &mut ends).unwrap();
                    in_flight += scope.in_flight();
                    panic!("half way");
                })
            }));
            assert!(caught.is_err());
            assert_eq!(lane.in_flight(), 0);
            assert!(memory[..] == rig.pattern[..]);
            drop(memory);
            let watch = Watch::over(2, 2 << 20);
            rig.assert_unchanged();
            watch.assert_untouched();
        }
        println!("{}: {in_flight} were in flight", rig.name);
    });
}

/// The submission queue once had room for as many entries as the depth, and none for the poll that
/// wakes the ring: with a thread of the kernel that had not taken the entries yet, a push panicked.
#[test]
fn a_full_ring_has_room_for_its_wake_up() {
    for sqpoll_idle_ms in [None, Some(1), Some(1000)] {
        let mut options = fixtures::lane_options(Backend::Uring);
        options.queue.sqpoll_idle_ms = sqpoll_idle_ms;
        for depth in [1, 2, 4, 16, 64] {
            options.queue.depth = depth;
            let name = format!("io_uring of depth {depth}, {sqpoll_idle_ms:?}");
            let Some(rig) = Rig::new(name, options.clone()) else {
                continue;
            };
            let handle = rig.handle(1, 256);
            for _ in 0..20 {
                // The worker sleeps with its wake-up armed, and is then given more than it takes.
                let submissions: Vec<_> = (0..3 * depth as usize)
                    .map(|token| {
                        let memory = AlignedBuf::zeroed(4 * KIB).unwrap();
                        let read = Request::read(memory, token as u64);
                        handle.submit(read, place(token, 4 * KIB).to_vec())
                    })
                    .collect();
                for submission in submissions {
                    let completion = submission.wait();
                    let from = completion.token as usize * 4 * KIB;
                    assert_eq!(completion.result.unwrap(), 4096);
                    let memory = completion.buffers.into_one().unwrap();
                    assert!(memory.as_slice() == &rig.pattern[from..from + 4 * KIB]);
                }
            }
        }
    }
}
