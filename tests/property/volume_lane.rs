//! A volume against a flat array of bytes: whole blocks, many at once, by a lane.
//!
//! What could go wrong: what the other model test looks for, and completions in an order that the
//! lane did not expect. Requests in flight together never touch each other's bytes, unless all of
//! them read, so that what each must give is known when it is submitted.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestCaseResult;
use swath_engine::{AlignedBuf, Backend, Buffer, Completion, ErrorKind, Kernel, OpKind, Platform};
use swath_tests::fixtures::{self, MIB, Place};
use swath_tests::model::FlatModel;
use swath_tests::seed::check;
use swath_tests::sim::{Fault, SimPlatform};
use swath_volume::{CreateOptions, Volume, VolumeLane};

const MEMBER_BYTES: u64 = 8 * MIB;
const MEMBERS_MAX: usize = 8;
const BLOCK: usize = 4096;

/// A request: where and how long in blocks, and in how many buffers.
#[derive(Debug, Clone)]
struct Wanted {
    kind: OpKind,
    fua: bool,
    place: u64,
    blocks: usize,
    buffers: usize,
}

#[derive(Debug, Clone)]
struct Case {
    members: usize,
    chunk_bytes: u64,
    depth: u32,
    requests: Vec<Wanted>,
}

fn a_case() -> impl Strategy<Value = Case> {
    let kind = prop_oneof![
        8 => Just(OpKind::Read),
        8 => Just(OpKind::Write),
        1 => Just(OpKind::Flush),
        1 => Just(OpKind::Discard),
        1 => Just(OpKind::WriteZeroes),
    ];
    let place = prop_oneof![3 => 0..400_u64, 1 => any::<u64>()];
    let blocks = prop_oneof![4 => 1..=4_usize, 2 => 1..=40_usize, 1 => Just(300)];
    let wanted = (kind, any::<bool>(), place, blocks, 1..=4_usize).prop_map(
        |(kind, fua, place, blocks, buffers)| Wanted {
            kind,
            fua,
            place,
            blocks,
            buffers,
        },
    );
    let chunks = select(vec![4096, 12_288, 65_536, 1 << 20, 4 << 20]);
    let depths = select(vec![1, 3, 16, 128]);
    (1..=MEMBERS_MAX, chunks, depths, vec(wanted, 1..120)).prop_map(
        |(members, chunk_bytes, depth, requests)| Case {
            members,
            chunk_bytes,
            depth,
            requests,
        },
    )
}

/// A request on its way.
struct InFlight {
    token: u64,
    kind: OpKind,
    range: Range<usize>,
}

struct Compared {
    lane: VolumeLane,
    model: FlatModel,
    in_flight: Vec<InFlight>,
    completions: Vec<Completion>,
}

impl Compared {
    fn create(
        platform: Arc<dyn Platform>,
        backend: Backend,
        paths: &[PathBuf],
        case: &Case,
    ) -> Self {
        let chunk_bytes = case.chunk_bytes;
        let options = CreateOptions {
            chunk_bytes,
            force: true,
            ..CreateOptions::default()
        };
        let volume = Volume::create_on(platform, paths, &options).unwrap();
        let mut lane_options = fixtures::lane_options(backend);
        lane_options.queue.depth = case.depth;
        Self {
            lane: volume.lane(&lane_options).unwrap(),
            model: FlatModel::unknown(volume.capacity_bytes() as usize),
            in_flight: Vec::new(),
            completions: Vec::new(),
        }
    }

    fn submit(&mut self, wanted: &Wanted, token: u64) -> TestCaseResult {
        let length = wanted.blocks.min(self.model.len() / BLOCK) * BLOCK;
        let offset = (wanted.place % ((self.model.len() - length) / BLOCK + 1) as u64) as usize;
        let range = offset * BLOCK..offset * BLOCK + length;
        while self
            .in_flight
            .iter()
            .any(|other| collides(other, wanted.kind, &range))
        {
            self.wait(1)?;
        }
        let place = range.start as u64;
        match wanted.kind {
            OpKind::Read => self
                .lane
                .read(place, buffers(&vec![0xa5; length], wanted), token),
            OpKind::Write => {
                let mut bytes = vec![0; length];
                swath_engine::fill_incompressible(&mut bytes, token, 0);
                self.model.write(range.start, &bytes);
                if wanted.fua {
                    self.lane.write_fua(place, buffers(&bytes, wanted), token);
                } else {
                    self.lane.write(place, buffers(&bytes, wanted), token);
                }
            }
            OpKind::Flush => self.lane.flush(token),
            OpKind::Discard => {
                self.model.discard(range.clone());
                self.lane.discard(place, length as u64, token);
            }
            OpKind::WriteZeroes => {
                self.model.write_zeroes(range.clone());
                self.lane.write_zeroes(place, length as u64, token);
            }
        }
        self.in_flight.push(InFlight {
            token,
            kind: wanted.kind,
            range,
        });
        Ok(())
    }

