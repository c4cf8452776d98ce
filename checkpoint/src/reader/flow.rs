//! [`Flow`]: transfers kept under way until a plan is done.
//!
//! - The queue is filled up again before any byte is looked at: the members work on what comes next
//!   while what came is checked.
//! - What is in flight is bounded: as many bytes as the store's depth says in transfers of 1 MiB, in
//!   no more than twice as many, and as many buffers as the pool has.
//! - After a failure nothing more is started; what is under way is waited for and checked. Of several
//!   failures the one that lies first in the plan is told, whatever the order in which they came.

use std::collections::VecDeque;

use swath_engine::{BufPool, Completion, PoolBuf, ScopeCompletion, ScopeMemory};
use swath_volume::{VolumeLane, VolumeScope};

use crate::blob::usize_of;
use crate::error::{Error, Result};
use crate::index::BLOCK_BYTES;

use super::checks::Checks;
use super::plan::{Piece, Plan, Transfer};

/// How a flow ended early.
pub(super) struct Failure {
    pub(super) error: Error,
    /// Whether transfers may still be under way, in the lane.
    pub(super) is_adrift: bool,
}

/// A plan being carried out.
pub(super) struct Flow<'a, 'env> {
    plan: Plan<'env>,
    checks: Checks<'a>,
    pool: &'a BufPool,
    /// How many transfers of 1 MiB are kept in flight.
    window: usize,
    flights: Vec<Option<Flight<'env>>>,
    /// The places in `flights` that are free.
    free: Vec<usize>,
    bytes_in_flight: u64,
    landed: VecDeque<Landed<'env>>,
    /// How many transfers were started.
    started: u64,
    /// The failure that lies first in the plan, and where that is.
    failure: Option<(u64, Error)>,
}

/// A transfer that is under way.
struct Flight<'env> {
    /// Its place in the plan.
    place: u64,
    bytes: u64,
    cargo: Cargo<'env>,
}

/// What a transfer is for.
enum Cargo<'env> {
    /// Its memory is with the lane.
    Direct { tensor: usize, at: u64 },
    Buffered {
        start: u64,
        pieces: Vec<Piece<'env>>,
    },
}

impl Cargo<'_> {
    /// The tensor to name when all of it fails.
    fn tensor(&self) -> usize {
        match self {
            Self::Direct { tensor, .. } => *tensor,
            Self::Buffered { pieces, .. } => pieces[0].tensor,
        }
    }
}

/// A transfer that has ended.
struct Landed<'env> {
    place: u64,
    cargo: Cargo<'env>,
    result: swath_engine::Result<u64>,
    memory: Memory<'env>,
}

enum Memory<'env> {
    Lent(&'env [u8]),
    Buffer(PoolBuf),
}

impl<'a, 'env> Flow<'a, 'env> {
    pub(super) fn new(
        plan: Plan<'env>,
        checks: Checks<'a>,
        pool: &'a BufPool,
        window: usize,
    ) -> Self {
        Self {
            plan,
            checks,
            pool,
            window,
            flights: Vec::new(),
            free: Vec::new(),
            bytes_in_flight: 0,
            landed: VecDeque::new(),
            started: 0,
            failure: None,
        }
    }

    /// Reads everything, or says what failed first.
    pub(super) fn run(mut self, lane: &mut VolumeLane) -> Result<(), Failure> {
        lane.scope(|scope| {
            let mut next = self.plan.next();
            let mut ends = Vec::new();
            let mut others = Vec::new();
            loop {
                while self.failure.is_none()
                    && let Some(transfer) = next.take()
                {
                    if let Some(transfer) = self.start(scope, transfer) {
                        next = Some(transfer);
                        break;
                    }
                    next = self.plan.next();
                }
                // What was started goes off now, whatever else there is to do.
                let is_idle = self.landed.is_empty();
                let visit = scope.wait_for_all(usize::from(is_idle), &mut ends, &mut others);
                ends.drain(..).for_each(|end| self.end_direct(end));
                others.drain(..).for_each(|other| self.end_buffered(other));
                if let Err(error) = visit {
                    return Err(self.adrift(error));
                }
                match self.landed.pop_front() {
                    Some(landed) => self.look(landed),
                    None if self.in_flight() == 0 => break,
                    None => {}
                }
            }
            self.failure.take().map_or(Ok(()), |(_, error)| {
                Err(Failure {
                    error,
                    is_adrift: false,
                })
            })
        })
    }

    fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// Whether so many bytes more may be in flight.
    fn has_room(&self, bytes: u64) -> bool {
        let count = self.in_flight();
        let window_bytes = self.window as u64 * BLOCK_BYTES;
        let is_light = count < 2 * self.window && self.bytes_in_flight + bytes <= window_bytes;
        // Nor is the memory of more waited for than was looked at, by far.
        (count < self.window || is_light) && self.landed.len() < 2 * self.window
    }

    /// Starts a transfer, or gives it back when that has to wait.
    fn start(
        &mut self,
        scope: &mut VolumeScope<'_, '_, 'env>,
        transfer: Transfer<'env>,
    ) -> Option<Transfer<'env>> {
        let bytes = transfer.bytes();
        if !self.has_room(bytes) {
            return Some(transfer);
        }
        let token = self.free.last().copied().unwrap_or(self.flights.len());
        let cargo = match transfer {
            Transfer::Direct(piece) => {
                scope.read(piece.offset, piece.memory, token as u64);
                Cargo::Direct {
                    tensor: piece.tensor,
                    at: piece.at,
                }
            }
            Transfer::Buffered { units, pieces } => {
                let Some(mut buffer) = self.pool.take() else {
                    return Some(Transfer::Buffered { units, pieces });
                };
                buffer.set_len(usize_of(bytes));
                scope.read_owned(units.start, buffer, token as u64);
                Cargo::Buffered {
                    start: units.start,
                    pieces,
                }
            }
        };
        let flight = Some(Flight {
            place: self.started,
            bytes,
            cargo,
        });
        match self.free.pop() {
            Some(free) => self.flights[free] = flight,
            None => self.flights.push(flight),
        }
        self.started += 1;
        self.bytes_in_flight += bytes;
        None
    }

    fn end_direct(&mut self, end: ScopeCompletion<'env>) {
        let ScopeMemory::Read(memory) = end.memory else {
            unreachable!("only reads were started")
        };
        self.land(end.token, end.result, Memory::Lent(memory));
    }

    fn end_buffered(&mut self, end: Completion) {
        let buffer = end.buffers.into_one().map(PoolBuf::try_from);
        let Some(Ok(buffer)) = buffer else {
            unreachable!("a read gives its buffer back")
        };
        self.land(end.token, end.result, Memory::Buffer(buffer));
    }

    fn land(&mut self, token: u64, result: swath_engine::Result<u64>, memory: Memory<'env>) {
        let token = usize_of(token);
        let flight = self.flights[token].take();
        let flight = flight.expect("a transfer is under way until it ends");
        self.free.push(token);
        self.bytes_in_flight -= flight.bytes;
        self.landed.push_back(Landed {
            place: flight.place,
            cargo: flight.cargo,
            result,
            memory,
        });
    }

    /// Checks what came, and copies it where it is to go.
    fn look(&mut self, landed: Landed<'env>) {
        let checks = &mut self.checks;
        let outcome = match (landed.result, landed.cargo, landed.memory) {
            (Err(error), cargo, _) => Err(checks.error(cargo.tensor(), error)),
            (Ok(_), Cargo::Direct { tensor, at }, Memory::Lent(memory)) => {
                checks.take(tensor, at, memory)
            }
            (Ok(_), Cargo::Buffered { start, pieces }, Memory::Buffer(buffer)) => pieces
                .into_iter()
                .map(|piece| {
                    let from = usize_of(piece.offset - start);
                    let bytes = &buffer[from..from + usize_of(piece.length)];
                    checks.take_copy(piece.tensor, piece.at, bytes, piece.skip, piece.memory)
                })
                .fold(Ok(()), Result::and),
            _ => unreachable!("a transfer ends as it began"),
        };
        if let Err(error) = outcome {
            let is_first = match &self.failure {
                Some((place, _)) => landed.place < *place,
                None => true,
            };
            if is_first {
                self.failure = Some((landed.place, error));
            }
        }
    }

    /// The failure of the queue itself.
    fn adrift(&self, error: swath_volume::Error) -> Failure {
        let oldest = self.flights.iter().flatten().min_by_key(|it| it.place);
        let error = match oldest {
            Some(flight) => self.checks.error(flight.cargo.tensor(), error),
            None => error.into(),
        };
        Failure {
            error,
            is_adrift: true,
        }
    }
}
