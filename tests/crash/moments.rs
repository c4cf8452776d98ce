//! [`Moment`]: a time between two events of a recording, and what a crash then may keep or take.
//!
//! Only the last moment before each flush ends is looked at, and the last before each mark. This
//! leaves no state out: until a flush ends, writes are only added, and a crash that takes all of
//! those is one of the moment before. For the same reason it does not matter whether a write was in
//! flight or acknowledged: either way each of its sectors is kept or not.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use swath_engine::OpKind;
use swath_tests::sim::{Event, Image, SimPlatform, Submitted, sector_digest};

use super::scenario::Scenario;

/// The unit that metadata is written in: the sectors of one go together in a plan.
pub(crate) const RECORD_BYTES: u64 = 4096;

const SECTOR_BYTES: u64 = 512;

/// What a write is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Content {
    /// A copy of the root record.
    Root,
    /// A superblock, an index or a catalog.
    Metadata,
    /// Tensors.
    Data,
}

/// Something of a write that is kept or taken as a whole.
#[derive(Debug, Clone)]
pub(crate) struct Loose {
    /// The write. What is there if it is kept is a part of its bytes.
    write: Arc<Submitted>,
    offset: u64,
    length: u64,
    content: Content,
    /// What the state's number changes by.
    delta: u128,
}

impl Loose {
    fn bytes(&self) -> &[u8] {
        let from = (self.offset - self.write.offset) as usize;
        &self.write.bytes[from..from + self.length as usize]
    }
}

/// The loose sectors of 4 KiB of one member, or those of all data.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// What they are of.
    pub(crate) content: Content,
    /// Their bits in a mask.
    pub(crate) mask: u128,
    /// In words.
    pub(crate) name: String,
}

/// What a store shows after a crash.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// This, whatever is kept.
    Always(u8),
    /// The next after this when any copy of its root record is there as a whole, else this.
    ByRecord(u8),
}

/// A time at which the power may fail.
#[derive(Debug)]
pub(crate) struct Moment {
    /// What is durable on each member.
    images: Vec<Image>,
    /// Everything that is not, in the order in which it was written. A later one is written over an
    /// earlier one of the same place.
    loose: Vec<Loose>,
    /// These in groups: first those of metadata, then data if there is any.
    pub(crate) groups: Vec<Group>,
    expected: Expected,
    /// The copies of the record that decide, if it is not decided.
    records: Vec<Arc<Submitted>>,
    /// After how many events of the recording.
    pub(crate) event: usize,
    digest: u128,
    /// The digest of the areas that a volume looks at when it is opened.
    ends_digest: u128,
    /// Whether two loose sectors are of one place.
    overlaps: bool,
    ends: Vec<bool>,
}

impl Moment {
    /// The members after a crash that keeps what `mask` says.
    pub(crate) fn state(&self, mask: u128) -> Vec<Image> {
        let mut images = self.images.clone();
        for (bit, loose) in self.loose.iter().enumerate() {
            if mask >> bit & 1 == 1 {
                images[loose.write.device].write(loose.offset, loose.bytes());
            }
        }
        images
    }

    /// The members when they run on, with what `mask` says in their caches.
    pub(crate) fn with_cached(&self, scenario: &Scenario, mask: u128, seed: u64) -> SimPlatform {
        let platform = scenario.platform(seed, &self.images);
        for (bit, loose) in self.loose.iter().enumerate() {
            if mask >> bit & 1 == 1 {
                let path = &scenario.paths[loose.write.device];
                platform.poke_cached(path, loose.offset, loose.bytes());
            }
        }
        platform
    }

    /// A number for that state: equal for equal states of all moments of a scenario.
    pub(crate) fn digest(&self, mask: u128) -> u128 {
        if self.overlaps {
            return digest_of(&self.state(mask));
        }
        self.sum(self.digest, mask, |_| true)
    }

    /// That state, as the beginning of the recovery after a power failure. It shows `content`.
    pub(crate) fn after_power_failure(&self, mask: u128, content: u8) -> Start {
        Start {
            images: self.state(mask),
            expected: Expected::Always(content),
            records: Vec::new(),
            cached: Vec::new(),
            digest: self.digest(mask),
            ends_digest: self.ends_digest(mask),
        }
    }

