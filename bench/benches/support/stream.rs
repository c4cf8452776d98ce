//! [`Stream`]: keeps requests going through a lane, as lean as a caller's loop can be.
//!
//! - Buffers and positions are made before; the loop takes a buffer, hands it over, and takes it
//!   back from its completion.
//! - One stream for a lane over bare members and for one over the volume: what differs is the lane.

use std::error::Error;

use swath_bench::{Cell, Cursor, Pattern, Position, Side};
use swath_engine::{Backend, BufPool, Buffer, Completion, Lane, LaneOptions, QueueOptions};
use swath_engine::{Request, Segment};
use swath_volume::{Volume, VolumeLane};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Positions are drawn before and visited in turn.
const POSITIONS: usize = 4096;
const SEED: u64 = 1;

/// What a stream asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) block_bytes: u64,
    pub(crate) pattern: Pattern,
    /// Requests handed over before each visit to the queue.
    pub(crate) batch: usize,
    /// The most requests in flight.
    pub(crate) depth: u32,
}

/// A lane of either kind.
pub(crate) trait Way: Sized {
    const SIDE: Side;

    fn open(volume: &Volume, options: &LaneOptions) -> Result<Self>;
    fn read(&mut self, position: Position, buffer: Buffer);
    fn write(&mut self, position: Position, buffer: Buffer);
    fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<()>;
    fn wait(&mut self, min: usize, completions: &mut Vec<Completion>) -> Result<()>;
}

impl Way for VolumeLane {
    const SIDE: Side = Side::Volume;

    fn open(volume: &Volume, options: &LaneOptions) -> Result<Self> {
        Ok(volume.lane(options)?)
    }

    #[inline(always)]
    fn read(&mut self, position: Position, buffer: Buffer) {
        Self::read(self, position.offset, buffer, 0);
    }

    #[inline(always)]
    fn write(&mut self, position: Position, buffer: Buffer) {
        Self::write(self, position.offset, buffer, 0);
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<()> {
        Self::poll(self, completions)?;
        Ok(())
    }

    fn wait(&mut self, min: usize, completions: &mut Vec<Completion>) -> Result<()> {
        Self::wait(self, min, completions)?;
        Ok(())
    }
}

impl Way for Lane {
    const SIDE: Side = Side::Members;

    fn open(volume: &Volume, options: &LaneOptions) -> Result<Self> {
        Ok(volume.member_lane(options)?)
    }

    #[inline(always)]
    fn read(&mut self, position: Position, buffer: Buffer) {
        let place = place(position, &buffer);
        self.submit(Request::read(buffer, 0), &[place]);
    }

    #[inline(always)]
    fn write(&mut self, position: Position, buffer: Buffer) {
        let place = place(position, &buffer);
        self.submit(Request::write(buffer, 0), &[place]);
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> Result<()> {
        Self::poll(self, completions)?;
        Ok(())
    }

    fn wait(&mut self, min: usize, completions: &mut Vec<Completion>) -> Result<()> {
        Self::wait(self, min, completions)?;
        Ok(())
    }
}

#[inline(always)]
fn place(position: Position, buffer: &Buffer) -> Segment {
    Segment::whole(position.device, position.offset, buffer.len() as u64)
}

/// Requests on their way round.
#[derive(Debug)]
pub(crate) struct Stream<W> {
    way: W,
    shape: Shape,
    positions: Vec<Position>,
    next: usize,
    free: Vec<Buffer>,
    completions: Vec<Completion>,
}

impl<W: Way> Stream<W> {
    pub(crate) fn open(volume: &Volume, backend: Backend, shape: Shape) -> Result<Self> {
        let cell = Cell {
            pattern: shape.pattern,
            block_bytes: shape.block_bytes,
            depth: shape.depth,
            lanes: 1,
        };
        let mut cursor = Cursor::new(&cell, &W::SIDE.spaces(volume), 0, SEED)?;
        let pool = BufPool::new(usize::try_from(shape.block_bytes)?, shape.depth as usize)?;
        let options = LaneOptions {
            queue: QueueOptions {
                pools: vec![pool.clone()],
                backend,
                ..QueueOptions::default()
            },
            ..LaneOptions::default()
        };
        Ok(Self {
            way: W::open(volume, &options)?,
            shape,
            positions: (0..POSITIONS).map(|_| cursor.next_position()).collect(),
            next: 0,
            free: std::iter::from_fn(|| pool.take())
                .map(Buffer::from)
                .collect(),
            completions: Vec::with_capacity(shape.depth as usize),
        })
    }

    /// Runs `count` requests, and returns when all of them are back. A function of its own, so that
    /// what is around it does not change how it is compiled.
    #[inline(never)]
    pub(crate) fn run(&mut self, count: usize) -> Result<()> {
        let mut left = count;
        loop {
            let batch = left.min(self.shape.batch).min(self.free.len());
            self.submit(batch);
            left -= batch;
            if self.free.len() == self.shape.depth as usize {
                return Ok(());
            }
            if left == 0 || self.free.is_empty() {
                self.way.wait(1, &mut self.completions)?;
            } else {
                // The depth is not reached yet: start what is queued and go on.
                self.way.poll(&mut self.completions)?;
            }
            for completion in self.completions.drain(..) {
                completion.result?;
                self.free.extend(completion.buffers.into_one());
            }
        }
    }

    #[inline]
    fn submit(&mut self, count: usize) {
        for buffer in self.free.drain(self.free.len() - count..) {
            let position = self.positions[self.next % POSITIONS];
            self.next += 1;
            if self.shape.pattern.is_write() {
                self.way.write(position, buffer);
            } else {
                self.way.read(position, buffer);
            }
        }
    }
}
