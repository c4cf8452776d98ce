//! [`Event`]: everything that happened to the devices, with the bytes that were written: what it
//! takes to build the state of any crash at any moment afterwards.

use std::sync::Arc;

use swath_engine::OpKind;

/// What was submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// Its number.
    pub number: u64,
    /// Which device, by its place in the order in which devices were added.
    pub device: usize,
    /// What it does.
    pub kind: OpKind,
    /// Whether it is durable when it completes.
    pub fua: bool,
    /// The first byte on the device.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// What a write writes; empty for everything else.
    pub bytes: Vec<u8>,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A queue was given an operation. From here on a crash may find it done, in part or in whole.
    Submitted(Arc<Submitted>),
    /// A queue gave the completion of the operation with this number.
    Completed {
        /// The operation's number.
        number: u64,
        /// Its result.
        result: i32,
    },
    /// The test says what it has come to, such as "commit 1 is acknowledged".
    Mark(&'static str),
}
