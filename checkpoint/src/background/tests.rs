use swath_engine::Kernel;

use super::*;
use crate::fixtures::{Fixture, Tensor, views};

const MIB: usize = 1 << 20;

fn start(
    fixture: &Fixture,
    step: u64,
    tensors: &[Tensor],
    how: &AsyncOptions,
) -> Result<SaveHandle> {
    let options = BeginOptions::default();
    fixture
        .store
        .save_async(step, options, &views(tensors), how)
}

/// The least memory, and whatever is in flight waited for.
fn tight() -> AsyncOptions {
    AsyncOptions {
        snapshot_bytes: 0,
        when_busy: WhenBusy::Queue,
        threads: 1,
    }
}

/// Keeps every save from being written until it is dropped, as an earlier save does.
struct Earlier<'a>(&'a Turns, u64);

impl<'a> Earlier<'a> {
    fn new(fixture: &'a Fixture) -> Self {
        let turns = fixture.store.turns();
        Self(turns, turns.enter())
    }
}

impl Drop for Earlier<'_> {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

#[test]
fn later_changes_are_not_seen() {
    let fixture = Fixture::new(3, 1 << 20);
    let tensors: Vec<_> = [0, 1, 5000, MIB, 3 * MIB + 9].map(Tensor::new).into();
    let mut changing = tensors.clone();
    let earlier = Earlier::new(&fixture);
    let how = AsyncOptions {
        when_busy: WhenBusy::Queue,
        ..AsyncOptions::default()
    };
    let handle = start(&fixture, 1, &changing, &how).unwrap();
    changing
        .iter_mut()
        .for_each(|tensor| tensor.bytes.fill(0xFF));
    assert!(!handle.is_done());
    assert!(fixture.store.list().is_empty());
    drop(earlier);
    let info = handle.wait().unwrap();
    assert_eq!(info.tensor_count, 5);
    assert!(handle.is_done());
    assert!(!handle.cancel(), "it is too late");
    assert_eq!(handle.wait().unwrap(), info);
    fixture.check(1, &tensors);
}

#[test]
fn a_checkpoint_larger_than_the_pool_waits_and_memory_is_bounded() {
    for threads in [1, 3] {
        let fixture = Fixture::new(3, 1 << 20);
        let how = AsyncOptions { threads, ..tight() };
        // Ten times the pool, of every kind.
        let mut tensors: Vec<_> = [20 * MIB, 700_000, 9 * MIB + 4097, 2 * MIB]
            .map(Tensor::new)
            .into();
        tensors.extend((0..500).map(|_| Tensor::new(20_000)));
        for step in 1..=2 {
            let handle = start(&fixture, step, &tensors, &how).unwrap();
            assert!(handle.stall() > Duration::ZERO);
            handle.wait().unwrap();
            fixture.check(step, &tensors);
            assert_eq!(handle.job.pool.pieces(), (4, 4));
        }
    }
}

#[test]
fn a_small_checkpoint_maps_little_of_a_large_pool() {
    let fixture = Fixture::new(1, 1 << 20);
    let handle = start(
        &fixture,
        1,
        &[Tensor::new(3 * MIB)],
        &AsyncOptions::default(),
    )
    .unwrap();
    handle.wait().unwrap();
    assert_eq!(handle.job.pool.bytes(), 256 << 20);
    assert_eq!(handle.job.pool.pieces(), (8, 8));
}

#[test]
fn a_second_save_is_refused_while_one_is_in_flight() {
    let fixture = Fixture::new(2, 1 << 20);
    let tensors = [Tensor::new(MIB)];
    let refuse = AsyncOptions::default();
    let earlier = Earlier::new(&fixture);
    let error = start(&fixture, 1, &tensors, &refuse).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    drop(earlier);
    // One that has been heard of is not in flight any more.
    for step in 1..=20 {
        let handle = start(&fixture, step, &tensors, &refuse).unwrap();
        handle.wait().unwrap();
    }
    assert_eq!(fixture.store.list().len(), 20);
}

#[test]
fn queued_saves_are_committed_in_order() {
    let fixture = Fixture::new(3, 1 << 20);
    let earlier = Earlier::new(&fixture);
    let how = AsyncOptions {
        threads: 2,
        snapshot_bytes: 16 << 20,
        ..tight()
    };
    let saves: Vec<_> = (1..=4)
        .map(|step| {
            let tensors = vec![Tensor::new(2 * MIB + 5), Tensor::new(30)];
            let handle = start(&fixture, step, &tensors, &how).unwrap();
            (step, tensors, handle)
        })
        .collect();
    assert!(saves.iter().all(|(_, _, handle)| !handle.is_done()));
    drop(earlier);
    for (step, tensors, handle) in saves.iter().rev() {
        handle.wait().unwrap();
        fixture.check(*step, tensors);
    }
    let order: Vec<_> = fixture.store.list().into_iter().map(|it| it.name).collect();
    assert_eq!(order, [1, 2, 3, 4].map(CheckpointName::from));
}

#[test]
fn saves_queued_by_many_threads_through_little_memory_all_end() {
    let fixture = Fixture::new(3, 1 << 20);
    thread::scope(|scope| {
        for step in 1..=6 {
            let fixture = &fixture;
            scope.spawn(move || {
                let tensors = [Tensor::new(7 * MIB + 3), Tensor::new(100)];
                let handle = start(fixture, step, &tensors, &tight()).unwrap();
                handle.wait().unwrap();
                fixture.check(step, &tensors);
            });
        }
    });
    assert_eq!(fixture.store.list().len(), 6);
}

