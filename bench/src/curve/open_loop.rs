//! One lane under load: requests start when they are meant to, whether or not those before are done.
//!
//! - The latency of a request counts from its intended start. One that cannot be submitted because as
//!   many are in flight as may be waits in the schedule, and its waiting counts. So a drive that
//!   stalls shows in all the requests that it held up, and not only in the few that it was working on
//!   ("coordinated omission").
//! - While something is in flight the lane polls; it sleeps only when nothing is, and wakes up before
//!   the next arrival. So neither an arrival nor a completion is slept past, at the price of CPU time
//!   at low rates.
//! - Latencies are those of the requests meant to start within the window, wherever they end: after
//!   the window the lane goes on until all of them are done, for as long again as the window. What is
//!   left then is told as unserved. The rate that was achieved is that of the ends within the window,
//!   so that it is neither too low by what the last requests take nor by what the ramp left behind.
//! - Without a rate the lane keeps its depth full: a request's start is its submission.

use hdrhistogram::Histogram;
use swath_engine::{Buffer, Completion, OpKind, PoolBuf};

use super::arrivals::Schedule;
use super::clock::Clock;
use super::requests::{Ask, Requests};
use crate::error::{Error, ErrorKind, Result};
use crate::runner::stamp::Stamp;

/// Where a lane's requests go: a volume's lane, or a test's drive.
pub(super) trait Port {
    /// Queues a request.
    fn submit(&mut self, ask: &Ask, buffer: Buffer, token: u64);

    /// Starts what is queued and takes the completions that are there.
    fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<()>;

    /// Starts what is queued and waits for at least `min` completions.
    fn wait(&mut self, min: usize, completions: &mut Vec<Completion>) -> Result<()>;
}

/// What starts requests.
#[derive(Debug)]
pub(super) enum Load {
    /// The end of another one.
    Uncapped,
    /// The time.
    Rate(Schedule),
}

/// When requests count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// The first moment.
    pub(super) from_ns: u64,
    /// The first moment after it.
    pub(super) to_ns: u64,
}

impl Window {
    fn length_ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }

    fn contains(&self, at_ns: u64) -> bool {
        (self.from_ns..self.to_ns).contains(&at_ns)
    }

    /// When a lane no longer waits for what the window left.
    pub(super) fn give_up_ns(&self) -> u64 {
        self.to_ns.saturating_add(self.length_ns())
    }
}

/// The longest latency that is told apart: an hour.
const NS_MAX: u64 = 3_600_000_000_000;

/// What became of the requests of a window.
#[derive(Debug)]
pub(super) struct Tally {
    /// Meant to start in it.
    pub(super) offered: u64,
    /// Of these, done.
    pub(super) served: u64,
    /// Done within the window, whenever they were meant to start, and their bytes.
    pub(super) done: u64,
    pub(super) bytes: u64,
    /// Latencies of those that read and those that wrote, from the intended start.
    pub(super) read_ns: Histogram<u64>,
    pub(super) write_ns: Histogram<u64>,
}

impl Tally {
    pub(super) fn new() -> Result<Self> {
        // Three digits, up to an hour: what is longer counts as that, and nothing grows on the way.
        let histogram = || {
            Histogram::new_with_bounds(1, NS_MAX, 3)
                .map_err(|cause| Error::failed("cannot make a histogram", cause))
        };
        Ok(Self {
            offered: 0,
            served: 0,
            done: 0,
            bytes: 0,
            read_ns: histogram()?,
            write_ns: histogram()?,
        })
    }

    /// Adds what another lane did.
    pub(super) fn merge(&mut self, other: &Self) -> Result<()> {
        self.offered += other.offered;
        self.served += other.served;
        self.done += other.done;
        self.bytes += other.bytes;
        let add = |mine: &mut Histogram<u64>, theirs: &Histogram<u64>| {
            mine.add(theirs)
                .map_err(|cause| Error::failed("cannot add histograms", cause))
        };
        add(&mut self.read_ns, &other.read_ns)?;
        add(&mut self.write_ns, &other.write_ns)
    }

    #[inline]
    fn record(&mut self, kind: OpKind, latency_ns: u64) {
        self.served += 1;
        let histogram = if kind == OpKind::Read {
            &mut self.read_ns
        } else {
            &mut self.write_ns
        };
        histogram.saturating_record(latency_ns);
    }
}

/// Who is told what happens to a lane, as it happens.
pub(super) trait Watch {
    /// Whether to stop.
    fn is_over(&self) -> bool;

    /// The window opens.
    fn begin(&mut self);

    /// A request is done, within the window.
    fn done(&mut self, ask: &Ask, latency_ns: u64);

    /// A moment to pass on what was seen since the last one.
    fn moment(&mut self, now_ns: u64);
}

/// A request in flight.
#[derive(Debug, Clone, Copy)]
struct Flight {
    ask: Ask,
    intended_ns: u64,
}

/// A lane about to run.
#[derive(Debug)]
pub(super) struct OpenLoop<P, C> {
    pub(super) port: P,
    pub(super) clock: C,
    requests: Requests,
    load: Load,
    window: Window,
    stamp: Stamp,
    /// What each token stands for.
    flights: Vec<Flight>,
    /// Tokens that are not in flight, each with its buffer.
    free: Vec<(usize, PoolBuf)>,
    tally: Tally,
    has_begun: bool,
}

