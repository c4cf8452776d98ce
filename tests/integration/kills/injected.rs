//! One system call of a save fails, lies, or is the last one of its process: each call in turn.
//!
//! strace(1) does it. The process works on plain system calls, on one thread, so its calls come in the
//! same order every time; they are counted first. It opens the store, saves, removes, and reads.
//!
//! | injected | what must become of it |
//! |---|---|
//! | SIGKILL instead of the call | what was acknowledged is there, or what was in flight |
//! | EINTR, EAGAIN from a transfer | nothing is noticed |
//! | EIO, ENOSPC, no bytes from a write; any error of a flush | refused or failed, poisoned, never acknowledged |
//! | EIO from a read | no wrong bytes; nothing on the members has changed |
//! | a transfer that lies about what it did | no wrong bytes as good: damage is found |
//! | an error of any other call | refused, failed or done, and as it says |

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Output};

use rand::Rng;
use rand::seq::SliceRandom;
use swath_checkpoint::{Store, VerifyOptions};
use swath_engine::Backend;
use swath_tests::checkpoints;
use swath_tests::fixtures::{self, Place};
use swath_tests::seed::Seed;
use swath_tests::skipped;
use swath_volume::{OpenOptions, Volume};

use super::afterwards::{self, Tally};
use super::kills;
use super::process::{NAME, Role};
use super::saver::{begin_options, few_tensors};
use super::state::{Account, State};

const READS: [&str; 2] = ["pread64", "preadv2"];
const WRITES: [&str; 2] = ["pwrite64", "pwritev2"];
const FLUSH: &str = "fdatasync";
/// What else is called on members. Not every architecture has all of them.
const OTHERS: [&str; 11] = [
    "open",
    "openat",
    "close",
    "newfstatat",
    "fstat",
    "fstatfs",
    "statx",
    "flock",
    "fcntl",
    "ioctl",
    "fallocate",
];

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Kill,
    Error(&'static str),
    /// It is not made, and seems to have moved so many bytes.
    Moves(u32),
}

/// What must become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Kill,
    FlushFails,
    WriteFails,
    WriteLies,
    Transient,
    Reads,
    Other,
}

#[derive(Debug, Clone, Copy)]
struct Injection {
    call: &'static str,
    what: What,
    /// At which call of the name, from 1.
    when: u32,
}

impl Injection {
    fn class(self) -> Class {
        match self.what {
            What::Kill => Class::Kill,
            _ if OTHERS.contains(&self.call) => Class::Other,
            // A flush is never asked again.
            What::Error("EINTR" | "EAGAIN") if self.call != FLUSH => Class::Transient,
            _ if READS.contains(&self.call) => Class::Reads,
            What::Error(_) if self.call == FLUSH => Class::FlushFails,
            What::Error(_) | What::Moves(0) => Class::WriteFails,
            What::Moves(_) => Class::WriteLies,
        }
    }

    /// Everything that can happen to these calls.
    fn all(counts: &BTreeMap<&'static str, u32>) -> Vec<Self> {
        let mut all = Vec::new();
        for (&call, &count) in counts {
            let mut whats = vec![What::Kill, What::Error("EIO"), What::Error("EINTR")];
            if OTHERS.contains(&call) {
                whats.extend(["EAGAIN", "ENOMEM", "EMFILE", "EACCES"].map(What::Error));
            } else {
                whats.push(What::Error("EAGAIN"));
            }
            if READS.contains(&call) {
                whats.extend([0, 512, 4096].map(What::Moves));
            } else if WRITES.contains(&call) {
                whats.push(What::Error("ENOSPC"));
                whats.extend([0, 512, 4096].map(What::Moves));
            } else if call == FLUSH {
                whats.extend(["ENOSPC", "EDQUOT"].map(What::Error));
            }
            let turns = (1..=count).flat_map(|when| {
                let whats = whats.clone().into_iter();
                whats.map(move |what| Self { call, what, when })
            });
            all.extend(turns);
        }
        all
    }

