//! A save, a replacement, a removal that fails at any of its raw operations.
//!
//! What could go wrong: an error that is swallowed; a store that shows half of a commit, or loses
//! one that was acknowledged; one that cannot go on after it was opened again.

use swath_checkpoint::{BeginOptions, CheckpointName, ErrorKind, Result, Store};
use swath_engine::OpKind;
use swath_tests::checkpoints::{self, SimStore, Tensor, assert_store_holds};
use swath_tests::seed::Seed;
use swath_tests::sim::Fault;

use super::{KIB, MIB, chain};

type State = Vec<(CheckpointName, Vec<Tensor>)>;

/// Something that a commit does, and what a store holds then.
struct Action {
    name: &'static str,
    act: fn(&Store) -> Result<()>,
    after: fn(State) -> State,
}

/// A tensor in several pieces, one without bytes, and one that is packed.
fn tensors(mark: u64) -> Vec<Tensor> {
    vec![
        Tensor::new("weights", MIB + 100, mark),
        Tensor::new("empty", 0, mark),
        Tensor::new("bias", 5 * KIB + 7, mark + 1),
    ]
}

fn before() -> State {
    vec![(1.into(), tensors(10)), (2.into(), tensors(20))]
}

const ACTIONS: [Action; 5] = [
    Action {
        name: "save",
        act: |store| checkpoints::save(store, 3, &tensors(30)).map(drop),
        after: |mut state| {
            state.push((3.into(), tensors(30)));
            state
        },
    },
    Action {
        name: "replace",
        act: |store| checkpoints::replace(store, 1, &tensors(40)).map(drop),
        after: |mut state| {
            state.remove(0);
            state.push((1.into(), tensors(40)));
            state
        },
    },
    Action {
        name: "remove",
        act: |store| store.remove(1).map(drop),
        after: |mut state| {
            state.remove(0);
            state
        },
    },
    Action {
        name: "retain",
        act: |store| {
            let rule = swath_checkpoint::retention::Retention {
                keep_last: Some(1),
                keep_every: None,
            };
            store.retain(&rule).map(drop)
        },
        after: |mut state| state.split_off(1),
    },
    Action {
        name: "pin",
        act: |store| store.set_pinned(2, true),
        after: |state| state,
    },
];

fn base(seed: u64, members: usize) -> SimStore {
    let data_bytes = (12 * MIB / members) as u64;
    let sim = SimStore::new(seed, members, data_bytes, 64 << 10);
    for (name, tensors) in before() {
        checkpoints::save(sim.store(), name, &tensors).unwrap();
    }
    sim.platform.take_trace();
    sim
}

/// Lets the operation with this number of this kind fail. Whether there was one.
fn fail_at(seed: u64, members: usize, action: &Action, kind: OpKind, number: u64) -> bool {
    let mut sim = base(seed, members);
    let errno = [libc::EIO, libc::ENOSPC, libc::ENODEV][number as usize % 3];
    let fault = Fault::errno(errno).of(kind).after(number).times(1);
    sim.platform.inject(fault);
    let outcome = (action.act)(sim.store());
    sim.platform.heal();
    let trace = sim.platform.take_trace();
    let what = format!("{} on {members}, {kind} {number}", action.name);
    let Some(struck) = trace.iter().position(|op| op.result < 0) else {
        outcome.unwrap_or_else(|error| panic!("{what}: no fault and yet {error:?}"));
        assert_store_holds(sim.store(), &(action.after)(before()));
        return false;
    };

    let error = outcome.expect_err(&what);
    let told = chain(&error);
    let device = trace[struck].device.display().to_string();
    assert!(told.contains(&device), "{what}: {device} is not in {told}");

    // Until it is opened again, what was there can be read, and nothing can be changed.
    let is_in_root = trace[..=struck]
        .iter()
        .any(|op| op.kind == OpKind::Write && sim.is_metadata(op.offset));
    assert_eq!(
        told.contains("not known whether"),
        is_in_root,
        "{what}: {told}"
    );
    assert_store_holds(sim.store(), &before());
    let refusals = [
        sim.store().begin(9, BeginOptions::default()).unwrap_err(),
        sim.store().remove(2).unwrap_err(),
    ];
    for refusal in refusals {
        assert_eq!(refusal.kind(), ErrorKind::Poisoned, "{what}: {refusal}");
    }

    let store = sim.reopen().clone();
    let names = |state: &State| state.iter().map(|it| it.0.clone()).collect::<Vec<_>>();
    let found: Vec<_> = store.list().into_iter().map(|info| info.name).collect();
    let mut state = before();
    let new = (action.after)(before());
    if is_in_root && found == names(&new) {
        state = new;
    }
    assert_store_holds(&store, &state);
    let space = store.space();
    assert_eq!((space.session_bytes, space.held_bytes), (0, 0), "{what}");

    // And it goes on.
    checkpoints::save(&store, 9, &tensors(90)).unwrap();
    store.remove(state[0].0.clone()).unwrap();
    state.remove(0);
    state.push((9.into(), tensors(90)));
    drop(store);
    assert_store_holds(sim.reopen(), &state);
    true
}

