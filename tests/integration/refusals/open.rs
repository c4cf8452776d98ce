//! Members that do not make a volume.

use std::fs::{self, File};

use swath_tests::fixtures::{self, MIB};
use swath_volume::{CreateOptions, ErrorKind, OpenOptions, Volume};

use super::{MEMBER_BYTES, Rig, change_superblocks, check, create_options, words};

#[test]
fn a_copy_of_a_member_is_refused_beside_it_and_taken_in_its_place() {
    let rig = Rig::with_volume();
    let copy = rig.path("copy");
    fs::copy(&rig.paths[2], &copy).unwrap();
    let paths = [&rig.paths[..], std::slice::from_ref(&copy)].concat();
    let parts = [
        words(&rig.paths[2]),
        words(&copy),
        "both are member 2",
        "leave the copy away",
    ];
    let error = rig.open_is_refused(&paths, ErrorKind::Duplicate, &parts);
    assert_eq!(error.paths().collect::<Vec<_>>(), [&rig.paths[2], &copy]);
    rig.open_is_refused(
        &[rig.folder.path().to_path_buf()],
        ErrorKind::Duplicate,
        &["both are"],
    );

    let moved = [rig.paths[0].clone(), rig.paths[1].clone(), copy];
    Volume::open(&moved, &OpenOptions::default())
        .unwrap()
        .close()
        .unwrap();
}

#[test]
fn a_member_of_another_volume_is_refused() {
    let rig = Rig::with_volume();
    let other = fixtures::member(rig.folder.path(), "other", MEMBER_BYTES);
    let options = CreateOptions {
        name: "other".to_owned(),
        ..create_options()
    };
    let uuid = Volume::create(std::slice::from_ref(&other), &options)
        .unwrap()
        .uuid();
    let paths = [&rig.paths[..], std::slice::from_ref(&other)].concat();
    let parts = [
        words(&other),
        "a member of volume \"other\"",
        &uuid.to_string(),
    ];
    let error = rig.open_is_refused(&paths, ErrorKind::Foreign, &parts);
    assert_eq!(error.paths().collect::<Vec<_>>(), [&other]);
    // In place of a member, and first of all, it is still the odd one out.
    let paths = [other.clone(), rig.paths[1].clone(), rig.paths[2].clone()];
    rig.open_is_refused(&paths, ErrorKind::Foreign, &[words(&other)]);
}

#[test]
fn an_old_copy_of_a_member_is_refused() {
    let rig = Rig::with_volume();
    for stale in 0..3 {
        let before = fs::read(&rig.paths[stale]).unwrap();
        let volume = Volume::open(&rig.paths, &OpenOptions::default()).unwrap();
        let newest = volume.generation() + 1;
        volume.rename(&format!("newer {stale}")).unwrap();
        volume.close().unwrap();
        let current = fs::read(&rig.paths[stale]).unwrap();
        fs::write(&rig.paths[stale], before).unwrap();
        let own = format!("(member {stale}) at {}", newest - 1);
        let parts = [
            &format!("the volume is at generation {newest}"),
            words(&rig.paths[stale]),
            &own,
            "an old copy, or a device that was away",
        ];
        let error = rig.open_is_refused(&rig.paths, ErrorKind::Stale, &parts);
        assert_eq!(error.paths().collect::<Vec<_>>(), [&rig.paths[stale]]);
        fs::write(&rig.paths[stale], current).unwrap();
        Volume::open(&rig.paths, &OpenOptions::default())
            .unwrap()
            .close()
            .unwrap();
    }
}

#[test]
fn a_member_that_has_shrunk_is_refused() {
    let rig = Rig::with_volume();
    // To less than what any member has, in the end: its superblocks at the start are still there.
    for bytes in [MEMBER_BYTES - 4096, 4 * MIB + 4096, 4 * MIB] {
        File::options()
            .write(true)
            .open(&rig.paths[1])
            .unwrap()
            .set_len(bytes)
            .unwrap();
        let parts = [
            words(&rig.paths[1]),
            &format!("has {bytes} bytes, and had {MEMBER_BYTES} when the volume was created"),
        ];
        rig.open_is_refused(&rig.paths, ErrorKind::Shrunk, &parts);
    }
}

#[test]
fn a_version_layout_or_feature_that_is_unknown_is_refused() {
    // Offsets of fields in the superblock, as docs/ON_DISK_FORMAT.md has them.
    for (field, bytes, seals, part) in [
        (8, &[2_u8, 0, 0, 0][..], true, "unsupported version 2"),
        (8, &[7, 0, 0, 0], false, "unsupported version 7"),
        (92, &[9, 0, 0, 0], true, "unsupported layout 9"),
        (
            32,
            &[4, 0, 0, 0, 0, 0, 0, 0],
            true,
            "unsupported features 0x4",
        ),
    ] {
        let rig = Rig::with_volume();
        change_superblocks(&rig.paths[1], field, bytes, seals);
        let parts = [words(&rig.paths[1]), part];
        rig.open_is_refused(&rig.paths, ErrorKind::Unsupported, &parts);
    }
}

#[test]
fn a_feature_that_forbids_writing_lets_read_and_nothing_more() {
    let rig = Rig::with_volume();
    for path in &rig.paths {
        change_superblocks(path, 24, &[1, 0, 0, 0, 0, 0, 0, 0], true);
    }
    let before = rig.bytes();
    let error = Volume::open(&rig.paths, &OpenOptions::default()).unwrap_err();
    check(
        error,
        ErrorKind::Unsupported,
        &["features (0x1)", "open it for reading only"],
    );
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let volume = Volume::open(&rig.paths, &options).unwrap();
    volume.read_at(&mut [0; 100], 5).unwrap();
    drop(volume);
    assert!(rig.bytes() == before);
}

#[test]
fn a_member_without_one_good_copy_is_refused() {
    let rig = Rig::with_volume();
    change_superblocks(&rig.paths[0], 200, b"changed", false);
    let parts = [
        words(&rig.paths[0]),
        "no good superblock copy",
        "copy 3 checksum mismatch",
    ];
    rig.open_is_refused(&rig.paths, ErrorKind::Damaged, &parts);
}
