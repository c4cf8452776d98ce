//! Every operation, on a volume and on a bare device, with lengths and places that a drive of any
//! block size must take: what was written is read back, and nothing beside it has changed.

use std::collections::BTreeMap;

use swath_engine::{
    AlignedBuf, Buffer, Completion, Lane, OpKind, OpenOptions as DeviceOptions, QueueOptions,
    Request, Segment,
};
use swath_volume::{CreateOptions, Volume, VolumeLane};

use crate::{Result, chain, lane_options, open_devices};

/// The byte at a place, for a pattern that differs from block to block and from seed to seed.
fn pattern(seed: u64, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    for (place, word) in bytes.chunks_exact_mut(8).enumerate() {
        let at = (offset / 8 + place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed;
        word.copy_from_slice(&at.to_le_bytes());
    }
    bytes
}

/// What both kinds of lanes can do, by offset in one space.
trait AnyLane {
    fn submit(&mut self, request: Request, offset: u64, length: u64);
    fn wait(&mut self, min: usize, completions: &mut Vec<Completion>) -> Result<()>;
    fn drain(&mut self, completions: &mut Vec<Completion>) -> Result<()>;
    fn name(&self) -> String;

    fn one(&mut self, request: Request, offset: u64, length: u64) -> Result<Completion> {
        self.submit(request, offset, length);
        let mut completions = Vec::new();
        while completions.is_empty() {
            self.wait(1, &mut completions)?;
        }
        Ok(completions.remove(0))
    }
}

impl AnyLane for VolumeLane {
    fn submit(&mut self, request: Request, offset: u64, length: u64) {
        Self::submit(self, request, offset, length);
    }
    fn wait(&mut self, min: usize, completions: &mut Vec<Completion>) -> Result<()> {
        Self::wait(self, min, completions)?;
        Ok(())
    }
    fn drain(&mut self, completions: &mut Vec<Completion>) -> Result<()> {
        Ok(Self::drain(self, completions)?)
    }
    fn name(&self) -> String {
        format!("volume, {}", self.description())
    }
}

/// The last device of a bare lane, from 8 MiB on.
struct Bare(Lane);

impl AnyLane for Bare {
    fn submit(&mut self, request: Request, offset: u64, length: u64) {
        let device = u32::try_from(self.0.devices().len() - 1).unwrap_or(0);
        let length = match request.kind {
            OpKind::Flush => 0,
            kind if kind.has_memory() => request.buffers.total_len(),
            _ => length,
        };
        let segment = Segment::whole(
            device,
            if length == 0 { 0 } else { offset + (8 << 20) },
            length,
        );
        self.0.submit(request, &[segment]);
    }
    fn wait(&mut self, min: usize, completions: &mut Vec<Completion>) -> Result<()> {
        self.0.wait(min, completions)?;
        Ok(())
    }
    fn drain(&mut self, completions: &mut Vec<Completion>) -> Result<()> {
        Ok(self.0.drain(completions)?)
    }
    fn name(&self) -> String {
        format!("bare, {}", self.0.description())
    }
}

pub(crate) fn all(options: &QueueOptions, members: &[&str]) -> Result<()> {
    {
        let create = CreateOptions {
            force: true,
            chunk_bytes: 64 << 10,
            name: "ops".to_owned(),
            ..CreateOptions::default()
        };
        let volume = Volume::create(members, &create)?;
        let block = volume.block_bytes();
        let mut lane = volume.lane(&lane_options(options))?;
        every_operation(&mut lane, options, block)?;
        misuse(&mut lane, volume.capacity_bytes(), block)?;
    }
    let devices = open_devices(members, &DeviceOptions::read_write())?;
    let block = devices[devices.len() - 1].geometry().offset_align_bytes;
    let mut lane = Bare(Lane::open(
        &swath_engine::Kernel,
        &devices,
        &lane_options(options),
    )?);
    every_operation(&mut lane, options, block)
}

fn full(completion: &Completion, bytes: u64) -> Result<()> {
    match &completion.result {
        Ok(done) if *done == bytes => Ok(()),
        Ok(done) => Err(format!("{}: {done} bytes instead of {bytes}", completion.kind).into()),
        Err(error) => Err(error.clone().into()),
    }
}

fn read(lane: &mut dyn AnyLane, offset: u64, length: usize) -> Result<Vec<u8>> {
    let mut buffer = AlignedBuf::zeroed(length)?;
    buffer.fill(0xa5);
    let completion = lane.one(Request::read(buffer, 3), offset, 0)?;
    full(&completion, length as u64)?;
    let buffer = completion.buffers.into_one().ok_or("no buffer came back")?;
    Ok(buffer.as_slice().to_vec())
}

fn same(lane: &mut dyn AnyLane, what: &str, offset: u64, expected: &[u8]) -> Result<()> {
    let found = read(lane, offset, expected.len())?;
    match found.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(place) => Err(format!(
            "{what}: byte {} is {:#x}, not {:#x}",
            offset + place as u64,
            found[place],
            expected[place]
        )
        .into()),
    }
}

