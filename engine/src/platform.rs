//! Where devices and the queues that serve them come from.
//!
//! [`Platform`] is the seam between logic and the world: [`Kernel`](crate::Kernel) opens real
//! drives and files, a test's simulation opens devices of its own with completions in an order it
//! chooses and a clock it owns. Everything above (lanes, volumes, checkpoints) takes a platform and
//! has no other way to reach a device, the clock or a thread.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use crate::device::{Device, OpenOptions};
use crate::error::Result;
use crate::queue::{Queue, QueueOptions};
use crate::scheduler::Scheduler;

/// Opens devices and makes queues over them.
pub trait Platform: Debug + Send + Sync {
    /// Opens and locks the device at `path`.
    ///
    /// # Errors
    ///
    /// Not found, no permission, in use by another opener, not capable of direct I/O.
    fn open(&self, path: &Path, options: &OpenOptions) -> Result<Arc<dyn Device>>;

    /// Makes a queue that serves `devices`; operations name them by their place in this list.
    ///
    /// # Errors
    ///
    /// The backend asked for is not to be had here, or a device is not one of this platform.
    fn queue(&self, devices: &[Arc<dyn Device>], options: &QueueOptions) -> Result<Box<dyn Queue>>;

    /// Who decides which of the threads runs that wait for one another. Default: nobody but the
    /// kernel.
    fn scheduler(&self) -> Option<Arc<dyn Scheduler>> {
        None
    }
}
