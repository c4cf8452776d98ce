//! fio's command line for one turn.

use std::path::PathBuf;
use std::time::Duration;

use crate::compare::memory::FioMemory;
use crate::compare::settings::FioSettings;
use crate::workload::{Cell, Pattern};

/// I/Os that fio does on one file before it goes to the next, in random cells. It takes the files'
/// records from the processor's caches then, and is a few percent faster than by one at a time.
const RANDOM_TURN: u64 = 16;

/// Where fio works: the data areas of all members, and so neither superblock of any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) members: Vec<PathBuf>,
    /// The first byte on each.
    pub(crate) offset_bytes: u64,
    /// Bytes on each.
    pub(crate) member_bytes: u64,
    /// The volume's chunk: sequential cells visit the members in turns of so many bytes, as the
    /// volume does.
    pub(crate) chunk_bytes: u64,
}

/// The arguments for one turn on `region`.
pub(crate) fn arguments(
    region: &Region,
    cell: &Cell,
    settings: FioSettings,
    core: usize,
    ramp: Duration,
    runtime: Duration,
) -> Vec<String> {
    let members = u64::try_from(region.members.len()).unwrap_or(u64::MAX);
    let mut found = vec![
        "--name=swath-compare".to_owned(),
        format!("--filename={}", file_names(&region.members)),
        format!("--offset={}", region.offset_bytes),
        // fio divides it among the files.
        format!("--size={}", region.member_bytes.saturating_mul(members)),
        format!("--rw={}", cell.pattern),
        format!("--bs={}", cell.block_bytes),
        "--direct=1".to_owned(),
        "--time_based=1".to_owned(),
        format!("--ramp_time={}ms", ramp.as_millis()),
        format!("--runtime={}ms", runtime.as_millis()),
        // The members are there, whole, or something is wrong.
        "--allow_file_create=0".to_owned(),
        // A thread ends with the program that is ended; a process of its own would go on.
        "--thread=1".to_owned(),
        format!("--cpus_allowed={core}"),
        "--eta=never".to_owned(),
        "--output-format=json".to_owned(),
    ];
    let mut add = |text: &str| found.push(text.to_owned());
    if settings != FioSettings::Defaults {
        add("--norandommap=1");
        add("--gtod_reduce=1");
        add("--scramble_buffers=0");
        let turn = turn(region, cell);
        add(&format!("--file_service_type=roundrobin:{turn}"));
        if settings.memory() == FioMemory::Reserved {
            add("--iomem=mmaphuge");
        }
    }
    match settings {
        FioSettings::Defaults => {
            add("--ioengine=io_uring");
            add(&format!("--iodepth={}", cell.depth));
        }
        FioSettings::Ring { batching, .. } => {
            add("--ioengine=io_uring");
            add("--fixedbufs=1");
            add("--registerfiles=1");
            add(&format!("--iodepth={}", cell.depth));
            add(&format!("--iodepth_batch_submit={}", batching.batch));
            let min = batching.complete_min;
            add(&format!("--iodepth_batch_complete_min={min}"));
            add(&format!("--iodepth_batch_complete_max={}", batching.batch));
        }
        FioSettings::Plain { .. } => add("--ioengine=psync"),
    }
    found
}

/// I/Os on one file before the next.
fn turn(region: &Region, cell: &Cell) -> u64 {
    match cell.pattern {
        Pattern::RandRead | Pattern::RandWrite => RANDOM_TURN,
        Pattern::Read | Pattern::Write => (region.chunk_bytes / cell.block_bytes).max(1),
    }
}

/// Divided by colons; those of a name itself are escaped.
fn file_names(members: &[PathBuf]) -> String {
    let names = members.iter().map(|path| {
        let name = path.display().to_string();
        name.replace('\\', r"\\").replace(':', r"\:")
    });
    names.collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::settings::Batching;

    fn region() -> Region {
        Region {
            members: vec!["/a/0".into(), "/a/b:1".into()],
            offset_bytes: 1 << 20,
            member_bytes: 60 << 20,
            chunk_bytes: 1 << 20,
        }
    }

    fn line(pattern: Pattern, block_bytes: u64, settings: FioSettings) -> String {
        let cell = Cell {
            pattern,
            block_bytes,
            depth: 128,
            lanes: 1,
        };
        let ramp = Duration::from_millis(500);
        let runtime = Duration::from_secs(3);
        arguments(&region(), &cell, settings, 1, ramp, runtime).join(" ")
    }

    fn ring(memory: FioMemory) -> FioSettings {
        let batching = Batching {
            batch: 32,
            complete_min: 8,
        };
        FioSettings::Ring { batching, memory }
    }

    #[test]
    fn the_best_has_batches_fixed_buffers_registered_files_and_huge_pages() {
        assert_eq!(
            line(Pattern::RandRead, 4096, ring(FioMemory::Reserved)),
            r"--name=swath-compare --filename=/a/0:/a/b\:1 --offset=1048576 --size=125829120 --rw=randread --bs=4096 --direct=1 --time_based=1 --ramp_time=500ms --runtime=3000ms --allow_file_create=0 --thread=1 --cpus_allowed=1 --eta=never --output-format=json --norandommap=1 --gtod_reduce=1 --scramble_buffers=0 --file_service_type=roundrobin:16 --iomem=mmaphuge --ioengine=io_uring --fixedbufs=1 --registerfiles=1 --iodepth=128 --iodepth_batch_submit=32 --iodepth_batch_complete_min=8 --iodepth_batch_complete_max=32"
        );
    }

    #[test]
    fn the_defaults_have_none_of_it_and_the_same_depth() {
        let text = line(Pattern::RandRead, 4096, FioSettings::Defaults);
        assert!(text.ends_with("--output-format=json --ioengine=io_uring --iodepth=128"));
        for part in ["--direct=1", "--offset=1048576", "--cpus_allowed=1"] {
            assert!(text.contains(part), "{part}");
        }
    }

    #[test]
    fn sequential_cells_visit_files_as_the_volume_does() {
        let small = line(Pattern::Write, 4096, ring(FioMemory::Small));
        assert!(small.contains("--file_service_type=roundrobin:256 "));
        assert!(!small.contains("--iomem"));
        let large = line(Pattern::Read, 1 << 20, ring(FioMemory::Transparent));
        assert!(large.contains("--file_service_type=roundrobin:1 "));
    }

    #[test]
    fn plain_calls_have_no_depth() {
        let memory = FioMemory::Small;
        let text = line(Pattern::RandRead, 4096, FioSettings::Plain { memory });
        assert!(text.ends_with("--ioengine=psync") && !text.contains("--iodepth"));
    }
}
