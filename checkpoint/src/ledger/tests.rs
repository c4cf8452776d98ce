//! What could go wrong with space: what a border skipped comes back as a tensor in a hundred pieces;
//! a reservation that turns out not to be there; bytes given out twice.

use proptest::prelude::*;

use super::*;
use crate::fixtures::Fixture;
use crate::session::{BeginOptions, Session};

const MIB: u64 = 1 << 20;

fn begin(store: &Store, data_bytes: u64) -> Session {
    let options = BeginOptions {
        data_bytes: Some(data_bytes),
        ..BeginOptions::default()
    };
    store.begin(1, options).unwrap()
}

/// Lengths of tensors in units, most of them such that the next border is far.
fn lengths(units_max: u64) -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(1..units_max, 1..12)
}

/// Allocates as a writer does.
fn place(ledger: &Ledger, length: u64) -> Vec<Extent> {
    let align = if length < 8 * MIB { UNIT_BYTES } else { MIB };
    ledger.allocate(length, align).unwrap()
}

fn assert_disjoint(extents: impl IntoIterator<Item = Extent>) {
    let mut sorted: Vec<_> = extents.into_iter().collect();
    sorted.sort_unstable();
    assert_eq!(Extent::list_problem(&sorted), None, "{sorted:?}");
}

#[test]
fn a_tensor_lies_in_one_extent_and_on_a_border_while_the_store_has_room() {
    // 128 MiB in all.
    let fixture = Fixture::new(4, MIB);
    let free = fixture.store.space();
    proptest!(|(lengths in lengths(11 << 8), packs in prop::collection::vec(any::<bool>(), 12))| {
        let bytes = |units: &u64| units * UNIT_BYTES;
        let total: u64 = lengths.iter().map(bytes).sum();
        prop_assume!(total <= 48 * MIB);
        let session = begin(&fixture.store, total);
        let ledger = &session.ledger;
        let mut all = Vec::new();
        // The one that takes the end of what is reserved.
        let mut off_border = 0;
        for (length, packs) in lengths.iter().map(bytes).zip(packs) {
            let extents = place(ledger, length);
            prop_assert_eq!(extents.len(), 1, "{} bytes: {:?}", length, extents);
            prop_assert_eq!(extents[0].length, length);
            let is_large = length >= 8 * MIB;
            off_border += u32::from(is_large && !extents[0].offset.is_multiple_of(MIB));
            all.extend(extents);
            if packs {
                // A small tensor, and the rest of its buffer's space.
                let pack = ledger.allocate_up_to(MIB).unwrap();
                all.push(Extent::new(pack.offset, UNIT_BYTES));
                ledger.give_back(Extent::new(
                    pack.offset + UNIT_BYTES,
                    pack.length - UNIT_BYTES,
                ));
            }
        }
        prop_assert!(off_border <= 1);
        assert_disjoint(all);
        drop(session);
        prop_assert_eq!(fixture.store.space(), free);
    });
}

#[test]
fn a_reservation_of_all_there_is_holds_what_it_was_made_for_in_one_extent_each() {
    let fixture = Fixture::new(2, MIB);
    let store = &fixture.store;
    let free = store.space();
    let spare = store.spare_bytes();
    proptest!(|(lengths in lengths(11 << 8))| {
        let mut left = spare;
        let mut lengths: Vec<u64> = lengths
            .iter()
            .map(|units| units * UNIT_BYTES)
            .take_while(|length| {
                let fits = *length < left;
                left -= if fits { *length } else { 0 };
                fits
            })
            .collect();
        lengths.push(left);
        let session = begin(store, spare);
        let mut all = Vec::new();
        for length in lengths {
            let extents = place(&session.ledger, length);
            prop_assert_eq!(extents.len(), 1, "{} bytes: {:?}", length, extents);
            all.extend(extents);
        }
        assert_disjoint(all);
        let error = session.ledger.allocate(UNIT_BYTES, UNIT_BYTES).unwrap_err();
        prop_assert_eq!(error.kind(), ErrorKind::NoSpace);
        drop(session);
        prop_assert_eq!(store.space(), free);
    });
}

#[test]
fn what_lies_in_pieces_is_used_when_the_store_has_nothing_more() {
    let fixture = Fixture::new(2, MIB);
    let store = &fixture.store;
    let spare = store.spare_bytes();
    let session = begin(store, spare);
    let ledger = &session.ledger;
    let all = ledger.allocate(spare, MIB).unwrap();
    assert_eq!(all.len(), 1);
    for place in 0..3 {
        ledger.give_back(Extent::new(all[0].offset + place * 4 * MIB, MIB));
    }
    assert_eq!(ledger.allocate(MIB, MIB).unwrap().len(), 1);
    let error = ledger.allocate(2 * MIB + UNIT_BYTES, MIB).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    // Nothing was lost by the refusal.
    assert_eq!(ledger.allocate(2 * MIB, MIB).unwrap().len(), 2);
}
