//! A device that fails under a volume.

use std::io::IoSlice;
use std::sync::Arc;

use swath_engine::{AlignedBuf, OpKind, Request};
use swath_tests::fixtures::MIB;
use swath_tests::sim::{Fault, SimPlatform};
use swath_volume::{CreateOptions, ErrorKind, OpenOptions, Volume};

use super::{KIB, assert_reads, pattern};

#[test]
fn a_failure_on_one_member_is_told_and_stops_all_writing() {
    for kind in [
        OpKind::Write,
        OpKind::Flush,
        OpKind::Discard,
        OpKind::WriteZeroes,
    ] {
        let (platform, paths) = SimPlatform::with_members(5, 3, 5 * MIB);
        let platform_handle: Arc<SimPlatform> = Arc::new(platform.clone());
        let options = CreateOptions {
            chunk_bytes: 4 * KIB,
            ..CreateOptions::default()
        };
        let volume = Volume::create_on(platform_handle.clone(), &paths, &options).unwrap();
        let kept = pattern(50_000, 1);
        volume.write_at(&kept, 0).unwrap();
        // What is not flushed may be lost by a flush that fails.
        volume.flush().unwrap();
        platform.inject(Fault::errno(libc::EIO).of(kind).on("m1").times(1));
        let failed = match kind {
            OpKind::Write => volume.write_at(&pattern(50_000, 2), 100_000),
            OpKind::Flush => volume.flush(),
            OpKind::Discard => volume.discard(102_400, 40_960),
            _ => volume.write_zeroes(102_400, 40_960),
        };
        let error = failed.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device, "{kind}: {error}");
        assert_eq!(error.paths().collect::<Vec<_>>(), [paths[1].as_path()]);
        let reason = volume.poisoned().unwrap();
        assert_eq!(reason.to_string(), error.to_string());

        let mut lane = volume.lane(&swath_engine::LaneOptions::default()).unwrap();
        let refusals = [
            volume.write_at(&[1], 0).unwrap_err(),
            volume
                .write_vectored_at(&[IoSlice::new(&[1])], 0)
                .unwrap_err(),
            volume.flush().unwrap_err(),
            volume.discard(0, 4096).unwrap_err(),
            volume.write_zeroes(0, 4096).unwrap_err(),
            volume.rename("other").unwrap_err(),
            lane.write_at(&[1], 0).unwrap_err(),
            volume.clone().close().unwrap_err(),
        ];
        for refusal in refusals {
            assert_eq!(refusal.kind(), ErrorKind::Poisoned, "{refusal}");
            let source = std::error::Error::source(&refusal).unwrap().to_string();
            assert_eq!(source, error.to_string());
        }
        let refused = volume.submit(Request::write(AlignedBuf::zeroed(4096).unwrap(), 1), 0, 0);
        let kind = refused.wait().result.unwrap_err().kind();
        assert_eq!(kind, swath_engine::ErrorKind::Poisoned);
        // What was there can still be read, now and after a new open.
        assert_reads(&volume, 0, &kept);
        drop((lane, volume));
        let volume = Volume::open_on(platform_handle, &paths, &OpenOptions::default()).unwrap();
        assert!(volume.poisoned().is_none());
        assert_reads(&volume, 0, &kept);
        volume.write_at(&pattern(50_000, 3), 0).unwrap();
    }
}

#[test]
fn a_lane_that_fails_stops_the_shared_calls_too() {
    let (platform, paths) = SimPlatform::with_members(6, 2, 5 * MIB);
    let volume = Volume::create_on(
        Arc::new(platform.clone()),
        &paths,
        &CreateOptions::default(),
    )
    .unwrap();
    let mut lane = volume.lane(&swath_engine::LaneOptions::default()).unwrap();
    platform.inject(Fault::errno(libc::ENOSPC).of(OpKind::Write).times(1));
    lane.write(0, AlignedBuf::zeroed(4096).unwrap(), 1);
    let mut completions = Vec::new();
    lane.drain(&mut completions).unwrap();
    let error = completions.remove(0).result.unwrap_err();
    assert_eq!(error.kind(), swath_engine::ErrorKind::NoSpace);
    assert_eq!(
        volume.write_at(&[0], 0).unwrap_err().kind(),
        ErrorKind::Poisoned
    );
}

#[test]
fn a_lost_member_stops_writing_even_when_a_read_finds_it_gone() {
    let (platform, paths) = SimPlatform::with_members(7, 2, 5 * MIB);
    let volume = Volume::create_on(
        Arc::new(platform.clone()),
        &paths,
        &CreateOptions::default(),
    )
    .unwrap();
    platform.inject(Fault::errno(libc::ENODEV).on("m0"));
    let mut memory = [0; 10];
    assert_eq!(
        volume.read_at(&mut memory, 5).unwrap_err().kind(),
        ErrorKind::Gone
    );
    assert_eq!(
        volume.write_at(&memory, 5).unwrap_err().kind(),
        ErrorKind::Poisoned
    );
}

#[test]
fn an_unreadable_block_is_an_error_and_nothing_else_stops() {
    let (platform, paths) = SimPlatform::with_members(8, 2, 5 * MIB);
    let volume = Volume::create_on(
        Arc::new(platform.clone()),
        &paths,
        &CreateOptions::default(),
    )
    .unwrap();
    platform.inject(Fault::errno(libc::EIO).of(OpKind::Read).times(1));
    let mut memory = [0; 10];
    let error = volume.read_at(&mut memory, 5).unwrap_err();
    assert_eq!(
        (error.kind(), error.range()),
        (ErrorKind::Device, Some((2 * MIB, 512)))
    );
    assert!(volume.poisoned().is_none());
    volume.write_at(&memory, 5).unwrap();
}
