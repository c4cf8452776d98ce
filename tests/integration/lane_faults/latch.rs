//! The latch that stops changes after a failure.
//!
//! What could go wrong: a write that goes on after one that failed; reads that stop for no reason;
//! a refusal taken for a failure.

use std::sync::Arc;

use swath_engine::{ErrorKind, Lane, LaneOptions, OpKind, Poison, Request, Segment};
use swath_tests::sim::Fault;

use super::{BLOCK, DEVICE_BYTES, Rig, one, request};

/// A rig whose lane shares a latch.
fn latched() -> (Rig, Arc<Poison>) {
    let poison = Arc::new(Poison::new());
    let options = LaneOptions {
        poison: Some(Arc::clone(&poison)),
        ..LaneOptions::default()
    };
    (Rig::with(&options), poison)
}

#[test]
fn a_failed_change_stops_all_changes_and_reads_go_on() {
    for kind in OpKind::ALL.into_iter().filter(|kind| kind.changes_media()) {
        let (mut rig, poison) = latched();
        rig.platform
            .inject(Fault::errno(libc::EIO).of(kind).on("m1").times(1));
        let (failing, segments) = request(kind);
        let first = rig.run(failing, &segments).result.unwrap_err();
        assert_eq!(first.kind(), ErrorKind::Device);
        assert!(poison.is_set());
        rig.platform.take_trace();
        for kind in OpKind::ALL.into_iter().filter(|kind| kind.changes_media()) {
            let (refused, segments) = request(kind);
            let error = rig.run(refused, &segments).result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Poisoned);
            let source = std::error::Error::source(&error).unwrap().to_string();
            assert_eq!(
                source,
                first.to_string(),
                "the first failure is told to all"
            );
        }
        assert_eq!(rig.platform.take_trace(), [], "nothing reached a device");
        let (read, segments) = request(OpKind::Read);
        assert!(rig.run(read, &segments).result.is_ok());
    }
}

#[test]
fn a_latch_stops_every_lane_that_shares_it() {
    let (mut rig, poison) = latched();
    let options = LaneOptions {
        poison: Some(Arc::clone(&poison)),
        ..LaneOptions::default()
    };
    let devices = rig.lane.devices().to_vec();
    let mut other = Lane::open(&rig.platform, &devices, &options).unwrap();
    rig.platform.inject(Fault::errno(libc::EIO).times(1));
    let (failing, segments) = request(OpKind::Flush);
    rig.run(failing, &segments).result.unwrap_err();
    let (refused, segments) = request(OpKind::Write);
    let completion = other.call(refused, &segments).unwrap();
    assert_eq!(completion.result.unwrap_err().kind(), ErrorKind::Poisoned);
}

#[test]
fn a_failed_read_stops_nothing_unless_the_device_is_gone() {
    for (errno, stops) in [(libc::EIO, false), (libc::ENODEV, true)] {
        let (mut rig, poison) = latched();
        rig.platform
            .inject(Fault::errno(errno).of(OpKind::Read).times(1));
        let (read, segments) = request(OpKind::Read);
        rig.run(read, &segments).result.unwrap_err();
        assert_eq!(poison.is_set(), stops);
        let (write, segments) = request(OpKind::Write);
        assert_eq!(rig.run(write, &segments).result.is_err(), stops);
    }
}

#[test]
fn what_a_device_does_not_do_is_no_failure() {
    let (mut rig, poison) = latched();
    rig.platform
        .inject(Fault::errno(libc::EOPNOTSUPP).of(OpKind::Discard));
    let (discard, segments) = request(OpKind::Discard);
    assert_eq!(
        rig.run(discard, &segments).result.unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    assert!(!poison.is_set());
    // Nor is a request that was never started.
    let beyond = [Segment::whole(0, DEVICE_BYTES, 512)];
    rig.run(Request::write(one(&[0; BLOCK]), 1), &beyond)
        .result
        .unwrap_err();
    assert!(!poison.is_set());
}
