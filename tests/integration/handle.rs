//! The shared handle: blocking callers, futures on any executor, and those who walk away.
//!
//! What could go wrong: a completion that never comes or comes twice, memory given back while the
//! device still uses it, an operation lost with its future, a queue in front of the workers that
//! grows without bound, threads that outlive their handle.

mod backlog;
mod futures;
mod wake_ups;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use swath_engine::{
    AlignedBuf, Backend, Device, ErrorKind, Handle, HandleOptions, Kernel, LaneOptions, OpKind,
    OpenOptions, Platform, QueueOptions, Request, Segment, Submission,
};
use swath_tests::fixtures::{self, MIB, Place};
use swath_tests::seed::Seed;
use swath_tests::sim::{Fault, SimPlatform};

const BLOCK: usize = 4096;

/// Workers with room for one operation at a device and one job before it.
fn narrow(workers: usize) -> HandleOptions {
    let queue = QueueOptions {
        depth: 1,
        ..QueueOptions::default()
    };
    let lane = LaneOptions {
        queue,
        ..LaneOptions::default()
    };
    HandleOptions {
        workers,
        backlog: 1,
        lane,
        ..HandleOptions::default()
    }
}

fn open(platform: &dyn Platform, paths: &[PathBuf]) -> Vec<Arc<dyn Device>> {
    paths
        .iter()
        .map(|path| platform.open(path, &OpenOptions::read_write()).unwrap())
        .collect()
}

fn start(
    platform: impl Platform + 'static,
    devices: &[Arc<dyn Device>],
    options: &HandleOptions,
) -> swath_engine::Result<Handle> {
    let platform: Arc<dyn Platform> = Arc::new(platform);
    Handle::start(&platform, devices, options)
}

/// A handle over two simulated devices, `m0` and `m1`.
struct Rig {
    _seed: Seed,
    platform: SimPlatform,
    handle: Handle,
}

impl Rig {
    fn new(options: &HandleOptions) -> Self {
        let seed = Seed::new();
        let (platform, paths) = SimPlatform::with_members(seed.value(), 2, MIB);
        let devices = open(&platform, &paths);
        let handle = start(platform.clone(), &devices, options).unwrap();
        Self {
            _seed: seed,
            platform,
            handle,
        }
    }

    /// What the platform holds may go on, and all of it has ended when the handle is gone.
    fn finish(self) -> SimPlatform {
        self.platform.release();
        drop(self.handle);
        self.platform
    }
}

fn block(mark: u8) -> AlignedBuf {
    AlignedBuf::copy_of(&[mark; BLOCK]).unwrap()
}

fn at(number: u64) -> Vec<Segment> {
    vec![Segment::whole(0, number * 4096, 4096)]
}

#[test]
fn handles_and_submissions_go_to_any_thread() {
    const fn shared<T: Send + Sync + Clone + 'static>() {}
    const fn sent<T: Send + 'static>() {}
    const { shared::<Handle>() };
    const { sent::<Submission>() };
    // A future made here may end elsewhere.
    let rig = Rig::new(&HandleOptions::default());
    let submission = rig.handle.submit(Request::write(block(1), 4), at(0));
    let completion = thread::spawn(move || pollster::block_on(submission))
        .join()
        .unwrap();
    assert_eq!((completion.token, completion.result.unwrap()), (4, 4096));
}

#[test]
fn many_threads_read_back_what_they_wrote() {
    fixtures::for_each_backend(|backend| {
        for place in Place::ALL {
            let Some(folder) = place.folder() else {
                continue;
            };
            let devices = open(&Kernel, &fixtures::members(folder.path(), 2, MIB));
            let queue = QueueOptions {
                backend,
                ..QueueOptions::default()
            };
            let lane = LaneOptions {
                queue,
                ..LaneOptions::default()
            };
            let options = HandleOptions {
                workers: 2,
                lane,
                ..HandleOptions::default()
            };
            let handle = start(Kernel, &devices, &options).unwrap();
            assert_eq!(handle.description().backend, backend);
            thread::scope(|scope| {
                for thread in 0..8_u8 {
                    let handle = handle.clone();
                    scope.spawn(move || use_every_way(&handle, thread));
                }
            });
            let stats = handle.stats();
            assert_eq!(stats.total(OpKind::Write).count, 8 * 3);
            assert_eq!(stats.total(OpKind::Read).bytes, 8 * 3 * 4096);
        }
    });
}

