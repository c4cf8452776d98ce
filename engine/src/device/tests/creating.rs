//! Files are made in full or not at all.

use super::*;

#[test]
fn a_new_file_is_written_in_full_and_private() {
    use std::os::unix::fs::MetadataExt;
    // Odd multiples of 4096, below and above one piece of writing.
    for bytes in [4096, 5 * MIB + 4096] {
        for folder in [Some(Folder::on_disk()), Folder::in_memory()]
            .into_iter()
            .flatten()
        {
            let zeroes = folder.file("zeroes", bytes);
            let random = folder.path("random");
            create_file(&random, bytes, FileFill::Incompressible { seed: 5 }).unwrap();
            let unwritten = folder.path("unwritten");
            create_file(&unwritten, bytes, FileFill::Unwritten).unwrap();

            let mut expected = vec![0; usize::try_from(bytes).unwrap()];
            assert!(fs::read(&zeroes).unwrap() == expected);
            assert!(fs::read(&unwritten).unwrap() == expected);
            fill_incompressible(&mut expected, 5, 0);
            assert!(fs::read(&random).unwrap() == expected);
            for path in [&zeroes, &random, &unwritten] {
                let metadata = fs::metadata(path).unwrap();
                assert_eq!(metadata.mode() & 0o777, 0o600);
                assert!(metadata.blocks() * 512 >= bytes, "all blocks are there");
            }
            assert_eq!(folder.open_descriptors(), 0);
        }
    }
}

#[test]
fn a_file_is_not_made_over_another_or_with_an_odd_size() {
    let folder = Folder::on_disk();
    let taken = folder.path("taken");
    fs::write(&taken, "precious").unwrap();
    let dangling = folder.path("dangling");
    symlink("nowhere", &dangling).unwrap();
    for path in [&taken, &dangling, &folder.0] {
        let error = create_file(path, 4096, FileFill::Zeroes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    }
    assert_eq!(fs::read(&taken).unwrap(), b"precious");
    for bytes in [0, 1, 512, 4095, 4097, u64::MAX] {
        let error = create_file(folder.path("new"), bytes, FileFill::Zeroes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    let error = create_file(folder.path("no/where"), 4096, FileFill::Zeroes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(folder.names(), ["dangling", "taken"]);
}

#[test]
fn too_little_space_is_found_before_anything_is_made() {
    let folder = Folder::on_disk();
    for bytes in [1 << 60, !4095] {
        for fill in [FileFill::Zeroes, FileFill::Unwritten] {
            let error = create_file_with(folder.path("big"), bytes, fill, &mut |_| panic!("begun"));
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoSpace);
            assert!(error.to_string().contains("need 1"), "{error}");
            assert!(error.to_string().contains(", have "), "{error}");
        }
    }
    assert!(folder.names().is_empty());
}

#[test]
fn a_stop_at_any_point_leaves_no_file() {
    let folder = Folder::on_disk();
    let path = folder.path("f");
    for fill in [
        FileFill::Zeroes,
        FileFill::Incompressible { seed: 1 },
        FileFill::Unwritten,
    ] {
        let mut seen = Vec::new();
        create_file_with(&path, 9 * MIB, fill, &mut |done| {
            seen.push(done);
            true
        })
        .unwrap();
        remove_file(&path).unwrap();
        if fill != FileFill::Unwritten {
            assert_eq!((seen[0], seen.last()), (0, Some(&(9 * MIB))));
            assert!(seen.is_sorted());
        }
        for &stop in &seen {
            let error =
                create_file_with(&path, 9 * MIB, fill, &mut |done| done != stop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
            assert!(folder.names().is_empty());
        }
    }
}

#[test]
fn a_file_being_made_cannot_be_opened() {
    let folder = Folder::on_disk();
    let path = folder.path("f");
    let mut kinds = Vec::new();
    create_file_with(&path, MIB, FileFill::Zeroes, &mut |_| {
        kinds.push(refused(&path, OpenOptions::read_write()).kind());
        true
    })
    .unwrap();
    assert_eq!(kinds, [ErrorKind::InUse; 2]);
}

#[test]
fn a_panic_while_a_file_is_made_leaves_no_file() {
    let folder = Folder::on_disk();
    let path = folder.path("f");
    let end = std::panic::catch_unwind(|| {
        create_file_with(&path, MIB, FileFill::Zeroes, &mut |_| panic!("on purpose"))
    });
    assert!(end.is_err());
    assert!(folder.names().is_empty());
}

#[test]
fn only_a_regular_file_is_removed() {
    let folder = Folder::on_disk();
    let path = folder.file("f", 4096);
    let link = folder.path("link");
    symlink("f", &link).unwrap();
    for other in [&link, &folder.0, &PathBuf::from("/dev/null")] {
        assert_eq!(
            remove_file(other).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }
    remove_file(&path).unwrap();
    assert_eq!(remove_file(&path).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(folder.names(), ["link"]);
}
