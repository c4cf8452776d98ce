//! [`SnapshotPool`]: the bounded memory that tensors are copied into, to be written later; and the
//! [`Parcel`]s they travel in.
//!
//! ```text
//! caller's tensors  --copy-->  parcels of up to 1 MiB  --queue-->  writers  --> drives
//! ```
//!
//! - The pool is cut into pieces of one checksum block. A whole block of a tensor is a parcel of
//!   its own and goes to the drives from there; small tensors and the ends of others are packed
//!   together.
//! - Memory is mapped as it is first needed, or ahead of that, never more than the pool's size, and
//!   kept. Nobody waits for a lock meanwhile: the system clears what it gives, which can take longer
//!   than to write as much to the drives.
//! - A parcel that was sent belongs to its receiver: whoever copies cannot reach it any more.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use swath_engine::{BufPool, Gate, GateGuard, Platform, PoolBuf};

use crate::blob::usize_of;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::extent::Run;
use crate::index::{BLOCK_BYTES, TensorEntry, block_count};
use crate::view::TensorView;
use crate::writer::Writer;

/// The least a pool may have: room to copy while something is being written.
const PIECES_MIN: u64 = 4;

/// How many pieces are mapped at once: enough for huge pages, few enough for a small checkpoint, and
/// for the drives to have the first while the next are mapped.
const SLAB_PIECES: usize = 8;

/// Memory for snapshots: pieces of a block each.
pub(crate) struct SnapshotPool {
    pieces_max: usize,
    /// Changes when a piece has come back, or whoever waits should look whether to stop.
    mapped: Gate<Mapped>,
}

#[derive(Default)]
struct Mapped {
    slabs: Vec<BufPool>,
    /// The pieces in them, and in those that are being mapped.
    pieces: usize,
}

impl SnapshotPool {
    pub(crate) fn new(platform: &dyn Platform, bytes: u64) -> Self {
        Self {
            pieces_max: usize_of(Self::bytes_of(bytes) / BLOCK_BYTES),
            mapped: Gate::new(platform, "room for a snapshot", Mapped::default()),
        }
    }

    /// What a pool of about this size has: whole pieces, and not too few.
    pub(crate) fn bytes_of(bytes: u64) -> u64 {
        (bytes / BLOCK_BYTES).clamp(PIECES_MIN, 1 << 32) * BLOCK_BYTES
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.pieces_max as u64 * BLOCK_BYTES
    }

    /// A piece; waits for one while all are held. None when it is to stop.
    pub(crate) fn take(&self, is_stopped: impl Fn() -> bool) -> Result<Option<PoolBuf>> {
        let mut mapped = self.mapped.lock();
        loop {
            if is_stopped() {
                return Ok(None);
            }
            if let Some(piece) = mapped.slabs.iter().find_map(BufPool::take) {
                return Ok(Some(piece));
            }
            if !self.map_more(&mut mapped)? {
                mapped.wait();
            }
        }
    }

    /// Maps all of it, now.
    pub(crate) fn map(&self) -> Result<()> {
        let mut mapped = self.mapped.lock();
        while self.map_more(&mut mapped)? {}
        Ok(())
    }

    /// Maps a few pieces more; false when all are. Lets the lock go meanwhile.
    fn map_more(&self, mapped: &mut GateGuard<'_, Mapped>) -> Result<bool> {
        let count = (self.pieces_max - mapped.pieces).min(SLAB_PIECES);
        if count == 0 {
            return Ok(false);
        }
        mapped.pieces += count;
        let slab = mapped.unlocked(|| BufPool::new(usize_of(BLOCK_BYTES), count));
        match slab {
            Ok(slab) => mapped.slabs.push(slab),
            Err(error) => {
                mapped.pieces -= count;
                return Err(error.into());
            }
        }
        self.mapped.notify_all();
        Ok(true)
    }

    /// Tells whoever waits that pieces may have come back.
    pub(crate) fn wake(&self) {
        // Locked, so that nobody is between looking and waiting.
        drop(self.mapped.lock());
        self.mapped.notify_all();
    }

    /// How many pieces are mapped, and how many of these nobody holds.
    #[cfg(test)]
    pub(crate) fn pieces(&self) -> (usize, usize) {
        let mapped = self.mapped.lock();
        let available = mapped.slabs.iter().map(BufPool::available).sum();
        (mapped.pieces, available)
    }
}

