//! A store against a list in memory: saved, replaced, removed, thinned out, opened again, read by
//! readers that stay, on a volume that is soon full.
//!
//! What could go wrong: space used twice, or never free again; a checkpoint that a reader still has
//! written over; a refusal that leaves something behind.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{TestCaseError, TestCaseResult};
use swath_checkpoint::retention::Retention;
use swath_checkpoint::{BeginOptions, Checkpoint, CheckpointName, ErrorKind};
use swath_tests::checkpoints::{self, SimStore, Tensor};
use swath_tests::seed::check;

#[derive(Debug, Clone)]
enum Step {
    Save {
        step: u64,
        sizes: Vec<usize>,
        replace: bool,
        is_reserved: bool,
    },
    /// A session that puts something and is dropped.
    GiveUp {
        sizes: Vec<usize>,
    },
    Remove {
        step: u64,
    },
    Retain {
        keep_last: u64,
    },
    Pin {
        step: u64,
        pinned: bool,
    },
    /// A reader opens a checkpoint and keeps it.
    Read {
        step: u64,
    },
    /// The oldest reader lets go.
    LetGo,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = || 0..6_u64;
    let sizes = || {
        vec(
            prop_oneof![4 => 0..200_000_usize, 1 => Just(0), 1 => 1_000_000..1_300_000_usize],
            0..4,
        )
    };
    let step = prop_oneof![
        8 => (step(), sizes(), any::<bool>(), any::<bool>()).prop_map(
            |(step, sizes, replace, is_reserved)| Step::Save { step, sizes, replace, is_reserved }
        ),
        1 => sizes().prop_map(|sizes| Step::GiveUp { sizes }),
        3 => step().prop_map(|step| Step::Remove { step }),
        1 => (1..4_u64).prop_map(|keep_last| Step::Retain { keep_last }),
        1 => (step(), any::<bool>()).prop_map(|(step, pinned)| Step::Pin { step, pinned }),
        3 => step().prop_map(|step| Step::Read { step }),
        2 => Just(Step::LetGo),
        1 => Just(Step::Reopen),
    ];
    vec(step, 1..40)
}

/// What the store must hold.
#[derive(Default)]
struct Model {
    /// In the order of commits.
    order: Vec<u64>,
    held: BTreeMap<u64, Held>,
    mark: u64,
}

struct Held {
    tensors: Vec<Tensor>,
    pinned: bool,
}

impl Model {
    fn remove(&mut self, step: u64) {
        self.order.retain(|other| *other != step);
        self.held.remove(&step);
    }

    fn tensors(&mut self, sizes: &[usize]) -> Vec<Tensor> {
        sizes
            .iter()
            .enumerate()
            .map(|(number, size)| {
                self.mark += 1;
                Tensor::new(format!("tensor {number}"), *size, self.mark)
            })
            .collect()
    }
}

struct Compared {
    sim: SimStore,
    model: Model,
    readers: Vec<(Checkpoint, Vec<Tensor>)>,
}

