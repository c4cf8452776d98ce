//! Volumes on what a machine really has: other processes, loop devices, a limit of descriptors.
//!
//! What could go wrong: two processes that write one volume; a lock that outlives its process;
//! blocks of another size than files have; descriptors that leak with each failed open.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use swath_engine::{AlignedBuf, DeviceKind};
use swath_tests::fixtures::{self, LoopDevice, MIB};
use swath_volume::{CreateOptions, ErrorKind, OpenOptions, Volume, examine};

/// Where a test's other process finds the members.
const MEMBERS: &str = "SWATH_TEST_MEMBERS";

#[test]
fn another_process_is_told_who_has_the_volume_until_it_ends() {
    const NAME: &str = "devices::another_process_is_told_who_has_the_volume_until_it_ends";
    if fixtures::is_alone(NAME) {
        let folder = PathBuf::from(std::env::var_os(MEMBERS).unwrap());
        let _volume = Volume::open(&[folder], &OpenOptions::default()).unwrap();
        println!("\nopened");
        // Until it is killed, or the other end of standard input is gone.
        std::io::stdin().lines().for_each(drop);
        return;
    }
    let folder = fixtures::folder();
    let paths = fixtures::members(folder.path(), 2, 5 * MIB);
    fixtures::volume(&paths, 4096).close().unwrap();
    let mut holder = fixtures::alone(NAME)
        .env(MEMBERS, folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(holder.stdout.take().unwrap());
    assert!(output.lines().any(|line| line.unwrap() == "opened"));

    for read_only in [false, true] {
        let options = OpenOptions {
            read_only,
            ..OpenOptions::default()
        };
        let error = Volume::open(&paths, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InUse);
        let message = error.to_string();
        assert!(message.contains("in use by another process"), "{message}");
        assert!(message.contains(paths[0].to_str().unwrap()), "{message}");
    }
    assert!(examine(&paths[0]).unwrap().superblock.is_some());

    holder.kill().unwrap();
    holder.wait().unwrap();
    Volume::open(&paths, &OpenOptions::default())
        .unwrap()
        .write_at(b"mine now", 3)
        .unwrap();
}

#[test]
fn loop_devices_of_both_block_sizes_are_members() {
    let folder = fixtures::folder();
    let mut bytes = vec![0; 2 * MIB as usize + 1111];
    swath_engine::fill_incompressible(&mut bytes, 1, 0);
    for sectors in [[512, 512], [4096, 4096], [512, 4096]] {
        let mut devices = Vec::new();
        for (index, sector_bytes) in sectors.into_iter().enumerate() {
            let name = format!("backing-{index}-{sectors:?}");
            let backing = fixtures::member(folder.path(), &name, 8 * MIB);
            let Some(device) = LoopDevice::over(&backing, sector_bytes) else {
                return;
            };
            devices.push(device);
        }
        let paths: Vec<_> = devices
            .iter()
            .map(|device| device.path().to_path_buf())
            .collect();
        fixtures::for_each_backend(|backend| {
            let options = CreateOptions {
                force: true,
                chunk_bytes: 64 << 10,
                handle: fixtures::handle_options(backend),
                ..CreateOptions::default()
            };
            let volume = Volume::create(&paths, &options).unwrap();
            assert_eq!(volume.block_bytes(), sectors[1], "the larger of the two");
            assert!(
                volume
                    .members()
                    .iter()
                    .all(|m| m.device.kind() == DeviceKind::Block)
            );
            volume.write_at(&bytes, 777).unwrap();
            volume.close().unwrap();

            let reversed = [&paths[1], &paths[0]];
            let volume = Volume::open(&reversed, &OpenOptions::default()).unwrap();
            let mut read = vec![0; bytes.len()];
            volume.read_at(&mut read, 777).unwrap();
            assert!(read == bytes);
            let mut lane = volume.lane(&fixtures::lane_options(backend)).unwrap();
            let block = u64::from(volume.block_bytes());
            lane.write(block, AlignedBuf::zeroed(2 * block as usize).unwrap(), 1);
            lane.read(block / 2, AlignedBuf::zeroed(block as usize).unwrap(), 2);
            let mut completions = Vec::new();
            lane.drain(&mut completions).unwrap();
            completions.sort_by_key(|completion| completion.token);
            assert_eq!(*completions[0].result.as_ref().unwrap(), 2 * block);
            let error = completions[1].result.as_ref().unwrap_err();
            assert_eq!(error.kind(), swath_engine::ErrorKind::Misaligned, "{error}");
        });
        let error = {
            let _volume = Volume::open(&paths, &OpenOptions::default()).unwrap();
            Volume::open(&paths, &OpenOptions::default()).unwrap_err()
        };
        assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
    }
}

#[test]
fn a_thousand_failed_opens_leave_no_descriptor() {
    fixtures::in_own_process(
        "devices::a_thousand_failed_opens_leave_no_descriptor",
        || {
            let folder = fixtures::folder();
            let paths = fixtures::members(folder.path(), 3, 5 * MIB);
            fixtures::volume(&paths, 4096).close().unwrap();
            let stranger = fixtures::member(folder.path(), "stranger", 5 * MIB);
            let count = || fs::read_dir("/proc/self/fd").unwrap().count();
            // Whatever opens once for good, such as a log, is open after the first.
            Volume::open(&paths[..2], &OpenOptions::default()).unwrap_err();
            let before = count();
            for turn in 0..1000 {
                let (paths, kind) = match turn % 4 {
                    0 => (paths[1..].to_vec(), ErrorKind::Missing),
                    1 => (
                        [&paths[..2], std::slice::from_ref(&stranger)].concat(),
                        ErrorKind::NotAMember,
                    ),
                    2 => (
                        [&paths[..], &[folder.path().join("missing")]].concat(),
                        ErrorKind::NotFound,
                    ),
                    _ => (vec![paths[0].clone(); 2], ErrorKind::Duplicate),
                };
                // To find our own lock in the way takes a moment each time.
                if kind == ErrorKind::Duplicate && turn > 40 {
                    continue;
                }
                let error = Volume::open(&paths, &OpenOptions::default()).unwrap_err();
                assert_eq!(error.kind(), kind, "{error}");
            }
            for turn in 0..100 {
                let chunk_bytes = if turn % 2 == 0 { 4095 } else { 4096 };
                let options = CreateOptions {
                    chunk_bytes,
                    ..CreateOptions::default()
                };
                Volume::create(&paths, &options).unwrap_err();
            }
            assert_eq!(count(), before);
            // A volume that opens and closes leaves none either.
            for _ in 0..20 {
                let volume = Volume::open(&paths, &OpenOptions::default()).unwrap();
                volume.write_at(b"x", 0).unwrap();
                volume.close().unwrap();
            }
            assert_eq!(count(), before);
        },
    );
}
