use super::*;
use crate::superblock::{encode, fixtures};

const AREA: usize = 2 << 20;
const DEVICE_BYTES: u64 = fixtures::DEVICE_BYTES;

/// What a device says that is zero but for these bytes at these offsets.
fn recognised(device_bytes: u64, content: &[(u64, &[u8])]) -> Option<String> {
    let area_bytes = AREA.min(usize::try_from(device_bytes).unwrap());
    let tail_offset = device_bytes - area_bytes as u64;
    let (mut head, mut tail) = (vec![0; area_bytes], vec![0; area_bytes]);
    for (offset, bytes) in content {
        for (area, area_offset) in [(&mut head, 0), (&mut tail, tail_offset)] {
            let Some(start) = offset.checked_sub(area_offset) else {
                continue;
            };
            let start = usize::try_from(start).unwrap();
            if start + bytes.len() <= area_bytes {
                area[start..start + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
    let ends = Ends {
        device_bytes,
        head: &head,
        tail_offset,
        tail: &tail,
    };
    recognise(&ends).map(|found| found.to_string())
}

fn expect(content: &[(u64, &[u8])], words: &str) {
    assert_eq!(recognised(DEVICE_BYTES, content).as_deref(), Some(words));
}

#[test]
fn zeroes_are_nothing() {
    for device_bytes in [0, 1, 511, 4096, 3 << 20, DEVICE_BYTES] {
        assert_eq!(recognised(device_bytes, &[]), None);
    }
}

/// A format that is not known must not look blank.
#[test]
fn any_byte_that_is_not_zero_is_found_with_its_offset() {
    let last = DEVICE_BYTES - 1;
    let tail_offset = DEVICE_BYTES - AREA as u64;
    for offset in [
        0,
        1,
        511,
        512,
        700_001,
        AREA as u64 - 1,
        tail_offset,
        last - 513,
        last,
    ] {
        let words = format!("data (the first byte that is not zero) at offset {offset}");
        expect(&[(offset, &[1]), (last, &[1])], &words);
    }
}

#[test]
fn first_nonzero_agrees_with_a_plain_search() {
    let mut bytes = vec![0_u8; 2000];
    assert_eq!(first_nonzero(&bytes), None);
    assert_eq!(first_nonzero(&[]), None);
    for place in (0..2000).rev() {
        bytes[place] = 0x80;
        assert_eq!(first_nonzero(&bytes), Some(place));
    }
}

#[test]
fn our_own_members_are_named_by_any_copy() {
    let superblock = fixtures::volume(7, 2, 1).remove(1);
    let map = MemberMap::new(DEVICE_BYTES).unwrap();
    for (number, offset) in (0..).zip(map.copy_offsets()) {
        let mut block = encode(&superblock, number, offset);
        let words = format!(
            "Swath member 1 of volume \"volume 7 generation 1\" ({}) at offset {offset}",
            superblock.volume_uuid
        );
        expect(&[(offset, &block)], &words);
        block[200] ^= 1;
        let words = format!("Swath superblock (checksum mismatch) at offset {offset}");
        expect(&[(offset, &block)], &words);
    }
}

#[test]
fn file_systems_are_named() {
    let magic: (u64, &[u8]) = (1080, &[0x53, 0xef]);
    let label: (u64, &[u8]) = (1144, b"root");
    expect(&[magic], "ext2 file system at offset 1024");
    expect(&[magic, (1116, &[4])], "ext3 file system at offset 1024");
    let ext4: (u64, &[u8]) = (1120, &[0x42]);
    expect(
        &[magic, ext4, label],
        "ext4 file system \"root\" at offset 1024",
    );
    expect(
        &[(0, b"XFSB"), (108, b"fast")],
        "XFS file system \"fast\" at offset 0",
    );
    expect(
        &[(0x1_0040, b"_BHRfS_M")],
        "btrfs file system at offset 65536",
    );
    expect(
        &[(1024, b"\x10\x20\xf5\xf2")],
        "F2FS file system at offset 1024",
    );
    expect(
        &[(510, b"\x55\xaa"), (82, b"FAT32   ")],
        "FAT file system at offset 0",
    );
    expect(
        &[(510, b"\x55\xaa"), (3, b"NTFS    ")],
        "NTFS file system at offset 0",
    );
    let bcachefs = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
    expect(&[(4120, bcachefs)], "bcachefs file system at offset 4120");
    let uberblock = 0x00ba_b10c_u64.to_le_bytes();
    for offset in [140 << 10, DEVICE_BYTES - (60 << 10)] {
        expect(
            &[(offset, &uberblock)],
            &format!("ZFS member at offset {offset}"),
        );
    }
}

#[test]
fn partition_tables_are_named() {
    let protective: [(u64, &[u8]); 2] = [(510, b"\x55\xaa"), (450, &[0xee])];
    expect(&protective, "MBR partition table at offset 0");
    for offset in [512, 4096, DEVICE_BYTES - 512, DEVICE_BYTES - 4096] {
        let content = [protective[0], protective[1], (offset, b"EFI PART")];
        expect(&content, &format!("GPT partition table at offset {offset}"));
    }
    expect(&[(510, b"\x55\xaa")], "boot sector at offset 0");
}

#[test]
fn parts_of_other_volumes_are_named() {
    let old = b"\xfc\x4e\x2b\xa9\0\0\0\0";
    let new = b"\xfc\x4e\x2b\xa9\x01\0\0\0";
    // Not a multiple of 64 KiB: version 0.90 rounds down.
    let device_bytes = DEVICE_BYTES + 12 * 1024;
    for (offset, version, magic) in [
        (0, "1.1", new),
        (4096, "1.2", new),
        (device_bytes - 8192, "1.0", new),
        (DEVICE_BYTES - 65536, "0.90", old),
    ] {
        let words = format!("Linux md RAID member, metadata {version} at offset {offset}");
        assert_eq!(recognised(device_bytes, &[(offset, magic)]), Some(words));
    }
    let named = [(4096, &new[..]), (4128, b"host:0")];
    expect(
        &named,
        "Linux md RAID member \"host:0\", metadata 1.2 at offset 4096",
    );
    let lvm: [(u64, &[u8]); 2] = [(512, b"LABELONE"), (536, b"LVM2 001")];
    expect(&lvm, "LVM2 physical volume at offset 512");
    expect(&[(0, b"LUKS\xba\xbe")], "LUKS encrypted volume at offset 0");
    expect(&[(4086, b"SWAPSPACE2")], "Linux swap space at offset 4086");
}

#[test]
fn a_device_smaller_than_any_format_is_looked_at_without_panic() {
    for device_bytes in [1, 3, 511, 513, 1081, 4097, 70_000] {
        let content = [(0, &[0xff_u8; 1][..]), (device_bytes - 1, &[0xff])];
        assert!(recognised(device_bytes, &content).is_some());
    }
}