    /// So many of them, of each class as many as of the others.
    fn some(mut all: Vec<Self>, count: usize, rng: &mut impl Rng) -> Vec<Self> {
        all.shuffle(rng);
        let mut by_class: BTreeMap<Class, Vec<Self>> = BTreeMap::new();
        for injection in all {
            // A death at a call that changes nothing is as good as any other of them.
            let changes = WRITES.contains(&injection.call) || injection.call == FLUSH;
            let class = match injection.class() {
                Class::Kill if !changes => Class::Other,
                class => class,
            };
            by_class.entry(class).or_default().push(injection);
        }
        let mut some = Vec::new();
        while some.len() < count {
            let before = some.len();
            some.extend(by_class.values_mut().filter_map(Vec::pop));
            if some.len() == before {
                break;
            }
        }
        some.truncate(count);
        some
    }

    fn argument(self) -> String {
        let Self { call, what, when } = self;
        let what = match what {
            What::Kill => "signal=KILL".to_owned(),
            What::Error(error) => format!("error={error}"),
            What::Moves(bytes) => format!("retval={bytes}"),
        };
        format!("inject={call}:{what}:when={when}")
    }
}

/// Whether strace is here, and may do it. Says if not.
fn has_strace() -> bool {
    let probe = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=close"])
        .args(["-e", "inject=close:error=EIO:when=60000", "true"])
        .output();
    let reason = match probe {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    skipped(format_args!("no strace here: {reason}"));
    false
}

/// Runs the process under strace, which looks at calls on the members only.
fn traced(role: &Role, log: &Path, calls: &[&str], injection: Option<Injection>) -> Output {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(log);
    for member in &role.members {
        command.arg("-P").arg(member);
    }
    // The question mark: where there is such a call.
    command.args(["-e", &format!("trace=?{}", calls.join(",?"))]);
    command.args(["-e", "signal=none"]);
    if let Some(injection) = injection {
        command.args(["-e", &injection.argument()]);
    }
    let alone = fixtures::alone(NAME);
    command.arg(alone.get_program()).args(alone.get_args());
    command.envs(
        alone
            .get_envs()
            .filter_map(|(key, value)| Some((key, value?))),
    );
    role.give(&mut command).output().unwrap()
}

/// How often the process makes each of the calls.
fn counted(role: &Role, log: &Path) -> BTreeMap<&'static str, u32> {
    let calls = [&READS[..], &WRITES, &[FLUSH], &OTHERS].concat();
    let output = traced(role, log, &calls, None);
    let told = Told::of(&output, State(vec![(0, 0)]));
    assert!(told.has_ended, "{output:?}");
    let mut counts = BTreeMap::new();
    for line in fs::read_to_string(log).unwrap().lines() {
        // A process id, then the call.
        let call = line.split_whitespace().nth(1).unwrap_or_default();
        let name = call.split('(').next().unwrap_or_default();
        if let Some(call) = calls.iter().find(|call| **call == name) {
            *counts.entry(*call).or_default() += 1;
        }
    }
    assert!(counts[FLUSH] >= 6 && counts["pwrite64"] >= 8, "{counts:?}");
    counts
}

/// What the process told, and how it ended.
#[derive(Debug)]
struct Told {
    account: Account,
    status: ExitStatus,
    is_refused: bool,
    /// A change failed; and whether the volume was poisoned then.
    failed: Option<bool>,
    is_refused_later: bool,
    wrong_reads: Vec<String>,
    has_ended: bool,
}

impl Told {
    fn of(output: &Output, state: State) -> Self {
        let mut told = Self {
            account: Account::new(state),
            status: output.status,
            is_refused: false,
            failed: None,
            is_refused_later: false,
            wrong_reads: Vec::new(),
            has_ended: false,
        };
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            told.account.hear(line);
            if line.starts_with("refused ") {
                told.is_refused = true;
            } else if let Some(rest) = line.strip_prefix("failed, poisoned ") {
                told.failed = Some(rest.starts_with("true"));
            } else if line == "later Poisoned" {
                told.is_refused_later = true;
            } else if line == "later done" {
                told.account.settle();
            } else if line.starts_with("reads not ") {
                told.wrong_reads.push(line.to_owned());
            } else if line == "ended" {
                told.has_ended = true;
            }
        }
        told
    }

    /// In a word.
    fn outcome(&self) -> &'static str {
        match (self.is_refused, self.failed) {
            _ if self.status.signal().is_some() => "killed",
            (true, _) => "refused to open",
            (_, Some(true)) => "failed, and poisoned",
            (_, Some(false)) => "failed, and went on",
            _ if !self.wrong_reads.is_empty() => "done, and damage told when read",
            _ => "done",
        }
    }

    #[track_caller]
    fn assert_fits(&self, class: Class) {
        let is_killed = self.status.signal() == Some(libc::SIGKILL);
        assert_eq!(is_killed, class == Class::Kill, "{self:?}");
        assert!(is_killed || self.status.success(), "{self:?}");
        for read in &self.wrong_reads {
            assert!(!read.contains("other bytes"), "{read}");
        }
        match class {
            Class::Kill | Class::WriteLies | Class::Reads | Class::Other => {}
            Class::Transient => {
                assert!(self.has_ended && self.wrong_reads.is_empty(), "{self:?}");
            }
            Class::FlushFails | Class::WriteFails => {
                assert!(!self.has_ended, "it was acknowledged: {self:?}");
                if !self.is_refused {
                    assert_eq!(self.failed, Some(true), "{self:?}");
                    assert!(self.is_refused_later, "{self:?}");
                }
            }
        }
    }
}

