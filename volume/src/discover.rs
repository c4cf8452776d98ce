//! Finding the members of a volume in a directory.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::examine::examine;

/// The paths with every directory replaced by the members in it, sorted by name. A member is a
/// regular file or block device, or a link to one, that carries a good superblock copy.
///
/// # Errors
///
/// A directory that cannot be read, or has no members in it.
pub fn members_in<P: AsRef<Path>>(paths: &[P]) -> Result<Vec<PathBuf>> {
    let mut members = Vec::with_capacity(paths.len());
    for path in paths {
        let path = path.as_ref();
        if !path.is_dir() {
            members.push(path.to_path_buf());
            continue;
        }
        let before = members.len();
        members.extend(
            entries_of(path)?
                .into_iter()
                .filter(|entry| is_member(entry)),
        );
        if members.len() == before {
            return Err(Error::new(
                ErrorKind::NotFound,
                "no members of a volume in this directory",
            )
            .with_path(path));
        }
    }
    Ok(members)
}

fn entries_of(directory: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = |cause: std::io::Error| {
        Error::from(swath_engine::Error::from_io(
            cause,
            "the directory cannot be read",
        ))
        .with_path(directory)
    };
    let mut entries = fs::read_dir(directory)
        .and_then(|entries| {
            entries
                .map(|entry| Ok(entry?.path()))
                .collect::<std::io::Result<Vec<_>>>()
        })
        .map_err(unreadable)?;
    entries.sort();
    Ok(entries)
}

fn is_member(path: &Path) -> bool {
    // What cannot be looked at here (a directory, a socket, no permission) is not taken; a member
    // that should have been is then told as missing.
    examine(path).is_ok_and(|examination| examination.superblock.is_some())
}
