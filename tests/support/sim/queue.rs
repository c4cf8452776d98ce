//! [`SimQueue`]: completes operations in an order of chance, one at a time, each whole or as a
//! fault has it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rand::RngExt;
use swath_engine::queue::{Queue, RAW_BYTES_MAX, RAW_IOVECS_MAX, RawCompletion, RawOp, Wake};
use swath_engine::{Backend, OpKind, QueueDescription, Scheduler};

use super::faults::Outcome;
use super::flight::{InFlight, perform, runs_of};
use super::platform::{State, World};
use super::record::{Event, Submitted};
use super::scheduler::SimScheduler;

/// A queue over simulated devices. What is in flight lies in the world, where a crash finds it.
#[derive(Debug)]
pub struct SimQueue {
    world: Arc<World>,
    number: u64,
    devices: Vec<u64>,
    capacity: usize,
    description: QueueDescription,
    waker: Arc<SimWaker>,
}

/// What became of an operation.
enum End {
    Done(RawCompletion),
    Late,
}

/// Wakes one queue.
#[derive(Debug)]
struct SimWaker {
    world: Arc<World>,
    /// Read and written under the world's lock only.
    is_woken: AtomicBool,
}

impl Wake for SimWaker {
    fn wake(&self) {
        let _state = self.world.state.lock();
        self.is_woken.store(true, Ordering::Relaxed);
        self.world.tell();
    }
}

impl SimQueue {
    pub(super) fn new(world: Arc<World>, devices: Vec<u64>, capacity: usize) -> Self {
        let waker = SimWaker {
            world: Arc::clone(&world),
            is_woken: AtomicBool::new(false),
        };
        let description = QueueDescription {
            backend: Backend::Sync,
            flags: "simulated".to_owned(),
            reasons: Vec::new(),
        };
        let number = {
            let mut state = world.state.lock();
            state.queues += 1;
            let number = state.queues;
            state.in_flight.insert(number, Vec::new());
            number
        };
        Self {
            world,
            number,
            devices,
            capacity,
            description,
            waker: Arc::new(waker),
        }
    }

