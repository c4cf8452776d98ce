//! What the options come to: the plan, the volume to come by, how cells are run.

use swath_bench::command_line::FillChoice;
use swath_bench::{
    Interrupt, MembersOptions, Pattern, Plan, RunOptions, Side, Space, SubjectOptions, matrix,
};
use swath_engine::FileFill;

use crate::options::Options;

impl Options {
    pub(crate) fn patterns(&self) -> Vec<Pattern> {
        if self.verify.verify_only {
            return Vec::new();
        }
        if self.rw.is_empty() {
            let reads_only = self.own.is_unwritten();
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
                &self.iodepth.0,
                &self.numjobs.0,
                members,
            ),
            rounds: self.rounds,
            steady: self.steady_state,
            sides,
            one: self.ramp_time + self.runtime,
        }
    }

    /// The most lanes that a cell has.
    pub(crate) fn lanes_most(&self) -> u32 {
        self.numjobs.0.iter().copied().max().unwrap_or(1)
    }

    /// How many members the plan is for, before a volume tells.
    pub(crate) fn members_expected(&self) -> u32 {
        if self.volume.makes_members() {
            self.volume.member_count
        } else {
            u32::try_from(self.volume.members.len()).unwrap_or(u32::MAX)
        }
    }

    /// Members of the run's own. A verifying run writes them itself.
    pub(crate) fn own_members(&self) -> MembersOptions {
        let mut own = self.own.members(&self.volume, self.seed);
        if self.verify.is_on() {
            own.fill = FileFill::Unwritten;
        }
        own
    }

    /// Whether a verifying run writes every block of the volume first.
    pub(crate) fn fills_for_verify(&self, is_new: bool) -> bool {
        let is_asked_for = self.own.fill == Some(FillChoice::Written);
        self.verify.verify && !self.verify.verify_only && (is_new || is_asked_for)
    }

    /// The bytes that a workload will find on members of the run's own, so that cells that do not
    /// fit are refused before these are made.
    pub(crate) fn own_space(&self) -> Space {
        if !self.baseline {
            return self.own.volume_space(&self.volume);
        }
        // The bare members are a space each.
        Space {
            device: 0,
            base: 0,
            length: self.own.member_data_bytes(&self.volume),
        }
    }

    /// How to come by the volume.
    pub(crate) fn subject(&self) -> SubjectOptions {
        SubjectOptions {
            name: "swath-matrix".to_owned(),
            members: self.volume.members.clone(),
            own: self.own_members(),
            chunk_bytes: self.volume.chunk,
            fill: self.own.fill == Some(FillChoice::Written),
            precondition: self.verify.is_on() || self.precondition.is_some_and(|it| it.passes > 0),
            writes: self.precondition.is_some()
                || self.fills_for_verify(false)
                || self.patterns().iter().any(|pattern| pattern.is_write()),
            destructive: self.volume.destructive,
            queue: self.queue.fill_queue(),
            seed: self.seed,
        }
    }

    /// How cells are run.
    pub(crate) fn run(&self, interrupt: &Interrupt) -> RunOptions {
        RunOptions {
            queue: self.queue.queue(),
            ramp: self.ramp_time,
            runtime: self.runtime,
            batch: self.batch,
            reap: self.reap,
            seed: self.seed,
            pinning: self.queue.pinning(),
            unique_writes: true,
            latencies: true,
            interrupt: interrupt.clone(),
        }
    }
}
