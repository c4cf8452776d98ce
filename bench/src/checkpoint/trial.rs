//! A run: rounds of phases in turn, so that a disk that is slow for a while is slow for all.

use std::fmt;

use swath_checkpoint::Store;
use swath_engine::{QueueDescription, QueueOptions, cpu};
use swath_volume::Volume;

use crate::checkpoint::memory::Source;
use crate::checkpoint::peers::{PeerFindings, Peers};
use crate::checkpoint::phase::Phase;
use crate::checkpoint::place::Place;
use crate::checkpoint::ranks::Ranks;
use crate::checkpoint::raw::{self, RawSettings, Work};
use crate::checkpoint::saves::{Loading, SaveSettings, Saver};
use crate::checkpoint::shapes::Model;
use crate::checkpoint::usage::Sample;
use crate::error::{Error, ErrorKind, Result};
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::report::format_bandwidth;
use crate::report::whole;
use crate::size::format_bytes;
use crate::subject::{Subject, SubjectOptions};

/// Room for catalogs and indices, and for what rounding to chunks takes.
const SLACK_BYTES: u64 = 32 << 20;

/// What a rank may have reserved beside the bytes of its tensors.
const RANK_SLACK_BYTES: u64 = 1 << 20;

/// How long checksums are measured.
const CHECKSUM_NS: u64 = 200_000_000;

/// What a run does.
#[derive(Debug, Clone)]
pub struct TrialOptions {
    /// How often everything is measured.
    pub rounds: u32,
    /// How many saves over written blocks in each round.
    pub saves: u32,
    /// Backend and the like.
    pub queue: QueueOptions,
    /// Threads and memory.
    pub settings: SaveSettings,
    /// What data is drawn from.
    pub seed: u64,
}

/// What a run found.
#[derive(Debug, Default)]
pub struct Findings {
    /// Of each phase, one sample a round.
    pub(crate) phases: Vec<(Phase, Vec<Sample>)>,
    /// The queues of the lanes that moved the bare volume, each kind once. Those of the store are
    /// made by the same options.
    pub(crate) queues: Vec<QueueDescription>,
    /// How long the flush behind each raw write took.
    pub(crate) flushes_ns: Vec<u64>,
    /// How long each commit took.
    pub(crate) commits_ns: Vec<u64>,
    /// How long each save in the background kept its caller.
    pub(crate) stalls_ns: Vec<u64>,
    /// How often a save used a buffer, the last time.
    pub(crate) buffers_used: u64,
    /// What one pass of checksums costs: CPU seconds for each 10^9 bytes.
    pub(crate) checksum_s_per_gb: f64,
    /// Whether what was loaded was compared with what was saved.
    pub(crate) compared: bool,
    /// What the peers did.
    pub(crate) peers: Vec<PeerFindings>,
    /// Peers that were left out, with the reason.
    pub left_out: Vec<String>,
    /// What ended the run early.
    pub stopped: Option<Error>,
}

impl Findings {
    pub(crate) fn samples(&self, phase: Phase) -> &[Sample] {
        let found = self.phases.iter().find(|(other, _)| *other == phase);
        found.map_or(&[], |(_, samples)| samples)
    }

    fn push(&mut self, phase: Phase, sample: Sample) {
        match self.phases.iter_mut().find(|(other, _)| *other == phase) {
            Some((_, samples)) => samples.push(sample),
            None => self.phases.push((phase, vec![sample])),
        }
    }

    /// Whether the user ended the run.
    pub fn is_interrupted(&self) -> bool {
        let error = self.stopped.as_ref();
        error.is_some_and(|error| error.kind() == ErrorKind::Interrupted)
    }
}

/// A run about to take place.
pub struct Trial<'a> {
    options: &'a TrialOptions,
    model: &'a Model,
    source: &'a Source,
    place: &'a Place,
    saver: Saver<'a>,
    /// With ranks that are processes.
    ranks: Option<Ranks>,
}

