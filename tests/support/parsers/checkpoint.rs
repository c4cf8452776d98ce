//! What a store reads from its volume, and what another process hands to it.

use std::str::FromStr;

use swath_checkpoint::catalog::Catalog;
use swath_checkpoint::extent::{Extent, FreeSpace, UNIT_BYTES};
use swath_checkpoint::index::{Index, TensorEntry};
use swath_checkpoint::place::StoreHeader;
use swath_checkpoint::{CheckpointName, DType, Lease, Receipt, untrusted};

use super::{ERROR_BYTES, Memory, Target};

pub(super) const STORE_HEADER: Target = Target {
    name: "store_header",
    // The root record that it lies in has one.
    seal: None,
    parse: |input| StoreHeader::decode(input).is_ok(),
    check: |input| {
        if let Ok(header) = StoreHeader::decode(input) {
            assert!(header.encode() == input, "accepted, and never written so");
        }
    },
    memory: Memory {
        unsealed_bytes: 0,
        base_bytes: ERROR_BYTES,
        // Its extents twice: as they are, and sorted to see whether they overlap.
        factor: 2,
    },
};

pub(super) const CATALOG: Target = Target {
    name: "catalog",
    seal: Some(sealed_blob),
    parse: |input| Catalog::decode(input).is_ok(),
    check: |input| {
        if let Ok(catalog) = Catalog::decode(input) {
            assert!(catalog.encode() == input, "accepted, and never written so");
            // The next commit can be made.
            let mut next = catalog.clone();
            next.reserve_id();
            next.advance();
            assert!(next.commit() > catalog.commit() && next.next_id() > catalog.next_id());
            for capacity_bytes in [1 << 20, 1 << 63] {
                if let Ok(space) = FreeSpace::new(capacity_bytes, catalog.extents()) {
                    let used: u64 = catalog.extents().map(|extent| extent.length).sum();
                    assert_eq!(space.free_bytes() + used, capacity_bytes);
                }
            }
        }
    },
    memory: Memory {
        unsealed_bytes: ERROR_BYTES,
        base_bytes: 2 * ERROR_BYTES,
        factor: 12,
    },
};

pub(super) const INDEX: Target = Target {
    name: "index",
    seal: Some(sealed_blob),
    parse: |input| Index::decode(input).is_ok(),
    check: |input| {
        if let Ok(index) = Index::decode(input) {
            assert!(index.encode() == input, "accepted, and never written so");
            let runs = || index.tensors().iter().flat_map(|tensor| &tensor.runs);
            let total: u128 = runs().map(|run| u128::from(run.length)).sum();
            assert_eq!(total, u128::from(index.data_bytes()));
            let _ = index.check_places(&[Extent::new(0, 1 << 20)]);
            let _ = index.check_places(&[Extent::new(UNIT_BYTES, (1 << 63) - UNIT_BYTES)]);
            for tensor in index.tensors() {
                let whole: u64 = tensor.locate(0, tensor.length).map(|run| run.length).sum();
                assert_eq!(whole, tensor.length);
                assert_eq!(index.find(&tensor.name), Some(tensor));
            }
        }
    },
    memory: Memory {
        unsealed_bytes: ERROR_BYTES,
        // The name of a tensor is repeated in an error.
        base_bytes: 4096 + 2 * ERROR_BYTES,
        factor: 12,
    },
};

pub(super) const LEASE: Target = Target {
    name: "lease",
    seal: None,
    parse: |input| {
        serde_json::from_slice::<Lease>(input).is_ok()
            || serde_json::from_slice::<Receipt>(input).is_ok()
    },
    check: check_lease,
    memory: Memory {
        unsealed_bytes: 0,
        base_bytes: 8 * ERROR_BYTES,
        factor: 40,
    },
};

pub(super) const NAMES: Target = Target {
    name: "names",
    seal: None,
    parse: |input| {
        std::str::from_utf8(input).is_ok_and(|text| {
            CheckpointName::from_str(text).is_ok() || DType::from_str(text).is_ok()
        })
    },
    check: check_names,
    memory: Memory {
        unsealed_bytes: 0,
        base_bytes: ERROR_BYTES,
        factor: 2,
    },
};

/// Puts the length and the checksum of a blob right: the checksum is at 12, of all other bytes.
pub(super) fn sealed_blob(input: &[u8]) -> Vec<u8> {
    let mut blob = input.to_vec();
    if blob.len() < 24 {
        return blob;
    }
    let length = blob.len() as u64;
    blob[16..24].copy_from_slice(&length.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&blob[..12]);
    hasher.update(&blob[16..]);
    blob[12..16].copy_from_slice(&hasher.finalize().to_le_bytes());
    blob
}

/// What the lease of a receipt has.
pub(super) const LEASED: [Extent; 3] = [
    Extent::new(8 * UNIT_BYTES, 4 * UNIT_BYTES),
    Extent::new(12 * UNIT_BYTES, UNIT_BYTES),
    Extent::new(1 << 30, 1 << 22),
];

fn check_lease(input: &[u8]) {
    if let Ok(lease) = serde_json::from_slice::<Lease>(input) {
        let again = serde_json::to_vec(&lease).expect("a lease is plain data");
        assert_eq!(
            serde_json::from_slice::<Lease>(&again).ok(),
            Some(lease.clone())
        );
        // May be wrong for extents that cannot be; may not panic.
        let _ = lease.space_bytes();
        let _ = lease.name.check();
    }
    if let Ok(receipt) = serde_json::from_slice::<Receipt>(input) {
        let again = serde_json::to_vec(&receipt).expect("a receipt is plain data");
        assert_eq!(
            serde_json::from_slice::<Receipt>(&again).ok(),
            Some(receipt.clone())
        );
        check_receipt(&receipt.tensors);
    }
}

fn check_receipt(tensors: &[TensorEntry]) {
    let Ok(unused) = untrusted::unused_of_lease(&LEASED, tensors) else {
        return;
    };
    let leased = |offset: u64, end: u64| {
        Extent::merge(LEASED.to_vec())
            .iter()
            .any(|extent| extent.offset <= offset && end <= extent.end())
    };
    for extent in &unused {
        assert!(leased(extent.offset, extent.end()), "not in the lease");
    }
    let mut pieces: Vec<_> = unused
        .iter()
        .map(|extent| (extent.offset, extent.end()))
        .collect();
    for run in tensors.iter().flat_map(|tensor| &tensor.runs) {
        assert!(leased(run.offset, run.end()), "taken outside of the lease");
        pieces.push((run.offset, run.end()));
    }
    pieces.sort_unstable();
    assert!(pieces.is_sorted_by(|a, b| a.1 <= b.0), "space in use twice");
}

fn check_names(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    if let Ok(name) = CheckpointName::from_str(text) {
        name.check().expect("it was accepted");
        let plain = match &name {
            CheckpointName::Step(step) => step.to_string(),
            CheckpointName::Name(name) => name.clone(),
        };
        assert_eq!(plain, text, "two texts for one name");
        assert!(!name.to_string().contains(char::is_control));
        let json = serde_json::to_vec(&name).expect("a name is plain data");
        assert_eq!(
            serde_json::from_slice::<CheckpointName>(&json).ok(),
            Some(name)
        );
    }
    if let Ok(dtype) = DType::from_str(text) {
        assert_eq!(dtype.name(), text);
    }
}
