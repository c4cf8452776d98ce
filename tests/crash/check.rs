//! Opens a state as a program would after a crash, and looks at everything.

use swath_checkpoint::{Store, VerifyOptions};
use swath_tests::sim::{Event, SimPlatform};

use super::scenario::{Holds, MORE, Scenario, images_of, save_another};

/// How thoroughly to look at a state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Care {
    /// Whether the recovery is recorded, to be crashed in its turn.
    pub(crate) records: bool,
    /// Whether it is also opened for reading only first, which writes nothing.
    pub(crate) reads_only: bool,
    /// Whether a checkpoint is saved after the recovery.
    pub(crate) goes_on: bool,
    /// Whether all rings of root records are compared after the recovery.
    pub(crate) compares_rings: bool,
}

/// What recovery did, if it was to be recorded.
///
/// # Errors
///
/// What was seen is not what was expected, in words.
pub(crate) fn check(
    scenario: &Scenario,
    platform: &SimPlatform,
    expected: u8,
    care: Care,
) -> Result<Vec<Event>, String> {
    let wanted = &scenario.holds[usize::from(expected)];
    if care.reads_only {
        let before = images_of(platform, &scenario.paths);
        let store = scenario
            .open(platform, true)
            .map_err(|error| format!("opening it for reading only: {error:?}"))?;
        look(&store, wanted)?;
        drop(store);
        if images_of(platform, &scenario.paths) != before {
            return Err("opening it for reading only changed something".to_owned());
        }
    }
    if care.records {
        platform.record();
    }
    let store = scenario
        .open(platform, false)
        .map_err(|error| format!("opening it: {error:?}"))?;
    let recording = platform.take_recording();
    look(&store, wanted)?;
    let is_clean = |path| platform.is_clean(path);
    if !scenario.paths.iter().all(is_clean) {
        return Err("opening it left something that is not durable".to_owned());
    }
    if care.compares_rings {
        let images = images_of(platform, &scenario.paths);
        if let Some((slot, member)) = scenario.odd_record(&images) {
            return Err(format!(
                "slot {slot} of the rings: the record of member {member} is not that of others"
            ));
        }
    }
    if care.goes_on {
        let tensors = save_another(&store)
            .map_err(|error| format!("going on after the recovery: {error:?}"))?;
        drop(store);
        let mut wanted = wanted.clone();
        wanted.push((MORE.into(), tensors));
        let store = scenario
            .open(platform, false)
            .map_err(|error| format!("opening it once more: {error:?}"))?;
        look(&store, &wanted)?;
    }
    Ok(recording)
}

/// Whether a store holds just this, and all of it can be read.
pub(crate) fn look(store: &Store, wanted: &Holds) -> Result<(), String> {
    let names: Vec<_> = store.list().into_iter().map(|info| info.name).collect();
    let wanted_names: Vec<_> = wanted.iter().map(|(name, _)| name.clone()).collect();
    if names != wanted_names {
        return Err(format!(
            "it holds {names:?} and should hold {wanted_names:?}"
        ));
    }
    let latest = store.latest().map(|info| info.name);
    if latest.as_ref() != wanted_names.last() {
        return Err(format!("the latest is {latest:?}"));
    }
    let report = store
        .verify(&VerifyOptions { deep: true }, &mut |_| true)
        .map_err(|error| format!("verifying it: {error:?}"))?;
    let bytes: usize = wanted
        .iter()
        .flat_map(|(_, tensors)| tensors)
        .map(|tensor| tensor.bytes.len())
        .sum();
    if !report.is_clean() || report.bytes != bytes as u64 {
        return Err(format!("verifying it: {report:?}"));
    }
    // Every block has its checksum; so these tell whether the bytes are those that were saved.
    for (name, tensors) in wanted {
        let checkpoint = store
            .get(name.clone())
            .map_err(|error| format!("{error:?}"))?;
        if checkpoint.tensors().len() != tensors.len() {
            return Err(format!("{name} has other tensors"));
        }
        for tensor in tensors {
            let entry = checkpoint
                .tensor(&tensor.name)
                .map_err(|error| format!("{error:?}"))?;
            if entry.checksums != [crc32fast::hash(&tensor.bytes)] {
                return Err(format!("{name} has other bytes in {}", tensor.name));
            }
        }
    }
    Ok(())
}
