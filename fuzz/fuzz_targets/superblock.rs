//! See `tests/support/parsers.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| swath_tests::parsers::target("superblock").run(input));
