//! What drives this machine has: an inventory from sysfs, and from NVMe drives themselves.
//!
//! ```text
//! folder, fields   small files and bytes, safe to print
//! link             PCIe: what runs and what could run
//! identify, health, vpd   pages of drives: pure, any bytes are taken
//! pages            where raw pages come from: the drives, or a recording
//! drive, warning   what is known of one, and what is wrong with it
//! drives           here: one look at all of them
//! events           what the kernel said of drives that came and went
//! ```
//!
//! - Nothing is claimed, locked or written, and drives are asked only questions that change nothing.
//!   It works without root, and finds out less.
//! - Everything is a hint: a kernel, a driver or a container may lack any of it, and what is not
//!   known is `None`. Only a missing sysfs is an error.
//! - The places are parameters, so that a recorded tree can be looked at like a machine.

mod fields;
mod folder;

mod health;
mod identify;
mod link;
mod vpd;

mod drive;
mod events;
mod pages;
mod warning;

pub use drive::{Drive, Nvme, Unread};
pub use events::{Event, EventKind, Events};
pub use health::{CriticalWarning, HEALTH_BYTES, Health};
pub use identify::{BlockFormat, IDENTIFY_BYTES, IdentifyController, IdentifyNamespace};
pub use identify::{NvmeVersion, RelativePerformance};
pub use link::{Link, LinkRate};
pub use pages::{Drives, PageSource, RawPages};
pub use warning::Warning;

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::makedev;

use self::folder::Folder;
use crate::device::block::{numa_node, users_in};
use crate::error::{Error, ErrorKind, Result};

/// Sectors of sysfs have this size, whatever the drive's blocks.
const SECTOR_BYTES: u64 = 512;

/// Where the kernel tells of devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// sysfs.
    pub sys: PathBuf,
    /// procfs: mounts and swap space.
    pub proc: PathBuf,
    /// The nodes of devices.
    pub dev: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self {
            sys: "/sys".into(),
            proc: "/proc".into(),
            dev: "/dev".into(),
        }
    }
}

/// Which block devices are looked at. Others are not asked anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Scope {
    /// Disks: what has a drive behind it, here or in another machine.
    #[default]
    Disks,
    /// Also what the kernel makes up (loop, md, device mapper, RAM) and optical drives, as far as
    /// there is something in them.
    All,
    /// Those with these device numbers: `259:0`.
    Numbers(Vec<String>),
}

/// Looks at block devices, in the order of their names.
///
/// # Errors
///
/// There is no sysfs.
pub fn drives(roots: &Roots, source: &dyn PageSource, scope: &Scope) -> Result<Vec<Drive>> {
    let missing = || {
        Error::new(
            ErrorKind::NotFound,
            "there is no list of block devices here; is sysfs mounted?",
        )
        .with_path(&roots.sys)
    };
    let list = Folder::at(&roots.sys.join("block")).ok_or_else(missing)?;
    let root = Folder::at(&roots.sys).ok_or_else(missing)?;
    let read = |name: &str| fs::read_to_string(roots.proc.join(name)).unwrap_or_default();
    let look = Look {
        roots,
        root,
        source,
        mounts: read("self/mountinfo"),
        swaps: read("swaps"),
    };
    let found = list.names().into_iter().filter_map(|name| {
        let block = list.folder(&name)?;
        look.is_wanted(&name, &block, scope)
            .then(|| look.drive(&name, &block))
    });
    Ok(found.collect())
}

/// One look at everything.
struct Look<'a> {
    roots: &'a Roots,
    root: Folder,
    source: &'a dyn PageSource,
    mounts: String,
    swaps: String,
}

