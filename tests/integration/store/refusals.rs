//! What a store refuses, in which kind of error, and that a refusal leaves nothing behind.

use swath_checkpoint::region::Region;
use swath_checkpoint::retention::Retention;
use swath_checkpoint::{
    BeginOptions, CheckpointName, DType, ErrorKind, FormatOptions, NAME_BYTES_MAX, ReadOptions,
    Store, StoreOptions,
};
use swath_tests::checkpoints::{self, SimStore, Tensor, assert_holds, assert_store_holds};
use swath_tests::seed::Seed;
use swath_volume::OpenOptions;

use super::MIB;

fn sim() -> SimStore {
    SimStore::new(Seed::new().value(), 2, 4 << 20, 64 << 10)
}

fn kept() -> Vec<Tensor> {
    vec![
        Tensor::shaped("matrix", DType::F32, &[20, 30], 1),
        Tensor::new("large", MIB + 5, 2),
    ]
}

#[track_caller]
fn assert_kind<T: std::fmt::Debug>(
    result: swath_checkpoint::Result<T>,
    kind: ErrorKind,
) -> swath_checkpoint::Error {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    error
}

#[test]
fn a_step_that_is_unknown_is_told_with_the_newest_that_is_there() {
    let sim = sim();
    let store = sim.store();
    let unknown = |store: &Store| {
        let name: CheckpointName = "before the merge".parse().unwrap();
        [
            store.get(7).map(drop).unwrap_err(),
            store.get(name).map(drop).unwrap_err(),
            store.remove(7).map(drop).unwrap_err(),
            store.set_pinned(7, true).unwrap_err(),
        ]
    };
    for error in unknown(store) {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("the store has none"), "{error}");
    }
    checkpoints::save(store, 41, &kept()).unwrap();
    for error in unknown(store) {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("41"), "{error}");
    }
    assert_store_holds(store, &[(41.into(), kept())]);
}

#[test]
fn a_volume_without_a_store_and_one_of_a_newer_version_are_told_apart() {
    let mut sim = sim();
    let options = StoreOptions::default();
    let root = sim.store().volume().root().unwrap();
    let volume = sim.store().volume().clone();
    sim.die();

    // A newer version: the number behind the magic.
    let mut payload = root.payload.clone();
    payload[8] += 1;
    volume.commit_root(&payload).unwrap();
    let error = assert_kind(
        Store::open(volume.clone(), &options),
        ErrorKind::Unsupported,
    );
    assert!(error.to_string().contains('2'), "{error}");

    // Another program's record, and one that is cut short or goes on too long.
    volume.commit_root(b"another program's").unwrap();
    assert_kind(Store::open(volume.clone(), &options), ErrorKind::NoStore);
    for payload in [
        &root.payload[..root.payload.len() - 1],
        &root.payload[..12],
        &[&root.payload[..], &[0]].concat(),
    ] {
        volume.commit_root(payload).unwrap();
        assert_kind(Store::open(volume.clone(), &options), ErrorKind::Damaged);
    }
    // Another program's is not written over, unless that is what is wanted.
    let format = FormatOptions::default();
    assert_kind(
        Store::format(volume.clone(), &format),
        ErrorKind::AlreadyExists,
    );
    volume.commit_root(&root.payload).unwrap();
    assert_kind(
        Store::format(volume.clone(), &format),
        ErrorKind::AlreadyExists,
    );
    let forced = FormatOptions {
        force: true,
        ..format
    };
    assert!(
        Store::format(volume.clone(), &forced)
            .unwrap()
            .list()
            .is_empty()
    );
    drop(volume);
    sim.reopen();

    // No record at all.
    let (platform, paths) = swath_tests::sim::SimPlatform::with_members(1, 1, 6 << 20);
    let volume = swath_volume::Volume::create_on(
        std::sync::Arc::new(platform),
        &paths,
        &swath_volume::CreateOptions::default(),
    )
    .unwrap();
    let error = assert_kind(Store::open(volume, &options), ErrorKind::NoStore);
    assert!(error.to_string().contains("format"), "{error}");
}

