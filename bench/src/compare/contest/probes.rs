//! Which settings each side is measured with, found by trying.
//!
//! A short look at a disk that others use too says little, and would set one side better than the
//! other by luck. So both sides look twice, in the same way:
//!
//! 1. Each side tries all its candidates once, in turn with the other.
//! 2. What was among the fastest of *either* side is tried by both sides several times more.
//!
//! The highest median of these is taken; of those that reach nearly as much, the one that costs the
//! least CPU time. So what one side gains by a setting, the other was offered as well.

use std::time::Duration;

use serde::Serialize;

use super::{Contest, FIO_OVERHEAD, Job, Rival, SWATH_OVERHEAD, Schedule};
use crate::compare::arena::Arena;
use crate::compare::memory::HugePages;
use crate::compare::output::Done;
use crate::compare::settings::{Batching, FioSettings};
use crate::compare::statistics::median;
use crate::compare::turns::Side;
use crate::error::{ErrorKind, Result};
use crate::progress::Progress;
use crate::workload::Cell;

/// The ramp of a probe, whose window is short as well.
const PROBE_RAMP: Duration = Duration::from_millis(100);

/// How many of the fastest of each side both sides try again.
const FINALISTS: usize = 2;

/// How often they do.
const FINAL_TRIES: u32 = 3;

/// Candidates that reach this part of the most are as good, and CPU time decides.
const NEARLY: f64 = 0.98;

/// A candidate and what it reached.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Probe<T> {
    #[serde(flatten)]
    pub(crate) settings: T,
    /// The median of its tries; none: it failed.
    pub(crate) iops: Option<f64>,
    /// Of every try, in order.
    pub(crate) iops_tries: Vec<f64>,
    /// The same tries' CPU time for each I/O.
    pub(crate) cpu_ns_per_io_tries: Vec<f64>,
}

impl<T> Probe<T> {
    fn new(settings: T) -> Self {
        Self {
            settings,
            iops: None,
            iops_tries: Vec::new(),
            cpu_ns_per_io_tries: Vec::new(),
        }
    }

    fn tried(&mut self, done: &Done) {
        self.iops_tries.push(done.iops());
        self.cpu_ns_per_io_tries.push(done.cpu_ns_per_io);
        self.iops = median(self.iops_tries.iter().copied());
    }

    /// Whoever fails once is out, whatever it reached before.
    fn failed(&mut self) {
        self.iops = None;
        self.iops_tries.clear();
        self.cpu_ns_per_io_tries.clear();
    }
}

/// What both sides tried; fio nothing, unless Swath is compared with it at its best.
#[derive(Debug)]
pub(super) struct Probes {
    pub(super) swath: Vec<Probe<Batching>>,
    pub(super) fio: Vec<Probe<FioSettings>>,
}

impl Probes {
    fn new(schedule: &Schedule, cell: &Cell, pages: HugePages) -> Self {
        let swath = Batching::candidates(cell);
        let fio = if schedule.rivals.contains(&Rival::Best) {
            FioSettings::candidates(cell, schedule.in_memory, pages)
        } else {
            Vec::new()
        };
        Self {
            swath: swath.into_iter().map(Probe::new).collect(),
            fio: fio.into_iter().map(Probe::new).collect(),
        }
    }

    /// The places of the candidates that are tried again: those of the fastest of either side.
    fn finalists(&self) -> (Vec<usize>, Vec<usize>) {
        let ours = fastest(&self.swath).map(|place| self.swath[place].settings);
        let theirs: Vec<FioSettings> = fastest(&self.fio)
            .map(|place| self.fio[place].settings)
            .collect();
        let batchings: Vec<Batching> = ours
            .chain(theirs.iter().filter_map(|settings| settings.batching()))
            .collect();
        let swath = places(&self.swath, |settings| batchings.contains(settings));
        let fio = places(&self.fio, |settings| match settings.batching() {
            Some(batching) => batchings.contains(&batching),
            None => theirs.contains(settings),
        });
        (swath, fio)
    }
}

