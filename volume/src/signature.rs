//! What a device carries, told from its first and last bytes, so that a refusal can say what it
//! would destroy.
//!
//! - Bytes in, words out; no I/O. Nothing here is trusted: every offset is checked, nothing panics.
//! - The question "is it blank?" does not depend on knowing a format: any byte that is not zero in
//!   the areas looked at is reported, known or not.
//! - Formats are told by magic numbers where their kernels and tools look for them. A partition
//!   table or a RAID superblock is named before what may lie inside it.

use std::borrow::Cow;
use std::fmt;

use crate::superblock::{COPY_COUNT, DecodeError, MemberMap, SUPERBLOCK_BYTES, decode};

/// How many bytes from each end of a device are looked at.
pub const SIGNATURE_AREA_BYTES: u64 = 2 << 20;

/// The bytes at both ends of a device.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'a> {
    /// The device's size in bytes.
    pub device_bytes: u64,
    /// Its first bytes, [`SIGNATURE_AREA_BYTES`] of them or what there is.
    pub head: &'a [u8],
    /// Where the tail begins.
    pub tail_offset: u64,
    /// Its last bytes, as many. They should reach the very end: a second partition table is in the
    /// last block, wherever that ends.
    pub tail: &'a [u8],
}

/// Something that a device carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    description: Cow<'static, str>,
    offset: u64,
}

impl Signature {
    /// What it is, for a person: `ext4 file system "root"`.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Where on the device it was recognised.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.description, self.offset)
    }
}

/// What a device carries. None when every byte at its ends is zero.
pub fn recognise(device: &Ends<'_>) -> Option<Signature> {
    let in_head = || first_nonzero(device.head).map(|place| place as u64);
    let in_tail = || first_nonzero(device.tail).map(|place| device.tail_offset + place as u64);
    let first = in_head().or_else(in_tail)?;
    let known = swath(device)
        .or_else(|| md(device))
        .or_else(|| partition_table(device))
        .or_else(|| ext(device))
        .or_else(|| zfs(device))
        .or_else(|| by_magic(device));
    Some(known.unwrap_or_else(|| signature("data (the first byte that is not zero)", first)))
}

/// The place of the first byte that is not zero.
///
/// A whole piece is combined before it is looked at, which compilers turn into vector code: a scan
/// of 2 MiB takes some ten microseconds.
pub fn first_nonzero(bytes: &[u8]) -> Option<usize> {
    const PIECE_BYTES: usize = 512;
    for (piece_index, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
        if piece.iter().fold(0, |all, byte| all | byte) != 0 {
            let place = piece.iter().position(|byte| *byte != 0);
            return place.map(|place| piece_index * PIECE_BYTES + place);
        }
    }
    None
}

fn signature(description: impl Into<Cow<'static, str>>, offset: u64) -> Signature {
    Signature {
        description: description.into(),
        offset,
    }
}

