//! One checkpoint written by several processes, some of which die.
//!
//! What could go wrong: a process that writes on after somebody else has its space; a checkpoint that
//! is committed without what a process wrote; space that nobody has; a volume that two own.
//!
//! The other processes are this test, started again. They are told what to do, and tell what they
//! did, by lines.

use std::env;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rand::RngExt;
use swath_checkpoint::{BeginOptions, ErrorKind, Lease, Receipt, Session, Store, VerifyOptions};
use swath_engine::Backend;
use swath_tests::checkpoints::{self, Tensor, assert_holds};
use swath_tests::fixtures;
use swath_tests::seed::Seed;
use swath_volume::{OpenOptions, Volume};

const NAME: &str = "leases::a_process_of_these_tests";
const MEMBERS: &str = "SWATH_TEST_MEMBERS";
const ROLE: &str = "SWATH_TEST_ROLE";
const SPACE_BYTES: u64 = 6 << 20;

/// What the process with this number writes.
fn tensors(number: u64) -> Vec<Tensor> {
    let lengths = [3_000_000, 1 << 20, 70_000, 13, 0];
    (0..)
        .zip(lengths)
        .map(|(part, length)| {
            let mark = number * 100 + part;
            Tensor::new(format!("rank {number}, tensor {part}"), length, mark)
        })
        .collect()
}

fn members(folder: &Path) -> (Store, Vec<PathBuf>) {
    let members = fixtures::members(folder, 2, 28 << 20);
    let store = checkpoints::store_on_files(&members, 64 << 10, Backend::Auto);
    (store, members)
}

fn begin(store: &Store, step: u64) -> Session {
    let options = BeginOptions {
        replace: true,
        ..BeginOptions::default()
    };
    store.begin(step, options).unwrap()
}

fn assert_clean(store: &Store) {
    let options = VerifyOptions { deep: true };
    let report = store.verify(&options, &mut |_| true).unwrap();
    assert!(report.complete && report.is_clean(), "{report:?}");
}

