//! [`FaultPlan`]: faults drawn from a seed, as a list that can be printed.
//!
//! A plan is drawn before anything runs: "the 17th write on m1 fails". So it can be read, and a test
//! that fails can be run again with a part of the plan to find out what matters.

use std::fmt;
use std::path::PathBuf;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use swath_engine::{Geometry, OpKind};

use super::faults::{Fault, Outcome};

/// Draws one fault of a class.
type Draw = fn(&mut ChaCha8Rng, &Geometry) -> (OpKind, Outcome);

/// How many faults of each class a plan has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultMix {
    /// What a lane hides: short transfers, `EAGAIN`, `EINTR`, `ECANCELED`.
    pub transparent: u32,
    /// Operations that take from a millisecond to a minute.
    pub late: u32,
    /// What is told: `EIO`, `ENOSPC`, a device that goes away.
    pub failing: u32,
    /// What is not told: lost, torn and misdirected writes, misdirected reads, rotten bits, flushes
    /// that lie.
    pub silent: u32,
    /// The number of the last operation of its kind on its device that may be struck.
    pub last: u64,
}

impl FaultMix {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        transparent: 0,
        late: 0,
        failing: 0,
        silent: 0,
        last: 1000,
    };
}

/// Faults drawn from a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultPlan {
    /// What it was drawn from.
    pub seed: u64,
    /// The faults, each of which strikes once.
    pub faults: Vec<Fault>,
}

impl FaultPlan {
    /// Draws a plan for these devices.
    ///
    /// # Panics
    ///
    /// When there are no devices.
    pub fn draw(seed: u64, devices: &[(PathBuf, Geometry)], mix: &FaultMix) -> Self {
        assert!(!devices.is_empty(), "faults are of a device");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let classes: [(u32, Draw); 4] = [
            (mix.transparent, transparent),
            (mix.late, late),
            (mix.failing, failing),
            (mix.silent, silent),
        ];
        let mut faults = Vec::new();
        for (count, draw) in classes {
            for _ in 0..count {
                let (path, geometry) = &devices[rng.random_range(0..devices.len())];
                let (kind, outcome) = draw(&mut rng, geometry);
                let number = rng.random_range(0..=mix.last);
                faults.push(Fault::new(outcome).of(kind).on(path).after(number).times(1));
            }
        }
        Self { seed, faults }
    }
}

fn any_kind(rng: &mut ChaCha8Rng) -> OpKind {
    [OpKind::Read, OpKind::Write, OpKind::Flush][rng.random_range(0..3)]
}

fn transparent(rng: &mut ChaCha8Rng, geometry: &Geometry) -> (OpKind, Outcome) {
    let errno = [libc::EAGAIN, libc::EINTR, libc::ECANCELED][rng.random_range(0..3)];
    if rng.random() {
        // No flush: none of its errors is hidden.
        let kind = [OpKind::Read, OpKind::Write, OpKind::Write][rng.random_range(0..3)];
        return (kind, Outcome::Errno(errno));
    }
    let kind = [OpKind::Read, OpKind::Write][rng.random_range(0..2)];
    let blocks = rng.random_range(1..64);
    let bytes = blocks * u64::from(geometry.logical_block_bytes);
    (kind, Outcome::Short(bytes))
}

fn late(rng: &mut ChaCha8Rng, _: &Geometry) -> (OpKind, Outcome) {
    let magnitude = rng.random_range(6..11_u32);
    let nanoseconds = rng.random_range(1..7) * 10_u64.pow(magnitude);
    (any_kind(rng), Outcome::Late(nanoseconds))
}

fn failing(rng: &mut ChaCha8Rng, _: &Geometry) -> (OpKind, Outcome) {
    match rng.random_range(0..6) {
        0 => (any_kind(rng), Outcome::Gone),
        1 => (OpKind::Write, Outcome::Errno(libc::ENOSPC)),
        2 => (any_kind(rng), Outcome::Errno(libc::ENODEV)),
        3 => (OpKind::Flush, Outcome::Errno(libc::EINTR)),
        _ => (any_kind(rng), Outcome::Errno(libc::EIO)),
    }
}

fn silent(rng: &mut ChaCha8Rng, geometry: &Geometry) -> (OpKind, Outcome) {
    let block_bytes = u64::from(geometry.logical_block_bytes);
    let elsewhere = rng.random_range(0..geometry.capacity_bytes / block_bytes) * block_bytes;
    match rng.random_range(0..6) {
        0 => (OpKind::Write, Outcome::Ignored),
        1 => (OpKind::Flush, Outcome::Ignored),
        2 => (OpKind::Write, Outcome::Torn),
        3 => (OpKind::Write, Outcome::Misdirected(elsewhere)),
        4 => (OpKind::Read, Outcome::Misdirected(elsewhere)),
        _ => {
            let kind = [OpKind::Read, OpKind::Write][rng.random_range(0..2)];
            (kind, Outcome::Rot(rng.random_range(0..1 << 20)))
        }
    }
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fault plan of seed {}:", self.seed)?;
        if self.faults.is_empty() {
            f.write_str(" nothing")?;
        }
        for fault in &self.faults {
            write!(f, "\n  {fault}")?;
        }
        Ok(())
    }
}
