//! Every way into a volume, at every kind of range.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use swath_engine::{AlignedBuf, OpKind, Request, Segment};
use swath_tests::fixtures::{self, MIB};
use swath_tests::sim::SimPlatform;
use swath_tests::skipped;
use swath_volume::{CreateOptions, ErrorKind, Volume};

use super::{KIB, assert_reads, pattern};

#[test]
fn vectored_calls_are_one_run_of_bytes() {
    let folder = fixtures::folder();
    let volume = fixtures::volume(&fixtures::members(folder.path(), 2, 5 * MIB), 4 * KIB);
    let aligned = AlignedBuf::copy_of(&pattern(3 * 8192, 1)).unwrap();
    for (bytes, cuts, offset) in [
        // Whole blocks in aligned memory; then anything.
        (&aligned[..], [8192, 16384], 4096),
        (&aligned[..20_001], [1, 4096], 777),
        (&aligned[..3], [0, 2], 4095),
    ] {
        let (one, rest) = bytes.split_at(cuts[0]);
        let (two, three) = rest.split_at(cuts[1] - cuts[0]);
        let pieces = [IoSlice::new(one), IoSlice::new(two), IoSlice::new(three)];
        volume.write_vectored_at(&pieces, offset).unwrap();
        assert_reads(&volume, offset, bytes);
        let mut read = AlignedBuf::zeroed(bytes.len()).unwrap();
        let (one, rest) = read.split_at_mut(cuts[0]);
        let (two, three) = rest.split_at_mut(cuts[1] - cuts[0]);
        let mut pieces = [
            IoSliceMut::new(one),
            IoSliceMut::new(two),
            IoSliceMut::new(three),
        ];
        volume.read_vectored_at(&mut pieces, offset).unwrap();
        assert!(read[..] == *bytes);
    }
}

#[test]
fn calls_of_no_bytes_do_nothing_at_any_offset() {
    let (platform, paths) = SimPlatform::with_members(2, 2, 5 * MIB);
    let volume = Volume::create_on(
        Arc::new(platform.clone()),
        &paths,
        &CreateOptions::default(),
    )
    .unwrap();
    platform.take_trace();
    for offset in [0, 1, 4096, volume.capacity_bytes()] {
        volume.read_at(&mut [], offset).unwrap();
        volume.write_at(&[], offset).unwrap();
        volume.read_vectored_at(&mut [], offset).unwrap();
        volume.write_vectored_at(&[], offset).unwrap();
        volume
            .read_vectored_at(&mut [IoSliceMut::new(&mut [])], offset)
            .unwrap();
        volume
            .write_vectored_at(&[IoSlice::new(&[])], offset)
            .unwrap();
    }
    assert_eq!(platform.take_trace(), []);
}

#[test]
fn zeroes_and_discards_reach_every_member_and_no_further() {
    let folder = fixtures::folder();
    let volume = fixtures::volume(&fixtures::members(folder.path(), 3, 5 * MIB), 8 * KIB);
    let bytes = pattern(200 * KIB as usize, 1);
    volume.write_at(&bytes, 0).unwrap();
    let (from, to) = (12 * KIB, 120 * KIB);
    match volume.write_zeroes(from, to - from) {
        Ok(()) => {
            assert_reads(&volume, 0, &bytes[..from as usize]);
            assert_reads(&volume, from, &vec![0; (to - from) as usize]);
            assert_reads(&volume, to, &bytes[to as usize..]);
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            skipped(format_args!("{error}"));
        }
    }
    volume.write_at(&bytes, 0).unwrap();
    match volume.discard(from, to - from) {
        Ok(()) => {
            assert_reads(&volume, 0, &bytes[..from as usize]);
            assert_reads(&volume, to, &bytes[to as usize..]);
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            skipped(format_args!("{error}"));
        }
    }
    for call in [Volume::write_zeroes, Volume::discard] {
        let error = call(&volume, 100, 4096).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misaligned, "{error}");
        call(&volume, 4096, 0).unwrap();
    }
}

#[test]
fn ranges_beyond_the_end_are_refused_and_those_up_to_it_are_not() {
    let (platform, paths) = SimPlatform::with_members(3, 2, 5 * MIB);
    let volume = Volume::create_on(
        Arc::new(platform.clone()),
        &paths,
        &CreateOptions::default(),
    )
    .unwrap();
    let end = volume.capacity_bytes();
    let mut memory = vec![0; 8192];
    volume.read_at(&mut memory, end - 8192).unwrap();
    volume.write_at(&memory[..1], end - 1).unwrap();
    volume.read_at(&mut [], end).unwrap();
    platform.take_trace();
    for (offset, length) in [(end - 8191, 8192), (end, 1), (end + 1, 0), (u64::MAX, 1)] {
        let memory = &mut memory[..length];
        let mut lane = volume.lane(&swath_engine::LaneOptions::default()).unwrap();
        let errors = [
            volume.read_at(memory, offset).unwrap_err(),
            volume.write_at(memory, offset).unwrap_err(),
            volume
                .read_vectored_at(&mut [IoSliceMut::new(memory)], offset)
                .unwrap_err(),
            volume
                .write_vectored_at(&[IoSlice::new(memory)], offset)
                .unwrap_err(),
            volume.discard(offset, length as u64).unwrap_err(),
            volume.write_zeroes(offset, length as u64).unwrap_err(),
            lane.read_at(memory, offset).unwrap_err(),
            lane.write_at(memory, offset).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::OutOfBounds, "{error}");
            assert_eq!(error.range(), Some((offset, length as u64)));
            let message = error.to_string();
            assert!(
                message.contains(&format!("which has {end} bytes")),
                "{message}"
            );
        }
    }
    assert_eq!(platform.take_trace(), [], "nothing reached a device");
}

