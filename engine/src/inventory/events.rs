//! What the kernel said of drives that came and went.
//!
//! Records of `/dev/kmsg` (Documentation/ABI/testing/dev-kmsg) look like this, with more fields after
//! a second line that is indented:
//!
//! ```text
//! 6,339,5140900,-;nvme nvme0: pci function 0000:01:00.0
//!  SUBSYSTEM=nvme
//! ```
//!
//! - The kernel keeps some megabytes of messages at most; older ones are gone.
//! - What counts is told by the words of drivers, which are no interface: a kernel may say it in
//!   other words, and then the event is missed.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind as IoErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::Serialize;

use super::fields::printable;
use crate::error::{Error, Result};
use crate::sys::clock::monotonic_ns;

/// The most that is read: more than any kernel keeps, in case it talks faster than it is read.
const BYTES_MAX: usize = 64 << 20;

/// What a message's priority and facility are told apart by: the kernel's facility is 0.
const FACILITY: u32 = 8;

/// Events, oldest first, and when they were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Events {
    /// The kernel's clock at that moment, in microseconds since it started.
    pub now_us: u64,
    /// What happened.
    pub events: Vec<Event>,
}

/// A drive that came or went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// When, in microseconds since the kernel started.
    pub since_boot_us: u64,
    /// Which of the two.
    pub kind: EventKind,
    /// The kernel's words.
    pub message: String,
}

/// What became of a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// It came.
    Inserted,
    /// It went.
    Removed,
}

impl Events {
    /// Reads what the kernel still has.
    ///
    /// # Errors
    ///
    /// The kernel shows its messages to root only, or there is no such device (a container).
    pub fn read(kmsg: &Path) -> Result<Self> {
        let refused = |cause: std::io::Error| {
            let message = match cause.kind() {
                IoErrorKind::PermissionDenied => {
                    "the kernel's messages may not be read; run as root, or let others read them \
                     (sysctl kernel.dmesg_restrict=0)"
                }
                IoErrorKind::NotFound => {
                    "there are no messages of the kernel here; a container often has none: look on \
                     its host"
                }
                _ => "the kernel's messages cannot be read",
            };
            Error::from_io(cause, message).with_path(kmsg)
        };
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(kmsg)
            .map_err(refused)?;
        let text = read_all(&mut file).map_err(refused)?;
        Ok(Self {
            now_us: monotonic_ns() / 1000,
            events: text.lines().filter_map(Event::parse).collect(),
        })
    }
}

/// Whole records, until there are no more for now.
fn read_all(file: &mut File) -> std::io::Result<String> {
    // A record that does not fit is refused (EINVAL); none has more than a few KiB.
    let mut record = vec![0; 64 << 10];
    let mut bytes = Vec::new();
    while bytes.len() < BYTES_MAX {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&record[..count]),
            Err(error) if error.kind() == IoErrorKind::WouldBlock => break,
            Err(error) if error.kind() == IoErrorKind::Interrupted => {}
            // Overwritten before it was read; the next read goes on with the oldest that is left.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl Event {
    /// The event that a record's first line tells of; none of any other line.
    pub fn parse(line: &str) -> Option<Self> {
        let (prefix, message) = line.split_once(';')?;
        let mut fields = prefix.split(',');
        let priority: u32 = fields.next()?.parse().ok()?;
        // Programs may write to the log too; their messages have a facility above the kernel's own.
        (priority < FACILITY).then_some(())?;
        let _sequence: u64 = fields.next()?.parse().ok()?;
        let since_boot_us = fields.next()?.parse().ok()?;
        Some(Self {
            since_boot_us,
            kind: kind(message)?,
            message: printable(message.as_bytes())?,
        })
    }
}

/// What a message says became of a drive, if it says that.
fn kind(message: &str) -> Option<EventKind> {
    use EventKind::{Inserted, Removed};
    let (driver, _) = message.split_once([' ', ':'])?;
    // The words of each driver, in the order they are looked for.
    let words: &[(&str, EventKind)] = match driver {
        "nvme" => &[
            ("pci function ", Inserted),
            ("new ctrl: ", Inserted),
            ("Removing ctrl: ", Removed),
            ("Removing after probe failure", Removed),
            // All ones is what a bus answers for a device that is not there.
            ("CSTS=0xffffffff", Removed),
        ],
        "pcieport" | "pciehp" | "shpchp" => &[
            ("Card not present", Removed),
            ("Link Down", Removed),
            ("Powering off", Removed),
            // All that Linux 6.12 says of an orderly removal.
            ("will power off", Removed),
            ("Card present", Inserted),
            ("Link Up", Inserted),
        ],
        // Class 01.08.02 is an NVMe controller.
        "pci" => &[("class 0x010802", Inserted)],
        "sd" => &[
            ("Attached SCSI ", Inserted),
            ("Synchronizing SCSI cache", Removed),
        ],
        "virtio_blk" => &[("logical blocks", Inserted)],
        _ if is_ata(driver) => &[(": disabled", Removed), ("detaching", Removed)],
        _ => return None,
    };
    words
        .iter()
        .find(|(words, _)| message.contains(words))
        .filter(|_| !message.contains("new size"))
        .map(|(_, kind)| *kind)
}

