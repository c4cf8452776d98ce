//! What an NVMe controller and a namespace say of themselves: the pages of Identify.
//!
//! - Pages in, values out; no I/O. Any bytes are taken: drives are not believed, only shown.
//! - The layout of Identify Controller (CNS 01h) is in section 5.17.2.1 of the NVM Express Base
//!   Specification 2.0, that of Identify Namespace (CNS 00h) in section 4.1.5.1 of the NVM Command
//!   Set Specification 1.0. Linux has both as `struct nvme_id_ctrl` and `struct nvme_id_ns`
//!   (include/linux/nvme.h); the offsets here are counted from there.

use std::fmt;

use serde::{Serialize, Serializer};

use super::fields::{celsius, counter_at, text_at, u8_at, u16_at, u32_at, u64_at};

/// How many bytes each Identify command returns.
pub const IDENTIFY_BYTES: usize = 4096;

/// What a controller says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IdentifyController {
    /// The vendor's number at the PCI-SIG (VID).
    pub vendor_id: u16,
    /// Serial number (SN).
    pub serial: Option<String>,
    /// Model (MN).
    pub model: Option<String>,
    /// Firmware revision (FR).
    pub firmware: Option<String>,
    /// The specification it follows (VER); none before 1.2.
    pub version: Option<NvmeVersion>,
    /// All its capacity (TNVMCAP); none where it does not manage namespaces.
    pub capacity_bytes: Option<u64>,
    /// From here on it calls itself too warm (WCTEMP).
    pub temperature_warning_celsius: Option<i32>,
    /// From here on it may stop working (CCTEMP).
    pub temperature_critical_celsius: Option<i32>,
    /// Whether completed writes may still be in memory that a power loss empties (VWC).
    pub has_volatile_write_cache: bool,
}

impl IdentifyController {
    /// Reads the page.
    pub fn parse(page: &[u8; IDENTIFY_BYTES]) -> Self {
        let version = u32_at(page, 80);
        let capacity_bytes = counter_at(page, 280);
        Self {
            vendor_id: u16_at(page, 0),
            serial: text_at::<20>(page, 4),
            model: text_at::<40>(page, 24),
            firmware: text_at::<8>(page, 64),
            version: (version != 0).then_some(NvmeVersion(version)),
            capacity_bytes: (capacity_bytes != 0).then_some(capacity_bytes),
            temperature_warning_celsius: celsius(u16_at(page, 266)),
            temperature_critical_celsius: celsius(u16_at(page, 268)),
            has_volatile_write_cache: u8_at(page, 525) & 1 != 0,
        }
    }

    /// Whether a log page can be read without clearing the event that told of it: "Retain
    /// Asynchronous Event" came with version 1.3.
    pub(super) fn can_retain_events(&self) -> bool {
        self.version >= Some(NvmeVersion(0x0001_0300))
    }
}

/// A version of the specification, such as 1.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NvmeVersion(u32);

impl fmt::Display for NvmeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [tertiary, minor, low, high] = self.0.to_le_bytes();
        write!(f, "{}.{minor}", u16::from_le_bytes([low, high]))?;
        if tertiary != 0 {
            write!(f, ".{tertiary}")?;
        }
        Ok(())
    }
}

impl Serialize for NvmeVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What a namespace says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IdentifyNamespace {
    /// Its size in blocks (NSZE).
    pub size_blocks: u64,
    /// How many blocks of it may be allocated at a time (NCAP): less where it is thin.
    pub capacity_blocks: u64,
    /// How many are allocated (NUSE).
    pub used_blocks: u64,
    /// The formats it can be given (LBAF), without those that are not available.
    pub formats: Vec<BlockFormat>,
}

/// A format of a namespace's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BlockFormat {
    /// Data of a block.
    pub block_bytes: u64,
    /// Metadata beside it.
    pub metadata_bytes: u16,
    /// How fast the drive is with it.
    pub performance: RelativePerformance,
    /// Whether the namespace has it now.
    pub is_in_use: bool,
}

/// How fast a drive is with a format, compared with its others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RelativePerformance {
    /// The fastest.
    Best,
    /// Between the best and good.
    Better,
    /// Between better and degraded.
    Good,
    /// The slowest.
    Degraded,
}

