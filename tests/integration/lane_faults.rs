//! What a lane makes of a queue that comes back short, asks to be asked again, or fails.
//!
//! What could go wrong: bytes lost or moved twice after a short transfer, an endless retry, a
//! completion lost or doubled when one part of a request fails, an error that nobody is told, a
//! length that wraps where the kernel caps it. The queue is simulated, so every result can be
//! chosen, and completions come in any order.

mod alignment;
mod latch;
mod lengths;
mod patience;
mod visits;

use std::path::PathBuf;
use std::sync::Arc;

use swath_engine::{
    AlignedBuf, Buffer, Completion, Device, ErrorKind, Geometry, Lane, LaneOptions, OpKind,
    OpenOptions, Platform, Poison, Request, Segment,
};
use swath_tests::seed::Seed;
use swath_tests::sim::{Fault, Outcome, SimPlatform, Store, Traced};

const BLOCK: usize = 512;

const DEVICE_BYTES: u64 = 1 << 20;

/// How often a lane tries again what makes no progress.
const RETRIES_MAX: u64 = 64;

/// How many of these attempts come at once, before it takes its time.
const RETRIES_AT_ONCE: u64 = 8;

/// A lane over two simulated devices, `m0` and `m1`.
struct Rig {
    seed: Seed,
    platform: SimPlatform,
    paths: Vec<PathBuf>,
    lane: Lane,
}

impl Rig {
    fn new() -> Self {
        Self::with(&LaneOptions::default())
    }

    fn with(options: &LaneOptions) -> Self {
        Self::of(&Geometry::uniform(DEVICE_BYTES, 512), options)
    }

    fn of(geometry: &Geometry, options: &LaneOptions) -> Self {
        let seed = Seed::new();
        let platform = SimPlatform::new(seed.value());
        let paths = ["m0", "m1"].map(PathBuf::from).to_vec();
        for path in &paths {
            platform.add(path, geometry.clone(), Store::sparse());
        }
        let lane = Lane::open(&platform, &open(&platform, &paths), options).unwrap();
        Self {
            seed,
            platform,
            paths,
            lane,
        }
    }

    /// The completion of one request, which must be the only one.
    #[track_caller]
    fn run(&mut self, request: Request, segments: &[Segment]) -> Completion {
        let token = request.token;
        self.lane.submit(request, segments);
        let mut completions = Vec::new();
        self.lane.drain(&mut completions).unwrap();
        assert_eq!(completions.len(), 1, "seed {}", self.seed.value());
        let completion = completions.pop().unwrap();
        assert_eq!(completion.token, token);
        completion
    }
}

fn open(platform: &SimPlatform, paths: &[PathBuf]) -> Vec<Arc<dyn Device>> {
    paths
        .iter()
        .map(|path| platform.open(path, &OpenOptions::read_write()).unwrap())
        .collect()
}

fn pattern(length: usize, mark: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    swath_engine::fill_incompressible(&mut bytes, mark, 0);
    bytes
}

/// Three buffers of odd numbers of blocks, 16 blocks together.
fn buffers(bytes: &[u8]) -> Vec<Buffer> {
    let mut rest = bytes;
    [3, 1, 12]
        .map(|blocks| {
            let (part, left) = rest.split_at(blocks * BLOCK);
            rest = left;
            Buffer::from(AlignedBuf::copy_of(part).unwrap())
        })
        .into()
}

/// 16 blocks over both devices.
fn across() -> [Segment; 2] {
    let half = 8 * BLOCK as u64;
    [
        Segment::whole(0, 4096, half),
        Segment {
            device: 1,
            offset: 8192,
            buffer_offset: half,
            length: half,
        },
    ]
}

/// A request of 16 blocks over both devices, or a flush of both.
fn request(kind: OpKind) -> (Request, Vec<Segment>) {
    let request = Request {
        kind,
        fua: false,
        buffers: if kind.has_memory() {
            buffers(&pattern(16 * BLOCK, 1)).into()
        } else {
            swath_engine::Buffers::none()
        },
        token: 5,
    };
    let segments = if kind == OpKind::Flush {
        vec![Segment::flush(0), Segment::flush(1)]
    } else {
        across().to_vec()
    };
    (request, segments)
}

