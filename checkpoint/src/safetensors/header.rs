//! The header of a safetensors file: what tensors it has, and where in the file they are.
//!
//! - A file is eight bytes with the length of the header, little-endian; the header, JSON padded
//!   with spaces; and the data. The format is defined at
//!   <https://huggingface.co/docs/safetensors/index>.
//! - Refused are: headers of more than 100 MB, or that do not begin with `{`; a key that is there
//!   twice, on any level (a JSON parser that fills a map would silently take the last one); fields
//!   and data types that are unknown here; a range that is not what shape and type say; ranges that
//!   overlap or leave holes; a file that ends before its data, or goes on after it.
//! - The memory taken is a small multiple of the header's length, whatever it says.
//! - The order of the header is kept. [`Header::encode`] writes what the official library writes, so
//!   that a header made by it comes out as it went in; [`Header::writes_back`] tells whether one
//!   does.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::dtype::{DType, RANK_MAX};
use crate::error::{Error, ErrorKind, Result};
use crate::names::name_problem;

/// The bytes before the header, which have its length.
pub const PREFIX_BYTES: usize = 8;

/// The most bytes a header may have; the official library's limit.
pub const HEADER_BYTES_MAX: u64 = 100_000_000;

/// The key that is no tensor.
const METADATA_KEY: &str = "__metadata__";

/// How much of a JSON parser's complaint is repeated; it may quote the file at any length.
const COMPLAINT_CHARS_MAX: usize = 200;

/// One tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// What its elements are.
    pub dtype: DType,
    /// Its dimensions, the outermost first.
    pub shape: Vec<u64>,
    /// Where it begins, counted from the end of the header.
    pub begin: u64,
    /// Where it ends.
    pub end: u64,
}

impl TensorInfo {
    /// How many bytes it has.
    pub fn length(&self) -> u64 {
        self.end - self.begin
    }
}

/// The header of a file, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    metadata: Option<Vec<(String, String)>>,
    tensors: Vec<TensorInfo>,
    data_bytes: u64,
}

impl Header {
    /// The length of the header behind `prefix`, the first bytes of a file of `file_bytes`.
    pub fn length_from(prefix: [u8; PREFIX_BYTES], file_bytes: u64) -> Result<usize> {
        let length = u64::from_le_bytes(prefix);
        let whole = length.saturating_add(PREFIX_BYTES as u64);
        if length > HEADER_BYTES_MAX {
            return Err(damaged(format!(
                "no safetensors file: it says its header has {length} bytes, and {HEADER_BYTES_MAX} \
                 is the most there may be"
            )));
        }
        if whole > file_bytes {
            return Err(damaged(format!(
                "no safetensors file, or cut short: it says its header ends at byte {whole}, and \
                 the file has {file_bytes}"
            )));
        }
        usize::try_from(length).map_err(|_| damaged("the header does not fit into memory"))
    }

