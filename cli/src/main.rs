//! The `swath` command: lists drives; makes striped volumes of them, shows, reads, writes and erases
//! them; saves and loads the checkpoints on them.
//!
//! - One file per subcommand under [`commands`]; this file only reads the command line and turns
//!   the outcome into an exit code: 0 done, 1 failed or refused, 2 a wrong command line.
//! - What was asked for goes to standard output, everything else (errors, progress, rates) to
//!   standard error, so that `swath read` can be piped and `--json` can be parsed.
//! - An error is one line: `swath: error: context: cause`, the whole chain.
//! - A reader of our output that goes away (`swath read ... | head`) ends the command quietly.

mod bytes;
mod commands;
mod failure;
mod interrupt;
mod output;
mod progress;
mod stream;
mod time;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Command;

/// One striped volume over many drives or files, and checkpoints on it.
#[derive(Debug, Parser)]
#[command(
    name = "swath",
    version,
    about,
    long_about = LONG_ABOUT,
    max_term_width = 100,
    after_help = EXAMPLES
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const LONG_ABOUT: &str = "\
Swath makes one striped volume of many drives or files and keeps the checkpoints of AI models on it. \
A checkpoint is a named set of tensors or files, saved whole or not at all, at the speed of all \
drives together, and compared with its checksums when it is read. Everything happens in this process, \
past the page cache: no kernel RAID, no file system, no daemon.

Striped means RAID 0: no redundancy. When one member is lost, so is the volume.";

const EXAMPLES: &str = "\
A volume is named by its members, in any order, or by a directory that holds them.
Commands for checkpoints take it as one argument: the directory, or the members separated by commas.
Sizes are bytes or 4k, 1m, 1g (powers of two).

Examples:
  swath devices                                   the drives here, and which are ready
  swath create --size 1g --count 4 /data/volume   four file members in a directory
  swath create /dev/nvme1n1 /dev/nvme2n1          two drives
  swath detail /data/volume                       what is it, and is it whole
  swath write /data/volume < model.bin            bytes in
  swath read /data/volume --length 1m | sha256sum bytes out
  swath tune /data/volume                         which transfers its drives want
  swath wipe /data/volume                         forget the volume

  swath save /data/volume --step 100 model.safetensors
  swath ls /data/volume                           which checkpoints are there
  swath verify --deep /data/volume                are they whole
  swath load /data/volume --out restored          the newest one, as files again

  swath report --html report.html matrix.json     charts of what swath-matrix measured

Exit codes: 0 done, 1 failed or refused, 2 a wrong command line.";

fn main() -> ExitCode {
    match Arguments::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
