//! Visits to a queue that gives nothing, or is refused as a whole.
//!
//! What could go wrong: a poll that blocks, memory that comes back while a device has it, requests
//! lost with a visit.

use swath_engine::{AlignedBuf, BufPool, Lane, LaneOptions, QueueOptions, Request, Segment};
use swath_tests::seed::Seed;
use swath_tests::sim::SimPlatform;

use super::{BLOCK, DEVICE_BYTES, Rig, one, open};

#[test]
fn polling_returns_while_operations_are_held() {
    let mut rig = Rig::new();
    rig.platform.hold();
    for token in 0..4 {
        rig.lane.submit(
            Request::read(one(&[0; BLOCK]), token),
            &[Segment::whole(0, 0, 512)],
        );
    }
    let mut completions = Vec::new();
    for _ in 0..100 {
        assert_eq!(rig.lane.poll(&mut completions).unwrap(), 0);
    }
    assert_eq!((completions.len(), rig.lane.in_flight()), (0, 4));
    rig.platform.release();
    rig.lane.drain(&mut completions).unwrap();
    assert_eq!(completions.len(), 4);
}

#[test]
fn a_dropped_lane_waits_for_what_the_device_has() {
    let seed = Seed::new();
    let (platform, paths) = SimPlatform::with_members(seed.value(), 2, DEVICE_BYTES);
    let devices = open(&platform, &paths);
    let pool = BufPool::new(4096, 8).unwrap();
    platform.hold();
    let thread = {
        let (platform, pool) = (platform.clone(), pool.clone());
        std::thread::spawn(move || {
            let queue = QueueOptions {
                depth: 4,
                ..QueueOptions::default()
            };
            let options = LaneOptions {
                queue,
                ..LaneOptions::default()
            };
            let mut lane = Lane::open(&platform, &devices, &options).unwrap();
            for token in 0..8 {
                let mut piece = pool.take().unwrap();
                piece.fill(0xcc);
                lane.submit(
                    Request::write(piece, token),
                    &[Segment::whole(0, token * 4096, 4096)],
                );
            }
            lane.poll(&mut Vec::new()).unwrap();
            drop(lane);
        })
    };
    // However long it is held, no buffer comes back before its operation has ended.
    while pool.available() > 0 {
        std::thread::yield_now();
    }
    for _ in 0..1000 {
        assert_eq!((pool.available(), thread.is_finished()), (0, false));
    }
    platform.release();
    thread.join().unwrap();
    assert_eq!(pool.available(), 8);
    let trace = platform.take_trace();
    assert_eq!(
        trace.len(),
        4,
        "those that waited in the lane were not started"
    );
    assert!(trace.iter().all(|op| op.result == 4096));
}

#[test]
fn a_refused_queue_keeps_its_requests() {
    let mut rig = Rig::new();
    rig.lane.submit(
        Request::read(one(&[0; BLOCK]), 1),
        &[Segment::whole(0, 0, 512)],
    );
    rig.platform.refuse_visits(3);
    let mut completions = Vec::new();
    for _ in 0..3 {
        rig.lane.wait(1, &mut completions).unwrap_err();
    }
    assert_eq!((completions.len(), rig.lane.in_flight()), (0, 1));
    rig.lane.drain(&mut completions).unwrap();
    assert_eq!(completions[0].token, 1);

    // A call that is refused leaves its request to a later poll.
    rig.platform.refuse_visits(1);
    rig.lane
        .call(
            Request::read(one(&[0; BLOCK]), 2),
            &[Segment::whole(0, 0, 512)],
        )
        .unwrap_err();
    rig.lane.drain(&mut completions).unwrap();
    assert_eq!(completions[1].token, 2);

    // Borrowed memory is back when a refused call returns, and nobody else gets its completion.
    rig.lane.submit(
        Request::read(one(&[0; BLOCK]), 3),
        &[Segment::whole(0, 0, 512)],
    );
    rig.platform.refuse_visits(5);
    let mut memory = AlignedBuf::zeroed(BLOCK).unwrap();
    rig.lane
        .read_blocking(&mut memory, &[Segment::whole(1, 0, 512)])
        .unwrap_err();
    rig.lane.drain(&mut completions).unwrap();
    let tokens: Vec<_> = completions
        .iter()
        .map(|completion| completion.token)
        .collect();
    assert_eq!(tokens, [1, 2, 3]);
}