impl Look<'_> {
    fn is_wanted(&self, name: &str, block: &Folder, scope: &Scope) -> bool {
        // One path of several to a namespace, which has a device of its own for all of them.
        if block.number("hidden") == Some(1) {
            return false;
        }
        // Type 5 is a CD-ROM drive; floppy drives have no type.
        let is_optical = block
            .folder("device")
            .and_then(|device| device.number::<u32>("type"))
            == Some(5);
        // Namespaces behind several paths or a network are devices that the kernel makes up, too.
        let is_disk = !is_optical
            && !name.starts_with("fd")
            && (name.starts_with("nvme") || !self.places(block).any(|name| name == "virtual"));
        match scope {
            Scope::Disks => is_disk,
            Scope::All => is_disk || capacity_bytes(block) > 0,
            Scope::Numbers(numbers) => block
                .text("dev")
                .is_some_and(|number| numbers.contains(&number)),
        }
    }

    /// The names of the folders from sysfs's own down to this one.
    fn places<'a>(&self, folder: &'a Folder) -> impl Iterator<Item = &'a str> + use<'a> {
        folder
            .path()
            .strip_prefix(self.root.path())
            .unwrap_or(Path::new(""))
            .iter()
            .filter_map(|name| name.to_str())
    }

    fn drive(&self, name: &str, block: &Folder) -> Drive {
        let number = block.text("dev").unwrap_or_default();
        let queue = block.folder("queue");
        let queue_number = |name: &str| queue.as_ref()?.number::<u32>(name);
        let mut drive = Drive {
            // A slash in a node's name is an exclamation mark in sysfs.
            node: self.roots.dev.join(name.replace('!', "/")),
            pcie_address: self.function(block).map(|function| function.name()),
            capacity_bytes: capacity_bytes(block),
            logical_block_bytes: queue_number("logical_block_size"),
            physical_block_bytes: queue_number("physical_block_size"),
            is_rotational: queue_number("rotational").map(|flag| flag != 0),
            is_read_only: block.number("ro") == Some(1),
            write_cache: queue.as_ref().and_then(|queue| queue.text("write_cache")),
            numa_node: numa_node(block.path()),
            users: self.users(name, block, &number),
            number,
            ..Drive::default()
        };
        for partition in block.names() {
            if let Some(folder) = block.folder(&partition).filter(|it| it.has("partition")) {
                let number = folder.text("dev").unwrap_or_default();
                let users = self.users(&partition, &folder, &number);
                drive
                    .users
                    .extend(users.iter().map(|user| format!("{partition} {user}")));
                drive.partitions.push(partition);
            }
        }
        match block.folder("device") {
            Some(device) if name.starts_with("nvme") => self.nvme(&mut drive, block, &device),
            Some(device) => self.other(&mut drive, block, &device),
            None => {}
        }
        drive
    }

    fn users(&self, name: &str, block: &Folder, number: &str) -> Vec<String> {
        let mut users = users_in(block.path(), number, &self.mounts);
        // btrfs and others have a device number of their own; the node is the second field after
        // the dash. See proc_pid_mountinfo(5).
        for line in self.mounts.lines() {
            let Some((mount, source)) = line.split_once(" - ") else {
                continue;
            };
            let mut mount = mount.split(' ').skip(2);
            let is_own = mount.next().is_some_and(|number| number.starts_with("0:"));
            let node = source.split(' ').nth(1).map(Path::new);
            if is_own
                && node == Some(&self.roots.dev.join(name))
                && let Some(place) = mount.nth(1)
            {
                users.push(format!("mounted at {place}"));
            }
        }
        // The first field is the node; the head of the table has no slash. See swapon(8).
        let is_this = |line: &str| {
            let node = line.split_whitespace().next().map(Path::new);
            node.and_then(Path::file_name) == Some(name.as_ref())
        };
        if self.swaps.lines().any(is_this) {
            users.push("used as swap space".to_owned());
        }
        users
    }

    /// The nearest PCI function above a device.
    fn function(&self, folder: &Folder) -> Option<Folder> {
        let depth = self.root.path().iter().count();
        folder
            .path()
            .ancestors()
            .take_while(|path| path.iter().count() > depth)
            .find(|path| {
                path.file_name()
                    .is_some_and(|name| is_function(&name.to_string_lossy()))
            })
            .and_then(Folder::at)
    }

    /// What is known of an NVMe namespace; `device` is its controller, or its subsystem where it can
    /// be reached by several.
    fn nvme(&self, drive: &mut Drive, block: &Folder, device: &Folder) {
        let is_controller = |name: &String| {
            name.strip_prefix("nvme").is_some_and(|number| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            })
        };
        let mut controllers = if device.has("transport") {
            vec![(device.name(), device.clone())]
        } else {
            let names = device.names().into_iter().filter(is_controller);
            names
                .filter_map(|name| Some((name.clone(), device.folder(&name)?)))
                .collect()
        };
        // One that works tells more of the drive than one that does not.
        controllers.sort_by_key(|(_, folder)| folder.text("state").as_deref() != Some("live"));
        let mut nvme = Nvme {
            namespace_id: block.number("nsid"),
            controllers: controllers.iter().map(|(name, _)| name.clone()).collect(),
            subsystem_nqn: device.text("subsysnqn"),
            ..Nvme::default()
        };
        drive.model = device.text("model");
        drive.serial = device.text("serial");
        drive.firmware = device.text("firmware_rev");
        drive.world_wide_id = block.text("wwid");
        if let Some((_, controller)) = controllers.first() {
            nvme.state = controller.text("state");
            drive.transport = controller.text("transport");
            drive.address = controller.text("address");
            drive.temperature_celsius = sensor_celsius(controller);
            drive.numa_node = drive
                .numa_node
                .or_else(|| numa_node(controller.path()))
                .or_else(|| numa_node(&controller.path().join("device")));
            let function = controller
                .folder("device")
                .filter(|device| is_function(&device.name()));
            if let Some(function) = function {
                let port = function.parent().filter(|port| is_function(&port.name()));
                drive.link = Link::read(&function, port.as_ref());
                drive.pcie_address = Some(function.name());
            }
        }
        self.ask(drive, &mut nvme);
        drive.nvme = Some(nvme);
    }

    /// What the drive itself says.
    fn ask(&self, drive: &mut Drive, nvme: &mut Nvme) {
        let (Some(number), Some(namespace_id)) = (device_number(&drive.number), nvme.namespace_id)
        else {
            return;
        };
        let mut failures = Vec::new();
        match self.source.pages(&drive.node, number, namespace_id) {
            Ok(pages) => {
                nvme.controller = kept(pages.controller, &mut failures)
                    .map(|page| IdentifyController::parse(&page));
                nvme.namespace = kept(pages.namespace, &mut failures)
                    .map(|page| IdentifyNamespace::parse(&page));
                nvme.health = kept(pages.health, &mut failures).map(|page| Health::parse(&page));
            }
            Err(error) => failures.push(error),
        }
        nvme.unread = failures.first().map(|error| Unread {
            needs_root: error.kind() == ErrorKind::PermissionDenied,
            reason: reason(error),
        });
        if let Some(controller) = &nvme.controller {
            let or_else = |text: &mut Option<String>, other: &Option<String>| {
                if text.is_none() {
                    text.clone_from(other);
                }
            };
            or_else(&mut drive.model, &controller.model);
            or_else(&mut drive.serial, &controller.serial);
            or_else(&mut drive.firmware, &controller.firmware);
        }
        let health = nvme.health.as_ref();
        if let Some(celsius) = health.and_then(|health| health.temperature_celsius) {
            drive.temperature_celsius = Some(celsius);
        }
    }

    /// What is known of a disk of another kind, and of what the kernel makes up.
    fn other(&self, drive: &mut Drive, block: &Folder, device: &Folder) {
        let vendor = device.text("vendor");
        let model = device.text("model").or_else(|| device.text("name"));
        let is_ata = vendor.as_deref() == Some("ATA");
        // "ATA" is what stands for the vendor of every SATA disk; numbers stand for PCI's vendors.
        let vendor = vendor.filter(|vendor| !is_ata && !vendor.starts_with("0x"));
        drive.model = model.map(|model| match vendor {
            Some(vendor) => format!("{vendor} {model}"),
            None => model,
        });
        let page = |name: &str| device.bytes(name).unwrap_or_default();
        drive.serial = block
            .text("serial")
            .or_else(|| device.text("serial"))
            .or_else(|| vpd::serial(&page("vpd_pg80")));
        drive.firmware = device.text("rev").or_else(|| device.text("fwrev"));
        drive.world_wide_id = block.text("wwid").or_else(|| device.text("wwid"));
        drive.form_factor = vpd::form_factor(&page("vpd_pgb1"));
        drive.temperature_celsius = sensor_celsius(device);
        drive.transport = self
            .places(block)
            .find_map(|place| {
                let numbered = |word: &str| {
                    place
                        .strip_prefix(word)
                        .is_some_and(|rest| rest.starts_with(|char: char| char.is_ascii_digit()))
                };
                match () {
                    () if numbered("ata") => Some("sata"),
                    () if numbered("usb") => Some("usb"),
                    () if numbered("session") => Some("iscsi"),
                    () if numbered("virtio") => Some("virtio"),
                    () if numbered("mmc") => Some("mmc"),
                    // A SATA disk on a SAS adapter.
                    () if place.starts_with("end_device-") && is_ata => Some("sata"),
                    () if place.starts_with("end_device-") => Some("sas"),
                    () => None,
                }
            })
            .map(str::to_owned);
    }
}