impl<'a> Trial<'a> {
    /// Gets the memory for it, and starts the processes of ranks that are some. To be called on the
    /// thread that [`run`](Self::run)s it.
    ///
    /// # Errors
    ///
    /// The memory is not to be had; a process cannot be started.
    pub fn new(
        options: &'a TrialOptions,
        model: &'a Model,
        source: &'a Source,
        place: &'a Place,
    ) -> Result<Self> {
        let settings = &options.settings;
        let saver = Saver::new(model, source, settings)?;
        let start = |program| {
            let skew_bytes = source.skew_bytes();
            Ranks::start(program, model, settings, skew_bytes, options.seed)
        };
        Ok(Self {
            options,
            model,
            source,
            place,
            saver,
            ranks: settings.processes.as_ref().map(start).transpose()?,
        })
    }

    /// How much memory loads go into.
    pub fn target_bytes(&self) -> u64 {
        self.saver.target_bytes()
    }

    /// The bytes that a volume must have for so many ranks: two checkpoints, for the last one stays
    /// while the next is written.
    pub fn volume_bytes_min(model: &Model, ranks: u32) -> u64 {
        2 * Self::fresh_bytes_min(model, ranks)
    }

    /// The bytes that a volume for one checkpoint must have.
    pub fn fresh_bytes_min(model: &Model, ranks: u32) -> u64 {
        model.total_bytes() + SLACK_BYTES + u64::from(ranks) * RANK_SLACK_BYTES
    }

    /// Sees that the volume is large enough.
    ///
    /// # Errors
    ///
    /// It is not: what is needed and what there is.
    pub fn check_volume(&self, volume: &Volume) -> Result<()> {
        let ranks = u32::try_from(self.options.settings.ranks).unwrap_or(u32::MAX);
        let needed = Self::volume_bytes_min(self.model, ranks);
        if volume.capacity_bytes() >= needed {
            return Ok(());
        }
        Err(Error::usage(format!(
            "the volume has {}, and two checkpoints of {} with what goes with them need {}; take a \
             smaller --size, or larger members",
            format_bytes(volume.capacity_bytes()),
            format_bytes(self.model.total_bytes()),
            format_bytes(needed)
        )))
    }

    /// Carries it out. What was done when it stops early is kept. On members that were given, an
    /// empty store is left.
    pub fn run(
        mut self,
        subject: &mut Subject,
        mut peers: Option<Peers>,
        progress: &mut Progress,
    ) -> Findings {
        let mut findings = Findings {
            checksum_s_per_gb: checksum_cost(self.source.bytes()),
            ..Findings::default()
        };
        let interrupt = self.options.settings.interrupt.clone();
        for round in 0..self.options.rounds {
            let mut log = Log {
                prefix: format!("round {} of {}", round + 1, self.options.rounds),
                findings: &mut findings,
                progress,
            };
            let outcome = self.round(round, subject, peers.as_mut(), &mut log);
            // What an interrupt does to work under way is not a failure of the work.
            let outcome = interrupt.check().and(outcome);
            if let Err(error) = outcome {
                findings.stopped = Some(error);
                break;
            }
        }
        progress.finish();
        // Nobody else has the volume from here on.
        self.ranks = None;
        if let Some(peers) = peers {
            (findings.peers, findings.left_out) = peers.into_findings();
        }
        if let Place::Given(_) = self.place
            && subject.is_open()
            && let Err(error) = self.saver.format(subject.volume())
        {
            findings.stopped.get_or_insert(error);
        }
        findings
    }

    fn round(
        &mut self,
        round: u32,
        subject: &mut Subject,
        peers: Option<&mut Peers>,
        log: &mut Log<'_>,
    ) -> Result<()> {
        if let Place::Own { fresh, .. } = self.place {
            self.first_writes(round, fresh, log)?;
        }
        let last = self.writes(subject.volume(), log)?;
        for phase in [Phase::RawReadBuffers, Phase::RawRead] {
            let sample = self.raw(subject.volume(), phase, log.findings)?;
            log.take(phase, sample);
        }
        self.loads(subject, last, peers.is_some(), log)?;
        if let Some(peers) = peers {
            peers.round(&self.options.settings.interrupt, &mut |text| log.line(text))?;
        }
        Ok(())
    }