    /// The same when only the process died, and the members run on: what it wrote is in their caches
    /// still. A commit that shows in these alone may yet be lost with the power.
    pub(crate) fn after_death(&self, mask: u128, content: u8) -> Start {
        let cached = |(number, bit): (u64, usize)| {
            let loose = &self.loose[bit];
            let write = Submitted {
                // Unlike those of the recovery.
                number: u64::MAX - number,
                offset: loose.offset,
                length: loose.length,
                bytes: loose.bytes().to_vec(),
                ..(*loose.write).clone()
            };
            (Arc::new(write), loose.content)
        };
        let kept = (0..self.loose.len()).filter(|bit| mask >> bit & 1 == 1);
        let expected = match self.expected {
            Expected::ByRecord(before) if content == before => Expected::Always(before),
            expected => expected,
        };
        Start {
            images: self.images.clone(),
            expected,
            records: self.records.clone(),
            cached: (0..).zip(kept).map(cached).collect(),
            digest: self.digest,
            ends_digest: self.ends_digest,
        }
    }

    /// A number for the areas of that state that decide what opening the volume writes.
    pub(crate) fn ends_digest(&self, mask: u128) -> u128 {
        if self.overlaps {
            return self.digest(mask);
        }
        self.sum(self.ends_digest, mask, |bit| self.ends[bit])
    }

    fn sum(&self, start: u128, mask: u128, counts: impl Fn(usize) -> bool) -> u128 {
        let kept = |bit: &usize| mask >> bit & 1 == 1 && counts(*bit);
        (0..self.loose.len())
            .filter(kept)
            .fold(start, |sum, bit| sum.wrapping_add(self.loose[bit].delta))
    }

    /// What must be seen in a state of this moment.
    pub(crate) fn expected(&self, state: &[Image]) -> u8 {
        match self.expected {
            Expected::Always(content) => content,
            Expected::ByRecord(before) => before + u8::from(is_there(&self.records, state)),
        }
    }

    /// What a mask keeps, in words.
    pub(crate) fn told(&self, mask: u128) -> String {
        let mut words = format!("after event {}, kept:", self.event);
        for group in &self.groups {
            let kept: String = (0..128)
                .filter(|bit| group.mask >> bit & 1 == 1)
                .map(|bit| if mask >> bit & 1 == 1 { '1' } else { '-' })
                .collect();
            words.push_str(&format!("\n    {} {kept}", group.name));
        }
        words
    }
}

/// The members as they are when a recording begins.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    images: Vec<Image>,
    expected: Expected,
    /// The copies of the record that decide, if it is not decided.
    records: Vec<Arc<Submitted>>,
    /// What was written before and is not durable.
    cached: Vec<(Arc<Submitted>, Content)>,
    digest: u128,
    ends_digest: u128,
}

impl Start {
    /// What a scenario begins with.
    pub(crate) fn of(scenario: &Scenario) -> Self {
        let images = scenario.images.clone();
        Self {
            digest: digest_of(&images),
            ends_digest: ends_digest(scenario, &images),
            images,
            expected: Expected::Always(0),
            records: Vec::new(),
            cached: Vec::new(),
        }
    }
}

/// The moments of a recording.
pub(crate) fn moments(scenario: &Scenario, mut start: Start, events: &[Event]) -> Vec<Moment> {
    let cached = std::mem::take(&mut start.cached);
    let numbers = |content: Option<Content>| {
        let wanted = cached
            .iter()
            .filter(move |it| content.is_none_or(|content| content == it.1));
        wanted.map(|(write, _)| write.number)
    };
    let mut walk = Walk {
        scenario,
        now: start,
        is_data: false,
        completed: numbers(None).collect(),
        data: numbers(Some(Content::Data)).collect(),
        submitted: HashMap::new(),
        pending: Vec::new(),
        covers: HashMap::new(),
        has_grown: true,
        moments: Vec::new(),
    };
    for (write, _) in &cached {
        walk.submitted.insert(write.number, Arc::clone(write));
        walk.pending.push(Arc::clone(write));
    }
    for (event, what) in events.iter().enumerate() {
        walk.step(event, what);
    }
    walk.look(events.len());
    walk.moments
}