fn every_operation(lane: &mut dyn AnyLane, options: &QueueOptions, block: u32) -> Result<()> {
    let name = lane.name();
    let block_bytes = u64::from(block);
    let long = 3 << 20;
    // One block, an odd number of blocks, more than the drive takes at once (MDTS), unmerged ends.
    for (seed, (offset, length)) in [
        (0_u64, block as usize),
        (block_bytes * 3, block as usize * 7),
        (60 << 10, 72 << 10),
        (block_bytes, long),
    ]
    .into_iter()
    .enumerate()
    {
        let bytes = pattern(seed as u64, offset, length);
        let completion = lane.one(Request::write(AlignedBuf::copy_of(&bytes)?, 1), offset, 0)?;
        full(&completion, length as u64)?;
        same(lane, "write", offset, &bytes)?;

        let bytes = pattern(seed as u64 + 100, offset, length);
        let completion = lane.one(
            Request::write_fua(AlignedBuf::copy_of(&bytes)?, 1),
            offset,
            0,
        )?;
        full(&completion, length as u64)?;
        same(lane, "fua write", offset, &bytes)?;
        full(
            &lane.one(Request::without_memory(OpKind::Flush, 2), 0, 0)?,
            0,
        )?;
    }
    // Several buffers, each block of its own.
    let bytes = pattern(7, 0, 33 * block as usize);
    let pieces: Vec<Buffer> = bytes
        .chunks(block as usize)
        .map(|piece| AlignedBuf::copy_of(piece).map(Buffer::from))
        .collect::<std::result::Result<_, _>>()?;
    let completion = lane.one(Request::write(pieces, 4), 1 << 20, 0)?;
    full(&completion, bytes.len() as u64)?;
    if completion.buffers.iter().count() != 33 {
        return Err("not all buffers came back".into());
    }
    same(lane, "vectored write", 1 << 20, &bytes)?;
    let pieces: Vec<Buffer> = (0..33)
        .map(|_| AlignedBuf::zeroed(block as usize).map(Buffer::from))
        .collect::<std::result::Result<_, _>>()?;
    let completion = lane.one(Request::read(pieces, 4), 1 << 20, 0)?;
    full(&completion, bytes.len() as u64)?;
    let found: Vec<u8> = completion
        .buffers
        .iter()
        .flat_map(|piece| piece.as_slice().to_vec())
        .collect();
    if found != bytes {
        return Err("a vectored read gave other bytes".into());
    }
    // Pieces of a registered pool.
    for pool in &options.pools {
        let mut piece = pool.take().ok_or("the pool is empty")?;
        let length = piece.len();
        let bytes = pattern(9, 0, length);
        piece.copy_from_slice(&bytes);
        full(
            &lane.one(Request::write(piece, 5), 4 << 20, 0)?,
            length as u64,
        )?;
        same(lane, "pool write", 4 << 20, &bytes)?;
        let mut piece = pool.take().ok_or("the pool is empty")?;
        piece.fill(0);
        let completion = lane.one(Request::read(piece, 5), 4 << 20, 0)?;
        full(&completion, length as u64)?;
        let piece = completion.buffers.into_one().ok_or("no buffer came back")?;
        if piece.as_slice() != bytes {
            return Err("a pool read gave other bytes".into());
        }
    }
    // Zeroes and discards, and nothing outside of them.
    for (kind, offset, length) in [
        (OpKind::WriteZeroes, 60 << 10, 72 << 10),
        (OpKind::WriteZeroes, block_bytes * 5, block_bytes),
        (OpKind::WriteZeroes, 512 << 10, 2 << 20),
        (OpKind::Discard, 100 << 10, 300 << 10),
        (OpKind::Discard, block_bytes * 5, block_bytes),
    ] {
        let start = offset - block_bytes;
        let size = (length + 2 * block_bytes) as usize;
        let mut bytes = pattern(11, start, size);
        full(
            &lane.one(Request::write(AlignedBuf::copy_of(&bytes)?, 1), start, 0)?,
            size as u64,
        )?;
        full(
            &lane.one(Request::without_memory(kind, 6), offset, length)?,
            length,
        )?;
        if kind == OpKind::WriteZeroes {
            bytes[block as usize..][..length as usize].fill(0);
            same(lane, "write-zeroes", start, &bytes)?;
        } else {
            same(lane, "before a discard", start, &bytes[..block as usize])?;
            let after = size - block as usize;
            same(
                lane,
                "after a discard",
                start + after as u64,
                &bytes[after..],
            )?;
        }
    }
    mixed(lane)?;
    println!("ok {name}");
    Ok(())
}