#[test]
fn names_shapes_and_sizes_that_cannot_be_are_refused_and_the_session_goes_on() {
    let sim = sim();
    let store = sim.store();
    let session = store.begin(1, BeginOptions::default()).unwrap();
    let mut writer = session.writer().unwrap();
    let bytes = [7; 16];
    let too_long = "x".repeat(NAME_BYTES_MAX + 1);
    let rank = [1; 65];
    let cases: [(&str, DType, &[u64]); 9] = [
        ("", DType::U8, &[16]),
        ("a\0b", DType::U8, &[16]),
        (&too_long, DType::U8, &[16]),
        ("t", DType::U8, &[15]),
        ("t", DType::F32, &[16]),
        ("t", DType::F32, &[2, 3]),
        ("t", DType::U8, &[u64::MAX, u64::MAX]),
        ("t", DType::F4, &[31]),
        ("t", DType::U8, &rank),
    ];
    for (name, dtype, shape) in cases {
        let error = assert_kind(
            writer.put(name, dtype, shape, &bytes),
            ErrorKind::InvalidInput,
        );
        assert_eq!(error.checkpoint(), Some("1"));
        assert_eq!(error.tensor(), Some(name));
    }
    for (name, dtype, shape) in &cases[6..] {
        let error = writer.put_stream(name, *dtype, shape).map(drop);
        assert_kind(error, ErrorKind::InvalidInput);
    }
    // None of these names is taken, and the checkpoint is what is left.
    writer.put("t", DType::U8, &[16], &bytes).unwrap();
    writer.finish().unwrap();
    session.commit().unwrap();
    let mut tensor = Tensor::new("t", 16, 0);
    tensor.bytes = bytes.to_vec();
    assert_holds(store, 1, &[tensor]);

    for name in ["", "a\0b", "0120", "99999999999999999999", &too_long] {
        let name = CheckpointName::Name(name.to_owned());
        assert_kind(
            store.begin(name, BeginOptions::default()),
            ErrorKind::InvalidInput,
        );
    }
    let key = || ("key".to_owned(), "value".to_owned());
    let options = BeginOptions {
        metadata: vec![key(), key()],
        ..BeginOptions::default()
    };
    assert_kind(store.begin(2, options), ErrorKind::InvalidInput);
}

#[test]
fn two_tensors_of_a_name_are_refused_across_writers() {
    let sim = sim();
    let session = sim.store().begin(1, BeginOptions::default()).unwrap();
    let (mut one, mut two) = (session.writer().unwrap(), session.writer().unwrap());
    one.put("t", DType::U8, &[3], b"one").unwrap();
    for writer in [&mut one, &mut two] {
        let error = assert_kind(
            writer.put("t", DType::U8, &[3], b"two"),
            ErrorKind::AlreadyExists,
        );
        assert_eq!(error.tensor(), Some("t"));
        let error = writer.put_stream("t", DType::U8, &[3]).map(drop);
        assert_kind(error, ErrorKind::AlreadyExists);
    }
    one.finish().unwrap();
    two.finish().unwrap();
    session.commit().unwrap();
    let mut tensor = Tensor::new("t", 3, 0);
    tensor.bytes = b"one".to_vec();
    assert_holds(sim.store(), 1, &[tensor]);
}

#[test]
fn a_session_is_committed_once_when_nobody_writes() {
    let sim = sim();
    let store = sim.store();
    let session = store.begin(1, BeginOptions::default()).unwrap();
    let mut writer = session.writer().unwrap();
    let tensor = Tensor::new("t", 10, 1);
    writer.put("t", DType::U8, &[10], &tensor.bytes).unwrap();
    let error = assert_kind(session.commit(), ErrorKind::Busy);
    assert!(error.to_string().contains("open"), "{error}");
    assert!(store.list().is_empty());
    writer.finish().unwrap();
    session.commit().unwrap();
    assert_kind(session.commit(), ErrorKind::Finished);
    // Nothing can be put after it.
    if let Ok(mut writer) = session.writer() {
        assert_kind(
            writer.put("late", DType::U8, &[1], b"x"),
            ErrorKind::Finished,
        );
        assert_kind(
            writer.put_stream("late", DType::U8, &[1]).map(drop),
            ErrorKind::Finished,
        );
        writer.finish().unwrap();
    }
    drop(session);
    assert_store_holds(store, &[(1.into(), vec![tensor])]);
    assert_eq!(store.space().session_bytes, 0);
}

