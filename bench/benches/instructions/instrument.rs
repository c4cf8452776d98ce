//! [`Instrument`]: counts the instructions that a run of this program executes in user space.

use std::env;
use std::fmt;
use std::process::{Command, Output};

use crate::stream::Result;

/// The word that has this program run one case, and not count.
pub(crate) const RUN: &str = "run";

/// Who counts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Instrument {
    /// valgrind's cachegrind, without its caches.
    Valgrind,
    /// The processor, by `perf stat`.
    Perf,
}

impl Instrument {
    /// The better one of those that work here.
    pub(crate) fn find() -> Option<Self> {
        [Self::Valgrind, Self::Perf]
            .into_iter()
            .find(|instrument| instrument.of("true", &[]).is_ok())
    }

    /// Instructions of a run of case number `case` with so many requests.
    pub(crate) fn count(self, case: usize, requests: u32) -> Result<u64> {
        let program = env::current_exe()?;
        let program = program.to_str().ok_or("this program's path is not UTF-8")?;
        self.of(program, &[RUN, &case.to_string(), &requests.to_string()])
    }

    /// Instructions of a program, which must succeed.
    fn of(self, program: &str, arguments: &[&str]) -> Result<u64> {
        let mut command = match self {
            Self::Valgrind => {
                let mut command = Command::new("valgrind");
                command.args(["--tool=cachegrind", "--cache-sim=no"]);
                command.arg("--cachegrind-out-file=/dev/null");
                command
            }
            Self::Perf => {
                let mut command = Command::new("perf");
                command.args(["stat", "-x", ",", "-e", "instructions:u", "--"]);
                command
            }
        };
        command.arg(program).args(arguments).env("LC_ALL", "C");
        let Output { status, stderr, .. } = command.output()?;
        let said = String::from_utf8_lossy(&stderr);
        let count = said.lines().find_map(|line| match self {
            Self::Valgrind => valgrind_total(line),
            Self::Perf => perf_total(line),
        });
        match count {
            Some(count) if status.success() => Ok(count),
            _ => Err(format!("{self} has no count ({status}): {}", said.trim()).into()),
        }
    }
}

impl fmt::Display for Instrument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Valgrind => "valgrind",
            Self::Perf => "perf",
        })
    }
}

/// `==4711== I   refs:      1,234,567`
fn valgrind_total(line: &str) -> Option<u64> {
    let (_, line) = line.split_once("== ")?;
    let words = line.strip_prefix('I')?.trim_start().strip_prefix("refs:")?;
    words.trim().replace(',', "").parse().ok()
}

/// `1234567,,instructions:u,...`
fn perf_total(line: &str) -> Option<u64> {
    let (count, rest) = line.split_once(',')?;
    rest.contains("instructions").then(|| count.parse().ok())?
}
