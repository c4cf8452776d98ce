//! What happens from one interval to the next, as Vdbench prints it while it runs.
//!
//! The columns are those of Vdbench 5.04.07: times in milliseconds, MB of 1024^2 bytes, CPU time of
//! the whole machine in per cent.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use swath_engine::OpKind;

use crate::environment::format_utc;

/// How often a lane passes on what it saw.
pub(super) const PASS_ON_NS: u64 = 10_000_000;

/// Requests that were done, added up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Totals {
    reads: u64,
    writes: u64,
    bytes: u64,
    read_ns: u64,
    write_ns: u64,
    read_ns_max: u64,
    write_ns_max: u64,
    /// Squares of the latencies, in square milliseconds.
    squares: f64,
}

impl Totals {
    pub(super) fn add(&mut self, kind: OpKind, bytes: u64, latency_ns: u64) {
        self.bytes += bytes;
        self.squares += (latency_ns as f64 / 1e6).powi(2);
        if kind == OpKind::Read {
            self.reads += 1;
            self.read_ns += latency_ns;
            self.read_ns_max = self.read_ns_max.max(latency_ns);
        } else {
            self.writes += 1;
            self.write_ns += latency_ns;
            self.write_ns_max = self.write_ns_max.max(latency_ns);
        }
    }

    fn merge(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.bytes += other.bytes;
        self.read_ns += other.read_ns;
        self.write_ns += other.write_ns;
        self.read_ns_max = self.read_ns_max.max(other.read_ns_max);
        self.write_ns_max = self.write_ns_max.max(other.write_ns_max);
        self.squares += other.squares;
    }
}

/// Where lanes put what they saw, and the printing thread takes it.
#[derive(Debug, Default)]
pub(super) struct Board(Mutex<Totals>);

impl Board {
    pub(super) fn put(&self, totals: &mut Totals) {
        let mut board = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        board.merge(totals);
        *totals = Totals::default();
    }

    fn take(&self) -> Totals {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Time that the machine's cores spent, in ticks, since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MachineTime {
    user: u64,
    system: u64,
    all: u64,
}

impl MachineTime {
    /// As it is now; zeroes where the kernel does not tell.
    pub(super) fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// The first line of /proc/stat, see proc_stat(5): user, nice, system, idle, iowait, irq,
    /// softirq, steal; the rest is in user already.
    fn parse(text: &str) -> Self {
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .take(8)
            .filter_map(|number| number.parse().ok())
            .collect();
        let at = |place: usize| ticks.get(place).copied().unwrap_or(0);
        Self {
            user: at(0) + at(1),
            system: at(2) + at(5) + at(6),
            all: ticks.iter().sum(),
        }
    }

    /// Per cent of the time between `before` and this: user and system, system.
    fn percent_since(&self, before: &Self) -> (f64, f64) {
        let all = self.all.saturating_sub(before.all).max(1) as f64;
        let user = self.user.saturating_sub(before.user) as f64;
        let system = self.system.saturating_sub(before.system) as f64;
        ((user + system) / all * 100.0, system / all * 100.0)
    }
}

/// Date and time of day, UTC, as the lines have them.
pub(super) fn wall() -> (String, String) {
    let now = SystemTime::now();
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let text = format_utc(now.as_secs());
    let (date, time) = text.split_once('T').unwrap_or_default();
    let time = time.trim_end_matches('Z');
    (
        date.to_owned(),
        format!("{time}.{:03}", now.subsec_millis()),
    )
}

/// The two lines above the intervals.
pub(super) fn header(date: &str) -> String {
    let columns = "    interval        i/o   MB/sec   bytes   read     resp     read    write     read    \
     write     resp  queue  cpu%  cpu%\n                               rate  1024**2     i/o    pct     \
     time     resp     resp      max      max   stddev  depth sys+u   sys\n";
    format!("{date:<12}{columns}")
}

/// Makes the lines of one point.
#[derive(Debug)]
pub(super) struct Intervals {
    all: Totals,
    count: u64,
    began: MachineTime,
    before: MachineTime,
    printed_ns: u64,
    began_ns: u64,
}

impl Intervals {
    /// The first one begins at `began_ns`.
    pub(super) fn new(began_ns: u64, time: MachineTime) -> Self {
        Self {
            all: Totals::default(),
            count: 0,
            began: time,
            before: time,
            printed_ns: began_ns,
            began_ns,
        }
    }

    /// When the one in progress began.
    pub(super) fn printed_ns(&self) -> u64 {
        self.printed_ns
    }