    /// Waits for some completions, or only looks for them, and checks what came.
    fn wait(&mut self, min: usize) -> TestCaseResult {
        self.lane.wait(min, &mut self.completions)?;
        for completion in self.completions.drain(..) {
            let found = self
                .in_flight
                .iter()
                .position(|one| one.token == completion.token);
            let Some(found) = found else {
                return Err(TestCaseError::fail(format!(
                    "{} came twice",
                    completion.token
                )));
            };
            let InFlight { kind, range, .. } = self.in_flight.swap_remove(found);
            prop_assert_eq!(completion.kind, kind);
            match completion.result {
                Ok(bytes) if kind == OpKind::Flush => prop_assert_eq!(bytes, 0),
                Ok(bytes) => prop_assert_eq!(bytes, range.len() as u64),
                Err(error) => {
                    prop_assert_eq!(error.kind(), ErrorKind::Unsupported, "{}", error);
                    // Some members may have done it before another said that it cannot.
                    self.model.discard(range.clone());
                }
            }
            if kind == OpKind::Read {
                let bytes: Vec<u8> = completion
                    .buffers
                    .iter()
                    .flat_map(|buffer| buffer.as_slice().to_vec())
                    .collect();
                self.model
                    .compare(range.start, &bytes)
                    .map_err(TestCaseError::fail)?;
            }
        }
        Ok(())
    }

    fn run(mut self, requests: &[Wanted]) -> TestCaseResult {
        for (token, wanted) in (0..).zip(requests) {
            self.submit(wanted, token)?;
            if token % 3 == 0 {
                self.wait(0)?;
            }
        }
        while !self.in_flight.is_empty() {
            self.wait(1)?;
        }
        prop_assert_eq!(self.lane.in_flight(), 0);
        let mut bytes = vec![0; self.model.len()];
        self.lane.read_at(&mut bytes, 0)?;
        self.model.compare(0, &bytes).map_err(TestCaseError::fail)
    }
}

fn collides(other: &InFlight, kind: OpKind, range: &Range<usize>) -> bool {
    let writes = |kind: OpKind| !matches!(kind, OpKind::Read | OpKind::Flush);
    (writes(other.kind) || writes(kind))
        && other.range.start < range.end
        && range.start < other.range.end
}

/// The bytes in several buffers, each of whole blocks.
fn buffers(bytes: &[u8], wanted: &Wanted) -> Vec<Buffer> {
    let each = (bytes.len() / BLOCK).div_ceil(wanted.buffers) * BLOCK;
    bytes
        .chunks(each)
        .map(|part| AlignedBuf::copy_of(part).unwrap().into())
        .collect()
}

fn on_files(place: Place, cases: u32) {
    let Some(folder) = place.folder() else { return };
    let paths = fixtures::members(folder.path(), MEMBERS_MAX, MEMBER_BYTES);
    let backends = select(fixtures::backends());
    check(cases, (a_case(), backends), |(case, backend)| {
        let members = &paths[..case.members];
        Compared::create(Arc::new(Kernel), backend, members, &case).run(&case.requests)
    });
}

#[test]
fn a_lane_over_files_of_a_disk_moves_the_right_blocks() {
    on_files(Place::Disk, 14);
}

#[test]
fn a_lane_over_files_in_memory_moves_the_right_blocks() {
    on_files(Place::Memory, 20);
}

#[test]
fn a_lane_moves_the_right_blocks_in_any_order_of_completions() {
    check(30, (a_case(), any::<u64>()), |(case, seed)| {
        let (platform, paths) = SimPlatform::with_members(seed, case.members, MEMBER_BYTES);
        let platform = Arc::new(platform);
        Compared::create(platform, Backend::Auto, &paths, &case).run(&case.requests)
    });
}

#[test]
fn a_lane_moves_the_right_blocks_through_short_transfers_and_retries() {
    let stops = vec((0..20_000_u64, 0..60_u64, 1..6_u64), 1..60);
    check(
        30,
        (a_case(), any::<u64>(), stops),
        |(case, seed, stops)| {
            let (platform, paths) = SimPlatform::with_members(seed, case.members, MEMBER_BYTES);
            let shared: Arc<SimPlatform> = Arc::new(platform.clone());
            let compared = Compared::create(shared, Backend::Auto, &paths, &case);
            for (bytes, after, times) in stops {
                let fault = if bytes % 5 == 0 {
                    let kind = [OpKind::Read, OpKind::Write][after as usize % 2];
                    Fault::errno(libc::EAGAIN).of(kind)
                } else {
                    Fault::short(bytes)
                };
                platform.inject(fault.after(after).times(times));
            }
            compared.run(&case.requests)
        },
    );
}
