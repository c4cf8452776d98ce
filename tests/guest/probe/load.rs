//! I/O that goes on whatever fails: for drives that are taken away, and for bad sectors. Says what
//! became of every request, and of the volume afterwards.

use std::collections::BTreeMap;
use std::env;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use swath_engine::{AlignedBuf, ErrorKind, QueueOptions};
use swath_volume::{OpenOptions, Volume, VolumeLane};

use crate::{Result, chain, lane_options, outcome};

/// Requests in flight.
const DEPTH: u64 = 48;
const BLOCK_BYTES: u64 = 256 << 10;

/// How often what happened, with the words of the first time.
#[derive(Default)]
struct Tally(BTreeMap<String, (u64, String)>);

impl Tally {
    fn count(&mut self, what: String, example: impl FnOnce() -> String) {
        self.0.entry(what).or_insert_with(|| (0, example())).0 += 1;
    }

    fn print(&self) {
        for (what, (times, example)) in &self.0 {
            println!("{what}: {times} {example}");
        }
    }
}

/// The kinds of requests; every sixteen of them flush, discard, write zeroes and force a write once.
fn kind_of(number: u64) -> &'static str {
    match number % 16 {
        0 => "flush",
        1 => "discard",
        2 => "write-zeroes",
        3 => "write-fua",
        4..=9 => "write",
        _ => "read",
    }
}

fn submit(lane: &mut VolumeLane, kind: &str, offset: u64, number: u64) -> Result<()> {
    match kind {
        "flush" => lane.flush(number),
        "discard" => lane.discard(offset, 64 << 10, number),
        "write-zeroes" => lane.write_zeroes(offset, 64 << 10, number),
        "write-fua" => lane.write_fua(offset, AlignedBuf::zeroed(16 << 10)?, number),
        "write" => lane.write(offset, AlignedBuf::zeroed(128 << 10)?, number),
        "read" => lane.read(offset, AlignedBuf::zeroed(128 << 10)?, number),
        other => return Err(format!("LOAD_ONLY={other} is no kind of request").into()),
    }
    Ok(())
}

fn number_in(variable: &str) -> Result<Option<u64>> {
    Ok(env::var(variable)
        .ok()
        .map(|value| value.parse())
        .transpose()?)
}

/// Keeps requests of every kind in flight on a lane until the time is up. Fails when one of them
/// does not come back.
pub(crate) fn lane(options: &QueueOptions, seconds: u64, members: &[&str]) -> Result<()> {
    let volume = Volume::open(members, &OpenOptions::default())?;
    let mut lane = volume.lane(&lane_options(options))?;
    println!("load: {}", lane.description());
    let only = env::var("LOAD_ONLY").ok();
    let blocks =
        (volume.capacity_bytes() / BLOCK_BYTES - 1).min(number_in("LOAD_BLOCKS")?.unwrap_or(2000));
    let after_failure = number_in("LOAD_AFTER")?;
    let start = Instant::now();
    let mut tally = Tally::default();
    let mut completions = Vec::new();
    let (mut submitted, mut completed) = (0_u64, 0_u64);
    let mut first_failure = None;
    let mut slowest = Duration::ZERO;
    let mut is_broken = false;
    let mut end = start + Duration::from_secs(seconds);
    while Instant::now() < end && !is_broken {
        while submitted - completed < DEPTH {
            let part = submitted / 16 % 4 * (BLOCK_BYTES / 4);
            let offset = submitted * 7919 % blocks * BLOCK_BYTES + part;
            let kind = only.as_deref().unwrap_or(kind_of(submitted));
            submit(&mut lane, kind, offset, submitted)?;
            submitted += 1;
        }
        let before = Instant::now();
        if let Err(error) = lane.wait(1, &mut completions) {
            println!("the lane failed: {}", chain(&error));
            is_broken = true;
        }
        slowest = slowest.max(before.elapsed());
        for completion in completions.drain(..) {
            completed += 1;
            let Err(error) = completion.result else {
                tally.count(format!("{} ok", completion.kind), String::new);
                continue;
            };
            if first_failure.is_none() {
                first_failure = Some(start.elapsed());
                end = after_failure.map_or(end, |seconds| {
                    end.min(Instant::now() + Duration::from_secs(seconds))
                });
            }
            let cause = match std::error::Error::source(&error) {
                Some(cause) if error.kind() != ErrorKind::Poisoned => cause.to_string(),
                _ => String::new(),
            };
            tally.count(
                format!("{} {:?} {cause}", completion.kind, error.kind()),
                || format!("| {}", chain(&error)),
            );
        }
    }
    lane.drain(&mut completions)?;
    completed += completions.len() as u64;
    tally.print();
    println!(
        "submitted {submitted}, completed {completed}, longest wait {} ms, first failure at {:?}",
        slowest.as_millis(),
        first_failure
    );
    afterwards(&volume, lane, options)?;
    println!("close: {}", outcome(volume.close()));
    if completed == submitted {
        Ok(())
    } else {
        Err("requests were lost".into())
    }
}

