//! Blocks that were not written are told from those that were.

use rustix::fs::{FallocateFlags, fallocate};

use super::*;

#[test]
fn blocks_that_were_not_written_are_told() {
    for folder in [Some(Folder::on_disk()), Folder::in_memory()]
        .into_iter()
        .flatten()
    {
        let open = |path: &Path| {
            let options = OpenOptions {
                allow_buffered: true,
                ..OpenOptions::read_write()
            };
            open(path, options).unwrap()
        };
        let bytes = 4 * MIB;
        let written = open(&folder.file("written", bytes));
        let state = written_state(&written, 0, bytes);
        if state == WrittenState::Unknown {
            skipped(format_args!("{} does not tell", folder.0.display()));
            continue;
        }
        assert_eq!(state, WrittenState::Written);
        assert_eq!(written_state(&written, MIB, 512), WrittenState::Written);
        assert_eq!(written_state(&written, 0, 0), WrittenState::Written);
        // What lies behind the end was never written.
        assert_eq!(written_state(&written, bytes, MIB), WrittenState::Unwritten);
        assert_eq!(
            written_state(&written, bytes - MIB, 3 * MIB),
            WrittenState::Partly {
                unwritten_bytes: 2 * MIB
            }
        );
        assert_eq!(written_state(&written, u64::MAX, 2), WrittenState::Unknown);

        let path = folder.path("allocated");
        create_file(&path, bytes, FileFill::Unwritten).unwrap();
        assert_eq!(
            written_state(&open(&path), 0, bytes),
            WrittenState::Unwritten
        );
        // Every second MiB of it, by a buffered write that may still be in memory.
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
        file.write_all_at(&vec![1; 1 << 20], 2 * MIB).unwrap();
        let device = open(&path);
        assert_eq!(
            written_state(&device, 0, bytes),
            WrittenState::Partly {
                unwritten_bytes: 2 * MIB
            }
        );
        assert_eq!(written_state(&device, 2 * MIB, MIB), WrittenState::Written);
        assert_eq!(
            written_state(&device, 3 * MIB, MIB),
            WrittenState::Unwritten
        );
        assert_eq!(
            written_state(&device, MIB / 2, MIB),
            WrittenState::Partly {
                unwritten_bytes: MIB / 2
            }
        );

        // A hole is not written either.
        let path = folder.path("hole");
        File::create(&path).unwrap().set_len(bytes).unwrap();
        assert_eq!(
            written_state(&open(&path), 0, bytes),
            WrittenState::Unwritten
        );
    }
}

#[test]
fn a_file_of_more_extents_than_one_call_tells_is_added_up() {
    let folder = Folder::on_disk();
    let path = folder.path("f");
    let file = File::create(&path).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, 4 * MIB).unwrap();
    let pieces = 200;
    for piece in 0..pieces {
        file.write_all_at(&[1; 4096], piece * 16384).unwrap();
    }
    drop(file);
    let device = open(&path, OpenOptions::read_write()).unwrap();
    let state = written_state(&device, 0, 4 * MIB);
    if state == WrittenState::Unknown {
        skipped("the file system does not tell");
        return;
    }
    assert_eq!(
        state,
        WrittenState::Partly {
            unwritten_bytes: 4 * MIB - pieces * 4096
        }
    );
}

#[test]
fn nothing_is_known_of_the_blocks_of_a_disk() {
    let Some(disk) = Loop::new(512, MIB, &[]) else {
        return;
    };
    let device = open(&disk.path, OpenOptions::read_only()).unwrap();
    assert_eq!(written_state(&device, 0, MIB), WrittenState::Unknown);
}
