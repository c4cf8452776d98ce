//! [`Volume::tuned`]: a short probe of a volume with reads alone.
//!
//! ```text
//! for each round, forth and back:
//!   for each transfer size:   a lane and a pool of its own, open all the time
//!     for each depth:         one slice: `depth` reads in flight, each replaced as it ends
//! ```
//!
//! - Nothing is written, and nothing is read outside the volume's own data.
//! - What counts in a slice begins with the first completion and ends with the last one that was
//!   replaced: neither filling the queue nor draining it is part of the rate.
//! - The time comes from the lane's clock, and the places from the number of the request, so that a
//!   simulated volume is probed the same way each time.

use swath_engine::{
    BufPool, Buffer, Completion, DeviceKind, LaneOptions, QueueOptions, WrittenState, written_state,
};

use crate::error::{Error, ErrorKind, Result};
use crate::tune::{
    Answered, Candidates, DEPTH_MAX, TOLERANCE, Tried, TuneOptions, Tuned, batch, choose,
    depth_per_member, middle,
};
use crate::volume::{Volume, VolumeLane};

/// The most requests of a slice, for a clock that does not go on.
const SLICE_REQUESTS_MAX: u64 = 1 << 17;

/// A slice in which too little came back may take so many times its share.
const SLICES_MAX: u64 = 16;

impl Volume {
    /// Finds out by a short probe which transfers the members want: reads of several sizes, with
    /// more and more in flight. It takes about [`TuneOptions::runtime`], and memory for what is in
    /// flight: up to 124 MiB for four members.
    ///
    /// Reads alone: not a byte is changed. What was never written is read without a drive, and says
    /// nothing of one; [`Tuned::answered`] tells which it was. Other work on the drives meanwhile
    /// shows in the rates.
    ///
    /// # Errors
    ///
    /// No rounds; a lane or its memory is not to be had; a member that fails.
    pub fn tuned(&self, options: &TuneOptions) -> Result<Tuned> {
        if options.rounds == 0 {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a probe needs at least one round",
            ));
        }
        let block_bytes = u64::from(self.block_bytes());
        let limits = self
            .members()
            .iter()
            .filter_map(|member| member.device.geometry().transfer_bytes_max);
        let large = Candidates::large(self.layout(), block_bytes, limits.min());
        let small = Candidates::small(self.layout(), block_bytes);

        let mut probes = Vec::with_capacity(large.len() + 1);
        for candidates in large {
            probes.push(Probe::open(self, candidates, Order::InTurn, options)?);
        }
        probes.push(Probe::open(self, small, Order::Scattered, options)?);
        let slices: usize = probes.iter().map(|probe| probe.rates.len()).sum();
        let slices = u64::from(options.rounds).saturating_mul(slices as u64);
        let runtime_ns = u64::try_from(options.runtime.as_nanos()).unwrap_or(u64::MAX);
        let slice_ns = (runtime_ns / slices.max(1)).max(1);
        for round in 0..options.rounds {
            // Forth and back: what changes slowly meets all of them alike.
            if round % 2 == 0 {
                for probe in &mut probes {
                    probe.round(slice_ns, false)?;
                }
            } else {
                for probe in probes.iter_mut().rev() {
                    probe.round(slice_ns, true)?;
                }
            }
        }

        let small = probes.pop().expect("it was pushed last");
        let queue = small.lane.description().clone();
        let small_tried = small.tried();
        let large_tried: Vec<_> = probes.into_iter().flat_map(|probe| probe.tried()).collect();
        let choice = |tried: &[Tried]| choose(tried, TOLERANCE).expect("there are candidates");
        let (large, small) = (choice(&large_tried), choice(&small_tried));
        Ok(Tuned {
            depth_per_member: depth_per_member(self.layout(), large),
            small_batch: batch(small.depth),
            large,
            small,
            answered: self.answered(),
            large_tried,
            small_tried,
            queue,
        })
    }

    /// What answers reads of this volume's data.
    fn answered(&self) -> Answered {
        let of_member = self.members().iter().map(|member| {
            let device = &*member.device;
            if device.kind() == DeviceKind::MemoryFile || !device.is_direct() {
                return Answered::Memory;
            }
            match written_state(device, member.data_offset, member.data_bytes) {
                WrittenState::Written => Answered::Drives,
                WrittenState::Partly { .. } => Answered::Partly,
                WrittenState::Unwritten => Answered::Unwritten,
                WrittenState::Unknown => Answered::Unknown,
            }
        });
        let (least, most) = of_member.fold((Answered::Memory, Answered::Drives), |range, one| {
            (range.0.min(one), range.1.max(one))
        });
        // Of members that differ in this, some were written.
        if most == Answered::Unwritten && least < most {
            Answered::Partly
        } else {
            most
        }
    }
}

/// Where the reads of a probe lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// One behind the other, from the start again after the end.
    InTurn,
    /// All over the volume.
    Scattered,
}