/// A piece of the pool and what is in it.
pub(crate) struct Parcel {
    buffer: PoolBuf,
    parts: Vec<Part>,
}

/// A tensor's block in a parcel.
struct Part {
    tensor: Arc<SnapshotTensor>,
    block: u64,
    range: Range<usize>,
    /// Its checksum, if it was made already.
    checksum: Option<u32>,
}

impl Part {
    /// The checksum of its bytes in a parcel's buffer.
    fn checksum(&self, buffer: &[u8]) -> u32 {
        self.checksum
            .unwrap_or_else(|| crc32fast::hash(&buffer[self.range.clone()]))
    }
}

impl Parcel {
    fn new(mut buffer: PoolBuf) -> Self {
        buffer.set_len(0);
        Self {
            buffer,
            parts: Vec::new(),
        }
    }

    fn has_room(&self, length: usize) -> bool {
        self.buffer.capacity() - self.buffer.len() >= length
    }

    fn push(&mut self, tensor: &Arc<SnapshotTensor>, block: u64, bytes: &[u8]) {
        let start = self.buffer.len();
        let range = start..start + bytes.len();
        self.buffer.set_len(range.end);
        self.buffer[range.clone()].copy_from_slice(bytes);
        self.parts.push(Part {
            tensor: Arc::clone(tensor),
            block,
            range,
            checksum: None,
        });
    }

    /// Makes the checksum of the part that was pushed last, once for all who need it.
    fn sum_last(&mut self) -> u32 {
        let last = self.parts.last_mut().expect("it was pushed just now");
        let checksum = last.checksum(&self.buffer);
        last.checksum = Some(checksum);
        checksum
    }

    /// Hands everything in it to a writer. Whole blocks are on their way when it returns, and their
    /// memory comes back with the writer's completions; all else has been copied.
    pub(crate) fn write(self, writer: &mut Writer) -> Result<()> {
        let Self { buffer, parts } = self;
        match &parts[..] {
            [part] if part.range.len() as u64 == BLOCK_BYTES => {
                let checksum = part.checksum(&buffer);
                part.tensor
                    .write_block(writer, part.block, checksum, |writer, runs| {
                        writer.write_block(runs, buffer)
                    })
            }
            parts => parts.iter().try_for_each(|part| {
                let bytes = &buffer[part.range.clone()];
                let tensor = &part.tensor;
                if tensor.length < BLOCK_BYTES {
                    return writer.put(&tensor.name, tensor.dtype, &tensor.shape, bytes);
                }
                let checksum = part.checksum(&buffer);
                tensor.write_block(writer, part.block, checksum, |writer, runs| {
                    writer.copy_block(runs, bytes)
                })
            }),
        }
    }
}

/// A tensor that is being saved from a snapshot. Its blocks come to any of the writers.
struct SnapshotTensor {
    name: String,
    dtype: DType,
    shape: Vec<u64>,
    length: u64,
    state: Gate<TensorState>,
}

struct TensorState {
    /// From its first block, which takes its place, to its last, which enters it.
    entry: Option<TensorEntry>,
    /// Why it has no place: tried once, and told to every writer that has a block of it.
    refusal: Option<Error>,
    blocks_left: u64,
}

impl SnapshotTensor {
    fn new(platform: &dyn Platform, view: &TensorView<'_>) -> Self {
        let length = view.bytes.len() as u64;
        Self {
            name: view.name.to_owned(),
            dtype: view.dtype,
            shape: view.shape.to_vec(),
            length,
            state: Gate::new(
                platform,
                "a tensor's place",
                TensorState {
                    entry: None,
                    refusal: None,
                    blocks_left: block_count(length),
                },
            ),
        }
    }

