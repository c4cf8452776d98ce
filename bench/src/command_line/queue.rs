//! How bytes are moved, as the command lines of block workloads ask for it.

use clap::Args;
use swath_engine::{Backend, QueueOptions};

use crate::runner::Pinning;

/// The queue of each lane, and its core.
#[derive(Debug, Clone, Args)]
pub struct QueueArguments {
    /// How bytes are moved: auto, uring, aio or sync
    #[arg(long, default_value = "auto", help_heading = "Queue")]
    pub backend: Backend,

    /// io_uring: complete by polling the device; needs a device with poll queues
    #[arg(long, help_heading = "Queue")]
    pub iopoll: bool,

    /// io_uring: let a kernel thread submit; costs a core
    #[arg(long, help_heading = "Queue")]
    pub sqpoll: bool,

    /// Let lanes wander between cores
    #[arg(long, help_heading = "Queue")]
    pub no_pin: bool,
}

impl QueueArguments {
    /// The queue that cells run on.
    pub fn queue(&self) -> QueueOptions {
        QueueOptions {
            backend: self.backend,
            iopoll: self.iopoll,
            sqpoll_idle_ms: self.sqpoll.then_some(1000),
            ..QueueOptions::default()
        }
    }

    /// The cores that lanes keep to.
    pub fn pinning(&self) -> Pinning {
        if self.no_pin {
            Pinning::Free
        } else {
            Pinning::Each
        }
    }

    /// The queue that a volume is filled by, which polls for nothing.
    pub fn fill_queue(&self) -> QueueOptions {
        QueueOptions {
            iopoll: false,
            ..self.queue()
        }
    }
}
