//! [`Scenario`]: a store on simulated members, two commits to it, and what is seen before and after
//! each.
//!
//! Everything is as small as the format allows, so that a state is opened in no time, and no sector
//! is blank before it is written: the drive was used before. The rings of root records have gone
//! round, so that a torn record is one of new and old sectors, all of which differ.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use rand::RngExt;
use swath_checkpoint::{BeginOptions, CheckpointName, FormatOptions, Store, StoreOptions, Uuid};
use swath_engine::Geometry;
use swath_tests::checkpoints::{self, Tensor};
use swath_tests::seed::Seed;
use swath_tests::sim::{Event, Image, SimPlatform, SimWorld};
use swath_volume::{CreateOptions, OpenOptions, ROOT_BYTES_MAX, Volume};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// What a member has at each end, and where in it the ring of root records is
/// (docs/ON_DISK_FORMAT.md).
const END_BYTES: u64 = 2 * MIB;
const RING_BYTES: u64 = 256 * KIB;
const HEAD_RING: u64 = MIB + 128 * KIB;
const RING_SLOTS: u64 = 64;

/// The smallest chunk.
const CHUNK_BYTES: u64 = 4096;

/// Chunks of the whole volume: what two commits of tiny checkpoints and their catalogs need.
const CHUNKS: u64 = 30;

/// The checkpoints, by their steps: the one that is there at first and is replaced by the second
/// commit, that of the first commit, and one more.
const BASE: u64 = 10;
const ONE: u64 = 11;
pub(crate) const MORE: u64 = 12;

/// What a store holds: checkpoints in the order of their commits.
pub(crate) type Holds = Vec<(CheckpointName, Vec<Tensor>)>;

/// What kind of members, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) members: usize,
    pub(crate) block_bytes: u32,
    /// What is written as a whole or not at all.
    pub(crate) tear_bytes: u64,
    /// Whether the rings of root records have gone round; else they are blank behind the first few.
    pub(crate) rings_are_full: bool,
}

/// A recorded run.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) kind: Kind,
    pub(crate) tear_bytes: u64,
    pub(crate) seed: u64,
    pub(crate) geometry: Geometry,
    pub(crate) paths: Vec<PathBuf>,
    /// The members when the recording begins.
    pub(crate) images: Vec<Image>,
    pub(crate) events: Vec<Event>,
    /// What the store holds before the first commit, after it, and after the second.
    pub(crate) holds: [Holds; 3],
}

impl Scenario {
    pub(crate) fn record(kind: Kind, seed: &Seed) -> Self {
        let bytes = CHUNKS.div_ceil(kind.members as u64) * CHUNK_BYTES + 2 * END_BYTES;
        let geometry = Geometry::uniform(bytes, kind.block_bytes);
        let world = SimWorld::of(
            seed.value(),
            std::iter::repeat_n(geometry.clone(), kind.members),
        );
        let mut rng = seed.rng();
        let mut used = vec![0; (bytes - 2 * END_BYTES) as usize];
        for path in world.paths() {
            rng.fill(&mut used[..]);
            world.sim().poke(path, END_BYTES, &used);
        }
        let options = CreateOptions {
            chunk_bytes: CHUNK_BYTES,
            uuid: Uuid::from_u128(7),
            created_unix_s: 1,
            ..CreateOptions::default()
        };
        let volume = Volume::create_on(world.platform(), world.paths(), &options).unwrap();
        if kind.rings_are_full {
            let mut payload = vec![0; ROOT_BYTES_MAX];
            for _ in 0..RING_SLOTS + 1 {
                rng.fill(&mut payload[..]);
                volume.commit_root(&payload).unwrap();
            }
        }
        let format = FormatOptions {
            force: true,
            store_uuid: Uuid::from_u128(8),
            store: store_options(),
        };
        let store = Store::format(volume, &format).unwrap();
        let base: Holds = vec![(BASE.into(), tensors(1))];
        save(&store, BASE, &base[0].1, false, || {});

        for path in world.paths() {
            assert!(world.sim().is_clean(path), "a commit ends with a flush");
        }
        let images = images_of(world.sim(), world.paths());
        world.sim().record();
        for (step, seed, replace) in [(ONE, 2, false), (BASE, 3, true)] {
            world.sim().mark("data");
            save(&store, step, &tensors(seed), replace, || {
                world.sim().mark("commit");
            });
            world.sim().mark("acknowledged");
        }
        let events = world.sim().take_recording();
        let first: Holds = vec![base[0].clone(), (ONE.into(), tensors(2))];
        let second: Holds = vec![first[1].clone(), (BASE.into(), tensors(3))];
        Self {
            kind,
            tear_bytes: kind.tear_bytes,
            seed: seed.value(),
            geometry,
            paths: world.paths().to_vec(),
            images,
            events,
            holds: [base, first, second],
        }
    }

