//! The crash of a platform: the power fails, and devices keep what is durable and some of the rest.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rand::RngExt;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use swath_engine::OpKind;

use super::flight::InFlight;
use super::image::{Image, size};
use super::media::{Media, Store};
use super::platform::{SimPlatform, State, World};

/// How long devices are without power.
const OFF_NS: u64 = 1_000_000_000;

/// What ends when the power of a platform is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerCut {
    /// All of it: what is cached may be lost.
    Power,
    /// The process: what was acknowledged stays, what is in flight may not.
    Process,
}

/// A sector that a crash may keep or take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsafe<'a> {
    /// The path of its device.
    pub device: &'a Path,
    /// Its first byte.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
    /// The operation in flight that writes it, by its number; none: it was acknowledged, and is in
    /// the cache.
    pub operation: Option<u64>,
}

impl SimPlatform {
    /// The power fails. What comes back is a platform with the same devices, unlocked, with what is
    /// durable, any of the sectors that were cached, and each write in flight in whole, in part or
    /// not at all; no faults. Devices that were gone are back.
    ///
    /// Whoever has a device of this one open gets `ENODEV` from now on, and has all completions at
    /// once. The seed decides what is kept.
    #[must_use]
    pub fn crash(&self) -> Self {
        let after = self
            .0
            .state
            .lock()
            .crash_by_chance(&self.0, PowerCut::Power);
        self.0.tell();
        after
    }

    /// As [`crash`](Self::crash), but what is not durable is kept where `keep` says so. It is asked
    /// once for each sector in the cache, then for each sector of each write in flight.
    #[must_use]
    pub fn crash_keeping(&self, keep: impl FnMut(&Unsafe<'_>) -> bool) -> Self {
        let after = self.0.state.lock().crash(&self.0, keep);
        self.0.tell();
        after
    }
}

impl State {
    /// The crash of `world`, whose state this is, in which chance says what is kept.
    pub(super) fn crash_by_chance(&mut self, world: &World, how: PowerCut) -> SimPlatform {
        let mut rng = ChaCha8Rng::seed_from_u64(self.rng.random());
        // By operation: in whole, in part, or not at all.
        let mut shares = BTreeMap::new();
        self.crash(world, |sector| match sector.operation {
            None => how == PowerCut::Process || rng.random(),
            Some(number) => {
                let share = shares.entry(number);
                match *share.or_insert_with(|| rng.random_range(0..3)) {
                    0 => false,
                    1 => rng.random(),
                    _ => true,
                }
            }
        })
    }

    fn crash(&mut self, world: &World, mut keep: impl FnMut(&Unsafe<'_>) -> bool) -> SimPlatform {
        let scheduler = world.scheduler.as_ref();
        let scheduler = scheduler.map(|(scheduler, _)| Arc::clone(scheduler));
        let after = SimPlatform::scheduled(self.rng.random(), scheduler);
        {
            let mut next = after.0.state.lock();
            next.now_ns = self.now_ns + OFF_NS;
            next.operations = self.operations;
            for media in self.media.values() {
                let mut in_flight: Vec<_> = self
                    .in_flight
                    .values()
                    .flatten()
                    .filter(|op| op.device == media.number)
                    .collect();
                in_flight.sort_by_key(|op| op.number);
                let store = if media.is_counting {
                    Store::Counting
                } else {
                    Store::Kept(left(media, &in_flight, &mut keep))
                };
                let added = next.add(&media.path, media.geometry.clone(), store);
                added.tear_bytes = media.tear_bytes;
            }
        }
        self.is_off = true;
        after
    }
}

/// What a crash leaves of a device.
fn left(
    media: &Media,
    in_flight: &[&InFlight],
    keep: &mut impl FnMut(&Unsafe<'_>) -> bool,
) -> Image {
    let mut image = media.durable().clone();
    let mut asked = |(offset, length), operation| {
        keep(&Unsafe {
            device: &media.path,
            offset,
            length,
            operation,
        })
    };
    for (offset, length) in media.cached() {
        if asked((offset, length), None) {
            image.copy_from(media.current(), offset, length);
        }
    }
    for op in in_flight {
        let raw = &op.raw;
        if matches!(raw.kind, OpKind::Read | OpKind::Flush) {
            continue;
        }
        let bytes = op.bytes();
        let reachable = media
            .geometry
            .capacity_bytes
            .saturating_sub(raw.offset)
            .min(raw.length);
        // Where there are zeroes, zeroes change nothing; and such a range may be huge.
        let parts = match raw.kind {
            OpKind::Write => vec![(raw.offset, reachable)],
            _ => image.parts(raw.offset, reachable),
        };
        let units = parts
            .into_iter()
            .flat_map(|(offset, length)| media.units(offset, length));
        for (offset, length) in units {
            if !asked((offset, length), Some(op.number)) {
                continue;
            }
            if raw.kind == OpKind::Write {
                let from = size(offset - raw.offset);
                image.write(offset, &bytes[from..from + size(length)]);
            } else {
                image.zero(offset, length);
            }
        }
    }
    image
}
