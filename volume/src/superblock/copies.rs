//! Which copies to believe: the rules over what all copies of all members hold.
//!
//! An update of the superblock raises the generation from g-1 to g on every member, in two steps
//! ([`UPDATE_STEPS`]): write copies 0 and 2 of all members, flush all members, write copies 1 and 3
//! of all members, flush all members; only then is it acknowledged. A crash may leave any subset of
//! a step's writes, each whole, torn or not at all. Bits may rot, a member may be an old copy made
//! by dd. What follows is decided by [`decide`], from the generations of the good copies alone; g
//! is the highest of them.
//!
//! 1. *Every member has a good copy of g*: g it is, rolled forward. All of g is there, so nothing
//!    can be missing from it, acknowledged or not.
//! 2. *Otherwise, every member has a good copy of g-1*: g-1, rolled back. An acknowledged g stands
//!    in all four copies of every member, and nothing ever replaces a copy of it by g-1. A good
//!    copy of g-1 on every member therefore shows that g was not acknowledged. With one exception:
//!    when a good copy 1 or 3 has g, then step 1 had been flushed everywhere before; a member whose
//!    copy 0 or 2 is good and older was not there. It is an old copy: refused.
//! 3. *Otherwise* some member lacks g and some member lacks g-1: one of them missed an update, or
//!    so many copies are damaged that it can no longer be told. Refused as stale: mixing members of
//!    two times is worse than not opening.
//!
//! What damage can do: a damaged copy is never believed and takes away evidence only. It can turn
//! case 1 into 2 only while g is not acknowledged (2 needs good copies of g-1 everywhere), and any
//! case into a refusal; never a refusal into a wrong choice, since 1 and 2 each rest on good copies
//! of every member alone, and the exception of 2 can lose its witness only where rolling back is
//! still right. One damaged copy on each member, whatever the crash, never makes a refusal: the
//! steps touch two copies of a member at a time, and each step has one near the start and one near
//! the end.
//!
//! Healing makes all four copies of every member equal again ([`Heal`]), in the order that keeps
//! these arguments true when it crashes half way: forward as an update does it (copies 0 and 2,
//! flush all, copies 1 and 3, flush all); back in the opposite order (copies 1 and 3, flush all,
//! copies 0 and 2, flush all), so that the last sign of g in copies 1 and 3 is gone before any copy
//! 0 or 2 becomes older again. A good copy of the chosen generation is never overwritten.
//!
//! What was read may be in a device's cache only: a process can die between a write and its flush
//! and leave the device running. So opening for writing flushes every member, whether there is
//! something to heal or not, before the first update can begin: otherwise a power failure during
//! that update could take copies back by two generations. Opening for reading only writes nothing,
//! and may show an update that a power failure can still take back.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::codec::DecodeError;
use super::map::COPY_COUNT;
use super::{MemberMap, Superblock};
use crate::error::{Error, ErrorKind, Result};

/// The copies that each step of an update writes, on every member; a flush of all members follows
/// each step.
pub const UPDATE_STEPS: [[usize; 2]; 2] = [[0, 2], [1, 3]];

/// What one copy held: a superblock, or the reason why not.
pub type CopyResult = std::result::Result<Superblock, CopyFault>;

/// Why a copy is of no use.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CopyFault {
    /// It was read, and is not a superblock that can be used.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// It could not be read.
    #[error("unreadable")]
    Unreadable(#[source] Error),
}

/// A device that may be a member, and what its four copies held.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The device's path, for messages.
    pub path: PathBuf,
    /// The device's size now.
    pub device_bytes: u64,
    /// What each copy held.
    pub copies: [CopyResult; COPY_COUNT],
}

/// A whole volume: every member found, and one generation chosen.
#[derive(Debug, Clone)]
pub struct Assembly {
    /// Every member's superblock at the chosen generation, in index order, as one of its copies
    /// has it.
    pub superblocks: Vec<Superblock>,
    /// Which of the candidates each member is, in index order.
    pub order: Vec<usize>,
    /// What must be written before the volume is written to.
    pub heal: Heal,
    /// Feature bits that forbid writing; 0 allows it. When not 0, do not heal either.
    pub unknown_ro_compat: u64,
}

impl Assembly {
    /// The chosen generation.
    pub fn generation(&self) -> u64 {
        self.superblocks[0].generation
    }
}

