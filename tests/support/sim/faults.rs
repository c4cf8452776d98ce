//! [`Fault`]: what goes wrong, where, when and how often.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use swath_engine::OpKind;

/// How a simulated operation ends instead of well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With an error number, such as `libc::EIO`. Any number of whole sectors from the start on may
    /// have been transferred before, as with a real drive. A flush that fails, but for `EAGAIN`,
    /// `EINTR` and `ECANCELED`, leaves it unknown what is durable.
    Errno(i32),
    /// After this many bytes, if it has more.
    Short(u64),
    /// With the device gone: this operation and all later ones end with `ENODEV`, those in flight
    /// as well. What was in its cache stays there until the world crashes.
    Gone,
    /// As if nothing were wrong, but not before so many nanoseconds of simulated time.
    Late(u64),
    /// Acknowledged and not done: a lost write, a flush that lies.
    Ignored,
    /// Acknowledged in full, and some of its sectors were not written.
    Torn,
    /// Done at this offset instead of its own.
    Misdirected(u64),
    /// Done, and one bit of what lies there is wrong from now on: this one, counted from the first
    /// bit of the operation's range on. A read sees it, too.
    Rot(u64),
}

/// What a fault means to those above the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultClass {
    /// A lane hides it.
    Transparent,
    /// It takes longer, and that is all.
    Late,
    /// Somebody is told.
    Failing,
    /// Nobody is told.
    Silent,
}

impl Outcome {
    /// What it means to those above the queue when it strikes an operation of this kind.
    pub fn class(&self, kind: OpKind) -> FaultClass {
        match self {
            // None of a flush's errors is hidden.
            Self::Errno(libc::EAGAIN | libc::EINTR | libc::ECANCELED) if kind != OpKind::Flush => {
                FaultClass::Transparent
            }
            Self::Short(_) => FaultClass::Transparent,
            Self::Late(_) => FaultClass::Late,
            Self::Errno(_) | Self::Gone => FaultClass::Failing,
            Self::Ignored | Self::Torn | Self::Misdirected(_) | Self::Rot(_) => FaultClass::Silent,
        }
    }

    /// The kind of fault, without its numbers.
    pub fn kind(&self) -> String {
        match self {
            Self::Errno(_) | Self::Gone | Self::Ignored | Self::Torn => self.to_string(),
            Self::Short(_) => "short".to_owned(),
            Self::Late(_) => "late".to_owned(),
            Self::Misdirected(_) => "misdirected".to_owned(),
            Self::Rot(_) => "rot".to_owned(),
        }
    }
}

/// How often something went wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Struck(BTreeMap<(FaultClass, String), u64>);

impl Struck {
    pub(super) fn add(&mut self, kind: OpKind, outcome: &Outcome) {
        let key = (outcome.class(kind), format!("{kind} {}", outcome.kind()));
        *self.0.entry(key).or_default() += 1;
    }

    /// How often something of this class did.
    pub fn count(&self, class: FaultClass) -> u64 {
        let of_class = self.0.iter().filter(|((other, _), _)| *other == class);
        of_class.map(|(_, count)| count).sum()
    }

    /// How often a write, a flush or the like failed.
    pub fn count_changing(&self) -> u64 {
        let failing = self.0.iter().filter(|((class, fault), _)| {
            *class == FaultClass::Failing && !fault.starts_with("read")
        });
        failing.map(|(_, count)| count).sum()
    }

    /// Adds what went wrong elsewhere.
    pub fn merge(&mut self, other: &Self) {
        for (key, count) in &other.0 {
            *self.0.entry(key.clone()).or_default() += count;
        }
    }
}

impl fmt::Display for Struck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for ((_, fault), count) in &self.0 {
            write!(f, "{comma}{fault}: {count}")?;
            comma = ", ";
        }
        if comma.is_empty() {
            f.write_str("none")
        } else {
            Ok(())
        }
    }
}

/// A rule: which operations end how. The oldest rule that matches decides.
///
/// ```
/// use swath_engine::OpKind;
/// use swath_tests::sim::Fault;
///
/// // The third write to "b" fails, once.
/// let fault = Fault::errno(5).of(OpKind::Write).on("b").after(2).times(1);
/// assert_eq!(fault.to_string(), "write on b, after 2, 1 time: Input/output error (os error 5)");
/// // A sector that cannot be read.
/// let _ = Fault::errno(5).of(OpKind::Read).on("a").within(1 << 20..(1 << 20) + 512);
/// // Every seventh transfer is short.
/// let _ = Fault::short(512).every(7);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    outcome: Outcome,
    kind: Option<OpKind>,
    device: Option<PathBuf>,
    place: Option<Range<u64>>,
    after: u64,
    every: u64,
    times: u64,
    /// How many operations matched.
    seen: u64,
}

