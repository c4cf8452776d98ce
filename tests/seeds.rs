//! Makes the seeds of the fuzz targets anew, in `fuzz/seeds`. What fuzzers found there stays.

use std::process::ExitCode;

fn main() -> ExitCode {
    match swath_tests::parsers::seeds::write() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("seeds: {error}");
            ExitCode::FAILURE
        }
    }
}
