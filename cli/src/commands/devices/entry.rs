//! One drive as the inventory lists it: what it is, what lies on it, whether it can be taken.
//!
//! A drive is *ready* when nobody has it, nothing is on it, and it takes writes: exactly what `swath
//! create` takes without force. Where that cannot be told, the state is unknown, and says why. Of a
//! drive that somebody has, nothing is read.

use serde::Serialize;
use swath_engine::inventory::{Drive, Warning};
use swath_volume::{ErrorKind, Uuid, carries, examine};

/// A drive and its state.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    #[serde(flatten)]
    pub(super) drive: Drive,
    pub(super) state: State,
    /// Why it is not ready, or why that cannot be told.
    pub(super) state_reason: Option<String>,
    /// Of which volume it is a member.
    pub(super) volume: Option<Membership>,
    pub(super) warnings: Vec<WarningReport>,
    /// Whether root would be told more.
    pub(super) needs_root: bool,
}

/// Whether a drive can be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Ready,
    Member,
    NotReady,
    Unknown,
}

/// A member's place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Membership {
    pub(super) uuid: Uuid,
    pub(super) name: String,
    pub(super) member_index: u32,
    pub(super) member_count: u32,
}

/// A warning, for programs and for people.
#[derive(Debug, Serialize)]
pub(super) struct WarningReport {
    #[serde(flatten)]
    warning: Warning,
    pub(super) text: String,
}

/// All of them in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Summary {
    pub(super) count: usize,
    pub(super) ready: usize,
    pub(super) members: usize,
    pub(super) not_ready: usize,
    pub(super) unknown: usize,
    /// How many have warnings.
    pub(super) with_warnings: usize,
    /// Of how many root would be told more.
    pub(super) needs_root: usize,
}

/// What lies on a drive.
enum Contents {
    Member(Membership),
    Something(String),
    Blank,
    Unread { reason: String, needs_root: bool },
}

impl Entry {
    /// Looks at what lies on a drive that nobody has.
    pub(super) fn of(drive: Drive) -> Self {
        let obstacle = obstacle(&drive);
        let contents = obstacle.is_none().then(|| read(&drive));
        Self::new(drive, obstacle, contents)
    }

    fn new(drive: Drive, obstacle: Option<String>, contents: Option<Contents>) -> Self {
        let asked = drive.nvme.as_ref().and_then(|nvme| nvme.unread.as_ref());
        let mut needs_root = asked.is_some_and(|unread| unread.needs_root);
        let mut volume = None;
        let (state, state_reason) = match contents {
            None => (State::NotReady, obstacle),
            Some(Contents::Something(what)) => (State::NotReady, Some(format!("carries {what}"))),
            Some(Contents::Member(membership)) => {
                volume = Some(membership);
                (State::Member, None)
            }
            Some(Contents::Blank) if drive.is_read_only => {
                (State::NotReady, Some("is read-only".to_owned()))
            }
            Some(Contents::Blank) => (State::Ready, None),
            Some(Contents::Unread {
                reason,
                needs_root: is_refused,
            }) => {
                needs_root |= is_refused;
                (State::Unknown, Some(reason))
            }
        };
        let warnings = drive.warnings().into_iter().map(|warning| WarningReport {
            text: warning.to_string(),
            warning,
        });
        Self {
            state,
            state_reason,
            volume,
            warnings: warnings.collect(),
            needs_root,
            drive,
        }
    }

    /// Whether both are one drive at one node.
    pub(super) fn is(&self, other: &Self) -> bool {
        (&self.drive.node, &self.drive.serial) == (&other.drive.node, &other.drive.serial)
    }

    /// How messages name it.
    pub(super) fn title(&self) -> String {
        match &self.drive.serial {
            Some(serial) => format!("{} ({serial})", self.drive.node.display()),
            None => self.drive.node.display().to_string(),
        }
    }
}

impl Summary {
    pub(super) fn of(entries: &[Entry]) -> Self {
        let count = |is: &dyn Fn(&Entry) -> bool| entries.iter().filter(|it| is(it)).count();
        let of_state = |state: State| count(&|entry| entry.state == state);
        Self {
            count: entries.len(),
            ready: of_state(State::Ready),
            members: of_state(State::Member),
            not_ready: of_state(State::NotReady),
            unknown: of_state(State::Unknown),
            with_warnings: count(&|entry| !entry.warnings.is_empty()),
            needs_root: count(&|entry| entry.needs_root),
        }
    }
}

