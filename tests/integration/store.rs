//! The checkpoint store, through its public API.
//!
//! What could go wrong is said in each module; together they are the ways in which checkpoint
//! writers are known to fail: an error that is lost, an old checkpoint destroyed by a new one, damage
//! that loads without a word, a tail cut off, a full disk found too late, descriptors and memory that
//! grow, a partial checkpoint picked as the latest.

mod atomicity;
mod bits;
mod damage;
mod fixture;
mod large;
mod loads;
mod puts;
mod readers;
mod refusals;
mod rounds;
mod space;
mod unreadable;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// An error and its causes, as a program prints them.
fn chain(error: &swath_checkpoint::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}
