//! Requests to block devices that are no reads or writes (`linux/fs.h`, `linux/nvme_ioctl.h`).

use std::os::fd::BorrowedFd;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl, opcode};

const BLKDISCARD: Opcode = opcode::none(0x12, 119);
const BLKZEROOUT: Opcode = opcode::none(0x12, 127);

/// Tells the device that a range's contents are no longer needed.
/// `EOPNOTSUPP` where it has no discard.
pub(crate) fn blkdiscard(fd: BorrowedFd<'_>, offset: u64, length: u64) -> rustix::io::Result<()> {
    // SAFETY: BLKDISCARD reads two u64 (first byte, length) from the address it is given, which is
    // what a `Setter` of `[u64; 2]` passes. It writes no memory of this process. On a descriptor
    // that is no block device the kernel answers ENOTTY.
    unsafe { ioctl(fd, Setter::<BLKDISCARD, [u64; 2]>::new([offset, length])) }
}

/// Makes a range read as zeroes, by the device's own command where it has one, else by writing.
pub(crate) fn blkzeroout(fd: BorrowedFd<'_>, offset: u64, length: u64) -> rustix::io::Result<()> {
    // SAFETY: as BLKDISCARD: two u64 are read from the address, nothing is written.
    unsafe { ioctl(fd, Setter::<BLKZEROOUT, [u64; 2]>::new([offset, length])) }
}

/// A question to an NVMe controller. There are only these: what can be asked here changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NvmeQuestion {
    /// Identify Controller.
    Controller,
    /// Identify Namespace.
    Namespace(u32),
    /// The SMART / Health log of the whole controller. Whether the event that told of a change of it
    /// is retained for whoever waits for it.
    Health { retain_events: bool },
}

/// Where an answer goes. Whole pages, so that the kernel need not copy.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(crate) struct NvmePage(pub(crate) [u8; 4096]);

/// `struct nvme_passthru_cmd`.
#[derive(Debug, Default)]
#[repr(C)]
struct NvmeCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(
    size_of::<NvmeCommand>() == 72,
    "as linux/nvme_ioctl.h has it"
);

const NVME_IOCTL_ADMIN_CMD: Opcode = opcode::read_write::<NvmeCommand>(b'N', 0x41);

impl NvmeQuestion {
    /// Opcodes and command words are those of sections 5.16 and 5.17 of the NVM Express Base
    /// Specification 2.0.
    fn command(self) -> NvmeCommand {
        const GET_LOG_PAGE: u8 = 0x02;
        const IDENTIFY: u8 = 0x06;
        const LOG_HEALTH: u32 = 0x02;
        const RETAIN_EVENTS: u32 = 1 << 15;
        /// In words of 4 bytes, and one less than how many.
        const HEALTH_WORDS: u32 = 512 / 4 - 1;
        const EVERY_NAMESPACE: u32 = u32::MAX;
        let (opcode, nsid, data_len, cdw10) = match self {
            Self::Controller => (IDENTIFY, 0, 4096, 1),
            Self::Namespace(namespace_id) => (IDENTIFY, namespace_id, 4096, 0),
            Self::Health { retain_events } => {
                let retain = if retain_events { RETAIN_EVENTS } else { 0 };
                let cdw10 = HEALTH_WORDS << 16 | retain | LOG_HEALTH;
                (GET_LOG_PAGE, EVERY_NAMESPACE, 512, cdw10)
            }
        };
        // The time limit stays 0, the kernel's own: a command that runs out of it makes the kernel
        // reset the controller, which is not for an onlooker to bring about.
        NvmeCommand {
            opcode,
            nsid,
            data_len,
            cdw10,
            ..NvmeCommand::default()
        }
    }
}

/// A command and the page that its answer goes to.
struct NvmeAdmin<'a> {
    command: NvmeCommand,
    page: &'a mut NvmePage,
}

// SAFETY: the opcode goes with a `struct nvme_passthru_cmd`, which `command` is, and the kernel reads
// and writes only it and `data_len` bytes at `addr`. `command` makes that at most 4096, and `addr` is
// the page of that size, which is borrowed mutably for as long as this value lives. The kernel has
// let go of both when the call returns, whatever became of the command. A descriptor of another
// driver answers ENOTTY: the letter 'N' from 0x40 to 0x7f is NVMe's.
unsafe impl Ioctl for NvmeAdmin<'_> {
    /// 0, or the status that the controller gave the command.
    type Output = i32;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        NVME_IOCTL_ADMIN_CMD
    }

    fn as_ptr(&mut self) -> *mut rustix::ffi::c_void {
        self.command.addr = (&raw mut self.page.0).expose_provenance() as u64;
        (&raw mut self.command).cast()
    }

    unsafe fn output_from_ptr(
        output: IoctlOutput,
        _: *mut rustix::ffi::c_void,
    ) -> rustix::io::Result<i32> {
        Ok(output)
    }
}

/// Asks the controller behind a block device. The status is 0 where the answer is in `page`, else
/// what the controller said.
///
/// Blocks until the controller answers. Without CAP_SYS_ADMIN the kernel refuses the log (`EACCES`),
/// and before Linux 6.2 everything.
pub(crate) fn nvme_ask(
    device: BorrowedFd<'_>,
    question: NvmeQuestion,
    page: &mut NvmePage,
) -> rustix::io::Result<i32> {
    let request = NvmeAdmin {
        command: question.command(),
        page,
    };
    // SAFETY: as the implementation of `Ioctl` says; the commands are questions, and change nothing.
    unsafe { ioctl(device, request) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn the_request_numbers_are_those_of_linux_fs_h() {
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert_eq!(BLKDISCARD, 0x1277);
            assert_eq!(BLKZEROOUT, 0x127f);
            assert_eq!(NVME_IOCTL_ADMIN_CMD, 0xc048_4e41);
        }
    }

    #[test]
    fn questions_are_the_commands_of_the_specification() {
        let words = |question: NvmeQuestion| {
            let command = question.command();
            (
                command.opcode,
                command.nsid,
                command.data_len,
                command.cdw10,
            )
        };
        assert_eq!(words(NvmeQuestion::Controller), (6, 0, 4096, 1));
        assert_eq!(words(NvmeQuestion::Namespace(3)), (6, 3, 4096, 0));
        let health = |retain_events| words(NvmeQuestion::Health { retain_events });
        assert_eq!(health(false), (2, u32::MAX, 512, 0x007f_0002));
        assert_eq!(health(true), (2, u32::MAX, 512, 0x007f_8002));
    }

    #[test]
    fn what_is_no_nvme_drive_does_not_know_the_question() {
        let file = tempfile::tempfile().unwrap();
        let mut page = NvmePage([7; 4096]);
        let answer = nvme_ask(file.as_fd(), NvmeQuestion::Controller, &mut page);
        assert_eq!(answer, Err(rustix::io::Errno::NOTTY));
        assert_eq!(page.0, [7; 4096]);
    }
}
