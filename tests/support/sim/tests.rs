//! Does the simulated device do what it says? A test on one that is too kind shows nothing.

use std::path::Path;
use std::sync::Arc;

use swath_engine::{
    AlignedBuf, Buffers, Completion, Device, ErrorKind, Geometry, Lane, LaneOptions, OpKind,
    OpenOptions, Platform, Request, Seat, Segment,
};

use super::*;
use crate::seed::Seed;

const BYTES: u64 = 1 << 20;

/// A device "m0" and a lane over it.
struct Rig {
    world: SimWorld,
    lane: Lane,
}

impl Rig {
    fn new(seed: u64, block_bytes: u32) -> Self {
        let world = SimWorld::of(seed, [Geometry::uniform(BYTES, block_bytes)]);
        let lane = lane(world.sim());
        Self { world, lane }
    }

    fn sim(&self) -> &SimPlatform {
        self.world.sim()
    }

    fn write(&mut self, offset: u64, bytes: &[u8], fua: bool) {
        let memory = AlignedBuf::copy_of(bytes).unwrap();
        let place = [Segment::whole(0, offset, bytes.len() as u64)];
        self.lane.write_blocking(&memory, fua, &place).unwrap();
    }

    fn flush(&mut self) -> swath_engine::Result<u64> {
        let request = Request::without_memory(OpKind::Flush, 0);
        self.lane.call(request, &[Segment::flush(0)])?.result
    }

    /// Submits a write and does not wait for it.
    fn start(&mut self, offset: u64, bytes: &[u8]) {
        let memory = AlignedBuf::copy_of(bytes).unwrap();
        let place = [Segment::whole(0, offset, bytes.len() as u64)];
        self.lane.submit(Request::write(memory, 9), &place);
    }

    fn read(&mut self, offset: u64, length: usize) -> swath_engine::Result<Vec<u8>> {
        let mut memory = AlignedBuf::zeroed(length).unwrap();
        let place = [Segment::whole(0, offset, length as u64)];
        self.lane.read_blocking(&mut memory, &place)?;
        Ok(memory.to_vec())
    }
}

fn open(sim: &SimPlatform, options: &OpenOptions) -> swath_engine::Result<Arc<dyn Device>> {
    sim.open(Path::new("m0"), options)
}

fn lane(sim: &SimPlatform) -> Lane {
    let device = open(sim, &OpenOptions::read_write()).unwrap();
    Lane::open(sim, &[device], &LaneOptions::default()).unwrap()
}

/// How many of the sectors of `bytes` hold `value`, and that all others hold `other`.
fn count(bytes: &[u8], sector: usize, value: u8, other: u8) -> usize {
    let is_all = |bytes: &[u8], value| bytes.iter().all(|&byte| byte == value);
    let new = |bytes: &&[u8]| is_all(bytes, value);
    assert!(
        bytes
            .chunks(sector)
            .all(|b| is_all(b, value) || is_all(b, other))
    );
    bytes.chunks(sector).filter(new).count()
}

#[test]
fn a_crash_keeps_what_was_flushed_and_some_of_the_rest() {
    let seed = Seed::new().value();
    let mut kept = Vec::new();
    for round in 0..200 {
        let mut rig = Rig::new(seed.wrapping_add(round), 512);
        rig.write(0, &[1; 4096], false);
        rig.flush().unwrap();
        rig.write(0, &[2; 2048], false);
        rig.write(8192, &[3; 512], true);
        rig.world.crash();
        let bytes = rig.sim().peek("m0", 0, 4096);
        assert_eq!(bytes[2048..], [1; 2048]);
        assert_eq!(rig.sim().peek("m0", 8192, 512), [3; 512]);
        kept.push(count(&bytes[..2048], 512, 2, 1));
        assert!(rig.sim().is_clean("m0"));
    }
    for number in 0..=4 {
        assert!(kept.contains(&number), "never {number} sectors of 4");
    }
}

#[test]
fn a_write_in_flight_is_kept_whole_in_part_or_not_at_all() {
    let seed = Seed::new().value();
    for (block, tear) in [(512, 512), (4096, 4096), (4096, 512)] {
        let mut kept = Vec::new();
        for round in 0..200 {
            let mut rig = Rig::new(seed.wrapping_add(round), block);
            rig.sim().tear_at("m0", tear);
            rig.sim().hold();
            rig.start(16384, &[5; 4 * 4096]);
            rig.world.crash();
            let bytes = rig.sim().peek("m0", 16384, 4 * 4096);
            kept.push(count(&bytes, usize::try_from(tear).unwrap(), 5, 0));
        }
        let units = 4 * 4096 / usize::try_from(tear).unwrap();
        assert!(kept.contains(&0) && kept.contains(&units));
        assert!(kept.iter().any(|&number| number > 0 && number < units));
    }
}

