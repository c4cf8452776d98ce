//! A thousand saves and removals.
//!
//! What could go wrong: a descriptor, a mapping or a piece of space that is lost in each.

use std::fs;

use swath_tests::checkpoints::{self, Tensor, assert_holds};
use swath_tests::fixtures::{self, Place};

use super::MIB;

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_thousand_rounds_leave_descriptors_and_space_where_they_were() {
    let name = "store::rounds::a_thousand_rounds_leave_descriptors_and_space_where_they_were";
    // Other tests have descriptors of their own.
    fixtures::in_own_process(name, || {
        let folder = Place::Memory.folder().unwrap_or_else(fixtures::folder);
        let members = fixtures::members(folder.path(), 2, 8 << 20);
        // The best there is: that with most to lose.
        let backend = fixtures::backends()[0];
        let store = checkpoints::store_on_files(&members, 64 << 10, backend);
        let kept = [Tensor::new("kept", MIB + 7, 1)];
        checkpoints::save(&store, 0, &kept).unwrap();
        let source = Tensor::new("source", MIB + 1000, 2).bytes;
        let round = |step: u64| {
            let mut tensors = vec![Tensor::new("small", 3_000, 3)];
            // Only some are large: it is about the number.
            if step.is_multiple_of(20) {
                let mut large = Tensor::new("large", 0, 3);
                large.shape = vec![source.len() as u64];
                large.bytes.clone_from(&source);
                tensors.push(large);
            }
            checkpoints::save(&store, step, &tensors).unwrap();
            store.remove(step).unwrap();
        };
        (1..=40).for_each(round);
        let before = (descriptors(), store.space());
        (41..=1000).for_each(round);
        assert_eq!((descriptors(), store.space()), before);
        assert_holds(&store, 0, &kept);
    });
}
