//! A volume used as it is meant to be: made, written, read, flushed, closed and opened again.
//!
//! What could go wrong: bytes that land elsewhere after a reopen or with the members in another
//! order, ranges that reach beyond the end, a failure on one member that is not told, writes that go
//! on after it.

mod commits;
mod failures;
mod many;
mod requests;
mod sizes;
mod tuned;

use std::path::PathBuf;
use std::sync::Arc;

use rand::seq::SliceRandom;
use swath_engine::{AlignedBuf, DeviceKind, HandleOptions, OpKind};
use swath_tests::fixtures::{self, MIB, Place};
use swath_tests::seed::Seed;
use swath_tests::sim::SimPlatform;
use swath_volume::{CHUNK_BYTES_DEFAULT, CreateOptions, ErrorKind, OpenOptions, Uuid, Volume};

const KIB: u64 = 1 << 10;

fn pattern(length: usize, mark: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    swath_engine::fill_incompressible(&mut bytes, mark, 0);
    bytes
}

fn reopen(paths: &[PathBuf]) -> Volume {
    Volume::open(paths, &OpenOptions::default()).unwrap()
}

#[track_caller]
fn assert_reads(volume: &Volume, offset: u64, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    volume.read_at(&mut read, offset).unwrap();
    assert!(
        read == bytes,
        "{} bytes at {offset} are not what was written",
        bytes.len()
    );
}

#[test]
fn what_was_written_is_there_after_a_reopen_with_members_in_any_order() {
    let seed = Seed::new();
    let mut rng = seed.rng();
    fixtures::for_each_backend(|backend| {
        for place in Place::ALL {
            let Some(folder) = place.folder() else {
                continue;
            };
            let mut paths = fixtures::members(folder.path(), 4, 6 * MIB);
            let options = CreateOptions {
                name: "model 7".to_owned(),
                chunk_bytes: 64 * KIB,
                handle: fixtures::handle_options(backend),
                ..CreateOptions::default()
            };
            let volume = Volume::create(&paths, &options).unwrap();
            let bytes = pattern(MIB as usize + 17, 1);
            volume.write_at(&bytes, 1000).unwrap();
            let end = volume.capacity_bytes() - 5000;
            volume.write_at(&bytes[..5000], end).unwrap();
            volume.flush().unwrap();
            let members: Vec<_> = volume.members().iter().map(|member| member.uuid).collect();
            volume.close().unwrap();

            for _ in 0..3 {
                paths.shuffle(&mut rng);
                let options = OpenOptions {
                    handle: fixtures::handle_options(backend),
                    ..OpenOptions::default()
                };
                let volume = Volume::open(&paths, &options).unwrap();
                assert_eq!(
                    (volume.name(), volume.generation()),
                    ("model 7".to_owned(), 1)
                );
                let uuids: Vec<_> = volume.members().iter().map(|member| member.uuid).collect();
                assert_eq!(uuids, members, "members have their own places");
                assert_reads(&volume, 1000, &bytes);
                assert_reads(&volume, end, &bytes[..5000]);
            }
        }
    });
}

#[test]
fn a_volume_says_what_it_is() {
    let folder = fixtures::folder();
    let paths = fixtures::members(folder.path(), 3, 8 * MIB);
    let uuid = Uuid::from_u128(0x1234);
    let options = CreateOptions {
        name: "naïve ☂".to_owned(),
        uuid,
        created_unix_s: 1_700_000_000,
        ..CreateOptions::default()
    };
    let made = Volume::create(&paths, &options).unwrap();
    made.close().unwrap();
    let volume = reopen(&paths);
    assert_eq!(volume.uuid(), uuid);
    assert_eq!(volume.name(), "naïve ☂");
    assert_eq!(volume.created_unix_s(), 1_700_000_000);
    assert_eq!(volume.chunk_bytes(), CHUNK_BYTES_DEFAULT);
    // 8 MiB less 2 MiB at each end, on three members.
    assert_eq!(volume.capacity_bytes(), 3 * 4 * MIB);
    assert_eq!(volume.layout().stripe_bytes(), 3 * MIB);
    assert!(!volume.is_read_only() && volume.poisoned().is_none());
    assert!(volume.block_bytes() >= 512 && volume.memory_align_bytes() <= 4096);
    for (index, (member, path)) in volume.members().iter().zip(&paths).enumerate() {
        assert_eq!(
            (member.index as usize, member.path()),
            (index, path.as_path())
        );
        assert_eq!(
            (member.data_offset, member.data_bytes, member.unused_bytes),
            (2 * MIB, 4 * MIB, 0)
        );
        assert!(member.device.is_direct() && member.device.kind() == DeviceKind::File);
    }
}