/// Everything at once, many more requests than the queue is deep: each comes back once.
fn mixed(lane: &mut dyn AnyLane) -> Result<()> {
    let mut seen = BTreeMap::new();
    let mut completions = Vec::new();
    for token in 0..200_u64 {
        let offset = (token % 50) * (256 << 10);
        match token % 5 {
            0 | 1 => {
                let bytes = pattern(token, offset, 64 << 10);
                lane.submit(
                    Request::write(AlignedBuf::copy_of(&bytes)?, token),
                    offset,
                    0,
                );
            }
            2 => lane.submit(
                Request::read(AlignedBuf::zeroed(64 << 10)?, token),
                offset,
                0,
            ),
            3 => lane.submit(
                Request::without_memory(OpKind::WriteZeroes, token),
                offset,
                64 << 10,
            ),
            _ if token % 2 == 0 => lane.submit(Request::without_memory(OpKind::Flush, token), 0, 0),
            _ => lane.submit(
                Request::without_memory(OpKind::Discard, token),
                offset,
                64 << 10,
            ),
        }
        if token % 16 == 0 {
            lane.wait(1, &mut completions)?;
        }
    }
    lane.drain(&mut completions)?;
    for completion in completions {
        let token = completion.token;
        if let Err(error) = completion.result {
            return Err(error.into());
        }
        *seen.entry(token).or_insert(0) += 1;
    }
    if seen.len() == 200 && seen.values().all(|times| *times == 1) {
        Ok(())
    } else {
        Err(format!("{} of 200 requests completed", seen.len()).into())
    }
}

/// Requests that make no sense are refused, by their completion.
fn misuse(lane: &mut VolumeLane, capacity: u64, block: u32) -> Result<()> {
    let block = u64::from(block);
    let cases = [
        (Request::read(AlignedBuf::zeroed(4096)?, 0), capacity, 0),
        (Request::read(AlignedBuf::zeroed(4096)?, 0), 1, 0),
        (Request::read(AlignedBuf::zeroed(100)?, 0), 0, 0),
        (Request::without_memory(OpKind::Discard, 0), 0, block / 2),
        (
            Request::without_memory(OpKind::WriteZeroes, 0),
            capacity - block,
            2 * block,
        ),
    ];
    for (request, offset, length) in cases {
        let words = format!("{} at {offset}", request.kind);
        match AnyLane::one(lane, request, offset, length)?.result {
            Ok(_) => return Err(format!("{words} was not refused").into()),
            Err(error) => println!("refused: {} [{:?}]", chain(&error), error.kind()),
        }
    }
    Ok(())
}