impl Compared {
    fn take(&mut self, step: &Step) -> TestCaseResult {
        let store = self.sim.store().clone();
        match step {
            Step::Save {
                step,
                sizes,
                replace,
                is_reserved,
            } => {
                let tensors = self.model.tensors(sizes);
                let options = BeginOptions {
                    replace: *replace,
                    data_bytes: is_reserved.then_some(sizes.iter().sum::<usize>() as u64),
                    ..BeginOptions::default()
                };
                let before = store.space();
                let saved = checkpoints::save_with(&store, *step, options, &tensors);
                let is_there = self.model.held.contains_key(step);
                match saved {
                    Ok(_) => {
                        prop_assert!(*replace || !is_there, "one of the name was there");
                        self.model.remove(*step);
                        self.model.order.push(*step);
                        let pinned = false;
                        self.model.held.insert(*step, Held { tensors, pinned });
                    }
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                        prop_assert!(!replace && is_there, "{}", error);
                    }
                    Err(error) => {
                        prop_assert_eq!(error.kind(), ErrorKind::NoSpace, "{}", error);
                        // There was not room for the data and the records.
                        let room = before.free_bytes;
                        let needed = sizes.iter().map(|size| *size as u64 + 8192).sum::<u64>();
                        prop_assert!(
                            room < needed + (64 << 10),
                            "{} with {:?} for {}",
                            error,
                            before,
                            needed
                        );
                    }
                }
            }
            Step::GiveUp { sizes } => {
                let before = store.space();
                let session = store.begin(99, BeginOptions::default())?;
                let mut writer = session.writer()?;
                for tensor in self.model.tensors(sizes) {
                    let put = writer.put(&tensor.name, tensor.dtype, &tensor.shape, &tensor.bytes);
                    if let Err(error) = put {
                        prop_assert_eq!(error.kind(), ErrorKind::NoSpace, "{}", error);
                        break;
                    }
                }
                drop(writer);
                session.abort();
                let after = store.space();
                prop_assert!(
                    after.free_bytes >= before.free_bytes || after.held_bytes != before.held_bytes,
                    "{:?} became {:?}",
                    before,
                    after
                );
            }
            Step::Remove { step } => match store.remove(*step) {
                Ok(info) => {
                    prop_assert_eq!(info.name, CheckpointName::Step(*step));
                    prop_assert!(self.model.held.contains_key(step));
                    self.model.remove(*step);
                }
                Err(error) => {
                    prop_assert_eq!(error.kind(), ErrorKind::NotFound, "{}", error);
                    prop_assert!(!self.model.held.contains_key(step));
                }
            },
            Step::Retain { keep_last } => {
                let rule = Retention {
                    keep_last: Some(*keep_last),
                    keep_every: None,
                };
                let removed = store.retain(&rule)?;
                let count = self.model.order.len().saturating_sub(*keep_last as usize);
                let wanted: Vec<u64> = self.model.order[..count]
                    .iter()
                    .copied()
                    .filter(|step| !self.model.held[step].pinned)
                    .collect();
                let removed: Vec<u64> = removed.iter().filter_map(|it| it.name.step()).collect();
                prop_assert_eq!(&removed, &wanted);
                wanted.into_iter().for_each(|step| self.model.remove(step));
            }
            Step::Pin { step, pinned } => match store.set_pinned(*step, *pinned) {
                Ok(()) => self.model.held.get_mut(step).unwrap().pinned = *pinned,
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::NotFound, "{}", error),
            },
            Step::Read { step } => match store.get(*step) {
                Ok(checkpoint) => {
                    let tensors = self.model.held[step].tensors.clone();
                    self.readers.push((checkpoint, tensors));
                }
                Err(error) => {
                    prop_assert_eq!(error.kind(), ErrorKind::NotFound, "{}", error);
                    prop_assert!(!self.model.held.contains_key(step));
                }
            },
            Step::LetGo => {
                if !self.readers.is_empty() {
                    self.readers.remove(0);
                }
            }
            Step::Reopen => {
                self.readers.clear();
                drop(store);
                self.sim.reopen();
            }
        }
        self.compare()
    }

    fn compare(&self) -> TestCaseResult {
        let store = self.sim.store();
        let list = store.list();
        let steps: Vec<u64> = list.iter().filter_map(|info| info.name.step()).collect();
        prop_assert_eq!(&steps, &self.model.order);
        for info in &list {
            let held = &self.model.held[&info.name.step().unwrap()];
            prop_assert_eq!(info.pinned, held.pinned);
        }
        let latest = store.latest().and_then(|info| info.name.step());
        prop_assert_eq!(latest, self.model.order.last().copied());
        let space = store.space();
        prop_assert_eq!(space.session_bytes, 0, "{:?}", space);
        let occupied: u64 = list.iter().map(|info| info.occupied_bytes).sum();
        prop_assert_eq!(space.checkpoint_bytes, occupied);
        for (checkpoint, tensors) in &self.readers {
            checkpoints::compare(checkpoint, tensors).map_err(TestCaseError::fail)?;
        }
        Ok(())
    }

    fn run(mut self, steps: &[Step]) -> TestCaseResult {
        for step in steps {
            self.take(step)?;
        }
        self.take(&Step::Reopen)?;
        for (step, held) in &self.model.held {
            let checkpoint = self.sim.store().get(*step)?;
            checkpoints::compare(&checkpoint, &held.tensors).map_err(TestCaseError::fail)?;
        }
        // With nothing in it, all but the catalogs is free.
        for step in self.model.order.clone() {
            self.sim.store().remove(step)?;
        }
        let space = self.sim.reopen().space();
        prop_assert_eq!(space.free_bytes, space.capacity_bytes - space.catalog_bytes);
        Ok(())
    }
}

#[test]
fn a_store_is_a_list_of_checkpoints() {
    let chunks = select(vec![4096, 65_536, 1 << 20]);
    let case = (steps(), 1..4_usize, chunks, 2..5_u64, any::<u64>());
    check(60, case, |(steps, members, chunk_bytes, mib, seed)| {
        // A few MiB in all.
        let data_bytes = ((mib << 20) / members as u64).next_multiple_of(1 << 20);
        let compared = Compared {
            sim: SimStore::new(seed, members, data_bytes, chunk_bytes),
            model: Model::default(),
            readers: Vec::new(),
        };
        compared.run(&steps)
    });
}
