//! Saving tensors that lie in memory, in one call: [`Store::save`], which blocks until they are
//! committed. [`Store::save_async`] is the one that returns after a copy.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, ErrorKind, Result};
use crate::extent::UNIT_BYTES;
use crate::index::{BLOCK_BYTES, TensorEntry};
use crate::names::CheckpointName;
use crate::session::{BeginOptions, Session};
use crate::shares::{on_threads, shares};
use crate::store::{CheckpointInfo, Store};
use crate::view::TensorView;

/// How many tensors are put at once: few enough that a thread soon hears of another's failure.
const PUT_AT_ONCE: usize = 64;

impl Store {
    /// Saves tensors as one checkpoint, on `threads` threads (1: on the caller's own), and commits
    /// it. Tensors are spread over the threads as wholes.
    ///
    /// Where `options` do not say how much is to be reserved, it is what the tensors have.
    ///
    /// # Errors
    ///
    /// As [`begin`](Store::begin), [`Writer::put`](crate::Writer::put) and
    /// [`Session::commit`]; the first failure of any thread. After an error nothing of the
    /// checkpoint is visible.
    pub fn save(
        &self,
        name: impl Into<CheckpointName>,
        options: BeginOptions,
        tensors: &[TensorView<'_>],
        threads: usize,
    ) -> Result<CheckpointInfo> {
        let session = self.begin(name, reserving(options, tensors))?;
        let shares = shares(tensors, threads, |view| view.bytes.len() as u64);
        let has_failed = AtomicBool::new(false);
        on_threads(self.volume().platform(), shares, |share| {
            write_share(&session, &share, &has_failed)
                .inspect_err(|_| has_failed.store(true, Ordering::Relaxed))
        })?;
        session.commit()
    }
}

fn write_share(
    session: &Session,
    share: &[&TensorView<'_>],
    has_failed: &AtomicBool,
) -> Result<()> {
    let mut writer = session.writer()?;
    for views in share.chunks(PUT_AT_ONCE) {
        if has_failed.load(Ordering::Relaxed) {
            // Nothing will be committed, and the other thread says why.
            break;
        }
        let views: Vec<_> = views.iter().map(|&&view| view).collect();
        writer.put_many(&views)?;
    }
    writer.finish()
}

/// The options with the space that these tensors take, unless they say how much.
pub(crate) fn reserving(mut options: BeginOptions, tensors: &[TensorView<'_>]) -> BeginOptions {
    options.data_bytes.get_or_insert_with(|| {
        let lengths = tensors.iter().map(|view| view.bytes.len() as u64);
        lengths
            .map(|length| {
                // Small ones are packed.
                if length < BLOCK_BYTES {
                    length
                } else {
                    length.next_multiple_of(UNIT_BYTES)
                }
            })
            .fold(0, u64::saturating_add)
    });
    options
}

/// Checks what can be known of tensors before anything is written.
pub(crate) fn check_tensors(tensors: &[TensorView<'_>]) -> Result<()> {
    let mut names = HashSet::with_capacity(tensors.len());
    for view in tensors {
        let entry = TensorEntry {
            name: view.name.to_owned(),
            dtype: view.dtype,
            shape: view.shape.to_vec(),
            length: view.bytes.len() as u64,
            runs: Vec::new(),
            checksums: Vec::new(),
        };
        entry.check_spec()?;
        if !names.insert(view.name) {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                "the checkpoint has a tensor of this name already",
            )
            .with_tensor(view.name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::fixtures::{Fixture, Tensor, views};

    #[test]
    fn tensors_saved_by_threads_load_as_they_were() {
        let fixture = Fixture::new(3, 1 << 20);
        let tensors: Vec<Tensor> = [0, 1, 5000, 1 << 20, (3 << 20) + 77, 9 << 20]
            .into_iter()
            .map(Tensor::new)
            .collect();
        for (step, threads) in [(1, 1), (2, 4), (3, 100), (4, 0)] {
            let store = &fixture.store;
            let info = store
                .save(step, BeginOptions::default(), &views(&tensors), threads)
                .unwrap();
            assert_eq!(info.tensor_count, 6);
            fixture.check(step, &tensors);
            store.remove(step).unwrap();
        }
        let empty = fixture.store.save(9, BeginOptions::default(), &[], 3);
        assert_eq!(empty.unwrap().tensor_count, 0);
    }

    #[test]
    fn a_failing_thread_fails_the_save_and_leaves_nothing() {
        let fixture = Fixture::new(2, 1 << 20);
        let before = fixture.store.space();
        let tensors = [Tensor::new(2 << 20), Tensor::new(1000)];
        let mut views = views(&tensors);
        views.push(views[0]);
        let error = fixture
            .store
            .save(1, BeginOptions::default(), &views, 3)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert!(fixture.store.list().is_empty());
        assert_eq!(fixture.store.space(), before);
    }

    #[test]
    fn a_store_too_full_says_so_before_anything_is_written() {
        let fixture = Fixture::new(1, 1 << 20);
        let bytes = vec![0; usize::try_from(fixture.store.space().free_bytes).unwrap() + 1];
        let view = TensorView {
            name: "large",
            dtype: DType::U8,
            shape: &[bytes.len() as u64],
            bytes: &bytes,
        };
        let error = fixture
            .store
            .save(1, BeginOptions::default(), &[view], 1)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
    }

    #[test]
    fn contradictions_and_duplicates_are_found_before_a_copy() {
        let view = |name, shape| TensorView {
            name,
            dtype: DType::F32,
            shape,
            bytes: &[0; 8],
        };
        check_tensors(&[view("a", &[2]), view("b", &[1, 2])]).unwrap();
        let kind = |views: &[TensorView<'_>]| check_tensors(views).unwrap_err().kind();
        assert_eq!(kind(&[view("a", &[3])]), ErrorKind::InvalidInput);
        assert_eq!(kind(&[view("a\0", &[2])]), ErrorKind::InvalidInput);
        let twice = [view("a", &[2]), view("a", &[2])];
        assert_eq!(kind(&twice), ErrorKind::AlreadyExists);
    }
}
