//! Operations on borrowed memory, many at once, by a lane and by a volume's lane.
//!
//! What could go wrong: a scope that ends while the device still uses what it borrowed, by a panic
//! or because nobody waited; completions that end up with the wrong owner.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use swath_engine::{
    AlignedBuf, ErrorKind, Kernel, Lane, LaneOptions, OpKind, OpenOptions, Platform, Request,
    ScopeCompletion, ScopeMemory, Segment,
};
use swath_tests::fixtures::{self, MIB, Place};
use swath_tests::seed::Seed;
use swath_tests::sim::SimPlatform;

const BLOCK: usize = 4096;

fn pattern(length: usize, mark: u64) -> AlignedBuf {
    let mut bytes = AlignedBuf::zeroed(length).unwrap();
    swath_engine::fill_incompressible(&mut bytes, mark, 0);
    bytes
}

/// A lane over one simulated device that holds a pattern.
fn simulated() -> (Seed, SimPlatform, Lane) {
    let seed = Seed::new();
    let (platform, paths) = SimPlatform::with_members(seed.value(), 1, MIB);
    platform.poke("m0", 0, &pattern(16 * BLOCK, 1));
    let device = platform
        .open(&paths[0], &OpenOptions::read_write())
        .unwrap();
    let lane = Lane::open(&platform, &[device], &LaneOptions::default()).unwrap();
    (seed, platform, lane)
}

/// Token, kind and result, in the order of tokens.
fn told(ends: Vec<ScopeCompletion<'_>>) -> Vec<(u64, OpKind, Result<u64, ErrorKind>)> {
    let mut told: Vec<_> = ends
        .into_iter()
        .map(|end| {
            (
                end.token,
                end.kind,
                end.result.map_err(|error| error.kind()),
            )
        })
        .collect();
    told.sort_by_key(|&(token, ..)| token);
    told
}

#[test]
fn borrowed_memory_is_written_and_read_many_at_once() {
    fixtures::for_each_backend(|backend| {
        for place in Place::ALL {
            let Some(folder) = place.folder() else {
                continue;
            };
            let path = fixtures::member(folder.path(), "m", 4 * MIB);
            let device = Kernel.open(&path, &OpenOptions::read_write()).unwrap();
            let mut options = fixtures::lane_options(backend);
            options.queue.depth = 8;
            let mut lane = Lane::open(&Kernel, &[device], &options).unwrap();
            let written = pattern(100 * BLOCK, 2);
            let mut read = AlignedBuf::zeroed(written.len()).unwrap();
            let at = |token: u64| [Segment::whole(0, (99 - token) * 4096, 4096)];
            let writes = lane.scope(|scope| {
                for (token, part) in (0..).zip(written.chunks(BLOCK)) {
                    scope.write(part, token % 2 == 0, &at(token), token);
                }
                assert_eq!(scope.in_flight(), 100);
                let mut ends = Vec::new();
                assert!(scope.wait(30, &mut ends).unwrap() >= 30);
                while scope.in_flight() > 0 {
                    scope.wait(1, &mut ends).unwrap();
                }
                told(ends)
            });
            let reads = lane.scope(|scope| {
                for (token, part) in (0..).zip(read.chunks_mut(BLOCK)) {
                    scope.read(part, &at(token), token);
                }
                let mut ends = Vec::new();
                scope.wait(usize::MAX, &mut ends).unwrap();
                told(ends)
            });
            assert!(read[..] == written[..]);
            for (kind, ends) in [(OpKind::Write, writes), (OpKind::Read, reads)] {
                let expected: Vec<_> = (0..100).map(|token| (token, kind, Ok(4096))).collect();
                assert_eq!(ends, expected);
            }
        }
    });
}

#[test]
fn a_scope_does_not_end_before_its_operations() {
    let (_seed, platform, mut lane) = simulated();
    let mut memory = AlignedBuf::zeroed(8 * BLOCK).unwrap();
    platform.hold();
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // Whoever looks while the completions are held finds the scope still there.
            for _ in 0..1000 {
                assert!(!has_ended.load(Ordering::SeqCst));
                std::thread::yield_now();
            }
            platform.release();
        });
        lane.scope(|scope| {
            for (token, part) in (0..).zip(memory.chunks_mut(BLOCK)) {
                scope.read(part, &[Segment::whole(0, token * 4096, 4096)], token);
            }
            // And waits for none of them.
        });
        has_ended.store(true, Ordering::SeqCst);
    });
    assert!(memory[..] == pattern(16 * BLOCK, 1)[..8 * BLOCK]);
    assert_eq!(lane.in_flight(), 0);
}

