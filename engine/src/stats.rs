//! What a lane did: counts, bytes, errors and latencies, for whole requests and for each device.
//!
//! - Latency counts from the submission of a request to the poll that gives its completion; one
//!   clock reading serves all that is submitted, and one all that completes, between two polls.
//! - A request that was split counts once among the requests, and once for each operation on each
//!   device.
//! - A histogram is made when the first operation of its kind completes; nothing is allocated
//!   after that.

use hdrhistogram::Histogram;

use crate::op::OpKind;

/// The longest latency that is told apart: 100 seconds. Longer ones count as this.
const LATENCY_NS_MAX: u64 = 100_000_000_000;

/// Three significant digits for whole requests, which reports quote to the p99.99.
const REQUEST_DIGITS: u8 = 3;

/// Two for each device: a lane over 24 devices keeps all of these.
const DEVICE_DIGITS: u8 = 2;

/// Counts of one kind of operation.
#[derive(Debug, Clone)]
pub struct OpStats {
    /// How many ended, with or without an error.
    pub count: u64,
    /// How many bytes those without an error moved.
    pub bytes: u64,
    /// How many ended with an error.
    pub errors: u64,
    /// Latency of those without an error, in nanoseconds.
    pub latency_ns: Histogram<u64>,
}

impl OpStats {
    fn new(digits: u8) -> Self {
        let latency_ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, digits)
            .expect("1 to 100 seconds at 2 or 3 digits is a histogram");
        Self {
            count: 0,
            bytes: 0,
            errors: 0,
            latency_ns,
        }
    }

    #[inline]
    fn record(&mut self, outcome: Outcome) {
        self.count += 1;
        match outcome {
            Outcome::Done { bytes, latency_ns } => {
                self.bytes += bytes;
                self.latency_ns.saturating_record(latency_ns);
            }
            Outcome::Failed => self.errors += 1,
        }
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.latency_ns
            .add(&other.latency_ns)
            .expect("histograms of one place have the same bounds");
    }
}

impl Default for OpStats {
    fn default() -> Self {
        Self::new(REQUEST_DIGITS)
    }
}

/// How an operation ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome {
    Done { bytes: u64, latency_ns: u64 },
    Failed,
}

/// One table row: a place for each kind of operation.
#[derive(Debug, Clone, Default)]
struct ByKind([Option<Box<OpStats>>; OpKind::ALL.len()]);

impl ByKind {
    #[inline]
    fn record(&mut self, kind: OpKind, digits: u8, outcome: Outcome) {
        self.0[kind.index()]
            .get_or_insert_with(|| Box::new(OpStats::new(digits)))
            .record(outcome);
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

/// What one lane, or several merged, did since it was made or its statistics were taken.
#[derive(Debug, Clone, Default)]
pub struct LaneStats {
    requests: ByKind,
    devices: Vec<ByKind>,
}

impl LaneStats {
    pub(crate) fn new(devices: usize) -> Self {
        Self {
            requests: ByKind::default(),
            devices: vec![ByKind::default(); devices],
        }
    }

    #[inline]
    pub(crate) fn record_request(&mut self, kind: OpKind, outcome: Outcome) {
        self.requests.record(kind, REQUEST_DIGITS, outcome);
    }

    #[inline]
    pub(crate) fn record_device(&mut self, device: usize, kind: OpKind, outcome: Outcome) {
        self.devices[device].record(kind, DEVICE_DIGITS, outcome);
    }

    /// Whole requests of `kind`, as the caller submitted them. All zero when there were none.
    pub fn total(&self, kind: OpKind) -> OpStats {
        self.requests.0[kind.index()]
            .as_deref()
            .cloned()
            .unwrap_or_default()
    }

    /// Operations of `kind` on one device, by its place in the lane's list; none when there were
    /// none.
    pub fn device(&self, slot: usize, kind: OpKind) -> Option<&OpStats> {
        self.devices.get(slot)?.0[kind.index()].as_deref()
    }

    /// Adds what another lane over the same devices did.
    pub fn merge(&mut self, other: &Self) {
        self.requests.merge(&other.requests);
        if self.devices.len() < other.devices.len() {
            self.devices
                .resize_with(other.devices.len(), ByKind::default);
        }
        for (mine, theirs) in self.devices.iter_mut().zip(&other.devices) {
            mine.merge(theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_adds_every_count() {
        let mut one = LaneStats::new(1);
        one.record_request(
            OpKind::Read,
            Outcome::Done {
                bytes: 4096,
                latency_ns: 1000,
            },
        );
        one.record_device(
            0,
            OpKind::Read,
            Outcome::Done {
                bytes: 4096,
                latency_ns: 1000,
            },
        );
        let mut two = LaneStats::new(2);
        two.record_request(OpKind::Read, Outcome::Failed);
        two.record_device(1, OpKind::Write, Outcome::Failed);
        one.merge(&two);
        let total = one.total(OpKind::Read);
        assert_eq!((total.count, total.bytes, total.errors), (2, 4096, 1));
        assert_eq!(total.latency_ns.len(), 1);
        assert_eq!(one.device(0, OpKind::Read).unwrap().count, 1);
        assert_eq!(one.device(1, OpKind::Write).unwrap().errors, 1);
        assert!(one.device(0, OpKind::Flush).is_none());
    }
}