/// A recording, as far as it was walked through.
struct Walk<'a> {
    scenario: &'a Scenario,
    /// What is durable, and what is to be seen.
    now: Start,
    /// Whether what is written is tensors.
    is_data: bool,
    submitted: HashMap<u64, Arc<Submitted>>,
    /// Writes that are not durable.
    pending: Vec<Arc<Submitted>>,
    /// Which of them have completed.
    completed: Vec<u64>,
    /// What each flush covers: what had completed when it was submitted.
    covers: HashMap<u64, Vec<u64>>,
    /// The writes of tensors.
    data: HashSet<u64>,
    /// Whether a crash now may leave what none could at the last moment.
    has_grown: bool,
    moments: Vec<Moment>,
}

impl Walk<'_> {
    fn step(&mut self, event: usize, what: &Event) {
        match what {
            Event::Submitted(op) => self.submit(op),
            Event::Completed { number, result } => {
                let op = Arc::clone(&self.submitted[number]);
                assert!(*result >= 0, "nothing fails in a recording");
                match op.kind {
                    OpKind::Write => {
                        assert_eq!(u64::try_from(*result), Ok(op.length), "nothing is short");
                        assert!(!op.fua, "commits do not use FUA");
                        self.completed.push(*number);
                    }
                    OpKind::Flush => {
                        self.look(event);
                        self.flush(*number);
                    }
                    _ => {}
                }
            }
            Event::Mark(words) => {
                self.look(event);
                self.mark(words);
                self.has_grown = true;
            }
        }
    }

    fn submit(&mut self, op: &Arc<Submitted>) {
        self.submitted.insert(op.number, Arc::clone(op));
        match op.kind {
            OpKind::Read => {}
            OpKind::Write => {
                self.has_grown = true;
                self.pending.push(Arc::clone(op));
                if self.is_data {
                    self.data.insert(op.number);
                }
                if self.scenario.is_root(op.offset) {
                    self.now.records.push(Arc::clone(op));
                }
            }
            OpKind::Flush => {
                let of_device = |number: &u64| self.submitted[number].device == op.device;
                let cover = self.completed.iter().copied().filter(of_device);
                self.covers.insert(op.number, cover.collect());
            }
            other => panic!("{other} is not expected in a commit"),
        }
    }

    /// A flush has ended well.
    fn flush(&mut self, number: u64) {
        let covered = &self.covers[&number];
        let (durable, pending) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|write| covered.contains(&write.number));
        self.pending = pending;
        self.completed.retain(|number| !covered.contains(number));
        let durable: Vec<Arc<Submitted>> = durable;
        for write in durable {
            let image = &mut self.now.images[write.device];
            let delta = delta(image, write.device, write.offset, &write.bytes);
            image.write(write.offset, &write.bytes);
            self.now.digest = self.now.digest.wrapping_add(delta);
            if !self.scenario.is_data_area(write.offset) {
                self.now.ends_digest = self.now.ends_digest.wrapping_add(delta);
            }
        }
        // With one durable copy of the record, nothing else may be seen.
        if let Expected::ByRecord(before) = self.now.expected
            && is_there(&self.now.records, &self.now.images)
        {
            self.now.expected = Expected::Always(before + 1);
        }
    }

    fn mark(&mut self, words: &str) {
        match (words, self.now.expected) {
            ("data", _) => self.is_data = true,
            ("commit", Expected::Always(before)) => {
                self.is_data = false;
                self.now.records.clear();
                self.now.expected = Expected::ByRecord(before);
            }
            ("acknowledged", expected) => {
                assert!(
                    self.pending.is_empty(),
                    "acknowledged, and not durable: {:?}",
                    self.pending
                );
                if let Expected::ByRecord(before) = expected {
                    self.now.expected = Expected::Always(before + 1);
                }
            }
            (other, _) => panic!("a mark in the wrong place: {other}"),
        }
    }

    /// Takes the moment before this event, if there is anything new about it.
    fn look(&mut self, event: usize) {
        if std::mem::take(&mut self.has_grown) {
            let moment = moment(self.scenario, &self.now, &self.pending, &self.data, event);
            self.moments.push(moment);
        }
    }
}

