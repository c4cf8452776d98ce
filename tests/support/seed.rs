//! Where the chance in tests comes from, and how a failure is replayed.
//!
//! - `SWATH_SEED=n cargo test NAME` repeats what a failed test printed.
//! - `SWATH_CASES=k` runs k times as many cases.

use std::env;
use std::fmt::Debug;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseResult, TestError, TestRng, TestRunner};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

/// The seed of one test; prints itself when the test fails.
#[derive(Debug)]
pub struct Seed(u64);

impl Seed {
    /// The seed of `SWATH_SEED`, or one of chance.
    ///
    /// # Panics
    ///
    /// When `SWATH_SEED` is not a number.
    pub fn new() -> Self {
        Self(number("SWATH_SEED").unwrap_or_else(rand::random))
    }

    /// The seed as a number.
    pub const fn value(&self) -> u64 {
        self.0
    }

    /// Random numbers that follow from the seed.
    pub fn rng(&self) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(self.0)
    }
}

impl Default for Seed {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was SWATH_SEED={}", self.0);
        }
    }
}

/// How many cases to run where `default` are enough for every day.
///
/// # Panics
///
/// When `SWATH_CASES` is not a number.
pub fn cases(default: u32) -> u32 {
    let factor = number("SWATH_CASES").unwrap_or(1);
    default.saturating_mul(u32::try_from(factor).unwrap_or(u32::MAX))
}

/// Checks a property on values of `strategy`, as many as [`cases`] says. A failure is cut down to a
/// small one, and told with the seed that leads to it.
///
/// # Panics
///
/// When the property does not hold.
pub fn check<S: Strategy>(
    default_cases: u32,
    strategy: S,
    property: impl Fn(S::Value) -> TestCaseResult,
) where
    S::Value: Debug,
{
    let seed = Seed::new();
    let config = Config {
        cases: cases(default_cases),
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.value().to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    match TestRunner::new_with_rng(config, rng).run(&strategy, property) {
        Ok(()) => {}
        Err(TestError::Fail(reason, value)) => panic!("{reason}\nsmallest case: {value:#?}"),
        Err(TestError::Abort(reason)) => panic!("given up: {reason}"),
    }
}

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{variable}={value} is not a number")),
    )
}
