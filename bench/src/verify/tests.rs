//! A verifier on a real volume, through the same calls as the binary.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use swath_engine::{BufPool, Buffer, FileFill, LaneOptions, QueueOptions};
use swath_volume::Volume;

use super::*;
use crate::target::Target;
use crate::workload::Position;
use crate::{
    Cell, Interrupt, MembersOptions, Pattern, RunOptions, Runner, Side, Subject, SubjectOptions,
};

fn subject(parent: &Path) -> Subject {
    let own = MembersOptions {
        parent: parent.to_path_buf(),
        count: 2,
        member_bytes: 6 << 20,
        fill: FileFill::Unwritten,
    };
    let options = SubjectOptions {
        chunk_bytes: Some(64 << 10),
        ..SubjectOptions::new(own)
    };
    Subject::prepare(&options, &Interrupt::new(), &mut |_| ()).unwrap()
}

fn session(volume: &Volume, journal: Option<&Path>) -> VerifySession {
    let options = VerifyOptions {
        journal: journal.map(Path::to_path_buf),
        seed: 3,
        queue: QueueOptions::default(),
        interrupt: Interrupt::new(),
    };
    VerifySession::open(options, volume).unwrap()
}

fn run(runner: &Runner<'_>, pattern: Pattern, lanes: u32) {
    let cell = Cell {
        pattern,
        block_bytes: 8192,
        depth: 16,
        lanes,
    };
    runner.run(&cell, Side::Volume, &mut |_| ()).unwrap();
}

fn options() -> RunOptions {
    RunOptions {
        ramp: Duration::ZERO,
        runtime: Duration::from_millis(60),
        ..RunOptions::new(Interrupt::new())
    }
}

#[test]
fn what_a_read_of_a_cell_finds_wrong_is_noted_at_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let subject = subject(folder.path());
    let volume = subject.volume();
    let session = session(volume, None);
    session.fill(volume, &mut |_, _| ()).unwrap();
    let runner = Runner::new(volume, options()).verifying(session.verifier());
    run(&runner, Pattern::RandWrite, 2);
    run(&runner, Pattern::Read, 1);
    assert!(!session.is_wrong());
    let reads = session.report().reads;
    assert!(reads.checked_units > 0 && reads.unchecked_units == 0);

    let unit = 33;
    let (member, within) = volume.layout().locate(unit * UNIT_BYTES);
    let member = &volume.members()[member as usize];
    let file = OpenOptions::new().write(true).open(member.path()).unwrap();
    let at = member.data_offset + within;
    file.write_all_at(&[0; UNIT_LEN], at).unwrap();
    file.sync_data().unwrap();
    run(&runner, Pattern::Read, 1);
    let report = session.report();
    assert_eq!(report.wrong_units, 1, "{report:?}");
    let wrong = &report.wrong[0];
    assert_eq!((wrong.offset, wrong.member_offset), (unit * UNIT_BYTES, at));
    assert_eq!(wrong.member, member.path().display().to_string());
    assert_eq!(wrong.kind, FaultKind::Zeroes);
    assert!(session.verdict().is_err());
}

#[test]
fn writes_of_one_block_wait_for_each_other_and_all_complete() {
    let folder = tempfile::tempdir().unwrap();
    let subject = subject(folder.path());
    let volume = subject.volume();
    let session = session(volume, None);
    let pool = BufPool::new(UNIT_LEN, 32).unwrap();
    let mut lane = VerifiedLane::open(session.verifier(), volume, &LaneOptions::default()).unwrap();
    let mut completions = Vec::new();
    for number in 0..32 {
        let mut buffer = pool.take().unwrap();
        buffer.set_len(UNIT_LEN);
        // Three blocks in turn.
        let offset = number % 3 * UNIT_BYTES;
        lane.write(Position { device: 0, offset }, Buffer::from(buffer));
    }
    lane.wait(32, &mut completions).unwrap();
    assert_eq!(completions.len(), 32);
    assert!(
        completions
            .iter()
            .all(|completion| completion.result.is_ok())
    );
    let table = &session.verifier().table;
    let entries: Vec<Entry> = (0..3).map(|unit| table.entry(unit)).collect();
    assert_eq!(entries, [11, 11, 10].map(Entry::settled));
    let mut memory = vec![0; 3 * UNIT_LEN];
    volume.read_at(&mut memory, 0).unwrap();
    let tally = session.verifier().tally(0, &memory);
    assert_eq!((tally.checked_units, session.is_wrong()), (3, false));
}

