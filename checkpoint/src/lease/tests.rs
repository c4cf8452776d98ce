//! Owner and holders in one process: the locks between them belong to descriptors, not to
//! processes. What happens when processes die is in the integration tests.

use swath_volume::ErrorKind as VolumeErrorKind;

use super::*;
use crate::checkpoint::ReadOptions;
use crate::dtype::DType;
use crate::extent::UNIT_BYTES;
use crate::fixtures::Fixture;
use crate::session::BeginOptions;
use crate::store::{FormatOptions, Store};

const MIB: usize = 1 << 20;

fn fixture() -> Fixture {
    Fixture::new(3, 64 << 10)
}

fn begin(fixture: &Fixture, step: u64) -> Session {
    fixture.store.begin(step, BeginOptions::default()).unwrap()
}

fn hold(fixture: &Fixture, lease: &Lease) -> Result<LeaseHolder> {
    lease.open(&fixture.members, &StoreOptions::default())
}

fn volume_kind(error: &Error) -> Option<VolumeErrorKind> {
    error.volume_error().map(swath_volume::Error::kind)
}

/// Bytes of a tensor that no other has.
fn bytes(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| u8::try_from(at * 31 % 251).unwrap() ^ seed)
        .collect()
}

fn put(writer: &mut Writer, name: &str, seed: u8, length: usize) -> Result<()> {
    writer.put(name, DType::U8, &[length as u64], &bytes(seed, length))
}

fn write(holder: LeaseHolder, tensors: &[(&str, u8, usize)]) -> Result<Receipt> {
    let mut writer = holder.writer()?;
    for (name, seed, length) in tensors {
        put(&mut writer, name, *seed, *length)?;
    }
    writer.finish()?;
    holder.finish()
}

fn through_json<T: Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

#[test]
fn holders_and_owner_write_one_checkpoint() {
    let fixture = fixture();
    let session = begin(&fixture, 7);
    let parts: [&[_]; 2] = [
        &[("a/large", 1, 3 * MIB + 17), ("a/small", 2, 5000)],
        &[("b/small", 3, 1), ("b/large", 4, MIB), ("b/none", 5, 0)],
    ];
    let leases = [(); 2].map(|()| session.lease(6 << 20).unwrap());
    for (part, lease) in parts.into_iter().zip(leases) {
        let lease = through_json(&lease);
        assert_eq!(lease.space_bytes(), 6 << 20);
        let receipt = write(hold(&fixture, &lease).unwrap(), part).unwrap();
        session.accept(through_json(&receipt)).unwrap();
    }
    // The rest of both leases is there for the owner.
    let taken = fixture.store.space().session_bytes;
    let mut writer = session.writer().unwrap();
    put(&mut writer, "owner", 6, 4 * MIB).unwrap();
    writer.finish().unwrap();
    assert_eq!(fixture.store.space().session_bytes, taken);
    let info = session.commit().unwrap();
    assert_eq!(info.tensor_count, 6);
    assert_eq!(fixture.store.space().session_bytes, 0);
    assert_eq!(info.occupied_bytes, (8 << 20) + 5 * UNIT_BYTES);

    drop(session);
    let fixture = fixture.reopen(false);
    let checkpoint = fixture.store.get(7).unwrap();
    let mut reader = checkpoint.reader(ReadOptions::default()).unwrap();
    let owner: &[_] = &[("owner", 6, 4 * MIB)];
    for (name, seed, length) in parts.into_iter().chain([owner]).flatten() {
        let mut memory = vec![0; *length];
        reader.read(name, &mut memory).unwrap();
        assert!(memory == bytes(*seed, *length), "{name}");
    }
}

#[test]
fn a_lease_that_is_out_holds_the_commit_up_until_it_is_revoked() {
    let fixture = fixture();
    let session = begin(&fixture, 1);
    let lease = session.lease(1 << 20).unwrap();
    let error = session.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(
        error.to_string().contains("lease 1 is still out"),
        "{error}"
    );

    let holder = hold(&fixture, &lease).unwrap();
    // One at a time; and not while somebody could still write.
    assert_eq!(
        hold(&fixture, &lease).unwrap_err().kind(),
        ErrorKind::Volume
    );
    let error = session.revoke(lease.lease_id).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    let receipt = write(holder, &[("late", 1, 4096)]).unwrap();
    session.revoke(lease.lease_id).unwrap();

    assert!(hold(&fixture, &lease).is_err());
    for refused in [session.accept(receipt), session.revoke(lease.lease_id)] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Finished);
    }
    assert_eq!(session.revoke(99).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(session.commit().unwrap().tensor_count, 0);
    assert_eq!(session.lease(1).unwrap_err().kind(), ErrorKind::Finished);
    assert_eq!(fixture.store.space().session_bytes, 0);
}