/// Writes and reads three blocks: by calls, by borrowed memory, by futures.
fn use_every_way(handle: &Handle, thread: u8) {
    let place = |number: u64| {
        vec![Segment::whole(
            u32::from(thread % 2),
            (u64::from(thread) * 4 + number) * 4096,
            4096,
        )]
    };
    let completion = handle.call(Request::write(block(thread), 1), place(0));
    assert_eq!(completion.result.unwrap(), 4096);
    let completion = handle.call(Request::read(block(0xff), 2), place(0));
    assert_eq!(
        completion.buffers.into_one().unwrap().as_slice(),
        [thread; BLOCK]
    );

    let mut memory = block(thread + 100);
    handle.write_blocking(&memory, true, place(1)).unwrap();
    memory.fill(0);
    handle.read_blocking(&mut memory, place(1)).unwrap();
    assert_eq!(memory[..], [thread + 100; BLOCK]);

    pollster::block_on(async {
        let written = handle
            .submit(Request::write(block(thread + 50), 3), place(2))
            .await;
        assert_eq!((written.token, written.result.unwrap()), (3, 4096));
        let read = handle.submit(Request::read(block(0), 4), place(2)).await;
        assert_eq!(
            read.buffers.into_one().unwrap().as_slice(),
            [thread + 50; BLOCK]
        );
    });
}

#[test]
fn vectored_memory_of_a_waiting_caller_is_used_in_place() {
    let rig = Rig::new(&HandleOptions::default());
    let (one, two) = (block(1), block(2));
    let place = vec![Segment::whole(1, 0, 8192)];
    let pieces = [std::io::IoSlice::new(&one), std::io::IoSlice::new(&two)];
    rig.handle
        .write_vectored_blocking(&pieces, place.clone())
        .unwrap();
    let (mut first, mut second) = (block(0), block(0));
    let mut pieces = [
        std::io::IoSliceMut::new(&mut first),
        std::io::IoSliceMut::new(&mut second),
    ];
    rig.handle
        .read_vectored_blocking(&mut pieces, place)
        .unwrap();
    assert_eq!((first[0], second[0]), (1, 2));
    let trace = rig.platform.take_trace();
    assert!(
        trace
            .iter()
            .all(|op| (op.length, op.memory_pieces) == (8192, 2)),
        "{trace:?}"
    );
}

