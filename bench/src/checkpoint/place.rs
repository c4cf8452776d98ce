//! [`Place`]: the members that checkpoints go to, and what would be lost on them.

use swath_checkpoint::Store;
use swath_volume::{OpenOptions, Volume, examine, members_in};

use crate::error::{Error, ErrorKind, Result};
use crate::subject::{SubjectOptions, is_block_device};

/// Where checkpoints go.
#[derive(Debug, Clone)]
pub enum Place {
    /// Members of the run's own.
    Own {
        /// Written in full once, and used in every round.
        written: Box<SubjectOptions>,
        /// Made anew for each first write, with nothing written.
        fresh: Box<SubjectOptions>,
    },
    /// Members that were given.
    Given(Box<SubjectOptions>),
}

impl Place {
    /// The subject that is used in every round.
    pub fn main(&self) -> &SubjectOptions {
        match self {
            Self::Own { written, .. } => written,
            Self::Given(given) => given,
        }
    }

    /// Refuses members whose data would be lost, before anything is written.
    ///
    /// # Errors
    ///
    /// Without `destructive`: a block device; a volume with a store that has checkpoints, or with
    /// a root record that is no store's.
    pub fn check(&self) -> Result<()> {
        let Self::Given(options) = self else {
            return Ok(());
        };
        if options.destructive {
            return Ok(());
        }
        let paths = members_in(&options.members)
            .map_err(|cause| Error::failed("cannot find the members", cause))?;
        let refused = |message: String| Err(Error::new(ErrorKind::Refused, message));
        if let Some(path) = paths.iter().find(|path| is_block_device(path)) {
            return refused(format!(
                "{} is a block device and writing would destroy what is on it; say so with \
                 --destructive",
                path.display()
            ));
        }
        let mut carries_volume = false;
        for path in &paths {
            let examination =
                examine(path).map_err(|cause| Error::failed("cannot look for a volume", cause))?;
            carries_volume |= examination.superblock.is_some();
        }
        if !carries_volume {
            // What is to be said then, the subject says.
            return Ok(());
        }
        let open = OpenOptions {
            read_only: true,
            ..OpenOptions::default()
        };
        let volume = Volume::open(&paths, &open)
            .map_err(|cause| Error::failed("cannot open the volume", cause))?;
        if volume.root().is_none() {
            return Ok(());
        }
        match Store::open(volume, &swath_checkpoint::StoreOptions::default()) {
            Ok(store) if store.list().is_empty() => Ok(()),
            Ok(store) => refused(format!(
                "the volume holds a store with {} checkpoints, which would be lost; say so with \
                 --destructive",
                store.list().len()
            )),
            Err(cause) => Err(Error::new(
                ErrorKind::Refused,
                "the volume holds a store that cannot be read, or another program's data, which \
                 would be lost; say so with --destructive",
            )
            .with_source(cause)),
        }
    }
}