/// Tries again while `attempt` is told that somebody is there still: a process that was killed lets
/// go of its files a moment later.
fn patiently<T, E: std::fmt::Debug>(
    is_busy: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> T {
    let started = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(error) if is_busy(&error) && started.elapsed() < Duration::from_secs(10) => {
                thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn open(members: &[PathBuf]) -> Store {
    let volume = patiently(
        |error: &swath_volume::Error| error.kind() == swath_volume::ErrorKind::InUse,
        || Volume::open(members, &OpenOptions::default()),
    );
    Store::open(volume, &checkpoints::store_options(Backend::Auto)).unwrap()
}

/// Another process. Killed when it is dropped.
struct Process {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(role: &str, members: &[PathBuf]) -> Self {
        let mut child = fixtures::alone(NAME)
            .env(ROLE, role)
            .env(MEMBERS, env::join_paths(members).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        }
    }

    /// One that holds this lease, and writes.
    fn hold(number: u64, lease: &Lease, members: &[PathBuf]) -> Self {
        let mut process = Self::start(&format!("hold {number}"), members);
        process.tell(&serde_json::to_string(lease).unwrap());
        process
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// What follows `word` in the next line that begins with it.
    fn hear(&mut self, word: &str) -> String {
        self.lines
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| Some(line.strip_prefix(word)?.trim().to_owned()))
            .unwrap_or_else(|| panic!("the process ended without a word of {word}"))
    }

    fn receipt(&mut self) -> Receipt {
        self.tell("finish");
        serde_json::from_str(&self.hear("receipt")).unwrap()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tells the test that started this process.
fn tell(line: &str) {
    let mut out = std::io::stdout();
    // In one piece, at once, and at the start of a line.
    out.write_all(format!("\n{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

fn next_line() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// No test of its own: what the other processes do.
#[test]
fn a_process_of_these_tests() {
    if !fixtures::is_alone(NAME) {
        return;
    }
    let members: Vec<PathBuf> = env::split_paths(&env::var_os(MEMBERS).unwrap()).collect();
    let role = env::var(ROLE).unwrap();
    match role.split_once(' ') {
        Some(("hold", number)) => write_a_part(&members, number.parse().unwrap()),
        _ => own(&members),
    }
}

fn write_a_part(members: &[PathBuf], number: u64) {
    let lease: Lease = serde_json::from_str(&next_line()).unwrap();
    let options = checkpoints::store_options(Backend::Auto);
    let holder = match lease.open(members, &options) {
        Ok(holder) => holder,
        Err(error) => return tell(&format!("refused {error}")),
    };
    tell("holding");
    let mut writer = holder.writer().unwrap();
    for tensor in tensors(number) {
        writer
            .put(&tensor.name, tensor.dtype, &tensor.shape, &tensor.bytes)
            .unwrap();
    }
    writer.finish().unwrap();
    tell("written");
    next_line();
    match holder.finish() {
        Ok(receipt) => tell(&format!(
            "receipt {}",
            serde_json::to_string(&receipt).unwrap()
        )),
        Err(error) => tell(&format!("refused {error}")),
    }
}

fn own(members: &[PathBuf]) {
    let store = open(members);
    let session = begin(&store, 2);
    for _ in 0..2 {
        let lease = session.lease(SPACE_BYTES).unwrap();
        tell(&format!("lease {}", serde_json::to_string(&lease).unwrap()));
    }
    next_line();
}

#[test]
fn four_processes_write_one_checkpoint() {
    let folder = fixtures::folder();
    let (store, members) = members(folder.path());
    let session = begin(&store, 1);
    let mut processes: Vec<_> = (0..4)
        .map(|number| {
            let lease = session.lease(SPACE_BYTES).unwrap();
            Process::hold(number, &lease, &members)
        })
        .collect();
    // All at once, and a commit of somebody else in between.
    for process in &mut processes {
        process.hear("holding");
    }
    checkpoints::save(&store, 100, &tensors(9)).unwrap();
    assert_eq!(session.commit().unwrap_err().kind(), ErrorKind::Busy);
    for process in &mut processes {
        session.accept(process.receipt()).unwrap();
    }
    let all: Vec<_> = (0..4).flat_map(tensors).collect();
    assert_eq!(session.commit().unwrap().tensor_count, all.len() as u64);
    assert_eq!(store.space().session_bytes, 0);
    drop((session, store, processes));
    let store = open(&members);
    assert_holds(&store, 1, &all);
    assert_holds(&store, 100, &tensors(9));
    assert_clean(&store);
}

#[test]
fn the_lease_of_a_process_that_was_killed_is_revoked_and_its_space_is_safe() {
    let folder = fixtures::folder();
    let (store, members) = members(folder.path());
    let seed = Seed::new();
    let mut rng = seed.rng();
    for round in 0..12 {
        let session = begin(&store, 1);
        let leases = [(); 2].map(|()| session.lease(SPACE_BYTES).unwrap());
        let mut doomed = Process::hold(1, &leases[0], &members);
        let mut other = Process::hold(2, &leases[1], &members);
        doomed.hear("holding");
        if round == 0 {
            let error = session.revoke(leases[0].lease_id).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Busy);
        }
        // While it writes.
        thread::sleep(Duration::from_micros(rng.random_range(0..6_000)));
        doomed.kill();
        patiently(
            |error: &swath_checkpoint::Error| error.kind() == ErrorKind::Busy,
            || session.revoke(leases[0].lease_id),
        );
        // Its space is used again at once, by the owner.
        let mut writer = session.writer().unwrap();
        for tensor in tensors(3) {
            writer
                .put(&tensor.name, tensor.dtype, &tensor.shape, &tensor.bytes)
                .unwrap();
        }
        writer.finish().unwrap();
        // One that comes late is too late.
        let mut late = Process::hold(1, &leases[0], &members);
        late.hear("refused");
        session.accept(other.receipt()).unwrap();
        session.commit().unwrap();
        assert_holds(&store, 1, &[tensors(2), tensors(3)].concat());
    }
    assert_clean(&store);
}

#[test]
fn when_the_owner_is_killed_its_leases_end_and_are_free_space() {
    let folder = fixtures::folder();
    let (store, members) = members(folder.path());
    checkpoints::save(&store, 1, &tensors(1)).unwrap();
    drop(store);
    let free = open(&members).space().free_bytes;

    let mut owner = Process::start("own", &members);
    let leases: [Lease; 2] = [(); 2].map(|()| serde_json::from_str(&owner.hear("lease")).unwrap());
    let mut holder = Process::hold(5, &leases[0], &members);
    holder.hear("holding");
    owner.kill();
    holder.hear("written");
    // It could still write: no new owner, and no new holder beside it.
    let error = Volume::open(&members, &OpenOptions::default()).unwrap_err();
    assert_eq!(error.kind(), swath_volume::ErrorKind::InUse);
    let mut late = Process::hold(6, &leases[1], &members);
    assert!(late.hear("refused").contains("owner"));
    holder.tell("finish");
    let refusal = holder.hear("refused");
    assert!(refusal.contains("owner"), "{refusal}");

    let store = open(&members);
    let space = store.space();
    assert_eq!((space.session_bytes, space.free_bytes), (0, free));
    let names: Vec<_> = store.list().into_iter().map(|info| info.name).collect();
    assert_eq!(names, [1.into()]);
    assert_holds(&store, 1, &tensors(1));
    assert_clean(&store);
    // The leases of the old owner are worth nothing to the new one.
    let _session = begin(&store, 2).lease(SPACE_BYTES).unwrap();
    let mut late = Process::hold(7, &leases[1], &members);
    late.hear("refused");
}

#[test]
fn a_process_that_lies_is_found_out_by_verifying() {
    let folder = fixtures::folder();
    let (store, members) = members(folder.path());
    let session = begin(&store, 1);
    let lease = session.lease(SPACE_BYTES).unwrap();
    let mut receipt = Process::hold(1, &lease, &members).receipt();
    // Within the lease, or it would be refused: one checksum, and one place.
    let find = |receipt: &Receipt, part: usize| {
        let name = &tensors(1)[part].name;
        let mut entries = receipt.tensors.iter();
        entries.position(|entry| &entry.name == name).unwrap()
    };
    let (one, other) = (find(&receipt, 0), find(&receipt, 3));
    receipt.tensors[one].checksums[2] ^= 0x100;
    let end = lease.extents.last().unwrap().end();
    receipt.tensors[other].runs[0].offset = end - 13;
    session.accept(receipt).unwrap();
    session.commit().unwrap();

    let options = VerifyOptions { deep: true };
    let report = store.verify(&options, &mut |_| true).unwrap();
    let mut found: Vec<_> = report
        .damages
        .iter()
        .map(|damage| (damage.tensor.clone().unwrap(), damage.block))
        .collect();
    found.sort();
    let name = |part: usize| tensors(1)[part].name.clone();
    assert_eq!(found, [(name(0), Some(2)), (name(3), Some(0))]);
}
