//! [`SparePools`]: buffers of writers and readers that are done, for the next.
//!
//! To get memory from the system means to have it cleared, page by page, and on a virtual machine
//! perhaps fetched from the host first: for the buffers of one writer that takes longer than many a
//! tensor does to be written. So they become resident as they are used (tensors that go to the
//! drives from the caller's memory use few of them), no lane registers them, and those
//! that were used are kept.

use parking_lot::Mutex;
use swath_engine::BufPool;

use crate::error::Result;
use crate::options::{PIECE_BYTES, StoreOptions};

/// The most pools that are kept. Where more writers are at work at once, the others get new ones.
const POOLS_MAX: usize = 8;

/// Pools that nobody uses.
#[derive(Default)]
pub(crate) struct SparePools(Mutex<Vec<BufPool>>);

impl SparePools {
    /// A pool as the options want it, an old one if there is one.
    pub(crate) fn take(&self, options: &StoreOptions) -> Result<BufPool> {
        let spare = self.0.lock().pop();
        match spare {
            Some(pool) => Ok(pool),
            None => Ok(BufPool::on_demand(PIECE_BYTES, options.piece_count())?),
        }
    }

    /// An old pool, if there is one. The others are given up: whoever asks for one alone shall not
    /// have their memory beside his.
    pub(crate) fn take_only(&self) -> Option<BufPool> {
        std::mem::take(&mut *self.0.lock()).pop()
    }

    /// Keeps a pool of the options' size, unless something of it is still in use, or enough are kept.
    pub(crate) fn keep(&self, pool: &BufPool) {
        let mut pools = self.0.lock();
        if pool.available() == pool.count() && pools.len() < POOLS_MAX {
            pools.push(pool.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_used_again_when_all_of_it_has_come_back() {
        let options = StoreOptions::default();
        let pools = SparePools::default();
        let pool = pools.take(&options).unwrap();
        let held = pool.take().unwrap();
        pools.keep(&pool);
        assert_eq!(pools.0.lock().len(), 0);
        let address = held.as_ptr();
        drop(held);
        pools.keep(&pool);
        drop(pool);
        let again = pools.take(&options).unwrap();
        assert_eq!(pools.0.lock().len(), 0);
        assert_eq!(again.take().unwrap().as_ptr(), address);
        for _ in 0..2 * POOLS_MAX {
            pools.keep(&again);
        }
        assert_eq!(pools.0.lock().len(), POOLS_MAX);
    }
}