fn capacity_bytes(block: &Folder) -> u64 {
    block
        .number::<u64>("size")
        .map_or(0, |sectors| sectors.saturating_mul(SECTOR_BYTES))
}

/// `0000:01:00.0`: domain, bus, device and function in hexadecimal.
fn is_function(name: &str) -> bool {
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut parts = name.splitn(3, ':');
    let (domain, bus, rest) = (parts.next(), parts.next(), parts.next());
    let ends = rest.and_then(|rest| rest.split_once('.'));
    domain.is_some_and(is_hex)
        && bus.is_some_and(is_hex)
        && ends.is_some_and(|(device, function)| is_hex(device) && is_hex(function))
}

/// `259:0` as stat(2) has it.
fn device_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// The temperature that the kernel's sensor of a drive shows to everybody.
fn sensor_celsius(device: &Folder) -> Option<i32> {
    // The sensor hangs on the controller itself, in a folder of sensors where it is the device's
    // own, or on the PCI function above (NVMe before Linux 5.17).
    [None, Some("hwmon"), Some("device/hwmon")]
        .into_iter()
        .filter_map(|place| match place {
            None => Some(device.clone()),
            Some(place) => device.folder(place),
        })
        .find_map(|place| {
            let sensor = place.names().into_iter().find(|name| {
                name.strip_prefix("hwmon")
                    .is_some_and(|number| !number.is_empty())
            })?;
            let millidegrees: i32 = place.folder(&sensor)?.number("temp1_input")?;
            Some(millidegrees / 1000)
        })
}

/// A page, or none, and then the reason is kept.
fn kept<T>(page: Result<T>, failures: &mut Vec<Error>) -> Option<T> {
    page.map_err(|error| failures.push(error)).ok()
}

/// An error and its cause in one line.
fn reason(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_told_from_other_folders() {
        for (name, is) in [
            ("0000:01:00.0", true),
            ("10001:e1:00.0", true),
            ("pci0000:00", false),
            ("0:0:0:0", false),
            ("target0:0:0", false),
            ("nvme0", false),
            ("", false),
        ] {
            assert_eq!(is_function(name), is, "{name}");
        }
    }

    #[test]
    fn the_disks_here_have_a_size_and_a_number() {
        let drives = drives(&Roots::default(), &Drives, &Scope::All);
        for drive in drives.into_iter().flatten() {
            assert!(device_number(&drive.number).is_some(), "{drive:?}");
            assert!(drive.logical_block_bytes.is_some(), "{drive:?}");
        }
    }
}