/// What is left after a write that lied: wrong bytes are never given as good, and are found.
fn check_damaged(role: &Role, account: &Account, tally: &mut Tally) {
    let opened = Volume::open(&role.members, &OpenOptions::default())
        .map_err(swath_checkpoint::Error::from)
        .and_then(|volume| Store::open(volume, &role.store_options()));
    let store = match opened {
        Ok(store) => store,
        Err(error) => return tally.count(format!("lies: not opened again, {:?}", error.kind())),
    };
    let options = VerifyOptions { deep: true };
    let report = store.verify(&options, &mut |_| true).unwrap();
    let mut is_whole = true;
    for info in store.list() {
        let step = info.name.step().unwrap();
        let compared = store
            .get(step)
            .map_err(|error| format!("{error:?}"))
            .and_then(|read| checkpoints::compare(&read, &few_tensors(step, 0)));
        if let Err(problem) = compared {
            assert!(!problem.contains("other bytes"), "{problem}");
            is_whole = false;
        }
    }
    assert_eq!(is_whole, report.is_clean(), "{report:?}");
    if is_whole {
        // The lie was about something that stands elsewhere, too.
        account.assert_allows(&State::of(&store));
    }
    tally.count(if is_whole {
        "lies: healed"
    } else {
        "lies: found"
    });
}

#[test]
fn whichever_system_call_fails_nothing_is_acknowledged_that_is_not_there() {
    let Some(folder) = Place::Memory.folder() else {
        return;
    };
    if !has_strace() {
        return;
    }
    let seed = Seed::new();
    let mut rng = seed.rng();
    let is_full = kills() >= 1000;
    let mut tally = Tally::default();
    let volumes = if is_full { 4 } else { 3 };
    for count in 1..=volumes {
        let place = folder.path().join(count.to_string());
        fs::create_dir(&place).unwrap();
        let log = place.join("log");
        let role = Role {
            name: "save once".to_owned(),
            members: fixtures::members(&place, count, 6 << 20),
            backend: Backend::Sync,
            seed: 0,
        };
        let store = checkpoints::store_on_files(&role.members, 64 << 10, Backend::Sync);
        checkpoints::save_with(&store, 0, begin_options(0), &few_tensors(0, 0)).unwrap();
        drop(store);
        let before: Vec<_> = role
            .members
            .iter()
            .map(|path| fs::read(path).unwrap())
            .collect();
        let counts = counted(&role, &log);
        let all = Injection::all(&counts);
        tally.count(format!("{count} members: {counts:?}"));
        let injections = if is_full {
            all
        } else {
            Injection::some(all, kills().div_ceil(3) as usize, &mut rng)
        };
        for injection in injections {
            for (path, bytes) in role.members.iter().zip(&before) {
                fs::write(path, bytes).unwrap();
            }
            let output = traced(&role, &log, &[injection.call], Some(injection));
            let told = Told::of(&output, State(vec![(0, 0)]));
            let class = injection.class();
            println!(
                "{count} members, {}: {}",
                injection.argument(),
                told.outcome()
            );
            told.assert_fits(class);
            tally.count(format!("{class:?} {}: {}", injection.call, told.outcome()));
            if class == Class::WriteLies {
                check_damaged(&role, &told.account, &mut tally);
            } else {
                let options = role.store_options();
                let account = &told.account;
                afterwards::check(&role.members, &options, account, few_tensors, &mut tally);
            }
        }
        fs::remove_dir_all(&place).unwrap();
    }
    println!("SWATH_SEED={}:\n{tally}", seed.value());
}
