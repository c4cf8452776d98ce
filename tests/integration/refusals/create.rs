//! What a new volume is not made of.

use std::fs::{self};
use std::path::PathBuf;
use std::process::Command;

use rand::RngExt;
use swath_tests::fixtures::MIB;
use swath_tests::seed::Seed;
use swath_tests::skipped;
use swath_volume::{CreateOptions, ErrorKind, MEMBERS_MAX, OpenOptions, Volume};

use super::{KIB, MEMBER_BYTES, Rig, create_options, patch, words};

#[test]
fn a_volume_without_members_or_with_too_many_is_refused() {
    let rig = Rig::blank();
    let none: &[PathBuf] = &[];
    let options = create_options();
    rig.create_is_refused(
        none,
        &options,
        ErrorKind::InvalidInput,
        &["at least one member"],
    );
    let many: Vec<_> = (0..=MEMBERS_MAX)
        .map(|index| rig.path(&format!("x{index}")))
        .collect();
    let parts = ["at most 128 members", "129"];
    rig.create_is_refused(&many, &options, ErrorKind::InvalidInput, &parts);
    rig.open_is_refused(none, ErrorKind::InvalidInput, &["no members were named"]);
}

#[test]
fn chunks_that_cannot_be_are_refused() {
    let rig = Rig::blank();
    for chunk_bytes in [0, 1, 512, 4095, 4097, 6 * KIB, 100 * KIB + 2048] {
        let options = CreateOptions {
            chunk_bytes,
            ..CreateOptions::default()
        };
        let parts = ["a multiple of 4096 bytes", &chunk_bytes.to_string()];
        rig.create_is_refused(&rig.paths, &options, ErrorKind::InvalidInput, &parts);
    }
    for chunk_bytes in [MIB + 4 * KIB, 2 * MIB, 1 << 62, u64::MAX - 4095] {
        let options = CreateOptions {
            chunk_bytes,
            ..CreateOptions::default()
        };
        let parts = [
            &format!("a chunk of {chunk_bytes} bytes does not fit"),
            words(&rig.paths[0]),
        ];
        rig.create_is_refused(&rig.paths, &options, ErrorKind::InvalidInput, &parts);
    }
}

#[test]
fn a_device_that_carries_something_is_refused_by_its_name() {
    let mut ext4 = [0; 0x400];
    ext4[0x38..0x3a].copy_from_slice(&[0x53, 0xef]);
    ext4[0x60] = 0x40;
    let mut mbr = [0; 512];
    mbr[446 + 4] = 0x83;
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    let backup = MEMBER_BYTES - 512;
    let cases: [(u64, &[u8], &str); 5] = [
        (1024, &ext4, "ext4 file system"),
        (512, b"EFI PART", "GPT partition table"),
        (backup, b"EFI PART", "GPT partition table"),
        (0, &mbr, "MBR partition table"),
        (0, b"XFSB", "XFS"),
    ];
    for (offset, bytes, name) in cases {
        let rig = Rig::blank();
        patch(&rig.paths[1], offset, bytes);
        let parts = [
            words(&rig.paths[1]),
            "carries",
            name,
            "or force the creation",
        ];
        let options = create_options();
        rig.create_is_refused(&rig.paths, &options, ErrorKind::NotBlank, &parts);
    }
}

#[test]
fn a_real_file_system_is_refused_unless_forced() {
    let rig = Rig::blank();
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-L", "precious"])
        .arg(&rig.paths[2])
        .output();
    match made {
        Ok(output) if output.status.success() => {}
        _ => {
            skipped("no mkfs.ext4 here");
            return;
        }
    }
    let parts = [words(&rig.paths[2]), "ext4 file system \"precious\""];
    rig.create_is_refused(&rig.paths, &create_options(), ErrorKind::NotBlank, &parts);
    let forced = CreateOptions {
        force: true,
        ..create_options()
    };
    Volume::create(&rig.paths, &forced)
        .unwrap()
        .close()
        .unwrap();
    // Nothing finds the file system any more.
    let bytes = fs::read(&rig.paths[2]).unwrap();
    assert_eq!(bytes[1024 + 0x38..1024 + 0x3a], [0, 0]);
    Volume::open(&rig.paths, &OpenOptions::default()).unwrap();
}

#[test]
fn a_member_of_a_volume_is_not_blank() {
    let rig = Rig::with_volume();
    let parts = [words(&rig.paths[0]), "carries Swath member 0 of volume"];
    rig.create_is_refused(&rig.paths, &create_options(), ErrorKind::NotBlank, &parts);
    // Not even one whose copies at the start are gone.
    patch(&rig.paths[0], 0, &vec![0; 2 * MIB as usize]);
    rig.create_is_refused(&rig.paths, &create_options(), ErrorKind::NotBlank, &parts);
}

#[test]
fn one_byte_in_the_first_or_last_two_mib_is_enough_to_refuse() {
    let seed = Seed::new();
    let mut rng = seed.rng();
    let rig = Rig::blank();
    let area = 2 * MIB;
    let edges = [0, area - 1, MEMBER_BYTES - area, MEMBER_BYTES - 1];
    let others: Vec<_> = (0..12)
        .map(|_| rng.random_range(0..area) + [0, MEMBER_BYTES - area][rng.random_range(0..2)])
        .collect();
    for offset in edges.into_iter().chain(others) {
        patch(&rig.paths[2], offset, &[rng.random_range(1..=255)]);
        let parts = [words(&rig.paths[2]), "carries", "at offset"];
        rig.create_is_refused(&rig.paths, &create_options(), ErrorKind::NotBlank, &parts);
        patch(&rig.paths[2], offset, &[0]);
    }
    // What lies between is the data's place, and says nothing.
    patch(&rig.paths[2], area, &[1]);
    patch(&rig.paths[2], MEMBER_BYTES - area - 1, &[1]);
    Volume::create(&rig.paths, &create_options()).unwrap();
}