#[test]
fn short_transfers_of_every_length_are_continued() {
    let total = 16 * BLOCK;
    let place = [Segment::whole(0, 4096, total as u64)];
    let bytes = pattern(total, 1);
    // A transfer may stop at a block's border or within a block.
    for short in (1..total as u64).filter(|short| short % 128 <= 1) {
        for (vectored, repeats) in [(false, 1), (true, 1), (false, 3), (true, 3)] {
            let mut rig = Rig::new();
            rig.platform.inject(Fault::short(short).times(repeats));
            let memory = if vectored {
                buffers(&bytes)
            } else {
                vec![one(&bytes)]
            };
            let completion = rig.run(Request::write(memory, 1), &place);
            assert_eq!(
                completion.result.unwrap(),
                total as u64,
                "a write short at {short}"
            );
            assert_eq!(
                rig.platform.peek("m0", 4096, total),
                bytes,
                "a write short at {short}"
            );

            rig.platform.heal();
            rig.platform.inject(Fault::short(short).times(repeats));
            let empty = vec![0; total];
            let memory = if vectored {
                buffers(&empty)
            } else {
                vec![one(&empty)]
            };
            let completion = rig.run(Request::read(memory, 2), &place);
            assert_eq!(
                completion.result.unwrap(),
                total as u64,
                "a read short at {short}"
            );
            let read: Vec<u8> = completion
                .buffers
                .iter()
                .flat_map(|buffer| buffer.as_slice().to_vec())
                .collect();
            assert_eq!(read, bytes, "a read short at {short}");
        }
    }
}

fn one(bytes: &[u8]) -> Buffer {
    AlignedBuf::copy_of(bytes).unwrap().into()
}

#[test]
fn a_transfer_that_never_gets_over_a_block_ends_after_a_bounded_number_of_attempts() {
    for kind in [OpKind::Read, OpKind::Write] {
        let mut rig = Rig::new();
        rig.platform.inject(Fault::short(1));
        let (request, segments) = request(kind);
        let completion = rig.run(
            request,
            &segments[..1].iter().map(whole).collect::<Vec<_>>(),
        );
        let error = completion.result.unwrap_err();
        let expected = if kind == OpKind::Read {
            ErrorKind::Truncated
        } else {
            ErrorKind::Device
        };
        assert_eq!(error.kind(), expected, "{error}");
        assert_eq!(rig.platform.take_trace().len() as u64, RETRIES_MAX + 1);
    }
}

/// A segment made long enough for all 16 blocks.
fn whole(segment: &Segment) -> Segment {
    Segment::whole(segment.device, segment.offset, 16 * BLOCK as u64)
}

#[test]
fn an_early_end_is_told_as_truncation() {
    let mut rig = Rig::new();
    rig.platform.resize("m0", 4096 + 3 * BLOCK as u64);
    let place = [Segment::whole(0, 4096, 16 * BLOCK as u64)];
    let completion = rig.run(Request::read(buffers(&vec![0; 16 * BLOCK]), 1), &place);
    let error = completion.result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Truncated);
    assert_eq!(error.path(), Some(rig.paths[0].as_path()));
    assert_eq!(error.operation(), Some(OpKind::Read));
    // What could be read was read; the error names the rest.
    assert_eq!(error.range(), Some((4096 + 3 * 512, 13 * 512)));
    assert!(
        error
            .to_string()
            .contains("shorter than when it was opened"),
        "{error}"
    );
}

#[test]
fn a_write_that_moves_nothing_is_an_error() {
    let mut rig = Rig::new();
    rig.platform.inject(Fault::short(0).times(1));
    let (request, segments) = request(OpKind::Write);
    let completion = rig.run(request, &segments);
    assert_eq!(completion.result.unwrap_err().kind(), ErrorKind::Device);
}

#[test]
fn what_asks_to_be_tried_again_is_tried_again_a_bounded_number_of_times() {
    for kind in OpKind::ALL
        .into_iter()
        .filter(|kind| *kind != OpKind::Flush)
    {
        for errno in [libc::EAGAIN, libc::EINTR, libc::ECANCELED] {
            let mut rig = Rig::new();
            rig.platform
                .inject(Fault::errno(errno).on("m1").times(RETRIES_MAX));
            let (retried, segments) = request(kind);
            let completion = rig.run(retried, &segments);
            assert!(completion.result.is_ok(), "{kind}: {:?}", completion.result);
            assert_eq!(rig.platform.take_trace().len() as u64, RETRIES_MAX + 2);

            rig.platform.heal();
            rig.platform.inject(Fault::errno(errno).on("m1"));
            let (given_up, segments) = request(kind);
            let completion = rig.run(given_up, &segments);
            let error = completion.result.unwrap_err();
            assert!(
                error.to_string().contains("given up after many attempts"),
                "{error}"
            );
            let source = std::error::Error::source(&error).unwrap().to_string();
            assert!(source.contains(&format!("os error {errno}")), "{source}");
            assert_eq!(rig.platform.take_trace().len() as u64, RETRIES_MAX + 2);
        }
    }
}

