//! [`ImportPlan`]: everything that can be known of an import before a byte of data is read.
//!
//! - What is wrong with any of the files is found here: nothing is written for a set that is not
//!   whole. Files are not kept open: there may be thousands.
//! - A file whose name ends with `.safetensors` is one; one that ends with `.safetensors.index.json`
//!   brings the files it names with it; any other is kept as it is, as one tensor of bytes.
//! - Memory: one header at a time, and for each tensor its name, shape and place.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::ImportOptions;
use super::files::{FileEntry, FileKind, FileList, LIST_TENSOR, RESERVED_PREFIX, is_hidden};
use super::header::{Header, PREFIX_BYTES};
use super::shards::{self, ShardMap};
use super::source::{self, Source};
use crate::blob::usize_of;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::extent::UNIT_BYTES;
use crate::index::BLOCK_BYTES;

/// How the name of a safetensors file ends.
const SUFFIX: &str = ".safetensors";

/// What an import will do. Made by [`ImportPlan::new`], which checks all that can be checked
/// beforehand, and carried out by [`ImportPlan::save`].
#[derive(Debug)]
pub struct ImportPlan {
    pub(super) sources: Vec<Source>,
    pub(super) items: Vec<Item>,
    /// The list of files, as it is kept.
    pub(super) list: Vec<u8>,
    pub(super) threads: usize,
}

/// A tensor, and which bytes of which file it is.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Vec<u64>,
    pub(super) source: usize,
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl ImportPlan {
    /// Looks at the files: safetensors files, the index of a sharded set (its files come with it,
    /// and may be named as well), and any others.
    ///
    /// # Errors
    ///
    /// A file that is not there, not a regular one, or called like another; a safetensors file with
    /// a header that cannot be, or cut short; an index that does not agree with its files; a tensor
    /// that is there twice.
    pub fn new(paths: &[PathBuf], options: &ImportOptions) -> Result<Self> {
        if paths.is_empty() {
            return Err(Error::invalid("no files to save"));
        }
        let mut planner = Planner::default();
        for path in paths {
            planner.add_path(path, options.raw)?;
        }
        let Planner { sources, items, .. } = planner;
        refuse_twice(&sources, &items)?;
        let entry = |source: &Source| FileEntry {
            name: source.name.clone(),
            length: source.stamp.length,
            kind: source.kind,
            tensor: source.tensor.clone(),
        };
        let list = FileList::new(sources.iter().map(entry).collect()).encode()?;
        Ok(Self {
            sources,
            items,
            list,
            threads: options.threads.max(1),
        })
    }

    /// The paths of the files, in the order in which they are kept.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.sources.iter().map(|source| source.path.as_path())
    }

    /// How many bytes the files have.
    pub fn data_bytes(&self) -> u64 {
        self.sources.iter().map(|source| source.stamp.length).sum()
    }

    /// How many bytes of tensors there will be, with what is lost between them.
    pub(super) fn needed_bytes(&self) -> u64 {
        let (mut large, mut small) = (0_u64, self.list.len() as u64);
        for item in &self.items {
            if item.length < BLOCK_BYTES {
                small = small.saturating_add(item.length);
            } else {
                large = large.saturating_add(item.length.next_multiple_of(UNIT_BYTES));
            }
        }
        large.saturating_add(small)
    }
}

/// A plan in the making.
#[derive(Default)]
struct Planner {
    sources: Vec<Source>,
    items: Vec<Item>,
    /// Files by device and inode, and by name.
    by_identity: HashMap<(u64, u64), usize>,
    by_name: HashMap<String, usize>,
}

impl Planner {
    fn add_path(&mut self, path: &Path, raw: bool) -> Result<()> {
        let name = source::name_of(path)?;
        if !raw && name.ends_with(shards::SUFFIX) {
            self.add_set(path)
        } else if !raw && name.ends_with(SUFFIX) {
            self.add_safetensors(path).map(drop)
        } else {
            let tensor = name.clone();
            self.add_raw(path, tensor).map(drop)
        }
    }

    /// Adds an index and its files, beginning with the index: errors name what the user named.
    fn add_set(&mut self, path: &Path) -> Result<()> {
        let tensor = format!("{RESERVED_PREFIX}index/{}", self.sources.len());
        let Some(index) = self.add_raw(path, tensor)? else {
            return Ok(());
        };
        let fail = |error: Error| error.with_path(path);
        let length = self.sources[index].stamp.length;
        if length > shards::BYTES_MAX {
            return Err(fail(Error::damaged(format!(
                "no index of a sharded set: it has {length} bytes, and {} is the most there may be",
                shards::BYTES_MAX
            ))));
        }
        let mut json = vec![0; usize_of(length)];
        let source = &self.sources[index];
        source.read(&source.open()?, &mut json, 0)?;
        let map = ShardMap::parse(&json).map_err(fail)?;
        drop(json);
        let directory = path.parent().unwrap_or(Path::new(""));
        let mut found = HashMap::new();
        for file in map.files() {
            let shard = self
                .add_safetensors(&directory.join(file))
                .map_err(|error| match error.kind() {
                    ErrorKind::NotFound => {
                        fail(error.context(format!("the index names {file}, which is not there")))
                    }
                    _ => error,
                })?;
            found.insert(file, shard);
        }
        // The files' tensors against the index, both ways.
        let mut tensors = HashMap::new();
        for (file, shard) in found {
            let items = self.items.iter().filter(|item| item.source == shard);
            for item in items.filter(|item| !is_hidden(&item.name)) {
                map.check_tensor(file, &item.name).map_err(fail)?;
                tensors.insert(item.name.as_str(), shard);
            }
        }
        map.check_complete(&tensors).map_err(fail)
    }

