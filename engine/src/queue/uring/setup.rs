//! Making a ring: flags, registration, and a look at whether it works on these devices.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{IoUring, squeue};

use crate::buf::AlignedBuf;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::op::OpKind;
use crate::queue::eventfd::EventWake;
use crate::queue::uring::submission::SubmissionRing;
use crate::queue::uring::{Target, UringQueue};
use crate::queue::{Backend, Memory, Queue, QueueDescription, QueueOptions, RawOp};

/// The most bytes of one registered buffer (io_uring_register(2): 1 GiB).
const REGISTERED_BYTES_MAX: usize = 1 << 30;

/// The flags of a ring, from the most wanted to none: each step leaves out what the step before
/// may have failed by (`EINVAL` on a kernel that does not know it).
#[derive(Debug, Clone, Copy)]
struct Flags {
    no_sqarray: bool,
    defer_taskrun: bool,
    single_issuer: bool,
    coop_taskrun: bool,
}

impl Flags {
    fn steps() -> impl Iterator<Item = Self> {
        (0..5).map(|dropped| Self {
            no_sqarray: dropped < 1,
            defer_taskrun: dropped < 2,
            single_issuer: dropped < 3,
            coop_taskrun: dropped < 4,
        })
    }

    fn names(self) -> impl Iterator<Item = &'static str> {
        [
            (self.single_issuer, "SINGLE_ISSUER"),
            (self.defer_taskrun, "DEFER_TASKRUN"),
            (self.coop_taskrun, "COOP_TASKRUN"),
            (self.no_sqarray, "NO_SQARRAY"),
        ]
        .into_iter()
        .filter_map(|(is_set, name)| is_set.then_some(name))
    }
}

pub(super) fn open(
    devices: &[Arc<dyn Device>],
    options: &QueueOptions,
    reasons: Vec<String>,
) -> Result<UringQueue> {
    let (ring, mut names) = build(options)?;
    let mut reasons = reasons;
    let targets = register_devices(&ring, devices, &mut names, &mut reasons)?;
    let registered = register_pools(&ring, options, &mut names, &mut reasons);
    let submission = SubmissionRing::of(&ring)
        .map_err(|cause| Error::from_io(cause, "the ring cannot be mapped"))?;
    let mut queue = UringQueue {
        submission,
        ring,
        targets,
        registered,
        description: QueueDescription {
            backend: Backend::Uring,
            flags: names.join(" "),
            reasons,
        },
        capacity: options.depth as usize,
        in_ring: 0,
        pushed: 0,
        is_iopoll: options.iopoll,
        is_sqpoll: options.sqpoll_idle_ms.is_some(),
        wake: EventWake::new().map_err(|cause| {
            Error::from_io(cause, "a descriptor to be woken by is not to be had")
        })?,
        wake_is_used: false,
        wake_is_armed: false,
        pool: None,
        refused: Vec::new(),
        _pools: options.pools.clone(),
        devices: devices.to_vec(),
    };
    if let Some(offset) = options.probe_offset {
        for (slot, device) in devices.iter().enumerate() {
            probe(&mut queue, slot, &**device, offset)?;
        }
    }
    Ok(queue)
}

/// Sets a ring up with the best flags this kernel has. Returns their names.
fn build(options: &QueueOptions) -> Result<(IoUring, Vec<&'static str>)> {
    // One more than the operations: the poll of the wake-up descriptor takes an entry too.
    let entries = (options.depth + 1).next_power_of_two();
    let mut failure = io::Error::from_raw_os_error(libc::EINVAL);
    for flags in Flags::steps() {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(entries * 2);
        let mut names = Vec::new();
        if let Some(idle_ms) = options.sqpoll_idle_ms {
            // The kernel's thread submits and completes: who runs task work is not ours to say.
            builder.setup_sqpoll(idle_ms);
            names.push("SQPOLL");
        } else {
            if flags.defer_taskrun {
                builder.setup_defer_taskrun();
            }
            if flags.coop_taskrun {
                builder.setup_coop_taskrun();
            }
        }
        if flags.single_issuer {
            builder.setup_single_issuer();
        }
        if flags.no_sqarray {
            builder.setup_no_sqarray();
        }
        if options.iopoll {
            builder.setup_iopoll();
            names.push("IOPOLL");
        }
        match builder.build(entries) {
            Ok(ring) => {
                let has_task_flags = options.sqpoll_idle_ms.is_none();
                names.extend(
                    flags
                        .names()
                        .filter(|name| has_task_flags || !name.ends_with("RUN")),
                );
                return Ok((ring, names));
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => failure = error,
            Err(error) => {
                failure = error;
                break;
            }
        }
    }
    let message = match failure.raw_os_error() {
        Some(libc::EPERM) => {
            "io_uring is not permitted here (sysctl kernel.io_uring_disabled, or a seccomp filter)"
        }
        Some(libc::ENOSYS) => "this kernel has no io_uring",
        Some(libc::ENOMEM) => "io_uring is refused: the limit of locked memory is too low",
        _ => "io_uring cannot be set up",
    };
    Err(Error::new(ErrorKind::Unsupported, message).with_source(failure))
}

/// Registers the devices' descriptors, or names them one by one where that is refused.
fn register_devices(
    ring: &IoUring,
    devices: &[Arc<dyn Device>],
    names: &mut Vec<&'static str>,
    reasons: &mut Vec<String>,
) -> Result<Vec<Target>> {
    let mut descriptors = Vec::with_capacity(devices.len());
    for device in devices {
        let descriptor = device.descriptor().ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                "a simulated device needs its own platform's queue",
            )
            .with_path(device.path())
        })?;
        descriptors.push(descriptor.as_raw_fd());
    }
    Ok(match ring.submitter().register_files(&descriptors) {
        Ok(()) => {
            names.push("registered files");
            let flags = squeue::Flags::FIXED_FILE.bits();
            let numbers = (0..).take(devices.len());
            numbers.map(|file| Target { file, flags }).collect()
        }
        Err(error) => {
            reasons.push(format!("files are not registered: {error}"));
            let targets = descriptors.iter();
            targets.map(|&file| Target { file, flags: 0 }).collect()
        }
    })
}

