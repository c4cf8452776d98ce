//! What the scheduler itself could get wrong: threads at once, an order that does not follow from the
//! seed, always the same order, a deadlock that hangs.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use swath_engine::queue::Queue;
use swath_engine::{Device, Gate, OpenOptions, Platform, QueueOptions, Result, threads};

use super::*;

/// A platform of threads and nothing else.
#[derive(Debug)]
struct Threads(Arc<SimScheduler>);

impl Platform for Threads {
    fn open(&self, _: &Path, _: &OpenOptions) -> Result<Arc<dyn Device>> {
        unreachable!("there are no devices here")
    }

    fn queue(&self, _: &[Arc<dyn Device>], _: &QueueOptions) -> Result<Box<dyn Queue>> {
        unreachable!("there are no devices here")
    }

    fn scheduler(&self) -> Option<Arc<dyn Scheduler>> {
        Some(Arc::clone(&self.0) as Arc<dyn Scheduler>)
    }
}

/// Three threads take what two others make, through room for two. Gives who took what, in order.
fn exchange(seed: u64) -> (Vec<(u64, u64)>, Steps) {
    let scheduler = SimScheduler::new(seed);
    let platform = Threads(Arc::clone(&scheduler));
    let taken = scheduler.run(move || {
        let alone = AtomicBool::new(false);
        let room = Gate::new(&platform, "room", Vec::new());
        let taken = Gate::new(&platform, "taken", Vec::new());
        let step = || {
            // Nobody else is between these two.
            assert!(!alone.swap(true, Ordering::Relaxed));
            thread::yield_now();
            alone.store(false, Ordering::Relaxed);
        };
        threads::scope(&platform, |scope| {
            for maker in 0..2 {
                let (room, step) = (&room, &step);
                let make = move || {
                    for number in 0..6 {
                        step();
                        let mut room_ = room.lock();
                        while room_.len() == 2 {
                            room_.wait();
                        }
                        room_.push(maker * 10 + number);
                        drop(room_);
                        room.notify_all();
                    }
                };
                scope.spawn("maker", make).unwrap();
            }
            for taker in 0..3 {
                let (room, taken, step) = (&room, &taken, &step);
                let take = move || {
                    for _ in 0..4 {
                        step();
                        let mut room_ = room.lock();
                        while room_.is_empty() {
                            room_.wait();
                        }
                        let number = room_.remove(0);
                        drop(room_);
                        room.notify_all();
                        taken.lock().push((taker, number));
                    }
                };
                scope.spawn("taker", take).unwrap();
            }
        });
        std::mem::take(&mut *taken.lock())
    });
    (taken, scheduler.steps())
}

#[test]
fn a_seed_gives_one_order_and_other_seeds_others() {
    let mut orders = BTreeSet::new();
    for seed in 0..200 {
        let (taken, steps) = exchange(seed);
        let mut numbers: Vec<u64> = taken.iter().map(|&(_, number)| number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15]);
        if seed % 10 == 0 {
            assert_eq!(exchange(seed), (taken.clone(), steps));
        }
        orders.insert(taken);
    }
    assert!(orders.len() > 190, "only {} orders", orders.len());
}

#[test]
fn a_deadlock_ends_with_who_waits_for_what() {
    let scheduler = SimScheduler::new(1);
    let platform = Threads(Arc::clone(&scheduler));
    let run = move || {
        scheduler.run(move || {
            let gates =
                ["the left fork", "the right fork"].map(|name| Gate::new(&platform, name, ()));
            let [left, right] = &gates;
            let both = Gate::new(&platform, "both", 0);
            threads::scope(&platform, |scope| {
                for (name, one, two) in [("plato", left, right), ("kant", right, left)] {
                    let both = &both;
                    let eat = move || {
                        let _one = one.lock();
                        *both.lock() += 1;
                        both.notify_all();
                        let mut count = both.lock();
                        while *count < 2 {
                            count.wait();
                        }
                        drop(count);
                        let _two = two.lock();
                    };
                    scope.spawn(name, eat).unwrap();
                }
            });
        });
    };
    let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    let report = panic.downcast_ref::<String>().unwrap();
    for line in [
        "deadlock: nobody can go on",
        "main (0) waits for the end of plato (1)",
        "plato (1) waits for the right fork",
        "kant (2) waits for the left fork",
    ] {
        assert!(report.contains(line), "{report}");
    }
}

#[test]
fn a_panic_in_a_run_is_the_callers() {
    let scheduler = SimScheduler::new(1);
    let run = || scheduler.run(|| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
}

#[test]
fn who_sleeps_goes_on_when_it_is_time_or_when_woken() {
    let scheduler = SimScheduler::new(1);
    let platform = Threads(Arc::clone(&scheduler));
    let inner = Arc::clone(&scheduler);
    scheduler.run(move || {
        let place = inner.place("an alarm");
        let order = Gate::new(&platform, "order", Vec::new());
        threads::scope(&platform, |scope| {
            for until_ns in [300, 100, 200] {
                let (inner, order) = (&inner, &order);
                let sleep = move || {
                    inner.sleep(until_ns, place);
                    order.lock().push(until_ns);
                };
                scope.spawn("sleeper", sleep).unwrap();
            }
        });
        assert_eq!(*order.lock(), [100, 200, 300]);
        threads::scope(&platform, |scope| {
            let early = scope
                .spawn("early", || inner.sleep(u64::MAX, place))
                .unwrap();
            let waker = || {
                for _ in 0..10 {
                    inner.pass();
                    inner.wake(place);
                }
            };
            scope.spawn("waker", waker).unwrap();
            early.join().unwrap();
        });
    });
}
