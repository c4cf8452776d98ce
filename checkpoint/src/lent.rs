//! [`Lent`]: the parts of a session's space that other processes have, and what comes back of them.
//!
//! What a receipt says is not believed: places within the lease and apart from each other, tensors
//! that do not contradict themselves. Whether the bytes are there is not known before somebody
//! reads them; that is what checksums are for.

use std::collections::BTreeMap;

use swath_volume::Guest;

use crate::error::{Error, ErrorKind, Result};
use crate::extent::{Extent, Run};
use crate::index::TensorEntry;

/// Every lease of a session, by its number.
#[derive(Debug, Default)]
pub(crate) struct Lent(BTreeMap<u64, Part>);

#[derive(Debug)]
struct Part {
    guest: Guest,
    extents: Vec<Extent>,
    state: PartState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartState {
    Out,
    Returned,
    Revoked,
}

impl Lent {
    pub(crate) fn add(&mut self, guest: Guest, extents: Vec<Extent>) {
        let part = Part {
            guest,
            extents,
            state: PartState::Out,
        };
        self.0.insert(guest.seat, part);
    }

    /// A lease that is still out, if one is.
    pub(crate) fn first_out(&self) -> Option<u64> {
        let mut out = self.0.iter();
        out.find(|(_, part)| part.state == PartState::Out)
            .map(|(&lease_id, _)| lease_id)
    }

    /// The invitation of a lease that is out.
    pub(crate) fn guest(&self, lease_id: u64) -> Result<Guest> {
        self.part(lease_id).map(|part| part.guest)
    }

    fn part(&self, lease_id: u64) -> Result<&Part> {
        let refuse = |kind, what| Err(Error::new(kind, format!("lease {lease_id} {what}")));
        match self.0.get(&lease_id) {
            None => refuse(ErrorKind::NotFound, "is none of the session's"),
            Some(part) => match part.state {
                PartState::Out => Ok(part),
                PartState::Returned => refuse(ErrorKind::Finished, "was returned before"),
                PartState::Revoked => refuse(ErrorKind::Finished, "was revoked"),
            },
        }
    }

    /// Takes a lease back with what was written there, and gives the space that was not used.
    ///
    /// # Errors
    ///
    /// A lease that is not out; tensors that cannot be believed. The lease is still out then.
    pub(crate) fn accept(&mut self, lease_id: u64, tensors: &[TensorEntry]) -> Result<Vec<Extent>> {
        let unused = unused(&self.part(lease_id)?.extents, tensors)?;
        self.end(lease_id, PartState::Returned);
        Ok(unused)
    }

    /// Takes a lease back without anything, and gives its space.
    ///
    /// # Errors
    ///
    /// A lease that is not out.
    pub(crate) fn revoke(&mut self, lease_id: u64) -> Result<Vec<Extent>> {
        let extents = self.part(lease_id)?.extents.clone();
        self.end(lease_id, PartState::Revoked);
        Ok(extents)
    }

    fn end(&mut self, lease_id: u64, state: PartState) {
        let part = self.0.get_mut(&lease_id);
        part.expect("it was found just now").state = state;
    }