#[test]
fn a_directory_stands_for_the_members_in_it() {
    let folder = fixtures::folder();
    let paths = fixtures::members(folder.path(), 3, 5 * MIB);
    let volume = fixtures::volume(&paths, 64 * KIB);
    volume.write_at(b"found", 70_000).unwrap();
    volume.close().unwrap();
    std::fs::write(folder.path().join("notes.txt"), "not a member").unwrap();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    let volume = reopen(&[folder.path().to_path_buf()]);
    assert_reads(&volume, 70_000, b"found");
    assert_eq!(volume.members().len(), 3);
}

#[test]
fn unequal_members_are_cut_to_the_smallest_and_say_what_is_left() {
    let folder = fixtures::folder();
    let sizes = [9 * MIB, 7 * MIB + 4096, 7 * MIB + 300 * KIB];
    let paths: Vec<_> = (0..)
        .zip(sizes)
        .map(|(index, bytes)| fixtures::member(folder.path(), &format!("u{index}"), bytes))
        .collect();
    let volume = fixtures::volume(&paths, 256 * KIB);
    let unused: Vec<_> = volume
        .members()
        .iter()
        .map(|member| member.unused_bytes)
        .collect();
    // 3 MiB of whole chunks fit between the ends of the smallest.
    assert_eq!(unused, [2 * MIB, 4096, 300 * KIB]);
    assert_eq!(volume.capacity_bytes(), 3 * 3 * MIB);
    let bytes = pattern(9 * MIB as usize, 4);
    volume.write_at(&bytes, 0).unwrap();
    volume.close().unwrap();
    assert_reads(&reopen(&paths), 0, &bytes);
}

#[test]
fn a_volume_opened_for_reading_is_not_changed_and_is_shared_by_readers() {
    let folder = fixtures::folder();
    let paths = fixtures::members(folder.path(), 2, 5 * MIB);
    let volume = fixtures::volume(&paths, 4 * KIB);
    volume.write_at(b"kept", 4094).unwrap();
    volume.close().unwrap();
    let before: Vec<_> = paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let one = Volume::open(&paths, &options).unwrap();
    let two = Volume::open(&paths, &options).unwrap();
    for volume in [&one, &two] {
        assert!(volume.is_read_only());
        assert_reads(volume, 4094, b"kept");
        let mut lane = volume.lane(&swath_engine::LaneOptions::default()).unwrap();
        for refusal in [
            volume.write_at(b"x", 0).unwrap_err(),
            volume.discard(0, 4096).unwrap_err(),
            volume.write_zeroes(0, 4096).unwrap_err(),
            volume.flush().unwrap_err(),
            volume.rename("x").unwrap_err(),
            lane.write_at(b"x", 0).unwrap_err(),
        ] {
            assert!(
                refusal.to_string().contains("opened for reading only"),
                "{refusal}"
            );
        }
        let mut completions = Vec::new();
        lane.write(0, AlignedBuf::zeroed(4096).unwrap(), 1);
        lane.drain(&mut completions).unwrap();
        let error = completions.remove(0).result.unwrap_err();
        assert!(
            error.to_string().contains("opened for reading only"),
            "{error}"
        );
    }
    let error = Volume::open(&paths, &OpenOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
    one.close().unwrap();
    two.close().unwrap();
    let after: Vec<_> = paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    assert!(before == after, "a reader wrote");
}

#[test]
fn the_shared_calls_are_counted() {
    let (platform, paths) = SimPlatform::with_members(9, 2, 5 * MIB);
    let options = CreateOptions {
        handle: HandleOptions {
            workers: 2,
            ..HandleOptions::default()
        },
        ..CreateOptions::default()
    };
    let volume = Volume::create_on(Arc::new(platform), &paths, &options).unwrap();
    assert_eq!(volume.handle_stats().total(OpKind::Write).count, 0);
    for number in 0..4 {
        volume.write_at(&[1; 512], number * 512).unwrap();
    }
    volume.flush().unwrap();
    let stats = volume.handle_stats();
    assert_eq!(stats.total(OpKind::Write).bytes, 4 * 512);
    assert_eq!(stats.total(OpKind::Flush).count, 1);
    assert_eq!(
        stats.device(1, OpKind::Flush).unwrap().count,
        1,
        "every member is flushed"
    );
}

/// A closed ring lets go of its files a little later, by another thread of the kernel.
#[test]
fn a_volume_can_be_opened_as_soon_as_it_was_closed() {
    let folder = fixtures::folder();
    let paths = fixtures::members(folder.path(), 2, 5 * MIB);
    fixtures::for_each_backend(|backend| {
        let mut volume = fixtures::volume(&paths, 4096);
        for turn in 0..8_u8 {
            let mut lane = volume.lane(&fixtures::lane_options(backend)).unwrap();
            for token in 0..32 {
                lane.read(token * 4096, AlignedBuf::zeroed(4096).unwrap(), token);
            }
            volume.write_at(&[turn], 5).unwrap();
            drop(lane);
            volume.close().unwrap();
            let options = OpenOptions {
                handle: fixtures::handle_options(backend),
                ..OpenOptions::default()
            };
            volume = Volume::open(&paths, &options).unwrap();
            assert_reads(&volume, 5, &[turn]);
        }
    });
}