#[test]
fn a_receipt_is_taken_once_and_only_by_its_session() {
    let fixture = fixture();
    let (one, two) = (begin(&fixture, 1), begin(&fixture, 2));
    let lease = one.lease(1 << 20).unwrap();
    let receipt = write(hold(&fixture, &lease).unwrap(), &[("a", 1, 9)]).unwrap();
    let kind = |outcome: Result<()>| outcome.unwrap_err().kind();
    assert_eq!(kind(two.accept(receipt.clone())), ErrorKind::NotFound);
    for elsewhere in [
        Receipt {
            root_epoch: receipt.root_epoch + 1,
            ..receipt.clone()
        },
        Receipt {
            volume_uuid: Uuid::from_u128(1),
            ..receipt.clone()
        },
    ] {
        assert_eq!(kind(one.accept(elsewhere)), ErrorKind::NotFound);
    }
    one.accept(receipt.clone()).unwrap();
    assert_eq!(kind(one.accept(receipt.clone())), ErrorKind::Finished);
    // Nobody writes again where the checkpoint is now.
    assert!(hold(&fixture, &lease).is_err());
    one.commit().unwrap();
    assert_eq!(kind(one.accept(receipt)), ErrorKind::Finished);
}

#[test]
fn names_are_unique_across_processes() {
    let fixture = fixture();
    let session = begin(&fixture, 1);
    let mut writer = session.writer().unwrap();
    put(&mut writer, "a", 1, 100).unwrap();
    let leases = [(); 2].map(|()| session.lease(1 << 20).unwrap());
    let receipt = write(
        hold(&fixture, &leases[0]).unwrap(),
        &[("b", 2, 100), ("a", 3, 100)],
    );
    let error = session.accept(receipt.unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(error.tensor(), Some("a"));
    // Nothing of it was taken.
    put(&mut writer, "b", 4, 100).unwrap();

    let mut receipt = write(hold(&fixture, &leases[1]).unwrap(), &[("c", 5, 100)]).unwrap();
    receipt.tensors.push(receipt.tensors[0].clone());
    let error = session.accept(receipt.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    receipt.tensors.pop();
    session.accept(receipt).unwrap();
    let error = put(&mut writer, "c", 6, 100).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    writer.finish().unwrap();
    session.revoke(leases[0].lease_id).unwrap();
    assert_eq!(session.commit().unwrap().tensor_count, 3);
}

#[test]
fn a_lease_can_be_filled_to_its_last_unit_and_no_further() {
    let fixture = fixture();
    let session = begin(&fixture, 1);
    let lease = session.lease(UNIT_BYTES + 1).unwrap();
    assert_eq!(lease.space_bytes(), 2 * UNIT_BYTES);
    let receipt = write(
        hold(&fixture, &lease).unwrap(),
        &[("a", 1, 5000), ("b", 2, 3192)],
    );
    session.accept(receipt.unwrap()).unwrap();

    let lease = session.lease(UNIT_BYTES).unwrap();
    let holder = hold(&fixture, &lease).unwrap();
    let mut writer = holder.writer().unwrap();
    let error = put(&mut writer, "c", 3, 4097).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(
        error.to_string().contains("the lease is used up"),
        "{error}"
    );
    drop(writer);
    assert_eq!(holder.finish().unwrap_err().kind(), ErrorKind::NoSpace);
    session.revoke(lease.lease_id).unwrap();

    // Nothing needs no space.
    let lease = session.lease(0).unwrap();
    let receipt = write(hold(&fixture, &lease).unwrap(), &[("none", 4, 0)]);
    session.accept(receipt.unwrap()).unwrap();
    let kind = session.lease(u64::MAX).unwrap_err().kind();
    assert_eq!(kind, ErrorKind::NoSpace);
    assert_eq!(session.commit().unwrap().tensor_count, 3);
}

#[test]
fn a_holder_that_lies_about_checksums_damages_its_own_tensors() {
    let fixture = fixture();
    let session = begin(&fixture, 1);
    let lease = session.lease(4 << 20).unwrap();
    let tensors = [("true", 1, 100), ("lie", 2, 2 * MIB)];
    let mut receipt = write(hold(&fixture, &lease).unwrap(), &tensors).unwrap();
    let lie = receipt.tensors.iter_mut().find(|lie| lie.name == "lie");
    lie.unwrap().checksums[1] ^= 1;
    session.accept(receipt).unwrap();
    session.commit().unwrap();
    let checkpoint = fixture.store.get(1).unwrap();
    let mut reader = checkpoint.reader(ReadOptions::default()).unwrap();
    reader.read("true", &mut [0; 100]).unwrap();
    let error = reader.read("lie", &mut vec![0; 2 * MIB]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert_eq!((error.tensor(), error.block()), (Some("lie"), Some(1)));
}

#[test]
fn a_session_that_ends_takes_back_what_nobody_holds() {
    let fixture = fixture();
    let free = fixture.store.space().free_bytes;
    let session = begin(&fixture, 1);
    let leases = [(); 2].map(|()| session.lease(4 << 20).unwrap());
    let holder = hold(&fixture, &leases[1]).unwrap();
    session.abort();
    // The held one can still be written to, so nobody else may have its space.
    assert_eq!(fixture.store.space().session_bytes, 4 << 20);
    assert!(hold(&fixture, &leases[0]).is_err());
    let mut writer = holder.writer().unwrap();
    put(&mut writer, "a", 1, 100).unwrap();
    drop((writer, holder));
    let space = fixture.reopen(false).store.space();
    assert_eq!((space.session_bytes, space.free_bytes), (0, free));
}

#[test]
fn a_lease_ends_with_its_owner() {
    let fixture = fixture();
    let session = begin(&fixture, 1);
    let leases = [(); 2].map(|()| session.lease(1 << 20).unwrap());
    let holder = hold(&fixture, &leases[0]).unwrap();
    drop(session);
    let Fixture {
        store,
        directory,
        members,
    } = fixture;
    drop(store);
    let open = || Volume::open(&members, &OpenOptions::default());
    let error = open().unwrap_err();
    assert_eq!(error.kind(), VolumeErrorKind::InUse);
    assert!(error.to_string().contains("wrote beside it"), "{error}");
    let error = write(holder, &[("a", 1, 100)]).unwrap_err();
    assert_eq!(volume_kind(&error), Some(VolumeErrorKind::Closed));

    let store = Store::open(open().unwrap(), &StoreOptions::default()).unwrap();
    let fixture = Fixture {
        store,
        directory,
        members,
    };
    // The new owner invites too; the old lease stays what it is.
    let session = begin(&fixture, 1);
    session.lease(1 << 20).unwrap();
    let error = hold(&fixture, &leases[1]).unwrap_err();
    assert_eq!(volume_kind(&error), Some(VolumeErrorKind::Closed));
}

#[test]
fn leases_that_were_changed_on_their_way_are_refused() {
    let fixture = fixture();
    let session = begin(&fixture, 1);
    let lease = session.lease(1 << 20).unwrap();
    let capacity = fixture.store.volume().capacity_bytes();
    let changes: [fn(&mut Lease, u64); 7] = [
        |lease, _| lease.store_uuid = Uuid::from_u128(1),
        |lease, _| lease.volume_uuid = Uuid::from_u128(1),
        |lease, _| lease.root_epoch += 1,
        |lease, _| lease.name = CheckpointName::Name(String::new()),
        |lease, _| lease.extents[0].offset += 1,
        |lease, _| lease.extents.push(lease.extents[0]),
        |lease, capacity| lease.extents[0].offset = capacity,
    ];
    for change in changes {
        let mut changed = lease.clone();
        change(&mut changed, capacity);
        hold(&fixture, &changed).unwrap_err();
    }
    // Lengths that do not add up to a number of bytes.
    let mut endless = lease.clone();
    endless.extents.push(Extent::new(1 << 40, u64::MAX));
    assert_eq!(endless.space_bytes(), u64::MAX);
    hold(&fixture, &endless).unwrap_err();
    hold(&fixture, &lease).unwrap();
    let volume = OpenOptions {
        guest: Some(session.lease(0).unwrap().guest()),
        ..OpenOptions::default()
    };
    let volume = Volume::open(&fixture.members, &volume).unwrap();
    let error = Store::open(volume.clone(), &StoreOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let force = FormatOptions {
        force: true,
        ..FormatOptions::default()
    };
    let error = Store::format(volume, &force).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}