/// Registers the pools' memory, in runs of at most 1 GiB. Without it transfers work as well, only
/// the kernel looks the pages up each time.
fn register_pools(
    ring: &IoUring,
    options: &QueueOptions,
    names: &mut Vec<&'static str>,
    reasons: &mut Vec<String>,
) -> Vec<(usize, usize)> {
    let mut runs = Vec::new();
    for pool in &options.pools {
        let (start, length) = pool.arena();
        // A run ends where a piece does, so that no piece lies in two.
        let step = REGISTERED_BYTES_MAX - REGISTERED_BYTES_MAX % pool.piece_bytes();
        if step == 0 {
            reasons.push(format!(
                "buffers are not registered: a piece of {} bytes is more than 1 GiB",
                pool.piece_bytes()
            ));
            return Vec::new();
        }
        for offset in (0..length).step_by(step) {
            runs.push((
                start.as_ptr().wrapping_add(offset),
                step.min(length - offset),
            ));
        }
    }
    if runs.is_empty() {
        return Vec::new();
    }
    let iovecs: Vec<_> = runs
        .iter()
        .map(|&(pointer, length)| libc::iovec {
            iov_base: pointer.cast(),
            iov_len: length,
        })
        .collect();
    // SAFETY: the kernel pins these pages until the ring is gone, and the queue keeps the pools, and
    // with them the addresses, for as long.
    match unsafe { ring.submitter().register_buffers(&iovecs) } {
        Ok(()) => {
            names.push("registered buffers");
            runs.into_iter()
                .map(|(pointer, length)| (pointer.addr(), length))
                .collect()
        }
        Err(error) => {
            let way_out = match error.raw_os_error() {
                Some(libc::ENOMEM) => " (the limit of locked memory, ulimit -l, is too low)",
                _ => "",
            };
            reasons.push(format!("buffers are not registered: {error}{way_out}"));
            Vec::new()
        }
    }
}

/// Reads one block: an `IOPOLL` ring on a device without poll queues is set up without a murmur
/// and fails its first completion, and only on a block that was written.
fn probe(queue: &mut UringQueue, slot: usize, device: &dyn Device, offset: u64) -> Result<()> {
    let geometry = device.geometry();
    let block = geometry.offset_align_bytes.max(4096);
    let length = u64::from(block);
    if geometry.capacity_bytes < length {
        return Ok(());
    }
    let offset = if offset + length <= geometry.capacity_bytes {
        offset
    } else {
        0
    };
    let mut buffer = AlignedBuf::zeroed(block as usize)?;
    let op = RawOp {
        kind: OpKind::Read,
        fua: false,
        device: u32::try_from(slot).unwrap_or(u32::MAX),
        offset,
        length,
        memory: Memory::Flat {
            pointer: buffer.as_mut_ptr(),
            registered: None,
        },
        token: 0,
    };
    let mut completions = Vec::with_capacity(1);
    let mut failure = None;
    // SAFETY: `buffer` is not touched and not dropped before the completion, which the loop waits
    // for; if the kernel refuses the ring for good, the buffer is given up instead.
    unsafe { queue.submit(&op) };
    while completions.is_empty() {
        if let Err(error) = queue.wait(1, &mut completions) {
            failure = Some(error);
            break;
        }
    }
    if let Some(error) = failure {
        #[expect(clippy::mem_forget, reason = "the kernel may still use this memory")]
        std::mem::forget(buffer);
        return Err(Error::from_io(error, "io_uring does not answer").with_path(device.path()));
    }
    match completions[0].result {
        result if result == -libc::EOPNOTSUPP && queue.is_iopoll => Err(Error::new(
            ErrorKind::Unsupported,
            "no polling for completions (IOPOLL): the device has no poll queues (for NVMe: module \
             parameter nvme.poll_queues); leave it out",
        )
        .with_path(device.path())),
        result if result == -libc::EINVAL || result == -libc::EOPNOTSUPP => Err(Error::new(
            ErrorKind::Unsupported,
            "io_uring cannot read the device",
        )
        .with_source(io::Error::from_raw_os_error(-result))
        .with_path(device.path())),
        // A block that cannot be read says nothing about the ring.
        _ => Ok(()),
    }
}