    /// Into blocks that were never written.
    fn first_writes(
        &mut self,
        round: u32,
        fresh: &SubjectOptions,
        log: &mut Log<'_>,
    ) -> Result<()> {
        let mut order = [Phase::RawWriteFirst, Phase::SaveFirst];
        // Who goes first takes turns too.
        if round % 2 == 1 {
            order.reverse();
        }
        for phase in order {
            let subject = self.fresh(fresh)?;
            let volume = subject.volume();
            let sample = if phase == Phase::SaveFirst {
                let store = self.saver.format(volume)?;
                self.save(&store, 0, log.findings)?
            } else {
                self.raw(volume, phase, log.findings)?
            };
            log.take(phase, sample);
        }
        Ok(())
    }

    /// Over blocks that were written before. Returns the step of the checkpoint that is left.
    fn writes(&mut self, volume: &Volume, log: &mut Log<'_>) -> Result<u64> {
        let sample = self.raw(volume, Phase::RawWriteBuffers, log.findings)?;
        log.take(Phase::RawWriteBuffers, sample);
        // In turn, each save right behind what it is compared with: a disk may take the first
        // gigabytes faster than the next.
        let (mut bare, mut samples) = (Vec::new(), Vec::new());
        let saves = u64::from(self.options.saves.max(1));
        for step in 0..saves {
            bare.push(self.raw(volume, Phase::RawWrite, log.findings)?);
            // Where the last store was, the bare volume's bytes are.
            let store = self.saver.format(volume)?;
            samples.push(self.save(&store, step, log.findings)?);
        }
        for (phase, samples) in [(Phase::RawWrite, &bare), (Phase::Save, &samples)] {
            if let Some(sample) = median(samples) {
                log.take(phase, sample);
            }
        }
        let store = self.saver.open(volume)?;
        let mut last = saves - 1;
        if self.ranks.is_some() {
            // A save in the background is a call of one process.
            return Ok(last);
        }
        samples.clear();
        for _ in 0..self.options.saves {
            let (sample, stall_ns) = self.saver.save_async(&store, last + 1)?;
            log.findings.stalls_ns.push(stall_ns);
            samples.push(sample);
            self.remove(&store, last)?;
            last += 1;
        }
        if let Some(sample) = median(&samples) {
            log.take(Phase::SaveAsync, sample);
        }
        Ok(last)
    }

    fn save(&mut self, store: &Store, step: u64, findings: &mut Findings) -> Result<Sample> {
        let saved = match &mut self.ranks {
            Some(ranks) => {
                let members = store.volume().members().iter();
                ranks.use_members(&members.map(|it| it.path()).collect::<Vec<_>>());
                ranks.save(store, step)?
            }
            None => self.saver.save(store, step)?,
        };
        findings.commits_ns.push(saved.commit_ns);
        findings.buffers_used = saved.buffers_used;
        Ok(saved.sample)
    }

    fn loads(
        &mut self,
        subject: &mut Subject,
        step: u64,
        as_peers_do: bool,
        log: &mut Log<'_>,
    ) -> Result<()> {
        let mut loads = vec![
            (Some(Phase::LoadVerified), Loading::Verified),
            (Some(Phase::LoadTrusted), Loading::Trusted),
        ];
        if as_peers_do {
            loads.push((Some(Phase::LoadNew), Loading::New));
        }
        if !log.findings.compared {
            loads.push((None, Loading::Compared));
        }
        let mut load_all = |load: &mut dyn FnMut(Loading) -> Result<Sample>| -> Result<()> {
            for &(phase, loading) in &loads {
                let sample = load(loading)?;
                match phase {
                    Some(phase) => log.take(phase, sample),
                    None => log.findings.compared = true,
                }
            }
            Ok(())
        };
        match &mut self.ranks {
            None => {
                let store = self.saver.open(subject.volume())?;
                load_all(&mut |loading| self.saver.load(&store, step, loading))
            }
            Some(ranks) => subject.while_closed(|| {
                ranks.open()?;
                load_all(&mut |loading| ranks.load(step, loading))?;
                ranks.close()
            }),
        }
    }

