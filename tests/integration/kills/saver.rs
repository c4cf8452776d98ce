//! What a process does that is to be killed: it saves, replaces, removes, opens and closes, and tells.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use swath_checkpoint::retention::Retention;
use swath_checkpoint::{
    AsyncOptions, BeginOptions, ErrorKind, SaveHandle, Store, TensorView, WhenBusy,
};
use swath_tests::checkpoints::{self, Tensor};
use swath_volume::{OpenOptions, Volume};

use super::afterwards::open;
use super::process::{Role, tell};
use super::state::{NUMBER, State};

/// How many checkpoints are kept.
pub(super) const KEPT: usize = 3;

/// What a step holds follows from its number.
pub(super) fn tensors(step: u64, number: u64) -> Vec<Tensor> {
    let mark = step * 1000 + number;
    let mut tensors: Vec<_> = (0..5)
        .map(|n| {
            Tensor::new(
                format!("small {n}"),
                (mark * 37 % 900) as usize * n,
                mark + 1,
            )
        })
        .collect();
    let length = (1100 << 10) + (mark * 1013 % 9000) as usize;
    tensors.push(Tensor::new("large", length, mark));
    tensors
}

/// Few bytes, for a save whose every system call has its turn.
pub(super) fn few_tensors(step: u64, number: u64) -> Vec<Tensor> {
    let mark = step * 1000 + number;
    [("a", 150_000), ("b", 7), ("c", 66_000)]
        .map(|(name, length)| Tensor::new(name, length, mark))
        .into()
}

pub(super) fn begin_options(number: u64) -> BeginOptions {
    BeginOptions {
        replace: true,
        metadata: vec![(NUMBER.to_owned(), number.to_string())],
        ..BeginOptions::default()
    }
}

/// Changes the store, again and again, until it is killed.
pub(super) fn save_for_ever(role: &Role) {
    let mut rng = ChaCha8Rng::seed_from_u64(role.seed);
    loop {
        tell("phase opening");
        let store = open(&role.members, &role.store_options());
        let mut state = State::of(&store);
        tell(&format!("is {state}"));
        for _ in 0..rng.random_range(1..8) {
            change(&store, &mut state, &mut rng);
        }
        tell("phase closing");
    }
}

/// One change, or a few at once, in a way of many.
fn change(store: &Store, state: &mut State, rng: &mut ChaCha8Rng) {
    if state.0.len() > KEPT && rng.random_range(0..3) > 0 {
        *state = state.newest(KEPT);
        tell("phase retaining");
        tell(&format!("do {state}"));
        let rule = Retention {
            keep_last: Some(KEPT as u64),
            keep_every: None,
        };
        store.retain(&rule).unwrap();
        return tell("done");
    }
    if state.0.len() > KEPT {
        let (step, _) = state.0[rng.random_range(0..state.0.len())];
        *state = state.without(step);
        tell("phase removing");
        tell(&format!("do {state}"));
        store.remove(step).unwrap();
        return tell("done");
    }
    // A new step, or another in the place of one that is there.
    let (step, number) = match state.0.last() {
        Some(&(step, number)) if rng.random_range(0..4) == 0 => (step, number + 1),
        _ => (state.next_step(), 0),
    };
    let tensors = tensors(step, number);
    *state = state.saved(step, number);
    match rng.random_range(0..4) {
        0 => {
            tell(&format!("do {state}"));
            let handle = save_in_background(store, step, number, &tensors, WhenBusy::Refuse);
            tell("phase writing in the background");
            handle.wait().unwrap();
            tell("done");
        }
        1 => {
            let first = state.to_string();
            let next = state.next_step();
            *state = state.saved(next, 0);
            tell(&format!("do {first}"));
            tell(&format!("do {state}"));
            let handles = [(step, number), (next, 0)].map(|(step, number)| {
                let tensors = self::tensors(step, number);
                save_in_background(store, step, number, &tensors, WhenBusy::Queue)
            });
            tell("phase writing two in the background");
            for handle in handles {
                handle.wait().unwrap();
                tell("done");
            }
        }
        2 => {
            tell("phase saving with threads");
            tell(&format!("do {state}"));
            store
                .save(step, begin_options(number), &views(&tensors), 2)
                .unwrap();
            tell("done");
        }
        _ => {
            tell("phase writing");
            let session = store.begin(step, begin_options(number)).unwrap();
            let mut writer = session.writer().unwrap();
            for tensor in &tensors {
                writer
                    .put(&tensor.name, tensor.dtype, &tensor.shape, &tensor.bytes)
                    .unwrap();
            }
            writer.finish().unwrap();
            tell("phase committing");
            tell(&format!("do {state}"));
            session.commit().unwrap();
            tell("done");
        }
    }
}

