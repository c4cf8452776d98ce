//! Every parser of bytes that nobody has vouched for, as something to throw bytes at.
//!
//! Each [`Target`] has a parser and what must hold of it: no panic, what is accepted is what would
//! have been written, and no more memory than a bound that the input's length gives. The fuzz targets
//! in `fuzz/` are these; `tests/parsers` throws the seeds in `fuzz/seeds`, and changes of them, at
//! the same ones on stable Rust.
//!
//! A checksum would stop nearly every input that a fuzzer makes. So an input is taken twice: as it
//! is, and with its checksum put right ([`Target::seal`]).
//!
//! What is not here: what a user types (sizes, ranges of a tensor), and what the kernel says of its
//! devices. Neither comes from a stranger.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "these numbers are small, or meant to wrap"
)]

mod checkpoint;
mod files;
mod mutation;
mod patches;
pub mod seeds;
mod volume;

pub use mutation::mutate;

/// Puts the checksum of an input right.
pub type Seal = fn(&[u8]) -> Vec<u8>;

/// A parser, and what must hold of it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its fuzz target and of its seeds' folder.
    pub name: &'static str,
    /// Gives the input with its checksum right; none where there is no checksum.
    pub seal: Option<Seal>,
    /// Parses, and tells whether the input was accepted. Takes no memory but what the parser takes.
    pub parse: fn(&[u8]) -> bool,
    /// Parses, and panics when something does not hold.
    pub check: fn(&[u8]),
    /// How much memory [`parse`](Self::parse) may have at a time.
    pub memory: Memory,
}

/// How much memory a parser may have at a time.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Bytes while the checksum is wrong: the words of an error.
    pub unsealed_bytes: usize,
    /// Bytes otherwise, whatever the input: ...
    pub base_bytes: usize,
    /// ... and as many more for each byte of it.
    pub factor: usize,
}

/// The words of an error.
const ERROR_BYTES: usize = 1 << 10;

impl Target {
    /// Throws an input at it, as it is and with its checksum right.
    ///
    /// # Panics
    ///
    /// When something does not hold.
    pub fn run(&self, input: &[u8]) {
        (self.check)(input);
        if let Some(seal) = self.seal {
            (self.check)(&seal(input));
        }
    }

    /// The input as it is and, where it differs, with its checksum right; each with the most memory
    /// that parsing it may take.
    pub fn dressed(&self, input: &[u8]) -> Vec<(Vec<u8>, usize)> {
        let memory = self.memory;
        let limit = |bytes: &[u8]| memory.base_bytes + memory.factor * bytes.len();
        match self.seal.map(|seal| seal(input)) {
            Some(sealed) => {
                let sealed_limit = limit(&sealed);
                vec![
                    (
                        input.to_vec(),
                        if sealed == input {
                            sealed_limit
                        } else {
                            memory.unsealed_bytes
                        },
                    ),
                    (sealed, sealed_limit),
                ]
            }
            None => vec![(input.to_vec(), limit(input))],
        }
    }
}

/// All of them.
pub const TARGETS: [Target; 13] = [
    volume::SUPERBLOCK,
    volume::MEMBERS,
    volume::ROOT_RECORD,
    volume::ROOT_HISTORY,
    volume::SIGNATURE,
    checkpoint::STORE_HEADER,
    checkpoint::CATALOG,
    checkpoint::INDEX,
    checkpoint::LEASE,
    checkpoint::NAMES,
    files::SAFETENSORS_HEADER,
    files::SHARD_INDEX,
    files::FILE_LIST,
];

/// The target of this name.
///
/// # Panics
///
/// When there is none.
pub fn target(name: &str) -> Target {
    TARGETS
        .into_iter()
        .find(|target| target.name == name)
        .unwrap_or_else(|| panic!("there is no parser {name:?}"))
}

/// The first 4096 bytes of the input, with zeroes behind it.
fn block_of(input: &[u8]) -> [u8; 4096] {
    let mut block = [0; 4096];
    let length = input.len().min(4096);
    block[..length].copy_from_slice(&input[..length]);
    block
}

/// Puts the checksum of a metadata block right: in its last four bytes, of all before.
fn seal_block(block: &mut [u8; 4096]) {
    let checksum = crc32fast::hash(&block[..4092]);
    block[4092..].copy_from_slice(&checksum.to_le_bytes());
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u64_at_most(bytes, offset, 4) as u32
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64_at_most(bytes, offset, 8)
}

/// The little-endian number of up to `length` bytes at `offset`; what is not there is zero.
fn u64_at_most(bytes: &[u8], offset: usize, length: usize) -> u64 {
    let there = bytes.get(offset..).unwrap_or_default();
    let mut number = [0; 8];
    for (to, from) in number[..length].iter_mut().zip(there) {
        *to = *from;
    }
    u64::from_le_bytes(number)
}
