//! Many threads on one volume, and many volumes in one process.
//!
//! What could go wrong: a byte that one thread wrote undone by the read-modify-write of another; a
//! lane that sees or moves what is another's; two volumes that mix up their members.

use std::io::IoSlice;
use std::sync::Arc;
use std::thread;

use rand::RngExt;
use swath_engine::{AlignedBuf, OpKind, Request};
use swath_tests::fixtures::{self, MIB};
use swath_tests::seed::Seed;
use swath_tests::sim::SimPlatform;
use swath_tests::skipped;
use swath_volume::{CreateOptions, OpenOptions, Volume};

const KIB: u64 = 1 << 10;

/// A volume on files, and one on simulated devices with its completions in any order.
fn for_each_volume(chunk_bytes: u64, test: impl Fn(&Volume)) {
    let folder = fixtures::folder();
    let paths = fixtures::members(folder.path(), 3, 6 * MIB);
    fixtures::for_each_backend(|backend| {
        let options = CreateOptions {
            chunk_bytes,
            force: true,
            handle: fixtures::handle_options(backend),
            ..CreateOptions::default()
        };
        test(&Volume::create(&paths, &options).unwrap());
    });
    let seed = Seed::new();
    let (platform, paths) = SimPlatform::with_members(seed.value(), 3, 6 * MIB);
    let options = CreateOptions {
        chunk_bytes,
        ..CreateOptions::default()
    };
    test(&Volume::create_on(Arc::new(platform), &paths, &options).unwrap());
}

/// A write in one piece.
fn write(volume: &Volume, bytes: &[u8], offset: u64) {
    volume.write_at(bytes, offset).unwrap();
}

/// The same write in two pieces, which meet within a block.
fn write_vectored(volume: &Volume, bytes: &[u8], offset: u64) {
    let (head, tail) = bytes.split_at(bytes.len() / 3);
    let pieces = [IoSlice::new(head), IoSlice::new(tail)];
    volume.write_vectored_at(&pieces, offset).unwrap();
}

#[test]
fn neighbouring_bytes_of_one_block_are_all_kept() {
    keeps_neighbouring_bytes([write, write]);
    keeps_neighbouring_bytes([write, write_vectored]);
    keeps_neighbouring_bytes([write_vectored, write_vectored]);
}

/// Threads write by these two ways in turn.
fn keeps_neighbouring_bytes(ways: [fn(&Volume, &[u8], u64); 2]) {
    for_each_volume(4 * KIB, |volume| {
        let threads = 8_u64;
        let (start, count) = (8 * KIB - 30, 60 * threads);
        volume.write_at(&vec![0; count as usize], start).unwrap();
        thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || {
                    // Every eighth byte is this thread's, over two blocks on two members.
                    for turn in 0..60 {
                        let byte = [u8::try_from(1 + (thread + turn) % 255).unwrap()];
                        let way = ways[thread as usize % 2];
                        way(volume, &byte, start + turn * threads + thread);
                    }
                });
            }
        });
        let mut read = vec![0; count as usize];
        volume.read_at(&mut read, start).unwrap();
        for (place, byte) in read.into_iter().enumerate() {
            let (turn, thread) = (place as u64 / threads, place as u64 % threads);
            assert_eq!(
                u64::from(byte),
                1 + (thread + turn) % 255,
                "byte {place} was lost"
            );
        }
    });
}

#[test]
fn a_block_written_whole_beside_a_change_in_part_is_never_undone() {
    undoes_nothing(write, write);
    undoes_nothing(write, write_vectored);
    undoes_nothing(write_vectored, write);
    undoes_nothing(write_vectored, write_vectored);
}

fn undoes_nothing(write_whole: fn(&Volume, &[u8], u64), write_part: fn(&Volume, &[u8], u64)) {
    for_each_volume(4 * KIB, |volume| {
        let block = u64::from(volume.block_bytes());
        for turn in 1..=60_u8 {
            thread::scope(|scope| {
                // All of one block and the next, against a byte of the first.
                scope.spawn(move || {
                    let whole = AlignedBuf::copy_of(&vec![turn; 2 * block as usize]).unwrap();
                    write_whole(volume, &whole, 4 * block);
                });
                scope.spawn(move || write_part(volume, &[200 + turn % 50], 4 * block + 7));
            });
            let mut read = vec![0; 2 * block as usize];
            volume.read_at(&mut read, 4 * block).unwrap();
            let byte = read.remove(7);
            assert!(
                byte == turn || byte == 200 + turn % 50,
                "{byte} is nobody's"
            );
            assert!(
                read.iter().all(|&byte| byte == turn),
                "a whole block was undone in part"
            );
        }
    });
}

#[test]
fn zeroing_beside_a_change_in_part_is_never_undone() {
    for_each_volume(4 * KIB, |volume| {
        let block = u64::from(volume.block_bytes());
        if let Err(error) = volume.write_zeroes(0, block) {
            skipped(format_args!("{error}"));
            return;
        }
        for turn in 1..=40_u8 {
            volume.write_at(&vec![0xff; block as usize], 0).unwrap();
            thread::scope(|scope| {
                scope.spawn(move || volume.write_zeroes(0, block).unwrap());
                scope.spawn(move || volume.write_at(&[turn], 9).unwrap());
            });
            let mut read = vec![0; block as usize];
            volume.read_at(&mut read, 0).unwrap();
            let byte = read.remove(9);
            assert!(byte == turn || byte == 0);
            assert!(read.iter().all(|&byte| byte == 0), "zeroes were undone");
        }
    });
}