    /// Reads a header, the JSON with its padding, of a file with `data_bytes` behind it.
    pub fn parse(json: &[u8], data_bytes: u64) -> Result<Self> {
        if json.len() as u64 > HEADER_BYTES_MAX {
            return Err(damaged("the header has more than 100 MB"));
        }
        if json.first() != Some(&b'{') {
            return Err(damaged(
                "no safetensors file: the header does not begin with {",
            ));
        }
        let raw: RawHeader<'_> = serde_json::from_slice(json).map_err(|error| {
            let complaint = error.to_string();
            let shown: String = complaint.chars().take(COMPLAINT_CHARS_MAX).collect();
            damaged(format!("the header is not what it should be: {shown}"))
        })?;
        if let Some(metadata) = &raw.metadata {
            let mut keys = HashSet::with_capacity(metadata.len());
            if !metadata.iter().all(|(key, _)| keys.insert(key)) {
                return Err(damaged("a key of the header's metadata is there twice"));
            }
        }
        let tensors = raw
            .tensors
            .into_iter()
            .map(|(name, raw)| raw.checked(name))
            .collect::<Result<Vec<_>>>()?;
        if let Some(name) = twice(&tensors) {
            return Err(damaged("the tensor is in the header twice").with_tensor(name));
        }
        let header = Self {
            metadata: raw.metadata,
            tensors,
            data_bytes,
        };
        header.check_cover()?;
        Ok(header)
    }

    /// The header of a file with these tensors, their data in this order.
    pub fn lay_out(
        metadata: Option<Vec<(String, String)>>,
        tensors: impl IntoIterator<Item = (String, DType, Vec<u64>)>,
    ) -> Result<Self> {
        let mut data_bytes: u64 = 0;
        let mut infos = Vec::new();
        for (name, dtype, shape) in tensors {
            let problem = name_problem(&name)
                .or((name == METADATA_KEY).then_some("no tensor in a file can have this name"));
            if let Some(problem) = problem {
                return Err(Error::invalid(problem).with_tensor(name));
            }
            let length = dtype
                .tensor_bytes(&shape)
                .map_err(|error| error.with_tensor(&name))?;
            let begin = data_bytes;
            data_bytes = begin
                .checked_add(length)
                .ok_or_else(|| Error::invalid("the file would be larger than a file can be"))?;
            infos.push(TensorInfo {
                name,
                dtype,
                shape,
                begin,
                end: data_bytes,
            });
        }
        if let Some(name) = twice(&infos) {
            return Err(
                Error::new(ErrorKind::AlreadyExists, "the tensor is there twice").with_tensor(name),
            );
        }
        let keys = metadata.iter().flatten().map(|(key, _)| key);
        if keys.clone().collect::<HashSet<_>>().len() < keys.count() {
            return Err(Error::invalid("a key of the metadata is there twice"));
        }
        Ok(Self {
            metadata,
            tensors: infos,
            data_bytes,
        })
    }

    /// Sorts tensors as the official library lays them out: by type, the largest first, so that
    /// each is aligned in a mapped file; then by name.
    pub fn sort_for_layout(tensors: &mut [(String, DType, Vec<u64>)]) {
        tensors.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    }

    /// The metadata in the order of the file; `None` where it has no such key.
    pub fn metadata(&self) -> Option<&[(String, String)]> {
        self.metadata.as_deref()
    }

    /// The tensors in the order of the header.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensors in the order of their data: one begins where the one before ends.
    pub fn tensors_by_offset(&self) -> Vec<&TensorInfo> {
        let mut tensors: Vec<&TensorInfo> = self.tensors.iter().collect();
        tensors.sort_by_key(|tensor| (tensor.begin, tensor.end));
        tensors
    }

    /// The bytes of all tensors: the file's length without the header.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// The beginning of a file: prefix and header.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut file = vec![0; PREFIX_BYTES];
        let mut comma = "{";
        if let Some(metadata) = &self.metadata {
            file.extend(comma.as_bytes());
            put_string(&mut file, METADATA_KEY);
            file.extend(b":{");
            comma = "";
            for (key, value) in metadata {
                file.extend(comma.as_bytes());
                put_string(&mut file, key);
                file.push(b':');
                put_string(&mut file, value);
                comma = ",";
            }
            file.push(b'}');
            comma = ",";
        }
        for tensor in &self.tensors {
            file.extend(comma.as_bytes());
            put_string(&mut file, &tensor.name);
            let shape: Vec<String> = tensor.shape.iter().map(ToString::to_string).collect();
            let rest = format!(
                r#":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}}"#,
                tensor.dtype,
                shape.join(","),
                tensor.begin,
                tensor.end
            );
            file.extend(rest.as_bytes());
            comma = ",";
        }
        if comma == "{" {
            file.push(b'{');
        }
        file.push(b'}');
        file.resize(file.len().next_multiple_of(8), b' ');
        let length = (file.len() - PREFIX_BYTES) as u64;
        if length > HEADER_BYTES_MAX {
            return Err(Error::invalid(
                "too many tensors for one safetensors file: its header would have more than 100 MB",
            ));
        }
        file[..PREFIX_BYTES].copy_from_slice(&length.to_le_bytes());
        Ok(file)
    }

    /// Whether [`Header::encode`] writes exactly `json`, the header this was parsed from. Where it
    /// does not, only the bytes themselves give the same file again.
    pub fn writes_back(&self, json: &[u8]) -> bool {
        self.encode()
            .is_ok_and(|file| file[PREFIX_BYTES..] == *json)
    }

    /// Checks that the tensors lie one behind the other, and make up the data of the file.
    fn check_cover(&self) -> Result<()> {
        let mut end = 0;
        for tensor in self.tensors_by_offset() {
            if tensor.begin != end {
                let what = if tensor.begin < end {
                    "overlaps another"
                } else {
                    "leaves a hole"
                };
                return Err(damaged(format!(
                    "the tensor {what}: it begins at byte {} of the data, and the one before ends \
                     at {end}",
                    tensor.begin
                ))
                .with_tensor(&tensor.name));
            }
            end = tensor.end;
        }
        if end > self.data_bytes {
            return Err(damaged(format!(
                "the file is cut short: {} bytes of data, and the header speaks of {end}",
                self.data_bytes
            )));
        }
        if end < self.data_bytes {
            return Err(damaged(format!(
                "the file goes on behind its tensors: {} bytes of data, and the header speaks of \
                 {end}",
                self.data_bytes
            )));
        }
        Ok(())
    }
}

