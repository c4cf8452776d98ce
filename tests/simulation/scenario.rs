//! [`Scenario`]: what happens in one run, drawn from a seed before anything runs.
//!
//! It is plain data: it can be printed, and cut down piece by piece when it fails.

use std::fmt;
use std::path::PathBuf;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use swath_engine::Geometry;
use swath_tests::sim::{Fault, FaultMix, FaultPlan, PowerCut};

use super::content::{Content, How};

/// What a member has beside its data: 2 MiB at each end.
const ENDS_BYTES: u64 = 4 << 20;

/// Checkpoints are called by these steps.
pub(crate) const STEPS: u64 = 6;

#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    /// For the order of threads and completions, and what a crash keeps.
    pub(crate) chance: u64,
    pub(crate) devices: Vec<(PathBuf, Geometry)>,
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) tear_bytes: Vec<u64>,
    pub(crate) chunk_bytes: u64,
    pub(crate) pool_bytes: u64,
    pub(crate) depth: u32,
    /// Crashes while the volume is created and formatted.
    pub(crate) creation: Vec<Cut>,
    pub(crate) lives: Vec<Life>,
}

/// The power fails after so many operations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    pub(crate) after: u64,
    pub(crate) how: PowerCut,
}

/// From one open to the next.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    /// In which order the members are named.
    pub(crate) order: Vec<usize>,
    pub(crate) faults: Vec<Fault>,
    /// Crashes while it is opened, one open after the other.
    pub(crate) recovery: Vec<Cut>,
    /// Whether it is opened for reading only, too, before.
    pub(crate) looks_first: bool,
    pub(crate) clients: Vec<Vec<Act>>,
    /// After the clients, when all is well.
    pub(crate) retain: Option<u64>,
    /// None: it is closed as it should be.
    pub(crate) cut: Option<Cut>,
}

/// What a client does.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Save {
        step: u64,
        content: Content,
        replace: bool,
        by: By,
    },
    SaveAsync {
        step: u64,
        content: Content,
        replace: bool,
        queue: bool,
        threads: usize,
        then: Then,
    },
    /// A session parts of which are written by other processes, each with a lease.
    SaveByLeases {
        step: u64,
        content: Content,
        replace: bool,
        leases: usize,
        /// The first of them ends without a receipt.
        has_quitter: bool,
    },
    /// A session that writes something and is dropped.
    GiveUp {
        content: Content,
    },
    Read {
        step: u64,
        how: How,
    },
    /// Opens a checkpoint and keeps it open; at the end of the client it is read.
    Hold {
        step: u64,
    },
    LetGo,
    Remove {
        step: u64,
    },
    Pin {
        step: u64,
        pinned: bool,
    },
    Verify {
        deep: bool,
    },
    List,
    Rename {
        number: u64,
    },
    /// Somebody else tries to have the volume.
    OpenTwice {
        read_only: bool,
    },
    FinishSaves,
    /// The kernel refuses the next visits to any queue.
    RefuseVisits {
        count: u32,
    },
}

/// How a checkpoint is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    OneWriter { reserve: bool },
    Streams,
    Threads(usize),
}

/// What becomes of a save in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    Wait,
    /// Other acts come first.
    WaitLater,
    Cancel,
    /// The handle is dropped.
    Drop,
}