#[test]
fn a_panic_in_a_scope_waits_for_its_operations() {
    let (_seed, platform, mut lane) = simulated();
    let mut memory = AlignedBuf::zeroed(4 * BLOCK).unwrap();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        lane.scope(|scope| {
            for (token, part) in (0..).zip(memory.chunks_mut(BLOCK)) {
                scope.read(part, &[Segment::whole(0, token * 4096, 4096)], token);
            }
            panic!("half way");
        })
    }));
    assert!(caught.is_err());
    assert_eq!(platform.take_trace().len(), 4);
    assert!(memory[..] == pattern(16 * BLOCK, 1)[..4 * BLOCK]);
    // The lane goes on.
    lane.read_blocking(&mut memory, &[Segment::whole(0, 16384, 16384)])
        .unwrap();
    assert!(memory[..] == pattern(16 * BLOCK, 1)[4 * BLOCK..8 * BLOCK]);
}

#[test]
fn a_completion_gives_its_memory_back_for_the_next_operation() {
    let (_seed, platform, mut lane) = simulated();
    let mut memory = AlignedBuf::zeroed(2 * BLOCK).unwrap();
    let (one, two) = memory.split_at_mut(BLOCK);
    lane.scope(|scope| {
        scope.read(one, &[Segment::whole(0, 4096, 4096)], 1);
        // One that is refused gives its memory back as well.
        scope.read(two, &[Segment::whole(0, MIB, 4096)], 2);
        let mut ends = Vec::new();
        scope.wait(2, &mut ends).unwrap();
        for end in ends {
            let ScopeMemory::Read(memory) = end.memory else {
                panic!("it was read into");
            };
            memory[0] ^= 0xff;
            scope.write(
                memory,
                false,
                &[Segment::whole(0, 65536, 4096)],
                2 + end.token,
            );
            let mut ends = Vec::new();
            scope.wait(1, &mut ends).unwrap();
            assert!(matches!(ends[0].memory, ScopeMemory::Write(memory) if memory.len() == BLOCK));
            assert_eq!(*ends[0].result.as_ref().unwrap(), 4096);
            let written = platform.peek("m0", 65536, BLOCK);
            let original = pattern(16 * BLOCK, 1);
            match end.token {
                1 => assert_eq!(
                    (written[0], &written[1..]),
                    (!original[BLOCK], &original[BLOCK + 1..2 * BLOCK],)
                ),
                _ => assert_eq!((written[0], &written[1..]), (0xff, &[0; BLOCK - 1][..])),
            }
        }
    });
}

#[test]
fn completions_of_earlier_requests_stay_with_the_lane() {
    let (_seed, _platform, mut lane) = simulated();
    for token in 0..5 {
        let buffer = AlignedBuf::zeroed(BLOCK).unwrap();
        lane.submit(Request::read(buffer, token), &[Segment::whole(0, 0, 4096)]);
    }
    let mut memory = AlignedBuf::zeroed(BLOCK).unwrap();
    let mut ends = Vec::new();
    lane.scope(|scope| {
        scope.read(&mut memory, &[Segment::whole(0, 0, 4096)], 77);
        scope.wait(1, &mut ends).unwrap();
    });
    assert_eq!(ends.iter().map(|end| end.token).collect::<Vec<_>>(), [77]);
    assert_eq!(lane.in_flight(), 5);
    let mut completions = Vec::new();
    lane.drain(&mut completions).unwrap();
    let mut tokens: Vec<_> = completions
        .iter()
        .map(|completion| completion.token)
        .collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [0, 1, 2, 3, 4]);
}

