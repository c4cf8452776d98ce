//! The tests that every backend of the kernel passes: one claim each, only the constructor differs.
//!
//! They run on files that were unlinked when they were made, in the directory for temporary files,
//! opened with O_DIRECT where that is possible.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::device::{Device, DeviceKind, Identity};
use crate::error::{ErrorKind, Result};
use crate::geometry::Geometry;
use crate::op::OpKind;
use crate::queue::aio::AioQueue;
use crate::queue::sync::SyncQueue;
use crate::queue::uring::UringQueue;
use crate::queue::{Memory, Queue, QueueOptions, RawCompletion, RawOp};
use crate::skipped::skipped;

pub(super) const BLOCK: usize = 4096;
const FILE_BLOCKS: usize = 64;

/// An unlinked temporary file as a device.
#[derive(Debug)]
pub(super) struct TestFile {
    path: PathBuf,
    file: Option<File>,
    geometry: Geometry,
    is_direct: bool,
}

static FILES_MADE: AtomicU64 = AtomicU64::new(0);

impl TestFile {
    fn open(read_only: bool) -> Arc<Self> {
        let number = FILES_MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("swath-queue-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, vec![0xee; FILE_BLOCKS * BLOCK]).unwrap();
        let open = |flags| {
            OpenOptions::new()
                .read(true)
                .write(!read_only)
                .custom_flags(flags)
                .open(&path)
        };
        let direct = open(libc::O_DIRECT);
        let is_direct = direct.is_ok();
        let file = direct.or_else(|_| open(0)).unwrap();
        file.sync_all().unwrap();
        std::fs::remove_file(&path).unwrap();
        let geometry = Geometry::uniform((FILE_BLOCKS * BLOCK) as u64, 4096);
        Arc::new(Self {
            path,
            file: Some(file),
            geometry,
            is_direct,
        })
    }

    pub(super) fn writable() -> Arc<dyn Device> {
        Self::open(false)
    }

    fn simulated() -> Arc<dyn Device> {
        let geometry = Geometry::uniform(1 << 20, 4096);
        Arc::new(Self {
            path: "simulated".into(),
            file: None,
            geometry,
            is_direct: true,
        })
    }
}

impl Device for TestFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> Identity {
        Identity::Simulated {
            number: std::ptr::from_ref(self).addr() as u64,
        }
    }

    fn kind(&self) -> DeviceKind {
        if self.file.is_some() {
            DeviceKind::File
        } else {
            DeviceKind::Simulated
        }
    }

    fn is_direct(&self) -> bool {
        self.is_direct
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(File::as_fd)
    }
}

/// Memory that direct I/O takes.
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK]);

pub(super) struct Pages(Vec<Block>);

impl Pages {
    pub(super) fn filled(blocks: usize, byte: u8) -> Self {
        Self(vec![Block([byte; BLOCK]); blocks])
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|block| block.0).collect()
    }

    fn is_filled_with(&self, byte: u8) -> bool {
        self.0
            .iter()
            .all(|block| block.0.iter().all(|&found| found == byte))
    }

    fn len(&self) -> usize {
        self.0.len() * BLOCK
    }

    pub(super) fn flat(&mut self) -> Memory {
        Memory::Flat {
            pointer: self.0.as_mut_ptr().cast(),
            registered: None,
        }
    }

    /// One iovec for each block, last block first.
    fn backwards(&mut self) -> Vec<libc::iovec> {
        self.0
            .iter_mut()
            .rev()
            .map(|block| libc::iovec {
                iov_base: (&raw mut block.0).cast(),
                iov_len: BLOCK,
            })
            .collect()
    }
}

pub(super) fn op(kind: OpKind, block: usize, blocks: usize, memory: Memory, token: u64) -> RawOp {
    RawOp {
        kind,
        fua: false,
        device: 0,
        offset: (block * BLOCK) as u64,
        length: (blocks * BLOCK) as u64,
        memory,
        token,
    }
}

/// Submits, and waits for everything in flight.
pub(super) fn run(queue: &mut dyn Queue, ops: &[RawOp]) -> Vec<RawCompletion> {
    for op in ops {
        // SAFETY: the tests keep the memory of `ops` alive and leave it alone until this returns.
        unsafe { queue.submit(op) };
    }
    let mut completions = Vec::new();
    while completions.len() < ops.len() {
        queue
            .wait(ops.len() - completions.len(), &mut completions)
            .unwrap();
    }
    assert_eq!(completions.len(), ops.len());
    completions.sort_by_key(|completion| completion.token);
    completions
}

pub(super) fn run_one(queue: &mut dyn Queue, op: &RawOp) -> i32 {
    let completions = run(queue, &[*op]);
    assert_eq!(completions[0].token, op.token);
    completions[0].result
}

