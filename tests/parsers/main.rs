//! Every parser of bytes that nobody has vouched for, on stable Rust: the seeds of the fuzz targets,
//! what fuzzers have found, and changes of both.
//!
//! What could go wrong: bytes of a stranger that make a parser panic, that it takes for something it
//! would never write, or that make it ask for memory before it knows that they are whole.

mod counting;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::RngExt;
use swath_tests::parsers::{TARGETS, Target, mutate, seeds};
use swath_tests::seed::{Seed, cases};

use counting::{Counting, peak_of};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Throws an input at a parser; a failure is told with the input.
fn throw(target: &Target, name: &str, input: &[u8]) {
    let outcome = catch_unwind(AssertUnwindSafe(|| target.run(input)));
    if outcome.is_err() {
        panic!("{}, {name}: {}", target.name, escaped(input));
    }
}

fn escaped(input: &[u8]) -> String {
    let shown = input.len().min(2000);
    format!("b\"{}\"", input[..shown].escape_ascii())
}

#[test]
fn the_seeds_are_those_that_are_made() {
    for target in TARGETS {
        let mut made = seeds::of(target.name);
        made.sort();
        let mut stored = seeds::stored(target.name).unwrap();
        stored.retain(|(name, _)| !name.starts_with(seeds::FOUND));
        assert!(
            made == stored,
            "{}: cargo run -p swath-tests --bin seeds",
            target.name
        );
    }
}

#[test]
fn every_seed_keeps_what_its_parser_promises() {
    for target in TARGETS {
        let mut accepted = 0;
        for (name, input) in seeds::stored(target.name).unwrap() {
            throw(&target, &name, &input);
            let is_accepted = |(input, _): &(Vec<u8>, usize)| (target.parse)(input);
            accepted += usize::from(target.dressed(&input).iter().any(is_accepted));
        }
        assert!(accepted > 0, "{}: every seed is refused", target.name);
    }
}

#[test]
fn so_does_every_change_of_one() {
    let seed = Seed::new();
    let mut rng = seed.rng();
    for target in TARGETS {
        let inputs = seeds::stored(target.name).unwrap();
        for (name, input) in &inputs {
            for _ in 0..cases(150) {
                let other = &inputs[rng.random_range(0..inputs.len())].1;
                let changed = mutate(input, other, &mut rng);
                throw(&target, name, &changed);
            }
        }
    }
}

#[test]
fn memory_is_bounded_by_the_input_and_nearly_none_before_the_checksum_is_right() {
    let seed = Seed::new();
    let mut rng = seed.rng();
    for target in TARGETS {
        // What is made once and kept is not the parser's.
        (target.parse)(&[]);
        let inputs = seeds::stored(target.name).unwrap();
        let (mut unsealed, mut sealed) = (Worst::default(), Worst::default());
        for (name, input) in &inputs {
            for turn in 0..cases(20) {
                let other = &inputs[rng.random_range(0..inputs.len())].1;
                let input = if turn == 0 {
                    input.clone()
                } else {
                    mutate(input, other, &mut rng)
                };
                for (dressed, limit) in target.dressed(&input) {
                    let peak = peak_of(|| {
                        (target.parse)(&dressed);
                    });
                    assert!(
                        peak <= limit,
                        "{}, {name}: {peak} bytes of memory for {}, and {limit} are allowed: {}",
                        target.name,
                        dressed.len(),
                        escaped(&dressed)
                    );
                    let worst = if limit == target.memory.unsealed_bytes {
                        &mut unsealed
                    } else {
                        &mut sealed
                    };
                    worst.see(peak, limit, dressed.len());
                }
            }
        }
        println!(
            "{}: {sealed}; with a wrong checksum {unsealed}",
            target.name
        );
    }
}

/// The input that took most of what it may.
#[derive(Default)]
struct Worst {
    peak: usize,
    limit: usize,
    input_bytes: usize,
}

impl Worst {
    fn see(&mut self, peak: usize, limit: usize, input_bytes: usize) {
        if peak * self.limit >= self.peak * limit {
            *self = Self {
                peak,
                limit,
                input_bytes,
            };
        }
    }
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "at most {} of {} bytes for {}",
            self.peak, self.limit, self.input_bytes
        )
    }
}
