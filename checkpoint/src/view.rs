//! [`TensorView`]: a tensor in memory, to be saved.

use crate::dtype::DType;

/// A tensor in memory, to be saved.
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    /// Its name: 1 to 4096 bytes of UTF-8 without NUL.
    pub name: &'a str,
    /// What its elements are.
    pub dtype: DType,
    /// Its dimensions, the outermost first; none for a scalar.
    pub shape: &'a [u64],
    /// Its bytes: as many as the shape and the type have.
    pub bytes: &'a [u8],
}