#[test]
fn a_cancelled_save_leaves_nothing() {
    let fixture = Fixture::new(2, 1 << 20);
    let before = fixture.store.space();
    let tensors = [Tensor::new(3 * MIB), Tensor::new(10)];
    {
        let _earlier = Earlier::new(&fixture);
        let handle = start(&fixture, 1, &tensors, &tight()).unwrap();
        assert!(fixture.store.space().session_bytes > 0);
        assert!(handle.cancel());
        assert_eq!(handle.wait().unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(fixture.store.space(), before);
        assert_eq!(handle.job.pool.pieces(), (4, 4));
    }
    // At any moment it is all or nothing.
    for round in 0..20 {
        let tensors = [Tensor::new(6 * MIB)];
        let handle = start(&fixture, round, &tensors, &tight()).unwrap();
        if round % 2 == 0 {
            thread::sleep(Duration::from_micros(300 * round));
        }
        if handle.cancel() {
            let error = fixture.store.get(round).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
        } else {
            fixture.check(round, &tensors);
            fixture.store.remove(round).unwrap();
        }
        assert_eq!(fixture.store.space().session_bytes, 0);
    }
    fixture.store.finish_saves().unwrap();
}

#[test]
fn a_store_too_full_is_told_at_once_or_by_wait() {
    let fixture = Fixture::new(1, 1 << 20);
    let before = fixture.store.space();
    let tensors = [Tensor::new(20 * MIB), Tensor::new(20 * MIB)];
    let error = start(&fixture, 1, &tensors, &tight()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    // Too little was reserved: it fails in the middle, while the copy waits for room.
    let options = BeginOptions {
        data_bytes: Some(0),
        ..BeginOptions::default()
    };
    for threads in [1, 2] {
        let how = AsyncOptions { threads, ..tight() };
        let options = options.clone();
        let handle = fixture
            .store
            .save_async(1, options, &views(&tensors), &how)
            .unwrap();
        let error = handle.wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert_eq!(error.tensor(), Some(&*tensors[1].name));
        assert!(fixture.store.list().is_empty());
        assert_eq!(fixture.store.space(), before);
    }
    fixture.store.finish_saves().unwrap();
}

#[test]
fn a_failure_whose_handle_is_gone_is_told_by_the_store() {
    let fixture = Fixture::new(1, 1 << 20);
    let tensors = [Tensor::new(MIB)];
    drop(start(&fixture, 1, &tensors, &tight()).unwrap());
    fixture.store.finish_saves().unwrap();

    // Two of one name: the second fails when it is to be committed.
    let earlier = Earlier::new(&fixture);
    let one = start(&fixture, 3, &tensors, &tight()).unwrap();
    let other = start(&fixture, 3, &tensors, &tight()).unwrap();
    drop(other);
    drop(earlier);
    let error = fixture.store.finish_saves().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    one.wait().unwrap();
    // Told once.
    fixture.store.finish_saves().unwrap();
}

#[test]
fn a_dropped_store_has_saved_what_it_began_to_save() {
    let fixture = Fixture::new(3, 1 << 20);
    let tensors = [Tensor::new(30 * MIB), Tensor::new(30 * MIB)];
    let how = AsyncOptions {
        snapshot_bytes: 64 << 20,
        ..AsyncOptions::default()
    };
    let clone = fixture.store.clone();
    drop(start(&fixture, 1, &tensors, &how).unwrap());
    drop(clone);
    // It waits, and lets the members go: they could not be opened otherwise.
    let fixture = fixture.reopen(true);
    fixture.check(1, &tensors);
}

#[test]
fn a_thread_that_panics_is_an_error_and_no_hang() {
    for threads in [1, 3] {
        let fixture = Fixture::new(1, 1 << 20);
        let store = &fixture.store;
        let before = store.space();
        let session = store
            .without_waiting()
            .begin(
                1,
                BeginOptions {
                    data_bytes: Some(5 << 20),
                    ..BeginOptions::default()
                },
            )
            .unwrap();
        let turns = store.turns();
        let job = Arc::new(Job {
            pool: turns.pool(&Kernel, 0),
            ticket: turns.enter(),
            turns: Arc::clone(turns),
            is_stopped: AtomicBool::new(false),
            state: Gate::new(&Kernel, "a save", JobState::default()),
        });
        job.send(Parcel::impossible(&job.pool));
        let background = Arc::clone(&job);
        let thread = thread::spawn(move || run(session, &background, threads));
        let handle = SaveHandle {
            job,
            stall: Duration::ZERO,
        };
        let error = handle.wait().unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
        let _ = thread.join();
        store.finish_saves().unwrap();
        assert_eq!(store.space(), before);
        assert_eq!(handle.job.pool.pieces().1, handle.job.pool.pieces().0);
        // The next goes on.
        let tensors = [Tensor::new(100)];
        start(&fixture, 1, &tensors, &AsyncOptions::default())
            .unwrap()
            .wait()
            .unwrap();
    }
}

#[test]
fn a_source_that_stays_as_it_is_passes_the_second_look() {
    let fixture = Fixture::new(1, 1 << 20);
    let tensors = [Tensor::new(2 * MIB + 1), Tensor::new(0), Tensor::new(77)];
    let options = BeginOptions {
        verify_source: true,
        ..BeginOptions::default()
    };
    let handle = fixture
        .store
        .save_async(5, options, &views(&tensors), &tight())
        .unwrap();
    handle.wait().unwrap();
    fixture.check(5, &tensors);
}
