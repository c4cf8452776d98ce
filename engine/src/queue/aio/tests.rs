//! What only this backend can get wrong; the rest is in the suite of all backends.

use std::thread;
use std::time::Duration;

use super::*;
use crate::queue::suite::{Pages, TestFile, depth, op, run, run_one};
use crate::skipped::skipped;

fn open() -> Option<AioQueue> {
    match AioQueue::open(
        &[TestFile::writable()],
        &depth(4),
        vec!["no ring".to_owned()],
    ) {
        Ok(queue) => Some(queue),
        Err(error) => {
            skipped(format_args!("{error:?}"));
            None
        }
    }
}

#[test]
fn a_kernel_without_asynchronous_flush_is_served_by_the_pool() {
    let Some(mut queue) = open() else { return };
    let flush = op(OpKind::Flush, 0, 0, Memory::None, 7);
    let iocb = queue.iocb(&flush).unwrap().unwrap();
    // As io_submit would: the operation is in flight, and refused.
    queue.in_flight += 1;
    queue.refuse(&iocb, libc::EINVAL);
    let mut completions = Vec::new();
    queue.wait(1, &mut completions).unwrap();
    assert_eq!(
        completions,
        [RawCompletion {
            token: 7,
            result: 0
        }]
    );
    assert!(queue.flush_in_pool);
    assert_eq!(run_one(&mut queue, &flush), 0);
    assert_eq!(queue.in_flight, 0);
    queue.in_flight += 1;
    queue.refuse(&iocb, libc::EIO);
    queue.poll(&mut completions).unwrap();
    assert_eq!(
        completions[1],
        RawCompletion {
            token: 7,
            result: -libc::EIO
        }
    );
}

#[test]
fn a_kernel_without_poll_is_woken_all_the_same() {
    let Some(mut queue) = open() else { return };
    queue.ring.alarm_supported = false;
    let waker = queue.waker();
    let thread = thread::spawn(move || {
        thread::sleep(Duration::from_millis(5));
        waker.wake();
    });
    queue.wait(1, &mut Vec::new()).unwrap();
    thread.join().unwrap();
    assert_eq!(
        run_one(&mut queue, &op(OpKind::WriteZeroes, 0, 1, Memory::None, 1)),
        0
    );
}

#[test]
fn the_alarm_is_no_completion() {
    let Some(mut queue) = open() else { return };
    let waker = queue.waker();
    let mut completions = Vec::new();
    for _ in 0..100 {
        waker.wake();
        queue.wait(1, &mut completions).unwrap();
        assert!(queue.arm(), "the alarm can be armed");
        waker.wake();
        // The alarm fires into the ring; a poll takes it from there without a word, and the
        // next wait still knows that it was asked to return.
        while queue.ring.alarm_armed {
            queue.poll(&mut completions).unwrap();
        }
        queue.wait(1, &mut completions).unwrap();
        assert!(completions.is_empty());
    }
    assert_eq!(queue.ring.in_kernel, 0);
}

/// Operations beyond what the ring holds stay queued and go in later, in order.
#[test]
fn what_is_left_of_a_batch_moves_to_the_front() {
    let mut batch = Batch::new(4);
    for aio_data in 0..4 {
        batch.push(Iocb {
            aio_data,
            ..Iocb::default()
        });
    }
    batch.advance(3);
    batch.push(Iocb {
        aio_data: 9,
        ..Iocb::default()
    });
    assert_eq!(batch.queued, 2);
    assert_eq!([batch.at(0).aio_data, batch.at(1).aio_data], [3, 9]);
}

#[test]
fn the_description_says_how_completions_are_read() {
    let Some(mut queue) = open() else { return };
    let text = queue.description().to_string();
    assert!(
        [
            "aio (io_submit, user-space reap); no ring",
            "aio (io_submit, io_getevents); no ring"
        ]
        .contains(&&*text),
        "{text}"
    );
    // And the way by io_getevents gives the same completions.
    queue.ring.context.forget_ring();
    let mut memory: Vec<_> = (0..4).map(|_| Pages::filled(1, 0)).collect();
    let ops: Vec<_> = memory
        .iter_mut()
        .zip(0..)
        .map(|(pages, token)| op(OpKind::Read, 0, 1, pages.flat(), token))
        .collect();
    let done = run(&mut queue, &ops);
    assert!(
        done.iter()
            .zip(0..)
            .all(|(done, token)| done.token == token)
    );
    assert!(done.iter().all(|done| done.result == 4096));
}