pub(super) fn depth(depth: u32) -> QueueOptions {
    QueueOptions {
        depth,
        ..QueueOptions::default()
    }
}

type Open = fn(&[Arc<dyn Device>], &QueueOptions) -> Result<Box<dyn Queue>>;

fn sync(
    devices: &[Arc<dyn Device>],
    options: &QueueOptions,
    threads: usize,
) -> Result<Box<dyn Queue>> {
    Ok(Box::new(SyncQueue::open(
        devices,
        options,
        threads,
        Vec::new(),
    )?))
}

const BACKENDS: &[(&str, Open)] = &[
    ("sync, caller's thread", |devices, options| {
        sync(devices, options, 0)
    }),
    ("sync, 1 thread", |devices, options| {
        sync(devices, options, 1)
    }),
    ("sync, 4 threads", |devices, options| {
        sync(devices, options, 4)
    }),
    ("uring", |devices, options| {
        Ok(Box::new(UringQueue::open(devices, options, Vec::new())?))
    }),
    ("aio", |devices, options| {
        Ok(Box::new(AioQueue::open(devices, options, Vec::new())?))
    }),
];

/// Runs a check on each backend. One that this machine does not have is named and left out.
fn each_backend(check: impl Fn(Open)) {
    for (name, open) in BACKENDS {
        if let Err(error) = open(&[TestFile::writable()], &depth(4)) {
            skipped(format_args!("{name}: {error:?}"));
            continue;
        }
        println!("{name}");
        check(*open);
    }
}

#[test]
fn what_was_written_is_read_back() {
    each_backend(|open| {
        let mut queue = open(&[TestFile::writable()], &depth(8)).unwrap();
        let (mut written, mut read) = (Pages::filled(3, 0x5a), Pages::filled(5, 0));
        let len = i32::try_from(written.len()).unwrap();
        let write = op(OpKind::Write, 7, 3, written.flat(), 1 << 63);
        assert_eq!(run_one(&mut *queue, &write), len);
        let read_op = op(OpKind::Read, 6, 5, read.flat(), 0);
        assert_eq!(run_one(&mut *queue, &read_op), 5 * 4096);
        let bytes = read.bytes();
        assert!(
            bytes[BLOCK..4 * BLOCK] == written.bytes(),
            "the middle is what was written"
        );
        assert!(
            bytes[..BLOCK]
                .iter()
                .chain(&bytes[4 * BLOCK..])
                .all(|&byte| byte == 0xee)
        );
    });
}

#[test]
fn vectors_keep_the_order_of_their_iovecs() {
    each_backend(|open| {
        let mut queue = open(&[TestFile::writable()], &depth(8)).unwrap();
        let mut written = Pages::filled(4, 0);
        for (block, byte) in written.0.iter_mut().zip(1..) {
            block.0.fill(byte);
        }
        for fua in [false, true] {
            let list = written.backwards();
            let memory = Memory::Vector {
                iovecs: list.as_ptr(),
                count: 4,
            };
            let write = RawOp {
                fua,
                ..op(OpKind::Write, 20, 4, memory, 1)
            };
            assert_eq!(run_one(&mut *queue, &write), 4 * 4096);
            let mut read = Pages::filled(4, 0);
            let flat = op(OpKind::Read, 20, 4, read.flat(), 2);
            assert_eq!(run_one(&mut *queue, &flat), 4 * 4096);
            assert_eq!(
                read.0.iter().map(|block| block.0[9]).collect::<Vec<_>>(),
                [4, 3, 2, 1]
            );
            let list = read.backwards();
            let memory = Memory::Vector {
                iovecs: list.as_ptr(),
                count: 4,
            };
            let vectored = op(OpKind::Read, 20, 4, memory, 3);
            assert_eq!(run_one(&mut *queue, &vectored), 4 * 4096);
            assert!(read.bytes() == written.bytes());
        }
    });
}

#[test]
fn flush_fua_discard_and_write_zeroes_do_what_they_say() {
    each_backend(|open| {
        let mut queue = open(&[TestFile::writable()], &depth(8)).unwrap();
        let mut pages = Pages::filled(2, 0x77);
        let fua = RawOp {
            fua: true,
            ..op(OpKind::Write, 0, 2, pages.flat(), 1)
        };
        assert_eq!(run_one(&mut *queue, &fua), 2 * 4096);
        assert_eq!(
            run_one(&mut *queue, &op(OpKind::Flush, 0, 0, Memory::None, 2)),
            0
        );
        for (kind, block) in [(OpKind::WriteZeroes, 0), (OpKind::Discard, 1)] {
            let result = run_one(&mut *queue, &op(kind, block, 1, Memory::None, 3));
            if result == -libc::EOPNOTSUPP {
                skipped(format_args!("{kind}: this file system has none"));
                continue;
            }
            assert_eq!(result, 0, "{kind}");
            let mut read = Pages::filled(1, 1);
            let read_op = op(OpKind::Read, block, 1, read.flat(), 4);
            assert_eq!(run_one(&mut *queue, &read_op), 4096);
            assert!(
                read.is_filled_with(0),
                "{kind}: a hole in a file reads as zeroes"
            );
        }
    });
}