impl IdentifyNamespace {
    /// Reads the page.
    pub fn parse(page: &[u8; IDENTIFY_BYTES]) -> Self {
        const FORMATS_MAX: u8 = 64;
        // One less than how many there are.
        let last = u8_at(page, 25).min(FORMATS_MAX - 1);
        let selector = u8_at(page, 26);
        let in_use = (selector & 0xf) | ((selector & 0x60) >> 1);
        let format = |index: u8| {
            let offset = 128 + 4 * usize::from(index);
            let shift = u8_at(page, offset + 2);
            // Blocks are of 512 bytes at least; 0 stands for a format that is not available now.
            if shift < 9 {
                return None;
            }
            Some(BlockFormat {
                block_bytes: 1_u64.checked_shl(u32::from(shift))?,
                metadata_bytes: u16_at(page, offset),
                performance: match u8_at(page, offset + 3) & 3 {
                    0 => RelativePerformance::Best,
                    1 => RelativePerformance::Better,
                    2 => RelativePerformance::Good,
                    _ => RelativePerformance::Degraded,
                },
                is_in_use: index == in_use,
            })
        };
        Self {
            size_blocks: u64_at(page, 0),
            capacity_blocks: u64_at(page, 8),
            used_blocks: u64_at(page, 16),
            formats: (0..=last).filter_map(format).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_tells_who_it_is() {
        let mut page = [0; IDENTIFY_BYTES];
        page[..2].copy_from_slice(&[0x4d, 0x14]);
        page[4..24].copy_from_slice(b"S6XYNE0T123456      ");
        page[24..64].copy_from_slice(b"SAMSUNG MZWLO3T8HCLS-00A07              ");
        page[64..72].copy_from_slice(b"OPPA1B5Q");
        page[80..84].copy_from_slice(&0x0002_0001_u32.to_le_bytes());
        page[266..270].copy_from_slice(&[0x61, 0x01, 0x66, 0x01]);
        page[280..288].copy_from_slice(&3_840_755_982_336_u64.to_le_bytes());
        page[525] = 0b111;
        let controller = IdentifyController::parse(&page);
        assert_eq!(controller.vendor_id, 0x144d);
        assert_eq!(controller.serial.as_deref(), Some("S6XYNE0T123456"));
        assert_eq!(
            controller.model.as_deref(),
            Some("SAMSUNG MZWLO3T8HCLS-00A07")
        );
        assert_eq!(controller.firmware.as_deref(), Some("OPPA1B5Q"));
        assert_eq!(controller.version.unwrap().to_string(), "2.0.1");
        assert_eq!(controller.temperature_warning_celsius, Some(80));
        assert_eq!(controller.temperature_critical_celsius, Some(85));
        assert_eq!(controller.capacity_bytes, Some(3_840_755_982_336));
        assert!(controller.has_volatile_write_cache && controller.can_retain_events());
    }

    #[test]
    fn an_old_controller_is_not_asked_to_retain_events() {
        for (version, text, can) in [
            (0x0001_0201_u32, "1.2.1", false),
            (0x0001_0300, "1.3", true),
            (0x0001_0400, "1.4", true),
        ] {
            let mut page = [0; IDENTIFY_BYTES];
            page[80..84].copy_from_slice(&version.to_le_bytes());
            let controller = IdentifyController::parse(&page);
            assert_eq!(controller.version.unwrap().to_string(), text);
            assert_eq!(controller.can_retain_events(), can, "{text}");
        }
        let blank = IdentifyController::parse(&[0; IDENTIFY_BYTES]);
        assert!(!blank.can_retain_events() && blank.version.is_none());
    }

    #[test]
    fn a_namespace_tells_its_formats() {
        let mut page = [0; IDENTIFY_BYTES];
        page[..8].copy_from_slice(&7_501_476_528_u64.to_le_bytes());
        page[25] = 3;
        page[26] = 2;
        // 512, 512 + 8 of metadata, 4096, and one that is not available.
        for (index, format) in [[0, 0, 9, 2], [8, 0, 9, 3], [0, 0, 12, 0], [0; 4]]
            .into_iter()
            .enumerate()
        {
            page[128 + 4 * index..][..4].copy_from_slice(&format);
        }
        let namespace = IdentifyNamespace::parse(&page);
        assert_eq!(namespace.size_blocks, 7_501_476_528);
        let told: Vec<(u64, u16, bool)> = namespace
            .formats
            .iter()
            .map(|format| (format.block_bytes, format.metadata_bytes, format.is_in_use))
            .collect();
        assert_eq!(
            told,
            [(512, 0, false), (512, 8, false), (4096, 0, true)],
            "{namespace:?}"
        );
        assert_eq!(namespace.formats[2].performance, RelativePerformance::Best);
    }

    #[test]
    fn a_page_of_ones_has_formats_within_bounds() {
        let namespace = IdentifyNamespace::parse(&[0xff; IDENTIFY_BYTES]);
        // A block of 2^255 bytes is none.
        assert_eq!(namespace.formats, []);
    }
}
