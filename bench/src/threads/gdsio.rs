//! gdsio's result line, for scripts that parse it.
//!
//! The form is that of gdsio's own output, as NVIDIA's page on testing GPUDirect Storage shows it
//! (<https://docs.nvidia.com/deploy/gds-support-for-nvme/test-gds.html>). Its numbers are gdsio's,
//! too: KiB and GiB, microseconds, seconds.

use crate::report::CellReport;
use crate::workload::Pattern;

/// gdsio's name for transfers between drives and CPU memory (its `-x 1`). No GPU takes part.
pub const XFER_TYPE: &str = "CPUONLY";

/// The line of one cell on a volume of `volume_bytes`. The data set is what its threads' regions
/// hold together; of it, as with gdsio's `-T`, more may have been moved than there is.
pub fn gdsio_line(cell: &CellReport, volume_bytes: u64) -> String {
    let io_type = match cell.rw {
        Pattern::Read => "READ",
        Pattern::Write => "WRITE",
        Pattern::RandRead => "RANDREAD",
        Pattern::RandWrite => "RANDWRITE",
    };
    let threads = u64::from(cell.numjobs);
    let region_blocks = volume_bytes / cell.bs / threads.max(1);
    let data_set_bytes = region_blocks * threads * cell.bs;
    format!(
        "IoType: {io_type} XferType: {XFER_TYPE} Threads: {threads} DataSetSize: {}/{}(KiB) \
         IOSize: {}(KiB) Throughput: {:.6} GiB/sec, Avg_Latency: {:.6} usecs ops: {} total_time \
         {:.6} secs",
        cell.bytes >> 10,
        data_set_bytes >> 10,
        cell.bs >> 10,
        cell.bw_bytes as f64 / f64::from(1 << 30),
        cell.lat_ns.mean / 1e3,
        cell.ios,
        cell.runtime_ms as f64 / 1e3,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::measurement;
    use crate::subject::DataState;
    use crate::threads::thread_cells;

    #[test]
    fn the_line_is_gdsios() {
        let cell = thread_cells(&[Pattern::RandRead], &[4096], &[3])[0];
        let runs = [measurement(262_144)];
        let report = CellReport::of(&cell, DataState::Written, &runs, &[]).unwrap();
        // Five blocks: a region of one for each thread.
        assert_eq!(
            gdsio_line(&report, 5 * 4096),
            "IoType: RANDREAD XferType: CPUONLY Threads: 3 DataSetSize: 1048576/12(KiB) IOSize: \
             4(KiB) Throughput: 1.000000 GiB/sec, Avg_Latency: 61.234500 usecs ops: 262144 \
             total_time 1.000000 secs"
        );
    }
}