impl Scenario {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let rng = &mut rng;
        let count = rng.random_range(1..=4_usize);
        let chunk_bytes = [4096, 65_536, 1 << 20][rng.random_range(0..3)];
        // Small ones are soon full.
        let most: u64 = [4, 8, 16][rng.random_range(0..3)];
        let mib = rng.random_range(2..=most).div_ceil(count as u64);
        let blocks = [512, 512, 4096];
        let devices: Vec<_> = (0..count)
            .map(|index| {
                let more = rng.random_range(0..3) * 4096;
                let bytes = ENDS_BYTES + (mib << 20) + more;
                let block = blocks[rng.random_range(0..3)];
                (
                    PathBuf::from(format!("m{index}")),
                    Geometry::uniform(bytes, block),
                )
            })
            .collect();
        let tear_bytes = (0..count)
            .map(|_| [512, 512, 4096][rng.random_range(0..3)])
            .collect();
        // None, hidden ones, those that are told, those that are not.
        let kind = rng.random_range(0..20);
        let mut next_content = 1;
        let lives = (0..rng.random_range(1..=4))
            .map(|_| Life::draw(rng, kind, &devices, &mut next_content))
            .collect();
        let creation = match rng.random_range(0..5) {
            0 => vec![Cut::draw(rng, 30)],
            _ => Vec::new(),
        };
        Self {
            seed,
            chance: rng.random(),
            paths: devices.iter().map(|(path, _)| path.clone()).collect(),
            devices,
            tear_bytes,
            chunk_bytes,
            pool_bytes: 4 << 20,
            depth: rng.random_range(1..6),
            creation,
            lives,
        }
    }

    pub(crate) fn acts(&self) -> usize {
        let clients = self.lives.iter().flat_map(|life| &life.clients);
        clients.map(Vec::len).sum()
    }

    /// This with something left out, the largest things first.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut less = self.clone();
            change(&mut less);
            all.push(less);
        };
        for (l, life) in self.lives.iter().enumerate() {
            add(&|less| drop(less.lives.remove(l)));
            for c in 0..life.clients.len() {
                add(&|less| drop(less.lives[l].clients.remove(c)));
            }
            if !life.faults.is_empty() {
                add(&|less| less.lives[l].faults.clear());
            }
        }
        if !self.creation.is_empty() {
            add(&|less| less.creation.clear());
        }
        for (l, life) in self.lives.iter().enumerate() {
            if !life.recovery.is_empty() {
                add(&|less| less.lives[l].recovery.clear());
            }
            if life.cut.is_some() {
                add(&|less| less.lives[l].cut = None);
            }
            if life.retain.is_some() {
                add(&|less| less.lives[l].retain = None);
            }
            if life.looks_first {
                add(&|less| less.lives[l].looks_first = false);
            }
            for f in 0..life.faults.len() {
                add(&|less| drop(less.lives[l].faults.remove(f)));
            }
            for (c, client) in life.clients.iter().enumerate() {
                if client.len() > 3 {
                    let half = client.len() / 2;
                    add(&|less| drop(less.lives[l].clients[c].drain(..half)));
                    add(&|less| less.lives[l].clients[c].truncate(half));
                }
                for a in 0..client.len() {
                    add(&|less| drop(less.lives[l].clients[c].remove(a)));
                }
            }
        }
        all
    }
}

impl Cut {
    pub(crate) fn draw(rng: &mut ChaCha8Rng, most: u64) -> Self {
        let how = if rng.random_range(0..4) == 0 {
            PowerCut::Process
        } else {
            PowerCut::Power
        };
        // Small numbers are as likely as large ones.
        let most = rng.random_range(1..=most);
        Self {
            after: rng.random_range(0..most),
            how,
        }
    }
}

impl Life {
    fn draw(
        rng: &mut ChaCha8Rng,
        kind: u32,
        devices: &[(PathBuf, Geometry)],
        next_content: &mut u64,
    ) -> Self {
        let mut order: Vec<_> = (0..devices.len()).collect();
        for place in (1..order.len()).rev() {
            order.swap(place, rng.random_range(0..=place));
        }
        let mut mix = FaultMix {
            last: 1 << rng.random_range(2..9),
            ..FaultMix::NONE
        };
        if (6..18).contains(&kind) {
            mix.transparent = rng.random_range(0..8);
            mix.late = rng.random_range(0..4);
        }
        if (11..16).contains(&kind) {
            mix.failing = rng.random_range(0..3);
        }
        if kind >= 16 {
            mix.silent = rng.random_range(0..4);
        }
        let faults = FaultPlan::draw(rng.random(), devices, &mix).faults;
        let recovery = (0..3_u32)
            .take_while(|_| rng.random_range(0..5) == 0)
            .map(|_| ())
            .collect::<Vec<_>>();
        let clients = rng.random_range(1..=3);
        Self {
            order,
            faults,
            recovery: recovery.iter().map(|()| Cut::draw(rng, 40)).collect(),
            looks_first: rng.random_range(0..6) == 0,
            clients: (0..clients)
                .map(|_| {
                    let count = rng.random_range(1..10 / clients + 4);
                    (0..count)
                        .map(|_| Act::draw(rng, kind, next_content))
                        .collect()
                })
                .collect(),
            retain: (rng.random_range(0..4) == 0).then(|| rng.random_range(1..4)),
            cut: (rng.random_range(0..3) > 0).then(|| Cut::draw(rng, 600)),
        }
    }
}