/// One transfer size: its lane, its memory, and the rates of the rounds so far.
struct Probe {
    lane: VolumeLane,
    /// Memory that is not in flight.
    buffers: Vec<Buffer>,
    candidates: Candidates,
    order: Order,
    /// How many transfers the volume has room for, side by side.
    places: u64,
    /// How many requests there were.
    count: u64,
    /// For each depth, the rate of each round, in bytes a second.
    rates: Vec<Vec<f64>>,
    completions: Vec<Completion>,
}

impl Probe {
    fn open(
        volume: &Volume,
        candidates: Candidates,
        order: Order,
        options: &TuneOptions,
    ) -> Result<Self> {
        let bytes = usize::try_from(candidates.transfer_bytes).expect("transfers are a few MiB");
        let depth = candidates.depths.iter().max().copied().unwrap_or(1);
        // A pool's pieces are whole pages; transfers need not be.
        let pool = BufPool::new(bytes.next_multiple_of(4096), depth as usize)?;
        let parts = candidates.transfer_bytes.div_ceil(volume.chunk_bytes());
        let parts = parts.clamp(1, volume.members().len() as u64);
        let queue_depth = u64::from(depth).saturating_mul(parts);
        let lane = volume.lane(&LaneOptions {
            queue: QueueOptions {
                depth: u32::try_from(queue_depth).map_or(DEPTH_MAX, |depth| depth.min(DEPTH_MAX)),
                pools: vec![pool.clone()],
                ..options.queue.clone()
            },
            statistics: false,
            ..LaneOptions::default()
        })?;
        let buffers = std::iter::from_fn(|| pool.take()).map(|mut piece| {
            piece.set_len(bytes);
            Buffer::from(piece)
        });
        Ok(Self {
            buffers: buffers.collect(),
            places: (volume.capacity_bytes() / candidates.transfer_bytes).max(1),
            rates: vec![Vec::new(); candidates.depths.len()],
            lane,
            candidates,
            order,
            count: 0,
            completions: Vec::new(),
        })
    }

    /// Tries each depth once.
    fn round(&mut self, slice_ns: u64, is_backwards: bool) -> Result<()> {
        for step in 0..self.rates.len() {
            let number = if is_backwards {
                self.rates.len() - 1 - step
            } else {
                step
            };
            let rate = self.slice(self.candidates.depths[number], slice_ns)?;
            self.rates[number].push(rate);
        }
        Ok(())
    }

    /// Keeps `depth` reads in flight for a while. Returns the bytes a second.
    fn slice(&mut self, depth: u32, slice_ns: u64) -> Result<f64> {
        let depth = u64::from(depth);
        for _ in 0..depth {
            self.submit_one();
        }
        self.reap()?;
        let begin_ns = self.lane.now_ns();
        let mut done = 0;
        let elapsed_ns = loop {
            // As many as came back go out again: what is in flight stays the same.
            while (self.lane.in_flight() as u64) < depth {
                self.submit_one();
            }
            done += self.reap()?;
            let elapsed_ns = self.lane.now_ns().saturating_sub(begin_ns);
            let is_enough = done >= depth && elapsed_ns >= slice_ns;
            if is_enough
                || elapsed_ns >= slice_ns.saturating_mul(SLICES_MAX)
                || done >= SLICE_REQUESTS_MAX
            {
                break elapsed_ns;
            }
        };
        while self.lane.in_flight() > 0 {
            self.reap()?;
        }
        Ok((done * self.candidates.transfer_bytes) as f64 * 1e9 / elapsed_ns.max(1) as f64)
    }

    fn submit_one(&mut self) {
        let buffer = self.buffers.pop().expect("there is memory for the depth");
        let place = match self.order {
            Order::InTurn => self.count % self.places,
            Order::Scattered => scattered(self.count) % self.places,
        };
        self.count += 1;
        let offset = place * self.candidates.transfer_bytes;
        self.lane.read(offset, buffer, 0);
    }

    /// Waits for at least one read, and takes all that are done. Returns how many.
    fn reap(&mut self) -> Result<u64> {
        self.lane.wait(1, &mut self.completions)?;
        let mut count = 0;
        for completion in self.completions.drain(..) {
            count += 1;
            self.buffers.extend(completion.buffers.into_one());
            completion
                .result
                .map_err(|error| Error::from(error).context("the probe's read failed"))?;
        }
        Ok(count)
    }

    fn tried(self) -> Vec<Tried> {
        let Candidates {
            transfer_bytes,
            depths,
        } = self.candidates;
        let rates = self.rates.into_iter().map(middle);
        depths
            .into_iter()
            .zip(rates)
            .map(|(depth, bytes_per_s)| Tried {
                transfer_bytes,
                depth,
                bytes_per_s,
            })
            .collect()
    }
}

/// A number that looks random for each `count`: the mixing step of SplitMix64.
fn scattered(count: u64) -> u64 {
    let mut mixed = count.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