/// Requests with buffers of their own go along with borrowed memory, and none is taken for another.
#[test]
fn a_scope_waits_for_requests_with_buffers_of_their_own_too() {
    let (_seed, platform, mut lane) = simulated();
    let read = |token: u64| Request::read(AlignedBuf::zeroed(BLOCK).unwrap(), token);
    let at = |block: u64| [Segment::whole(0, block * 4096, 4096)];
    lane.submit(read(0), &at(0));
    let mut memory = AlignedBuf::zeroed(4 * BLOCK).unwrap();
    let (mut ends, mut others) = (Vec::new(), Vec::new());
    lane.scope(|scope| {
        for (block, part) in (1..).zip(memory.chunks_mut(BLOCK)) {
            scope.read(part, &at(block), block);
            scope.submit(read(10 + block), &at(block));
        }
        scope.submit(read(20), &[Segment::whole(0, MIB, 4096)]);
        let refusal = swath_engine::Error::new(ErrorKind::InvalidInput, "no");
        scope.refuse_request(read(21), refusal);
        assert_eq!(scope.in_flight(), 4);
        let mut found = 0;
        while found < 11 {
            found += scope.wait_for_all(1, &mut ends, &mut others).unwrap();
        }
        assert_eq!(scope.wait_for_all(5, &mut ends, &mut others).unwrap(), 0);
        // One is left for the lane.
        scope.submit(read(30), &at(5));
        scope.wait_for_all(0, &mut ends, &mut others).unwrap();
    });
    assert_eq!(
        told(ends),
        [1, 2, 3, 4].map(|token| (token, OpKind::Read, Ok(4096)))
    );
    lane.drain(&mut others).unwrap();
    others.sort_by_key(|completion| completion.token);
    let original = pattern(16 * BLOCK, 1);
    for (completion, token) in others
        .into_iter()
        .zip([0, 11, 12, 13, 14, 20, 21, 30_usize])
    {
        assert_eq!(completion.token, token as u64);
        let buffer = completion.buffers.into_one().unwrap();
        match token {
            20 | 21 => drop(completion.result.unwrap_err()),
            _ => {
                let block = if token == 30 { 5 } else { token % 10 };
                assert!(*buffer.as_slice() == original[block * BLOCK..(block + 1) * BLOCK]);
            }
        }
    }
    assert!(memory[..] == original[BLOCK..5 * BLOCK]);
    assert_eq!(platform.take_trace().len(), 10);
}

#[test]
fn what_makes_no_sense_is_told_by_its_end() {
    let (_seed, platform, mut lane) = simulated();
    let mut memory = AlignedBuf::zeroed(2 * BLOCK).unwrap();
    let (odd, even) = memory.split_at_mut(BLOCK + 1);
    let mut ends = Vec::new();
    lane.scope(|scope| {
        scope.read(odd, &[Segment::whole(0, 0, 4097)], 1);
        scope.write(even, false, &[Segment::whole(0, MIB, 4095)], 2);
        assert_eq!(scope.in_flight(), 2);
        assert_eq!(scope.wait(5, &mut ends).unwrap(), 2);
    });
    let kinds: Vec<_> = ends
        .iter()
        .map(|end| end.result.as_ref().unwrap_err().kind())
        .collect();
    assert_eq!(kinds, [ErrorKind::Misaligned, ErrorKind::Misaligned]);
    assert_eq!(platform.take_trace(), []);
}

#[test]
fn a_queue_that_is_refused_for_a_while_keeps_borrowed_memory_safe() {
    let (_seed, platform, mut lane) = simulated();
    let mut memory = AlignedBuf::zeroed(4 * BLOCK).unwrap();
    platform.refuse_visits(7);
    lane.scope(|scope| {
        for (token, part) in (0..).zip(memory.chunks_mut(BLOCK)) {
            scope.read(part, &[Segment::whole(0, token * 4096, 4096)], token);
        }
        let mut ends = Vec::new();
        scope.wait(1, &mut ends).unwrap_err();
        assert_eq!((ends.len(), scope.in_flight()), (0, 4));
    });
    assert!(memory[..] == pattern(16 * BLOCK, 1)[..4 * BLOCK]);
}

#[test]
fn a_volumes_lane_moves_borrowed_memory_over_its_stripes() {
    let folder = fixtures::folder();
    let paths = fixtures::members(folder.path(), 3, 6 * MIB);
    fixtures::for_each_backend(|backend| {
        let volume = fixtures::volume(&paths, 4096);
        let mut lane = volume.lane(&fixtures::lane_options(backend)).unwrap();
        let written = pattern(60 * BLOCK, 3);
        let mut read = AlignedBuf::zeroed(written.len()).unwrap();
        lane.scope(|scope| {
            for (token, part) in (0..).zip(written.chunks(5 * BLOCK)) {
                scope.write(4096 + token * 5 * 4096, part, token);
            }
        });
        let ends = lane.scope(|scope| {
            let mut ends = Vec::new();
            scope.read(4096, &mut read, 1);
            assert_eq!(scope.wait(1, &mut ends).unwrap(), 1);
            told(ends)
        });
        assert_eq!(ends, [(1, OpKind::Read, Ok(written.len() as u64))]);
        assert!(read[..] == written[..]);
        let ends = lane.scope(|scope| {
            let mut ends = Vec::new();
            scope.read(100, &mut read, 2);
            assert_eq!(scope.wait(1, &mut ends).unwrap(), 1);
            told(ends)
        });
        assert_eq!(ends, [(2, OpKind::Read, Err(ErrorKind::Misaligned))]);
        let mut bytes = vec![0; written.len()];
        volume.read_at(&mut bytes, 4096).unwrap();
        assert!(bytes[..] == written[..], "the shared calls see the same");
    });
}
