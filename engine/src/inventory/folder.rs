//! A folder of sysfs: small files with one value each.
//!
//! Everything in it is a hint. A kernel, a driver or a container may lack any of its files, a drive
//! may go while it is looked at, and then the value is `None`.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::fields::printable;

/// The most that is read of any file: one page is all that sysfs gives of a text.
const FILE_BYTES_MAX: u64 = 4096;

#[derive(Debug, Clone)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// The folder at `path`, links followed to where it really is: `..` and the names of folders
    /// above mean something there.
    pub(super) fn at(path: &Path) -> Option<Self> {
        let path = fs::canonicalize(path).ok()?;
        path.is_dir().then_some(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn name(&self) -> String {
        self.0
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    pub(super) fn folder(&self, name: &str) -> Option<Self> {
        Self::at(&self.0.join(name))
    }

    pub(super) fn parent(&self) -> Option<Self> {
        Self::at(self.0.parent()?)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.join(name).exists()
    }

    pub(super) fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(self.0.join(name)).ok()?;
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        printable(&self.bytes(name)?)
    }

    pub(super) fn number<N: FromStr>(&self, name: &str) -> Option<N> {
        self.text(name)?.parse().ok()
    }

    /// The names in it, `nvme2n1` before `nvme10n1`.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.0)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort_by(|one, two| order(one).cmp(&order(two)).then_with(|| one.cmp(two)));
        names
    }
}

/// What names are sorted by: their words and numbers, numbers by value.
fn order(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let word_end = rest
            .find(|char: char| char.is_ascii_digit())
            .unwrap_or(rest.len());
        let (word, after) = rest.split_at(word_end);
        let number_end = after
            .find(|char: char| !char.is_ascii_digit())
            .unwrap_or(after.len());
        let (number, after) = after.split_at(number_end);
        parts.push((word.to_owned(), number.parse().unwrap_or(0)));
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_people_count_in() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["nvme10n1", "nvme2n1", "sdb", "sda", "nvme2n1p1", "7", ""] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let names = Folder::at(folder.path()).unwrap().names();
        assert_eq!(
            names,
            ["7", "nvme2n1", "nvme2n1p1", "nvme10n1", "sda", "sdb"]
        );
    }

    #[test]
    fn what_is_not_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::at(folder.path()).unwrap();
        assert_eq!(folder.text("model"), None);
        assert_eq!(folder.number::<u32>("size"), None);
        assert!(folder.folder("device").is_none() && !folder.has("size"));
    }
}
