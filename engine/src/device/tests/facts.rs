//! What is known of a device that is open.

use super::*;
use crate::platform::Platform;

#[test]
fn a_file_on_disk_has_the_facts_of_its_disk() {
    let folder = Folder::on_disk();
    let path = folder.file("f", MIB);
    let device = open(&path, OpenOptions::read_write()).unwrap();
    let geometry = device.geometry();
    println!("{geometry:?}");
    if device.kind() != DeviceKind::File {
        skipped("temporary files lie in memory here");
        return;
    }
    assert_eq!(geometry.capacity_bytes, MIB);
    assert!(device.is_direct());
    for bytes in [
        geometry.logical_block_bytes,
        geometry.physical_block_bytes,
        geometry.memory_align_bytes,
        geometry.offset_align_bytes,
    ] {
        assert!(bytes.is_power_of_two(), "{geometry:?}");
    }
    assert!(geometry.physical_block_bytes >= geometry.logical_block_bytes);
    assert!(geometry.logical_block_bytes >= 512);
    assert_eq!(device.access(), Access::ReadWrite);
    assert!(matches!(device.identity(), Identity::File { .. }));
}

#[test]
fn a_file_in_memory_says_so_and_is_aligned_to_4096() {
    let Some(folder) = Folder::in_memory() else {
        return;
    };
    let path = folder.file("f", MIB);
    let device = match open(&path, OpenOptions::read_write()) {
        Ok(device) => device,
        Err(error) => {
            // tmpfs has direct I/O since Linux 6.6.
            assert_eq!(error.kind(), ErrorKind::NotDirect);
            skipped(format_args!("{error}"));
            return;
        }
    };
    assert_eq!(device.kind(), DeviceKind::MemoryFile);
    let geometry = device.geometry();
    assert_eq!(
        geometry,
        &Geometry {
            physical_block_bytes: 4096,
            ..Geometry::uniform(MIB, 4096)
        }
    );
}

#[test]
fn the_capacity_of_an_odd_file_is_rounded_down() {
    let folder = Folder::on_disk();
    let path = folder.path("odd");
    fs::write(&path, vec![1; 10_001]).unwrap();
    let device = open(&path, OpenOptions::read_write()).unwrap();
    let block = u64::from(device.geometry().logical_block_bytes);
    assert_eq!(device.geometry().capacity_bytes, 10_001 - 10_001 % block);
    // Too small to hold a block: it can be opened, and has no bytes.
    let path = folder.path("empty");
    fs::write(&path, []).unwrap();
    assert_eq!(
        open(&path, OpenOptions::read_write())
            .unwrap()
            .geometry()
            .capacity_bytes,
        0
    );
}

#[test]
fn loop_devices_tell_their_own_block_size() {
    for sector_bytes in [512, 4096] {
        // 512 bytes more than 8 MiB: of a drive with blocks of 4096 they cannot be reached.
        let bytes = 8 * MIB + 512;
        let Some(disk) = Loop::new(sector_bytes, bytes, &[]) else {
            return;
        };
        let device = open(&disk.path, OpenOptions::read_write()).unwrap();
        let geometry = device.geometry();
        println!("{geometry:?}");
        assert_eq!(device.kind(), DeviceKind::Block);
        assert!(matches!(device.identity(), Identity::Block { .. }));
        assert!(device.is_direct());
        assert_eq!(
            geometry.capacity_bytes,
            bytes - bytes % u64::from(sector_bytes)
        );
        assert_eq!(geometry.logical_block_bytes, sector_bytes);
        assert_eq!(geometry.offset_align_bytes, sector_bytes);
        assert!(geometry.memory_align_bytes <= sector_bytes);
        assert!(geometry.physical_block_bytes >= sector_bytes);
        assert!(
            geometry
                .transfer_bytes_max
                .is_some_and(|bytes| bytes >= 4096)
        );
        assert!(geometry.segments_max.is_some());
        assert!(geometry.rotational.is_some());
        assert_eq!(geometry.numa_node, None, "a loop device hangs on no bus");
    }
}

