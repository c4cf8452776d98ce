//! What the options come to: the plan, the volume to come by, how cells are run.

use swath_bench::command_line::MEMBER_OVERHEAD_BYTES;
use swath_bench::{
    Interrupt, MembersOptions, Pattern, Pinning, Plan, RunOptions, Side, Space, SubjectOptions,
    matrix,
};
use swath_engine::{FileFill, QueueOptions};
use swath_volume::CHUNK_BYTES_DEFAULT;

use crate::options::{FillChoice, Options};

impl Options {
    pub(crate) fn patterns(&self) -> Vec<Pattern> {
        if self.rw.is_empty() {
            let reads_only = self.fill == Some(FillChoice::Unwritten);
            return Pattern::ALL
                .into_iter()
                .filter(|p| !reads_only || !p.is_write())
                .collect();
        }
        // In the order of tables, each once.
        Pattern::ALL
            .into_iter()
            .filter(|pattern| self.rw.contains(pattern))
            .collect()
    }

    /// The cells for a volume of so many members.
    pub(crate) fn plan(&self, members: u32) -> Plan {
        let sides = if self.baseline {
            vec![Side::Volume, Side::Members]
        } else {
            vec![Side::Volume]
        };
        Plan {
            cells: matrix(
                &self.bs.0,
                &self.patterns(),
                self.iodepth,
                self.numjobs,
                members,
            ),
            rounds: self.rounds,
            sides,
            one: self.ramp_time + self.runtime,
        }
    }

    /// How many members the plan is for, before a volume tells.
    pub(crate) fn members_expected(&self) -> u32 {
        if self.volume.makes_members() {
            self.volume.member_count
        } else {
            u32::try_from(self.volume.members.len()).unwrap_or(u32::MAX)
        }
    }

    /// Members of the run's own.
    pub(crate) fn own_members(&self) -> MembersOptions {
        MembersOptions {
            parent: self.volume.parent(),
            count: self.volume.member_count,
            member_bytes: self.size,
            fill: match self.fill {
                Some(FillChoice::Unwritten) => FileFill::Unwritten,
                _ => FileFill::Incompressible { seed: self.seed },
            },
        }
    }

    pub(crate) fn chunk_bytes(&self) -> u64 {
        self.volume.chunk.unwrap_or(CHUNK_BYTES_DEFAULT)
    }

    /// The bytes that a workload will find on members of the run's own, so that cells that do not
    /// fit are refused before these are made.
    pub(crate) fn own_space(&self) -> Space {
        let room = self.size.saturating_sub(MEMBER_OVERHEAD_BYTES);
        let member_bytes = room - room % self.chunk_bytes();
        // The bare members are a space each; the volume is one of all.
        let members = if self.baseline {
            1
        } else {
            u64::from(self.volume.member_count)
        };
        Space {
            device: 0,
            base: 0,
            length: member_bytes.saturating_mul(members),
        }
    }

    fn queue(&self) -> QueueOptions {
        QueueOptions {
            backend: self.backend,
            iopoll: self.iopoll,
            sqpoll_idle_ms: self.sqpoll.then_some(1000),
            ..QueueOptions::default()
        }
    }

    /// How to come by the volume.
    pub(crate) fn subject(&self) -> SubjectOptions {
        SubjectOptions {
            name: "swath-matrix".to_owned(),
            members: self.volume.members.clone(),
            own: self.own_members(),
            chunk_bytes: self.volume.chunk,
            fill: self.fill == Some(FillChoice::Written),
            writes: self.patterns().iter().any(|pattern| pattern.is_write()),
            destructive: self.volume.destructive,
            queue: QueueOptions {
                iopoll: false,
                ..self.queue()
            },
            seed: self.seed,
        }
    }

    /// How cells are run.
    pub(crate) fn run(&self, interrupt: &Interrupt) -> RunOptions {
        RunOptions {
            queue: self.queue(),
            ramp: self.ramp_time,
            runtime: self.runtime,
            batch: self.batch,
            reap: self.reap,
            seed: self.seed,
            pinning: if self.no_pin {
                Pinning::Free
            } else {
                Pinning::Each
            },
            unique_writes: true,
            latencies: true,
            interrupt: interrupt.clone(),
        }
    }
}
