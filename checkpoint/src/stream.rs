//! [`TensorStream`]: a tensor whose bytes come in pieces of any size.

use std::fmt;

use swath_engine::PoolBuf;

use crate::blob::usize_of;
use crate::error::{Error, ErrorKind, Result};
use crate::index::TensorEntry;
use crate::sums::BlockSums;
use crate::transfer::{Piece, pieces};
use crate::writer::{Writer, copy_summed};

/// A tensor being put piece by piece. Made by [`Writer::put_stream`].
pub struct TensorStream<'a> {
    writer: &'a mut Writer,
    /// None once the stream has ended.
    entry: Option<TensorEntry>,
    /// The transfers it is cut into, and the one being filled.
    pieces: Vec<Piece>,
    next_piece: usize,
    buffer: Option<PoolBuf>,
    filled: usize,
    /// Bytes that came so far.
    received: u64,
    sums: BlockSums,
}

impl<'a> TensorStream<'a> {
    pub(crate) fn new(writer: &'a mut Writer, entry: TensorEntry) -> Self {
        let pieces = pieces(&entry.runs, writer.chunk_bytes).collect();
        Self {
            writer,
            entry: Some(entry),
            pieces,
            next_piece: 0,
            buffer: None,
            filled: 0,
            received: 0,
            sums: BlockSums::default(),
        }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    ///
    /// More bytes than the tensor has; a member that fails. The session cannot be committed then.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(entry) = self.entry.take() else {
            return Err(Error::new(
                ErrorKind::Finished,
                "the stream has failed before",
            ));
        };
        match self.take_in(&entry, bytes) {
            Ok(()) => {
                self.entry = Some(entry);
                Ok(())
            }
            Err(error) => Err(self.writer.failed(&entry.name, error)),
        }
    }

    fn take_in(&mut self, entry: &TensorEntry, bytes: &[u8]) -> Result<()> {
        if bytes.len() as u64 > entry.length - self.received {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "more bytes than the {} that its shape and type have",
                    entry.length
                ),
            ));
        }
        self.received += bytes.len() as u64;
        let mut rest = bytes;
        while !rest.is_empty() {
            let piece = self.pieces[self.next_piece];
            let mut buffer = match self.buffer.take() {
                Some(buffer) => buffer,
                None => {
                    let mut buffer = self.writer.take_buffer()?;
                    buffer.set_len(usize_of(piece.length));
                    buffer
                }
            };
            let room = usize_of(piece.length) - self.filled;
            let (now, later) = rest.split_at(room.min(rest.len()));
            let end = self.filled + now.len();
            copy_summed(now, &mut buffer[self.filled..end], &mut self.sums);
            self.filled = end;
            rest = later;
            if self.filled == usize_of(piece.length) {
                self.writer.write_padded(piece.offset, buffer)?;
                self.next_piece += 1;
                self.filled = 0;
            } else {
                self.buffer = Some(buffer);
            }
        }
        Ok(())
    }

    /// Ends the tensor.
    ///
    /// # Errors
    ///
    /// Fewer bytes came than the tensor has, or it failed before.
    pub fn finish(mut self) -> Result<()> {
        let Some(entry) = self.entry.take() else {
            return Err(Error::new(
                ErrorKind::Finished,
                "the stream has failed before",
            ));
        };
        self.end(entry)
    }

    fn end(&mut self, mut entry: TensorEntry) -> Result<()> {
        let outcome = self.complete(&entry);
        entry.checksums = std::mem::take(&mut self.sums).finish();
        self.writer.settle(entry, outcome)
    }

    fn complete(&self, entry: &TensorEntry) -> Result<()> {
        if self.received == entry.length {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "{} bytes came of the {} that it has",
                self.received, entry.length
            ),
        ))
    }
}

impl Drop for TensorStream<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            // A failure is the session's from here on.
            let _ = self.end(entry);
        }
    }
}

impl fmt::Debug for TensorStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorStream")
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}
