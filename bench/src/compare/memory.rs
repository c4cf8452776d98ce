//! The memory that fio's buffers lie in: huge pages wherever it can have them, since 1 MiB of small
//! pages is more pieces than one command of many devices takes.

use std::fs;

use serde::Serialize;

/// What fio's buffers are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FioMemory {
    /// Huge pages that were reserved for whoever maps them: `--iomem=mmaphuge`.
    Reserved,
    /// Transparent ones, which fio has no option for, but the C library's allocator has.
    Transparent,
    /// Small pages.
    Small,
}

/// The C library's `malloc` asks for transparent huge pages when told so (since glibc 2.35).
pub(crate) const TRANSPARENT_BY: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

/// What huge pages this machine has for fio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HugePages {
    /// Bytes of one.
    pub(crate) page_bytes: u64,
    /// Reserved and not in use.
    pub(crate) free_count: u64,
    /// Whether memory can have transparent ones when it asks.
    pub(crate) transparent: bool,
}

impl HugePages {
    /// Asks the kernel.
    pub(crate) fn now() -> Self {
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        Self {
            page_bytes: field(&memory, "Hugepagesize:").unwrap_or(2048) * 1024,
            free_count: field(&memory, "HugePages_Free:").unwrap_or(0),
            transparent: setting.is_ok_and(|text| !text.contains("[never]")),
        }
    }

    /// How many reserved ones buffers of so many bytes take: fio aligns them, too.
    pub(crate) fn needed_count(&self, buffer_bytes: u64) -> u64 {
        buffer_bytes.div_ceil(self.page_bytes.max(1)) + 1
    }

    /// The best that fio can get for buffers of so many bytes.
    pub(crate) fn best_for(&self, buffer_bytes: u64) -> FioMemory {
        if self.free_count >= self.needed_count(buffer_bytes) {
            FioMemory::Reserved
        } else if self.transparent && buffer_bytes >= self.page_bytes {
            FioMemory::Transparent
        } else {
            FioMemory::Small
        }
    }

    /// What a reader must know of it: whether fio did without reserved pages, and how to give it
    /// some.
    pub(crate) fn note(&self, buffer_bytes_max: u64) -> Option<String> {
        let needed = self.needed_count(buffer_bytes_max);
        if self.free_count >= needed {
            return None;
        }
        let instead = if !self.transparent {
            "fio's best has small pages and is slower for it in large blocks"
        } else if buffer_bytes_max >= self.page_bytes {
            "fio's best has transparent ones from malloc instead of --iomem=mmaphuge"
        } else {
            "fio's best has small pages, which cost nothing at these block sizes"
        };
        Some(format!(
            "{} huge pages are reserved and free, {needed} are needed: {instead}; \
             `sysctl vm.nr_hugepages={needed}` reserves them",
            self.free_count
        ))
    }
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// How many bytes of a process lie in huge pages at this moment, transparent and reserved ones.
pub(crate) fn huge_bytes_of(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    let names = ["AnonHugePages:", "Private_Hugetlb:", "Shared_Hugetlb:"];
    let kib = names.iter().filter_map(|name| field(&text, name));
    Some(kib.sum::<u64>() * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn pages(free_count: u64, transparent: bool) -> HugePages {
        HugePages {
            page_bytes: 2 * MIB,
            free_count,
            transparent,
        }
    }

    #[test]
    fn reserved_pages_come_first_then_transparent_ones() {
        assert_eq!(pages(5, true).best_for(8 * MIB), FioMemory::Reserved);
        assert_eq!(pages(4, true).best_for(8 * MIB), FioMemory::Transparent);
        assert_eq!(pages(0, false).best_for(8 * MIB), FioMemory::Small);
        // Less than one page has nothing to gain.
        assert_eq!(pages(0, true).best_for(MIB / 2), FioMemory::Small);
    }

    #[test]
    fn doing_without_is_never_silent() {
        assert_eq!(pages(5, true).note(8 * MIB), None);
        let note = pages(0, true).note(8 * MIB).unwrap();
        assert!(note.contains("nr_hugepages=5") && note.contains("transparent"));
        let note = pages(0, false).note(8 * MIB).unwrap();
        assert!(note.contains("slower"), "{note}");
    }

    #[test]
    fn this_machine_and_this_process_can_be_asked() {
        assert!(HugePages::now().page_bytes >= MIB);
        // Sandboxes may hide the file; where it is there, it can be read.
        if let Some(bytes) = huge_bytes_of(std::process::id()) {
            assert!(bytes.is_multiple_of(4096));
        }
    }
}