    /// Completes `min` operations, and by chance more. Fewer only where devices hang.
    fn deliver(
        &self,
        state: &mut State,
        min: usize,
        completions: &mut Vec<RawCompletion>,
    ) -> io::Result<()> {
        if state.refused_visits > 0 {
            state.refused_visits -= 1;
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        let all = state.in_flight[&self.number].len();
        let count = state.rng.random_range(min.min(all)..=all);
        let mut given = 0;
        while given < count {
            match self.end_one(state, given < min) {
                Some(End::Done(completion)) => {
                    completions.push(completion);
                    given += 1;
                }
                Some(End::Late) => {}
                None => break,
            }
        }
        Ok(())
    }

    /// Ends one operation, or makes one late; none can end now unless time goes on, which it does
    /// when one `must` end.
    fn end_one(&self, state: &mut State, must: bool) -> Option<End> {
        if let Some((_, how)) = state.cut.take_if(|(after, _)| *after <= state.ended) {
            // What is about to end is in flight still.
            state.after = Some(state.crash_by_chance(&self.world, how));
            self.world.tell();
        }
        let place = state.pick(self.number, must)?;
        let list = state.in_flight.get_mut(&self.number).expect("a list");
        let op = list.swap_remove(place);
        state.now_ns += state.rng.random_range(1_000..100_000);
        let fault = state.strike(&op);
        if let Some(Outcome::Late(nanoseconds)) = fault
            && !op.is_late
        {
            state.struck.add(op.raw.kind, &Outcome::Late(nanoseconds));
            let op = InFlight {
                due_ns: state.now_ns.saturating_add(nanoseconds),
                is_late: true,
                ..op
            };
            state.in_flight.entry(self.number).or_default().push(op);
            return Some(End::Late);
        }
        let result = perform(state, &op, fault);
        state.ended += 1;
        state.record(|| Event::Completed {
            number: op.number,
            result,
        });
        if let Some((scheduler, _)) = &self.world.scheduler {
            let device = state.media.range(..op.device).count() as u64;
            let result = result.unsigned_abs().into();
            scheduler.note(&[
                device,
                op.raw.kind as u64,
                op.raw.offset,
                op.raw.length,
                result,
            ]);
            scheduler.set_now_ns(state.now_ns);
        }
        Some(End::Done(RawCompletion {
            token: op.raw.token,
            result,
        }))
    }

    /// As `wait`, for threads that a scheduler runs: between any two operations another thread may
    /// go on, and while none can end the others do.
    fn wait_scheduled(
        &self,
        scheduler: &SimScheduler,
        place: u64,
        min: usize,
        completions: &mut Vec<RawCompletion>,
    ) -> io::Result<()> {
        let enough = completions.len() + min;
        loop {
            scheduler.pass();
            let mut state = self.world.state.lock();
            if state.refused_visits > 0 {
                return self.deliver(&mut state, 0, completions);
            }
            let is_held = state.is_held && !state.is_off;
            if self.waker.is_woken.swap(false, Ordering::Relaxed) {
                return if is_held {
                    Ok(())
                } else {
                    self.deliver(&mut state, 0, completions)
                };
            }
            if is_held || !state.can_end(self.number) {
                drop(state);
                scheduler.wait(place);
                continue;
            }
            state.now_ns = state.now_ns.max(scheduler.now_ns());
            if let Some(due_ns) = state.next_due_ns(self.number) {
                drop(state);
                scheduler.sleep(due_ns, place);
                continue;
            }
            if let Some(End::Done(completion)) = self.end_one(&mut state, true) {
                completions.push(completion);
            }
            if completions.len() >= enough {
                return Ok(());
            }
        }
    }

    fn check(&self, state: &mut State, op: &RawOp) {
        let list = &state.in_flight[&self.number];
        assert!(
            list.len() < self.capacity,
            "more in flight than the queue takes"
        );
        assert!(
            list.iter().all(|other| other.raw.token != op.token),
            "token {} is in flight already",
            op.token
        );
        let number = self.devices[op.device as usize];
        let geometry = &state.media(number).geometry;
        let mask = u64::from(geometry.offset_align_bytes) - 1;
        assert_eq!((op.offset | op.length) & mask, 0, "{op:?} is not aligned");
        assert!(op.offset.checked_add(op.length).is_some(), "{op:?} wraps");
        assert_eq!(
            op.length == 0,
            op.kind == OpKind::Flush,
            "{op:?} has an odd length"
        );
        let runs = runs_of(op);
        assert_eq!(
            runs.is_empty(),
            !op.kind.has_memory(),
            "{op:?} has odd memory"
        );
        if runs.is_empty() {
            return;
        }
        assert!(
            op.length <= RAW_BYTES_MAX,
            "{op:?} is longer than the kernel takes"
        );
        assert!(
            runs.len() <= RAW_IOVECS_MAX,
            "{op:?} has more pieces than the kernel takes"
        );
        let total: u64 = runs.iter().map(|&(_, length)| length).sum();
        assert_eq!(total, op.length, "{op:?} has memory of another length");
        for (pointer, length) in runs {
            let align = geometry.memory_align_bytes as usize;
            assert_eq!(
                pointer.addr() % align,
                0,
                "{op:?}: {pointer:p} is not aligned"
            );
            assert_eq!(
                length & mask,
                0,
                "{op:?}: a piece of {length} bytes is not aligned"
            );
        }
    }
}

impl State {
    /// Which of a queue's operations ends next. Time goes on to the first that is due when one
    /// must end, and else by chance.
    fn pick(&mut self, queue: u64, must: bool) -> Option<usize> {
        let Self {
            media,
            in_flight,
            rng,
            now_ns,
            is_off,
            ..
        } = self;
        let list = &in_flight[&queue];
        let is_stuck = |op: &InFlight| {
            let media = &media[&op.device];
            media.is_hung && !media.is_gone && !*is_off
        };
        let may_end =
            |now_ns: u64| (0..list.len()).filter(move |&place| list[place].due_ns <= now_ns);
        let mut count = may_end(*now_ns)
            .filter(|&place| !is_stuck(&list[place]))
            .count();
        if count == 0 && (must || rng.random_range(0..8) == 0) {
            let free = list.iter().filter(|op| !is_stuck(op));
            *now_ns = free.map(|op| op.due_ns).min()?.max(*now_ns);
            count = may_end(*now_ns)
                .filter(|&place| !is_stuck(&list[place]))
                .count();
        }
        if count == 0 {
            return None;
        }
        let chosen = rng.random_range(0..count);
        may_end(*now_ns)
            .filter(|&place| !is_stuck(&list[place]))
            .nth(chosen)
    }