#[test]
fn a_name_that_is_taken_is_refused_at_once_and_at_the_commit() {
    let sim = sim();
    let store = sim.store();
    let one = store.begin(1, BeginOptions::default()).unwrap();
    let two = store.begin(1, BeginOptions::default()).unwrap();
    let mut writer = one.writer().unwrap();
    writer.put("one", DType::U8, &[1], b"1").unwrap();
    writer.finish().unwrap();
    let mut writer = two.writer().unwrap();
    writer
        .put("two", DType::U8, &[2 << 20], &vec![2; 2 * MIB])
        .unwrap();
    writer.finish().unwrap();
    one.commit().unwrap();
    assert_kind(
        store.begin(1, BeginOptions::default()),
        ErrorKind::AlreadyExists,
    );
    let error = assert_kind(two.commit(), ErrorKind::AlreadyExists);
    assert_eq!(error.checkpoint(), Some("1"));
    drop((one, two));
    assert_eq!(store.space().session_bytes, 0);
    let mut tensor = Tensor::new("one", 1, 0);
    tensor.bytes = b"1".to_vec();
    assert_store_holds(store, &[(1.into(), vec![tensor])]);
}

#[test]
fn a_stream_that_is_not_the_tensor_s_length_fails_its_session() {
    let sim = sim();
    let store = sim.store();
    let bytes = vec![5; 2 * MIB];
    for way in 0..4 {
        let session = store.begin(1, BeginOptions::default()).unwrap();
        let mut writer = session.writer().unwrap();
        let mut stream = writer.put_stream("t", DType::U8, &[2 << 20]).unwrap();
        match way {
            // Too many, later and at once.
            0 => {
                stream.write(&bytes).unwrap();
                assert_kind(stream.write(b"x"), ErrorKind::InvalidInput);
                assert_kind(stream.write(b"x"), ErrorKind::Finished);
                assert_kind(stream.finish(), ErrorKind::Finished);
            }
            1 => {
                let more = vec![5; 2 * MIB + 1];
                assert_kind(stream.write(&more), ErrorKind::InvalidInput);
                drop(stream);
            }
            // Too few, told and not told.
            2 => {
                stream.write(&bytes[1..]).unwrap();
                assert_kind(stream.finish(), ErrorKind::InvalidInput);
            }
            _ => {
                stream.write(&bytes[..MIB]).unwrap();
                drop(stream);
            }
        }
        writer.put("other", DType::U8, &[1], b"x").unwrap();
        writer.finish().unwrap();
        let error = assert_kind(session.commit(), ErrorKind::InvalidInput);
        assert_eq!(error.tensor(), Some("t"), "way {way}: {error}");
        drop(session);
        assert!(store.list().is_empty());
        assert_eq!(store.space().session_bytes, 0, "way {way}");
    }
}

#[test]
fn a_writer_whose_thread_panicked_fails_its_session() {
    let sim = sim();
    let session = sim.store().begin(1, BeginOptions::default()).unwrap();
    let panicked = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let mut writer = session.writer().unwrap();
                writer.put("t", DType::U8, &[1], b"x").unwrap();
                // Without a word on the test's output.
                std::panic::resume_unwind(Box::new(()));
            })
            .join()
    });
    assert!(panicked.is_err());
    let error = session.commit().unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    assert!(sim.store().list().is_empty());
}

#[test]
fn what_a_tensor_does_not_have_cannot_be_read() {
    let sim = sim();
    checkpoints::save(sim.store(), 1, &kept()).unwrap();
    let checkpoint = sim.store().get(1).unwrap();
    let mut reader = checkpoint.reader(ReadOptions::default()).unwrap();
    let mut memory = vec![0; 3000];
    let region = |start: [u64; 2], size: [u64; 2]| Region {
        start: start.to_vec(),
        size: size.to_vec(),
    };
    assert_kind(reader.read("none", &mut memory), ErrorKind::NotFound);
    for error in [
        reader.read("matrix", &mut memory),
        reader.read("matrix", &mut memory[..2399]),
        reader.read_range("matrix", 2400, &mut memory[..1]),
        reader.read_range("matrix", u64::MAX, &mut memory[..1]),
        reader.read_box("matrix", &region([0, 0], [21, 1]), &mut memory[..84]),
        reader.read_box("matrix", &region([19, 0], [2, 1]), &mut memory[..8]),
        reader.read_box("matrix", &region([u64::MAX, 0], [2, 1]), &mut memory[..8]),
        reader.read_box("matrix", &region([0, 0], [2, 2]), &mut memory[..15]),
        reader.read_box("large", &region([0, 0], [2, 2]), &mut memory[..4]),
    ] {
        let error = assert_kind(error, ErrorKind::InvalidInput);
        assert_eq!(error.checkpoint(), Some("1"));
        assert!(error.tensor().is_some(), "{error}");
    }
    reader.read("matrix", &mut memory[..2400]).unwrap();
    assert!(memory[..2400] == kept()[0].bytes);
}