/// `ata3.00`, a disk on a SATA port.
fn is_ata(driver: &str) -> bool {
    driver
        .strip_prefix("ata")
        .is_some_and(|rest| rest.starts_with(|char: char| char.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::EventKind::{Inserted, Removed};
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn messages_of_drivers_are_known() {
        for (message, wanted) in [
            ("nvme nvme0: pci function 0000:01:00.0", Some(Inserted)),
            ("nvme nvme0: 8/0/0 default/read/poll queues", None),
            (
                "nvme nvme1: new ctrl: NQN \"nqn.x\", addr 10.0.0.2:4420",
                Some(Inserted),
            ),
            ("nvme nvme1: Removing ctrl: NQN \"nqn.x\"", Some(Removed)),
            (
                "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff",
                Some(Removed),
            ),
            (
                "nvme nvme0: controller is down; will reset: CSTS=0x1, PCI_STATUS=0x10",
                None,
            ),
            (
                "pcieport 0000:89:02.0: pciehp: Slot(400): Link Down",
                Some(Removed),
            ),
            (
                "pcieport 0000:89:02.0: pciehp: Slot(400): Card not present",
                Some(Removed),
            ),
            (
                "pcieport 0000:00:04.1: pciehp: Slot(0): Card present",
                Some(Inserted),
            ),
            (
                "pcieport 0000:00:02.0: pciehp: Slot(2): Button press: will power off in 5 sec",
                Some(Removed),
            ),
            (
                "pci 0000:01:00.0: [144d:a80a] type 00 class 0x010802 PCIe Endpoint",
                Some(Inserted),
            ),
            ("pci 0000:00:02.0: [1af4:1042] type 00 class 0x018000", None),
            ("sd 0:0:0:0: [sda] Attached SCSI disk", Some(Inserted)),
            ("sd 0:0:0:0: [sda] Synchronizing SCSI cache", Some(Removed)),
            (
                "virtio_blk virtio1: [vda] 512 512-byte logical blocks",
                Some(Inserted),
            ),
            (
                "virtio_blk virtio1: [vda] new size: 512 512-byte logical blocks",
                None,
            ),
            ("ata3.00: disabled", Some(Removed)),
            ("ata3: SATA link up 6.0 Gbps", None),
            ("EXT4-fs (sda1): Link Up", None),
            ("atanything: disabled", None),
            ("", None),
        ] {
            assert_eq!(kind(message), wanted, "{message}");
        }
    }

    #[test]
    fn records_are_read_and_what_is_none_is_not() {
        let event = Event::parse("6,339,5140900,-,caller=T1;nvme nvme0: pci function 0000:01:00.0");
        let wanted = Event {
            since_boot_us: 5_140_900,
            kind: Inserted,
            message: "nvme nvme0: pci function 0000:01:00.0".to_owned(),
        };
        assert_eq!(event, Some(wanted));
        for line in [
            " SUBSYSTEM=nvme",
            // A program wrote it.
            "12,339,5140900,-;nvme nvme0: pci function 0000:01:00.0",
            "6,339;nvme nvme0: pci function 0",
            "a,b,c,-;nvme nvme0: pci function 0",
            "6,339,99999999999999999999999,-;nvme nvme0: pci function 0",
            ";",
        ] {
            assert_eq!(Event::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_recording_is_read_like_the_device() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kmsg");
        std::fs::write(
            &path,
            "6,1,10,-;Linux version 6.12\n6,2,2500000,-;sd 0:0:0:0: [sda] Attached SCSI disk\n \
             SUBSYSTEM=scsi\n DEVICE=+scsi:0:0:0:0\n4,3,9000000,-;ata1.00: disabled\n",
        )
        .unwrap();
        let events = Events::read(&path).unwrap().events;
        let told: Vec<(u64, EventKind)> = events
            .iter()
            .map(|event| (event.since_boot_us, event.kind))
            .collect();
        assert_eq!(told, [(2_500_000, Inserted), (9_000_000, Removed)]);
    }

    #[test]
    fn no_messages_here_is_told_with_the_way_out() {
        let error = Events::read(Path::new("/nonexistent/kmsg")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("on its host"), "{error}");
    }
}
