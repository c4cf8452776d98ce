//! Several processes write one checkpoint by leases, and some of them are killed: one that holds a
//! lease, the owner, or all of them.
//!
//! A step's number says, bit by bit, whose parts it has: bit 0 the owner's own, the others those of
//! the holders.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use swath_checkpoint::{BeginOptions, ErrorKind, Lease, Session, Store};
use swath_engine::Backend;
use swath_tests::checkpoints::{self, Tensor};
use swath_tests::fixtures::{self, Place};
use swath_tests::seed::Seed;

use super::afterwards::{self, Tally, open, patiently};
use super::kills;
use super::process::{Heard, Process, Role, Word, next_line, tell};
use super::saver::KEPT;
use super::state::{Account, State};

const HOLDERS: usize = 2;
const SPACE_BYTES: u64 = 3 << 19;

/// What the process with this number puts into a step.
fn part(step: u64, rank: u64) -> Vec<Tensor> {
    [700_000, 0, 9_000, 1 << 19]
        .into_iter()
        .zip(0..)
        .map(|(length, n)| {
            let mark = step * 1000 + rank * 10 + n;
            Tensor::new(format!("rank {rank}, tensor {n}"), length, mark)
        })
        .collect()
}

fn tensors(step: u64, number: u64) -> Vec<Tensor> {
    (0..=HOLDERS as u64)
        .filter(|rank| number & (1 << rank) != 0)
        .flat_map(|rank| part(step, rank))
        .collect()
}

// ---- what the processes do ---------------------------------------------------------------------

/// The owner: step after step, with a lease for every holder.
pub(super) fn own(role: &Role) {
    let store = open(&role.members, &role.store_options());
    let mut state = State::of(&store);
    tell(&format!("is {state}"));
    loop {
        let step = state.next_step();
        tell("phase leasing");
        let session = store.begin(step, BeginOptions::default()).unwrap();
        let leases = [(); HOLDERS].map(|()| session.lease(SPACE_BYTES).unwrap());
        for (rank, lease) in (1..).zip(&leases) {
            tell(&format!(
                "lease {rank} {step} {}",
                serde_json::to_string(lease).unwrap()
            ));
        }
        tell("phase writing");
        let mut writer = session.writer().unwrap();
        for tensor in part(step, 0) {
            writer
                .put(&tensor.name, tensor.dtype, &tensor.shape, &tensor.bytes)
                .unwrap();
        }
        writer.finish().unwrap();
        tell("phase waiting for receipts");
        let Some(number) = gather(&session, &leases) else {
            return;
        };
        state = commit(&store, &session, &state, step, number);
    }
}

/// Waits for the answer of every holder: its receipt, or that it is dead. Which parts there are.
fn gather(session: &Session, leases: &[Lease]) -> Option<u64> {
    let mut number = 1;
    for _ in leases {
        let line = next_line()?;
        let (rank, receipt) = line.split_once(' ').unwrap();
        let rank: usize = rank.parse().unwrap();
        if receipt == "lost" {
            // The kernel lets go of what it had a moment after its end.
            patiently(
                |error: &swath_checkpoint::Error| error.kind() == ErrorKind::Busy,
                || session.revoke(leases[rank - 1].lease_id),
            );
        } else {
            session
                .accept(serde_json::from_str(receipt).unwrap())
                .unwrap();
            number |= 1 << rank;
        }
    }
    Some(number)
}

fn commit(store: &Store, session: &Session, state: &State, step: u64, number: u64) -> State {
    let mut state = state.saved(step, number);
    tell("phase committing");
    tell(&format!("do {state}"));
    session.commit().unwrap();
    tell("done");
    // More than one, where the owner before was killed before it could.
    while state.0.len() > KEPT {
        let (oldest, _) = state.0[0];
        state = state.without(oldest);
        tell("phase removing");
        tell(&format!("do {state}"));
        store.remove(oldest).unwrap();
        tell("done");
    }
    state
}