    /// When the first of a queue's operations is due, if none is now.
    fn next_due_ns(&self, queue: u64) -> Option<u64> {
        let mut next = u64::MAX;
        for op in &self.in_flight[&queue] {
            let media = &self.media[&op.device];
            if !media.is_hung || media.is_gone || self.is_off {
                next = next.min(op.due_ns);
            }
        }
        (next > self.now_ns).then_some(next)
    }

    /// Whether a queue has something that can end.
    fn can_end(&self, queue: u64) -> bool {
        self.in_flight[&queue].iter().any(|op| {
            let media = &self.media[&op.device];
            !media.is_hung || media.is_gone || self.is_off
        })
    }

    /// What goes wrong with an operation that is about to end.
    fn strike(&mut self, op: &InFlight) -> Option<Outcome> {
        let Self { faults, media, .. } = self;
        let path = &media[&op.device].path;
        let range = op.raw.offset..op.raw.offset + op.raw.length;
        faults.iter_mut().find_map(|fault| {
            let outcome = fault.strike(op.raw.kind, path, range.clone())?;
            // Once late is enough: what else there is may strike then.
            (!op.is_late || !matches!(outcome, Outcome::Late(_))).then_some(outcome)
        })
    }
}

// SAFETY: memory is touched in `perform`, which runs between taking the operation off the list of
// those in flight and handing out its completion, within one visit and under the world's lock; that
// happens once for each. Besides it is read, under the same lock, by a crash and at submission, while
// the operation is in flight. Nothing else holds the operations, and dropping the queue takes them
// off the list, so it ends all use of memory.
unsafe impl Queue for SimQueue {
    fn description(&self) -> &QueueDescription {
        &self.description
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    unsafe fn submit(&mut self, op: &RawOp) {
        let mut guard = self.world.state.lock();
        let state = &mut *guard;
        self.check(state, op);
        state.operations += 1;
        let device = self.devices[op.device as usize];
        let op = InFlight {
            raw: *op,
            number: state.operations,
            queue: self.number,
            device,
            submitted_ns: state.now_ns,
            due_ns: state.now_ns,
            is_late: false,
            cover: (op.kind == OpKind::Flush).then(|| state.media(device).cover()),
        };
        let place = state.media.keys().position(|&number| number == device);
        state.record(|| {
            Event::Submitted(Arc::new(Submitted {
                number: op.number,
                device: place.expect("it is there"),
                kind: op.raw.kind,
                fua: op.raw.fua,
                offset: op.raw.offset,
                length: op.raw.length,
                bytes: op.bytes(),
            }))
        });
        state.in_flight.entry(self.number).or_default().push(op);
    }

    fn poll(&mut self, completions: &mut Vec<RawCompletion>) -> io::Result<()> {
        if let Some((scheduler, _)) = &self.world.scheduler {
            scheduler.pass();
        }
        let mut state = self.world.state.lock();
        if state.is_held && !state.is_off {
            return Ok(());
        }
        self.deliver(&mut state, 0, completions)
    }

    fn wait(&mut self, min: usize, completions: &mut Vec<RawCompletion>) -> io::Result<()> {
        if let Some((scheduler, place)) = &self.world.scheduler {
            return self.wait_scheduled(scheduler, *place, min, completions);
        }
        let mut state = self.world.state.lock();
        loop {
            let is_held = state.is_held && !state.is_off;
            if self.waker.is_woken.swap(false, Ordering::Relaxed) {
                return if is_held {
                    Ok(())
                } else {
                    self.deliver(&mut state, 0, completions)
                };
            }
            if !is_held && state.can_end(self.number) {
                return self.deliver(&mut state, min, completions);
            }
            self.world.wait(&mut state);
        }
    }

    fn waker(&mut self) -> Arc<dyn Wake> {
        Arc::clone(&self.waker) as Arc<dyn Wake>
    }

    fn now_ns(&self) -> u64 {
        self.world.state.lock().now_ns
    }

    fn pause(&mut self, nanoseconds: u64) {
        let until_ns = self.now_ns().saturating_add(nanoseconds);
        if let Some((scheduler, place)) = &self.world.scheduler {
            // Whatever wakes others at this place is no reason to be early.
            while scheduler.now_ns() < until_ns {
                scheduler.sleep(until_ns, *place);
            }
        }
        let mut state = self.world.state.lock();
        state.now_ns = state.now_ns.max(until_ns);
    }
}

impl Drop for SimQueue {
    fn drop(&mut self) {
        self.world.state.lock().in_flight.remove(&self.number);
    }
}
