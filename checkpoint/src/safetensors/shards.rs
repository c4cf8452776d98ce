//! The index of a sharded set, `model.safetensors.index.json`: which file has which tensor.
//!
//! - `weight_map` gives each tensor its file. Everything else in the index, `metadata` among it, is
//!   kept (the file itself is) and not looked at.
//! - It comes from a stranger: its size is bounded, a tensor that is there twice is refused, and so
//!   is a file that would lie elsewhere than beside the index.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::files::file_name_problem;
use super::header::HEADER_BYTES_MAX;
use crate::error::{Error, Result};

/// How the name of such an index ends.
pub(super) const SUFFIX: &str = ".safetensors.index.json";

/// The most bytes it may have: as many as a header.
pub(super) const BYTES_MAX: u64 = HEADER_BYTES_MAX;

/// How much of a JSON parser's complaint is repeated; it may quote the file at any length.
const COMPLAINT_CHARS_MAX: usize = 200;

/// Which file has which tensor.
#[derive(Debug)]
pub(super) struct ShardMap {
    weight_map: HashMap<String, String>,
}

impl ShardMap {
    pub(super) fn parse(json: &[u8]) -> Result<Self> {
        let Json { weight_map } = serde_json::from_slice(json).map_err(|error| {
            let complaint = error.to_string();
            let shown: String = complaint.chars().take(COMPLAINT_CHARS_MAX).collect();
            Error::damaged(format!(
                "no index of a sharded set, or a damaged one: {shown}"
            ))
        })?;
        let WeightMap(weight_map) = weight_map;
        for (tensor, file) in &weight_map {
            if let Some(problem) = file_name_problem(file) {
                return Err(
                    Error::damaged(format!("its file is refused: {problem}")).with_tensor(tensor)
                );
            }
        }
        Ok(Self { weight_map })
    }

    /// The files, each once, by name.
    pub(super) fn files(&self) -> Vec<&str> {
        let mut files: Vec<&str> = self.weight_map.values().map(String::as_str).collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    /// Refuses a tensor that the index has elsewhere, or not at all.
    pub(super) fn check_tensor(&self, file: &str, tensor: &str) -> Result<()> {
        let complaint = match self.weight_map.get(tensor) {
            Some(said) if said == file => return Ok(()),
            Some(said) => format!("{file} has it, and the index says {said}"),
            None => format!("{file} has it, and the index does not know it"),
        };
        Err(Error::damaged(complaint).with_tensor(tensor))
    }

    /// Refuses an index that knows tensors which no file has. `found` are the tensors that were
    /// found; those of its files went through [`check_tensor`](Self::check_tensor).
    pub(super) fn check_complete(&self, found: &HashMap<&str, usize>) -> Result<()> {
        // In the order of names, so that the same complaint comes every time.
        let missing: BTreeMap<_, _> = self
            .weight_map
            .iter()
            .filter(|(tensor, _)| !found.contains_key(tensor.as_str()))
            .collect();
        match missing.first_key_value() {
            Some((tensor, file)) => Err(Error::damaged(format!(
                "the index says that {file} has it, and it has not"
            ))
            .with_tensor(*tensor)),
            None => Ok(()),
        }
    }
}

#[derive(serde::Deserialize)]
struct Json {
    weight_map: WeightMap,
}

/// A map in which no key hides another.
struct WeightMap(HashMap<String, String>);

impl<'de> Deserialize<'de> for WeightMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;

        impl<'de> Visitor<'de> for Keys {
            type Value = WeightMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("files by tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WeightMap, A::Error> {
                let mut weight_map = HashMap::new();
                while let Some((tensor, file)) = map.next_entry::<String, String>()? {
                    if weight_map.insert(tensor, file).is_some() {
                        return Err(de::Error::custom("a tensor is in weight_map twice"));
                    }
                }
                Ok(WeightMap(weight_map))
            }
        }

        deserializer.deserialize_map(Keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_and_its_files_must_agree() {
        let json = br#"{"metadata":{"total_size":3,"by":[1]},
                        "weight_map":{"a":"1.safetensors","b":"2.safetensors","c":"1.safetensors"}}"#;
        let map = ShardMap::parse(json).unwrap();
        assert_eq!(map.files(), ["1.safetensors", "2.safetensors"]);
        map.check_tensor("1.safetensors", "a").unwrap();
        map.check_tensor("1.safetensors", "c").unwrap();
        for (name, part) in [("b", "the index says 2"), ("d", "does not know")] {
            let error = map.check_tensor("1.safetensors", name).unwrap_err();
            let message = error.to_string();
            assert!(message.contains(part), "{message}");
        }
        let found = |names: &[&'static str]| names.iter().map(|name| (*name, 0)).collect();
        map.check_complete(&found(&["a", "b", "c", "of another file"]))
            .unwrap();
        let error = map.check_complete(&found(&["a", "b"])).unwrap_err();
        assert_eq!(error.tensor(), Some("c"));
    }

    #[test]
    fn what_is_no_index_is_refused() {
        for (json, part) in [
            ("", "EOF"),
            ("[]", "no index"),
            ("{}", "weight_map"),
            (r#"{"weight_map":{"a":1}}"#, "expected a string"),
            (r#"{"weight_map":{"a":"x","a":"x"}}"#, "twice"),
            (r#"{"weight_map":{"a":"../x"}}"#, "separator"),
            (r#"{"weight_map":{"a":"/etc/passwd"}}"#, "separator"),
            (r#"{"weight_map":{"a":".."}}"#, ".."),
        ] {
            let message = ShardMap::parse(json.as_bytes()).unwrap_err().to_string();
            assert!(message.contains(part), "{json}: {message}");
        }
    }
}
