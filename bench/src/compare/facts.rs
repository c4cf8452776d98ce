//! What makes a comparison fair, checked on plain facts: members alike, blocks in one state, room
//! enough. Every refusal says what is unlike and what to do.

use std::path::PathBuf;

use swath_engine::DeviceKind;

use crate::compare::state::State;
use crate::error::{Error, ErrorKind, Result};
use crate::size::{format_bytes, format_size};
use crate::subject::DataState;
use crate::workload::Cell;

/// Less is a drive's cache, or a processor's, and not a drive.
const VOLUME_BYTES_MIN: u64 = 64 << 20;

/// The volume is at least so many times what is in flight, or requests meet each other.
const TIMES_IN_FLIGHT: u64 = 8;

/// What is to be known of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberFacts {
    pub(crate) path: PathBuf,
    pub(crate) kind: DeviceKind,
    pub(crate) is_direct: bool,
    pub(crate) data_offset: u64,
    pub(crate) data_bytes: u64,
    pub(crate) state: DataState,
}

/// And of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeFacts {
    pub(crate) members: Vec<MemberFacts>,
    pub(crate) chunk_bytes: u64,
    pub(crate) capacity_bytes: u64,
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Refused, message)
}

/// The first member that is unlike the first by `property`, with both.
fn unlike<T: PartialEq>(
    members: &[MemberFacts],
    property: impl Fn(&MemberFacts) -> T,
) -> Option<(&MemberFacts, &MemberFacts)> {
    let first = members.first()?;
    let other = members
        .iter()
        .find(|member| property(member) != property(first))?;
    Some((first, other))
}

impl VolumeFacts {
    /// Sees that the members are alike and are what `state` says.
    ///
    /// # Errors
    ///
    /// What is unlike.
    pub(crate) fn check_members(&self, state: State) -> Result<()> {
        let members = &self.members;
        if let Some(member) = members.iter().find(|member| !member.is_direct) {
            let path = member.path.display();
            return Err(refused(format!("{path} is not open for direct I/O")));
        }
        if let Some((first, other)) = unlike(members, |member| member.kind) {
            return Err(refused(format!(
                "{} is {} and {} is {}: what is measured would be neither; compare on members of \
                 one kind",
                first.path.display(),
                kind_name(first.kind),
                other.path.display(),
                kind_name(other.kind)
            )));
        }
        // fio takes one offset and one size for all files.
        if let Some((first, other)) = unlike(members, |it| (it.data_offset, it.data_bytes)) {
            return Err(refused(format!(
                "{} and {} hold different parts of the volume, and fio cannot be told so",
                first.path.display(),
                other.path.display()
            )));
        }
        let in_memory = members.iter().any(|it| it.kind == DeviceKind::MemoryFile);
        match (state == State::Memory, in_memory) {
            (true, false) => Err(refused(
                "the members do not lie in memory; leave --state tmpfs out, or give --dir a \
                 directory of a tmpfs, such as /dev/shm/swath"
                    .to_owned(),
            )),
            (false, true) => Err(refused(
                "the members lie in memory, which is no drive; say so with --state tmpfs"
                    .to_owned(),
            )),
            _ => self.check_state(state),
        }
    }

    fn check_state(&self, state: State) -> Result<()> {
        if let Some((first, other)) = unlike(&self.members, |member| member.state) {
            return Err(refused(format!(
                "{} is {} and {} is {}: some I/Os would reach a drive and some would not; fill the \
                 volume with --fill --destructive, or let this run make members",
                first.path.display(),
                first.state,
                other.path.display(),
                other.state
            )));
        }
        let Some(found) = self.members.first().map(|member| member.state) else {
            return Ok(());
        };
        match (state, found) {
            (State::Unwritten, DataState::Unwritten)
            | (State::Written | State::Memory, DataState::Written | DataState::Unknown) => Ok(()),
            (State::Unwritten, _) => Err(refused(format!(
                "the members' blocks are {found}, not unwritten; their file system does not keep \
                 reserved blocks unwritten, or does not say so"
            ))),
            (State::Written | State::Memory, _) => Err(refused(format!(
                "the members' blocks are {found}: reads would not reach the drive, and writes would \
                 be first writes; fill the volume with --fill --destructive, or let this run make \
                 members"
            ))),
        }
    }

