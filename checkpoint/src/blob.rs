//! Blobs: the bytes of an index or a catalog, written to extents and read back.

use swath_engine::{AlignedBuf, ScopeCompletion};
use swath_volume::VolumeLane;

use crate::error::{Error, Result};
use crate::extent::{Extent, Run, UNIT_BYTES};
use crate::place::BlobPlace;
use crate::transfer::pieces;

/// How many transfers of a blob are in flight at once.
const WINDOW: usize = 8;

/// Writes `bytes` over `extents`, which have room for them, and says where they are.
pub(crate) fn write(
    lane: &mut VolumeLane,
    extents: Vec<Extent>,
    bytes: &[u8],
    chunk_bytes: u64,
) -> Result<BlobPlace> {
    let padded_length = (bytes.len() as u64).next_multiple_of(UNIT_BYTES);
    let mut padded = buffer(padded_length)?;
    padded[..bytes.len()].copy_from_slice(bytes);
    let runs = runs_of(&extents, padded_length);
    lane.scope(|scope| {
        let mut ends = Vec::with_capacity(WINDOW);
        for piece in pieces(&runs, chunk_bytes) {
            let from = usize_of(piece.position);
            scope.write(
                piece.offset,
                &padded[from..from + usize_of(piece.length)],
                0,
            );
            let spare = usize::from(scope.in_flight() >= WINDOW);
            scope.wait(spare, &mut ends)?;
            check(&mut ends)?;
        }
        scope.wait(usize::MAX, &mut ends)?;
        check(&mut ends)
    })?;
    Ok(BlobPlace::new(extents, bytes))
}

/// Reads a blob: the one that was written there last, as far as its length and checksum tell. Its
/// decoder says whether it is intact.
pub(crate) fn read(lane: &mut VolumeLane, place: &BlobPlace, chunk_bytes: u64) -> Result<Vec<u8>> {
    let padded_length = place.length.next_multiple_of(UNIT_BYTES);
    let mut padded = buffer(padded_length)?;
    let runs = runs_of(&place.extents, padded_length);
    lane.scope(|scope| {
        let mut ends = Vec::with_capacity(WINDOW);
        let mut rest = &mut padded[..];
        for piece in pieces(&runs, chunk_bytes) {
            let (memory, behind) = rest.split_at_mut(usize_of(piece.length));
            rest = behind;
            scope.read(piece.offset, memory, 0);
            let spare = usize::from(scope.in_flight() >= WINDOW);
            scope.wait(spare, &mut ends)?;
            check(&mut ends)?;
        }
        scope.wait(usize::MAX, &mut ends)?;
        check(&mut ends)
    })?;
    let bytes = &padded[..usize_of(place.length)];
    place.check(bytes)?;
    Ok(bytes.to_vec())
}

fn check(ends: &mut Vec<ScopeCompletion<'_>>) -> Result<()> {
    ends.drain(..)
        .try_for_each(|end| end.result.map(drop).map_err(Error::from))
}

fn buffer(length: u64) -> Result<AlignedBuf> {
    Ok(AlignedBuf::zeroed(usize_of(length))?)
}

/// The first `length` bytes of the extents.
fn runs_of(extents: &[Extent], length: u64) -> Vec<Run> {
    let mut left = length;
    extents
        .iter()
        .map_while(|extent| {
            let length = extent.length.min(left);
            left -= length;
            (length > 0).then_some(Run::new(extent.offset, length))
        })
        .collect()
}

pub(crate) fn usize_of(bytes: u64) -> usize {
    usize::try_from(bytes).expect("what lies in memory fits in an address")
}
