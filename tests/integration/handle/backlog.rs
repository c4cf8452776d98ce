//! More jobs than there is room for, and jobs at the end of a handle.

use std::thread;

use swath_engine::{ErrorKind, Request, Submission};

use super::{BLOCK, Rig, at, block, narrow};

#[test]
fn blocked_callers_all_get_through_a_backlog_of_one() {
    let rig = Rig::new(&narrow(1));
    rig.platform.hold();
    thread::scope(|scope| {
        let callers: Vec<_> = (0..12_u8)
            .map(|mark| {
                let handle = rig.handle.clone();
                scope.spawn(move || {
                    handle.call(
                        Request::write(block(mark), u64::from(mark)),
                        at(mark.into()),
                    )
                })
            })
            .collect();
        rig.platform.release();
        for (mark, caller) in (0..).zip(callers) {
            let completion = caller.join().unwrap();
            assert_eq!((completion.token, completion.result.unwrap()), (mark, 4096));
        }
    });
    let platform = rig.finish();
    for mark in 0..12_u8 {
        assert_eq!(platform.peek("m0", u64::from(mark) * 4096, 1), [mark]);
    }
}

#[test]
fn a_full_backlog_holds_futures_back_and_lets_them_in_later() {
    let rig = Rig::new(&narrow(1));
    rig.platform.hold();
    let count = 20;
    let submissions: Vec<_> = (0..count)
        .map(|number| {
            rig.handle
                .submit(Request::write(block(7), number), at(number))
        })
        .collect();
    let is_handed_over =
        |submission: &&Submission| format!("{submission:?}").contains("handed_over: true");
    // One at the device, one in front of it; the worker may have taken the first in between.
    let accepted = submissions.iter().filter(is_handed_over).count();
    assert!((1..=2).contains(&accepted), "{accepted} found room for one");
    rig.platform.release();
    let mut tokens: Vec<_> = submissions
        .into_iter()
        .rev()
        .map(|submission| pollster::block_on(submission).token)
        .collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..count).collect::<Vec<_>>());
    assert_eq!(rig.finish().take_trace().len() as u64, count);
}

#[test]
fn a_submission_that_found_no_room_and_was_dropped_was_never_started() {
    let rig = Rig::new(&narrow(1));
    rig.platform.hold();
    let mut accepted = Vec::new();
    // Until one is turned away.
    let refused = loop {
        let submission = rig.handle.submit(Request::write(block(1), 0), at(0));
        if format!("{submission:?}").contains("handed_over: false") {
            break submission;
        }
        accepted.push(submission);
    };
    drop(refused);
    let count = accepted.len();
    rig.platform.release();
    for submission in accepted {
        assert_eq!(submission.wait().result.unwrap(), 4096);
    }
    assert_eq!(rig.finish().take_trace().len(), count);
}

#[test]
fn jobs_in_flight_end_well_when_the_last_handle_is_dropped() {
    let rig = Rig::new(&narrow(2));
    rig.platform.hold();
    let submissions: Vec<_> = (0..12)
        .map(|number| {
            rig.handle
                .submit(Request::write(block(5), number), at(number))
        })
        .collect();
    let handed_over: Vec<_> = submissions
        .iter()
        .map(|submission| format!("{submission:?}").contains("handed_over: true"))
        .collect();
    assert!(handed_over.contains(&true) && handed_over.contains(&false));
    let clone = rig.handle.clone();
    drop(clone);
    let platform = rig.finish();
    for (number, (submission, handed_over)) in (0..).zip(submissions.into_iter().zip(handed_over)) {
        let completion = submission.wait();
        assert_eq!(completion.token, number);
        assert_eq!(
            completion.buffers.into_one().unwrap().as_slice(),
            [5; BLOCK]
        );
        match completion.result {
            Ok(bytes) => assert!(handed_over && bytes == 4096),
            // Nobody was left to take those that were still waiting for room.
            Err(error) => assert!(!handed_over && error.kind() == ErrorKind::Closed, "{error}"),
        }
        let on_device = platform.peek("m0", number * 4096, 1) == [5];
        assert_eq!(on_device, handed_over);
    }
}
