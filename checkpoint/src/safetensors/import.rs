//! Files into a checkpoint.
//!
//! - Any number of threads take one tensor after the other, in the order of the files, and read it
//!   in pieces of 1 MiB: small ones are packed, large ones streamed. Memory is a piece and a
//!   writer's pool for each thread, and the plan.
//! - All or nothing: the session is committed when every byte is in, and no file has changed
//!   meanwhile.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::files::LIST_TENSOR;
use super::plan::{ImportPlan, Item};
use super::source::Source;
use super::work::{Team, Worker};
use super::{FileProgress, ImportOptions};
use crate::blob::usize_of;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::index::BLOCK_BYTES;
use crate::names::CheckpointName;
use crate::session::{BeginOptions, Session};
use crate::store::{CheckpointInfo, Store};
use crate::writer::Writer;

/// Saves files as one checkpoint: safetensors files, the index of a sharded set, any others as they
/// are. [`ImportPlan`] does it in two steps.
///
/// `progress` is called now and then, on this thread, and stops the import by returning `false`.
///
/// # Errors
///
/// As [`ImportPlan::new`] and [`ImportPlan::save`].
pub fn import(
    store: &Store,
    name: impl Into<CheckpointName>,
    begin: BeginOptions,
    paths: &[PathBuf],
    options: &ImportOptions,
    progress: &mut dyn FnMut(FileProgress) -> bool,
) -> Result<CheckpointInfo> {
    ImportPlan::new(paths, options)?.save(store, name, begin, progress)
}

impl ImportPlan {
    /// Carries it out. Space for all of it is reserved at once.
    ///
    /// `progress` is called now and then, on this thread, and stops the import by returning `false`.
    ///
    /// # Errors
    ///
    /// As [`Store::begin`] and [`Session::commit`](crate::Session::commit); a file that cannot be
    /// read, or was changed since the plan was made; stopped. Nothing of the checkpoint is visible
    /// then.
    pub fn save(
        &self,
        store: &Store,
        name: impl Into<CheckpointName>,
        begin: BeginOptions,
        progress: &mut dyn FnMut(FileProgress) -> bool,
    ) -> Result<CheckpointInfo> {
        let mut begin = begin;
        begin.data_bytes = begin.data_bytes.max(Some(self.needed_bytes()));
        let session = store.begin(name, begin)?;
        let next = AtomicUsize::new(0);
        let threads = self.threads.min(self.items.len().max(1));
        Team {
            threads,
            total_bytes: self.data_bytes(),
        }
        .run(progress, |worker| self.work(&session, &next, worker))
        .map_err(|error| error.with_checkpoint(session.name()))?;

        let mut writer = session.writer()?;
        let length = self.list.len() as u64;
        writer.put(LIST_TENSOR, DType::U8, &[length], &self.list)?;
        writer.finish()?;
        self.sources.iter().try_for_each(Source::check_unchanged)?;
        session.commit()
    }

    /// What one thread does.
    fn work(&self, session: &Session, next: &AtomicUsize, worker: &Worker<'_>) -> Result<()> {
        let mut writer = session.writer()?;
        let mut piece = vec![0; usize_of(BLOCK_BYTES)];
        let mut open: Option<(usize, File)> = None;
        while !worker.is_stopped()
            && let Some(item) = self.items.get(next.fetch_add(1, Ordering::Relaxed))
        {
            let source = &self.sources[item.source];
            let file = match open.take() {
                Some((number, file)) if number == item.source => file,
                _ => source.open()?,
            };
            item.put(source, &file, &mut writer, &mut piece, worker)?;
            open = Some((item.source, file));
        }
        writer.finish()
    }
}

impl Item {
    fn put(
        &self,
        source: &Source,
        file: &File,
        writer: &mut Writer,
        piece: &mut [u8],
        worker: &Worker<'_>,
    ) -> Result<()> {
        let named = |error: Error| error.with_tensor(&self.name);
        if self.length < BLOCK_BYTES {
            let piece = &mut piece[..usize_of(self.length)];
            source.read(file, piece, self.offset).map_err(named)?;
            writer.put(&self.name, self.dtype, &self.shape, piece)?;
            worker.did(self.length);
            return Ok(());
        }
        let mut stream = writer.put_stream(&self.name, self.dtype, &self.shape)?;
        let mut done = 0;
        while done < self.length {
            worker.check_stopped()?;
            let length = (self.length - done).min(BLOCK_BYTES);
            let piece = &mut piece[..usize_of(length)];
            source
                .read(file, piece, self.offset + done)
                .map_err(named)?;
            stream.write(piece)?;
            done += length;
            worker.did(length);
        }
        stream.finish()
    }
}