impl Act {
    fn draw(rng: &mut ChaCha8Rng, kind: u32, next_content: &mut u64) -> Self {
        let mut content = |rng: &mut ChaCha8Rng| {
            *next_content += 1;
            Content::draw(*next_content, rng)
        };
        let step = rng.random_range(0..STEPS);
        let replace = rng.random_range(0..3) == 0;
        if (14..18).contains(&kind) && rng.random_range(0..20) == 0 {
            return Self::RefuseVisits {
                count: rng.random_range(1..4),
            };
        }
        match rng.random_range(0..42) {
            0..10 => Self::Save {
                step,
                content: content(rng),
                replace,
                by: match rng.random_range(0..4) {
                    0 => By::OneWriter { reserve: true },
                    1 => By::OneWriter { reserve: false },
                    2 => By::Streams,
                    _ => By::Threads(rng.random_range(1..4)),
                },
            },
            10..15 => Self::SaveAsync {
                step,
                content: content(rng),
                replace,
                queue: rng.random_range(0..3) > 0,
                threads: rng.random_range(1..3),
                then: match rng.random_range(0..8) {
                    0..2 => Then::Wait,
                    2..5 => Then::WaitLater,
                    5..7 => Then::Cancel,
                    _ => Then::Drop,
                },
            },
            15 => Self::GiveUp {
                content: content(rng),
            },
            38..41 => Self::SaveByLeases {
                step,
                content: content(rng),
                replace,
                leases: rng.random_range(1..4),
                has_quitter: rng.random_range(0..4) == 0,
            },
            16..23 => Self::Read {
                step,
                how: match rng.random_range(0..5) {
                    0 => How::Whole { is_aligned: true },
                    1 => How::Whole { is_aligned: false },
                    2 => How::Ranges,
                    3 => How::Boxes,
                    _ => How::Load {
                        threads: rng.random_range(1..4),
                    },
                },
            },
            23..26 => Self::Hold { step },
            26 => Self::LetGo,
            27..32 => Self::Remove { step },
            32 => Self::Pin {
                step,
                pinned: rng.random(),
            },
            33 => Self::Verify { deep: rng.random() },
            34..36 => Self::List,
            36 => Self::Rename {
                number: rng.random_range(0..1000),
            },
            37 => Self::OpenTwice {
                read_only: rng.random(),
            },
            _ => Self::FinishSaves,
        }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.how {
            PowerCut::Power => "the power fails",
            PowerCut::Process => "the process dies",
        };
        write!(f, "{what} after {} operations", self.after)
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = |replace: &bool| if *replace { "replace" } else { "save" };
        match self {
            Self::Save {
                step,
                content,
                replace,
                by,
            } => write!(f, "{} {step} by {by:?}: {content}", again(replace)),
            Self::SaveAsync {
                step,
                content,
                replace,
                queue,
                threads,
                then,
            } => write!(
                f,
                "{} {step} in the background (queue {queue}, {threads} threads, then {then:?}): \
                 {content}",
                again(replace)
            ),
            Self::SaveByLeases {
                step,
                content,
                replace,
                leases,
                has_quitter,
            } => write!(
                f,
                "{} {step} by {leases} leases, one of which is given up: {has_quitter}: {content}",
                again(replace)
            ),
            Self::GiveUp { content } => write!(f, "begin and give up: {content}"),
            other => write!(f, "{other:?}"),
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SWATH_SEED={}: {} members of",
            self.seed,
            self.devices.len()
        )?;
        for ((_, geometry), tear) in self.devices.iter().zip(&self.tear_bytes) {
            let block = geometry.logical_block_bytes;
            write!(f, " {}/{block}/{tear}", geometry.capacity_bytes)?;
        }
        writeln!(
            f,
            " bytes, chunks of {}, depth {}",
            self.chunk_bytes, self.depth
        )?;
        for cut in &self.creation {
            writeln!(f, "created, and {cut}")?;
        }
        for (number, life) in self.lives.iter().enumerate() {
            writeln!(f, "life {number}: members in order {:?}", life.order)?;
            for fault in &life.faults {
                writeln!(f, "  fault: {fault}")?;
            }
            if life.looks_first {
                writeln!(f, "  opened for reading only first")?;
            }
            for cut in &life.recovery {
                writeln!(f, "  opened, and {cut}")?;
            }
            for (number, acts) in life.clients.iter().enumerate() {
                for act in acts {
                    writeln!(f, "  client {number}: {act}")?;
                }
            }
            if let Some(keep) = life.retain {
                writeln!(f, "  keep the last {keep}")?;
            }
            match life.cut {
                Some(cut) => writeln!(f, "  {cut}")?,
                None => writeln!(f, "  closed")?,
            }
        }
        Ok(())
    }
}
