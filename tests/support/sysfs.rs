//! Machines as Linux shows them: trees of files and links as sysfs and procfs have them, made in a
//! temporary folder, and pages as NVMe drives return them.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use swath_engine::inventory::{
    Drive, HEALTH_BYTES, IDENTIFY_BYTES, PageSource, RawPages, Roots, Scope, drives,
};
use swath_engine::{Error, ErrorKind, Result};
use tempfile::TempDir;

/// A machine with nothing in it yet.
#[derive(Debug)]
pub struct Machine {
    folder: TempDir,
    /// How many block devices there are: their minor numbers.
    devices: u32,
    mounts: String,
    pages: HashMap<PathBuf, Pages>,
}

/// What a drive answers.
#[derive(Debug, Clone)]
pub enum Pages {
    /// All its pages.
    All(
        Box<[u8; IDENTIFY_BYTES]>,
        Box<[u8; IDENTIFY_BYTES]>,
        Box<[u8; HEALTH_BYTES]>,
    ),
    /// Identify only: the kernel keeps the log for root.
    Identify(Box<[u8; IDENTIFY_BYTES]>, Box<[u8; IDENTIFY_BYTES]>),
    /// Nothing: the node may not be opened.
    Denied,
}

/// Speed as sysfs writes it, and width.
pub type LinkText<'a> = (&'a str, u32);

