//! A whole run in miniature, through the same calls as the binary, and the refusals.

use std::path::Path;

use swath_checkpoint::{BeginOptions, FormatOptions, Store, StoreOptions};
use swath_engine::{FileFill, QueueOptions};
use swath_volume::{OpenOptions, Volume};

use super::*;
use crate::{ErrorKind, Interrupt, MembersOptions, Progress, Subject, SubjectOptions};

const MEMBER_BYTES: u64 = 48 << 20;

fn own(parent: &Path, fill: FileFill) -> Box<SubjectOptions> {
    Box::new(SubjectOptions::new(MembersOptions {
        parent: parent.to_path_buf(),
        count: 2,
        member_bytes: MEMBER_BYTES,
        fill,
    }))
}

fn options(ranks: usize, interrupt: &Interrupt) -> TrialOptions {
    TrialOptions {
        rounds: 2,
        saves: 2,
        queue: QueueOptions::default(),
        settings: SaveSettings {
            ranks,
            snapshot_bytes: 4 << 20,
            pages: Pages::Plain,
            ..SaveSettings::new(interrupt.clone())
        },
        seed: 7,
    }
}

fn run(place: &Place, options: &TrialOptions, skew_bytes: u64) -> Findings {
    let model = Model::new(ModelShape::B70, 8 << 20, false).unwrap();
    let source = Source::new(&model, Pages::Plain, skew_bytes, 1 << 30, 7).unwrap();
    let interrupt = &options.settings.interrupt;
    let mut subject = Subject::prepare(place.main(), interrupt, &mut |_| ()).unwrap();
    let trial = Trial::new(options, &model, &source, place).unwrap();
    trial.check_volume(subject.volume()).unwrap();
    trial.run(&mut subject, None, &mut Progress::quiet())
}

#[test]
fn a_run_measures_every_phase_compares_every_byte_and_leaves_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let place = Place::Own {
        written: own(parent.path(), FileFill::Incompressible { seed: 1 }),
        fresh: own(parent.path(), FileFill::Unwritten),
    };
    let options = options(2, &Interrupt::new());
    let findings = run(&place, &options, 64);
    assert!(findings.stopped.is_none(), "{:?}", findings.stopped);
    assert!(findings.compared);
    for phase in Phase::ALL {
        // Without peers nothing is loaded as they do.
        let rounds = if phase == Phase::LoadNew { 0 } else { 2 };
        assert_eq!(findings.samples(phase).len(), rounds, "{phase}");
    }
    assert_eq!(findings.commits_ns.len(), 2 * 3);
    assert_eq!(findings.stalls_ns.len(), 2 * 2);
    assert!(findings.checksum_s_per_gb > 0.0);
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[test]
fn checkpoints_that_are_there_are_refused_until_they_are_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("member");
    swath_engine::create_file(&path, 2 * MEMBER_BYTES, FileFill::Unwritten).unwrap();
    let given = SubjectOptions {
        members: vec![path.clone()],
        ..*own(directory.path(), FileFill::Zeroes)
    };
    let place = |destructive| {
        Place::Given(Box::new(SubjectOptions {
            destructive,
            ..given.clone()
        }))
    };
    let volume = Volume::create(&[&path], &swath_volume::CreateOptions::default()).unwrap();
    drop(volume);
    place(false).check().unwrap();

    let open = || Volume::open(&[&path], &OpenOptions::default()).unwrap();
    let store = Store::format(open(), &FormatOptions::default()).unwrap();
    drop(store.clone());
    // An empty store is nothing to lose.
    let session = store.begin(1, BeginOptions::default()).unwrap();
    drop(store);
    session.commit().unwrap();
    drop(session);
    let error = place(false).check().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("--destructive"), "{error}");

    place(true).check().unwrap();
    let findings = run(&place(true), &options(1, &Interrupt::new()), 0);
    assert!(findings.stopped.is_none(), "{:?}", findings.stopped);
    assert!(findings.samples(Phase::SaveFirst).is_empty());
    assert_eq!(findings.samples(Phase::Save).len(), 2);
    // What is left is an empty store, which the next run may have.
    place(false).check().unwrap();
    let store = Store::open(open(), &StoreOptions::default()).unwrap();
    assert!(store.list().is_empty());
    assert!(path.exists(), "members that were given are never removed");
}

#[test]
fn an_interrupt_ends_a_run() {
    let parent = tempfile::tempdir().unwrap();
    let place = Place::Own {
        written: own(parent.path(), FileFill::Unwritten),
        fresh: own(parent.path(), FileFill::Unwritten),
    };
    let interrupt = Interrupt::new();
    let options = options(1, &interrupt);
    let model = Model::new(ModelShape::B8, 4 << 20, false).unwrap();
    let source = Source::new(&model, Pages::Huge, 0, 1 << 30, 7).unwrap();
    let mut subject = Subject::prepare(place.main(), &interrupt, &mut |_| ()).unwrap();
    let trial = Trial::new(&options, &model, &source, &place).unwrap();
    interrupt.set();
    let findings = trial.run(&mut subject, None, &mut Progress::quiet());
    assert!(findings.is_interrupted());
    assert!(findings.samples(Phase::Save).is_empty());
}
