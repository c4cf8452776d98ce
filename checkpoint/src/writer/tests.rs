//! What could go wrong when many tensors are put at once: bytes of one in the place of another,
//! checksums that are not those of what was written, a refusal that leaves half of them behind.

use swath_engine::AlignedBuf;

use super::*;
use crate::fixtures::{Fixture, Tensor, views};
use crate::session::BeginOptions;

const MIB: usize = 1 << 20;

/// The bytes of tensors, in memory that can be written from, or one byte beside it.
fn lay(tensors: &[Tensor], skew: impl Fn(usize) -> usize) -> Vec<AlignedBuf> {
    (0..)
        .zip(tensors)
        .map(|(number, tensor)| {
            let skew = skew(number);
            let mut memory = AlignedBuf::zeroed(skew + tensor.bytes.len().max(1)).unwrap();
            memory[skew..skew + tensor.bytes.len()].copy_from_slice(&tensor.bytes);
            memory
        })
        .collect()
}

#[test]
fn tensors_of_every_size_and_memory_put_at_once_load_as_they_were() {
    for chunk_bytes in [64 << 10, MIB as u64] {
        let fixture = Fixture::new(3, chunk_bytes);
        let tensors: Vec<Tensor> = [
            9 * MIB + 5,
            0,
            MIB,
            1000,
            3 * MIB + 4096,
            MIB - 1,
            2 * MIB + 511,
            10 * MIB,
            5 * MIB + 77,
        ]
        .into_iter()
        .map(Tensor::new)
        .collect();
        let skew = |number| usize::from(number == 4 || number == 8);
        let memory = lay(&tensors, skew);
        let mut views = views(&tensors);
        for (number, (view, memory)) in views.iter_mut().zip(&memory).enumerate() {
            let start = skew(number);
            view.bytes = &memory[start..start + view.bytes.len()];
        }
        let options = BeginOptions {
            verify_source: true,
            ..BeginOptions::default()
        };
        let session = fixture.store.begin(1, options).unwrap();
        let mut writer = session.writer().unwrap();
        writer.put_many(&[]).unwrap();
        writer.put_many(&views).unwrap();
        writer.finish().unwrap();
        session.commit().unwrap();
        fixture.check(1, &tensors);
    }
}

#[test]
fn a_refusal_among_many_puts_none_and_the_session_goes_on() {
    let fixture = Fixture::new(2, MIB as u64);
    let tensors: Vec<Tensor> = [MIB, 100, 2 * MIB].into_iter().map(Tensor::new).collect();
    let memory = lay(&tensors, |_| 0);
    let mut views = views(&tensors);
    for (view, memory) in views.iter_mut().zip(&memory) {
        view.bytes = &memory[..view.bytes.len()];
    }
    let session = fixture.store.begin(1, BeginOptions::default()).unwrap();
    let mut writer = session.writer().unwrap();
    let twice = [views[0], views[1], views[0]];
    let error = writer.put_many(&twice).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let mut wrong = views[2];
    wrong.shape = &[1];
    let error = writer.put_many(&[views[0], wrong]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.tensor(), Some(&*tensors[2].name));
    // Their names are free, and nothing of them is in the way.
    writer.put_many(&views).unwrap();
    writer.finish().unwrap();
    assert_eq!(session.commit().unwrap().tensor_count, 3);
    fixture.check(1, &tensors);
}

#[test]
fn a_store_too_full_names_the_tensor_and_fails_the_session() {
    let fixture = Fixture::new(1, MIB as u64);
    let tensors: Vec<Tensor> = [9 * MIB, 30 * MIB].into_iter().map(Tensor::new).collect();
    let memory = lay(&tensors, |_| 0);
    let mut views = views(&tensors);
    for (view, memory) in views.iter_mut().zip(&memory) {
        view.bytes = &memory[..view.bytes.len()];
    }
    let session = fixture.store.begin(1, BeginOptions::default()).unwrap();
    let mut writer = session.writer().unwrap();
    let error = writer.put_many(&views).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert_eq!(error.tensor(), Some(&*tensors[1].name));
    writer.finish().unwrap();
    assert_eq!(session.commit().unwrap_err().kind(), ErrorKind::NoSpace);
}