#[test]
fn a_rule_that_would_remove_everything_is_refused() {
    let sim = sim();
    checkpoints::save(sim.store(), 1, &[]).unwrap();
    for rule in [
        Retention {
            keep_last: Some(0),
            keep_every: None,
        },
        Retention {
            keep_last: Some(3),
            keep_every: Some(0),
        },
    ] {
        assert_kind(sim.store().retain(&rule), ErrorKind::InvalidInput);
    }
    assert_eq!(sim.store().list().len(), 1);
}

#[test]
fn a_store_opened_for_reading_only_reads_and_changes_nothing() {
    let mut sim = sim();
    checkpoints::save(sim.store(), 1, &kept()).unwrap();
    sim.die();
    sim.platform.take_trace();
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let (one, two) = (sim.open(&options).unwrap(), sim.open(&options).unwrap());
    for store in [&one, &two] {
        assert_store_holds(store, &[(1.into(), kept())]);
        assert_kind(store.begin(2, BeginOptions::default()), ErrorKind::ReadOnly);
        assert_kind(store.remove(1), ErrorKind::ReadOnly);
        assert_kind(store.set_pinned(1, true), ErrorKind::ReadOnly);
        assert_kind(store.retain(&Retention::default()), ErrorKind::ReadOnly);
    }
    let trace = sim.platform.take_trace();
    assert!(
        trace.iter().all(|op| op.kind == swath_engine::OpKind::Read),
        "a reader changed something"
    );
}

/// Two stores on one volume have each their own idea of which space is free.
#[test]
fn a_second_store_on_a_volume_is_refused_while_the_first_can_write() {
    let sim = sim();
    let volume = sim.store().volume().clone();
    assert_kind(
        Store::open(volume, &StoreOptions::default()),
        ErrorKind::Busy,
    );
}

/// Retention removes what its rule says, in one commit, whatever is pinned stays, and the newest.
#[test]
fn retention_keeps_the_last_the_multiples_and_the_pinned() {
    let mut sim = sim();
    let store = sim.store();
    let tensors = |step: u64| vec![Tensor::new("t", 5_000, step)];
    for step in 1..=12 {
        checkpoints::save(store, step, &tensors(step)).unwrap();
    }
    store.set_pinned(3, true).unwrap();
    let rule = Retention {
        keep_last: Some(2),
        keep_every: Some(5),
    };
    let before = store.volume().root().unwrap().sequence;
    let removed: Vec<_> = store
        .retain(&rule)
        .unwrap()
        .into_iter()
        .filter_map(|info| info.name.step())
        .collect();
    assert_eq!(removed, [1, 2, 4, 6, 7, 8, 9]);
    assert_eq!(store.volume().root().unwrap().sequence, before + 1);
    // Nothing more to do: no commit.
    assert!(store.retain(&rule).unwrap().is_empty());
    assert_eq!(store.volume().root().unwrap().sequence, before + 1);
    let left: Vec<_> = [3_u64, 5, 10, 11, 12]
        .into_iter()
        .map(|step| (CheckpointName::from(step), tensors(step)))
        .collect();
    let store = sim.reopen();
    assert_store_holds(store, &left);
    assert!(store.list()[0].pinned);
    store.set_pinned(3, false).unwrap();
    let last = Retention {
        keep_last: Some(1),
        keep_every: None,
    };
    assert_eq!(store.retain(&last).unwrap().len(), 4);
    assert_eq!(store.latest().unwrap().name, 12.into());
}