    /// All that is still out when the session ends.
    pub(crate) fn take_out(&mut self) -> impl Iterator<Item = (Guest, Vec<Extent>)> + use<> {
        std::mem::take(&mut self.0)
            .into_values()
            .filter(|part| part.state == PartState::Out)
            .map(|part| (part.guest, part.extents))
    }
}

/// What of `extents` these tensors, which must lie there, leave unused.
pub(crate) fn unused(extents: &[Extent], tensors: &[TensorEntry]) -> Result<Vec<Extent>> {
    let space = Extent::merge(extents.to_vec());
    let mut runs: Vec<(Run, &str)> = Vec::new();
    for tensor in tensors {
        tensor.check()?;
        for run in &tensor.runs {
            let next = space.partition_point(|extent| extent.offset <= run.offset);
            let lies_within = next
                .checked_sub(1)
                .is_some_and(|at| run.end() <= space[at].end());
            if !lies_within {
                return Err(Error::invalid("the receipt has it outside of its lease")
                    .with_tensor(&tensor.name));
            }
            runs.push((*run, &tensor.name));
        }
    }
    runs.sort_unstable();
    if let Some(pair) = runs
        .windows(2)
        .find(|pair| pair[0].0.end() > pair[1].0.offset)
    {
        let (one, other) = (pair[0].1, pair[1].1);
        return Err(
            Error::invalid(format!("the receipt has it where {other:?} is, too")).with_tensor(one),
        );
    }
    let used = Extent::covering(runs.into_iter().map(|(run, _)| run));
    Ok(Extent::minus(space, &used))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::extent::UNIT_BYTES as U;
    use crate::index::tests::tensor;

    fn lent() -> Lent {
        let mut lent = Lent::default();
        for (seat, extents) in [
            (1, vec![Extent::new(8 * U, 2 * U), Extent::new(0, 4 * U)]),
            (2, vec![Extent::new(4 * U, 4 * U)]),
        ] {
            let guest = Guest {
                volume_uuid: Uuid::from_u128(7),
                epoch: 3,
                seat,
            };
            lent.add(guest, extents);
        }
        lent
    }

    #[test]
    fn what_was_not_used_comes_back() {
        let mut lent = lent();
        assert_eq!(lent.first_out(), Some(1));
        let tensors = [
            tensor("packed", &[(U + 5, 7)]),
            tensor("beside", &[(U + 12, U)]),
            tensor("apart", &[(3 * U, 1), (9 * U, U)]),
            tensor("empty", &[]),
        ];
        let unused = lent.accept(1, &tensors).unwrap();
        assert_eq!(unused, [Extent::new(0, U), Extent::new(8 * U, U)]);
        assert_eq!(lent.first_out(), Some(2));
        assert_eq!(lent.revoke(2).unwrap(), [Extent::new(4 * U, 4 * U)]);
        assert_eq!(lent.first_out(), None);
        assert_eq!(lent.take_out().count(), 0);
    }

    #[test]
    fn a_lease_comes_back_once() {
        let mut lent = lent();
        assert_eq!(lent.accept(3, &[]).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(lent.accept(1, &[]).unwrap().len(), 2);
        for outcome in [lent.accept(1, &[]), lent.revoke(1)] {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Finished);
        }
        lent.revoke(2).unwrap();
        for outcome in [lent.accept(2, &[]), lent.revoke(2)] {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Finished);
        }
    }

    #[test]
    fn receipts_that_cannot_be_true_are_refused_and_change_nothing() {
        let mut lent = lent();
        let mut short = tensor("a", &[(0, U)]);
        short.checksums.clear();
        for (tensors, word) in [
            (vec![tensor("a", &[(4 * U, 1)])], "outside"),
            (vec![tensor("a", &[(4 * U - 1, 2)])], "outside"),
            (vec![tensor("a", &[(10 * U, 1)])], "outside"),
            (vec![tensor("a", &[(1 << 62, 1)])], "outside"),
            (vec![tensor("a", &[(u64::MAX, 1)])], "beyond"),
            (vec![tensor("a", &[(0, 5), (4, 1)])], "where \"a\" is"),
            (
                vec![tensor("a", &[(0, U)]), tensor("b", &[(U - 1, 9)])],
                "where \"b\" is",
            ),
            (vec![short], "checksums"),
        ] {
            let error = lent.accept(1, &tensors).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains(word), "{error}");
            assert_eq!(error.tensor(), Some("a"));
        }
        assert_eq!(lent.first_out(), Some(1));
        lent.accept(1, &[tensor("a", &[(0, 4 * U)])]).unwrap();
        assert_eq!(lent.take_out().count(), 1);
    }
}
