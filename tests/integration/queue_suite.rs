//! One suite, run against every backend on files of a disk and in memory.
//!
//! What could go wrong: a backend that loses or doubles a completion, keeps a buffer, moves bytes
//! to a wrong place, or lets a request through that the device would refuse. Each test runs on
//! every [`Rig`]; only how the lane was made differs.

mod completions;
mod refused;
mod transfers;

use std::sync::Arc;

use swath_engine::{
    AlignedBuf, Backend, BufPool, Completion, Device, ErrorKind, Kernel, Lane, LaneOptions, OpKind,
    OpenOptions, Platform, QueueOptions, Request, Segment,
};
use swath_tests::fixtures::{self, MIB, Place};
use swath_tests::skipped;
use tempfile::TempDir;

/// What a lane of a rig takes at once.
const DEPTH: u32 = 16;

/// Two devices of this size.
const DEVICE_BYTES: u64 = 10 * MIB;

/// A unit that every device here takes as offset, length and address.
const BLOCK: usize = 4096;

/// A lane over two files, and a pool.
struct Rig {
    lane: Lane,
    devices: Vec<Arc<dyn Device>>,
    options: LaneOptions,
    pool: BufPool,
    _folder: TempDir,
}

impl Rig {
    fn new(backend: Backend, place: Place, registers: bool) -> Option<Self> {
        let folder = place.folder()?;
        let devices: Vec<_> = fixtures::members(folder.path(), 2, DEVICE_BYTES)
            .iter()
            .map(|path| Kernel.open(path, &OpenOptions::read_write()).unwrap())
            .collect();
        let pool = BufPool::new(16 * BLOCK, 24).unwrap();
        let pools = if registers {
            vec![pool.clone()]
        } else {
            Vec::new()
        };
        let queue = QueueOptions {
            backend,
            depth: DEPTH,
            pools,
            ..QueueOptions::default()
        };
        let options = LaneOptions {
            queue,
            ..LaneOptions::default()
        };
        let lane = Lane::open(&Kernel, &devices, &options).unwrap();
        assert_eq!(lane.description().backend, backend);
        Some(Self {
            lane,
            devices,
            options,
            pool,
            _folder: folder,
        })
    }

    /// Submits one request and waits for its completion, which must be the only one.
    #[track_caller]
    fn run(&mut self, request: Request, segments: &[Segment]) -> Completion {
        let (token, kind) = (request.token, request.kind);
        self.lane.submit(request, segments);
        let mut completions = Vec::new();
        assert_eq!(self.lane.wait(1, &mut completions).unwrap(), 1);
        assert_eq!(self.lane.in_flight(), 0);
        let completion = completions.pop().unwrap();
        assert_eq!((completion.token, completion.kind), (token, kind));
        completion
    }

    #[track_caller]
    fn read(&mut self, device: u32, offset: u64, length: usize) -> Vec<u8> {
        let place = [Segment::whole(device, offset, length as u64)];
        let completion = self.run(
            Request::read(AlignedBuf::zeroed(length).unwrap(), 7),
            &place,
        );
        assert_eq!(completion.result.unwrap(), length as u64);
        completion.buffers.into_one().unwrap().as_slice().to_vec()
    }

    #[track_caller]
    fn write(&mut self, device: u32, offset: u64, bytes: &[u8]) {
        let place = [Segment::whole(device, offset, bytes.len() as u64)];
        let buffer = AlignedBuf::copy_of(bytes).unwrap();
        let completion = self.run(Request::write(buffer, 8), &place);
        assert_eq!(completion.result.unwrap(), bytes.len() as u64);
    }

    /// An operation without memory; false, with a printed reason, where the file cannot do it.
    #[track_caller]
    fn without_memory(&mut self, kind: OpKind, segments: &[Segment]) -> bool {
        let completion = self.run(Request::without_memory(kind, 9), segments);
        match completion.result {
            Ok(bytes) => {
                assert_eq!(
                    bytes,
                    segments.iter().map(|segment| segment.length).sum::<u64>()
                );
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
                skipped(format_args!("{error}"));
                false
            }
        }
    }
}

/// Runs `test` on every rig there can be here.
fn for_each_rig(mut test: impl FnMut(&mut Rig)) {
    fixtures::for_each_backend(|backend| {
        for place in Place::ALL {
            for registers in [true, false] {
                // To other backends, registered memory is memory like any other.
                if !registers && backend != Backend::Uring {
                    continue;
                }
                if let Some(mut rig) = Rig::new(backend, place, registers) {
                    println!("on {}, {place:?}", rig.lane.description());
                    test(&mut rig);
                }
            }
        }
    });
}

/// Bytes that tell where they belong.
fn pattern(length: usize, mark: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    swath_engine::fill_incompressible(&mut bytes, mark, 0);
    bytes
}

#[test]
fn durable_writes_and_flushes_complete() {
    for_each_rig(|rig| {
        let bytes = pattern(2 * BLOCK, 3);
        let buffer = AlignedBuf::copy_of(&bytes).unwrap();
        let place = [Segment::whole(1, 4096, bytes.len() as u64)];
        let completion = rig.run(Request::write_fua(buffer, 1), &place);
        assert_eq!(completion.result.unwrap(), bytes.len() as u64);
        assert!(rig.without_memory(OpKind::Flush, &[Segment::flush(0), Segment::flush(1)]));
        assert_eq!(rig.read(1, 4096, bytes.len()), bytes);
    });
}

#[test]
fn a_call_keeps_the_completions_of_others() {
    for_each_rig(|rig| {
        for token in 0..6 {
            let place = [Segment::whole(1, token * 4096, 4096)];
            rig.lane.submit(
                Request::read(AlignedBuf::zeroed(BLOCK).unwrap(), token),
                &place,
            );
        }
        let bytes = AlignedBuf::copy_of(&pattern(BLOCK, 1)).unwrap();
        let called = rig
            .lane
            .call(Request::write(bytes, 77), &[Segment::whole(0, 0, 4096)]);
        let called = called.unwrap();
        assert_eq!((called.token, called.result.unwrap()), (77, 4096));
        let refused = rig
            .lane
            .call(Request::without_memory(OpKind::Flush, 78), &[]);
        assert_eq!(refused.unwrap().token, 78);
        assert_eq!(rig.lane.in_flight(), 6);
        let mut completions = Vec::new();
        rig.lane.drain(&mut completions).unwrap();
        let mut tokens: Vec<_> = completions
            .iter()
            .map(|completion| completion.token)
            .collect();
        tokens.sort_unstable();
        assert_eq!(tokens, [0, 1, 2, 3, 4, 5]);
    });
}

#[test]
fn tokens_are_the_callers_own() {
    for_each_rig(|rig| {
        let tokens = [u64::MAX, 0, u64::MAX, 1 << 63];
        for token in tokens {
            let buffer = AlignedBuf::zeroed(BLOCK).unwrap();
            rig.lane
                .submit(Request::read(buffer, token), &[Segment::whole(0, 0, 4096)]);
        }
        let mut completions = Vec::new();
        rig.lane.drain(&mut completions).unwrap();
        let mut found: Vec<_> = completions
            .iter()
            .map(|completion| completion.token)
            .collect();
        found.sort_unstable();
        assert_eq!(found, [0, 1 << 63, u64::MAX, u64::MAX]);
    });
}
