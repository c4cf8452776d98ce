//! A lane over a simulated drive, in simulated time: nothing here looks at the machine's clock.
//!
//! What could go wrong: a generator that waits for a stalled drive and so never offers the requests
//! that would have shown the stall; one that drifts; latencies that count from the submission.

use std::cell::Cell;
use std::rc::Rc;

use swath_engine::{BufPool, Buffers};

use super::*;
use crate::curve::arrivals::Arrivals;
use crate::curve::shipped::find;

const MS: u64 = 1_000_000;
/// How long the drive takes for a request.
const SERVICE_NS: u64 = 100_000;

/// Simulated time. A look at it takes a little.
#[derive(Clone, Default)]
struct SimClock(Rc<Cell<u64>>);

impl SimClock {
    fn set_at_least(&self, ns: u64) {
        self.0.set(self.0.get().max(ns));
    }
}

impl Clock for SimClock {
    fn now_ns(&mut self) -> u64 {
        self.0.set(self.0.get() + 500);
        self.0.get()
    }

    fn rest_until(&mut self, until_ns: u64) {
        self.set_at_least(until_ns);
    }
}

/// A drive that takes [`SERVICE_NS`] for each of its requests, `parallel` of them at once, and does
/// nothing at all during a stall.
struct SimDrive {
    time: SimClock,
    parallel: usize,
    stall: Option<(u64, u64)>,
    /// When each of the requests it works on at once is done with its last one.
    busy_until_ns: Vec<u64>,
    in_flight: Vec<(u64, Completion)>,
}

impl SimDrive {
    fn done_at(&mut self, now_ns: u64) -> u64 {
        let servers = self.busy_until_ns.iter_mut();
        let server = servers.min().unwrap();
        let mut done_ns = now_ns.max(*server) + SERVICE_NS;
        if let Some((from_ns, to_ns)) = self.stall
            && (from_ns..to_ns).contains(&done_ns)
        {
            done_ns = to_ns;
        }
        *server = done_ns;
        done_ns
    }
}