    fn write_block(
        &self,
        writer: &mut Writer,
        block: u64,
        checksum: u32,
        write: impl FnOnce(&mut Writer, &[Run]) -> Result<()>,
    ) -> Result<()> {
        let runs: Vec<Run> = {
            let mut state = self.state.lock();
            if let Some(refusal) = &state.refusal {
                return Err(refusal.clone());
            }
            if state.entry.is_none() {
                let begun = writer.begin_blocks(&self.name, self.dtype, &self.shape, self.length);
                state.entry = Some(begun.inspect_err(|error| {
                    state.refusal = Some(error.clone());
                })?);
            }
            let entry = state.entry.as_ref().expect("it was begun");
            let range = entry.block_range(block);
            entry.locate(range.start, range.end - range.start).collect()
        };
        write(writer, &runs).map_err(|error| writer.failed(&self.name, error))?;
        let mut state = self.state.lock();
        let entry = state
            .entry
            .as_mut()
            .expect("its last block is this or comes");
        entry.checksums[usize_of(block)] = checksum;
        state.blocks_left -= 1;
        if state.blocks_left == 0 {
            let entry = state
                .entry
                .take()
                .expect("it is there until its last block");
            writer.settle(entry, Ok(()))?;
        }
        Ok(())
    }
}

/// Copies tensors into parcels.
pub(crate) struct Copier<'a, S, R> {
    platform: &'a dyn Platform,
    pool: &'a SnapshotPool,
    is_stopped: S,
    send: R,
    /// The parcel that small things are packed into.
    pack: Option<Parcel>,
    /// The checksum of every block that was copied, in their order, if the source is looked at
    /// again.
    checksums: Option<Vec<u32>>,
}

impl<'a, S: Fn() -> bool, R: FnMut(Parcel)> Copier<'a, S, R> {
    pub(crate) fn new(
        platform: &'a dyn Platform,
        pool: &'a SnapshotPool,
        verify_source: bool,
        is_stopped: S,
        send: R,
    ) -> Self {
        Self {
            platform,
            pool,
            is_stopped,
            send,
            pack: None,
            checksums: verify_source.then(Vec::new),
        }
    }