#[test]
fn a_partition_has_the_limits_of_its_disk() {
    // The table of a disk with one Linux partition: 2048 sectors from sector 2048 on.
    let mut table = [0; 512];
    table[446 + 4] = 0x83;
    table[446 + 8..446 + 12].copy_from_slice(&2048_u32.to_le_bytes());
    table[446 + 12..446 + 16].copy_from_slice(&2048_u32.to_le_bytes());
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    let Some(disk) = Loop::holding(&table, 512, 4 * MIB, &["--partscan"]) else {
        return;
    };
    let partition = PathBuf::from(format!("{}p1", disk.path.display()));
    if !partition.exists() {
        // A kernel that cannot read the table itself can be told.
        let _ = Command::new("partx").arg("--add").arg(&disk.path).status();
    }
    if !partition.exists() {
        skipped("no partitions on loop devices here");
        return;
    }
    let part = open(&partition, OpenOptions::read_write()).unwrap();
    let geometry = part.geometry();
    assert_eq!(geometry.capacity_bytes, MIB);
    // The disk of a partition that is claimed is in use as well.
    assert_eq!(
        refused(&disk.path, OpenOptions::read_write()).kind(),
        ErrorKind::InUse
    );
    let whole = open(&disk.path, OpenOptions::look()).unwrap();
    assert_ne!(whole.identity(), part.identity());
    assert!(geometry.transfer_bytes_max.is_some());
    assert_eq!(
        &Geometry {
            capacity_bytes: 4 * MIB,
            ..geometry.clone()
        },
        whole.geometry()
    );
}

#[test]
fn an_alignment_that_is_refused_is_raised_to_4096() {
    use align::{Alignment, checked};
    let Some(disk) = Loop::new(4096, MIB, &[]) else {
        return;
    };
    let device = open(&disk.path, OpenOptions::read_only()).unwrap();
    let descriptor = device.descriptor().unwrap();
    let claimed = Alignment {
        memory_bytes: 512,
        offset_bytes: 512,
    };
    let proved = checked(descriptor, claimed, MIB).unwrap();
    assert_eq!(
        proved,
        Some(Alignment {
            memory_bytes: 4096,
            offset_bytes: 4096
        })
    );
    // Nothing can be proved on a device without a block, and nothing is refused.
    assert_eq!(checked(descriptor, claimed, 511).unwrap(), Some(claimed));
}

#[test]
fn every_path_to_one_device_gives_one_identity() {
    let folder = Folder::on_disk();
    let file = folder.file("f", 4096);
    let other = folder.file("g", 4096);
    let (soft, hard) = (folder.path("soft"), folder.path("hard"));
    symlink("f", &soft).unwrap();
    fs::hard_link(&file, &hard).unwrap();
    let identity = |path: &Path| open(path, OpenOptions::read_only()).unwrap().identity();
    assert_eq!(identity(&soft), identity(&file));
    assert_eq!(identity(&hard), identity(&file));
    assert_ne!(identity(&other), identity(&file));

    let Some(disk) = Loop::new(512, MIB, &[]) else {
        return;
    };
    let by_id = folder.path("by-id");
    symlink(&disk.path, &by_id).unwrap();
    assert_eq!(identity(&by_id), identity(&disk.path));
}

#[test]
fn the_descriptor_is_direct_blocking_and_closed_on_exec() {
    use rustix::fs::OFlags;
    let folder = Folder::on_disk();
    let device = open(folder.file("f", MIB), OpenOptions::read_write()).unwrap();
    let descriptor = device.descriptor().unwrap();
    let flags = rustix::fs::fcntl_getfl(descriptor).unwrap();
    assert_eq!(flags.contains(OFlags::DIRECT), device.is_direct());
    assert!(!flags.contains(OFlags::NONBLOCK));
    assert!(flags.contains(OFlags::RDWR | OFlags::NOATIME));
    let flags = rustix::io::fcntl_getfd(descriptor).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
}

#[test]
fn the_platform_opens_the_same_device() {
    let folder = Folder::on_disk();
    let path = folder.file("f", MIB);
    let device = Kernel.open(&path, &OpenOptions::read_only()).unwrap();
    assert_eq!(device.path(), path);
    assert_eq!(device.geometry().capacity_bytes, MIB);
}