impl<P: Port, C: Clock> OpenLoop<P, C> {
    /// A lane with as many requests in flight at most as there are `buffers`.
    pub(super) fn new(
        port: P,
        clock: C,
        (requests, load): (Requests, Load),
        window: Window,
        (buffers, stamp): (Vec<PoolBuf>, Stamp),
    ) -> Result<Self> {
        let nothing = Flight {
            ask: Ask {
                kind: OpKind::Read,
                offset: 0,
                bytes: 0,
            },
            intended_ns: 0,
        };
        Ok(Self {
            port,
            clock,
            requests,
            load,
            window,
            stamp,
            flights: vec![nothing; buffers.len()],
            free: buffers.into_iter().enumerate().collect(),
            tally: Tally::new()?,
            has_begun: false,
        })
    }

    fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// Runs to the end of the window, and of what was offered in it. None: told to stop.
    pub(super) fn run(&mut self, watch: &mut dyn Watch) -> Result<Option<()>> {
        // Few: a drive that is waited for runs dry (see `RunOptions::reap`).
        let reap_min = (self.flights.len() / 16).max(1);
        let mut completions = Vec::with_capacity(self.flights.len());
        loop {
            let now_ns = self.clock.now_ns();
            if now_ns >= self.window.from_ns && !self.has_begun {
                self.has_begun = true;
                watch.begin();
            }
            self.submit_due(now_ns);
            let next_ns = self.next_ns(now_ns);
            if self.in_flight() == 0 {
                let Some(next_ns) = next_ns else {
                    break;
                };
                self.clock.rest_until(next_ns);
            } else if next_ns.is_none() || self.free.is_empty() {
                // Nothing can be submitted before something is done.
                let is_uncapped = matches!(self.load, Load::Uncapped);
                let min = if is_uncapped { reap_min } else { 1 };
                self.port
                    .wait(min.min(self.in_flight()), &mut completions)?;
            } else {
                self.port.poll(&mut completions)?;
            }
            let now_ns = self.clock.now_ns();
            self.take_back(&mut completions, now_ns, watch)?;
            watch.moment(now_ns);
            if watch.is_over() {
                return Ok(None);
            }
            if now_ns >= self.window.give_up_ns() {
                break;
            }
        }
        self.count_rest();
        Ok(Some(()))
    }

    /// What it did.
    pub(super) fn into_tally(self) -> Tally {
        self.tally
    }

    /// When the next request is to start; none: no more is.
    fn next_ns(&self, now_ns: u64) -> Option<u64> {
        let next_ns = match &self.load {
            Load::Uncapped => now_ns,
            Load::Rate(schedule) => schedule.next_ns(),
        };
        (next_ns < self.window.to_ns).then_some(next_ns)
    }

    /// Submits what is due, as far as there is room.
    #[inline]
    fn submit_due(&mut self, now_ns: u64) {
        while let Some(intended_ns) = self.next_ns(now_ns).filter(|&next_ns| next_ns <= now_ns) {
            let Some((token, mut buffer)) = self.free.pop() else {
                break;
            };
            if let Load::Rate(schedule) = &mut self.load {
                schedule.advance();
            }
            self.tally.offered += u64::from(self.window.contains(intended_ns));
            let ask = self.requests.next_ask();
            // A request is at most as long as the buffers were made.
            buffer.set_len(usize::try_from(ask.bytes).unwrap_or(usize::MAX));
            if ask.kind == OpKind::Write {
                self.stamp.mark(&mut buffer);
            }
            self.flights[token] = Flight { ask, intended_ns };
            // Tokens are few.
            self.port.submit(&ask, Buffer::from(buffer), token as u64);
        }
    }

    #[inline]
    fn take_back(
        &mut self,
        completions: &mut Vec<Completion>,
        now_ns: u64,
        watch: &mut dyn Watch,
    ) -> Result<()> {
        for completion in completions.drain(..) {
            let Completion {
                token,
                buffers,
                result,
                ..
            } = completion;
            let token = usize::try_from(token).unwrap_or(usize::MAX);
            let Flight { ask, intended_ns } = self.flights[token];
            result.map_err(|cause| {
                let message = format!("a {:?} of {} bytes failed", ask.kind, ask.bytes);
                Error::failed(message, cause)
            })?;
            let buffer = buffers
                .into_one()
                .and_then(|buffer| PoolBuf::try_from(buffer).ok());
            let buffer = buffer.ok_or_else(|| {
                Error::new(ErrorKind::Failed, "a completion came without its buffer")
            })?;
            self.free.push((token, buffer));
            let latency_ns = now_ns.saturating_sub(intended_ns);
            if self.window.contains(intended_ns) {
                self.tally.record(ask.kind, latency_ns);
            }
            if self.window.contains(now_ns) {
                self.tally.done += 1;
                self.tally.bytes += ask.bytes;
                watch.done(&ask, latency_ns);
            }
        }
        Ok(())
    }

    /// Counts what was offered and never submitted.
    fn count_rest(&mut self) {
        if let Load::Rate(schedule) = &mut self.load {
            while schedule.next_ns() < self.window.to_ns {
                self.tally.offered += u64::from(self.window.contains(schedule.next_ns()));
                schedule.advance();
            }
        }
    }
}

#[cfg(test)]
mod tests;
