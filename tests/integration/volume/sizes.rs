//! Members few and many, equal and not, small and huge; chunks of all sizes.

use std::path::PathBuf;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, setrlimit};
use swath_engine::{AlignedBuf, Geometry, LaneOptions};
use swath_tests::fixtures::{self, MIB};
use swath_tests::sim::{SimPlatform, Store};
use swath_volume::{CreateOptions, Volume};

use super::{KIB, assert_reads, pattern, reopen};

#[test]
fn every_number_of_members_works_with_every_size_of_chunk() {
    let folder = fixtures::folder();
    let paths = fixtures::members(folder.path(), 8, 8 * MIB);
    for count in 1..=8 {
        for chunk in [4 * KIB, 12 * KIB, MIB, 4 * MIB] {
            let volume = fixtures::volume(&paths[..count], chunk);
            let data = 4 * MIB - 4 * MIB % chunk;
            assert_eq!(volume.capacity_bytes(), count as u64 * data);
            let length = volume.capacity_bytes().min(3 * chunk + 513);
            let bytes = pattern(length as usize, count as u64);
            let offset = volume.capacity_bytes() - length;
            volume.write_at(&bytes, offset).unwrap();
            volume.close().unwrap();
            assert_reads(&reopen(&paths[..count]), offset, &bytes);
        }
    }
}

/// Seven members of an EiB and a bit that cost nothing.
fn huge() -> Volume {
    let platform = SimPlatform::new(9);
    let paths: Vec<PathBuf> = (0..7).map(|index| format!("m{index}").into()).collect();
    for path in &paths {
        platform.add(
            path,
            Geometry::uniform((1 << 60) + 4096, 4096),
            Store::sparse(),
        );
    }
    Volume::create_on(Arc::new(platform), &paths, &CreateOptions::default()).unwrap()
}

#[test]
fn huge_members_are_addressed_to_their_end() {
    let volume = huge();
    let end = volume.capacity_bytes();
    assert!(end > 7 * ((1 << 60) - 8 * MIB), "{end}");
    let bytes = pattern(3 * MIB as usize, 1);
    let offset = end - bytes.len() as u64;
    volume.write_at(&bytes, offset).unwrap();
    assert_reads(&volume, offset, &bytes);
    volume.write_zeroes(offset - 4096, MIB + 4096).unwrap();
    assert_reads(&volume, offset - 4096, &vec![0; MIB as usize + 4096]);
    assert_reads(&volume, offset + MIB, &bytes[MIB as usize..]);
}

/// The map gives a segment for each chunk, where a range without memory needs no more than one for
/// each member: all chunks of a huge volume at once would fill any machine's memory.
#[test]
fn zeroing_all_of_a_huge_volume_takes_no_memory_for_each_chunk() {
    fixtures::in_own_process(
        "volume::sizes::zeroing_all_of_a_huge_volume_takes_no_memory_for_each_chunk",
        || {
            let volume = huge();
            volume.write_at(b"gone", 5 << 60).unwrap();
            let limit = Rlimit {
                current: Some(2 << 30),
                maximum: Some(2 << 30),
            };
            setrlimit(Resource::As, limit).unwrap();
            volume.write_zeroes(0, volume.capacity_bytes()).unwrap();
            volume.discard(0, volume.capacity_bytes()).unwrap();
            assert_reads(&volume, 5 << 60, &[0; 4]);
        },
    );
}

/// What could go wrong: blocks of 512 bytes on members that want memory at multiples of 4096. A
/// request that begins on an odd block has a chunk's border at an address that no member takes.
#[test]
fn members_that_want_memory_aligned_to_more_than_a_block_get_larger_blocks() {
    for memory_align in [[512, 4096], [4096, 4096], [4096, 4]] {
        let platform = SimPlatform::new(4);
        let paths: Vec<PathBuf> = (0..2).map(|index| format!("m{index}").into()).collect();
        for (path, memory_align_bytes) in paths.iter().zip(memory_align) {
            let geometry = Geometry {
                memory_align_bytes,
                ..Geometry::uniform(8 * MIB, 512)
            };
            platform.add(path, geometry, Store::sparse());
        }
        let options = CreateOptions {
            chunk_bytes: 4 * KIB,
            ..CreateOptions::default()
        };
        let volume = Volume::create_on(Arc::new(platform), &paths, &options).unwrap();
        assert_eq!(volume.memory_align_bytes(), 4096);
        assert_eq!(volume.block_bytes(), 4096);
        let mut lane = volume.lane(&LaneOptions::default()).unwrap();
        let mut completions = Vec::new();
        for (block, blocks) in [(0, 1), (1, 1), (1, 6), (3, 13)] {
            let bytes = pattern(blocks * 4096, block);
            let offset = block * 4096;
            lane.write(offset, AlignedBuf::copy_of(&bytes).unwrap(), 1);
            lane.wait(1, &mut completions).unwrap();
            completions.pop().unwrap().result.unwrap();
            assert_reads(&volume, offset, &bytes);
        }
        for (offset, length) in [(512, 8192), (1, 20_000), (4095, 4098)] {
            let bytes = AlignedBuf::copy_of(&pattern(length, offset)).unwrap();
            volume.write_at(&bytes, offset).unwrap();
            assert_reads(&volume, offset, &bytes);
        }
    }
}