/// A holder: lease after lease, as it is told them.
pub(super) fn hold(role: &Role) {
    while let Some(line) = next_line() {
        let [rank, step, lease] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let lease: Lease = serde_json::from_str(lease).unwrap();
        tell("phase taking the lease");
        let holder = match lease.open(&role.members, &role.store_options()) {
            Ok(holder) => holder,
            Err(error) => {
                tell(&format!("refused {rank} {error}"));
                continue;
            }
        };
        tell("phase writing");
        let mut writer = holder.writer().unwrap();
        for tensor in part(step.parse().unwrap(), rank.parse().unwrap()) {
            writer
                .put(&tensor.name, tensor.dtype, &tensor.shape, &tensor.bytes)
                .unwrap();
        }
        writer.finish().unwrap();
        tell("phase finishing");
        match holder.finish() {
            Ok(receipt) => tell(&format!(
                "receipt {rank} {}",
                serde_json::to_string(&receipt).unwrap()
            )),
            Err(error) => tell(&format!("refused {rank} {error}")),
        }
        tell("phase waiting for a lease");
    }
}

// ---- the test ----------------------------------------------------------------------------------

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    /// Process 0.
    Owner,
    /// The process of this number.
    Holder(usize),
    All,
}

/// The processes, and what goes between them by way of this test.
struct Ranks {
    processes: Vec<Process>,
    lines: Receiver<Heard>,
    account: Account,
    /// What each is doing.
    phases: Vec<String>,
    /// How many lines came from each.
    said: Vec<u32>,
    /// How many commits were begun.
    commits: u32,
    /// Which holders have a lease that they have not answered.
    is_busy: Vec<bool>,
    has_ended: Vec<bool>,
    was_killed: Vec<bool>,
}

impl Ranks {
    fn start(owner: &Role, state: State) -> Self {
        let (to, lines) = channel();
        let processes = (0..=HOLDERS)
            .map(|rank| {
                let name = if rank == 0 { "own" } else { "hold" };
                let role = Role {
                    name: name.to_owned(),
                    ..owner.clone()
                };
                Process::start(&role, rank, to.clone())
            })
            .collect();
        Self {
            processes,
            lines,
            account: Account::new(state),
            phases: vec!["starting".to_owned(); HOLDERS + 1],
            said: vec![0; HOLDERS + 1],
            commits: 0,
            is_busy: vec![false; HOLDERS + 1],
            has_ended: vec![false; HOLDERS + 1],
            was_killed: vec![false; HOLDERS + 1],
        }
    }

    /// Takes what one of them says, and passes it on.
    fn hear(&mut self, heard: Heard) {
        let who = heard.who;
        let line = match heard.word {
            Word::Line(line) => line,
            Word::End => {
                self.has_ended[who] = true;
                if self.is_busy[who] {
                    self.is_busy[who] = false;
                    self.processes[0].tell(&format!("{who} lost"));
                }
                return;
            }
        };
        self.said[who] += 1;
        if let Some(phase) = line.strip_prefix("phase ") {
            phase.clone_into(&mut self.phases[who]);
            self.commits += u32::from(phase == "committing");
        } else if let Some(lease) = line.strip_prefix("lease ") {
            let holder: usize = lease[..1].parse().unwrap();
            if self.has_ended[holder] {
                self.processes[0].tell(&format!("{holder} lost"));
            } else {
                self.is_busy[holder] = true;
                self.processes[holder].tell(lease);
            }
        } else if let Some(receipt) = line.strip_prefix("receipt ") {
            self.is_busy[who] = false;
            self.processes[0].tell(receipt);
        } else if line.starts_with("refused ") {
            assert!(self.was_killed[0], "{line}");
        } else if who == 0 {
            self.account.hear(&line);
        }
    }

