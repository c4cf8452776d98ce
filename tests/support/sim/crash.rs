//! The crash of a platform: the power fails, and devices keep what is durable and some of the rest.

use std::collections::BTreeMap;
use std::path::Path;

use rand::RngExt;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use swath_engine::OpKind;

use super::flight::InFlight;
use super::image::{Image, size};
use super::media::{Media, Store};
use super::platform::SimPlatform;

/// How long devices are without power.
const OFF_NS: u64 = 1_000_000_000;

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
        let seed = self.0.state.lock().rng.random();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // By operation: in whole, in part, or not at all.
        let mut shares = BTreeMap::new();
        self.crash_keeping(|sector| match sector.operation {
            None => rng.random(),
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

    /// As [`crash`](Self::crash), but what is not durable is kept where `keep` says so. It is asked
    /// once for each sector in the cache, then for each sector of each write in flight.
    #[must_use]
    pub fn crash_keeping(&self, mut keep: impl FnMut(&Unsafe<'_>) -> bool) -> Self {
        let mut guard = self.0.state.lock();
        let state = &mut *guard;
        let after = Self::new(state.rng.random());
        {
            let mut next = after.0.state.lock();
            next.now_ns = state.now_ns + OFF_NS;
            next.operations = state.operations;
            for media in state.media.values() {
                let mut in_flight: Vec<_> = state
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
        state.is_off = true;
        self.0.moved.notify_all();
        drop(guard);
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
        for (offset, length) in media.units(raw.offset, reachable) {
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