/// What a volume and its lane say after it all.
fn afterwards(volume: &Volume, mut lane: VolumeLane, options: &QueueOptions) -> Result<()> {
    match volume.poisoned() {
        Some(reason) => println!("poisoned [{:?}]: {}", reason.kind(), chain(&reason)),
        None => println!("not poisoned"),
    }
    println!("write_at: {}", outcome(volume.write_at(b"x", 0)));
    for member in 0..volume.members().len() as u64 {
        let offset = member * volume.chunk_bytes();
        println!(
            "read_at chunk of member {member}: {}",
            outcome(volume.read_at(&mut [0; 10], offset))
        );
    }
    println!("flush: {}", outcome(volume.flush()));
    println!("discard: {}", outcome(volume.discard(0, 4096)));
    println!("rename: {}", outcome(volume.rename("another")));
    lane.write(0, AlignedBuf::zeroed(4096)?, 1);
    lane.flush(2);
    let mut late = Vec::new();
    lane.drain(&mut late)?;
    for completion in &late {
        let result = completion
            .result
            .as_ref()
            .map_err(|error| (error.kind(), chain(error)));
        println!("the lane's {} afterwards: {result:?}", completion.kind);
    }
    match volume.lane(&lane_options(options)) {
        Ok(_) => println!("another lane: ok"),
        Err(error) => println!("another lane: {} [{:?}]", chain(&error), error.kind()),
    }
    Ok(())
}

/// Four threads on the volume's own calls.
pub(crate) fn shared(seconds: u64, members: &[&str]) -> Result<()> {
    let volume = Volume::open(members, &OpenOptions::default())?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let (reads, writes) = (AtomicU64::new(0), AtomicU64::new(0));
    let failures = Mutex::new(Tally::default());
    let work = |thread: u8| {
        let mut memory = vec![thread; 300_000];
        let mut turn = u64::from(thread) * 1000;
        while Instant::now() < end {
            turn += 1;
            let offset = turn * 777_777 % (200 << 20);
            let (word, result) = match turn % 4 {
                0 => ("write", volume.write_at(&memory, offset)),
                1 => ("flush", volume.flush()),
                _ => ("read", volume.read_at(&mut memory, offset)),
            };
            match (word, result) {
                ("write", Ok(())) => _ = writes.fetch_add(1, Ordering::Relaxed),
                ("read", Ok(())) => _ = reads.fetch_add(1, Ordering::Relaxed),
                (_, Ok(())) => {}
                (word, Err(error)) => {
                    failures
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .count(format!("{word} {:?}", error.kind()), || chain(&error));
                    thread::sleep(Duration::from_millis(5));
                }
            }
        }
    };
    thread::scope(|scope| {
        for thread in 0..4 {
            let work = &work;
            scope.spawn(move || work(thread));
        }
    });
    println!("reads {reads:?}, writes {writes:?}");
    failures
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .print();
    println!("close: {}", outcome(volume.close()));
    Ok(())
}
