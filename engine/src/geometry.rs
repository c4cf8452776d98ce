//! What a device is made of: sizes, alignments and limits, all in bytes.
//!
//! Alignments of memory and of offsets are two things (statx(2), `STATX_DIOALIGN`): the memory
//! alignment is often 4 or 512 where the block is 4096, and that is what lets a caller's own
//! memory be written without a copy.

/// Sizes, alignments and limits of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Size of the device, rounded down to a whole number of logical blocks.
    pub capacity_bytes: u64,
    /// The smallest unit the device addresses (its LBA size): 512 or 4096, a power of two.
    pub logical_block_bytes: u32,
    /// The unit the device writes without a read-modify-write of its own.
    pub physical_block_bytes: u32,
    /// What addresses of memory must be a multiple of.
    pub memory_align_bytes: u32,
    /// What offsets and lengths must be a multiple of.
    pub offset_align_bytes: u32,
    /// The largest transfer the device takes in one command; larger ones are split by the kernel.
    pub transfer_bytes_max: Option<u64>,
    /// The most separate pieces of memory the device takes in one command.
    pub segments_max: Option<u32>,
    /// Whether seeks cost time (spinning disks).
    pub rotational: Option<bool>,
    /// The NUMA node the device hangs on.
    pub numa_node: Option<u32>,
}

impl Geometry {
    /// A device of `capacity_bytes` with one block size for everything and nothing else known,
    /// as simulated devices have it.
    ///
    /// # Panics
    ///
    /// When `block_bytes` is not a power of two.
    pub fn uniform(capacity_bytes: u64, block_bytes: u32) -> Self {
        assert!(
            block_bytes.is_power_of_two(),
            "a block size is a power of two, not {block_bytes}"
        );
        Self {
            capacity_bytes: capacity_bytes - capacity_bytes % u64::from(block_bytes),
            logical_block_bytes: block_bytes,
            physical_block_bytes: block_bytes,
            memory_align_bytes: block_bytes,
            offset_align_bytes: block_bytes,
            transfer_bytes_max: None,
            segments_max: None,
            rotational: None,
            numa_node: None,
        }
    }
}
