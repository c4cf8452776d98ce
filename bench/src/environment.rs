//! The conditions of a run, without which its numbers are a rumour.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{major, minor};
use serde::Serialize;
use swath_engine::inventory::{self, Drive, Link, PageSource, RawPages, Roots, Scope};
use swath_engine::{Device, DeviceKind, cpu};
use swath_volume::Volume;

/// Machine, kernel and devices.
#[derive(Debug, Clone, Serialize)]
pub struct Environment {
    /// Date and time of the run, UTC.
    pub date: String,
    /// Kernel release.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// Cores this process may run on.
    pub cores: usize,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Setting of transparent huge pages.
    pub transparent_hugepages: String,
    /// The commit this program was built from, if git told.
    pub commit: Option<String>,
    /// What was done to the devices before they were measured.
    pub preconditioning: String,
    /// The members' devices, in the volume's order.
    pub devices: Vec<DeviceReport>,
}

/// One device.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceReport {
    /// The path it was opened by.
    pub path: String,
    /// `file`, `memory file`, `block device` or `simulated`.
    pub kind: &'static str,
    /// Size.
    pub capacity_bytes: u64,
    /// Smallest unit it addresses.
    pub logical_block_bytes: u32,
    /// Unit it writes without a read-modify-write.
    pub physical_block_bytes: u32,
    /// Alignment of memory.
    pub memory_align_bytes: u32,
    /// Alignment of offsets and lengths.
    pub offset_align_bytes: u32,
    /// Largest transfer in one command.
    pub transfer_bytes_max: Option<u64>,
    /// Most pieces of memory in one command.
    pub segments_max: Option<u32>,
    /// Whether seeks cost time.
    pub rotational: Option<bool>,
    /// NUMA node.
    pub numa_node: Option<u32>,
    /// Model of the drive, as sysfs has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its PCIe link, as it runs and as it could.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
}

/// Pages of drives that nobody asks for: what sysfs tells is enough, and a run sends no question to
/// a drive that it is about to measure.
#[derive(Debug)]
struct Unasked;

impl PageSource for Unasked {
    fn pages(&self, _: &Path, _: u64, _: u32) -> swath_engine::Result<RawPages> {
        Err(swath_engine::Error::new(
            swath_engine::ErrorKind::Unsupported,
            "not asked",
        ))
    }
}

/// The whole drive at `path`, if that is a block device and sysfs knows it.
fn drive_at(path: &Path) -> Option<Drive> {
    let metadata = fs::metadata(path).ok()?;
    if !metadata.file_type().is_block_device() {
        return None;
    }
    let number = metadata.rdev();
    let scope = Scope::Numbers(vec![format!("{}:{}", major(number), minor(number))]);
    let found = inventory::drives(&Roots::default(), &Unasked, &scope).ok()?;
    found.into_iter().next()
}

impl Environment {
    /// Looks around.
    pub fn collect(volume: &Volume, preconditioning: &str) -> Self {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            date: format_utc(now.as_secs()),
            kernel: read_line("/proc/sys/kernel/osrelease"),
            cpu: proc_field("/proc/cpuinfo", "model name"),
            cores: cpu::available().len(),
            memory_bytes: memory_field("MemTotal"),
            transparent_hugepages: chosen(&read_line(
                "/sys/kernel/mm/transparent_hugepage/enabled",
            )),
            commit: option_env!("SWATH_COMMIT").map(str::to_owned),
            preconditioning: preconditioning.to_owned(),
            devices: volume
                .members()
                .iter()
                .map(|member| DeviceReport::of(member.device.as_ref()))
                .collect(),
        }
    }
}

impl DeviceReport {
    fn of(device: &dyn Device) -> Self {
        let geometry = device.geometry();
        let drive = drive_at(device.path());
        Self {
            path: device.path().display().to_string(),
            kind: match device.kind() {
                DeviceKind::File => "file",
                DeviceKind::MemoryFile => "memory file",
                DeviceKind::Block => "block device",
                DeviceKind::Simulated => "simulated",
            },
            capacity_bytes: geometry.capacity_bytes,
            logical_block_bytes: geometry.logical_block_bytes,
            physical_block_bytes: geometry.physical_block_bytes,
            memory_align_bytes: geometry.memory_align_bytes,
            offset_align_bytes: geometry.offset_align_bytes,
            transfer_bytes_max: geometry.transfer_bytes_max,
            segments_max: geometry.segments_max,
            rotational: geometry.rotational,
            numa_node: geometry.numa_node,
            model: drive.as_ref().and_then(|drive| drive.model.clone()),
            link: drive.and_then(|drive| drive.link),
        }
    }
}

const UNKNOWN: &str = "unknown";

fn read_line(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).map_or_else(|_| UNKNOWN.to_owned(), |text| text.trim().to_owned())
}

/// The value of the first `name : value` line of a file in /proc.
fn proc_field(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    });
    line.unwrap_or_else(|| UNKNOWN.to_owned())
}

/// Memory that can be had without swapping; none where the kernel does not say.
pub(crate) fn memory_available_bytes() -> Option<u64> {
    Some(memory_field("MemAvailable")).filter(|bytes| *bytes > 0)
}

fn memory_field(name: &str) -> u64 {
    let kib = proc_field("/proc/meminfo", name);
    kib.split(' ')
        .next()
        .and_then(|number| number.parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

/// Of `always [madvise] never`, the word in brackets.
fn chosen(choices: &str) -> String {
    let word = choices
        .split('[')
        .nth(1)
        .and_then(|rest| rest.split(']').next());
    word.unwrap_or(choices).to_owned()
}

/// Seconds since 1970 as `2026-01-31T12:34:56Z`, by the civil calendar.
pub(crate) fn format_utc(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    // Days since 0000-03-01, so that a leap day is the last of its year, in eras of 400 years
    // (Hinnant, "chrono-Compatible Low-Level Date Algorithms").
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3600,
        second % 3600 / 60,
        second % 60
    )
}

/// The arguments as a shell would take them again.
pub fn quote_command<I: IntoIterator<Item = String>>(arguments: I) -> String {
    let quoted = arguments.into_iter().map(|argument| {
        let is_plain =
            |letter: char| letter.is_ascii_alphanumeric() || "-_=+,./:@%".contains(letter);
        if !argument.is_empty() && argument.chars().all(is_plain) {
            argument
        } else {
            format!("'{}'", argument.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_is_found_by_its_node_and_a_file_has_none() {
        assert!(drive_at(Path::new("/proc/version")).is_none());
        assert!(drive_at(Path::new("/dev/null")).is_none());
        let disks = ["/dev/vda", "/dev/sda", "/dev/nvme0n1"].map(Path::new);
        for disk in disks.into_iter().filter(|disk| disk.exists()) {
            let drive = drive_at(disk).map(|drive| drive.node);
            assert_eq!(drive.as_deref(), Some(disk));
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(format_utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(format_utc(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(format_utc(1_767_225_599), "2025-12-31T23:59:59Z");
        assert_eq!(format_utc(1_767_225_600), "2026-01-01T00:00:00Z");
    }

    #[test]
    fn commands_are_quoted_where_a_shell_needs_it() {
        let words = ["swath-matrix", "--bs", "4k,1m", "a b", "it's", ""].map(str::to_owned);
        assert_eq!(
            quote_command(words),
            r"swath-matrix --bs 4k,1m 'a b' 'it'\''s' ''"
        );
    }

    #[test]
    fn the_setting_is_the_word_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("unknown"), "unknown");
    }
}