    fn add_raw(&mut self, path: &Path, tensor: String) -> Result<Option<usize>> {
        let (_, stamp) = source::open(path)?;
        let length = stamp.length;
        let source = Source {
            path: path.to_path_buf(),
            name: source::name_of(path)?,
            kind: FileKind::Raw,
            tensor: tensor.clone(),
            stamp,
        };
        let Some(number) = self.add_source(source)? else {
            return Ok(None);
        };
        self.items.push(Item::bytes(tensor, number, length));
        Ok(Some(number))
    }

    /// Adds a safetensors file, and gives its number; that of the file that is there already, when
    /// this is the same one: somebody may name an index and its files.
    fn add_safetensors(&mut self, path: &Path) -> Result<usize> {
        let fail = |error: Error| error.with_path(path);
        let (file, stamp) = source::open(path)?;
        let identity = (stamp.device, stamp.inode);
        let tensor = format!("{RESERVED_PREFIX}header/{}", self.sources.len());
        let source = Source {
            path: path.to_path_buf(),
            name: source::name_of(path)?,
            kind: FileKind::Safetensors,
            tensor: tensor.clone(),
            stamp,
        };
        let Some(number) = self.add_source(source)? else {
            return Ok(self.by_identity[&identity]);
        };
        if stamp.length < PREFIX_BYTES as u64 {
            return Err(fail(Error::damaged(format!(
                "no safetensors file, or cut short: it has {} bytes, and the least is {PREFIX_BYTES}",
                stamp.length
            ))));
        }
        let mut prefix = [0; PREFIX_BYTES];
        source::read(&file, path, &mut prefix, 0)?;
        let header_bytes = Header::length_from(prefix, stamp.length).map_err(fail)?;
        let mut json = vec![0; header_bytes];
        source::read(&file, path, &mut json, PREFIX_BYTES as u64)?;
        let begin = (PREFIX_BYTES + header_bytes) as u64;
        let header = Header::parse(&json, stamp.length - begin).map_err(fail)?;
        drop(json);
        self.items.push(Item::bytes(tensor, number, begin));
        for tensor in header.tensors_by_offset() {
            if is_hidden(&tensor.name) {
                let message = format!("names that begin with {RESERVED_PREFIX} are Swath's own");
                return Err(fail(Error::invalid(message).with_tensor(&tensor.name)));
            }
            self.items.push(Item {
                name: tensor.name.clone(),
                dtype: tensor.dtype,
                shape: tensor.shape.clone(),
                source: number,
                offset: begin + tensor.begin,
                length: tensor.length(),
            });
        }
        Ok(number)
    }

    /// Adds a file; not when it is there already, under the same name.
    fn add_source(&mut self, source: Source) -> Result<Option<usize>> {
        let identity = (source.stamp.device, source.stamp.inode);
        if let Some(&other) = self.by_name.get(&source.name) {
            if self.by_identity.get(&identity) == Some(&other)
                && self.sources[other].kind == source.kind
            {
                return Ok(None);
            }
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                format!(
                    "{} has the same name: files of one checkpoint must have different ones",
                    self.sources[other].path.display()
                ),
            )
            .with_path(&source.path));
        }
        let number = self.sources.len();
        self.by_name.insert(source.name.clone(), number);
        self.by_identity.insert(identity, number);
        self.sources.push(source);
        Ok(Some(number))
    }
}

impl Item {
    /// The first bytes of a file as a tensor.
    fn bytes(name: String, source: usize, length: u64) -> Self {
        Self {
            name,
            dtype: DType::U8,
            shape: vec![length],
            source,
            offset: 0,
            length,
        }
    }
}

/// Refuses a tensor that is there twice; within one file its header was refused already.
fn refuse_twice(sources: &[Source], items: &[Item]) -> Result<()> {
    let mut seen: HashMap<&str, usize> = HashMap::with_capacity(items.len());
    seen.insert(LIST_TENSOR, 0);
    for item in items {
        if let Some(first) = seen.insert(&item.name, item.source) {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                format!("it is in {} as well", sources[first].path.display()),
            )
            .with_path(&sources[item.source].path)
            .with_tensor(&item.name));
        }
    }
    Ok(())
}