    /// Sees that `cells` mean the same on both sides.
    ///
    /// # Errors
    ///
    /// The first that does not.
    pub(crate) fn check_cells(&self, cells: &[Cell]) -> Result<()> {
        if self.capacity_bytes < VOLUME_BYTES_MIN {
            return Err(refused(format!(
                "a volume of {} fits into caches; give it at least {}, with a larger --size",
                format_bytes(self.capacity_bytes),
                format_bytes(VOLUME_BYTES_MIN)
            )));
        }
        for cell in cells {
            if !self.chunk_bytes.is_multiple_of(cell.block_bytes) {
                return Err(refused(format!(
                    "{cell}: on chunks of {} a request may be several operations here and is always \
                     one for fio; take a --chunk that is a multiple of the block size",
                    format_size(self.chunk_bytes)
                )));
            }
            let in_flight = cell.buffer_bytes();
            if self.capacity_bytes / TIMES_IN_FLIGHT < in_flight {
                return Err(refused(format!(
                    "{cell}: {} in flight on a volume of {} meet each other; use a larger --size or \
                     a smaller --iodepth",
                    format_bytes(in_flight),
                    format_bytes(self.capacity_bytes)
                )));
            }
        }
        Ok(())
    }
}

fn kind_name(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::File => "a file",
        DeviceKind::MemoryFile => "a file in memory",
        DeviceKind::Block => "a block device",
        DeviceKind::Simulated => "simulated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Pattern;

    const MIB: u64 = 1 << 20;

    fn member(name: &str) -> MemberFacts {
        MemberFacts {
            path: name.into(),
            kind: DeviceKind::File,
            is_direct: true,
            data_offset: MIB,
            data_bytes: 60 * MIB,
            state: DataState::Written,
        }
    }

    fn volume(change: impl Fn(&mut MemberFacts)) -> VolumeFacts {
        let mut second = member("b");
        change(&mut second);
        VolumeFacts {
            members: vec![member("a"), second],
            chunk_bytes: MIB,
            capacity_bytes: 120 * MIB,
        }
    }

    #[track_caller]
    fn assert_refused(outcome: Result<()>, part: &str) {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains(part), "{error}");
    }

    #[test]
    fn members_that_are_alike_are_compared() {
        volume(|_| ()).check_members(State::Written).unwrap();
        let mut unwritten = volume(|_| ());
        for member in &mut unwritten.members {
            member.state = DataState::Unwritten;
        }
        unwritten.check_members(State::Unwritten).unwrap();
        assert_refused(unwritten.check_members(State::Written), "first writes");
    }

    #[test]
    fn members_of_mixed_kinds_or_states_are_refused_by_name() {
        let written = |change: fn(&mut MemberFacts)| volume(change).check_members(State::Written);
        assert_refused(
            written(|it| it.is_direct = false),
            "b is not open for direct",
        );
        assert_refused(
            written(|it| it.kind = DeviceKind::MemoryFile),
            "a is a file and b is a file in memory",
        );
        assert_refused(
            written(|it| it.state = DataState::Unwritten),
            "a is written and b is unwritten",
        );
        assert_refused(written(|it| it.data_bytes -= MIB), "different parts");
    }

    #[test]
    fn the_state_that_was_asked_for_must_be_there() {
        let found = volume(|_| ());
        assert_refused(found.check_members(State::Unwritten), "not unwritten");
        assert_refused(found.check_members(State::Memory), "--state tmpfs");
        let mut memory = found;
        for member in &mut memory.members {
            member.kind = DeviceKind::MemoryFile;
        }
        memory.check_members(State::Memory).unwrap();
        assert_refused(memory.check_members(State::Written), "--state tmpfs");
    }

    #[test]
    fn volumes_that_are_too_small_and_requests_that_are_split_are_refused() {
        let cell = |block_bytes, depth| Cell {
            pattern: Pattern::RandRead,
            block_bytes,
            depth,
            lanes: 1,
        };
        let mut found = volume(|_| ());
        found.check_cells(&[cell(4096, 128), cell(MIB, 8)]).unwrap();
        assert_refused(found.check_cells(&[cell(MIB, 128)]), "meet each other");
        assert_refused(found.check_cells(&[cell(2 * MIB, 1)]), "several operations");
        found.capacity_bytes = 32 * MIB;
        assert_refused(found.check_cells(&[cell(4096, 1)]), "caches");
    }
}
