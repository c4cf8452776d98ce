//! The health of an NVMe drive: the SMART / Health Information log (log page 02h).
//!
//! - A page in, values out; no I/O. Any bytes are taken.
//! - The layout is in section 5.16.1.3 of the NVM Express Base Specification 2.0; Linux has it as
//!   `struct nvme_smart_log` (include/linux/nvme.h).
//! - Counters are of the drive's whole life, of 128 bits there and of 64 here.

use std::fmt;

use serde::Serialize;

use super::fields::{celsius, counter_at, u8_at, u16_at, u32_at};

/// How many bytes the log has.
pub const HEALTH_BYTES: usize = 512;

/// What a drive says of its health.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    /// What it warns of now.
    pub critical_warnings: Vec<CriticalWarning>,
    /// The temperature that its thresholds mean.
    pub temperature_celsius: Option<i32>,
    /// Spare blocks that are left.
    pub spare_percent: u8,
    /// Below this it warns.
    pub spare_threshold_percent: u8,
    /// How much of the life that its maker expects is used; may pass 100, and 255 stands for more.
    pub endurance_used_percent: u8,
    /// Bytes read from it, in thousands of 512.
    pub data_read_bytes: u64,
    /// Bytes written to it, likewise.
    pub data_written_bytes: u64,
    /// How often it was switched on.
    pub power_cycles: u64,
    /// Hours it was on.
    pub power_on_hours: u64,
    /// How often power went without a warning.
    pub unsafe_shutdowns: u64,
    /// How often data was lost or could not be read.
    pub media_errors: u64,
    /// Entries ever made in its error log.
    pub error_log_entries: u64,
    /// Minutes above the temperature that it warns of.
    pub temperature_warning_minutes: u32,
    /// Minutes above its critical temperature.
    pub temperature_critical_minutes: u32,
}

/// A warning of the drive itself, in the order of its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CriticalWarning {
    /// Spare blocks have fallen below their threshold.
    SpareLow,
    /// It is above or below a threshold of temperature.
    Temperature,
    /// Too many media or internal errors.
    Unreliable,
    /// It takes no more writes.
    ReadOnly,
    /// What keeps its volatile memory through a power loss has failed.
    BackupFailed,
    /// Its persistent memory region has become read-only or unreliable.
    PersistentMemory,
    /// A bit that the specification had not given a meaning when this was written.
    Unknown6,
    /// Likewise.
    Unknown7,
}

impl CriticalWarning {
    /// All of them, by bit.
    pub const ALL: [Self; 8] = [
        Self::SpareLow,
        Self::Temperature,
        Self::Unreliable,
        Self::ReadOnly,
        Self::BackupFailed,
        Self::PersistentMemory,
        Self::Unknown6,
        Self::Unknown7,
    ];
}

impl fmt::Display for CriticalWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SpareLow => "spare blocks are below their threshold",
            Self::Temperature => "its temperature is beyond a threshold",
            Self::Unreliable => "it calls itself unreliable: too many media or internal errors",
            Self::ReadOnly => "it takes no more writes",
            Self::BackupFailed => "the backup of its volatile memory has failed",
            Self::PersistentMemory => "its persistent memory region is read-only or unreliable",
            Self::Unknown6 => "bit 6 of its critical warnings is set",
            Self::Unknown7 => "bit 7 of its critical warnings is set",
        })
    }
}

impl Health {
    /// Reads the page.
    pub fn parse(page: &[u8; HEALTH_BYTES]) -> Self {
        const DATA_UNIT_BYTES: u64 = 512 * 1000;
        let bits = u8_at(page, 0);
        let data = |offset| counter_at(page, offset).saturating_mul(DATA_UNIT_BYTES);
        Self {
            critical_warnings: (0..)
                .zip(CriticalWarning::ALL)
                .filter(|(bit, _)| bits >> bit & 1 != 0)
                .map(|(_, warning)| warning)
                .collect(),
            temperature_celsius: celsius(u16_at(page, 1)),
            spare_percent: u8_at(page, 3),
            spare_threshold_percent: u8_at(page, 4),
            endurance_used_percent: u8_at(page, 5),
            data_read_bytes: data(32),
            data_written_bytes: data(48),
            power_cycles: counter_at(page, 112),
            power_on_hours: counter_at(page, 128),
            unsafe_shutdowns: counter_at(page, 144),
            media_errors: counter_at(page, 160),
            error_log_entries: counter_at(page, 176),
            temperature_warning_minutes: u32_at(page, 192),
            temperature_critical_minutes: u32_at(page, 196),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_gives_its_fields() {
        let mut page = [0; HEALTH_BYTES];
        page[1..3].copy_from_slice(&311_u16.to_le_bytes());
        page[3..6].copy_from_slice(&[98, 10, 3]);
        page[32] = 2;
        page[48] = 5;
        page[112] = 17;
        page[128..130].copy_from_slice(&9001_u16.to_le_bytes());
        page[144] = 4;
        page[160] = 6;
        page[176] = 8;
        page[192] = 11;
        page[196] = 12;
        let want = Health {
            critical_warnings: Vec::new(),
            temperature_celsius: Some(38),
            spare_percent: 98,
            spare_threshold_percent: 10,
            endurance_used_percent: 3,
            data_read_bytes: 1_024_000,
            data_written_bytes: 2_560_000,
            power_cycles: 17,
            power_on_hours: 9001,
            unsafe_shutdowns: 4,
            media_errors: 6,
            error_log_entries: 8,
            temperature_warning_minutes: 11,
            temperature_critical_minutes: 12,
        };
        assert_eq!(Health::parse(&page), want);
    }

    #[test]
    fn each_bit_is_its_own_warning() {
        for (bit, warning) in CriticalWarning::ALL.into_iter().enumerate() {
            let mut page = [0; HEALTH_BYTES];
            page[0] = 1 << bit;
            assert_eq!(Health::parse(&page).critical_warnings, [warning]);
        }
        let all = Health::parse(&[0xff; HEALTH_BYTES]);
        assert_eq!(all.critical_warnings, CriticalWarning::ALL);
        assert_eq!(all.data_written_bytes, u64::MAX);
    }
}
