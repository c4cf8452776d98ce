//! Submissions as futures: polled, woken, dropped, forgotten.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use swath_engine::{BufPool, Completion, HandleOptions, Request};

use super::{BLOCK, Rig, at, block, narrow};

/// A waker that counts.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_future_polled_by_hand_is_woken_when_it_is_done() {
    let rig = Rig::new(&HandleOptions::default());
    rig.platform.hold();
    let counter = Arc::new(Counter::default());
    let waker = Waker::from(Arc::clone(&counter));
    let mut context = Context::from_waker(&waker);
    let mut submission = pin!(rig.handle.submit(Request::write(block(1), 9), at(0)));
    for _ in 0..10 {
        assert!(submission.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(
        counter.0.load(Ordering::SeqCst),
        0,
        "woken without a reason"
    );
    rig.platform.release();
    while counter.0.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    let Poll::Ready(completion) = submission.poll(&mut context) else {
        panic!("it was woken")
    };
    assert_eq!((completion.token, completion.result.unwrap()), (9, 4096));
}

#[test]
fn the_newest_waker_is_the_one_that_is_woken() {
    let rig = Rig::new(&HandleOptions::default());
    rig.platform.hold();
    let (old, new) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
    let mut submission = pin!(rig.handle.submit(Request::write(block(1), 9), at(0)));
    for counter in [&old, &new] {
        let waker = Waker::from(Arc::clone(counter));
        assert!(
            submission
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
    }
    rig.platform.release();
    while new.0.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    assert_eq!(old.0.load(Ordering::SeqCst), 0);
}

#[test]
fn an_operation_outlives_a_submission_that_is_dropped_or_forgotten() {
    let rig = Rig::new(&HandleOptions {
        workers: 1,
        ..HandleOptions::default()
    });
    let pool = BufPool::new(BLOCK, 4).unwrap();
    let piece = |mark: u8| {
        let mut piece = pool.take().unwrap();
        piece.fill(mark);
        piece
    };
    rig.platform.hold();
    drop(rig.handle.submit(Request::write(piece(1), 1), at(0)));
    #[expect(clippy::mem_forget, reason = "this is what is tested")]
    std::mem::forget(rig.handle.submit(Request::write(piece(2), 2), at(1)));
    // One that was polled, and so has a waker, then dropped.
    let mut polled = Box::pin(rig.handle.submit(Request::write(piece(3), 3), at(2)));
    assert!(
        polled
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    drop(polled);
    // A read into memory whose owner has gone.
    drop(rig.handle.submit(Request::read(piece(4), 4), at(3)));
    for _ in 0..1000 {
        assert_eq!(
            pool.available(),
            0,
            "memory came back while the device has it"
        );
    }
    let platform = rig.finish();
    for (number, mark) in [(0, 1), (1, 2), (2, 3)] {
        assert_eq!(platform.peek("m0", number * 4096, BLOCK), [mark; BLOCK]);
    }
    // The forgotten one keeps its ticket, and with it the piece that came back on it.
    assert_eq!(pool.available(), 3);
}

#[test]
fn futures_without_room_are_woken_when_there_is_some() {
    let rig = Rig::new(&narrow(1));
    rig.platform.hold();
    let mut waiting: Vec<_> = (0..8)
        .map(|number| {
            Box::pin(
                rig.handle
                    .submit(Request::write(block(7), number), at(number)),
            )
        })
        .collect();
    let counter = Arc::new(Counter::default());
    let waker = Waker::from(Arc::clone(&counter));
    let mut context = Context::from_waker(&waker);
    let mut tokens = Vec::new();
    let mut seen = usize::MAX;
    rig.platform.release();
    // Only a wake-up makes them be polled again: a lost one would end in a standstill.
    while !waiting.is_empty() {
        let wakes = counter.0.load(Ordering::SeqCst);
        if wakes == seen {
            thread::yield_now();
            continue;
        }
        seen = wakes;
        waiting.retain_mut(|submission| match submission.as_mut().poll(&mut context) {
            Poll::Ready(Completion { token, .. }) => {
                tokens.push(token);
                false
            }
            Poll::Pending => true,
        });
    }
    tokens.sort_unstable();
    assert_eq!(tokens, [0, 1, 2, 3, 4, 5, 6, 7]);
}