    /// The line of the interval that ends at `now_ns`.
    pub(super) fn line(&mut self, board: &Board, now_ns: u64, at: (MachineTime, &str)) -> String {
        let (time, wall) = at;
        let totals = board.take();
        self.all.merge(&totals);
        self.count += 1;
        let length_ns = now_ns.saturating_sub(self.printed_ns);
        let percent = time.percent_since(&self.before);
        self.printed_ns = now_ns;
        self.before = time;
        line(wall, &self.count.to_string(), &totals, length_ns, percent)
    }

    /// The line of all of them together, whatever of them was printed.
    pub(super) fn average(
        &mut self,
        board: &Board,
        now_ns: u64,
        at: (MachineTime, &str),
    ) -> String {
        let (time, wall) = at;
        self.all.merge(&board.take());
        let length_ns = now_ns.saturating_sub(self.began_ns);
        let percent = time.percent_since(&self.began);
        let name = format!("avg_1-{}", self.count.max(1));
        line(wall, &name, &self.all, length_ns, percent)
    }
}

fn line(
    wall: &str,
    name: &str,
    totals: &Totals,
    length_ns: u64,
    (busy, system): (f64, f64),
) -> String {
    let ms = |ns: u64, count: u64| ns as f64 / 1e6 / count.max(1) as f64;
    let Totals { reads, writes, .. } = *totals;
    let count = reads + writes;
    let seconds = length_ns.max(1) as f64 / 1e9;
    let rate = count as f64 / seconds;
    let mean = ms(totals.read_ns + totals.write_ns, count);
    let variance = totals.squares / count.max(1) as f64 - mean * mean;
    // By Little's law: how many are there is how many come times how long each stays.
    let depth = rate * mean / 1e3;
    format!(
        "{wall:>12}{name:>12} {rate:>10.1} {:>8.2} {:>7} {:>6.2} {mean:>8.3} {:>8.3} {:>8.3} {:>8.2} {:>8.2} \
         {:>8.3} {depth:>6.1} {busy:>5.1} {system:>5.1}\n",
        totals.bytes as f64 / seconds / f64::from(1 << 20),
        totals.bytes / count.max(1),
        reads as f64 / count.max(1) as f64 * 100.0,
        ms(totals.read_ns, reads),
        ms(totals.write_ns, writes),
        ms(totals.read_ns_max, 1),
        ms(totals.write_ns_max, 1),
        variance.max(0.0).sqrt(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_vdbenchs_columns() {
        let board = Board::default();
        let mut lane = Totals::default();
        lane.add(OpKind::Read, 4096, 1_000_000);
        lane.add(OpKind::Read, 4096, 3_000_000);
        lane.add(OpKind::Write, 8192, 2_000_000);
        board.put(&mut lane);
        assert_eq!(lane, Totals::default());
        let time = |user, system, all| MachineTime { user, system, all };
        let mut intervals = Intervals::new(0, time(0, 0, 0));
        let fields =
            |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
        let first =
            fields(&intervals.line(&board, 500_000_000, (time(10, 10, 100), "12:00:00.500")));
        assert_eq!(
            first,
            [
                "12:00:00.500",
                "1",
                "6.0",
                "0.03",
                "5461",
                "66.67",
                "2.000",
                "2.000",
                "2.000",
                "3.00",
                "2.00",
                "0.816",
                "0.0",
                "20.0",
                "10.0"
            ]
        );
        lane.add(OpKind::Write, 4096, 2_000_000);
        board.put(&mut lane);
        intervals.line(&board, 1_000_000_000, (time(20, 10, 200), ""));
        let average = fields(&intervals.average(&board, 1_000_000_000, (time(20, 10, 200), "")));
        assert_eq!(average[..5], ["avg_1-2", "4.0", "0.02", "5120", "50.00"]);
        assert_eq!(average[12..], ["15.0", "5.0"]);
        let columns = header("2026-01-31")
            .lines()
            .map(|line| fields(line).len())
            .max()
            .unwrap();
        assert_eq!(columns, first.len());
    }

    #[test]
    fn columns_and_their_heads_end_at_the_same_places() {
        let mut intervals = Intervals::new(0, MachineTime::default());
        let board = Board::default();
        let line = intervals.line(&board, 1, (MachineTime::default(), "12:00:00.500"));
        for head in header("2026-01-31").lines() {
            assert_eq!(head.len(), line.trim_end().len());
        }
        let (date, time) = wall();
        assert_eq!((date.len(), time.len()), (10, 12), "{date} {time}");
    }

    #[test]
    fn machine_time_is_the_sum_of_all_cores() {
        let time = MachineTime::parse("cpu  10 1 20 60 5 2 1 1 3 0\ncpu0 1 1 1 1\n");
        assert_eq!((time.user, time.system, time.all), (11, 23, 100));
        assert_eq!(MachineTime::parse(""), MachineTime::default());
        assert!(MachineTime::now().all > 0);
    }
}