#[test]
fn a_flush_covers_what_had_completed_when_it_was_submitted() {
    let mut rig = Rig::new(Seed::new().value(), 512);
    rig.write(0, &[1; 512], false);
    rig.sim().inject(Fault::late(1_000_000).of(OpKind::Flush));
    let flush = Request::without_memory(OpKind::Flush, 0);
    rig.lane.submit(flush, &[Segment::flush(0)]);
    rig.start(512, &[2; 512]);
    rig.start(1024, &[3; 512]);
    let mut ends: Vec<Completion> = Vec::new();
    while ends.len() < 3 {
        rig.lane.wait(1, &mut ends).unwrap();
    }
    assert_eq!(ends.last().unwrap().kind, OpKind::Flush);
    assert!(rig.sim().now_ns() >= 1_000_000);
    rig.world.crash_losing_all();
    let bytes = rig.sim().peek("m0", 0, 1536);
    assert_eq!((bytes[0], bytes[512], bytes[1024]), (1, 0, 0));
}

#[test]
fn a_flush_that_fails_or_lies_leaves_it_unknown() {
    let seed = Seed::new().value();
    let mut kept = Vec::new();
    for round in 0..100 {
        let mut rig = Rig::new(seed.wrapping_add(round), 512);
        rig.write(0, &[1; 2048], false);
        let failure = Fault::errno(libc::EIO).of(OpKind::Flush).times(1);
        rig.sim().inject(failure);
        rig.flush().unwrap_err();
        rig.world.crash_losing_all();
        kept.push(count(&rig.sim().peek("m0", 0, 2048), 512, 1, 0));
    }
    assert!(kept.iter().any(|&number| number > 0));
    assert!(kept.iter().any(|&number| number < 4));

    let mut rig = Rig::new(seed, 512);
    rig.sim().inject(Fault::lying_flush());
    rig.write(0, &[1; 2048], false);
    rig.flush().unwrap();
    rig.world.crash_losing_all();
    assert_eq!(rig.sim().peek("m0", 0, 2048), [0; 2048]);

    // Nothing was done, and nothing is lost: the next one does it.
    let mut rig = Rig::new(seed, 512);
    let refused = Fault::errno(libc::EAGAIN).of(OpKind::Flush).times(1);
    rig.sim().inject(refused);
    rig.write(0, &[1; 2048], false);
    rig.flush().unwrap_err();
    rig.flush().unwrap();
    rig.world.crash_losing_all();
    assert_eq!(rig.sim().peek("m0", 0, 2048), [1; 2048]);
}

#[test]
fn silent_faults_are_silent() {
    let mut rig = Rig::new(Seed::new().value(), 512);
    rig.sim().inject(Fault::lost_write().times(1));
    rig.write(0, &[1; 512], false);
    assert_eq!(rig.read(0, 512).unwrap(), [0; 512]);

    rig.sim()
        .inject(Fault::new(Outcome::Misdirected(4096)).times(1));
    rig.write(0, &[2; 512], false);
    assert_eq!(rig.read(0, 512).unwrap(), [0; 512]);
    assert_eq!(rig.read(4096, 512).unwrap(), [2; 512]);
    rig.sim()
        .inject(Fault::new(Outcome::Misdirected(4096)).times(1));
    assert_eq!(rig.read(0, 512).unwrap(), [2; 512]);

    rig.sim().inject(Fault::torn_write().times(1));
    rig.write(8192, &[3; 4096], false);
    let bytes = rig.read(8192, 4096).unwrap();
    assert!(count(&bytes, 512, 3, 0) < 8);

    let rot = Fault::new(Outcome::Rot(13)).of(OpKind::Read).times(1);
    rig.sim().inject(rot);
    rig.write(16384, &[0; 512], true);
    for _ in 0..2 {
        assert_eq!(rig.read(16384, 512).unwrap()[..2], [0, 1 << 5]);
    }
    rig.world.crash_losing_all();
    assert_eq!(rig.sim().peek("m0", 16384, 2), [0, 1 << 5]);
}

#[test]
fn places_periods_and_numbers_are_kept_to() {
    let mut rig = Rig::new(Seed::new().value(), 512);
    let bad = Fault::errno(libc::EIO).of(OpKind::Read).within(1024..1536);
    rig.sim().inject(bad);
    assert!(rig.read(0, 1024).is_ok());
    assert!(rig.read(1536, 512).is_ok());
    assert_eq!(rig.read(0, 4096).unwrap_err().kind(), ErrorKind::Device);
    rig.sim().heal();
    rig.sim().inject(Fault::errno(libc::EIO).after(1).every(3));
    let fails: Vec<_> = (0..8).map(|_| rig.read(0, 512).is_err()).collect();
    assert_eq!(fails, [false, true, false, false, true, false, false, true]);
}

#[test]
fn a_device_that_goes_away_ends_what_is_in_flight() {
    let mut rig = Rig::new(Seed::new().value(), 512);
    rig.write(0, &[1; 512], true);
    rig.sim().hold();
    for number in 0..8 {
        rig.start(number * 4096, &[2; 4096]);
    }
    rig.sim().pull("m0");
    rig.sim().release();
    let mut ends = Vec::new();
    rig.lane.drain(&mut ends).unwrap();
    assert_eq!(ends.len(), 8);
    for end in ends {
        assert_eq!(end.result.unwrap_err().kind(), ErrorKind::Gone);
    }
    let refusal = open(rig.sim(), &OpenOptions::look()).unwrap_err();
    assert_eq!(refusal.kind(), ErrorKind::Gone);
    rig.world.crash();
    assert_eq!(rig.sim().peek("m0", 0, 512), [1; 512]);
    // Whoever still holds the old one is told.
    assert!(rig.lane.devices()[0].is_gone());
    assert!(rig.read(0, 512).is_err());
}

