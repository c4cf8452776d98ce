//! `Volume::tuned`: a probe that only reads, on simulated members.
//!
//! What could go wrong: a probe that writes, that reads superblocks, that never ends on a clock that
//! does not go on, that hides a member's failure, or that takes what the file system made up for the
//! speed of a drive.

use std::sync::Arc;
use std::time::Duration;

use swath_checkpoint::StoreOptions;
use swath_engine::OpKind;
use swath_tests::fixtures::{self, MIB, Place};
use swath_tests::seed::Seed;
use swath_tests::sim::{Fault, SimPlatform};
use swath_volume::{Answered, CreateOptions, ErrorKind, TuneOptions, Volume};

fn short() -> TuneOptions {
    TuneOptions {
        runtime: Duration::from_millis(20),
        rounds: 1,
        ..TuneOptions::default()
    }
}

fn simulated(seed: &Seed, members: usize) -> (SimPlatform, Volume) {
    let (platform, paths) = SimPlatform::with_members(seed.value(), members, 16 * MIB);
    let shared = Arc::new(platform.clone());
    let volume = Volume::create_on(shared, &paths, &CreateOptions::default()).unwrap();
    platform.take_trace();
    (platform, volume)
}

#[test]
fn a_probe_reads_the_data_of_every_member_and_nothing_else() {
    let (platform, volume) = simulated(&Seed::new(), 3);
    let tuned = volume.tuned(&short()).unwrap();
    let trace = platform.take_trace();
    assert!(!trace.is_empty());
    for op in &trace {
        let data = 2 * MIB..14 * MIB;
        assert_eq!(op.kind, OpKind::Read, "{op:?}");
        assert!(
            data.contains(&op.offset) && op.offset + op.length <= data.end,
            "{op:?}"
        );
    }
    for member in volume.members() {
        assert!(
            trace.iter().any(|op| op.device == member.path()),
            "{}",
            member.path().display()
        );
    }
    assert!(tuned.large_tried.contains(&tuned.large) && tuned.small_tried.contains(&tuned.small));
    assert_eq!(tuned.small.transfer_bytes, 4096);
    assert!(tuned.large.depth % 3 == 0 && tuned.depth_per_member >= 1 && tuned.small_batch >= 1);
    let store = StoreOptions::tuned(&tuned);
    let in_flight_bytes = u64::from(store.depth) * MIB;
    assert!(in_flight_bytes >= tuned.large.in_flight_bytes().min(256 * MIB));
    assert!(store.pool_bytes >= 2 * in_flight_bytes);
    // Whether simulated members were written is not known.
    assert_eq!(tuned.answered, Answered::Unknown);
    assert!(tuned.answered.caution().is_some());
}

#[test]
fn a_member_that_fails_ends_the_probe_with_its_name() {
    let (platform, volume) = simulated(&Seed::new(), 2);
    platform.inject(Fault::errno(libc::EIO).of(OpKind::Read).on("m1"));
    let error = volume.tuned(&short()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Device);
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("m1"), "{cause}");
    assert!(
        volume.poisoned().is_none(),
        "a read that failed changes nothing"
    );
    let none = TuneOptions {
        rounds: 0,
        ..short()
    };
    assert_eq!(
        volume.tuned(&none).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

#[test]
fn what_answered_is_told() {
    let folder = fixtures::folder();
    let volume = fixtures::volume(&fixtures::members(folder.path(), 2, 8 * MIB), MIB);
    // Zeroes were written to all of it; a file system that does not tell is told as that.
    let answered = volume.tuned(&short()).unwrap().answered;
    assert!(
        [Answered::Drives, Answered::Unknown].contains(&answered),
        "{answered:?}"
    );
    if answered == Answered::Drives {
        volume.discard(0, volume.capacity_bytes()).unwrap();
        assert_eq!(
            volume.tuned(&short()).unwrap().answered,
            Answered::Unwritten
        );
        volume.write_at(&vec![7; 1 << 20], 0).unwrap();
        assert_eq!(volume.tuned(&short()).unwrap().answered, Answered::Partly);
    }
    if let Some(folder) = Place::Memory.folder() {
        let volume = fixtures::volume(&fixtures::members(folder.path(), 1, 8 * MIB), MIB);
        assert_eq!(volume.tuned(&short()).unwrap().answered, Answered::Memory);
    }
}