#[test]
fn errors_reach_whoever_waits() {
    let rig = Rig::new(&HandleOptions::default());
    rig.platform.inject(Fault::errno(libc::EIO).on("m0"));
    let completion = rig.handle.call(Request::write(block(1), 1), at(0));
    assert_eq!(completion.result.unwrap_err().kind(), ErrorKind::Device);
    assert_eq!(
        completion.buffers.into_one().unwrap().as_slice(),
        [1; BLOCK]
    );
    let awaited = pollster::block_on(rig.handle.submit(Request::read(block(1), 2), at(0)));
    assert_eq!(awaited.result.unwrap_err().kind(), ErrorKind::Device);
    let mut memory = block(0);
    let error = rig.handle.read_blocking(&mut memory, at(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Device);
    let error = rig
        .handle
        .write_blocking(&memory[..100], false, at(0))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let flushed = rig.handle.call(
        Request::without_memory(OpKind::Flush, 3),
        vec![Segment::flush(0), Segment::flush(1)],
    );
    assert_eq!(flushed.result.unwrap_err().path(), Some("m0".as_ref()));
    assert_eq!(rig.handle.stats().total(OpKind::Read).errors, 2);
}

#[test]
fn a_queue_that_is_refused_for_a_while_loses_nothing() {
    let rig = Rig::new(&HandleOptions {
        workers: 1,
        ..HandleOptions::default()
    });
    rig.platform.refuse_visits(20);
    for number in 0..10 {
        let completion = rig
            .handle
            .call(Request::write(block(1), number), at(number));
        assert_eq!(
            (completion.token, completion.result.unwrap()),
            (number, 4096)
        );
    }
    assert_eq!(rig.finish().take_trace().len(), 10);
}

#[test]
fn a_worker_whose_queue_is_refused_for_good_answers_everybody() {
    let rig = Rig::new(&HandleOptions {
        workers: 1,
        ..HandleOptions::default()
    });
    rig.platform.refuse_visits(2_000);
    let completion = rig.handle.call(Request::write(block(1), 6), at(0));
    let error = completion.result.unwrap_err();
    assert_eq!(
        (completion.token, error.kind()),
        (6, ErrorKind::Closed),
        "{error}"
    );
    // Those that come later get their memory back at once.
    let completion = rig.handle.call(Request::write(block(1), 7), at(0));
    assert_eq!(completion.result.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(completion.buffers.total_len(), 4096);
    assert_eq!(
        rig.handle.stats().total(OpKind::Write).count,
        0,
        "there is nobody to ask"
    );
}

#[test]
fn workers_that_cannot_be_had_are_an_error() {
    let (platform, paths) = SimPlatform::with_members(1, 1, MIB);
    let devices = open(&platform, &paths);
    for (workers, backlog) in [(0, 1), (1, 0)] {
        let options = HandleOptions {
            workers,
            backlog,
            ..HandleOptions::default()
        };
        let error = start(platform.clone(), &devices, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
    // The real kernel has no queue over a simulated device.
    for backend in Backend::ALL {
        let queue = QueueOptions {
            backend,
            ..QueueOptions::default()
        };
        let lane = LaneOptions {
            queue,
            ..LaneOptions::default()
        };
        let options = HandleOptions {
            lane,
            ..HandleOptions::default()
        };
        start(Kernel, &devices, &options).unwrap_err();
    }
    assert!(start(platform, &[], &HandleOptions::default()).is_err());
}

#[test]
fn threads_end_with_the_last_handle() {
    fixtures::in_own_process("handle::threads_end_with_the_last_handle", || {
        let folder = fixtures::folder();
        let devices = open(&Kernel, &fixtures::members(folder.path(), 2, MIB));
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let before = threads();
        fixtures::for_each_backend(|backend| {
            for _ in 0..10 {
                let queue = QueueOptions {
                    backend,
                    ..QueueOptions::default()
                };
                let lane = LaneOptions {
                    queue,
                    ..LaneOptions::default()
                };
                let options = HandleOptions {
                    workers: 3,
                    lane,
                    ..HandleOptions::default()
                };
                let handle = start(Kernel, &devices, &options).unwrap();
                let clone = handle.clone();
                drop(handle);
                assert!(threads() >= before + 3);
                assert!(clone.call(Request::read(block(0), 1), at(0)).result.is_ok());
            }
        });
        // A thread that was joined may still be listed for a moment.
        for _ in 0..1000 {
            if threads() > before {
                thread::sleep(Duration::from_millis(1));
            }
        }
        assert_eq!(threads(), before);
    });
}

#[test]
fn a_pinned_worker_serves_like_any_other() {
    let rig = Rig::new(&HandleOptions {
        workers: 5,
        pin: true,
        ..HandleOptions::default()
    });
    for number in 0..10 {
        let completion = rig
            .handle
            .call(Request::write(block(1), number), at(number));
        assert_eq!(completion.result.unwrap(), 4096);
    }
}
