//! Wake-ups of workers: what a request costs beside its I/O.
//!
//! What could go wrong: a system call for every request although the worker is awake, a worker that
//! sleeps before a full inbox, all the futures that wait for room woken for the room of one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use swath_engine::{HandleOptions, LaneOptions, QueueOptions, Request, Submission};

use super::{Rig, at, block};

/// A waker that keeps the worker that calls it: says that it is there, and waits for leave to go on.
struct Detain {
    arrived: Mutex<mpsc::Sender<()>>,
    leave: Mutex<mpsc::Receiver<()>>,
}

impl Wake for Detain {
    fn wake(self: Arc<Self>) {
        self.arrived.lock().send(()).unwrap();
        self.leave.lock().recv().unwrap();
    }
}

/// A worker in the middle of its work, and what lets it go on.
struct Detained {
    leave: mpsc::Sender<()>,
    submission: Submission,
}

impl Detained {
    fn new(rig: &Rig) -> Self {
        let (arrived, arrival) = mpsc::channel();
        let (leave, left) = mpsc::channel();
        let waker = Waker::from(Arc::new(Detain {
            arrived: Mutex::new(arrived),
            leave: Mutex::new(left),
        }));
        rig.platform.hold();
        let mut submission = rig.handle.submit(Request::write(block(1), 0), at(0));
        let polled = Pin::new(&mut submission).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending(), "the device holds it");
        rig.platform.release();
        arrival.recv().unwrap();
        Self { leave, submission }
    }

    fn go_on(self) {
        self.leave.send(()).unwrap();
        assert_eq!(self.submission.wait().result.unwrap(), 4096);
    }
}

fn one_worker() -> HandleOptions {
    HandleOptions {
        workers: 1,
        ..HandleOptions::default()
    }
}

#[test]
fn a_hundred_requests_cost_one_wake_up_while_the_worker_is_busy() {
    let rig = Rig::new(&one_worker());
    let detained = Detained::new(&rig);
    let submissions: Vec<_> = (0..100)
        .map(|number| {
            rig.handle
                .submit(Request::write(block(2), number), at(number))
        })
        .collect();
    detained.go_on();
    for submission in submissions {
        assert_eq!(submission.wait().result.unwrap(), 4096);
    }
    // The one that it was detained by, unless the worker had not gone to sleep yet.
    let wake_ups = rig.handle.stats().wake_ups();
    assert!(wake_ups <= 1, "{wake_ups}");
}

#[test]
fn a_lone_caller_wakes_a_sleeping_worker_at_most_once_for_each_request() {
    let rig = Rig::new(&one_worker());
    // How soon a worker sleeps is the kernel's to say.
    for number in 1..=1000 {
        let completion = rig.handle.call(Request::write(block(1), number), at(0));
        assert_eq!(completion.result.unwrap(), 4096);
        let wake_ups = rig.handle.stats().wake_ups();
        assert!(wake_ups <= number, "{wake_ups} for {number}");
        if wake_ups >= 3 {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("a worker that sleeps was never woken");
}

#[test]
fn a_worker_whose_lane_is_full_is_not_woken_for_what_it_cannot_take() {
    let rig = Rig::new(&HandleOptions {
        workers: 1,
        lane: LaneOptions {
            queue: QueueOptions {
                depth: 2,
                ..QueueOptions::default()
            },
            ..LaneOptions::default()
        },
        ..HandleOptions::default()
    });
    rig.platform.hold();
    let submissions: Vec<_> = (0..50)
        .map(|number| {
            rig.handle
                .submit(Request::write(block(3), number), at(number))
        })
        .collect();
    // Answered by the worker itself: it has looked at all of them, and the device holds two.
    let wake_ups = rig.handle.stats().wake_ups();
    rig.platform.release();
    assert!(wake_ups <= 3, "{wake_ups} for room of two");
    for submission in submissions {
        assert_eq!(submission.wait().result.unwrap(), 4096);
    }
}

/// A waker that counts, and has its future polled by the thread of the test.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn futures_that_wait_for_room_are_woken_as_there_is_room_and_all_in_the_end() {
    let rig = Rig::new(&HandleOptions {
        workers: 1,
        backlog: 4,
        lane: LaneOptions {
            queue: QueueOptions {
                depth: 1,
                ..QueueOptions::default()
            },
            ..LaneOptions::default()
        },
        ..HandleOptions::default()
    });
    let detained = Detained::new(&rig);
    let accepted: Vec<_> = (0..4)
        .map(|number| {
            rig.handle
                .submit(Request::write(block(4), number), at(number))
        })
        .collect();
    let counters: Vec<_> = (0..40).map(|_| Arc::new(Counter::default())).collect();
    let mut waiting: Vec<_> = (0..)
        .zip(&counters)
        .map(|(number, counter)| {
            let mut submission = rig
                .handle
                .submit(Request::write(block(5), number), at(number));
            let waker = Waker::from(Arc::clone(counter));
            let polled = Pin::new(&mut submission).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending(), "there is no room");
            submission
        })
        .collect();
    let woken = || -> usize {
        let counts = counters.iter().map(|one| one.0.load(Ordering::SeqCst));
        counts.sum()
    };
    assert_eq!(woken(), 0);
    // Those that are woken and given up must not leave the others waiting: half of them go.
    waiting.truncate(20);
    rig.platform.hold();
    detained.go_on();
    // One job is at the device, and there is room for one more in front of the worker.
    while woken() == 0 {
        thread::yield_now();
    }
    // Answered when the worker has nothing left to do.
    let wake_ups = rig.handle.stats().wake_ups();
    let woken_for_one = woken();
    rig.platform.release();
    assert!(wake_ups <= 1, "{wake_ups}");
    assert_eq!(woken_for_one, 1, "woken without room");
    for submission in accepted {
        assert_eq!(submission.wait().result.unwrap(), 4096);
    }
    // The inbox is empty, so all were told.
    while woken() < 40 {
        thread::yield_now();
    }
    for submission in waiting {
        assert_eq!(pollster::block_on(submission).result.unwrap(), 4096);
    }
}