/// What keeps a drive from being taken, whatever lies on it.
fn obstacle(drive: &Drive) -> Option<String> {
    if !drive.users.is_empty() {
        return Some(drive.users.join(", "));
    }
    match drive.partitions.len() {
        0 => {}
        1 => return Some("has a partition".to_owned()),
        count => return Some(format!("has {count} partitions")),
    }
    let state = drive.nvme.as_ref().and_then(|nvme| nvme.state.as_deref());
    match state {
        None | Some("live") => {}
        Some(state) => return Some(format!("its controller is {state}")),
    }
    if drive.capacity_bytes == 0 {
        return Some("has no bytes".to_owned());
    }
    None
}

fn read(drive: &Drive) -> Contents {
    let unread = |error: &swath_volume::Error| Contents::Unread {
        reason: match error.kind() {
            ErrorKind::PermissionDenied => "may not be read".to_owned(),
            _ => match std::error::Error::source(error) {
                Some(cause) => format!("cannot be read: {cause}"),
                None => "cannot be read".to_owned(),
            },
        },
        needs_root: error.kind() == ErrorKind::PermissionDenied,
    };
    let superblock = match examine(&drive.node) {
        Ok(examination) => examination.superblock,
        Err(error) => return unread(&error),
    };
    if let Some(superblock) = superblock {
        return Contents::Member(Membership {
            uuid: superblock.volume_uuid,
            member_index: superblock.member_index,
            member_count: superblock.member_count(),
            name: superblock.name,
        });
    }
    match carries(&drive.node) {
        Ok(Some(signature)) => Contents::Something(signature.description().to_owned()),
        Ok(None) => Contents::Blank,
        Err(error) => unread(&error),
    }
}

#[cfg(test)]
mod tests {
    use swath_engine::inventory::{Nvme, Unread};

    use super::*;

    fn drive() -> Drive {
        Drive {
            node: "/dev/nvme0n1".into(),
            serial: Some("S1".to_owned()),
            capacity_bytes: 1 << 40,
            ..Drive::default()
        }
    }

    #[test]
    fn what_somebody_has_is_not_ready_and_nothing_is_read_of_it() {
        let used = Drive {
            users: vec!["mounted at /data".to_owned()],
            ..drive()
        };
        let split = Drive {
            partitions: vec!["nvme0n1p1".to_owned(), "nvme0n1p2".to_owned()],
            ..drive()
        };
        let dead = Drive {
            nvme: Some(Nvme {
                state: Some("dead".to_owned()),
                ..Nvme::default()
            }),
            ..drive()
        };
        let empty = Drive {
            capacity_bytes: 0,
            ..drive()
        };
        for (drive, reason) in [
            (used, "mounted at /data"),
            (split, "has 2 partitions"),
            (dead, "its controller is dead"),
            (empty, "has no bytes"),
        ] {
            // The node is not there: had it been read, the state were unknown.
            let entry = Entry::of(drive);
            assert_eq!(entry.state, State::NotReady);
            assert_eq!(entry.state_reason.as_deref(), Some(reason));
        }
    }

    #[test]
    fn contents_decide_for_the_others() {
        let state = |drive: Drive, contents| {
            let entry = Entry::new(drive, None, Some(contents));
            (entry.state, entry.state_reason)
        };
        assert_eq!(state(drive(), Contents::Blank), (State::Ready, None));
        let read_only = Drive {
            is_read_only: true,
            ..drive()
        };
        let (is, reason) = state(read_only, Contents::Blank);
        assert_eq!(
            (is, reason.as_deref()),
            (State::NotReady, Some("is read-only"))
        );
        let (is, reason) = state(drive(), Contents::Something("an ext4 file system".into()));
        assert_eq!(is, State::NotReady);
        assert_eq!(reason.as_deref(), Some("carries an ext4 file system"));
    }

    #[test]
    fn a_summary_counts_states_warnings_and_what_needs_root() {
        let refused = Drive {
            nvme: Some(Nvme {
                unread: Some(Unread {
                    needs_root: true,
                    reason: "permission denied".to_owned(),
                }),
                ..Nvme::default()
            }),
            ..drive()
        };
        let unread = Contents::Unread {
            reason: "may not be read".to_owned(),
            needs_root: true,
        };
        let empty = Drive {
            capacity_bytes: 0,
            ..drive()
        };
        let entries = [
            Entry::new(drive(), None, Some(Contents::Blank)),
            Entry::new(refused, None, Some(unread)),
            Entry::of(empty),
        ];
        let wanted = Summary {
            count: 3,
            ready: 1,
            members: 0,
            not_ready: 1,
            unknown: 1,
            with_warnings: 1,
            needs_root: 1,
        };
        assert_eq!(Summary::of(&entries), wanted);
    }
}
