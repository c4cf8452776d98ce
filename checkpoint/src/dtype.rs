//! What the elements of a tensor are: [`DType`], and how many bytes a shape of them takes.
//!
//! - The names are those of safetensors; the codes are ours, are on media, and never change.
//! - A code or a name that is unknown here is refused: its size would be a guess.
//! - Bytes are stored as they come. Nothing here swaps, converts or looks at an element.
//! - The size of a shape is checked arithmetic: a product that wraps would pass for a small one.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};

/// The most dimensions a tensor may have.
pub const RANK_MAX: usize = 64;

/// The most bytes a tensor may have: what a signed 64-bit offset can tell.
pub const TENSOR_BYTES_MAX: u64 = i64::MAX as u64;

/// The type of a tensor's elements.
///
/// In the order in which safetensors lays tensors out (the largest last), which `Ord` follows.
#[non_exhaustive]
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(into = "&'static str", try_from = "String")]
pub enum DType {
    /// A truth value in one byte.
    Bool,
    /// 4-bit float of OCP MX.
    F4,
    /// 6-bit float of OCP MX, two exponent bits.
    F6E2M3,
    /// 6-bit float of OCP MX, three exponent bits.
    F6E3M2,
    /// Unsigned byte.
    U8,
    /// Signed byte.
    I8,
    /// 8-bit float, five exponent bits.
    F8E5M2,
    /// 8-bit float, four exponent bits.
    F8E4M3,
    /// 8-bit scale of OCP MX: an exponent and nothing else.
    F8E8M0,
    /// 8-bit float, four exponent bits, without a negative zero.
    F8E4M3Fnuz,
    /// 8-bit float, five exponent bits, without a negative zero.
    F8E5M2Fnuz,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 16 bits.
    U16,
    /// Half precision.
    F16,
    /// Brain float.
    Bf16,
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 32 bits.
    U32,
    /// Single precision.
    F32,
    /// Complex of two single-precision floats.
    C64,
    /// Double precision.
    F64,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 64 bits.
    U64,
}

/// One line a type: code on media, name, bits.
const TABLE: [(DType, u16, &str, u32); 22] = [
    (DType::Bool, 1, "BOOL", 8),
    (DType::F4, 2, "F4", 4),
    (DType::F6E2M3, 3, "F6_E2M3", 6),
    (DType::F6E3M2, 4, "F6_E3M2", 6),
    (DType::U8, 5, "U8", 8),
    (DType::I8, 6, "I8", 8),
    (DType::F8E5M2, 7, "F8_E5M2", 8),
    (DType::F8E4M3, 8, "F8_E4M3", 8),
    (DType::F8E8M0, 9, "F8_E8M0", 8),
    (DType::F8E4M3Fnuz, 10, "F8_E4M3FNUZ", 8),
    (DType::F8E5M2Fnuz, 11, "F8_E5M2FNUZ", 8),
    (DType::I16, 12, "I16", 16),
    (DType::U16, 13, "U16", 16),
    (DType::F16, 14, "F16", 16),
    (DType::Bf16, 15, "BF16", 16),
    (DType::I32, 16, "I32", 32),
    (DType::U32, 17, "U32", 32),
    (DType::F32, 18, "F32", 32),
    (DType::C64, 19, "C64", 64),
    (DType::F64, 20, "F64", 64),
    (DType::I64, 21, "I64", 64),
    (DType::U64, 22, "U64", 64),
];