#[test]
fn one_device_can_hang() {
    let sim = SimWorld::new(Seed::new().value(), 2, BYTES);
    let devices: Vec<_> = sim
        .paths()
        .iter()
        .map(|path| sim.sim().open(path, &OpenOptions::read_write()).unwrap())
        .collect();
    let mut lane = Lane::open(sim.sim(), &devices, &LaneOptions::default()).unwrap();
    sim.sim().hang("m0");
    for device in 0..2 {
        let memory = AlignedBuf::zeroed(512).unwrap();
        let place = [Segment::whole(device, 0, 512)];
        lane.submit(Request::read(memory, u64::from(device)), &place);
    }
    let mut ends: Vec<Completion> = Vec::new();
    lane.wait(1, &mut ends).unwrap();
    for _ in 0..100 {
        lane.poll(&mut ends).unwrap();
    }
    assert_eq!(ends.iter().map(|end| end.token).collect::<Vec<_>>(), [1]);
    sim.sim().release();
    lane.drain(&mut ends).unwrap();
    assert_eq!(ends.len(), 2);
}

/// The same rules as for the byte locks of real devices, whose own tests these follow.
#[test]
fn guests_sit_beside_their_owner_only() {
    let sim = SimWorld::new(Seed::new().value(), 1, BYTES);
    let sim = sim.sim();
    let owner = open(sim, &OpenOptions::read_write()).unwrap();
    let seat = |epoch, number| OpenOptions::guest(Seat { epoch, number });
    let kind = |options: &OpenOptions| open(sim, options).unwrap_err().kind();
    assert_eq!(kind(&seat(1, 1)), ErrorKind::Closed);
    owner.admit(1).unwrap();
    let guest = open(sim, &seat(1, 1)).unwrap();
    guest.check_owner().unwrap();
    assert_eq!(guest.admit(1).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(kind(&seat(1, 1)), ErrorKind::InUse);
    assert_eq!(kind(&seat(2, 2)), ErrorKind::Closed);
    assert_eq!(owner.close_seat(1).unwrap_err().kind(), ErrorKind::InUse);
    drop(guest);
    owner.close_seat(1).unwrap();
    assert_eq!(kind(&seat(1, 1)), ErrorKind::InUse);
    let guest = open(sim, &seat(1, 2)).unwrap();
    drop(owner);
    assert_eq!(guest.check_owner().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(kind(&OpenOptions::read_write()), ErrorKind::InUse);
    drop(open(sim, &OpenOptions::read_only()).unwrap());
    drop(guest);
    drop(open(sim, &OpenOptions::read_write()).unwrap());
}

#[test]
fn everything_follows_from_the_seed_and_can_be_printed() {
    let seed = Seed::new().value();
    let run = || {
        let mut world = SimWorld::new(seed, 1, BYTES);
        let mix = FaultMix {
            transparent: 20,
            late: 5,
            silent: 10,
            last: 60,
            ..FaultMix::NONE
        };
        let plan = world.plan(seed, &mix).to_string();
        assert_eq!(plan.lines().count(), 36, "{plan}");
        let mut lane = lane(world.sim());
        let mut ends = Vec::new();
        for round in 0..100 {
            let place = [Segment::whole(0, round * 4096, 4096)];
            let memory = || Buffers::from(AlignedBuf::zeroed(4096).unwrap());
            lane.submit(Request::write(memory(), 1), &place);
            lane.submit(Request::read(memory(), 2), &place);
            let flush = Request::without_memory(OpKind::Flush, 3);
            lane.submit(flush, &[Segment::flush(0)]);
            lane.wait(1, &mut ends).unwrap();
        }
        lane.drain(&mut ends).unwrap();
        let story = world.story();
        assert!(story.contains("fault plan") && story.contains("queue 1 write m0"));
        world.crash();
        let image = world.sim().image("m0");
        (plan, story, image.digest(0), world.sim().now_ns())
    };
    assert_eq!(run(), run());
}

#[test]
fn a_recording_tells_what_was_written_and_when() {
    let mut rig = Rig::new(Seed::new().value(), 512);
    rig.sim().record();
    rig.write(512, &[7; 512], false);
    rig.sim().mark("written");
    rig.flush().unwrap();
    let events = rig.sim().take_recording();
    let [
        Event::Submitted(write),
        Event::Completed {
            number,
            result: 512,
        },
        Event::Mark("written"),
        Event::Submitted(flush),
        Event::Completed { result: 0, .. },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(write.number, *number);
    assert_eq!(
        (write.device, write.offset, &write.bytes[..]),
        (0, 512, &[7; 512][..])
    );
    assert_eq!(flush.kind, OpKind::Flush);
}
