//! Short programs to read first: `volume.rs` and `device.rs`, beside this directory.
//!
//! This library holds nothing but the pages of the repository, so that the Rust code in them is
//! compiled and run with the documentation tests, and stays true.

/// One module a page.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../README.md")]
    mod readme {}

    #[doc = include_str!("../../docs/ARCHITECTURE.md")]
    mod architecture {}

    #[doc = include_str!("../../docs/BENCHMARKS.md")]
    mod benchmarks {}

    #[doc = include_str!("../../docs/IO_PATH.md")]
    mod io_path {}

    #[doc = include_str!("../../docs/ON_DISK_FORMAT.md")]
    mod on_disk_format {}

    #[doc = include_str!("../../docs/TESTING.md")]
    mod testing {}

    #[doc = include_str!("../../docs/WHY.md")]
    mod why {}
}