#[test]
fn futures_and_lanes_move_whole_blocks_and_refuse_the_rest() {
    let folder = fixtures::folder();
    let volume = fixtures::volume(&fixtures::members(folder.path(), 3, 5 * MIB), 4 * KIB);
    let bytes = pattern(5 * 4096, 1);
    let buffer = AlignedBuf::copy_of(&bytes).unwrap();
    let written = pollster::block_on(volume.submit(Request::write(buffer, 3), 8192, 0));
    assert_eq!(
        (written.token, written.result.unwrap()),
        (3, bytes.len() as u64)
    );
    let flushed = volume
        .submit(Request::without_memory(OpKind::Flush, 4), 0, 0)
        .wait();
    assert_eq!(flushed.result.unwrap(), 0);

    let mut lane = volume.lane(&swath_engine::LaneOptions::default()).unwrap();
    lane.read(8192, AlignedBuf::zeroed(bytes.len()).unwrap(), 1);
    lane.read(8192 + 100, AlignedBuf::zeroed(4096).unwrap(), 2);
    lane.read(
        volume.capacity_bytes(),
        AlignedBuf::zeroed(4096).unwrap(),
        3,
    );
    lane.write_fua(0, AlignedBuf::zeroed(4096).unwrap(), 4);
    lane.flush(5);
    assert_eq!(lane.in_flight(), 5);
    let mut completions = Vec::new();
    lane.drain(&mut completions).unwrap();
    completions.sort_by_key(|completion| completion.token);
    let mut kinds = completions
        .iter()
        .map(|completion| match &completion.result {
            Ok(bytes) => Ok(*bytes),
            Err(error) => Err(error.kind()),
        });
    assert_eq!(kinds.next(), Some(Ok(bytes.len() as u64)));
    assert_eq!(kinds.next(), Some(Err(swath_engine::ErrorKind::Misaligned)));
    assert_eq!(
        kinds.next(),
        Some(Err(swath_engine::ErrorKind::OutOfBounds))
    );
    assert_eq!(kinds.next(), Some(Ok(4096)));
    assert_eq!(kinds.next(), Some(Ok(0)));
    assert_eq!(
        completions
            .swap_remove(0)
            .buffers
            .into_one()
            .unwrap()
            .as_slice(),
        bytes
    );
    assert_eq!(lane.volume().uuid(), volume.uuid());

    let refused = volume.submit(Request::read(AlignedBuf::zeroed(4096).unwrap(), 6), 100, 0);
    let refused = refused.wait();
    assert_eq!(
        refused.result.unwrap_err().kind(),
        swath_engine::ErrorKind::Misaligned
    );
    assert_eq!(refused.buffers.total_len(), 4096);
}

#[test]
fn a_full_stripe_is_one_operation_for_each_member() {
    let (platform, paths) = SimPlatform::with_members(4, 4, 8 * MIB);
    let options = CreateOptions {
        chunk_bytes: 64 * KIB,
        ..CreateOptions::default()
    };
    let volume = Volume::create_on(Arc::new(platform.clone()), &paths, &options).unwrap();
    let mut lane = volume.lane(&swath_engine::LaneOptions::default()).unwrap();
    platform.take_trace();
    let bytes = pattern(2 * MIB as usize, 1);
    lane.write(256 * KIB, AlignedBuf::copy_of(&bytes).unwrap(), 1);
    lane.drain(&mut Vec::new()).unwrap();
    let mut trace = platform.take_trace();
    trace.sort_by(|one, other| one.device.cmp(&other.device));
    assert_eq!(trace.len(), 4);
    for (op, path) in trace.iter().zip(&paths) {
        assert_eq!(op.device, *path);
        // Eight chunks of each, contiguous there.
        assert_eq!(
            (op.offset, op.length, op.memory_pieces),
            (2 * MIB + 64 * KIB, 512 * KIB, 8)
        );
    }
    for (chunk, bytes) in bytes.chunks(64 << 10).enumerate() {
        let offset = 2 * MIB + 64 * KIB * (1 + chunk as u64 / 4);
        assert!(
            platform.peek(&paths[chunk % 4], offset, bytes.len()) == bytes,
            "chunk {chunk}"
        );
    }
}

#[test]
fn the_bare_members_can_be_driven_by_a_lane() {
    let (platform, paths) = SimPlatform::with_members(4, 2, 5 * MIB);
    let options = CreateOptions {
        chunk_bytes: 4 * KIB,
        ..CreateOptions::default()
    };
    let volume = Volume::create_on(Arc::new(platform), &paths, &options).unwrap();
    volume.write_at(&pattern(8192, 1), 0).unwrap();
    let mut lane = volume
        .member_lane(&swath_engine::LaneOptions::default())
        .unwrap();
    let mut block = AlignedBuf::zeroed(4096).unwrap();
    lane.read_blocking(&mut block, &[Segment::whole(1, 2 * MIB, 4096)])
        .unwrap();
    assert_eq!(block[..], pattern(8192, 1)[4096..]);
}
