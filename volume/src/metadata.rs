//! The I/O of superblocks: four copies read, and updates written in two steps with a flush between.

use std::sync::Arc;

use swath_engine::{
    AlignedBuf, Backend, Device, Lane, LaneOptions, OpKind, Platform, Poison, QueueOptions,
    Request, Segment,
};

use crate::error::Result;
use crate::signature::{Ends, SIGNATURE_AREA_BYTES, Signature, recognise};
use crate::superblock::{
    COPY_COUNT, CopyFault, CopyResult, DecodeError, MemberMap, Rewrite, SUPERBLOCK_BYTES,
    Superblock, UPDATE_STEPS, decode, encode,
};

/// A lane for the few blocks of metadata: plain calls on the caller's thread, one after the other,
/// no threads started, nothing registered.
pub(crate) fn lane(platform: &dyn Platform, devices: &[Arc<dyn Device>]) -> Result<Lane> {
    let queue = QueueOptions {
        backend: Backend::Sync,
        depth: 8,
        sync_threads: Some(0),
        ..QueueOptions::default()
    };
    open(platform, devices, queue, None)
}

/// A lane for the steps of a commit: a write or a flush of several members is under way on all of
/// them at once. With the poison of an open volume: the first failure sets it, and no write or flush
/// starts once it is set. The queue probes at `probe_offset`, if there is one.
pub(crate) fn commit_lane(
    platform: &dyn Platform,
    devices: &[Arc<dyn Device>],
    poison: Arc<Poison>,
    probe_offset: Option<u64>,
) -> Result<Lane> {
    let queue = QueueOptions {
        depth: u32::try_from(devices.len()).expect("a volume has at most 128 members"),
        probe_offset,
        ..QueueOptions::default()
    };
    open(platform, devices, queue, Some(poison))
}

fn open(
    platform: &dyn Platform,
    devices: &[Arc<dyn Device>],
    queue: QueueOptions,
    poison: Option<Arc<Poison>>,
) -> Result<Lane> {
    let options = LaneOptions {
        queue,
        poison,
        statistics: false,
    };
    Ok(Lane::open(platform, devices, &options)?)
}

/// The parts of a device where file systems, partition tables and volumes of all kinds leave their
/// marks: offset and length. The second reaches the very end: that is where a partition table's
/// copy is, and it may lie beyond the last whole 4 KiB.
pub(crate) fn signature_areas(map: &MemberMap) -> [(u64, u64); 2] {
    let tail_offset = map.tail_offset();
    [
        (0, SIGNATURE_AREA_BYTES),
        (tail_offset, map.device_bytes() - tail_offset),
    ]
}

/// Reads what the device at `slot` carries; none when it is blank.
pub(crate) fn read_signature(
    lane: &mut Lane,
    slot: u32,
    map: &MemberMap,
) -> Result<Option<Signature>> {
    let [(head_offset, head_length), (tail_offset, tail_length)] = signature_areas(map);
    let head = read_range(lane, slot, head_offset, head_length)?;
    let tail = read_range(lane, slot, tail_offset, tail_length)?;
    Ok(recognise(&Ends {
        device_bytes: map.device_bytes(),
        head: &head,
        tail_offset,
        tail: &tail,
    }))
}

/// Reads the four copies of the device at `slot`.
///
/// The tail is looked for where the head says it is, for a device may have grown since; without a
/// good head it is looked for at the end.
pub(crate) fn read_copies(lane: &mut Lane, slot: u32) -> [CopyResult; COPY_COUNT] {
    let device_bytes = lane.devices()[slot as usize].geometry().capacity_bytes;
    let absent = || Err(CopyFault::Decode(DecodeError::NotSwath));
    // The head lies at the same places on every device, also on one that has shrunk below what a
    // member needs.
    let head = MemberMap::HEAD_COPY_OFFSETS.map(|offset| {
        if offset + SUPERBLOCK_BYTES as u64 <= device_bytes {
            read_copy(lane, slot, offset)
        } else {
            absent()
        }
    });
    let Ok(map) = MemberMap::new(device_bytes) else {
        let [zero, one] = head;
        return [zero, one, absent(), absent()];
    };
    let recorded = head
        .iter()
        .flatten()
        .map(|superblock| superblock.device_bytes)
        .next();
    let tail_map = recorded
        .filter(|&recorded| recorded <= device_bytes)
        .and_then(|recorded| MemberMap::new(recorded).ok())
        .unwrap_or(map);
    let tail = [2, 3].map(|copy| read_copy(lane, slot, tail_map.copy_offset(copy)));
    let ([zero, one], [two, three]) = (head, tail);
    [zero, one, two, three]
}