#[test]
fn every_operation_has_one_completion_whatever_the_depth() {
    each_backend(|open| {
        let devices = [TestFile::writable(), TestFile::writable()];
        for depth_now in [1, 5, 64] {
            let mut queue = open(&devices, &depth(depth_now)).unwrap();
            let capacity = queue.capacity();
            let mut memory: Vec<_> = (0..capacity).map(|_| Pages::filled(1, 0)).collect();
            for round in 0..3 {
                let ops: Vec<_> = memory
                    .iter_mut()
                    .enumerate()
                    .map(|(number, pages)| {
                        let kind = match number % 5 {
                            3 => OpKind::WriteZeroes,
                            4 => OpKind::Flush,
                            1 => OpKind::Write,
                            _ => OpKind::Read,
                        };
                        let memory = if kind.has_memory() {
                            pages.flat()
                        } else {
                            Memory::None
                        };
                        let token = (round * capacity + number) as u64;
                        let device = u32::from(number % 2 == 1);
                        RawOp {
                            device,
                            ..op(kind, number % FILE_BLOCKS, 1, memory, token)
                        }
                    })
                    .collect();
                for (done, op) in run(&mut *queue, &ops).iter().zip(&ops) {
                    assert_eq!(done.token, op.token);
                    assert_eq!(done.result, if op.kind.has_memory() { 4096 } else { 0 });
                }
            }
            let mut more = Vec::new();
            queue.poll(&mut more).unwrap();
            assert!(more.is_empty(), "no operation completes twice");
        }
    });
}

#[test]
fn polling_alone_completes() {
    each_backend(|open| {
        let mut queue = open(&[TestFile::writable()], &depth(8)).unwrap();
        let mut pages = Pages::filled(1, 0);
        let mut completions = Vec::new();
        let begin = Instant::now();
        for kind in [OpKind::Read, OpKind::Flush, OpKind::WriteZeroes] {
            let memory = if kind.has_memory() {
                pages.flat()
            } else {
                Memory::None
            };
            // SAFETY: `pages` outlives the queue's use of it: the loop below awaits it.
            unsafe { queue.submit(&op(kind, 0, 1, memory, 1)) };
        }
        while completions.len() < 3 {
            queue.poll(&mut completions).unwrap();
            assert!(begin.elapsed() < Duration::from_secs(20), "{completions:?}");
            thread::yield_now();
        }
    });
}

#[test]
fn the_end_of_the_file_makes_a_read_short() {
    each_backend(|open| {
        let mut queue = open(&[TestFile::writable()], &depth(2)).unwrap();
        let mut pages = Pages::filled(2, 0);
        let across = op(OpKind::Read, FILE_BLOCKS - 1, 2, pages.flat(), 1);
        assert_eq!(run_one(&mut *queue, &across), 4096);
        let behind = op(OpKind::Read, FILE_BLOCKS, 1, pages.flat(), 2);
        assert_eq!(run_one(&mut *queue, &behind), 0);
    });
}

/// A refused operation in the middle of a batch must not take its neighbours with it.
#[test]
fn a_refusal_concerns_one_operation_only() {
    each_backend(|open| {
        let devices: [Arc<dyn Device>; 2] = [TestFile::writable(), TestFile::open(true)];
        let mut queue = open(&devices, &depth(8)).unwrap();
        let mut memory: Vec<_> = (0..6).map(|_| Pages::filled(1, 3)).collect();
        let mut ops: Vec<_> = memory
            .iter_mut()
            .zip(0..)
            .map(|(pages, token)| op(OpKind::Write, 0, 1, pages.flat(), token))
            .collect();
        ops[1].device = 1;
        ops[2].offset = u64::MAX - 4095;
        let results: Vec<_> = run(&mut *queue, &ops)
            .iter()
            .map(|done| done.result)
            .collect();
        let (refused, invalid) = (-libc::EBADF, -libc::EINVAL);
        assert_eq!(results, [4096, refused, invalid, 4096, 4096, 4096]);
    });
}

