//! [`Drive`]: what is known of one block device. What could not be found out is `None`.

use std::path::PathBuf;

use serde::Serialize;

use super::health::Health;
use super::identify::{IdentifyController, IdentifyNamespace};
use super::link::Link;

/// One block device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Drive {
    /// Its node, such as `/dev/nvme0n1`.
    pub node: PathBuf,
    /// Its device number, major and minor: `259:0`.
    pub number: String,
    /// Model.
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// Firmware revision.
    pub firmware: Option<String>,
    /// A name that no other device in the world has, as the kernel puts it together.
    pub world_wide_id: Option<String>,
    /// How it is attached: `pcie`, `tcp`, `rdma`, `fc` or `loop` for NVMe, `sata`, `sas`, `usb`,
    /// `iscsi`, `virtio`, `mmc`.
    pub transport: Option<String>,
    /// Where an NVMe drive is reached, as its transport writes it; of `pcie` the address.
    pub address: Option<String>,
    /// The PCI function that it is, or hangs on.
    pub pcie_address: Option<String>,
    /// Its own PCIe link; none where it is not the only thing on one.
    pub link: Option<Link>,
    /// Size.
    pub capacity_bytes: u64,
    /// The smallest piece that it can be addressed by.
    pub logical_block_bytes: Option<u32>,
    /// The smallest piece that it writes without reading.
    pub physical_block_bytes: Option<u32>,
    /// Whether it turns.
    pub is_rotational: Option<bool>,
    /// Whether it refuses writes.
    pub is_read_only: bool,
    /// `write back`: completed writes may be in volatile memory until a flush; `write through`: not.
    pub write_cache: Option<String>,
    /// Nominal size of its case, where it says so: NVMe drives do not.
    pub form_factor: Option<&'static str>,
    /// The NUMA node of its bus.
    pub numa_node: Option<u32>,
    /// Temperature, by its own log or by the kernel's sensor.
    pub temperature_celsius: Option<i32>,
    /// Who keeps it, or a partition of it: mounts, md, device mapper, swap. As far as the kernel tells.
    pub users: Vec<String>,
    /// Its partitions.
    pub partitions: Vec<String>,
    /// What only NVMe drives have.
    pub nvme: Option<Nvme>,
}

/// What only NVMe drives have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Nvme {
    /// The number of its namespace.
    pub namespace_id: Option<u32>,
    /// Its controllers; more than one where it is reached by several paths.
    pub controllers: Vec<String>,
    /// What the driver says of the controller: `live` is the good state.
    pub state: Option<String>,
    /// Qualified name of the subsystem.
    pub subsystem_nqn: Option<String>,
    /// What the controller says of itself.
    pub controller: Option<IdentifyController>,
    /// What the namespace says of itself.
    pub namespace: Option<IdentifyNamespace>,
    /// What it says of its health.
    pub health: Option<Health>,
    /// Why some of that could not be asked.
    pub unread: Option<Unread>,
}

/// Why something could not be asked of a drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unread {
    /// Whether it is a matter of permission: root can.
    pub needs_root: bool,
    /// The reason.
    pub reason: String,
}
