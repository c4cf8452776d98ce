//! What a lane did: counts, bytes, errors and latencies, for whole requests and for each device.
//!
//! - Latency counts from the submission of a request to the poll that gives its completion; one
//!   clock reading serves all that is submitted, and one all that completes, between two polls.
//! - A request that was split counts once among the requests, and once for each operation on each
//!   device. One that was not is recorded once, where both can find it.
//! - Counts are made when the first operation of their kind completes; nothing is allocated after
//!   that.

use hdrhistogram::Histogram;

use crate::latency::LatencyCounts;
use crate::op::OpKind;

/// Counts of one kind of operation.
#[derive(Debug, Clone)]
pub struct OpStats {
    /// How many ended, with or without an error.
    pub count: u64,
    /// How many bytes those without an error moved.
    pub bytes: u64,
    /// How many ended with an error.
    pub errors: u64,
    /// Latency of those without an error, in nanoseconds, each known to 0.8 %.
    pub latency_ns: Histogram<u64>,
}

/// How an operation ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome {
    Done { bytes: u64, latency_ns: u64 },
    Failed,
}

#[derive(Clone, Default)]
struct Counts {
    done: u64,
    bytes: u64,
    errors: u64,
    latency: LatencyCounts,
}

impl Counts {
    #[inline(always)]
    fn record(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Done { bytes, latency_ns } => {
                self.done += 1;
                self.bytes += bytes;
                self.latency.record(latency_ns);
            }
            Outcome::Failed => self.errors += 1,
        }
    }

    fn merge(&mut self, other: &Self) {
        self.done += other.done;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.latency.merge(&other.latency);
    }

    fn told(&self) -> OpStats {
        OpStats {
            count: self.done + self.errors,
            bytes: self.bytes,
            errors: self.errors,
            latency_ns: self.latency.histogram(),
        }
    }
}

/// A place for each kind of operation.
#[derive(Clone, Default)]
struct ByKind([Option<Box<Counts>>; OpKind::ALL.len()]);

impl ByKind {
    #[inline(always)]
    fn record(&mut self, kind: OpKind, outcome: Outcome) {
        let place = &mut self.0[kind.index()];
        let counts = match place {
            Some(counts) => counts,
            None => first_of_its_kind(place),
        };
        counts.record(outcome);
    }

    fn of(&self, kind: OpKind) -> Option<&Counts> {
        self.0[kind.index()].as_deref()
    }

    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            match (mine.as_mut(), theirs) {
                (Some(mine), Some(theirs)) => mine.merge(theirs),
                (None, Some(_)) => mine.clone_from(theirs),
                (_, None) => {}
            }
        }
    }
}

/// What happened on one device.
#[derive(Clone, Default)]
struct DeviceCounts {
    /// Operations that were a request of their own.
    whole: ByKind,
    /// Operations that were a part of a split request.
    parts: ByKind,
}

/// What one lane, or several merged, did since it was made or its statistics were taken.
#[derive(Clone, Default)]
pub struct LaneStats {
    devices: Vec<DeviceCounts>,
    /// Split requests.
    split: ByKind,
    /// How often the worker that has the lane was woken for a request.
    wake_ups: u64,
}

impl LaneStats {
    pub(crate) fn new(devices: usize) -> Self {
        Self {
            devices: vec![DeviceCounts::default(); devices],
            split: ByKind::default(),
            wake_ups: 0,
        }
    }

    /// The same, of a lane whose worker was woken so often.
    pub(crate) fn with_wake_ups(mut self, wake_ups: u64) -> Self {
        self.wake_ups = wake_ups;
        self
    }

    /// A request that was one operation on one device.
    #[inline(always)]
    pub(crate) fn record_whole(&mut self, device: u32, kind: OpKind, outcome: Outcome) {
        self.devices[device as usize].whole.record(kind, outcome);
    }

    /// One operation of a split request.
    #[inline]
    pub(crate) fn record_part(&mut self, device: u32, kind: OpKind, outcome: Outcome) {
        self.devices[device as usize].parts.record(kind, outcome);
    }