/// Whatever the reason: a flush that was interrupted may have taken the only report of lost data with
/// it, and one that came after would succeed.
#[test]
fn a_flush_is_never_asked_again() {
    for errno in [libc::EAGAIN, libc::EINTR, libc::ECANCELED, libc::EIO] {
        let poison = Arc::new(Poison::new());
        let mut rig = Rig::with(&LaneOptions {
            poison: Some(Arc::clone(&poison)),
            ..LaneOptions::default()
        });
        rig.platform
            .inject(Fault::errno(errno).of(OpKind::Flush).on("m1").times(1));
        let (flush, segments) = request(OpKind::Flush);
        let error = rig.run(flush, &segments).result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device, "{error}");
        assert_eq!(error.path(), Some(rig.paths[1].as_path()));
        assert_eq!(rig.platform.take_trace().len(), 2, "one for each device");
        assert!(poison.is_set(), "nothing is written after it");
    }
}

#[test]
fn progress_renews_the_right_to_try_again() {
    let mut rig = Rig::new();
    // Block by block, with as many refusals before each block as are borne in a row.
    for _ in 0..16 {
        rig.platform
            .inject(Fault::errno(libc::EAGAIN).times(RETRIES_MAX));
        rig.platform.inject(Fault::short(BLOCK as u64).times(1));
    }
    let bytes = pattern(16 * BLOCK, 3);
    let place = [Segment::whole(0, 0, bytes.len() as u64)];
    let completion = rig.run(Request::write(one(&bytes), 1), &place);
    assert_eq!(completion.result.unwrap(), bytes.len() as u64);
    assert_eq!(rig.platform.peek("m0", 0, bytes.len()), bytes);
    assert_eq!(
        rig.platform.take_trace().len() as u64,
        16 * (RETRIES_MAX + 1)
    );
}

/// A slot is used by one request after the other: by plain ones, which are ended as they are found,
/// and by those that took more than one operation.
#[test]
fn a_request_inherits_nothing_from_the_one_before_it() {
    let mut rig = Rig::new();
    let bytes = pattern(16 * BLOCK, 4);
    let place = [Segment::whole(0, 4096, bytes.len() as u64)];
    for round in 0..2 * RETRIES_MAX {
        // Were attempts, or what is done, counted on, some round would have none left.
        match round % 4 {
            0 => rig
                .platform
                .inject(Fault::errno(libc::EAGAIN).times(RETRIES_MAX)),
            1 => rig.platform.inject(Fault::errno(libc::EINTR).times(1)),
            2 => rig.platform.inject(Fault::short(512).times(1)),
            _ => {}
        }
        let (write, segments) = match round % 3 {
            0 => request(OpKind::Write),
            1 => request(OpKind::Flush),
            _ => (Request::write(one(&bytes), 5), place.to_vec()),
        };
        if write.kind == OpKind::Flush {
            rig.platform.heal();
        }
        let expected = if write.kind == OpKind::Flush {
            0
        } else {
            16 * BLOCK as u64
        };
        let completion = rig.run(write, &segments);
        assert_eq!(completion.result.unwrap(), expected, "round {round}");
        let completion = rig
            .lane
            .call(Request::write(one(&bytes), 6), &place)
            .unwrap();
        assert_eq!(
            completion.result.unwrap(),
            16 * BLOCK as u64,
            "round {round}"
        );
        assert_eq!(rig.platform.peek("m0", 4096, bytes.len()), bytes);
    }
}

#[test]
fn every_operation_with_every_result_completes_once_and_gives_its_buffers_back() {
    let errnos = [
        libc::EIO,
        libc::ENODEV,
        libc::ENXIO,
        libc::ENOSPC,
        libc::EOPNOTSUPP,
        libc::EINVAL,
        libc::EAGAIN,
        libc::EINTR,
        libc::ECANCELED,
        libc::EBADF,
    ];
    let outcomes = errnos
        .map(Outcome::Errno)
        .into_iter()
        .chain([0, 1, 512, 513, 1024].map(Outcome::Short));
    for outcome in outcomes {
        for kind in OpKind::ALL {
            for (device, times) in [("m0", 1), ("m1", u64::MAX)] {
                let mut rig = Rig::new();
                rig.platform
                    .inject(Fault::new(outcome).on(device).times(times));
                let (request, segments) = request(kind);
                let addresses: Vec<_> = request
                    .buffers
                    .iter()
                    .map(|buffer| buffer.as_slice().as_ptr())
                    .collect();
                let completion = rig.run(request, &segments);
                let back: Vec<_> = completion
                    .buffers
                    .iter()
                    .map(|buffer| buffer.as_slice().as_ptr())
                    .collect();
                assert_eq!(back, addresses);
                if let Err(error) = completion.result {
                    assert_eq!(
                        error.path(),
                        Some(PathBuf::from(device).as_path()),
                        "{error}"
                    );
                    assert_eq!(error.operation(), Some(kind));
                }
                // The lane works on as if nothing had been.
                rig.platform.heal();
                let place = [
                    Segment::whole(0, 0, 512),
                    Segment {
                        device: 1,
                        offset: 0,
                        buffer_offset: 512,
                        length: 512,
                    },
                ];
                let completion = rig.run(Request::write(one(&pattern(1024, 1)), 1), &place);
                assert_eq!(completion.result.unwrap(), 1024);
            }
        }
    }
}