/// The copies that are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heal {
    /// What to write, step by step. Flush *every* member after each step, also when there is
    /// nothing to write in it or in both: what was read may not be durable yet.
    pub steps: [Vec<Rewrite>; 2],
}

impl Heal {
    /// Whether all copies are as they should be.
    pub fn is_empty(&self) -> bool {
        self.steps.iter().all(Vec::is_empty)
    }
}

/// One copy to write anew from [`Assembly::superblocks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewrite {
    /// The member, by its index.
    pub member_index: usize,
    /// Which of its copies.
    pub copy_number: usize,
    /// Where on its device.
    pub offset: u64,
}

/// Finds each candidate's place in the volume and the generation to open, or says why not.
///
/// The candidates may come in any order. The newest generation g of all good copies is chosen when
/// every member has it. When an update to g was interrupted, and every member still has g-1, then g
/// was never acknowledged, and g-1 is chosen. A damaged copy is never believed, and is healed.
///
/// # Errors
///
/// In this order, each with the paths: no candidates; a device that is no member, damaged,
/// unreadable or of an unknown version; members of several volumes; one member twice; a device that
/// has shrunk; members missing; a member that missed an update.
pub fn assemble(candidates: &[Candidate]) -> Result<Assembly> {
    if candidates.is_empty() {
        return Err(Error::new(ErrorKind::InvalidInput, "no devices were given"));
    }
    let members = candidates
        .iter()
        .enumerate()
        .map(|(position, candidate)| Member::new(position, candidate))
        .collect::<Result<Vec<_>>>()?;
    check_one_volume(&members)?;
    check_no_duplicate(&members)?;
    check_not_shrunk(&members)?;
    let members = in_index_order(members)?;

    let generations: Vec<Generations> = members.iter().map(Member::generations).collect();
    let decision = decide(&generations);
    let generation = match &decision {
        Decision::Forward(generation) | Decision::Back(generation) => *generation,
        Decision::Stale { newest, behind } => return Err(stale(&members, *newest, behind)),
    };
    let superblocks: Vec<Superblock> = members
        .iter()
        .map(|member| member.at(generation).clone())
        .collect();
    check_same_update(&members, generation)?;
    let step_order = match decision {
        Decision::Back(_) => [UPDATE_STEPS[1], UPDATE_STEPS[0]],
        _ => UPDATE_STEPS,
    };
    let steps = step_order.map(|copies| rewrites(&members, generation, copies));
    let unknown_ro_compat = superblocks[0].unknown_ro_compat();
    let order = members.iter().map(|member| member.position).collect();
    Ok(Assembly {
        superblocks,
        order,
        heal: Heal { steps },
        unknown_ro_compat,
    })
}

/// A candidate with at least one good copy, all good ones of one member.
struct Member<'a> {
    position: usize,
    candidate: &'a Candidate,
    /// A good copy; the identity in it is that of all good copies.
    any: &'a Superblock,
}

impl<'a> Member<'a> {
    fn new(position: usize, candidate: &'a Candidate) -> Result<Self> {
        // An intact copy of a newer program is no damage to be repaired: it may have begun to
        // change the member into something that is unknown here.
        for copy in &candidate.copies {
            if let Err(CopyFault::Decode(error)) = copy
                && error.is_unsupported()
            {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("the superblock has an {error}"),
                )
                .with_path(&candidate.path));
            }
        }
        let mut good = candidate.copies.iter().flatten();
        let Some(any) = good.next() else {
            return Err(no_good_copy(candidate));
        };
        if let Some(other) = good.find(|other| !other.is_same_member(any)) {
            return Err(Error::new(
                ErrorKind::Damaged,
                format!(
                    "superblock copies {} and {} contradict each other: member {} of {} and member \
                     {} of {}",
                    any.copy_number,
                    other.copy_number,
                    any.member_index,
                    volume_words(any),
                    other.member_index,
                    volume_words(other),
                ),
            )
            .with_path(&candidate.path));
        }
        Ok(Self {
            position,
            candidate,
            any,
        })
    }

    fn path(&self) -> &'a Path {
        &self.candidate.path
    }

    fn generations(&self) -> Generations {
        self.candidate
            .copies
            .each_ref()
            .map(|copy| copy.as_ref().ok().map(|good| good.generation))
    }

    fn newest(&self) -> Option<u64> {
        self.generations().into_iter().flatten().max()
    }

    fn at(&self, generation: u64) -> &'a Superblock {
        let mut good = self.candidate.copies.iter().flatten();
        good.find(|superblock| superblock.generation == generation)
            .expect("every member has a good copy of the generation that was decided on")
    }
}

