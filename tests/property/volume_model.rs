//! A volume against a flat array of bytes: any bytes at any offset, by the blocking calls.
//!
//! What could go wrong: anything between the caller's bytes and the media. Each case makes a volume
//! of some members and chunk, does a series of things to it, and compares all it reads.

use std::io::{IoSlice, IoSliceMut};
use std::path::PathBuf;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestCaseResult;
use swath_engine::{Backend, Kernel, OpKind, Platform};
use swath_tests::fixtures::{self, MIB, Place};
use swath_tests::model::FlatModel;
use swath_tests::seed::check;
use swath_tests::sim::{Fault, SimPlatform};
use swath_volume::{CreateOptions, ErrorKind, OpenOptions, Volume};

const MEMBER_BYTES: u64 = 8 * MIB;
const MEMBERS_MAX: usize = 8;

/// What is done to a volume. Places and lengths are numbers that each volume cuts to its size.
#[derive(Debug, Clone)]
enum Step {
    Write {
        place: u64,
        length: u64,
        mark: u64,
    },
    WriteVectored {
        place: u64,
        lengths: Vec<u64>,
        mark: u64,
    },
    Read {
        place: u64,
        length: u64,
    },
    ReadVectored {
        place: u64,
        lengths: Vec<u64>,
    },
    WriteZeroes {
        place: u64,
        length: u64,
    },
    Discard {
        place: u64,
        length: u64,
    },
    Flush,
    Reopen {
        order: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Places near each other, so that ranges meet; and anywhere, and at the end.
    let place = || prop_oneof![2 => 0..200_000_u64, 1 => any::<u64>(), 1 => Just(u64::MAX)];
    let length = || {
        prop_oneof![
            0..20_u64,
            (0..40_u64).prop_map(|blocks| blocks * 512),
            0..100_000_u64,
            Just(3 * MIB + 5),
        ]
    };
    let lengths = || {
        vec(
            prop_oneof![0..5_000_u64, (0..8_u64).prop_map(|n| n * 4096)],
            1..5,
        )
    };
    let step = prop_oneof![
        6 => (place(), length(), any::<u64>())
            .prop_map(|(place, length, mark)| Step::Write { place, length, mark }),
        2 => (place(), lengths(), any::<u64>())
            .prop_map(|(place, lengths, mark)| Step::WriteVectored { place, lengths, mark }),
        4 => (place(), length()).prop_map(|(place, length)| Step::Read { place, length }),
        2 => (place(), lengths())
            .prop_map(|(place, lengths)| Step::ReadVectored { place, lengths }),
        1 => (place(), length()).prop_map(|(place, length)| Step::WriteZeroes { place, length }),
        1 => (place(), length()).prop_map(|(place, length)| Step::Discard { place, length }),
        1 => Just(Step::Flush),
        1 => any::<u64>().prop_map(|order| Step::Reopen { order }),
    ];
    vec(step, 1..30)
}

#[derive(Debug, Clone)]
struct Case {
    members: usize,
    chunk_bytes: u64,
    steps: Vec<Step>,
}

fn a_case() -> impl Strategy<Value = Case> {
    let chunks = select(vec![4096, 8192, 12_288, 65_536, 1 << 20, 4 << 20]);
    (1..=MEMBERS_MAX, chunks, steps()).prop_map(|(members, chunk_bytes, steps)| Case {
        members,
        chunk_bytes,
        steps,
    })
}

/// A volume and what it must read as.
struct Compared {
    platform: Arc<dyn Platform>,
    backend: Backend,
    paths: Vec<PathBuf>,
    volume: Option<Volume>,
    model: FlatModel,
}

impl Compared {
    fn create(
        platform: Arc<dyn Platform>,
        backend: Backend,
        paths: &[PathBuf],
        chunk_bytes: u64,
    ) -> Self {
        let options = CreateOptions {
            chunk_bytes,
            force: true,
            handle: fixtures::handle_options(backend),
            ..CreateOptions::default()
        };
        let volume = Volume::create_on(Arc::clone(&platform), paths, &options).unwrap();
        // Members carry what earlier cases left: nobody knows what.
        let model = FlatModel::unknown(volume.capacity_bytes() as usize);
        Self {
            platform,
            backend,
            paths: paths.to_vec(),
            volume: Some(volume),
            model,
        }
    }

    fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("it is open between steps")
    }

    /// A range of the volume.
    fn range(&self, place: u64, length: u64) -> (usize, usize) {
        let capacity = self.model.len() as u64;
        let length = length.min(capacity);
        let offset = if place == u64::MAX {
            capacity
        } else {
            place % capacity
        };
        (offset.min(capacity - length) as usize, length as usize)
    }

    /// A range of whole blocks.
    fn blocks(&self, place: u64, length: u64) -> (usize, usize) {
        let block = self.volume().block_bytes() as usize;
        let (offset, length) = self.range(place, length);
        (offset - offset % block, length - length % block)
    }