    /// Copies the tensors; waits for room. When it is stopped it returns early, and quietly: whoever
    /// stopped it knows why.
    pub(crate) fn copy(mut self, tensors: &[TensorView<'_>]) -> Result<()> {
        for view in tensors {
            if !self.copy_tensor(view)? {
                return Ok(());
            }
        }
        if let Some(pack) = self.pack.take() {
            (self.send)(pack);
        }
        self.checksums
            .map_or(Ok(()), |checksums| check_unchanged(tensors, &checksums))
    }

    /// Whether to go on.
    fn copy_tensor(&mut self, view: &TensorView<'_>) -> Result<bool> {
        let tensor = Arc::new(SnapshotTensor::new(self.platform, view));
        if view.bytes.is_empty() {
            return self.copy_part(&tensor, 0, &[]);
        }
        for (block, bytes) in (0..).zip(view.bytes.chunks(usize_of(BLOCK_BYTES))) {
            if !self.copy_part(&tensor, block, bytes)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn copy_part(
        &mut self,
        tensor: &Arc<SnapshotTensor>,
        block: u64,
        bytes: &[u8],
    ) -> Result<bool> {
        let is_whole = bytes.len() as u64 == BLOCK_BYTES;
        let packed = self.pack.take_if(|_| !is_whole);
        let mut parcel = match packed {
            Some(pack) if pack.has_room(bytes.len()) => pack,
            full => {
                if let Some(full) = full {
                    (self.send)(full);
                }
                match self.pool.take(&self.is_stopped)? {
                    Some(buffer) => Parcel::new(buffer),
                    None => return Ok(false),
                }
            }
        };
        parcel.push(tensor, block, bytes);
        if let Some(checksums) = &mut self.checksums
            && !bytes.is_empty()
        {
            checksums.push(parcel.sum_last());
        }
        if is_whole {
            (self.send)(parcel);
        } else {
            self.pack = Some(parcel);
        }
        Ok(true)
    }
}

/// Makes sure that the memory is still what was copied.
fn check_unchanged(tensors: &[TensorView<'_>], checksums: &[u32]) -> Result<()> {
    let mut checksums = checksums.iter();
    for view in tensors {
        for (block, bytes) in (0..).zip(view.bytes.chunks(usize_of(BLOCK_BYTES))) {
            if checksums.next() != Some(&crc32fast::hash(bytes)) {
                return Err(Error::new(
                    ErrorKind::Changed,
                    "the memory was changed while it was being copied",
                )
                .with_tensor(view.name)
                .with_block(block));
            }
        }
    }
    Ok(())
}

impl fmt::Debug for SnapshotPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SnapshotPool({} pieces)", self.pieces_max)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use swath_engine::Kernel;

    use super::*;

    impl Parcel {
        /// A parcel that whoever writes it panics over.
        pub(crate) fn impossible(pool: &SnapshotPool) -> Self {
            let buffer = pool.take(|| false).unwrap().unwrap();
            let view = TensorView {
                name: "impossible",
                dtype: DType::U8,
                shape: &[4],
                bytes: &[0; 4],
            };
            let mut parcel = Self::new(buffer);
            parcel.parts.push(Part {
                tensor: Arc::new(SnapshotTensor::new(&Kernel, &view)),
                block: 0,
                range: 0..4,
                checksum: None,
            });
            parcel
        }
    }

    #[test]
    fn what_is_small_is_packed_and_whole_blocks_travel_alone() {
        let pool = SnapshotPool::new(&Kernel, 0);
        assert_eq!(pool.bytes(), 4 << 20);
        let bytes: Vec<u8> = (0..=250).cycle().take((2 << 20) + 1000).collect();
        let view = |name, length: usize| TensorView {
            name,
            dtype: DType::U8,
            shape: &[],
            bytes: &bytes[..length],
        };
        // Two blocks and an end, a small one that goes beside the end, an empty one, and one that
        // has no room there.
        let tensors = [
            view("large", (2 << 20) + 1000),
            view("small", 5000),
            view("empty", 0),
            view("odd", (1 << 20) - 5999),
        ];
        let mut parcels = Vec::new();
        Copier::new(
            &Kernel,
            &pool,
            true,
            || false,
            |parcel| parcels.push(parcel),
        )
        .copy(&tensors)
        .unwrap();
        let shape: Vec<Vec<usize>> = parcels
            .iter()
            .map(|parcel| parcel.parts.iter().map(|part| part.range.len()).collect())
            .collect();
        let block = 1 << 20;
        assert_eq!(
            shape,
            [
                vec![block],
                vec![block],
                vec![1000, 5000, 0],
                vec![block - 5999]
            ]
        );
        for parcel in &parcels {
            for part in &parcel.parts {
                let from = usize_of(part.block) * block;
                let copied = &parcel.buffer[part.range.clone()];
                assert_eq!(copied, &bytes[from..from + copied.len()]);
            }
        }
        assert_eq!(pool.pieces(), (4, 0));
        drop(parcels);
        assert_eq!(pool.pieces(), (4, 4));
    }

    #[test]
    fn a_pool_that_was_mapped_ahead_maps_no_more() {
        let pool = SnapshotPool::new(&Kernel, 21 << 20);
        let held = pool.take(|| false).unwrap().unwrap();
        assert_eq!(pool.pieces(), (SLAB_PIECES, SLAB_PIECES - 1));
        pool.map().unwrap();
        assert_eq!(pool.pieces(), (21, 20));
        let others: Vec<_> = (0..20)
            .map(|_| pool.take(|| false).unwrap().unwrap())
            .collect();
        assert_eq!(pool.pieces(), (21, 0));
        pool.map().unwrap();
        drop((held, others));
        assert_eq!(pool.pieces(), (21, 21));
    }

    #[test]
    fn a_copy_that_is_stopped_ends_without_room() {
        let pool = SnapshotPool::new(&Kernel, 0);
        let held: Vec<_> = (0..4)
            .map(|_| pool.take(|| false).unwrap().unwrap())
            .collect();
        let tensors = [TensorView {
            name: "any",
            dtype: DType::U8,
            shape: &[1],
            bytes: &[1],
        }];
        let copier = Copier::new(
            &Kernel,
            &pool,
            false,
            || true,
            |_| panic!("there is no room for it"),
        );
        copier.copy(&tensors).unwrap();
        drop(held);
    }

    #[test]
    fn memory_that_changed_is_told_by_tensor_and_block() {
        let bytes = vec![7; (1 << 20) + 1];
        let tensors = [TensorView {
            name: "weights",
            dtype: DType::U8,
            shape: &[(1 << 20) + 1],
            bytes: &bytes,
        }];
        let mut checksums: Vec<u32> = bytes.chunks(1 << 20).map(crc32fast::hash).collect();
        check_unchanged(&tensors, &checksums).unwrap();
        checksums[1] ^= 1;
        let error = check_unchanged(&tensors, &checksums).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed);
        assert_eq!((error.tensor(), error.block()), (Some("weights"), Some(1)));
    }
}