/// The refusal of a device without a single good copy.
fn no_good_copy(candidate: &Candidate) -> Error {
    let faults = || {
        candidate
            .copies
            .iter()
            .filter_map(|copy| copy.as_ref().err())
    };
    let all = |wanted: fn(&DecodeError) -> bool| {
        faults().all(|fault| matches!(fault, CopyFault::Decode(error) if wanted(error)))
    };
    if all(|error| *error == DecodeError::Blank) {
        return Error::new(ErrorKind::NotAMember, "not a Swath member: blank")
            .with_path(&candidate.path);
    }
    if all(|error| matches!(error, DecodeError::Blank | DecodeError::NotSwath)) {
        return Error::new(ErrorKind::NotAMember, "not a Swath member").with_path(&candidate.path);
    }
    let mut message = String::from("no good superblock copy");
    for (number, fault) in faults().enumerate() {
        let separator = if number == 0 { ":" } else { "," };
        // Writing into a String cannot fail.
        let _ = write!(message, "{separator} copy {number} {fault}");
    }
    let unreadable = faults().find_map(|fault| match fault {
        CopyFault::Unreadable(error) => Some(error.clone()),
        CopyFault::Decode(_) => None,
    });
    let unsupported =
        faults().any(|fault| matches!(fault, CopyFault::Decode(DecodeError::Version { .. })));
    let error = match unreadable {
        Some(cause) => Error::new(cause.kind(), message).with_source(cause),
        None if unsupported => Error::new(ErrorKind::Unsupported, message),
        None => Error::new(ErrorKind::Damaged, message),
    };
    error.with_path(&candidate.path)
}

/// Refuses members of more than one volume. The volume of most of them is taken for the one that
/// was meant; between equals, the one of the first device.
fn check_one_volume(members: &[Member<'_>]) -> Result<()> {
    let of_same_volume = |member: &Member<'_>| {
        members
            .iter()
            .filter(|other| other.any.volume_uuid == member.any.volume_uuid)
            .count()
    };
    let most = members.iter().map(of_same_volume).max().unwrap_or(0);
    let meant = members.iter().find(|member| of_same_volume(member) == most);
    let Some(meant) = meant else { return Ok(()) };
    for member in members {
        if member.any.volume_uuid != meant.any.volume_uuid {
            return Err(Error::new(
                ErrorKind::Foreign,
                format!(
                    "a member of {}, while {} is a member of {}",
                    volume_words(member.any),
                    meant.path().display(),
                    volume_words(meant.any),
                ),
            )
            .with_path(member.path()));
        }
        if !member.any.is_same_volume(meant.any) {
            return Err(Error::new(
                ErrorKind::Damaged,
                format!(
                    "the superblocks describe {} differently",
                    volume_words(meant.any)
                ),
            )
            .with_path(meant.path())
            .with_path(member.path()));
        }
    }
    Ok(())
}

