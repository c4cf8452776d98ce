//! The profiles that are there without a file, and how a profile is found by what a user typed.

use std::path::Path;

use super::parse::parse;
use super::profile::Profile;
use crate::error::{Error, ErrorKind, Result};

/// Names and texts; the four corners first.
const SHIPPED: [(&str, &str); 11] = [
    (
        "4k-randread",
        include_str!("../../profiles/4k-randread.toml"),
    ),
    (
        "4k-randwrite",
        include_str!("../../profiles/4k-randwrite.toml"),
    ),
    ("64k-read", include_str!("../../profiles/64k-read.toml")),
    ("64k-write", include_str!("../../profiles/64k-write.toml")),
    ("oltp", include_str!("../../profiles/oltp.toml")),
    ("sql-100-0", include_str!("../../profiles/sql-100-0.toml")),
    ("sql-90-10", include_str!("../../profiles/sql-90-10.toml")),
    ("sql-80-20", include_str!("../../profiles/sql-80-20.toml")),
    ("oracle", include_str!("../../profiles/oracle.toml")),
    ("vdi-boot", include_str!("../../profiles/vdi-boot.toml")),
    ("vdi-login", include_str!("../../profiles/vdi-login.toml")),
];

/// How many of the shipped profiles are the four corners.
const CORNERS: usize = 4;

/// All shipped profiles.
///
/// # Errors
///
/// None, unless one was shipped broken.
pub fn shipped() -> Result<Vec<Profile>> {
    let profiles = SHIPPED.iter();
    profiles.map(|(name, _)| find(name)).collect()
}

/// The names of the four corners.
pub fn corners() -> Vec<String> {
    let names = SHIPPED.iter().take(CORNERS);
    names.map(|(name, _)| (*name).to_owned()).collect()
}

/// The text of a shipped profile, to copy and edit.
///
/// # Errors
///
/// None is called so.
pub fn text_of(name: &str) -> Result<&'static str> {
    let found = SHIPPED.iter().find(|(shipped, _)| *shipped == name);
    found.map(|(_, text)| *text).ok_or_else(|| unknown(name))
}

/// The profile of this name, or in this file.
///
/// # Errors
///
/// There is neither; or the file cannot be read; or it is wrong, with file, line and field.
pub fn find(name: &str) -> Result<Profile> {
    if let Ok(text) = text_of(name) {
        return parse(&format!("{name}.toml (shipped)"), text);
    }
    if !Path::new(name).exists() {
        return Err(unknown(name));
    }
    let text = std::fs::read_to_string(name).map_err(|cause| {
        Error::new(ErrorKind::Usage, format!("cannot read the profile {name}")).with_source(cause)
    })?;
    parse(name, &text)
}

fn unknown(name: &str) -> Error {
    let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
    Error::usage(format!(
        "there is no profile '{name}', neither shipped ({}) nor a file",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_profile_is_right_and_says_where_it_comes_from() {
        let profiles = shipped().unwrap();
        assert_eq!(profiles.len(), SHIPPED.len());
        for (profile, (name, _)) in profiles.iter().zip(SHIPPED) {
            assert_eq!(profile.name, name);
            assert!(profile.source.len() > 20, "{name}: {}", profile.source);
        }
    }

    #[test]
    fn the_four_corners_are_those_of_the_field() {
        let corner = |name: &str| {
            let profile = find(name).unwrap();
            (
                profile.sizes[0].bytes,
                profile.read_percent,
                profile.seek_percent,
                profile.outstanding,
            )
        };
        assert_eq!(corners().len(), CORNERS);
        assert_eq!(corner("4k-randread"), (4096, 100.0, 100.0, 128));
        assert_eq!(corner("4k-randwrite"), (4096, 0.0, 100.0, 64));
        assert_eq!(corner("64k-read"), (64 << 10, 100.0, 0.0, 16));
        assert_eq!(corner("64k-write"), (64 << 10, 0.0, 0.0, 8));
    }

    #[test]
    fn a_profile_that_is_not_there_is_told_with_those_that_are() {
        let error = find("no-such-profile").unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("oltp"), "{error}");
    }
}
