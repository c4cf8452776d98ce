//! Tensors shared out to threads, as wholes.

use std::cmp::Reverse;

use swath_engine::Platform;
use swath_engine::threads::{self, ScopedThread};

use crate::error::{Error, Result};
use crate::extent::UNIT_BYTES;

/// The items in as many shares as there are threads for them: the largest first, each to whoever
/// has least, so that nobody is left with a giant at the end. A single share keeps their order.
pub(crate) fn shares<T>(
    items: impl IntoIterator<Item = T>,
    threads: usize,
    bytes_of: impl Fn(&T) -> u64,
) -> Vec<Vec<T>> {
    let mut items: Vec<T> = items.into_iter().collect();
    let count = threads.clamp(1, items.len().max(1));
    if count == 1 {
        return vec![items];
    }
    items.sort_by_key(|item| Reverse(bytes_of(item)));
    let mut shares: Vec<Vec<T>> = Vec::new();
    shares.resize_with(count, Vec::new);
    let mut loads = vec![0_u64; count];
    for item in items {
        let least = (0..count).min_by_key(|&share| loads[share]).unwrap_or(0);
        // A tensor costs something even when it is empty.
        loads[least] += bytes_of(&item) + UNIT_BYTES;
        shares[least].push(item);
    }
    shares
}

/// Does `work` on each share, on a thread of its own; a single one on the caller's. The first
/// failure of any.
pub(crate) fn on_threads<T: Send>(
    platform: &dyn Platform,
    mut shares: Vec<Vec<T>>,
    work: impl Fn(Vec<T>) -> Result<()> + Sync,
) -> Result<()> {
    if shares.len() == 1 {
        return shares.pop().map_or(Ok(()), work);
    }
    threads::scope(platform, |scope| {
        let work = &work;
        let workers: Vec<_> = shares
            .into_iter()
            .map(|share| scope.spawn("swath-share", move || work(share)))
            .collect();
        // Joined one and all: the scope would panic over a panic that nobody took.
        let ends: Vec<_> = workers
            .into_iter()
            .map(|worker| worker.map(ScopedThread::join))
            .collect();
        ends.into_iter().try_for_each(|end| match end {
            Ok(end) => end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(error) => Err(Error::from_io(
                error,
                "no thread for a share of the tensors",
            )),
        })
    })
}

#[cfg(test)]
mod tests {
    use swath_engine::Kernel;

    use super::*;

    #[test]
    fn every_item_is_shared_out_once_and_nobody_has_much_more_than_others() {
        let items: Vec<u64> = (0..100).map(|n| n * n * 1000).collect();
        for threads in [0, 1, 2, 7, 100, 1000] {
            let shares = shares(items.clone(), threads, |bytes| *bytes);
            assert_eq!(shares.len(), threads.clamp(1, 100));
            let mut all: Vec<u64> = shares.concat();
            all.sort_unstable();
            assert_eq!(all, items);
            if threads == 7 {
                let loads = shares.iter().map(|share| share.iter().sum::<u64>());
                let (least, most) = (loads.clone().min().unwrap(), loads.max().unwrap());
                assert!(most - least <= 9_801_000, "{least} and {most}");
            }
        }
        assert_eq!(shares([3, 9, 1], 1, |n| *n), [[3, 9, 1]]);
        assert_eq!(shares([0_u64; 0], 4, |n| *n), [[0_u64; 0]]);
    }

    #[test]
    fn the_failure_of_any_share_is_told() {
        for count in [1, 3] {
            let shares: Vec<Vec<usize>> = (0..count).map(|n| vec![n]).collect();
            let fails = |which: usize| {
                move |share: Vec<usize>| match share == [which] {
                    true => Err(Error::invalid("no")),
                    false => Ok(()),
                }
            };
            on_threads(&Kernel, shares.clone(), fails(9)).unwrap();
            on_threads(&Kernel, shares, fails(count - 1)).unwrap_err();
        }
    }
}