/// Refuses two devices that are one member: a copy made by dd, or one device by two paths.
fn check_no_duplicate(members: &[Member<'_>]) -> Result<()> {
    for (place, member) in members.iter().enumerate() {
        let earlier = &members[..place];
        if let Some(twin) = earlier
            .iter()
            .find(|twin| twin.any.member_uuid == member.any.member_uuid)
        {
            return Err(Error::new(
                ErrorKind::Duplicate,
                format!(
                    "both are member {} of {} (member UUID {}); leave the copy away",
                    member.any.member_index,
                    volume_words(member.any),
                    member.any.member_uuid,
                ),
            )
            .with_path(twin.path())
            .with_path(member.path()));
        }
    }
    Ok(())
}

fn check_not_shrunk(members: &[Member<'_>]) -> Result<()> {
    for member in members {
        let (now, then) = (member.candidate.device_bytes, member.any.device_bytes);
        if now < then {
            return Err(Error::new(
                ErrorKind::Shrunk,
                format!("has {now} bytes, and had {then} when the volume was created"),
            )
            .with_path(member.path()));
        }
    }
    Ok(())
}

/// The members in index order; refuses when some are missing. They are of one volume and no two
/// are the same.
fn in_index_order(mut members: Vec<Member<'_>>) -> Result<Vec<Member<'_>>> {
    let uuids = &members[0].any.member_uuids;
    let missing: Vec<String> = uuids
        .iter()
        .enumerate()
        .filter(|(_, uuid)| {
            members
                .iter()
                .all(|member| member.any.member_uuid != **uuid)
        })
        .map(|(index, uuid)| format!("{index} ({uuid})"))
        .collect();
    if !missing.is_empty() {
        let words = if missing.len() == 1 {
            "member"
        } else {
            "members"
        };
        let error = Error::new(
            ErrorKind::Missing,
            format!(
                "{} needs {} members and has {}; missing: {words} {}",
                volume_words(members[0].any),
                uuids.len(),
                members.len(),
                missing.join(", "),
            ),
        );
        return Err(members
            .iter()
            .fold(error, |error, member| error.with_path(member.path())));
    }
    members.sort_unstable_by_key(|member| member.any.member_index);
    Ok(members)
}

/// Refuses members that have the chosen generation with different contents: they were updated apart
/// from each other.
fn check_same_update(members: &[Member<'_>], generation: u64) -> Result<()> {
    let first = members[0].at(generation);
    for member in members {
        for superblock in member.candidate.copies.iter().flatten() {
            if superblock.generation == generation && !superblock.is_same_update(first) {
                return Err(Error::new(
                    ErrorKind::Damaged,
                    format!(
                        "the superblocks differ at generation {generation}, in name ({:?} and \
                         {:?}) or features: the members were updated apart from each other",
                        first.name, superblock.name,
                    ),
                )
                .with_path(members[0].path())
                .with_path(member.path()));
            }
        }
    }
    Ok(())
}

fn stale(members: &[Member<'_>], newest: u64, behind: &[usize]) -> Error {
    let mut message = format!("the volume is at generation {newest}");
    for &index in behind {
        let member = &members[index];
        let own = member.newest().unwrap_or(0);
        // Writing into a String cannot fail.
        let _ = write!(
            message,
            ", {} (member {index}) at {own}",
            member.path().display()
        );
    }
    message.push_str(": an old copy, or a device that was away during an update");
    let error = Error::new(ErrorKind::Stale, message);
    behind.iter().fold(error, |error, &index| {
        error.with_path(members[index].path())
    })
}

/// Those of `copies` on each member that are not good at `generation`.
fn rewrites(members: &[Member<'_>], generation: u64, copies: [usize; 2]) -> Vec<Rewrite> {
    let mut rewrites = Vec::new();
    for (member_index, member) in members.iter().enumerate() {
        let map = MemberMap::new(member.any.device_bytes)
            .expect("the size in a good superblock has been checked");
        for copy_number in copies {
            if member.generations()[copy_number] != Some(generation) {
                let offset = map.copy_offset(copy_number);
                rewrites.push(Rewrite {
                    member_index,
                    copy_number,
                    offset,
                });
            }
        }
    }
    rewrites
}

fn volume_words(superblock: &Superblock) -> String {
    format!("volume {:?} ({})", superblock.name, superblock.volume_uuid)
}

/// The generation of each of a member's copies; none where the copy is no good.
type Generations = [Option<u64>; COPY_COUNT];

/// Which generation a set of members is to be opened at.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// Every member has it, and it is the newest.
    Forward(u64),
    /// The newest was never acknowledged; every member still has this one before it.
    Back(u64),
    /// The members at these places miss the newest, and there is no way back.
    Stale { newest: u64, behind: Vec<usize> },
}

/// The rule of the [module page](self). Every member has at least one good copy.
fn decide(members: &[Generations]) -> Decision {
    let newest = members
        .iter()
        .flatten()
        .flatten()
        .copied()
        .max()
        .unwrap_or(0);
    let has = |member: &Generations, generation| member.contains(&Some(generation));
    let behind: Vec<usize> = (0..members.len())
        .filter(|place| !has(&members[*place], newest))
        .collect();
    if behind.is_empty() {
        return Decision::Forward(newest);
    }
    let [first_step, second_step] = UPDATE_STEPS;
    let second_step_began = members.iter().any(|member| {
        second_step
            .into_iter()
            .any(|copy| member[copy] == Some(newest))
    });
    let missed_first_step = |place: &usize| {
        first_step
            .into_iter()
            .any(|copy| members[*place][copy].is_some())
    };
    let contradiction = second_step_began && behind.iter().any(missed_first_step);
    let previous = newest.saturating_sub(1);
    if !contradiction && members.iter().all(|member| has(member, previous)) {
        return Decision::Back(previous);
    }
    Decision::Stale { newest, behind }
}

#[cfg(test)]
mod tests;