/// Whether any of these records is on its member as a whole.
fn is_there(records: &[Arc<Submitted>], state: &[Image]) -> bool {
    records.iter().any(|record| {
        let mut found = vec![0; record.bytes.len()];
        state[record.device].read(record.offset, &mut found);
        found == record.bytes
    })
}

fn digest_of(images: &[Image]) -> u128 {
    (0..)
        .zip(images)
        .fold(0, |sum, (salt, image)| image.digest(salt).wrapping_add(sum))
}

fn moment(
    scenario: &Scenario,
    now: &Start,
    pending: &[Arc<Submitted>],
    data: &HashSet<u64>,
    event: usize,
) -> Moment {
    let mut places = HashMap::new();
    for write in pending {
        for (offset, _) in units(scenario, write) {
            *places.entry((write.device, offset)).or_insert(0) += 1;
        }
    }
    let overlaps = places.values().any(|&count| count > 1);
    // By group, so that the bits of one are side by side; data is last.
    let mut found: Vec<((Content, usize, u64), Loose)> = Vec::new();
    for write in pending {
        for (offset, length) in units(scenario, write) {
            let content = if scenario.is_root(offset) {
                Content::Root
            } else if data.contains(&write.number) {
                Content::Data
            } else {
                Content::Metadata
            };
            let key = match content {
                Content::Data => (content, 0, 0),
                _ => (content, write.device, offset / RECORD_BYTES),
            };
            let mut loose = Loose {
                write: Arc::clone(write),
                offset,
                length,
                content,
                delta: 0,
            };
            let image = &now.images[write.device];
            loose.delta = delta(image, write.device, offset, loose.bytes());
            if loose.delta != 0 || overlaps {
                found.push((key, loose));
            }
        }
    }
    // Stable: what overlaps stays in order, as both are of one group.
    found.sort_by_key(|(key, _)| *key);
    assert!(found.len() <= 128, "more loose sectors than bits");
    let mut groups: Vec<((Content, usize, u64), Group)> = Vec::new();
    for (bit, (key, _)) in found.iter().enumerate() {
        if groups.last().is_none_or(|(last, _)| last != key) {
            let (content, device, record) = *key;
            let name = match content {
                Content::Data => "data".to_owned(),
                _ => format!("{content:?} m{device} at {}", record * RECORD_BYTES),
            };
            let group = Group {
                content,
                mask: 0,
                name,
            };
            groups.push((*key, group));
        }
        groups.last_mut().unwrap().1.mask |= 1 << bit;
    }
    let ends = |loose: &Loose| !scenario.is_data_area(loose.offset);
    Moment {
        images: now.images.clone(),
        groups: groups.into_iter().map(|(_, group)| group).collect(),
        expected: now.expected,
        records: now.records.clone(),
        event,
        digest: now.digest,
        ends_digest: now.ends_digest,
        overlaps,
        ends: found.iter().map(|(_, loose)| ends(loose)).collect(),
        loose: found.into_iter().map(|(_, loose)| loose).collect(),
    }
}

/// A write, cut into what is kept or taken as a whole.
fn units(scenario: &Scenario, write: &Submitted) -> Vec<(u64, u64)> {
    (write.offset..write.offset + write.length)
        .step_by(scenario.tear_bytes as usize)
        .map(|offset| (offset, scenario.tear_bytes))
        .collect()
}

fn ends_digest(scenario: &Scenario, images: &[Image]) -> u128 {
    let only_ends = |image: &Image| {
        let mut image = image.clone();
        image.zero(
            scenario.data_area().start,
            scenario.data_area().end - scenario.data_area().start,
        );
        image
    };
    digest_of(&images.iter().map(only_ends).collect::<Vec<_>>())
}

/// How the digest of an image changes when `bytes` are written to it.
fn delta(image: &Image, device: usize, offset: u64, bytes: &[u8]) -> u128 {
    let mut before = vec![0; bytes.len()];
    image.read(offset, &mut before);
    let sum = |bytes: &[u8]| {
        (offset / SECTOR_BYTES..)
            .zip(bytes.chunks_exact(512))
            .fold(0_u128, |sum, (sector, bytes)| {
                sum.wrapping_add(sector_digest(device as u64, sector, bytes))
            })
    };
    sum(bytes).wrapping_sub(sum(&before))
}