impl Machine {
    /// # Panics
    ///
    /// When there is no room for a few small files.
    pub fn new() -> Self {
        let this = Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
            devices: 0,
            mounts: String::new(),
            pages: HashMap::new(),
        };
        for folder in ["sys/block", "sys/class/nvme", "proc/self", "dev"] {
            fs::create_dir_all(this.folder.path().join(folder)).expect("a folder");
        }
        this.file("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n");
        this
    }

    /// Writes a file, with the folders above it.
    ///
    /// # Panics
    ///
    /// When that fails.
    pub fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("folders");
        fs::write(path, content).expect("a file");
    }

    fn files(&self, folder: &str, files: &[(&str, &str)]) {
        for (name, content) in files {
            self.file(&format!("{folder}/{name}"), format!("{content}\n"));
        }
    }

    fn link(&self, from: &str, to: &str) {
        let from = self.folder.path().join(from);
        fs::create_dir_all(from.parent().expect("a link lies in a folder")).expect("folders");
        symlink(self.folder.path().join(to), from).expect("a link");
    }

    /// A block device `name`, in a folder of `sys/devices`; the number it gets.
    pub fn block(&mut self, place: &str, name: &str, gib: u64) -> String {
        let number = format!("259:{}", self.devices);
        self.devices += 1;
        let folder = format!("sys/devices/{place}/{name}");
        let size = (gib << 21).to_string();
        self.files(&folder, &[("dev", &number), ("size", &size), ("ro", "0")]);
        self.files(
            &format!("{folder}/queue"),
            &[
                ("logical_block_size", "512"),
                ("physical_block_size", "4096"),
                ("rotational", "0"),
                ("write_cache", "write back"),
            ],
        );
        fs::create_dir_all(self.folder.path().join(&folder).join("holders")).expect("a folder");
        self.link(&format!("sys/block/{name}"), &folder);
        number
    }

    /// A PCIe drive `nvmeNn1` behind a port of its own; returns the folder of its controller.
    pub fn nvme(
        &mut self,
        index: u32,
        current: LinkText<'_>,
        drive: LinkText<'_>,
        port: LinkText<'_>,
    ) -> String {
        let above = format!("pci0000:{index:02x}/0000:{index:02x}:01.0");
        let function = format!("{above}/0000:{:02x}:00.0", index + 0x40);
        let link = |folder: &str, which: &str, (speed, width): LinkText<'_>| {
            let width = width.to_string();
            let names = [format!("{which}_link_speed"), format!("{which}_link_width")];
            let files = [(names[0].as_str(), speed), (names[1].as_str(), &width)];
            self.files(&format!("sys/devices/{folder}"), &files);
        };
        link(&above, "max", port);
        link(&above, "current", current);
        link(&function, "max", drive);
        link(&function, "current", current);
        self.files(
            &format!("sys/devices/{function}"),
            &[("numa_node", if index.is_multiple_of(2) { "0" } else { "1" })],
        );
        let controller = format!("{function}/nvme/nvme{index}");
        self.files(
            &format!("sys/devices/{controller}"),
            &[
                ("model", "FAST DRIVE 3840G                        "),
                ("serial", &format!("SN{index:04}              ")),
                ("firmware_rev", "FW1.0   "),
                ("transport", "pcie"),
                ("address", &format!("0000:{:02x}:00.0", index + 0x40)),
                ("state", "live"),
                ("subsysnqn", "nqn.2014-08.org.nvmexpress:uuid:1"),
            ],
        );
        self.link(
            &format!("sys/devices/{controller}/device"),
            &format!("sys/devices/{function}"),
        );
        self.link(
            &format!("sys/class/nvme/nvme{index}"),
            &format!("sys/devices/{controller}"),
        );
        let name = format!("nvme{index}n1");
        self.block(&controller, &name, 3576);
        let namespace = format!("sys/devices/{controller}/{name}");
        self.files(&namespace, &[("nsid", "1"), ("wwid", "eui.0123")]);
        self.link(
            &format!("{namespace}/device"),
            &format!("sys/devices/{controller}"),
        );
        controller
    }

    /// Partition `number` of a block device in `place`; returns its name.
    pub fn partition(&mut self, place: &str, disk: &str, number: u32) -> String {
        let digit = disk.ends_with(|char: char| char.is_ascii_digit());
        let name = format!("{disk}{}{number}", if digit { "p" } else { "" });
        let folder = format!("sys/devices/{place}/{disk}/{name}");
        let device = format!("259:{}", self.devices);
        self.devices += 1;
        self.files(
            &folder,
            &[("partition", &number.to_string()), ("dev", &device)],
        );
        name
    }

    /// Mounts the device with this number.
    pub fn mount(&mut self, number: &str, place: &str) {
        self.mounts
            .push_str(&format!("36 25 {number} / {place} rw - ext4 /dev/x rw\n"));
        self.file("proc/self/mountinfo", &self.mounts);
    }

    /// What the drive at this node answers.
    pub fn answers(&mut self, name: &str, pages: Pages) {
        self.pages
            .insert(self.folder.path().join("dev").join(name), pages);
    }

    /// Where it is.
    pub fn roots(&self) -> Roots {
        Roots {
            sys: self.folder.path().join("sys"),
            proc: self.folder.path().join("proc"),
            dev: self.folder.path().join("dev"),
        }
    }

    /// Its inventory.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn drives(&self, scope: &Scope) -> Vec<Drive> {
        drives(&self.roots(), self, scope).expect("the tree has a list of block devices")
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl PageSource for Machine {
    fn pages(&self, node: &Path, _: u64, _: u32) -> Result<RawPages> {
        let denied = || Error::new(ErrorKind::PermissionDenied, "cannot be opened");
        match self.pages.get(node) {
            Some(Pages::All(controller, namespace, health)) => Ok(RawPages {
                controller: Ok(controller.clone()),
                namespace: Ok(namespace.clone()),
                health: Ok(health.clone()),
            }),
            Some(Pages::Identify(controller, namespace)) => Ok(RawPages {
                controller: Ok(controller.clone()),
                namespace: Ok(namespace.clone()),
                health: Err(denied()),
            }),
            Some(Pages::Denied) => Err(denied()),
            None => Err(Error::new(ErrorKind::NotFound, "cannot be opened")),
        }
    }
}

/// Identify Controller: warns at 80 degrees.
pub fn controller_page() -> Box<[u8; IDENTIFY_BYTES]> {
    let mut page = Box::new([0; IDENTIFY_BYTES]);
    page[4..24].copy_from_slice(b"SN-OF-THE-PAGE      ");
    page[80..84].copy_from_slice(&0x0002_0000_u32.to_le_bytes());
    page[266..268].copy_from_slice(&353_u16.to_le_bytes());
    page[268..270].copy_from_slice(&358_u16.to_le_bytes());
    page
}

/// Identify Namespace: blocks of 512 bytes now, of 4096 possible.
pub fn namespace_page() -> Box<[u8; IDENTIFY_BYTES]> {
    let mut page = Box::new([0; IDENTIFY_BYTES]);
    page[25] = 1;
    page[128..132].copy_from_slice(&[0, 0, 9, 2]);
    page[132..136].copy_from_slice(&[0, 0, 12, 0]);
    page
}

/// The SMART log of a drive in good health, at 38 degrees.
pub fn health_page() -> Box<[u8; HEALTH_BYTES]> {
    let mut page = Box::new([0; HEALTH_BYTES]);
    page[1..3].copy_from_slice(&311_u16.to_le_bytes());
    page[3..6].copy_from_slice(&[100, 10, 2]);
    page
}