fn save_in_background(
    store: &Store,
    step: u64,
    number: u64,
    tensors: &[Tensor],
    when_busy: WhenBusy,
) -> SaveHandle {
    tell("phase copying for the background");
    let how = AsyncOptions {
        snapshot_bytes: 4 << 20,
        when_busy,
        threads: 1,
    };
    store
        .save_async(step, begin_options(number), &views(tensors), &how)
        .unwrap()
}

fn views(tensors: &[Tensor]) -> Vec<TensorView<'_>> {
    tensors
        .iter()
        .map(|tensor| TensorView {
            name: &tensor.name,
            dtype: tensor.dtype,
            shape: &tensor.shape,
            bytes: &tensor.bytes,
        })
        .collect()
}

/// Saves a step, removes the one before, and reads what is there; tells what became of each. All of
/// it on this thread, by plain system calls.
pub(super) fn save_once(role: &Role) {
    let opened = Volume::open(&role.members, &OpenOptions::default())
        .map_err(|error| format!("{:?}: {error}", error.kind()))
        .and_then(|volume| {
            Store::open(volume, &role.store_options())
                .map_err(|error| format!("{:?}: {error}", error.kind()))
        });
    let store = match opened {
        Ok(store) => store,
        Err(error) => return tell(&format!("refused {error}")),
    };
    let mut state = State::of(&store);
    tell(&format!("is {state}"));
    let old = state.0[0].0;
    let step = state.next_step();
    state = state.saved(step, 0);
    if !attempt(&store, &state, |store| {
        checkpoints::save_with(store, step, begin_options(0), &few_tensors(step, 0)).map(drop)
    }) {
        return;
    }
    state = state.without(old);
    if !attempt(&store, &state, |store| store.remove(old).map(drop)) {
        return;
    }
    for &(step, number) in &state.0 {
        let answer = store
            .get(step)
            .map_err(|error| error.to_string())
            .and_then(|read| checkpoints::compare(&read, &few_tensors(step, number)));
        tell(&match answer {
            Ok(()) => format!("reads {step}"),
            Err(error) => format!("reads not {step}: {error}"),
        });
    }
    tell("ended");
}

/// Tries a change. When it fails: whether the volume is poisoned, and what another change is told.
fn attempt(
    store: &Store,
    state: &State,
    change: impl Fn(&Store) -> swath_checkpoint::Result<()>,
) -> bool {
    tell(&format!("do {state}"));
    let Err(error) = change(store) else {
        tell("done");
        return true;
    };
    let poisoned = store.volume().poisoned().is_some();
    tell(&format!("failed, poisoned {poisoned}: {:?}", error.kind()));
    let step = state.next_step() + 1;
    let later = checkpoints::save_with(store, step, begin_options(7), &few_tensors(step, 7));
    match later {
        Err(error) if error.kind() == ErrorKind::Poisoned => tell("later Poisoned"),
        Err(error) => tell(&format!("later {:?}: {error}", error.kind())),
        Ok(_) => {
            tell(&format!("do {}", State::of(store)));
            tell("later done");
        }
    }
    false
}