impl<'a> Ends<'a> {
    /// The `N` bytes at an offset of the device, if they lie inside one of the areas.
    fn at<const N: usize>(&self, offset: u64) -> Option<&'a [u8; N]> {
        let within = |area: &'a [u8], area_offset: u64| {
            let start = usize::try_from(offset.checked_sub(area_offset)?).ok()?;
            area.get(start..)?.first_chunk::<N>()
        };
        within(self.head, 0).or_else(|| within(self.tail, self.tail_offset))
    }

    fn has(&self, offset: u64, magic: &[u8]) -> bool {
        let area = |area: &[u8], area_offset: u64| {
            let start = offset
                .checked_sub(area_offset)
                .and_then(|start| usize::try_from(start).ok());
            start
                .and_then(|start| area.get(start..))
                .is_some_and(|bytes| bytes.starts_with(magic))
        };
        area(self.head, 0) || area(self.tail, self.tail_offset)
    }

    fn u16(&self, offset: u64) -> Option<u16> {
        self.at(offset).map(|bytes| u16::from_le_bytes(*bytes))
    }

    fn u32(&self, offset: u64) -> Option<u32> {
        self.at(offset).map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn u64(&self, offset: u64) -> Option<u64> {
        self.at(offset).map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// A label of at most `N` bytes, in quotes and with a space before; empty when there is none.
    fn label<const N: usize>(&self, offset: u64) -> String {
        let bytes = self.at::<N>(offset).map_or(&[][..], |bytes| &bytes[..]);
        let end = bytes
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(bytes.len());
        let label = String::from_utf8_lossy(&bytes[..end]);
        if label.is_empty() {
            String::new()
        } else {
            format!(" {label:?}")
        }
    }
}

/// A member of a volume like ours.
fn swath(device: &Ends<'_>) -> Option<Signature> {
    let map = MemberMap::new(device.device_bytes).ok()?;
    let mut remains = None;
    for copy_number in 0..COPY_COUNT {
        let offset = map.copy_offset(copy_number);
        let Some(block) = device.at::<SUPERBLOCK_BYTES>(offset) else {
            continue;
        };
        match decode(block, offset) {
            Ok(superblock) => {
                let words = format!(
                    "Swath member {} of volume {:?} ({})",
                    superblock.member_index, superblock.name, superblock.volume_uuid
                );
                return Some(signature(words, offset));
            }
            Err(DecodeError::Blank | DecodeError::NotSwath) => {}
            Err(error) => {
                let words = || signature(format!("Swath superblock ({error})"), offset);
                remains = remains.or_else(|| Some(words()));
            }
        }
    }
    remains
}

/// A member of a Linux md array: version 1.1 at the start, 1.2 at 4 KiB, 1.0 in the last 8 to
/// 12 KiB, 0.90 in the last 64 to 128 KiB.
fn md(device: &Ends<'_>) -> Option<Signature> {
    const MAGIC: u32 = 0xa92b_4efc;
    let bytes = device.device_bytes;
    let old_offset = (bytes - bytes % (64 << 10)).checked_sub(64 << 10);
    let end_offset = bytes
        .checked_sub(8 << 10)
        .map(|offset| offset - offset % 4096);
    for (version, offset) in [
        ("1.1", Some(0)),
        ("1.2", Some(4096)),
        ("1.0", end_offset),
        ("0.90", old_offset),
    ] {
        let Some(offset) = offset else { continue };
        if device.u32(offset) != Some(MAGIC) {
            continue;
        }
        let major = device.u32(offset + 4)?;
        if major == u32::from(version != "0.90") {
            let name = if major == 1 {
                device.label::<32>(offset + 32)
            } else {
                String::new()
            };
            return Some(signature(
                format!("Linux md RAID member{name}, metadata {version}"),
                offset,
            ));
        }
    }
    None
}

/// GPT, or a boot sector with partitions in it.
fn partition_table(device: &Ends<'_>) -> Option<Signature> {
    const GPT: &[u8] = b"EFI PART";
    let backups = [512, 4096].map(|block_bytes| device.device_bytes.checked_sub(block_bytes));
    for offset in [Some(512), Some(4096)].into_iter().chain(backups).flatten() {
        if device.has(offset, GPT) {
            return Some(signature("GPT partition table", offset));
        }
    }
    if !device.has(510, &[0x55, 0xaa]) {
        return None;
    }
    // FAT and NTFS end their boot sectors in the same way, so look for them first.
    for (offset, magic, words) in [
        (3, &b"NTFS    "[..], "NTFS file system"),
        (3, b"EXFAT   ", "exFAT file system"),
        (54, b"FAT", "FAT file system"),
        (82, b"FAT32", "FAT file system"),
    ] {
        if device.has(offset, magic) {
            return Some(signature(words, 0));
        }
    }
    let entries = device.at::<64>(446)?.as_chunks::<16>().0;
    let is_table = entries.iter().all(|entry| matches!(entry[0], 0 | 0x80))
        && entries.iter().any(|entry| entry[4] != 0);
    let words = if is_table {
        "MBR partition table"
    } else {
        "boot sector"
    };
    Some(signature(words, 0))
}

/// ext2, ext3 or ext4, told apart by their features as libblkid does.
fn ext(device: &Ends<'_>) -> Option<Signature> {
    const OFFSET: u64 = 1024;
    const HAS_JOURNAL: u32 = 0x4;
    // Extents, 64bit, multiple mount protection, flexible groups and all that came later.
    const INCOMPAT_EXT4: u32 = !0x1f;
    // Huge files and all that came later.
    const RO_COMPAT_EXT4: u32 = !0x7;
    if device.u16(OFFSET + 56)? != 0xef53 {
        return None;
    }
    let compat = device.u32(OFFSET + 92)?;
    let incompat = device.u32(OFFSET + 96)?;
    let ro_compat = device.u32(OFFSET + 100)?;
    let kind = if incompat & INCOMPAT_EXT4 != 0 || ro_compat & RO_COMPAT_EXT4 != 0 {
        "ext4"
    } else if compat & HAS_JOURNAL != 0 {
        "ext3"
    } else {
        "ext2"
    };
    let label = device.label::<16>(OFFSET + 120);
    Some(signature(format!("{kind} file system{label}"), OFFSET))
}

/// ZFS: an uberblock in one of the four labels, two at each end.
fn zfs(device: &Ends<'_>) -> Option<Signature> {
    const LABEL_BYTES: u64 = 256 << 10;
    const MAGIC: u64 = 0x00ba_b10c;
    let whole = device.device_bytes - device.device_bytes % LABEL_BYTES;
    let labels = [
        Some(0),
        Some(LABEL_BYTES),
        whole.checked_sub(2 * LABEL_BYTES),
        whole.checked_sub(LABEL_BYTES),
    ];
    for label in labels.into_iter().flatten() {
        for slot in 0..128 {
            let offset = label + (128 << 10) + slot * 1024;
            let found = device.u64(offset);
            if found == Some(MAGIC) || found == Some(MAGIC.swap_bytes()) {
                return Some(signature("ZFS member", offset));
            }
        }
    }
    None
}

/// Formats that a magic number in a fixed place is enough for.
fn by_magic(device: &Ends<'_>) -> Option<Signature> {
    const BCACHEFS: &[u8] = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
    const BCACHE: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
    let with_label =
        |words: &str, label: String, offset| Some(signature(format!("{words}{label}"), offset));
    if device.has(0, b"XFSB") {
        return with_label("XFS file system", device.label::<12>(108), 0);
    }
    if device.has(0x1_0040, b"_BHRfS_M") {
        return with_label("btrfs file system", device.label::<256>(0x1_012b), 0x1_0000);
    }
    let magics: [(u64, &[u8], &'static str); 9] = [
        (0, b"LUKS\xba\xbe", "LUKS encrypted volume"),
        (
            0x4000,
            b"SKUL\xba\xbe",
            "LUKS encrypted volume (second header)",
        ),
        (4096 + 24, BCACHEFS, "bcachefs file system"),
        (4096 + 24, BCACHE, "bcache device"),
        (1024, &[0x10, 0x20, 0xf5, 0xf2], "F2FS file system"),
        (1024, &[0xe2, 0xe1, 0xf5, 0xe0], "EROFS file system"),
        (0, b"hsqs", "squashfs file system"),
        (0, b"bluestore block device", "Ceph BlueStore device"),
        (32769, b"CD001", "ISO 9660 file system"),
    ];
    for (offset, magic, words) in magics {
        if device.has(offset, magic) {
            return Some(signature(words, offset));
        }
    }
    for sector in 0..4 {
        let offset = sector * 512;
        if device.has(offset, b"LABELONE") && device.has(offset + 24, b"LVM2 001") {
            return Some(signature("LVM2 physical volume", offset));
        }
    }
    // The magic of swap space ends the first page, and pages have several sizes.
    for page_bytes in [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10] {
        let offset = page_bytes - 10;
        if device.has(offset, b"SWAPSPACE2") || device.has(offset, b"SWAP-SPACE") {
            return Some(signature("Linux swap space", offset));
        }
    }
    None
}

#[cfg(test)]
mod tests;
