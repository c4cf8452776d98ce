//! What the guest tests do beyond the `swath` command: every operation on every backend, I/O while a
//! drive is taken away, single operations on bad sectors, drives that are held. Prints what it saw;
//! exit status 1 when something is not as it must be.
//!
//! ```text
//! guest-probe facts DEVICE...                       what the engine makes of a device
//! guest-probe queue BACKEND DEVICE...               opens a lane and says what it is
//! guest-probe hold SECONDS DEVICE                   has it open for so long
//! guest-probe operations BACKEND MEMBER...          every operation; erases the members
//! guest-probe load BACKEND SECONDS MEMBER...        I/O until a failure, and beyond it
//! guest-probe shared SECONDS MEMBER...              the same by the volume's shared calls
//! guest-probe at read|write|flush OFFSET LENGTH MEMBER...
//! guest-probe release BACKEND ROUNDS MEMBER...      whether a closed volume's drives are free at once
//! ```
//!
//! BACKEND is `uring`, `aio`, `sync` or `auto`, followed by any of `+iopoll`, `+sqpoll`, `+inline` (sync
//! on the caller's thread), `+pool` (a registered pool) and `+depthN`. `load` takes variables:
//! `LOAD_ONLY` (one of flush, discard, write-zeroes, write-fua, write, read), `LOAD_BLOCKS` (how many
//! blocks of 256 KiB of the volume it uses) and `LOAD_AFTER` (it ends so many seconds after the first
//! failure).

#![expect(
    clippy::cast_possible_truncation,
    reason = "sizes here fit in memory, and members are few"
)]

mod load;
mod look;
mod operations;

use std::process::ExitCode;
use std::sync::Arc;

use swath_engine::{
    Backend, BufPool, Device, Kernel, LaneOptions, OpenOptions as DeviceOptions, Platform,
    QueueOptions,
};

type Failure = Box<dyn std::error::Error>;
type Result<T> = std::result::Result<T, Failure>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("guest-probe {}: {}", arguments.join(" "), chain(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match &words[..] {
        ["facts", devices @ ..] => look::facts(devices),
        ["queue", how, devices @ ..] => look::queue(&queue_of(how)?, devices),
        ["hold", seconds, device] => look::hold(seconds.parse()?, device),
        ["at", what, offset, length, members @ ..] => {
            look::at(what, offset.parse()?, length.parse()?, members)
        }
        ["release", how, rounds, members @ ..] => {
            look::release(&queue_of(how)?, rounds.parse()?, members)
        }
        ["operations", how, members @ ..] => operations::all(&queue_of(how)?, members),
        ["load", how, seconds, members @ ..] => {
            load::lane(&queue_of(how)?, seconds.parse()?, members)
        }
        ["shared", seconds, members @ ..] => load::shared(seconds.parse()?, members),
        _ => Err("no such call: they are listed at the head of tests/guest/probe/main.rs".into()),
    }
}

/// An error and its causes, as a program prints them.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}

fn outcome(result: swath_volume::Result<()>) -> String {
    match result {
        Ok(()) => "ok".to_owned(),
        Err(error) => format!("{} [{:?}]", chain(&error), error.kind()),
    }
}

fn queue_of(how: &str) -> Result<QueueOptions> {
    let mut parts = how.split('+');
    let backend: Backend = parts.next().unwrap_or("auto").parse()?;
    let mut options = QueueOptions {
        backend,
        depth: 32,
        ..QueueOptions::default()
    };
    for part in parts {
        match part {
            "iopoll" => options.iopoll = true,
            "sqpoll" => options.sqpoll_idle_ms = Some(50),
            "inline" => options.sync_threads = Some(0),
            "pool" => options.pools.push(BufPool::new(256 << 10, 8)?),
            other => match other.strip_prefix("depth") {
                Some(depth) => options.depth = depth.parse()?,
                None => return Err(format!("no setting is called {other}").into()),
            },
        }
    }
    Ok(options)
}

fn lane_options(queue: &QueueOptions) -> LaneOptions {
    LaneOptions {
        queue: queue.clone(),
        ..LaneOptions::default()
    }
}

fn open_devices(paths: &[&str], options: &DeviceOptions) -> Result<Vec<Arc<dyn Device>>> {
    paths
        .iter()
        .map(|path| Ok(Kernel.open(path.as_ref(), options)?))
        .collect()
}
