//! `cargo bench -p swath-bench --bench instructions`: how many instructions an I/O takes in user
//! space, and whether that is below the ceilings in `cases.rs`. Names choose some of the cases.
//!
//! - Each case runs twice, as a process of its own under an instrument that counts: a short and a
//!   long run. The difference, divided by the requests between, is free of the start and the end.
//! - valgrind counts what was executed, so a loaded machine changes nothing. Where there is none,
//!   `perf` counts, if the processor's counters can be had.
//! - Whatever cannot be counted here is named in a line that begins with `skipped:`.

mod cases;
mod instrument;
#[path = "../support/null.rs"]
mod null;
#[path = "../support/stream.rs"]
mod stream;

use std::env;
use std::process::ExitCode;

use self::cases::{CASES, Case};
use self::instrument::Instrument;
use self::stream::Result;

/// Requests of the two runs.
const REQUESTS_SHORT: u32 = 20_000;
const REQUESTS_LONG: u32 = 120_000;

fn main() -> ExitCode {
    // cargo says `--bench` to every bench.
    let words: Vec<String> = env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let outcome = match words.as_slice() {
        // What an instrument looks at: this program again.
        [word, case, count] if word == instrument::RUN => run_one(case, count).map(|()| true),
        names => count_all(names),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_one(case: &str, count: &str) -> Result<()> {
    let case = CASES
        .get(case.parse::<usize>()?)
        .ok_or("there is no such case")?;
    case.run(count.parse()?)
}

/// Prints the table. Returns whether every case is below its ceiling.
fn count_all(names: &[String]) -> Result<bool> {
    if cfg!(debug_assertions) || !cfg!(target_arch = "x86_64") {
        skipped("the ceilings are for x86-64, built by `cargo bench`");
        return Ok(true);
    }
    let Some(instrument) = Instrument::find() else {
        skipped("neither valgrind nor a processor that counts for `perf stat -e instructions:u`");
        return Ok(true);
    };
    println!("instructions in user space for each I/O, counted by {instrument}");
    println!("{:44} {:>8} {:>8}", "case", "per I/O", "ceiling");
    let mut is_below = true;
    for (number, case) in CASES.iter().enumerate() {
        if !names.is_empty() && !names.iter().any(|name| case.name.contains(name.as_str())) {
            continue;
        }
        let Some(per_request) = count(instrument, number, case)? else {
            continue;
        };
        let verdict = if per_request > case.ceiling {
            is_below = false;
            "ABOVE"
        } else {
            "ok"
        };
        println!(
            "{:44} {per_request:>8.1} {:>8.0}  {verdict}",
            case.name, case.ceiling
        );
    }
    Ok(is_below)
}

/// Instructions for each request of a case; none, with a printed reason, where it cannot run here.
fn count(instrument: Instrument, number: usize, case: &Case) -> Result<Option<f64>> {
    let lacks = |error| {
        skipped(&format!("{}: {error}", case.name));
        Ok(None)
    };
    // Without the instrument first: what fails here is not its fault.
    if let Err(error) = case.run(1) {
        return if case.needs_ring() {
            lacks(error)
        } else {
            Err(error)
        };
    }
    let runs = instrument
        .count(number, REQUESTS_SHORT)
        .and_then(|short| Ok((short, instrument.count(number, REQUESTS_LONG)?)));
    match runs {
        Ok((short, long)) => {
            let between = f64::from(REQUESTS_LONG - REQUESTS_SHORT);
            // A few hundred million instructions: exact in a float.
            #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
            let more = long.saturating_sub(short) as f64;
            Ok(Some(more / between))
        }
        // An old valgrind does not know io_uring.
        Err(error) if case.needs_ring() => lacks(error),
        Err(error) => Err(error),
    }
}

fn skipped(reason: &str) {
    eprintln!("skipped: instructions: {reason}");
}