#[test]
fn threads_at_random_ranges_of_their_own_read_what_they_wrote() {
    let seed = Seed::new();
    for_each_volume(64 * KIB, |volume| {
        let threads = 6;
        let share = volume.capacity_bytes() / threads / 2;
        thread::scope(|scope| {
            for thread in 0..threads {
                let mut rng = Seed::rng(&seed);
                rng.set_stream(thread);
                scope.spawn(move || {
                    // Odd borders: neighbours share a block.
                    let start = thread * share + 7;
                    for turn in 0..20 {
                        let length = rng.random_range(1..40_000);
                        let offset = start + rng.random_range(0..share - length);
                        let mut bytes = vec![0; length as usize];
                        swath_engine::fill_incompressible(&mut bytes, thread, turn);
                        volume.write_at(&bytes, offset).unwrap();
                        let mut read = vec![0; bytes.len()];
                        volume.read_at(&mut read, offset).unwrap();
                        assert!(read == bytes, "thread {thread} at {offset}");
                    }
                });
            }
        });
    });
}

#[test]
fn every_thread_may_have_a_lane_of_its_own() {
    for_each_volume(8 * KIB, |volume| {
        let threads = 4_u64;
        let share = 32 * 24 * KIB;
        thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || {
                    let mut lane = volume.lane(&swath_engine::LaneOptions::default()).unwrap();
                    let mut completions = Vec::new();
                    let place = |token| thread * share + token * 24 * KIB;
                    for token in 0..32 {
                        let mut bytes = AlignedBuf::zeroed(24 << 10).unwrap();
                        swath_engine::fill_incompressible(&mut bytes, thread, token * 8);
                        lane.write(place(token), bytes, token);
                    }
                    lane.drain(&mut completions).unwrap();
                    for completion in completions.drain(..) {
                        assert_eq!(completion.result.unwrap(), 24 * KIB);
                        lane.read(
                            place(completion.token),
                            completion.buffers,
                            completion.token,
                        );
                    }
                    lane.drain(&mut completions).unwrap();
                    assert_eq!(completions.len(), 32);
                    for completion in completions {
                        let mut expected = vec![0; 24 << 10];
                        let token = completion.token;
                        swath_engine::fill_incompressible(&mut expected, thread, token * 8);
                        let read = completion.buffers.into_one().unwrap();
                        assert!(read.as_slice() == expected, "thread {thread}, {token}");
                    }
                    assert_eq!(lane.stats().total(OpKind::Write).count, 32);
                });
            }
        });
    });
}

#[test]
fn two_volumes_at_once_keep_apart() {
    let folder = fixtures::folder();
    let paths = fixtures::members(folder.path(), 6, 6 * MIB);
    // Their members alternate, as the drives of a server do that runs them as two groups.
    let of = |group: usize| -> Vec<_> { paths.iter().skip(group).step_by(2).cloned().collect() };
    let volumes = [0, 1].map(|group| fixtures::volume(&of(group), 4 * KIB));
    let content = |group: u64| {
        let mut bytes = AlignedBuf::zeroed(MIB as usize).unwrap();
        swath_engine::fill_incompressible(&mut bytes, group, 0);
        bytes
    };
    let submissions: Vec<_> = (0..64_u64)
        .map(|number| {
            let (group, part) = (number % 2, number / 2);
            let from = part as usize * (32 << 10);
            let buffer = AlignedBuf::copy_of(&content(group)[from..from + (32 << 10)]).unwrap();
            volumes[group as usize].submit(Request::write(buffer, number), part * 32 * KIB, 0)
        })
        .collect();
    for (number, submission) in (0..).zip(submissions) {
        let completion = submission.wait();
        assert_eq!(
            (completion.token, completion.result.unwrap()),
            (number, 32 * KIB)
        );
    }
    for volume in volumes {
        volume.close().unwrap();
    }
    for group in 0..2 {
        let volume = Volume::open(&of(group), &OpenOptions::default()).unwrap();
        let mut read = vec![0; MIB as usize];
        volume.read_at(&mut read, 0).unwrap();
        assert!(read[..] == content(group as u64)[..], "group {group}");
    }
}

#[test]
fn a_lane_keeps_its_volume_open() {
    let folder = fixtures::folder();
    let paths = fixtures::members(folder.path(), 2, 5 * MIB);
    let volume = fixtures::volume(&paths, 4 * KIB);
    let mut lane = volume.lane(&swath_engine::LaneOptions::default()).unwrap();
    drop(volume);
    lane.write_at(b"still open", 10).unwrap();
    let error = Volume::open(&paths, &OpenOptions::default()).unwrap_err();
    assert_eq!(error.kind(), swath_volume::ErrorKind::InUse);
    drop(lane);
    let volume = Volume::open(&paths, &OpenOptions::default()).unwrap();
    let mut read = [0; 10];
    volume.read_at(&mut read, 10).unwrap();
    assert_eq!(&read, b"still open");
}