fn read_copy(lane: &mut Lane, slot: u32, offset: u64) -> CopyResult {
    let block = read_block(lane, slot, offset).map_err(CopyFault::Unreadable)?;
    Ok(decode(&block, offset)?)
}

fn read_block(lane: &mut Lane, slot: u32, offset: u64) -> Result<[u8; SUPERBLOCK_BYTES]> {
    let mut block = [0; SUPERBLOCK_BYTES];
    block.copy_from_slice(&read_range(lane, slot, offset, SUPERBLOCK_BYTES as u64)?);
    Ok(block)
}

/// Reads a range of the device at `slot`.
pub(crate) fn read_range(
    lane: &mut Lane,
    slot: u32,
    offset: u64,
    length: u64,
) -> Result<AlignedBuf> {
    let mut buffer = buffer_of(length)?;
    lane.read_blocking(&mut buffer, &[Segment::whole(slot, offset, length)])?;
    Ok(buffer)
}

/// Writes zeroes over a range of the device at `slot`.
pub(crate) fn write_zeroes(lane: &mut Lane, slot: u32, offset: u64, length: u64) -> Result<()> {
    let zeroes = buffer_of(length)?;
    lane.write_blocking(&zeroes, false, &[Segment::whole(slot, offset, length)])?;
    Ok(())
}

fn buffer_of(length: u64) -> Result<AlignedBuf> {
    let length = usize::try_from(length).expect("metadata areas are a few MiB");
    Ok(AlignedBuf::zeroed(length)?)
}

/// Flushes every device of the lane, all at once where the lane can; fails if any fails.
pub(crate) fn flush(lane: &mut Lane) -> Result<()> {
    let count = u32::try_from(lane.devices().len()).expect("a volume has at most 128 members");
    let segments: Vec<_> = (0..count).map(Segment::flush).collect();
    let completion = lane.call(Request::without_memory(OpKind::Flush, 0), &segments)?;
    completion.result?;
    Ok(())
}

/// Writes superblocks, step by step, each step flushed on every device before the next begins, so
/// that every member has a good copy at any moment.
///
/// The lane's devices and `superblocks` are in index order.
pub(crate) fn write_steps(
    lane: &mut Lane,
    superblocks: &[Superblock],
    steps: &[Vec<Rewrite>; 2],
) -> Result<()> {
    for step in steps {
        for rewrite in step {
            let number = u32::try_from(rewrite.copy_number).expect("there are four copies");
            let slot = u32::try_from(rewrite.member_index).expect("at most 128 members");
            let block = encode(&superblocks[rewrite.member_index], number, rewrite.offset);
            let mut buffer = buffer_of(SUPERBLOCK_BYTES as u64)?;
            buffer.copy_from_slice(&block);
            let place = [Segment::whole(
                slot,
                rewrite.offset,
                SUPERBLOCK_BYTES as u64,
            )];
            lane.write_blocking(&buffer, false, &place)?;
        }
        flush(lane)?;
    }
    Ok(())
}

/// The steps that write every copy of every member.
pub(crate) fn all_copies(superblocks: &[Superblock]) -> Result<[Vec<Rewrite>; 2]> {
    let mut steps = [const { Vec::new() }; 2];
    for (step, copies) in steps.iter_mut().zip(UPDATE_STEPS) {
        for (member_index, superblock) in superblocks.iter().enumerate() {
            let map = MemberMap::new(superblock.device_bytes)?;
            step.extend(copies.map(|copy_number| Rewrite {
                member_index,
                copy_number,
                offset: map.copy_offset(copy_number),
            }));
        }
    }
    Ok(steps)
}