impl Fault {
    /// Every operation of every device ends with `outcome`.
    pub const fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            kind: None,
            device: None,
            place: None,
            after: 0,
            every: 1,
            times: u64::MAX,
            seen: 0,
        }
    }

    /// Every operation of every device ends with an error number.
    pub const fn errno(errno: i32) -> Self {
        Self::new(Outcome::Errno(errno))
    }

    /// Every transfer of every device ends after `bytes`.
    pub const fn short(bytes: u64) -> Self {
        Self::new(Outcome::Short(bytes))
    }

    /// The device goes away with the first operation.
    pub const fn gone() -> Self {
        Self::new(Outcome::Gone)
    }

    /// Every operation takes so much simulated time at least.
    pub const fn late(nanoseconds: u64) -> Self {
        Self::new(Outcome::Late(nanoseconds))
    }

    /// Every write is acknowledged and not stored.
    pub fn lost_write() -> Self {
        Self::new(Outcome::Ignored).of(OpKind::Write)
    }

    /// Every flush is acknowledged and makes nothing durable.
    pub fn lying_flush() -> Self {
        Self::new(Outcome::Ignored).of(OpKind::Flush)
    }

    /// Every write is acknowledged and stored in part.
    pub fn torn_write() -> Self {
        Self::new(Outcome::Torn).of(OpKind::Write)
    }

    /// Only operations of this kind.
    #[must_use]
    pub fn of(self, kind: OpKind) -> Self {
        Self {
            kind: Some(kind),
            ..self
        }
    }

    /// Only operations on the device of this path.
    #[must_use]
    pub fn on(self, device: impl AsRef<Path>) -> Self {
        Self {
            device: Some(device.as_ref().to_path_buf()),
            ..self
        }
    }

    /// Only operations that touch this range of their device. A flush touches none.
    #[must_use]
    pub fn within(self, place: Range<u64>) -> Self {
        Self {
            place: Some(place),
            ..self
        }
    }

    /// Only after so many operations that match.
    #[must_use]
    pub fn after(self, count: u64) -> Self {
        Self {
            after: count,
            ..self
        }
    }

    /// Only each `period`th of the operations that match.
    ///
    /// # Panics
    ///
    /// When the period is zero.
    #[must_use]
    pub fn every(self, period: u64) -> Self {
        assert!(period > 0, "a period is at least one");
        Self {
            every: period,
            ..self
        }
    }

    /// Only so many times.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self {
            times: count,
            ..self
        }
    }

    /// How an operation ends by this rule, which counts it.
    pub(super) fn strike(
        &mut self,
        kind: OpKind,
        device: &Path,
        range: Range<u64>,
    ) -> Option<Outcome> {
        let touches = |place: &Range<u64>| place.start < range.end && range.start < place.end;
        let matches = self.kind.is_none_or(|wanted| wanted == kind)
            && self.device.as_deref().is_none_or(|wanted| wanted == device)
            && self.place.as_ref().is_none_or(touches);
        if !matches {
            return None;
        }
        self.seen += 1;
        if self.seen <= self.after || !(self.seen - self.after - 1).is_multiple_of(self.every) {
            return None;
        }
        self.times = self.times.checked_sub(1)?;
        Some(self.outcome)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Some(kind) => write!(f, "{kind}")?,
            None => f.write_str("anything")?,
        }
        if let Some(device) = &self.device {
            write!(f, " on {}", device.display())?;
        }
        if let Some(place) = &self.place {
            write!(f, " in {}..{}", place.start, place.end)?;
        }
        if self.after > 0 {
            write!(f, ", after {}", self.after)?;
        }
        if self.every > 1 {
            write!(f, ", every {}", self.every)?;
        }
        match self.times {
            u64::MAX => {}
            1 => f.write_str(", 1 time")?,
            times => write!(f, ", {times} times")?,
        }
        write!(f, ": {}", self.outcome)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(errno) => write!(f, "{}", io::Error::from_raw_os_error(*errno)),
            Self::Short(bytes) => write!(f, "short, {bytes} bytes"),
            Self::Gone => f.write_str("the device goes away"),
            Self::Late(nanoseconds) => write!(f, "late by {nanoseconds} ns"),
            Self::Ignored => f.write_str("acknowledged, not done"),
            Self::Torn => f.write_str("acknowledged, torn"),
            Self::Misdirected(offset) => write!(f, "misdirected to {offset}"),
            Self::Rot(bit) => write!(f, "bit {bit} rots"),
        }
    }
}