impl Port for SimDrive {
    fn submit(&mut self, ask: &Ask, buffer: Buffer, token: u64) {
        let now_ns = self.time.0.get();
        let done_ns = self.done_at(now_ns);
        assert_eq!(buffer.len() as u64, ask.bytes);
        let completion = Completion {
            token,
            kind: ask.kind,
            buffers: Buffers::from(buffer),
            result: Ok(ask.bytes),
        };
        self.in_flight.push((done_ns, completion));
        assert!(self.in_flight.len() <= self.parallel * 64);
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<()> {
        let now_ns = self.time.0.get();
        let is_done = |flight: &mut (u64, Completion)| flight.0 <= now_ns;
        let done = self.in_flight.extract_if(.., is_done);
        completions.extend(done.map(|(_, completion)| completion));
        Ok(())
    }

    fn wait(&mut self, _: usize, completions: &mut Vec<Completion>) -> Result<()> {
        let first_ns = self.in_flight.iter().map(|(done_ns, _)| *done_ns).min();
        self.time.set_at_least(first_ns.unwrap());
        self.poll(completions)
    }
}

struct Nobody;

impl Watch for Nobody {
    fn is_over(&self) -> bool {
        false
    }
    fn begin(&mut self) {}
    fn done(&mut self, _: &Ask, _: u64) {}
    fn moment(&mut self, _: u64) {}
}

/// What the drive gives in a window of a second after a tenth of one, with `depth` in flight at most.
fn run(
    load: Option<(Arrivals, f64)>,
    depth: usize,
    parallel: usize,
    stall: Option<(u64, u64)>,
) -> Tally {
    let profile = find("4k-randread").unwrap();
    let time = SimClock::default();
    let drive = SimDrive {
        time: time.clone(),
        parallel,
        stall,
        busy_until_ns: vec![0; parallel],
        in_flight: Vec::new(),
    };
    let pool = BufPool::new(4096, depth).unwrap();
    let buffers = (0..depth).map(|_| pool.take().unwrap()).collect();
    let load = load.map_or(Load::Uncapped, |(arrivals, rate)| {
        Load::Rate(Schedule::new(arrivals, rate, (0, 1), 5))
    });
    let window = Window {
        from_ns: 100 * MS,
        to_ns: 1100 * MS,
    };
    let requests = Requests::new(&profile, 1 << 30, 0, 5);
    let stamp = Stamp::new(0);
    let mut open_loop =
        OpenLoop::new(drive, time, (requests, load), window, (buffers, stamp)).unwrap();
    open_loop.run(&mut Nobody).unwrap().unwrap();
    open_loop.into_tally()
}

/// As the report has it.
fn achieved_per_s(tally: &Tally) -> f64 {
    // In a second.
    tally.done as f64
}

#[test]
fn a_stalled_drive_shows_in_every_request_that_it_held_up() {
    // 10,000 a second, a tenth of what the drive can; for 100 ms it stands still.
    let stall = Some((500 * MS, 600 * MS));
    let tally = run(Some((Arrivals::Even, 10_000.0)), 16, 100, stall);
    assert_eq!((tally.offered, tally.served), (10_000, 10_000));
    let latencies = &tally.read_ns;
    // 1000 were meant to start meanwhile, and waited for 53 ms on average; only 16 of them were in
    // flight. Counted from their submission, only these would have been slow. The drive then needs
    // 6 ms to catch up.
    let slower_than = |ns: u64| latencies.count_between(ns, u64::MAX);
    let waited_half = slower_than(50 * MS);
    assert!((500..560).contains(&waited_half), "{waited_half}");
    let waited = slower_than(MS);
    assert!((960..1100).contains(&waited), "{waited}");
    let max_ms = latencies.max() / MS;
    assert!((99..=101).contains(&max_ms), "{max_ms} ms");
    // 1000 requests at 53 ms, the others at 100 us.
    let mean_ms = latencies.mean() / MS as f64;
    assert!((4.8..5.6).contains(&mean_ms), "{mean_ms} ms");
}

#[test]
fn without_a_rate_a_stall_shows_only_in_what_was_in_flight() {
    // What the load above is there to avoid.
    let stall = Some((500 * MS, 600 * MS));
    let tally = run(None, 16, 100, stall);
    let slow = tally.read_ns.count_between(MS, u64::MAX);
    assert_eq!(slow, 16);
}

#[test]
fn below_saturation_the_offered_rate_is_the_one_that_was_set_and_achieved() {
    for arrivals in [Arrivals::Even, Arrivals::Poisson] {
        for rate in [20.0, 3000.0, 50_000.0, 90_000.0] {
            // Ten at once at 100 us each: 100,000 a second.
            let tally = run(Some((arrivals, rate)), 64, 10, None);
            let offered = tally.offered as f64;
            let chance = match arrivals {
                Arrivals::Even => 1.0,
                // Four standard deviations.
                Arrivals::Poisson => 4.0 * rate.sqrt(),
            };
            assert!(
                (offered - rate).abs() <= chance,
                "{arrivals} {rate}: {offered}"
            );
            let achieved = achieved_per_s(&tally);
            assert!(
                (achieved / offered - 1.0).abs() < 0.01,
                "{arrivals} {rate}: {achieved}"
            );
            assert_eq!(tally.served, tally.offered);
        }
    }
}

#[test]
fn latencies_of_a_drive_that_is_not_busy_are_its_own() {
    let tally = run(Some((Arrivals::Even, 1000.0)), 64, 10, None);
    let near = SERVICE_NS..SERVICE_NS + 4000;
    assert!(near.contains(&tally.read_ns.value_at_quantile(0.5)));
    assert!(
        near.contains(&tally.read_ns.max()),
        "{}",
        tally.read_ns.max()
    );
}

#[test]
fn above_saturation_the_drive_gives_what_it_can_and_the_queue_shows() {
    let tally = run(Some((Arrivals::Even, 120_000.0)), 64, 10, None);
    assert_eq!(tally.offered, 120_000);
    assert_eq!(
        tally.served, tally.offered,
        "the rest is served after the window"
    );
    let achieved = achieved_per_s(&tally);
    assert!((achieved / 100_000.0 - 1.0).abs() < 0.01, "{achieved}");
    // A fifth of the window, and of the ramp before it, was behind at its end.
    let max_ms = tally.read_ns.max() / MS;
    assert!((200..230).contains(&max_ms), "{max_ms} ms");
}

#[test]
fn what_cannot_be_served_in_the_time_is_told() {
    // Ten times what the drive can: after as long again a fifth is done.
    let tally = run(Some((Arrivals::Even, 1_000_000.0)), 64, 10, None);
    assert_eq!(tally.offered, 1_000_000);
    assert!(tally.served < 250_000, "{}", tally.served);
}

#[test]
fn the_peak_is_what_the_drive_can() {
    let tally = run(None, 64, 10, None);
    let achieved = achieved_per_s(&tally);
    assert!((achieved / 100_000.0 - 1.0).abs() < 0.01, "{achieved}");
    assert_eq!(tally.served, tally.offered);
}