    /// Where the members' data is.
    pub(crate) fn data_area(&self) -> Range<u64> {
        END_BYTES..self.geometry.capacity_bytes - END_BYTES
    }

    pub(crate) fn is_data_area(&self, offset: u64) -> bool {
        self.data_area().contains(&offset)
    }

    /// Whether a place belongs to a ring of root records.
    pub(crate) fn is_root(&self, offset: u64) -> bool {
        let tail = self.data_area().end;
        (HEAD_RING..HEAD_RING + RING_BYTES).contains(&offset)
            || (tail..tail + RING_BYTES).contains(&offset)
    }

    /// Every open for writing leaves one history in both rings of every member: the first slot that
    /// does not hold the same record everywhere, and where.
    pub(crate) fn odd_record(&self, images: &[Image]) -> Option<(u64, usize)> {
        // Epoch and sequence; previous, payload. The rest says where a copy belongs.
        let shared = [56..72, 80..4092];
        let record = |image: &Image, ring: u64, slot: u64| {
            let mut record = [0; 4096];
            image.read(ring + slot * 4096, &mut record);
            record
        };
        for slot in 0..RING_SLOTS {
            let first = record(&images[0], HEAD_RING, slot);
            for (member, image) in images.iter().enumerate() {
                for ring in [HEAD_RING, self.data_area().end] {
                    let other = record(image, ring, slot);
                    if shared
                        .iter()
                        .any(|part| first[part.clone()] != other[part.clone()])
                    {
                        return Some((slot, member));
                    }
                }
            }
        }
        None
    }

    /// A platform with these members, as they are when the power comes back.
    pub(crate) fn platform(&self, seed: u64, images: &[Image]) -> SimPlatform {
        let platform = SimPlatform::new(seed);
        platform.limit_trace(0);
        for (path, image) in self.paths.iter().zip(images) {
            let store = swath_tests::sim::Store::Kept(image.clone());
            platform.add(path, self.geometry.clone(), store);
        }
        platform
    }

    pub(crate) fn open(
        &self,
        platform: &SimPlatform,
        read_only: bool,
    ) -> swath_checkpoint::Result<Store> {
        let options = OpenOptions {
            read_only,
            ..OpenOptions::default()
        };
        let volume = Volume::open_on(Arc::new(platform.clone()), &self.paths, &options)?;
        Store::open(volume, &store_options())
    }
}

pub(crate) fn images_of(platform: &SimPlatform, paths: &[PathBuf]) -> Vec<Image> {
    paths.iter().map(|path| platform.image(path)).collect()
}

/// As little memory as there can be: it is mapped anew for each state.
fn store_options() -> StoreOptions {
    StoreOptions {
        depth: 1,
        pool_bytes: 0,
        ..StoreOptions::default()
    }
}

/// Enough tensors that the index has most of a record, in two blocks of data.
fn tensors(mark: u64) -> Vec<Tensor> {
    let length = |number: usize| 90 + number * 3;
    (0..48)
        .map(|number| {
            let name = format!("layers.{number}.weight");
            Tensor::new(name, length(number), mark * 100 + number as u64)
        })
        .collect()
}

fn save(store: &Store, step: u64, tensors: &[Tensor], replace: bool, commits: impl FnOnce()) {
    let bytes: usize = tensors.iter().map(|tensor| tensor.bytes.len()).sum();
    let options = BeginOptions {
        // Else the session takes all there is, and commits once more to have it.
        data_bytes: Some(bytes as u64),
        // So much that the catalog has most of a record, too.
        metadata: vec![("words".to_owned(), "a word ".repeat(220))],
        replace,
        created_unix_s: Some(1),
        ..BeginOptions::default()
    };
    let session = store.begin(step, options).unwrap();
    let mut writer = session.writer().unwrap();
    for tensor in tensors {
        writer
            .put(&tensor.name, tensor.dtype, &tensor.shape, &tensor.bytes)
            .unwrap();
    }
    writer.finish().unwrap();
    commits();
    session.commit().unwrap();
}

/// Another checkpoint, to see that a store that was recovered can go on.
pub(crate) fn save_another(store: &Store) -> swath_checkpoint::Result<Vec<Tensor>> {
    let tensors = vec![Tensor::new("more", 5000, 9)];
    checkpoints::save(store, MORE, &tensors)?;
    Ok(tensors)
}
