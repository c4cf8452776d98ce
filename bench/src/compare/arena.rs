//! Where both sides meet: a volume on members in one state, checked before anybody works on it.

use swath_engine::DeviceKind;

use crate::compare::command::Region;
use crate::compare::facts::{MemberFacts, VolumeFacts};
use crate::compare::state::State;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::subject::{Preparation, Subject, SubjectOptions};
use crate::workload::Cell;

/// The volume that both sides work on, and how to come by it again.
#[derive(Debug)]
pub struct Arena {
    options: SubjectOptions,
    state: State,
    /// None only while it is being made anew, and when that failed.
    subject: Option<Subject>,
}

impl Arena {
    /// Makes the volume ready, and sees that `cells` can be compared on it.
    ///
    /// # Errors
    ///
    /// Those of [`Subject::prepare`]; members of mixed kinds or states, or other than `state` says;
    /// a volume too small, or whose chunk would split requests.
    pub fn prepare(
        options: SubjectOptions,
        state: State,
        cells: &[Cell],
        interrupt: &Interrupt,
        progress: &mut dyn FnMut(Preparation),
    ) -> Result<Self> {
        let subject = Subject::prepare(&options, interrupt, progress)?;
        let arena = Self {
            options,
            state,
            subject: Some(subject),
        };
        let facts = arena.facts();
        facts.check_members(state)?;
        facts.check_cells(cells)?;
        Ok(arena)
    }

    /// What its members are to be.
    pub fn state(&self) -> State {
        self.state
    }

    /// The volume as it is now.
    ///
    /// # Panics
    ///
    /// It could not be made anew, which was told then.
    pub fn subject(&self) -> &Subject {
        let subject = self.subject.as_ref();
        subject.expect("nobody works on an arena that could not be made anew")
    }

    /// A new round begins: makes members anew whose state does not last.
    ///
    /// # Errors
    ///
    /// They cannot be made, or are not what they should be.
    pub(crate) fn renew(&mut self, interrupt: &Interrupt) -> Result<()> {
        if self.state == State::Unwritten {
            // The old ones go first: there may be no room for both.
            self.subject = None;
            self.subject = Some(Subject::prepare(&self.options, interrupt, &mut |_| ())?);
        }
        Ok(())
    }

    /// Sees that the members are still what they should be; called before each turn.
    ///
    /// # Errors
    ///
    /// They are not.
    pub(crate) fn check(&self) -> Result<()> {
        self.facts().check_members(self.state)
    }

    /// Closes the volume, lets `work` have its members, and opens it again.
    ///
    /// # Errors
    ///
    /// Those of the work, and of opening the volume.
    pub(crate) fn while_closed<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let subject = self.subject.as_mut();
        let subject = subject.expect("nobody works on an arena that could not be made anew");
        subject.while_closed(work)
    }

    /// What the data of the volume lies in.
    pub(crate) fn region(&self) -> Region {
        let VolumeFacts {
            members,
            chunk_bytes,
            ..
        } = self.facts();
        let (offset_bytes, member_bytes) = members
            .first()
            .map_or((0, 0), |member| (member.data_offset, member.data_bytes));
        // What a path means must not depend on where fio is started.
        let absolute =
            |member: MemberFacts| std::path::absolute(&member.path).unwrap_or(member.path);
        Region {
            members: members.into_iter().map(absolute).collect(),
            offset_bytes,
            member_bytes,
            chunk_bytes,
        }
    }

    /// Whether its members' kind does not tell what is written.
    pub fn is_state_unknown(&self) -> bool {
        let members = self.subject().volume().members();
        members
            .iter()
            .any(|member| member.device.kind() == DeviceKind::Block)
    }

    fn facts(&self) -> VolumeFacts {
        let subject = self.subject();
        let volume = subject.volume();
        let members = volume.members().iter().zip(subject.member_states());
        VolumeFacts {
            members: members
                .map(|(member, state)| MemberFacts {
                    path: member.path().to_path_buf(),
                    kind: member.device.kind(),
                    is_direct: member.device.is_direct(),
                    data_offset: member.data_offset,
                    data_bytes: member.data_bytes,
                    state,
                })
                .collect(),
            chunk_bytes: volume.chunk_bytes(),
            capacity_bytes: volume.capacity_bytes(),
        }
    }
}