    /// Listens for so long, or until it has heard enough.
    fn listen(&mut self, time: Duration, is_enough: impl Fn(&Self) -> bool) {
        let end = Instant::now() + time;
        while !is_enough(self) {
            match self
                .lines
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(heard) => self.hear(heard),
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => panic!("nobody is there"),
            }
        }
    }

    fn kill(&mut self, victim: Victim, tally: &mut Tally) {
        let (who, ranks) = match victim {
            Victim::Owner => ("owner", 0..1),
            Victim::Holder(rank) => ("holder", rank..rank + 1),
            Victim::All => ("owner with all holders", 0..HOLDERS + 1),
        };
        let phase = self.phases[ranks.start].clone();
        tally.count(format!("killed the {who} while {phase}"));
        for rank in ranks {
            if !self.was_killed[rank] {
                self.was_killed[rank] = true;
                self.processes[rank].kill();
                self.processes[rank].assert_killed();
            }
        }
    }

    /// All that they have still to say.
    fn end(mut self) -> Account {
        for process in &mut self.processes {
            process.leave();
        }
        self.listen(Duration::from_secs(30), |ranks| {
            ranks.has_ended.iter().all(|ended| *ended)
        });
        assert_eq!(self.has_ended, [true; HOLDERS + 1], "somebody hangs");
        for (process, was_killed) in self.processes.iter_mut().zip(self.was_killed) {
            if !was_killed {
                process.assert_ended();
            }
        }
        self.account
    }
}

/// One round: they work, one or all of them are killed, and what they leave is looked at.
fn round(owner: &Role, state: State, rng: &mut ChaCha8Rng, tally: &mut Tally) -> State {
    let victim = match rng.random_range(0..4) {
        0 => Victim::Holder(rng.random_range(1..=HOLDERS)),
        1 => Victim::All,
        _ => Victim::Owner,
    };
    let rank = match victim {
        Victim::Holder(rank) => rank,
        Victim::Owner | Victim::All => 0,
    };
    // At any moment; or within a commit, where the owner dies.
    let lines = rng.random_range(1..20);
    let commits = rng.random_range(1..3);
    let is_aimed = rank == 0 && rng.random();
    let after = Duration::from_micros(rng.random_range(0..3_000));

    let mut ranks = Ranks::start(owner, state);
    ranks.listen(Duration::from_secs(10), |ranks| {
        if is_aimed {
            ranks.commits >= commits
        } else {
            ranks.said[rank] >= lines
        }
    });
    ranks.listen(after, |_| false);
    ranks.kill(victim, tally);
    if let Victim::Holder(_) = victim {
        // The owner goes on without it.
        let changes = ranks.account.changes;
        ranks.listen(Duration::from_secs(20), |ranks| {
            ranks.account.changes >= changes + 3
        });
        assert!(ranks.account.changes >= changes + 3, "the owner hangs");
        ranks.kill(Victim::Owner, tally);
    }
    let account = ranks.end();
    tally.count(format!("rounds with {} members", owner.members.len()));
    let options = owner.store_options();
    afterwards::check(&owner.members, &options, &account, tensors, tally)
}

fn owner_of(folder: &Path, count: usize, backend: Backend) -> Role {
    let place = folder.join(count.to_string());
    std::fs::create_dir(&place).unwrap();
    let members = fixtures::members(&place, count, 20 << 20);
    drop(checkpoints::store_on_files(&members, 64 << 10, backend));
    Role {
        name: "own".to_owned(),
        members,
        backend,
        seed: 0,
    }
}

#[test]
fn whoever_of_them_is_killed_a_checkpoint_has_all_parts_that_were_accepted_or_is_not_there() {
    let seed = Seed::new();
    let mut rng = seed.rng();
    let mut tally = Tally::default();
    let disk = fixtures::folder();
    let memory = Place::Memory.folder();
    let memory = memory.as_ref().unwrap_or(&disk);
    let owners = [
        owner_of(disk.path(), 2, Backend::Auto),
        owner_of(memory.path(), 3, Backend::Auto),
    ];
    let mut states = [State::default(), State::default()];
    let rounds = kills().div_ceil(4);
    for turn in 0..rounds {
        let volume = turn as usize % owners.len();
        let before = std::mem::take(&mut states[volume]);
        states[volume] = round(&owners[volume], before, &mut rng, &mut tally);
    }
    println!("{rounds} rounds, SWATH_SEED={}:\n{tally}", seed.value());
    for owner in &owners {
        afterwards::assert_no_space_is_lost(&owner.members, &owner.store_options());
    }
}