    /// Members on which nothing was written.
    fn fresh(&self, options: &SubjectOptions) -> Result<Subject> {
        Subject::prepare(options, &self.options.settings.interrupt, &mut |_| ())
    }

    /// Moves the bare volume, in one of the phases for it.
    fn raw(&mut self, volume: &Volume, phase: Phase, findings: &mut Findings) -> Result<Sample> {
        let settings = RawSettings {
            queue: self.options.queue.clone(),
            depth: self.options.settings.store.depth,
            seed: self.options.seed,
            interrupt: self.interrupt().clone(),
        };
        let block = u64::from(volume.block_bytes());
        let bytes = self.model.total_bytes().next_multiple_of(block);
        let sources = self.saver.sources();
        let works = match phase {
            Phase::RawWriteBuffers => sources.iter().map(|_| Work::WriteBuffers).collect(),
            Phase::RawReadBuffers => sources.iter().map(|_| Work::ReadBuffers).collect(),
            Phase::RawRead => {
                let targets = self.saver.targets_mut().into_iter();
                targets.map(Work::ReadInto).collect()
            }
            _ => sources.into_iter().map(Work::WriteFrom).collect(),
        };
        let moved = raw::run(volume, &settings, works, bytes)?;
        findings.flushes_ns.extend(moved.flush_ns);
        if let Some(queue) = moved.queue
            && !findings.queues.contains(&queue)
        {
            findings.queues.push(queue);
        }
        Ok(moved.sample)
    }

    fn interrupt(&self) -> &Interrupt {
        &self.options.settings.interrupt
    }

    fn remove(&self, store: &Store, step: u64) -> Result<()> {
        store
            .remove(step)
            .map(drop)
            .map_err(|cause| Error::failed("cannot remove a checkpoint", cause))
    }
}

/// What a round tells and keeps.
struct Log<'a> {
    prefix: String,
    findings: &'a mut Findings,
    progress: &'a mut Progress,
}

impl Log<'_> {
    fn take(&mut self, phase: Phase, sample: Sample) {
        let speed = format_bandwidth(whole(sample.bytes_per_s()));
        self.line(&format!("{phase}: {speed}"));
        self.findings.push(phase, sample);
    }

    fn line(&mut self, text: &str) {
        self.progress.line(&format!("{}: {text}", self.prefix));
    }
}

impl fmt::Debug for Trial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trial")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The sample whose bandwidth is the median; of an even number, the lower of the middle two.
pub(crate) fn median(samples: &[Sample]) -> Option<Sample> {
    let mut sorted: Vec<&Sample> = samples.iter().collect();
    sorted.sort_by(|one, other| one.bytes_per_s().total_cmp(&other.bytes_per_s()));
    sorted
        .get(sorted.len().saturating_sub(1) / 2)
        .copied()
        .copied()
}

/// CPU seconds for the checksums of 10^9 bytes, alone on one thread.
fn checksum_cost(bytes: &[u8]) -> f64 {
    let began_ns = cpu::thread_cpu_ns();
    let mut summed_bytes = 0_u64;
    let mut cpu_ns = 0;
    while cpu_ns < CHECKSUM_NS {
        for block in bytes.chunks(1 << 20) {
            std::hint::black_box(crc32fast::hash(block));
            summed_bytes += block.len() as u64;
        }
        cpu_ns = cpu::thread_cpu_ns() - began_ns;
    }
    cpu_ns as f64 / summed_bytes.max(1) as f64
}
