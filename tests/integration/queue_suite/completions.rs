//! Each request ends once: how many come when, whose they are, and what is counted.

use std::thread;

use rand::RngExt;
use swath_engine::{AlignedBuf, Buffers, Kernel, Lane, OpKind, Request, Segment};
use swath_tests::seed::Seed;

use super::{BLOCK, DEPTH, for_each_rig, pattern};

#[test]
fn a_request_of_nothing_ends_well() {
    for_each_rig(|rig| {
        let completion = rig.run(Request::write(Buffers::none(), 5), &[]);
        assert_eq!(completion.result.unwrap(), 0);
        let mut completions = Vec::new();
        assert_eq!(rig.lane.poll(&mut completions).unwrap(), 0);
        assert_eq!(rig.lane.wait(3, &mut completions).unwrap(), 0);
    });
}

#[test]
fn ten_times_the_depth_at_once_completes_each_once() {
    for_each_rig(|rig| {
        let seed = Seed::new();
        let mut rng = seed.rng();
        let count = 10 * u64::from(DEPTH);
        let mut expected = Vec::new();
        for token in 0..count {
            let blocks = rng.random_range(1..=8);
            let bytes = pattern(blocks * BLOCK, token);
            let place = [Segment::whole(
                (token % 2) as u32,
                token / 2 * 8 * 4096,
                bytes.len() as u64,
            )];
            rig.lane.submit(
                Request::write(AlignedBuf::copy_of(&bytes).unwrap(), token),
                &place,
            );
            expected.push((place, bytes));
        }
        assert_eq!(rig.lane.in_flight() as u64, count);
        let mut completions = Vec::new();
        rig.lane.drain(&mut completions).unwrap();
        assert_eq!(rig.lane.in_flight(), 0);
        let mut tokens: Vec<_> = completions
            .iter()
            .map(|completion| completion.token)
            .collect();
        tokens.sort_unstable();
        assert_eq!(tokens, (0..count).collect::<Vec<_>>());
        for completion in completions {
            let (place, bytes) = &expected[completion.token as usize];
            assert_eq!(completion.result.unwrap(), place[0].length);
            assert_eq!(completion.buffers.into_one().unwrap().as_slice(), bytes);
        }
        for ([place], bytes) in expected {
            assert_eq!(rig.read(place.device, place.offset, bytes.len()), bytes);
        }
    });
}

#[test]
fn dropping_a_lane_gives_every_buffer_back() {
    for_each_rig(|rig| {
        for token in 0..u64::from(DEPTH) + 4 {
            let piece = rig.pool.take().unwrap();
            let place = [Segment::whole(0, token * 16 * 4096, piece.len() as u64)];
            let request = if token % 2 == 0 {
                Request::write(piece, token)
            } else {
                Request::read(piece, token)
            };
            rig.lane.submit(request, &place);
        }
        let mut completions = Vec::new();
        rig.lane.poll(&mut completions).unwrap();
        completions.clear();
        let next = Lane::open(&Kernel, &rig.devices, &rig.options).unwrap();
        drop(std::mem::replace(&mut rig.lane, next));
        assert_eq!(rig.pool.available(), rig.pool.count());
        // The devices are as good as before.
        rig.write(0, 0, &pattern(BLOCK, 1));
        assert_eq!(rig.read(0, 0, BLOCK), pattern(BLOCK, 1));
    });
}

#[test]
fn waiting_for_some_gives_at_least_these_and_polling_finds_the_rest() {
    for_each_rig(|rig| {
        for token in 0..8 {
            let place = [Segment::whole(0, token * 4096, 4096)];
            rig.lane.submit(
                Request::read(AlignedBuf::zeroed(BLOCK).unwrap(), token),
                &place,
            );
        }
        let mut completions = Vec::new();
        let first = rig.lane.wait(3, &mut completions).unwrap();
        assert!((3..=8).contains(&first), "{first}");
        assert_eq!(completions.len(), first);
        // More than there can be: all there are.
        let rest = rig.lane.wait(100, &mut completions).unwrap();
        assert_eq!((first + rest, rig.lane.in_flight()), (8, 0));
        for token in 0..8 {
            let place = [Segment::whole(0, token * 4096, 4096)];
            rig.lane.submit(
                Request::read(AlignedBuf::zeroed(BLOCK).unwrap(), token),
                &place,
            );
        }
        while rig.lane.in_flight() > 0 {
            let before = completions.len();
            let found = rig.lane.poll(&mut completions).unwrap();
            assert_eq!(completions.len(), before + found);
        }
        assert_eq!(completions.len(), 16);
    });
}

#[test]
fn statistics_count_requests_and_device_operations() {
    for_each_rig(|rig| {
        rig.write(0, 0, &pattern(2 * BLOCK, 1));
        rig.read(0, 0, BLOCK);
        let across = [
            Segment::whole(0, 0, 4096),
            Segment {
                device: 1,
                offset: 0,
                buffer_offset: 4096,
                length: 4096,
            },
        ];
        rig.run(
            Request::read(AlignedBuf::zeroed(2 * BLOCK).unwrap(), 1),
            &across,
        );
        rig.without_memory(OpKind::Flush, &[Segment::flush(0), Segment::flush(1)]);
        let stats = rig.lane.take_stats();
        let reads = stats.total(OpKind::Read);
        assert_eq!((reads.count, reads.bytes, reads.errors), (2, 3 * 4096, 0));
        assert_eq!(reads.latency_ns.len(), 2);
        assert!(reads.latency_ns.min() > 0);
        let writes = stats.total(OpKind::Write);
        assert_eq!((writes.count, writes.bytes), (1, 2 * 4096));
        let on = |device, kind| {
            stats
                .device(device, kind)
                .map(|stats| (stats.count, stats.bytes))
        };
        assert_eq!(on(0, OpKind::Read), Some((2, 2 * 4096)));
        assert_eq!(on(1, OpKind::Read), Some((1, 4096)));
        assert_eq!(on(1, OpKind::Write), None);
        assert_eq!(on(1, OpKind::Flush), Some((1, 0)));
        assert_eq!(
            rig.lane.stats().total(OpKind::Read).count,
            0,
            "they were taken"
        );
    });
}

#[test]
fn lanes_of_several_threads_share_devices() {
    for_each_rig(|rig| {
        thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (devices, options) = (&rig.devices, &rig.options);
                scope.spawn(move || {
                    let mut lane = Lane::open(&Kernel, devices, options).unwrap();
                    let mut completions = Vec::new();
                    for round in 0..8 {
                        let place = [Segment::whole(1, (thread * 8 + round) * 8192, 8192)];
                        let bytes = pattern(2 * BLOCK, thread * 100 + round);
                        let buffer = AlignedBuf::copy_of(&bytes).unwrap();
                        lane.submit(Request::write(buffer, round), &place);
                        lane.drain(&mut completions).unwrap();
                        let mut read = AlignedBuf::zeroed(2 * BLOCK).unwrap();
                        lane.read_blocking(&mut read, &place).unwrap();
                        assert_eq!(&read[..], bytes);
                    }
                    assert!(
                        completions
                            .iter()
                            .all(|completion| completion.result.is_ok())
                    );
                    assert_eq!(completions.len(), 8);
                });
            }
        });
    });
}
