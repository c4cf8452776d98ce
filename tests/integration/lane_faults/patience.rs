//! Operations that the device asks to be tried again later, many times in a row.
//!
//! What could go wrong: all attempts are used up in a millisecond, in a loop that keeps a core busy;
//! one that is waited with holds up the others; a poll that blocks; a wait that never ends because
//! nothing is in flight. Time is the simulation's own, so none of this depends on the machine.

use std::sync::Arc;

use swath_engine::{AlignedBuf, Handle, HandleOptions, OpKind, Platform, Request, Segment};
use swath_tests::sim::Fault;

use super::{BLOCK, RETRIES_AT_ONCE, RETRIES_MAX, Rig, one, open, pattern};

const MS: u64 = 1_000_000;

const PLACE: [Segment; 1] = [Segment::whole(0, 0, BLOCK as u64)];

fn read(token: u64) -> Request {
    Request::read(one(&[0; BLOCK]), token)
}

#[test]
fn the_first_attempts_are_at_once_and_the_others_take_time() {
    for (attempts, fastest_ns, slowest_ns) in [
        // What a simulated operation takes is up to 100 us.
        (RETRIES_AT_ONCE, 0, MS),
        (RETRIES_MAX, 100 * MS, 300 * MS),
    ] {
        let mut rig = Rig::new();
        let refusals = Fault::errno(libc::EAGAIN).times(attempts);
        rig.platform.inject(refusals);
        rig.run(read(1), &PLACE).result.unwrap();
        let stats = rig.lane.stats();
        let latency_ns = stats.total(OpKind::Read).latency_ns.max();
        assert!(
            (fastest_ns..slowest_ns).contains(&latency_ns),
            "{attempts} attempts took {latency_ns} ns"
        );
    }
}

#[test]
fn a_poll_does_not_wait_for_what_was_postponed() {
    let mut rig = Rig::new();
    rig.platform.inject(Fault::errno(libc::EAGAIN));
    rig.lane.submit(read(1), &PLACE);
    let mut completions = Vec::new();
    for _ in 0..1000 {
        assert_eq!(rig.lane.poll(&mut completions).unwrap(), 0);
    }
    // Nothing else is in flight, so no time goes by until somebody waits.
    assert_eq!(rig.platform.take_trace().len() as u64, RETRIES_AT_ONCE + 1);
    assert_eq!(rig.lane.in_flight(), 1);
    assert_eq!(rig.lane.wait(1, &mut completions).unwrap(), 1);
    completions[0].result.as_ref().unwrap_err();
    assert_eq!(
        rig.platform.take_trace().len() as u64,
        RETRIES_MAX - RETRIES_AT_ONCE
    );
}

#[test]
fn the_others_go_on_meanwhile() {
    let mut rig = Rig::new();
    rig.platform.inject(Fault::errno(libc::EAGAIN).on("m0"));
    rig.lane.submit(read(u64::MAX), &PLACE);
    let mut completions = Vec::new();
    let mut others = 0;
    let refused = loop {
        while rig.lane.in_flight() < 4 {
            rig.lane.submit(read(others), &[Segment::whole(1, 0, 512)]);
            others += 1;
        }
        rig.lane.wait(1, &mut completions).unwrap();
        let end = completions.iter().position(|end| end.token == u64::MAX);
        if let Some(end) = end {
            break completions.swap_remove(end);
        }
    };
    refused.result.unwrap_err();
    // About 200 ms for it, and 50 us for each of the others, of which three are always in flight.
    assert!((1000..20_000).contains(&others), "{others}");
    assert!(completions.iter().all(|end| end.result.is_ok()));
}

#[test]
fn every_way_to_block_waits_for_what_was_postponed() {
    let refusals = || Fault::errno(libc::EAGAIN).times(RETRIES_MAX);
    let bytes = pattern(BLOCK, 1);

    let mut rig = Rig::new();
    rig.platform.inject(refusals());
    let completion = rig.lane.call(read(1), &PLACE).unwrap();
    completion.result.unwrap();

    rig.platform.inject(refusals());
    let block = one(&bytes);
    rig.lane
        .write_blocking(block.as_slice(), false, &PLACE)
        .unwrap();
    assert_eq!(rig.platform.peek("m0", 0, BLOCK), bytes);

    // A scope that ends early waits too, and gives the memory back only then.
    rig.platform.inject(refusals());
    let mut memory = AlignedBuf::zeroed(BLOCK).unwrap();
    rig.lane.scope(|scope| scope.read(&mut memory, &PLACE, 1));
    assert_eq!(memory[..], bytes[..]);

    drop(rig.lane);
    let devices = open(&rig.platform, &rig.paths);
    rig.platform.inject(refusals());
    let platform: Arc<dyn Platform> = Arc::new(rig.platform.clone());
    let handle = Handle::start(&platform, &devices, &HandleOptions::default()).unwrap();
    handle.call(read(1), PLACE.to_vec()).result.unwrap();
}

#[test]
fn a_lane_with_something_postponed_can_be_dropped() {
    let mut rig = Rig::new();
    rig.platform.inject(Fault::errno(libc::EAGAIN));
    rig.lane.submit(read(1), &PLACE);
    for _ in 0..1000 {
        rig.lane.poll(&mut Vec::new()).unwrap();
    }
    drop(rig.lane);
    assert_eq!(rig.platform.take_trace().len() as u64, RETRIES_AT_ONCE + 1);
}