    /// A split request, as a whole.
    #[inline]
    pub(crate) fn record_split(&mut self, kind: OpKind, outcome: Outcome) {
        self.split.record(kind, outcome);
    }

    /// Whole requests of `kind`, as the caller submitted them. All zero when there were none.
    pub fn total(&self, kind: OpKind) -> OpStats {
        let whole = self.devices.iter().map(|device| &device.whole);
        sum(whole
            .chain([&self.split])
            .filter_map(|table| table.of(kind)))
        .told()
    }

    /// Operations of `kind` on one device, by its place in the lane's list; none when there were
    /// none.
    pub fn device(&self, slot: usize, kind: OpKind) -> Option<OpStats> {
        let device = self.devices.get(slot)?;
        let counts = [&device.whole, &device.parts].map(|table| table.of(kind));
        counts
            .iter()
            .any(Option::is_some)
            .then(|| sum(counts.into_iter().flatten()).told())
    }

    /// How often a worker of a [`Handle`](crate::Handle) that slept was woken for a request. One
    /// wake-up serves all requests that came before the worker looked, and one that is awake needs
    /// none. Zero for a lane of one's own.
    pub fn wake_ups(&self) -> u64 {
        self.wake_ups
    }

    /// Adds what another lane over the same devices did.
    pub fn merge(&mut self, other: &Self) {
        if self.devices.len() < other.devices.len() {
            self.devices
                .resize_with(other.devices.len(), DeviceCounts::default);
        }
        for (mine, theirs) in self.devices.iter_mut().zip(&other.devices) {
            mine.whole.merge(&theirs.whole);
            mine.parts.merge(&theirs.parts);
        }
        self.split.merge(&other.split);
        self.wake_ups += other.wake_ups;
    }
}

#[cold]
fn first_of_its_kind(place: &mut Option<Box<Counts>>) -> &mut Counts {
    place.get_or_insert_default()
}

fn sum<'a>(counts: impl Iterator<Item = &'a Counts>) -> Counts {
    counts.fold(Counts::default(), |mut total, counts| {
        total.merge(counts);
        total
    })
}

impl std::fmt::Debug for LaneStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut list = f.debug_map();
        for kind in OpKind::ALL {
            let total = self.total(kind);
            if total.count > 0 {
                list.entry(&kind, &(total.count, total.bytes, total.errors));
            }
        }
        list.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: Outcome = Outcome::Done {
        bytes: 4096,
        latency_ns: 1000,
    };

    #[test]
    fn a_whole_request_counts_for_itself_and_its_device() {
        let mut stats = LaneStats::new(2);
        stats.record_whole(1, OpKind::Read, DONE);
        assert_eq!(stats.total(OpKind::Read).count, 1);
        assert_eq!(stats.device(1, OpKind::Read).unwrap().bytes, 4096);
        assert!(stats.device(0, OpKind::Read).is_none());
    }

    #[test]
    fn a_split_request_counts_once_and_its_parts_on_their_devices() {
        let mut stats = LaneStats::new(2);
        stats.record_part(0, OpKind::Write, DONE);
        stats.record_part(1, OpKind::Write, Outcome::Failed);
        stats.record_split(OpKind::Write, Outcome::Failed);
        let total = stats.total(OpKind::Write);
        assert_eq!((total.count, total.bytes, total.errors), (1, 0, 1));
        assert_eq!(stats.device(0, OpKind::Write).unwrap().bytes, 4096);
        assert_eq!(stats.device(1, OpKind::Write).unwrap().errors, 1);
    }

    #[test]
    fn merging_adds_every_count() {
        let mut one = LaneStats::new(1);
        one.record_whole(0, OpKind::Read, DONE);
        let mut two = LaneStats::new(2);
        two.record_whole(1, OpKind::Read, DONE);
        two.record_whole(0, OpKind::Read, Outcome::Failed);
        one.merge(&two);
        let total = one.total(OpKind::Read);
        assert_eq!((total.count, total.bytes, total.errors), (3, 8192, 1));
        assert_eq!(total.latency_ns.len(), 2);
        assert_eq!(one.device(0, OpKind::Read).unwrap().count, 2);
    }
}