#[test]
fn errors_have_the_kind_that_their_number_stands_for() {
    for (errno, kind, words) in [
        (libc::EIO, ErrorKind::Device, "the device reported an error"),
        (libc::ENODEV, ErrorKind::Gone, "the device is gone"),
        (libc::ENXIO, ErrorKind::Gone, "the device is gone"),
        (libc::ENOSPC, ErrorKind::NoSpace, "no space is left"),
        (
            libc::EOPNOTSUPP,
            ErrorKind::Unsupported,
            "does not support this",
        ),
    ] {
        let mut rig = Rig::new();
        rig.platform.inject(Fault::errno(errno).on("m1"));
        let (request, segments) = request(OpKind::Write);
        let error = rig.run(request, &segments).result.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let message = error.to_string();
        assert!(
            message.contains(words) && message.starts_with("write m1 at offset "),
            "{message}"
        );
    }
}

#[test]
fn the_first_error_in_time_is_the_one_that_is_told() {
    for _ in 0..50 {
        let mut rig = Rig::new();
        rig.platform.inject(Fault::errno(libc::EIO).on("m0"));
        rig.platform.inject(Fault::errno(libc::ENOSPC).on("m1"));
        let (request, segments) = request(OpKind::Write);
        let error = rig.run(request, &segments).result.unwrap_err();
        let trace = rig.platform.take_trace();
        assert_eq!(trace.len(), 2, "the other part ended too");
        assert_eq!(error.path(), Some(trace[0].device.as_path()), "{trace:?}");
    }
}

#[test]
fn a_failed_part_does_not_hide_the_others() {
    let mut rig = Rig::new();
    rig.platform.inject(Fault::errno(libc::EIO).on("m0"));
    let bytes = pattern(16 * BLOCK, 1);
    let (request, segments) = request(OpKind::Write);
    rig.run(request, &segments).result.unwrap_err();
    assert_eq!(rig.platform.peek("m1", 8192, 8 * BLOCK), bytes[8 * BLOCK..]);
    let stats = rig.lane.stats();
    let device = |slot| {
        stats
            .device(slot, OpKind::Write)
            .map(|s| (s.count, s.bytes, s.errors))
    };
    assert_eq!(device(0), Some((1, 0, 1)));
    assert_eq!(device(1), Some((1, 8 * 512, 0)));
    let total = stats.total(OpKind::Write);
    assert_eq!((total.count, total.bytes, total.errors), (1, 0, 1));
}

#[test]
fn segments_that_follow_each_other_on_a_device_are_one_operation() {
    let mut rig = Rig::new();
    let block = BLOCK as u64;
    // As a stripe map gives them: grouped by device, contiguous there, apart in memory.
    let segments: Vec<_> = (0..2)
        .flat_map(|device| (0..8).map(move |turn| (device, turn)))
        .map(|(device, turn)| Segment {
            device,
            offset: 2048 + turn * block,
            buffer_offset: (2 * turn + u64::from(device)) * block,
            length: block,
        })
        .collect();
    let bytes = pattern(16 * BLOCK, 1);
    let completion = rig.run(Request::write(one(&bytes), 1), &segments);
    assert_eq!(completion.result.unwrap(), bytes.len() as u64);
    let mut trace = rig.platform.take_trace();
    trace.sort_by(|one, other| one.device.cmp(&other.device));
    let shape = |op: &Traced| (op.offset, op.length, op.memory_pieces);
    assert_eq!(
        trace.iter().map(shape).collect::<Vec<_>>(),
        [(2048, 8 * 512, 8); 2]
    );
    for turn in 0..8 {
        for device in 0..2 {
            let on_device = rig
                .platform
                .peek(format!("m{device}"), 2048 + turn * block, BLOCK);
            let from = (2 * turn as usize + device) * BLOCK;
            assert_eq!(on_device, bytes[from..from + BLOCK]);
        }
    }
}

#[test]
fn latencies_are_the_queues_own_time() {
    let mut rig = Rig::new();
    let (request, segments) = request(OpKind::Read);
    rig.run(request, &segments);
    let stats = rig.lane.stats();
    let latency_ns = stats.total(OpKind::Read).latency_ns.max();
    // Two operations of up to 100 us each, on a clock that only operations move.
    assert!((1_000..=200_000).contains(&latency_ns), "{latency_ns}");
}
