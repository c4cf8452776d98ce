//! Raw pages of NVMe drives: asked of the drive, or recorded.
//!
//! Only questions are sent (Identify and Get Log Page), to a descriptor opened for reading and
//! without a claim: nobody is kept away by it, and a drive in use can be asked like any other.

use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags, fstat};
use rustix::io::retry_on_intr;

use super::health::HEALTH_BYTES;
use super::identify::{IDENTIFY_BYTES, IdentifyController};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::ioctl::{NvmePage, NvmeQuestion, nvme_ask};

/// The pages of one namespace and its controller.
#[derive(Debug)]
pub struct RawPages {
    /// Identify Controller.
    pub controller: Result<Box<[u8; IDENTIFY_BYTES]>>,
    /// Identify Namespace.
    pub namespace: Result<Box<[u8; IDENTIFY_BYTES]>>,
    /// The SMART / Health log.
    pub health: Result<Box<[u8; HEALTH_BYTES]>>,
}

/// Where raw pages come from.
pub trait PageSource {
    /// The pages of namespace `namespace_id`, which is the block device `number` at `node`.
    ///
    /// # Errors
    ///
    /// The drive cannot be asked at all.
    fn pages(&self, node: &Path, number: u64, namespace_id: u32) -> Result<RawPages>;
}

/// Pages asked of the drives themselves.
#[derive(Debug, Clone, Copy, Default)]
pub struct Drives;

impl PageSource for Drives {
    fn pages(&self, node: &Path, number: u64, namespace_id: u32) -> Result<RawPages> {
        // Not blocking, and looked at before anything is asked: the node may be anything.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let device = retry_on_intr(|| rustix::fs::open(node, flags, Mode::empty()))
            .map_err(|errno| Error::from_io(errno.into(), "cannot be opened"))?;
        let stat = fstat(&device).map_err(|errno| Error::from_io(errno.into(), "fstat failed"))?;
        if stat.st_rdev != number {
            return Err(Error::new(
                ErrorKind::NotFound,
                "the node is of another device than sysfs says",
            ));
        }
        let mut page = Box::new(NvmePage([0; IDENTIFY_BYTES]));
        let mut ask = |question| {
            page.0.fill(0);
            match retry_on_intr(|| nvme_ask(device.as_fd(), question, &mut page)) {
                Ok(0) => Ok(Box::new(page.0)),
                Ok(status) => Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("the drive refused the question: status {status:#x}"),
                )),
                Err(errno) => Err(Error::from_io(errno.into(), "the drive cannot be asked")),
            }
        };
        let controller = ask(NvmeQuestion::Controller);
        let retain_events = controller
            .as_ref()
            .is_ok_and(|page| IdentifyController::parse(page).can_retain_events());
        Ok(RawPages {
            controller,
            namespace: ask(NvmeQuestion::Namespace(namespace_id)),
            health: ask(NvmeQuestion::Health { retain_events })
                .map(|page| Box::new(*page.first_chunk().expect("the log is shorter than a page"))),
        })
    }
}