#[test]
fn a_mix_of_an_open_write_passes_and_stays_open_and_what_is_whole_is_settled() {
    let folder = tempfile::tempdir().unwrap();
    let subject = subject(folder.path());
    let volume = subject.volume();
    let journal = folder.path().join("journal");
    let first = session(volume, Some(&journal));
    first.fill(volume, &mut |_, _| ()).unwrap();
    // Writes that a kill has cut: intended, and there in part, not at all, and whole.
    let mut scratch = Vec::new();
    let mut new = vec![0; 3 * UNIT_LEN];
    first.verifier().intend(0, &mut new, &mut scratch).unwrap();
    volume.write_at(&new[..1024], 0).unwrap();
    volume
        .write_at(&new[2 * UNIT_LEN..], 2 * UNIT_BYTES)
        .unwrap();
    drop(first);

    let mut second = session(volume, Some(&journal));
    second.check_before(volume, &mut |_, _| ()).unwrap();
    let report = second.report();
    assert_eq!(
        (report.open_units, report.wrong_units),
        (3, 0),
        "{report:?}"
    );
    let entries = |session: &VerifySession| {
        let table = &session.verifier().table;
        [0, 1, 2].map(|unit| table.entry(unit))
    };
    let mixed = Entry {
        confirmed: 1,
        intended: 2,
    };
    let expected = [mixed, Entry::settled(1), Entry::settled(2)];
    assert_eq!(entries(&second), expected);
    drop(second);
    // As the next process finds them, too.
    let mut third = session(volume, Some(&journal));
    assert_eq!(entries(&third), expected);
    // A sector that is neither old nor new is wrong nevertheless.
    volume.write_at(&[7; 512], 512 * 5).unwrap();
    third.check_before(volume, &mut |_, _| ()).unwrap();
    let report = third.report();
    assert_eq!(report.wrong_units, 1, "{report:?}");
    assert!(
        report.wrong[0].found.starts_with("sector 5: "),
        "{report:?}"
    );
}

#[test]
fn another_run_without_a_journal_takes_nothing_of_the_first_for_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let subject = subject(folder.path());
    let volume = subject.volume();
    let first = session(volume, None);
    first.fill(volume, &mut |_, _| ()).unwrap();
    let second = session(volume, None);
    // As if its write had been lost.
    let mut lost = vec![0; UNIT_LEN];
    second
        .verifier()
        .intend(0, &mut lost, &mut Vec::new())
        .unwrap();
    second
        .verifier()
        .confirm(0, UNIT_LEN, &mut Vec::new())
        .unwrap();
    let mut memory = vec![0; UNIT_LEN];
    volume.read_at(&mut memory, 0).unwrap();
    second.verifier().tally(0, &memory);
    assert_eq!(second.report().wrong[0].kind, FaultKind::OtherRun);
}

#[test]
fn a_run_with_too_much_wrong_stops() {
    let folder = tempfile::tempdir().unwrap();
    let subject = subject(folder.path());
    let volume = subject.volume();
    let mut session = session(volume, None);
    // Nothing of this was written.
    for unit in 0..1024 {
        session.verifier().table.set(unit, Entry::settled(1));
    }
    session.check_after(volume, &mut |_, _| ()).unwrap();
    let report = session.report();
    assert!(report.wrong_units >= 1000, "{report:?}");
    let runner = Runner::new(volume, options()).verifying(session.verifier());
    let cell = Cell {
        pattern: Pattern::Read,
        block_bytes: 4096,
        depth: 4,
        lanes: 1,
    };
    assert!(runner.run(&cell, Side::Volume, &mut |_| ()).is_err());
}
