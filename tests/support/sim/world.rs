//! [`SimWorld`]: some devices on one platform that may crash and come back, over and over.

use std::path::PathBuf;
use std::sync::Arc;

use swath_engine::{Geometry, Platform};

use super::media::Store;
use super::plan::{FaultMix, FaultPlan};
use super::platform::SimPlatform;

/// How many operations are printed when a test fails.
const PRINTED: usize = 40;

/// Simulated devices `m0`, `m1` and so on, and the seed that everything about them follows from.
///
/// When a test fails while it has one, the seed, the faults and the last operations are printed.
#[derive(Debug)]
pub struct SimWorld {
    seed: u64,
    sim: SimPlatform,
    paths: Vec<PathBuf>,
    crashes: u64,
    /// The platform before the last crash, for its trace.
    before: Option<SimPlatform>,
    plan: Option<FaultPlan>,
}

impl SimWorld {
    /// `count` devices of `bytes` with blocks of 512.
    pub fn new(seed: u64, count: usize, bytes: u64) -> Self {
        let geometry = Geometry::uniform(bytes, 512);
        Self::of(seed, std::iter::repeat_n(geometry, count))
    }

    /// Devices of these geometries. A device of 4096-byte blocks tears between these only, unless
    /// [`SimPlatform::tear_at`] says otherwise.
    pub fn of(seed: u64, geometries: impl IntoIterator<Item = Geometry>) -> Self {
        let sim = SimPlatform::new(seed);
        let paths = geometries
            .into_iter()
            .enumerate()
            .map(|(index, geometry)| {
                let path = PathBuf::from(format!("m{index}"));
                sim.add(&path, geometry, Store::sparse());
                path
            })
            .collect();
        Self {
            seed,
            sim,
            paths,
            crashes: 0,
            before: None,
            plan: None,
        }
    }

    /// What a volume is opened on.
    pub fn platform(&self) -> Arc<dyn Platform> {
        Arc::new(self.sim.clone())
    }

    /// The platform as it is since the last crash, to look into and to break.
    pub fn sim(&self) -> &SimPlatform {
        &self.sim
    }

    /// The devices' paths.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// How often it has crashed.
    pub fn crashes(&self) -> u64 {
        self.crashes
    }

    /// Draws faults from a seed and injects them.
    pub fn plan(&mut self, seed: u64, mix: &FaultMix) -> &FaultPlan {
        let plan = FaultPlan::draw(seed, &self.sim.devices(), mix);
        for fault in &plan.faults {
            self.sim.inject(fault.clone());
        }
        self.plan.insert(plan)
    }

    /// The power fails, and comes back: what was durable is there, and some of the rest. Whoever
    /// still has a device open gets errors only.
    pub fn crash(&mut self) {
        let after = self.sim.crash();
        self.replace(after);
    }

    /// As [`crash`](Self::crash), with everything lost that is not durable.
    pub fn crash_losing_all(&mut self) {
        let after = self.sim.crash_keeping(|_| false);
        self.replace(after);
    }

    /// As [`crash`](Self::crash), with everything kept that was submitted.
    pub fn crash_keeping_all(&mut self) {
        let after = self.sim.crash_keeping(|_| true);
        self.replace(after);
    }

    fn replace(&mut self, after: SimPlatform) {
        self.before = Some(std::mem::replace(&mut self.sim, after));
        self.crashes += 1;
        // Its faults went with the platform.
        self.plan = None;
    }

    /// What there is to know about it, for people.
    pub fn story(&self) -> String {
        let mut story = format!(
            "a simulated world of seed {}, {} devices, crashed {} times\n",
            self.seed,
            self.paths.len(),
            self.crashes
        );
        if let Some(plan) = &self.plan {
            story.push_str(&format!("{plan}\n"));
        }
        if let Some(before) = &self.before {
            story.push_str("the last operations before the crash:\n");
            story.push_str(&before.trace_tail(PRINTED));
        }
        story.push_str("the last operations:\n");
        story.push_str(&self.sim.trace_tail(PRINTED));
        story
    }
}

impl Drop for SimWorld {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.story());
        }
    }
}