fn damaged(message: impl Into<Cow<'static, str>>) -> Error {
    Error::damaged(message)
}

/// A name that is there twice.
fn twice(tensors: &[TensorInfo]) -> Option<&str> {
    let mut names = HashSet::with_capacity(tensors.len());
    let mut names_twice = tensors.iter().map(|tensor| tensor.name.as_str());
    names_twice.find(|name| !names.insert(*name))
}

fn put_string(file: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(file, text).expect("a string can be written to memory");
}

/// The header as the JSON has it, nothing checked but its form.
#[derive(Default)]
struct RawHeader<'a> {
    metadata: Option<Vec<(String, String)>>,
    tensors: Vec<(String, RawTensor<'a>)>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTensor<'a> {
    #[serde(borrow)]
    dtype: Cow<'a, str>,
    shape: Shape,
    data_offsets: (u64, u64),
}

impl RawTensor<'_> {
    fn checked(self, name: String) -> Result<TensorInfo> {
        if let Some(problem) = name_problem(&name) {
            // Without the name: it may be as long as the header.
            return Err(damaged(format!("a tensor of the header: {problem}")));
        }
        let dtype: DType = match self.dtype.parse() {
            Ok(dtype) => dtype,
            Err(error) => return Err(error.with_tensor(name)),
        };
        let Shape(shape) = self.shape;
        let (begin, end) = self.data_offsets;
        let length = match dtype.checked_tensor_bytes(&shape) {
            Ok(length) => length,
            Err(problem) => return Err(damaged(problem).with_tensor(name)),
        };
        if end.checked_sub(begin) != Some(length) {
            return Err(damaged(format!(
                "the range {begin} to {end} is not the {length} bytes of the shape and the data \
                 type"
            ))
            .with_tensor(name));
        }
        Ok(TensorInfo {
            name,
            dtype,
            shape,
            begin,
            end,
        })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawHeader<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;

        impl<'de> Visitor<'de> for Keys {
            type Value = RawHeader<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tensors by their names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut header = RawHeader::default();
                while let Some(key) = map.next_key::<String>()? {
                    if key == METADATA_KEY {
                        if header.metadata.is_some() {
                            return Err(de::Error::duplicate_field(METADATA_KEY));
                        }
                        let Pairs(pairs) = map.next_value()?;
                        header.metadata = Some(pairs);
                    } else {
                        header.tensors.push((key, map.next_value()?));
                    }
                }
                Ok(header)
            }
        }

        deserializer.deserialize_map(Keys)
    }
}

/// A map of strings to strings as a list, so that no key hides another.
struct Pairs(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;

        impl<'de> Visitor<'de> for Keys {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("strings by keys")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(Keys)
    }
}

/// A shape with no more dimensions than a tensor may have, so that `[0,0,0...` does not become
/// four times as many bytes of memory.
struct Shape(Vec<u64>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sizes;

        impl<'de> Visitor<'de> for Sizes {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {RANK_MAX} dimensions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
                let mut shape = Vec::new();
                while let Some(size) = seq.next_element()? {
                    if shape.len() == RANK_MAX {
                        return Err(de::Error::invalid_length(RANK_MAX + 1, &self));
                    }
                    shape.push(size);
                }
                Ok(Shape(shape))
            }
        }

        deserializer.deserialize_seq(Sizes)
    }
}

#[cfg(test)]
mod tests;
