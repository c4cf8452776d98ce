//! Root records torn in every way, and the newest lost altogether.

use std::sync::Arc;

use rand::RngExt;
use swath_engine::{Geometry, OpKind};
use swath_tests::seed::Seed;
use swath_tests::sim::{Event, Image, SimPlatform, SimWorld, Store, Submitted};
use swath_volume::{CreateOptions, ErrorKind, OpenOptions, ROOT_BYTES_MAX, Result, Volume};

use super::check::look;
use super::scenario::{Kind, Scenario, images_of};

/// What is on the members before a commit, and the writes of it: first those of record A on each
/// member, then those of record B.
struct Commit {
    world: SimWorld,
    images: Vec<Image>,
    writes: Vec<Arc<Submitted>>,
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Commit {
    /// After enough others that the slots it writes to held records before.
    fn new(members: usize, seed: &Seed) -> Self {
        let geometry = Geometry::uniform(5 << 20, 512);
        let world = SimWorld::of(seed.value(), std::iter::repeat_n(geometry, members));
        let options = CreateOptions {
            chunk_bytes: 4096,
            ..CreateOptions::default()
        };
        let volume = Volume::create_on(world.platform(), world.paths(), &options).unwrap();
        let mut rng = seed.rng();
        let mut payload = || {
            let mut payload = vec![0; ROOT_BYTES_MAX];
            rng.fill(&mut payload[..]);
            payload
        };
        let mut before = Vec::new();
        for _ in 0..70 {
            before = payload();
            volume.commit_root(&before).unwrap();
        }
        let images = images_of(world.sim(), world.paths());
        world.sim().record();
        let after = payload();
        volume.commit_root(&after).unwrap();
        let writes = world.sim().take_recording().into_iter();
        let writes: Vec<_> = writes
            .filter_map(|event| match event {
                Event::Submitted(op) if op.kind == OpKind::Write => Some(op),
                _ => None,
            })
            .collect();
        assert_eq!(writes.len(), 2 * members);
        Self {
            world,
            images,
            writes,
            before,
            after,
        }
    }

    /// The members with the sectors of some of its writes: a byte for each, a bit for each sector.
    fn torn(&self, kept: &[u8]) -> Vec<Image> {
        let mut images = self.images.clone();
        for (write, kept) in self.writes.iter().zip(kept) {
            for (bit, sector) in write.bytes.chunks_exact(512).enumerate() {
                if kept >> bit & 1 == 1 {
                    let offset = write.offset + 512 * bit as u64;
                    images[write.device].write(offset, sector);
                }
            }
        }
        images
    }

    fn open(&self, images: &[Image]) -> Result<Volume> {
        let platform = SimPlatform::new(1);
        for (path, image) in self.world.paths().iter().zip(images) {
            let geometry = self.world.sim().devices()[0].1.clone();
            platform.add(path, geometry, Store::Kept(image.clone()));
        }
        let options = OpenOptions::default();
        Volume::open_on(Arc::new(platform), self.world.paths(), &options)
    }
}

/// All 256 tears of a record, on one member while the others have nothing of it, and on all alike.
#[test]
fn a_torn_record_is_the_one_before() {
    let seed = Seed::new();
    for members in 1..=3 {
        let commit = Commit::new(members, &seed);
        for tear in 0..=255 {
            let is_whole = tear == 255;
            let wanted = if is_whole {
                &commit.after
            } else {
                &commit.before
            };
            let alone = vec![tear];
            let alike = vec![tear; members];
            for kept in [alone, alike] {
                let volume = commit.open(&commit.torn(&kept)).unwrap();
                assert_eq!(&volume.root().unwrap().payload, wanted, "{kept:?}");
            }
            // When record A is there, it does not matter what there is of B.
            let mut kept = vec![255; members];
            kept.extend(vec![tear; members]);
            let volume = commit.open(&commit.torn(&kept)).unwrap();
            assert_eq!(volume.root().unwrap().payload, commit.after, "{kept:?}");
        }
    }
}

/// Of the copies in both rings of all members any one will do, also where it is the only record B.
#[test]
fn one_copy_of_the_newest_record_is_enough() {
    let seed = Seed::new();
    for members in 1..=3 {
        let commit = Commit::new(members, &seed);
        let all = vec![255; 2 * members];
        for good in 0..2 * members {
            let mut images = commit.torn(&all);
            for (number, write) in commit.writes.iter().enumerate() {
                if number != good {
                    images[write.device].flip(write.offset + 300, 1);
                }
            }
            let volume = commit.open(&images).unwrap();
            assert_eq!(volume.root().unwrap().payload, commit.after, "copy {good}");
        }
    }
}

/// No crash does that. It is not taken for the commit before, which may have been long ago: but
/// everything that one leads to is still there, for whoever asks. Also when another commit is about
/// to write its record: it has not written over what the lost one had freed.
#[test]
fn when_the_newest_record_is_lost_everywhere_the_one_before_can_be_read() {
    let seed = Seed::new();
    for members in 1..=3 {
        let kind = Kind {
            members,
            block_bytes: 512,
            tear_bytes: 512,
            rings_are_full: true,
        };
        let scenario = Scenario::record(kind, &seed);
        let open = |images: &[Image], read_only| {
            let platform = scenario.platform(1, images);
            scenario.open(&platform, read_only)
        };
        let lose_newest = |images: &[Image], records: &[(usize, u64)], commit: usize| {
            look(&open(images, false).unwrap(), &scenario.holds[commit]).unwrap();
            let mut images = images.to_vec();
            for &(device, offset) in &records[records.len() - 2 * members..] {
                images[device].flip(offset + 300, 1);
            }
            let error = open(&images, false).unwrap_err();
            let kind = error.volume_error().map(swath_volume::Error::kind);
            assert_eq!(kind, Some(ErrorKind::Damaged), "{error:?}");
            look(&open(&images, true).unwrap(), &scenario.holds[commit - 1]).unwrap();
        };
        let mut images = scenario.images.clone();
        let mut records = Vec::new();
        for event in &scenario.events {
            let Event::Submitted(op) = event else {
                continue;
            };
            if op.kind == OpKind::Write {
                if scenario.is_root(op.offset) {
                    if records.len() == 2 * members {
                        lose_newest(&images, &records, 1);
                    }
                    records.push((op.device, op.offset));
                }
                images[op.device].write(op.offset, &op.bytes);
            }
        }
        assert_eq!(records.len(), 4 * members, "two commits");
        lose_newest(&images, &records, 2);
    }
}
