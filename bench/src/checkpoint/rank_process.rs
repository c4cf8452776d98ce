//! What a rank does that is a process of its own: see [`ranks`](super::ranks).
//!
//! It ends when it is told nothing more, and it never outlives whoever started it.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use swath_checkpoint::{Lease, Store, StoreOptions};
use swath_engine::{LaneOptions, QueueOptions};
use swath_volume::{OpenOptions, Volume};

use crate::checkpoint::memory::Source;
use crate::checkpoint::ranks::{Answer, Ask, FailedKind, Setup};
use crate::checkpoint::saves::{SaveSettings, Saver, cannot_save};
use crate::checkpoint::shapes::Model;
use crate::checkpoint::usage::{Usage, measure};
use crate::error::{Error, ErrorKind, Result};
use crate::interrupt::Interrupt;

/// Serves the run that started this process, until its input ends: what a program does when it is
/// called as [`RankProgram`](crate::checkpoint::RankProgram) says.
///
/// # Errors
///
/// What it is told makes no sense, or nobody hears its answers. What fails of the work it is asked
/// to do is answered.
pub fn serve_rank() -> Result<()> {
    // A signal is for the run, which ends its ranks.
    Interrupt::ignore_signals()?;
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|cause| Error::failed("cannot ask to end with the run", io::Error::from(cause)))?;
    let Some(setup) = next::<Setup>()? else {
        return Ok(());
    };
    let model = Model::of_tensors(setup.tensors.clone());
    let made = settings(&setup).and_then(|settings| {
        let source = Source::new(
            &model,
            setup.pages,
            setup.skew_bytes,
            setup.memory_bytes,
            setup.seed,
        )?;
        Ok((settings, source))
    });
    let (settings, source) = match made {
        Ok(made) => made,
        Err(error) => return answer(&failed(&error)),
    };
    let mut saver = match Saver::new(&model, &source, &settings) {
        Ok(saver) => saver,
        Err(error) => return answer(&failed(&error)),
    };
    answer(&Answer::Done)?;
    let mut store = None;
    while let Some(ask) = next::<Ask>()? {
        let outcome = carry_out(ask, &mut saver, &settings.store, &mut store);
        answer(&outcome.unwrap_or_else(|error| failed(&error)))?;
    }
    Ok(())
}

fn carry_out(
    ask: Ask,
    saver: &mut Saver<'_>,
    options: &StoreOptions,
    store: &mut Option<Store>,
) -> Result<Answer> {
    match ask {
        Ask::Save { lease, members } => save(saver, &lease, &members, options),
        Ask::Open { members } => {
            *store = Some(open(&members, options)?);
            Ok(Answer::Done)
        }
        Ask::Load { step, loading } => {
            let store = store
                .as_ref()
                .ok_or_else(|| Error::new(ErrorKind::Failed, "there is no store open to load"))?;
            let sample = saver.load(store, step, loading)?;
            let usage = Usage::of(&sample);
            Ok(Answer::Loaded { usage })
        }
        Ask::Close => {
            store.take();
            Ok(Answer::Done)
        }
    }
}

fn save(
    saver: &Saver<'_>,
    lease: &Lease,
    members: &[PathBuf],
    options: &StoreOptions,
) -> Result<Answer> {
    let (sample, (receipt, buffers_used)) = measure(0, || {
        let holder = lease.open(members, options).map_err(cannot_save)?;
        let buffers_used = saver.put_all(&|| holder.writer())?;
        Ok((holder.finish().map_err(cannot_save)?, buffers_used))
    })?;
    Ok(Answer::Saved {
        receipt,
        buffers_used,
        usage: Usage::of(&sample),
    })
}

fn open(members: &[PathBuf], options: &StoreOptions) -> Result<Store> {
    let how = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let volume = Volume::open(members, &how)
        .map_err(|cause| Error::failed("cannot open the volume", cause))?;
    Store::open(volume, options).map_err(|cause| Error::failed("cannot open the store", cause))
}

fn settings(setup: &Setup) -> Result<SaveSettings> {
    let backend = setup
        .backend
        .parse()
        .map_err(|cause| Error::failed("cannot do as the run was told", cause))?;
    Ok(SaveSettings {
        store: StoreOptions {
            lane: LaneOptions {
                queue: QueueOptions {
                    backend,
                    ..QueueOptions::default()
                },
                ..LaneOptions::default()
            },
            depth: setup.depth,
            pool_bytes: setup.pool_bytes,
        },
        pages: setup.pages,
        memory_bytes: setup.memory_bytes,
        ..SaveSettings::new(Interrupt::new())
    })
}

fn failed(error: &Error) -> Answer {
    Answer::Failed {
        kind: FailedKind::of(error),
        message: error.chain(),
    }
}

/// The next line; none at the end of the input.
fn next<T: DeserializeOwned>() -> Result<Option<T>> {
    let mut line = String::new();
    let length = io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|cause| Error::failed("cannot read what the run asks for", cause))?;
    if length == 0 {
        return Ok(None);
    }
    serde_json::from_str(&line)
        .map(Some)
        .map_err(|cause| Error::failed("what the run asks for is not understood", cause))
}

fn answer(answer: &impl Serialize) -> Result<()> {
    let mut output = io::stdout().lock();
    let written = serde_json::to_vec(answer)
        .map_err(io::Error::from)
        .and_then(|mut line| {
            line.push(b'\n');
            output.write_all(&line)?;
            output.flush()
        });
    written.map_err(|cause| Error::failed("cannot answer the run", cause))
}
