//! What the options come to: the cells, the schedule, the volume to come by.

use std::path::PathBuf;

use swath_bench::compare::{CellChoice, Rival, Schedule, State, parse_cells};
use swath_bench::{Cell, Error, MembersOptions, Pattern, Result, SubjectOptions};
use swath_engine::{FileFill, QueueOptions, cpu};
use swath_volume::members_in;

use crate::options::{Options, RivalChoice, StateChoice};

/// What is compared when nobody says.
const CELLS_DEFAULT: &str = "4k-randread,1m-read,1m-write";

/// Where files in memory go when nobody says.
const MEMORY_PARENT: &str = "/dev/shm/swath-compare";

/// Both sides are one thread: what is compared is what a core can do.
const LANES: u32 = 1;

impl Options {
    pub(crate) fn state(&self) -> State {
        match self.state {
            StateChoice::Written => State::Written,
            StateChoice::Unwritten => State::Unwritten,
            StateChoice::Tmpfs => State::Memory,
        }
    }

    /// Whether cells that write were asked for by name, and not as a part of all.
    pub(crate) fn names_writes(&self) -> bool {
        let named = self.rw.iter().any(|pattern| pattern.is_write());
        // With all of them, those that cannot be are left out.
        let cells = self.cells.iter().flat_map(|cells| &cells.0);
        let has_all = parse_cells("all").is_ok_and(|all| {
            all.iter()
                .all(|one| self.cells.iter().any(|cells| cells.0.contains(one)))
        });
        named || (!has_all && cells.into_iter().any(|cell| cell.pattern.is_write()))
    }

    /// The cells, in order, each once.
    fn choices(&self) -> Result<Vec<CellChoice>> {
        let found = match (&self.cells, &self.bs, &self.rw[..]) {
            (Some(cells), _, _) => cells.0.clone(),
            (None, None, []) => parse_cells(CELLS_DEFAULT)?,
            (None, sizes, patterns) => {
                let all: Vec<u64> = (12..=20).map(|power| 1 << power).collect();
                let sizes = sizes.as_ref().map_or(all, |sizes| sizes.0.clone());
                let has = |pattern: &Pattern| patterns.is_empty() || patterns.contains(pattern);
                let patterns: Vec<Pattern> = Pattern::ALL.into_iter().filter(has).collect();
                let of_size = |block_bytes| {
                    let patterns = patterns.clone().into_iter();
                    patterns.map(move |pattern| CellChoice {
                        pattern,
                        block_bytes,
                    })
                };
                sizes.into_iter().flat_map(of_size).collect()
            }
        };
        let reads_only = self.state == StateChoice::Unwritten;
        let cells = found.into_iter();
        Ok(cells
            .filter(|cell| !reads_only || !cell.pattern.is_write())
            .collect())
    }

    /// The schedule for a volume of so many members.
    pub(crate) fn schedule(&self, members: u32) -> Result<Schedule> {
        let cell = |choice: CellChoice| Cell {
            pattern: choice.pattern,
            block_bytes: choice.block_bytes,
            depth: self.iodepth.of(choice.block_bytes, LANES, members),
            lanes: LANES,
        };
        Ok(Schedule {
            cells: self.choices()?.into_iter().map(cell).collect(),
            rivals: self.rivals(),
            rounds: self.rounds,
            ramp: self.ramp_time,
            runtime: self.runtime,
            probe: self.probe_time,
            core: self.core()?,
            seed: self.seed,
            in_memory: self.state == StateChoice::Tmpfs,
        })
    }

    fn rivals(&self) -> Vec<Rival> {
        let has = |choice| self.against.contains(&choice);
        let mut rivals = Vec::new();
        if has(RivalChoice::Best) {
            rivals.push(Rival::Best);
        }
        if has(RivalChoice::Defaults) && !self.no_defaults {
            rivals.push(Rival::Defaults);
        }
        rivals
    }

    fn core(&self) -> Result<usize> {
        let cores = cpu::available();
        match self.cpu {
            // The first is the one that most interrupts come to.
            None => Ok(cores.last().copied().unwrap_or(0)),
            Some(core) if cores.contains(&core) => Ok(core),
            Some(core) => Err(Error::usage(format!(
                "--cpu {core}: this process may use the cores {cores:?}"
            ))),
        }
    }

    /// How many members the cells are for, before a volume tells.
    pub(crate) fn members_expected(&self) -> u32 {
        if self.volume.makes_members() {
            self.volume.member_count
        } else {
            // A directory is as many as it holds; what is wrong with it, the volume says later.
            let given = self.volume.members.len();
            let count = members_in(&self.volume.members).map_or(given, |paths| paths.len());
            u32::try_from(count).unwrap_or(u32::MAX)
        }
    }

    /// Members of the run's own.
    pub(crate) fn own_members(&self) -> MembersOptions {
        let parent = match (&self.volume.dir, self.state) {
            (None, StateChoice::Tmpfs) => PathBuf::from(MEMORY_PARENT),
            _ => self.volume.parent(),
        };
        MembersOptions {
            parent,
            count: self.volume.member_count,
            member_bytes: self.size,
            fill: match self.state {
                StateChoice::Unwritten => FileFill::Unwritten,
                _ => FileFill::Incompressible { seed: self.seed },
            },
        }
    }

    /// How to come by the volume.
    pub(crate) fn subject(&self) -> Result<SubjectOptions> {
        let writes = self.choices()?.iter().any(|cell| cell.pattern.is_write());
        Ok(SubjectOptions {
            name: "swath-compare".to_owned(),
            members: self.volume.members.clone(),
            own: self.own_members(),
            chunk_bytes: self.volume.chunk,
            fill: self.fill,
            precondition: false,
            writes,
            destructive: self.volume.destructive,
            queue: QueueOptions::default(),
            seed: self.seed,
        })
    }
}