/// How long the probes of a cell take at most.
pub(super) fn time(schedule: &Schedule, cell: &Cell) -> Duration {
    let probes = Probes::new(schedule, cell, HugePages::now());
    let tries = |candidates: usize| {
        let finalists = candidates.min(2 * FINALISTS);
        let again = finalists.saturating_mul(FINAL_TRIES as usize);
        u32::try_from(candidates.saturating_add(again)).unwrap_or(u32::MAX)
    };
    (PROBE_RAMP + schedule.probe + SWATH_OVERHEAD) * tries(probes.swath.len())
        + (PROBE_RAMP + schedule.probe + FIO_OVERHEAD) * tries(probes.fio.len())
}

/// The settings to measure with: of those that were tried most often, the fastest, or one that is
/// nearly as fast for less CPU time. None: none worked.
pub(super) fn chosen<T: Copy>(probes: &[Probe<T>]) -> Option<T> {
    let tries = probes.iter().map(|probe| probe.iops_tries.len()).max()?;
    let finalists = probes
        .iter()
        .filter(|probe| probe.iops_tries.len() == tries);
    let rated: Vec<(f64, f64, T)> = finalists
        .filter_map(|probe| {
            let cpu = median(probe.cpu_ns_per_io_tries.iter().copied())?;
            Some((probe.iops?, cpu, probe.settings))
        })
        .collect();
    let most = rated.iter().map(|rated| rated.0).max_by(f64::total_cmp)?;
    rated
        .into_iter()
        .filter(|(iops, ..)| *iops >= most * NEARLY)
        .min_by(|one, other| one.1.total_cmp(&other.1))
        .map(|(.., settings)| settings)
}

/// The places of the fastest few, the fastest first.
fn fastest<T>(probes: &[Probe<T>]) -> impl Iterator<Item = usize> {
    let mut rated: Vec<(f64, usize)> = (0..)
        .zip(probes)
        .filter_map(|(place, probe)| Some((probe.iops?, place)))
        .collect();
    rated.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    rated.into_iter().take(FINALISTS).map(|(_, place)| place)
}

fn places<T>(probes: &[Probe<T>], is_wanted: impl Fn(&T) -> bool) -> Vec<usize> {
    (0..)
        .zip(probes)
        .filter(|(_, probe)| probe.iops.is_some() && is_wanted(&probe.settings))
        .map(|(place, _)| place)
        .collect()
}