    fn take(&mut self, step: &Step) -> TestCaseResult {
        match step {
            Step::Write {
                place,
                length,
                mark,
            } => {
                let (offset, length) = self.range(*place, *length);
                let bytes = pattern(length, *mark);
                self.volume().write_at(&bytes, offset as u64)?;
                self.model.write(offset, &bytes);
            }
            Step::WriteVectored {
                place,
                lengths,
                mark,
            } => {
                let (offset, length) = self.range(*place, lengths.iter().sum());
                let bytes = pattern(length, *mark);
                let mut pieces = Vec::new();
                let mut rest = &bytes[..];
                for length in lengths {
                    let (piece, left) = rest.split_at((*length as usize).min(rest.len()));
                    pieces.push(IoSlice::new(piece));
                    rest = left;
                }
                self.volume().write_vectored_at(&pieces, offset as u64)?;
                self.model.write(offset, &bytes);
            }
            Step::Read { place, length } => {
                let (offset, length) = self.range(*place, *length);
                self.compare(offset, length)?;
            }
            Step::ReadVectored { place, lengths } => {
                let (offset, length) = self.range(*place, lengths.iter().sum());
                let mut bytes = vec![0xa5; length];
                let mut pieces = Vec::new();
                let mut rest = &mut bytes[..];
                for length in lengths {
                    let (piece, left) = rest.split_at_mut((*length as usize).min(rest.len()));
                    pieces.push(IoSliceMut::new(piece));
                    rest = left;
                }
                self.volume().read_vectored_at(&mut pieces, offset as u64)?;
                self.model
                    .compare(offset, &bytes)
                    .map_err(TestCaseError::fail)?;
            }
            Step::WriteZeroes { place, length } => {
                let (offset, length) = self.blocks(*place, *length);
                if is_supported(self.volume().write_zeroes(offset as u64, length as u64))? {
                    self.model.write_zeroes(offset..offset + length);
                }
            }
            Step::Discard { place, length } => {
                let (offset, length) = self.blocks(*place, *length);
                if is_supported(self.volume().discard(offset as u64, length as u64))? {
                    self.model.discard(offset..offset + length);
                }
            }
            Step::Flush => self.volume().flush()?,
            Step::Reopen { order } => self.reopen(*order)?,
        }
        Ok(())
    }

    /// Closes it, and opens it with its members in another order.
    fn reopen(&mut self, order: u64) -> TestCaseResult {
        self.volume.take().unwrap().close()?;
        let count = self.paths.len();
        self.paths.rotate_left(order as usize % count);
        self.paths.swap(0, (order >> 32) as usize % count);
        let options = OpenOptions {
            handle: fixtures::handle_options(self.backend),
            ..OpenOptions::default()
        };
        let platform = Arc::clone(&self.platform);
        self.volume = Some(Volume::open_on(platform, &self.paths, &options)?);
        Ok(())
    }

    fn compare(&self, offset: usize, length: usize) -> TestCaseResult {
        let mut bytes = vec![0x5a; length];
        self.volume().read_at(&mut bytes, offset as u64)?;
        self.model
            .compare(offset, &bytes)
            .map_err(TestCaseError::fail)
    }

    fn run(mut self, steps: &[Step]) -> TestCaseResult {
        for step in steps {
            self.take(step)?;
        }
        self.reopen(1)?;
        self.compare(0, self.model.len())
    }
}

fn pattern(length: usize, mark: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    swath_engine::fill_incompressible(&mut bytes, mark, 0);
    bytes
}

/// Whether it was done; what a device cannot do changes nothing.
fn is_supported(result: swath_volume::Result<()>) -> swath_volume::Result<bool> {
    match result {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
        other => other.map(|()| true),
    }
}

fn on_files(place: Place, cases: u32) {
    let Some(folder) = place.folder() else { return };
    let paths = fixtures::members(folder.path(), MEMBERS_MAX, MEMBER_BYTES);
    let backends = select(fixtures::backends());
    check(cases, (a_case(), backends), |(case, backend)| {
        let members = &paths[..case.members];
        let platform = Arc::new(Kernel);
        Compared::create(platform, backend, members, case.chunk_bytes).run(&case.steps)
    });
}

#[test]
fn a_volume_on_files_of_a_disk_is_a_flat_array_of_bytes() {
    on_files(Place::Disk, 16);
}

#[test]
fn a_volume_on_files_in_memory_is_a_flat_array_of_bytes() {
    on_files(Place::Memory, 24);
}

#[test]
fn a_volume_on_simulated_devices_is_a_flat_array_of_bytes() {
    check(36, (a_case(), any::<u64>()), |(case, seed)| {
        let (platform, paths) = SimPlatform::with_members(seed, case.members, MEMBER_BYTES);
        let platform = Arc::new(platform);
        Compared::create(platform, Backend::Auto, &paths, case.chunk_bytes).run(&case.steps)
    });
}

#[test]
fn short_transfers_and_retries_do_not_show() {
    let stops = vec(
        (
            prop_oneof![0..5_000_u64, Just(512), Just(4096)],
            0..40_u64,
            1..4_u64,
        ),
        1..40,
    );
    check(
        36,
        (a_case(), any::<u64>(), stops),
        |(case, seed, stops)| {
            let (platform, paths) = SimPlatform::with_members(seed, case.members, MEMBER_BYTES);
            let shared: Arc<SimPlatform> = Arc::new(platform.clone());
            let compared = Compared::create(shared, Backend::Auto, &paths, case.chunk_bytes);
            for (bytes, after, times) in stops {
                let errno = [libc::EAGAIN, libc::EINTR, libc::ECANCELED][bytes as usize % 3];
                let fault = if bytes % 2 == 0 {
                    let kind = [OpKind::Read, OpKind::Write][after as usize % 2];
                    Fault::errno(errno).of(kind)
                } else {
                    Fault::short(bytes)
                };
                platform.inject(fault.after(after).times(times));
            }
            compared.run(&case.steps)
        },
    );
}
