//! A thousand volumes in one process, and many members in one volume.
//!
//! What could go wrong: descriptors, threads or locked memory that every volume keeps although nobody
//! uses it; a queue that the kernel refuses and that is not replaced by a plainer one; descriptors that
//! outlive their volume.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use swath_engine::queue::Queue;
use swath_engine::{
    AlignedBuf, Backend, Device, HandleOptions, Kernel, LaneOptions, Platform, QueueOptions,
};
use swath_tests::fixtures::{self, MIB};
use swath_tests::skipped;
use swath_volume::{CreateOptions, Volume};

const VOLUMES: usize = 1000;

/// A volume takes one descriptor for each member; a lane of io_uring takes two more, one of them the
/// ring's. The rest is the test's own.
const DESCRIPTORS: u64 = 3 * VOLUMES as u64 + 200;

/// One worker each: a thousand volumes times a worker for each core is more threads than some systems
/// let a process have.
fn one_worker() -> HandleOptions {
    HandleOptions {
        workers: 1,
        ..HandleOptions::default()
    }
}

fn sparse_file(folder: &Path, number: usize) -> PathBuf {
    let path = folder.join(format!("v{number}"));
    File::create(&path).unwrap().set_len(5 * MIB).unwrap();
    path
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Threads of this program's own: the kernel lists helpers of its rings among them, `iou-wrk-...`, and
/// ends them itself some seconds after their work.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| !name.starts_with("iou-")).count()
}

/// How many threads are left. Those that were joined are listed for a moment longer.
fn threads_left(wanted: usize) -> usize {
    for _ in 0..1000 {
        if threads() <= wanted {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    threads()
}

/// Whether the process may have as many descriptors; raises the limit as far as it goes.
fn has_descriptors(wanted: u64) -> bool {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return true;
    }
    let is_enough = maximum.is_none_or(|maximum| maximum >= wanted);
    let raised = Rlimit {
        current: Some(wanted),
        maximum,
    };
    if is_enough && setrlimit(Resource::Nofile, raised).is_ok() {
        return true;
    }
    skipped(format_args!(
        "a process may have {maximum:?} descriptors here, and {wanted} are wanted (ulimit -Hn)"
    ));
    false
}

/// The kernel, and which queues were probed.
#[derive(Debug, Default)]
struct Watched(Mutex<Vec<bool>>);

impl Platform for Watched {
    fn open(
        &self,
        path: &Path,
        options: &swath_engine::OpenOptions,
    ) -> swath_engine::Result<Arc<dyn Device>> {
        Kernel.open(path, options)
    }

    fn queue(
        &self,
        devices: &[Arc<dyn Device>],
        options: &QueueOptions,
    ) -> swath_engine::Result<Box<dyn Queue>> {
        if options.backend != Backend::Sync {
            self.0.lock().push(options.probe_offset.is_some());
        }
        Kernel.queue(devices, options)
    }
}

#[test]
fn members_are_probed_for_the_first_lane_and_for_no_other() {
    if !fixtures::backends().contains(&Backend::Uring) {
        return;
    }
    let folder = fixtures::folder();
    let platform = Arc::new(Watched::default());
    let shared: Arc<dyn Platform> = Arc::clone(&platform) as _;
    let paths = fixtures::members(folder.path(), 3, 5 * MIB);
    let options = CreateOptions {
        handle: one_worker(),
        ..CreateOptions::default()
    };
    let volume = Volume::create_on(shared, &paths, &options).unwrap();
    for _ in 0..3 {
        volume.lane(&LaneOptions::default()).unwrap();
    }
    volume.commit_root(b"a commit").unwrap();
    volume.write_at(b"the shared handle", 5).unwrap();
    assert_eq!(*platform.0.lock(), [true, false, false, false, false]);
}

#[test]
fn a_thousand_volumes_are_open_and_used_in_one_process() {
    let name = "volume::many::a_thousand_volumes_are_open_and_used_in_one_process";
    fixtures::in_own_process(name, || {
        if !has_descriptors(DESCRIPTORS) {
            return;
        }
        let folder = fixtures::folder();
        let before = (descriptors(), threads());
        let volumes = made_by_threads(folder.path());
        // One that nobody calls has its members open, and nothing else.
        let open = (descriptors(), threads_left(before.1));
        assert_eq!(open, (before.0 + VOLUMES, before.1));

        // A lane each, all of them open at once, on whatever queue is to be had.
        let mut lanes: Vec<_> = volumes
            .iter()
            .map(|volume| {
                let options = LaneOptions {
                    queue: QueueOptions {
                        depth: 8,
                        ..QueueOptions::default()
                    },
                    ..LaneOptions::default()
                };
                volume.lane(&options).unwrap()
            })
            .collect();
        for (number, lane) in (0..).zip(&mut lanes) {
            let mark = AlignedBuf::copy_of(&[mark(number); 4096]).unwrap();
            lane.write(0, mark, number);
            let mut completions = Vec::new();
            lane.drain(&mut completions).unwrap();
            assert_eq!(completions[0].result.as_ref().unwrap(), &4096);
            let description = lane.description();
            // A plainer queue is taken only with a reason.
            assert!(
                description.backend == Backend::Uring || !description.reasons.is_empty(),
                "{description}"
            );
        }
        drop(lanes);

        // The shared calls, which start a worker each.
        for (number, volume) in (0..).zip(&volumes) {
            let mut block = [0; 4096];
            volume.read_at(&mut block, 0).unwrap();
            assert_eq!(block, [mark(number); 4096], "volume {number}");
            volume.write_at(&[mark(number + 1)], 5000).unwrap();
        }
        assert!(threads() <= before.1 + VOLUMES, "{} threads", threads());
        for (number, volume) in (0..).zip(&volumes) {
            let mut byte = [0];
            volume.read_at(&mut byte, 5000).unwrap();
            assert_eq!(byte, [mark(number + 1)], "volume {number}");
        }
        drop(volumes);
        assert_eq!(
            (descriptors(), threads_left(before.1)),
            before,
            "something is left open"
        );
    });
}

/// Each creation waits for the drive several times: side by side they wait together.
fn made_by_threads(folder: &Path) -> Vec<Volume> {
    const THREADS: usize = 16;
    let make = |number| {
        let options = CreateOptions {
            handle: one_worker(),
            ..CreateOptions::default()
        };
        Volume::create(&[sparse_file(folder, number)], &options).unwrap()
    };
    let make = &make;
    thread::scope(|scope| {
        let makers: Vec<_> = (0..THREADS)
            .map(|first| {
                let numbers = (first..VOLUMES).step_by(THREADS);
                scope.spawn(move || numbers.map(make).collect::<Vec<_>>())
            })
            .collect();
        let made = makers.into_iter().map(|maker| maker.join().unwrap());
        made.flatten().collect()
    })
}

fn mark(number: u64) -> u8 {
    u8::try_from(number % 251).unwrap()
}