#[test]
fn a_full_queue_and_an_unknown_device_panic() {
    each_backend(|open| {
        let mut queue = open(&[TestFile::writable()], &depth(2)).unwrap();
        let flush = op(OpKind::Flush, 0, 0, Memory::None, 1);
        let unknown = RawOp { device: 1, ..flush };
        // SAFETY: a flush has no memory.
        let mut panics =
            |op: &RawOp| catch_unwind(AssertUnwindSafe(|| unsafe { queue.submit(op) })).is_err();
        assert!(panics(&unknown));
        assert!(!panics(&flush) && !panics(&flush));
        assert!(panics(&flush), "a third operation in a queue of two");
        let mut completions = Vec::new();
        while completions.len() < 2 {
            queue.wait(1, &mut completions).unwrap();
        }
        assert_eq!(run_one(&mut *queue, &flush), 0, "the queue works on");
    });
}

#[test]
fn a_wake_ends_a_wait_with_nothing_in_flight() {
    each_backend(|open| {
        let mut queue = open(&[TestFile::writable()], &depth(4)).unwrap();
        let waker = queue.waker();
        let mut completions = Vec::new();
        for _ in 0..3 {
            let before = Instant::now();
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(10));
                    waker.wake();
                });
                queue.wait(1, &mut completions).unwrap();
            });
            assert!(
                before.elapsed() >= Duration::from_millis(9),
                "the wait did wait"
            );
        }
        waker.wake();
        queue.wait(1, &mut completions).unwrap();
        assert!(completions.is_empty());
        let mut pages = Pages::filled(1, 0);
        assert_eq!(
            run_one(&mut *queue, &op(OpKind::Read, 0, 1, pages.flat(), 1)),
            4096
        );
    });
}

#[test]
fn a_wake_before_the_waker_is_dropped_is_not_lost() {
    each_backend(|open| {
        let mut queue = open(&[TestFile::writable()], &depth(4)).unwrap();
        let waker = queue.waker();
        let thread = thread::spawn(move || waker.wake());
        queue.wait(1, &mut Vec::new()).unwrap();
        thread.join().unwrap();
    });
}

/// Wakes from several threads, while operations of every kind are under way.
#[test]
fn wakes_do_not_disturb_operations() {
    each_backend(|open| {
        let mut queue = open(&[TestFile::writable()], &depth(4)).unwrap();
        let waker = queue.waker();
        let mut memory: Vec<_> = (0..4).map(|_| Pages::filled(1, 0)).collect();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..2000).for_each(|_| waker.wake()));
            }
            for round in 0..100 {
                let mut ops: Vec<_> = memory
                    .iter_mut()
                    .zip(0..)
                    .map(|(pages, token)| op(OpKind::Read, 1, 1, pages.flat(), token))
                    .collect();
                if round % 5 == 0 {
                    ops[3] = op(OpKind::WriteZeroes, 9, 1, Memory::None, 3);
                }
                let results: Vec<_> = run(&mut *queue, &ops)
                    .iter()
                    .map(|done| done.result)
                    .collect();
                assert_eq!(results[..3], [4096; 3]);
            }
        });
    });
}

#[test]
fn dropping_waits_for_what_is_in_flight() {
    each_backend(|open| {
        for _ in 0..10 {
            let mut queue = open(&[TestFile::writable()], &depth(16)).unwrap();
            let waker = queue.waker();
            let mut memory: Vec<_> = (0..16).map(|_| Pages::filled(2, 0)).collect();
            for (pages, number) in memory.iter_mut().zip(0..) {
                let kind = if number % 4 == 3 {
                    OpKind::WriteZeroes
                } else {
                    OpKind::Read
                };
                let memory = if kind.has_memory() {
                    pages.flat()
                } else {
                    Memory::None
                };
                // SAFETY: `memory` outlives the queue, whose drop ends all use of it.
                unsafe { queue.submit(&op(kind, 2 * number, 2, memory, 0)) };
            }
            // Some have begun and some have not.
            let mut completions = Vec::new();
            queue.poll(&mut completions).unwrap();
            drop(queue);
            for pages in &mut memory {
                pages.0.fill(Block([0x11; BLOCK]));
            }
            thread::yield_now();
            assert!(memory.iter().all(|pages| pages.is_filled_with(0x11)));
            waker.wake();
        }
    });
}

#[test]
fn a_simulated_device_is_refused() {
    each_backend(|open| {
        let error = open(&[TestFile::writable(), TestFile::simulated()], &depth(4)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(error.path(), Some(Path::new("simulated")));
    });
}

#[test]
fn descriptions_name_the_backend_and_its_settings() {
    let devices = [TestFile::writable()];
    let sync = |threads| {
        sync(&devices, &depth(8), threads)
            .unwrap()
            .description()
            .to_string()
    };
    assert_eq!(sync(0), "sync (caller's thread)");
    assert_eq!(sync(1), "sync (1 thread)");
    assert_eq!(sync(100), "sync (8 threads)");
}