#[test]
fn a_failure_at_any_operation_leaves_the_last_commit_or_the_one_under_way() {
    let seed = Seed::new();
    for members in [1, 3] {
        for action in &ACTIONS {
            for kind in [OpKind::Write, OpKind::Flush] {
                let mut number = 0;
                while fail_at(seed.value(), members, action, kind, number) {
                    number += 1;
                }
                // Three flushes of every member, and both records on each, at the least.
                let least = match kind {
                    OpKind::Flush => 3 * members as u64,
                    _ => 2 * members as u64 + 1,
                };
                assert!(number >= least, "{} had {number} {kind}", action.name);
            }
        }
    }
}

#[test]
fn a_failed_format_leaves_no_store_or_an_empty_one() {
    let seed = Seed::new();
    for kind in [OpKind::Write, OpKind::Flush] {
        for number in 0.. {
            let mut sim = base(seed.value(), 2);
            let volume = sim.store().volume().clone();
            sim.die();
            sim.platform
                .inject(Fault::errno(libc::EIO).of(kind).after(number).times(1));
            let options = swath_checkpoint::FormatOptions {
                force: true,
                ..swath_checkpoint::FormatOptions::default()
            };
            let outcome = Store::format(volume, &options).map(drop);
            sim.platform.heal();
            let is_done = outcome.is_ok();
            match sim.open(&swath_volume::OpenOptions::default()) {
                Ok(store) if is_done => assert_store_holds(&store, &[]),
                // A forced format may write over what was there before the commit, never after it.
                Ok(store) => assert!(store.list().is_empty() || store.list().len() == 2),
                Err(error) => {
                    assert!(!is_done, "{error:?}");
                    assert_eq!(error.kind(), ErrorKind::Damaged, "{error:?}");
                }
            }
            if is_done {
                break;
            }
        }
    }
}

/// The commit's error is the first that any writer had, even when its caller ignored it.
#[test]
fn a_writer_s_error_that_nobody_looked_at_fails_the_commit() {
    let seed = Seed::new();
    // A tensor written from memory, through buffers, in a stream, and packed: its failure is told
    // when the writer is finished.
    for way in 0..4 {
        let mut sim = base(seed.value(), 2);
        let session = sim.store().begin(3, BeginOptions::default()).unwrap();
        let mut writer = session.writer().unwrap();
        let fault = Fault::errno(libc::EIO).of(OpKind::Write).on("m1");
        sim.platform.inject(fault.times(1));
        let large = swath_engine::AlignedBuf::zeroed(3 * MIB).unwrap();
        let dtype = swath_checkpoint::DType::U8;
        let put = match way {
            0 => writer.put("large", dtype, &[3 << 20], &large),
            1 => writer.put("large", dtype, &[(3 << 20) - 1], &large[1..]),
            2 => writer
                .put_stream("large", dtype, &[3 << 20])
                .and_then(|mut stream| {
                    stream.write(&large)?;
                    stream.finish()
                }),
            _ => (0..40).try_for_each(|n| {
                writer.put(&format!("small {n}"), dtype, &[60_000], &large[..60_000])
            }),
        };
        drop((put, writer));
        let error = session.commit().unwrap_err();
        assert!(chain(&error).contains("m1"), "way {way}: {}", chain(&error));
        assert_eq!(error.checkpoint(), Some("3"));
        drop(session);
        assert_store_holds(sim.reopen(), &before());
    }
}