impl Contest<'_> {
    /// Tries the candidates of both sides. One of fio's that fails is left out and told, as long
    /// as another does not.
    pub(super) fn probe(
        &mut self,
        cell: &Cell,
        arena: &mut Arena,
        progress: &mut Progress,
    ) -> Result<Probes> {
        let mut probes = Probes::new(self.schedule, cell, self.pages);
        let first = (0..probes.swath.len().max(probes.fio.len())).collect::<Vec<_>>();
        self.try_in_turn(cell, &mut probes, (&first, &first), arena, progress)?;
        let (swath, fio) = probes.finalists();
        for _ in 0..FINAL_TRIES {
            self.try_in_turn(cell, &mut probes, (&swath, &fio), arena, progress)?;
        }
        Ok(probes)
    }

    /// Tries the candidates at these places once, Swath's and fio's in turn.
    fn try_in_turn(
        &mut self,
        cell: &Cell,
        probes: &mut Probes,
        (swath, fio): (&[usize], &[usize]),
        arena: &mut Arena,
        progress: &mut Progress,
    ) -> Result<()> {
        for turn in 0..swath.len().max(fio.len()) {
            let ours = swath.get(turn).and_then(|at| probes.swath.get_mut(*at));
            if let Some(probe) = ours {
                self.try_swath(cell, probe, arena, progress)?;
            }
            let theirs = fio.get(turn).and_then(|at| probes.fio.get_mut(*at));
            if let Some(probe) = theirs {
                self.try_fio(cell, probe, arena, progress)?;
            }
        }
        // At least one of fio's must work, or there is nothing to compare with.
        let failed = !probes.fio.is_empty() && probes.fio.iter().all(|it| it.iops.is_none());
        match self.fio_failure.take() {
            Some(error) if failed => Err(error),
            _ => Ok(()),
        }
    }

    fn try_swath(
        &mut self,
        cell: &Cell,
        probe: &mut Probe<Batching>,
        arena: &mut Arena,
        progress: &mut Progress,
    ) -> Result<()> {
        arena.check()?;
        let settings = probe.settings;
        let what = format!("{cell}, trying Swath with {settings}");
        let runtime = self.schedule.probe;
        let done = self.swath(cell, settings, PROBE_RAMP, runtime, arena, &what, progress)?;
        self.spent += PROBE_RAMP + runtime + SWATH_OVERHEAD;
        probe.tried(&done);
        Ok(())
    }

    fn try_fio(
        &mut self,
        cell: &Cell,
        probe: &mut Probe<FioSettings>,
        arena: &mut Arena,
        progress: &mut Progress,
    ) -> Result<()> {
        arena.check()?;
        let settings = probe.settings;
        let what = format!("{cell}, trying fio with {settings}");
        let job = Job {
            cell,
            settings,
            ramp: PROBE_RAMP,
            runtime: self.schedule.probe,
            is_probe: true,
        };
        let outcome = self.fio(Side::Best, &job, arena, &what, progress);
        self.spent += PROBE_RAMP + self.schedule.probe + FIO_OVERHEAD;
        match outcome {
            Ok((turn, _)) => probe.tried(&turn.done),
            Err(error) if error.kind() == ErrorKind::Failed && arena.subject().is_open() => {
                let text = format!("{cell}: fio's candidate {settings} is left out: {error}");
                self.verdict.note(text);
                self.fio_failure = Some(error);
                probe.failed();
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::memory::FioMemory;

    fn probe<T>(settings: T, tries: &[(u32, f64)]) -> Probe<T> {
        let mut probe = Probe::new(settings);
        for &(iops, cpu_ns_per_io) in tries {
            probe.tried(&Done {
                window: Duration::from_secs(1),
                ios: u64::from(iops),
                bytes: 0,
                cpu_ns_per_io,
            });
        }
        probe
    }

    fn batching(batch: u32) -> Batching {
        Batching {
            batch,
            complete_min: 1,
        }
    }

    fn ring(batch: u32) -> FioSettings {
        FioSettings::Ring {
            batching: batching(batch),
            memory: FioMemory::Small,
        }
    }

    #[test]
    fn one_lucky_try_does_not_choose() {
        let probes = [
            probe(1, &[(900, 1.0)]),
            probe(2, &[(700, 1.0), (710, 1.0), (690, 1.0)]),
            probe(3, &[(800, 1.0), (600, 1.0), (610, 1.0)]),
        ];
        assert_eq!(chosen(&probes), Some(2));
    }

    #[test]
    fn of_those_that_reach_nearly_as_much_the_cheapest_is_taken() {
        let probes = [
            probe(1, &[(1000, 500.0)]),
            probe(2, &[(995, 300.0)]),
            probe(3, &[(900, 100.0)]),
        ];
        assert_eq!(chosen(&probes), Some(2));
        assert_eq!(chosen::<u32>(&[]), None);
    }

    #[test]
    fn what_failed_once_is_never_chosen() {
        let mut late = probe(1, &[(9, 1.0), (9, 1.0)]);
        late.failed();
        assert_eq!(chosen(&[late.clone(), probe(2, &[(1, 1.0)])]), Some(2));
        assert_eq!(chosen(&[late]), None);
    }

    #[test]
    fn both_sides_try_again_what_was_fastest_on_either() {
        let mut probes = Probes {
            swath: (1_u32..)
                .zip([5, 1, 4, 2, 3])
                .map(|(batch, iops)| probe(batching(batch), &[(iops, 1.0)]))
                .collect(),
            fio: (1_u32..)
                .zip([1, 9, 8, 2, 3])
                .map(|(batch, iops)| probe(ring(batch), &[(iops, 1.0)]))
                .collect(),
        };
        assert_eq!(probes.finalists(), (vec![0, 1, 2], vec![0, 1, 2]));
        // What fails on one side the other may still have.
        probes.fio[2].failed();
        assert_eq!(probes.finalists(), (vec![0, 1, 2, 4], vec![0, 1, 4]));
        // Plain calls are fio's alone.
        let memory = FioMemory::Small;
        probes
            .fio
            .push(probe(FioSettings::Plain { memory }, &[(10, 1.0)]));
        assert_eq!(probes.finalists(), (vec![0, 1, 2], vec![0, 1, 5]));
    }
}
