//! [`Fault`]: what goes wrong, where, when and how often.

use std::path::{Path, PathBuf};

use swath_engine::OpKind;

/// How a simulated operation ends instead of well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With an error number, such as `libc::EIO`. Any number of whole sectors from the start on may
    /// have been transferred before, as with a real drive.
    Errno(i32),
    /// After this many bytes, if it has more.
    Short(u64),
}

/// A rule: which operations end how. The oldest rule that matches decides.
///
/// ```
/// use swath_engine::OpKind;
/// use swath_tests::sim::Fault;
///
/// // The third write to "b" fails, once.
/// let fault = Fault::errno(5).of(OpKind::Write).on("b").after(2).times(1);
/// ```
#[derive(Debug, Clone)]
pub struct Fault {
    outcome: Outcome,
    kind: Option<OpKind>,
    device: Option<PathBuf>,
    after: u64,
    times: u64,
}

impl Fault {
    /// Every operation of every device ends with `outcome`.
    pub const fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            kind: None,
            device: None,
            after: 0,
            times: u64::MAX,
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

    /// Only after so many operations that match.
    #[must_use]
    pub fn after(self, count: u64) -> Self {
        Self {
            after: count,
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
    pub(super) fn strike(&mut self, kind: OpKind, device: &Path) -> Option<Outcome> {
        let matches = self.kind.is_none_or(|wanted| wanted == kind)
            && self.device.as_deref().is_none_or(|wanted| wanted == device);
        if !matches {
            return None;
        }
        if self.after > 0 {
            self.after -= 1;
            return None;
        }
        self.times = self.times.checked_sub(1)?;
        Some(self.outcome)
    }
}