impl DType {
    /// Every type known here.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.into_iter().map(|(dtype, ..)| dtype)
    }

    fn row(self) -> (Self, u16, &'static str, u32) {
        // The table is in the order of the enum; a test holds it to that.
        TABLE[self as usize]
    }

    /// The code on media.
    pub fn code(self) -> u16 {
        self.row().1
    }

    /// The type with this code on media.
    pub fn from_code(code: u16) -> Option<Self> {
        let row = TABLE.get(usize::from(code).checked_sub(1)?)?;
        Some(row.0)
    }

    /// The name safetensors has for it.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// The type with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let row = TABLE.iter().find(|row| row.2 == name)?;
        Some(row.0)
    }

    /// How many bits an element takes; not always whole bytes.
    pub fn bits(self) -> u32 {
        self.row().3
    }

    /// How many bytes a tensor of this shape takes. Without dimensions it is one element.
    ///
    /// Fails where the shape has too many dimensions, does not end on a byte, or is larger than
    /// [`TENSOR_BYTES_MAX`]. A dimension of zero makes the tensor empty, but the others are checked
    /// as if it were not there, so that no stride inside can overflow either.
    pub fn tensor_bytes(self, shape: &[u64]) -> Result<u64> {
        self.checked_tensor_bytes(shape).map_err(Error::invalid)
    }

    /// As [`DType::tensor_bytes`], with only the reason for a refusal.
    pub(crate) fn checked_tensor_bytes(self, shape: &[u64]) -> Result<u64, &'static str> {
        if shape.len() > RANK_MAX {
            return Err("the shape has more than 64 dimensions");
        }
        let bits = shape
            .iter()
            .filter(|size| **size != 0)
            .try_fold(u128::from(self.bits()), |bits, size| {
                let bits = bits.checked_mul(u128::from(*size))?;
                (bits / 8 <= u128::from(TENSOR_BYTES_MAX)).then_some(bits)
            })
            .ok_or("the shape has more bytes than a tensor may have")?;
        if shape.contains(&0) {
            return Ok(0);
        }
        if !bits.is_multiple_of(8) {
            return Err("the elements do not fill whole bytes");
        }
        u64::try_from(bits / 8).map_err(|_| "the shape has more bytes than a tensor may have")
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::from_name(name).ok_or_else(|| {
            // Names come from files of strangers: only the beginning is repeated.
            let shown: String = name.chars().take(32).collect();
            Error::new(
                ErrorKind::Unsupported,
                format!("the data type {shown:?} is unknown here"),
            )
        })
    }
}

impl From<DType> for &'static str {
    fn from(dtype: DType) -> Self {
        dtype.name()
    }
}

impl TryFrom<String> for DType {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        name.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_lead_back() {
        for (place, dtype) in DType::all().enumerate() {
            assert_eq!(dtype as usize, place);
            assert_eq!(usize::from(dtype.code()), place + 1);
            assert_eq!(DType::from_code(dtype.code()), Some(dtype));
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
            let json = serde_json::to_string(&dtype).unwrap();
            assert_eq!(json, format!("\"{dtype}\""));
            assert_eq!(serde_json::from_str::<DType>(&json).unwrap(), dtype);
        }
        assert!(DType::all().is_sorted());
        for code in [0, 23, u16::MAX] {
            assert_eq!(DType::from_code(code), None);
        }
        assert_eq!(DType::from_name("f32"), None);
        assert_eq!(
            "I128".parse::<DType>().unwrap_err().kind(),
            ErrorKind::Unsupported
        );
    }

    #[test]
    fn shapes_are_measured_without_wrapping() {
        assert_eq!(DType::F32.tensor_bytes(&[]).unwrap(), 4);
        assert_eq!(DType::Bf16.tensor_bytes(&[3, 5]).unwrap(), 30);
        assert_eq!(DType::U8.tensor_bytes(&[7, 0, 9]).unwrap(), 0);
        assert_eq!(DType::F4.tensor_bytes(&[2, 3]).unwrap(), 3);
        assert_eq!(DType::F6E2M3.tensor_bytes(&[4]).unwrap(), 3);
        assert_eq!(DType::U8.tensor_bytes(&[1; 64]).unwrap(), 1);
        let max = DType::U8.tensor_bytes(&[TENSOR_BYTES_MAX]).unwrap();
        assert_eq!(max, TENSOR_BYTES_MAX);
        let refused: &[(DType, &[u64])] = &[
            (DType::U8, &[TENSOR_BYTES_MAX + 1]),
            (DType::U8, &[1 << 32, 1 << 32]),
            (DType::U8, &[u64::MAX; 64]),
            (DType::U64, &[TENSOR_BYTES_MAX / 8, u64::MAX]),
            (DType::F32, &[1 << 62]),
            (DType::U8, &[0, u64::MAX, 2]),
            (DType::F4, &[3]),
            (DType::F6E3M2, &[2]),
            (DType::F4, &[]),
            (DType::U8, &[1; 65]),
        ];
        for (dtype, shape) in refused {
            let error = dtype.tensor_bytes(shape).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{dtype} {shape:?}");
        }
    }
}
