//! A box of a tensor, and the runs of bytes it is made of.
//!
//! - A tensor lies in row-major order without gaps: the last dimension's neighbours are neighbours
//!   in memory. A box of it, row-major as well, is a number of runs of equal length.
//! - Runs are as long as they can be: two that follow each other in the tensor are one. A box that
//!   takes whole rows, or the whole tensor, is a single run.
//! - Everything is checked before the first run comes out: a box that leaves the tensor, or begins
//!   or ends within a byte (of types with fewer than eight bits), is refused. After that, no
//!   arithmetic can overflow: every offset is less than the length of the tensor.

use std::iter::FusedIterator;

use crate::dtype::DType;
use crate::error::{Error, Result};

/// A box of a tensor: from `start`, `size` elements, in each dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// The first element, one number a dimension.
    pub start: Vec<u64>,
    /// How many elements, one number a dimension.
    pub size: Vec<u64>,
}

/// Bytes that lie together both in the tensor and in the box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRun {
    /// Where they begin in the tensor.
    pub tensor_offset: u64,
    /// Where they begin in memory that holds the box and nothing else.
    pub buffer_offset: usize,
    /// How many they are; not zero.
    pub length: usize,
}

impl Region {
    /// The box of a whole tensor.
    pub fn whole(shape: &[u64]) -> Self {
        Self {
            start: vec![0; shape.len()],
            size: shape.to_vec(),
        }
    }

    /// The runs of the box in a tensor of this type and shape, in the order of their bytes.
    pub fn runs(&self, dtype: DType, shape: &[u64]) -> Result<ByteRuns> {
        dtype.tensor_bytes(shape)?;
        if self.start.len() != shape.len() || self.size.len() != shape.len() {
            return Err(Error::invalid(format!(
                "a box of {} and {} dimensions in a tensor of {}",
                self.start.len(),
                self.size.len(),
                shape.len()
            )));
        }
        for (dimension, &whole) in shape.iter().enumerate() {
            let (start, size) = (self.start[dimension], self.size[dimension]);
            if size > whole || start > whole - size {
                return Err(Error::invalid(format!(
                    "the box from {start} of {size} elements leaves dimension {dimension}, which \
                     has {whole}"
                )));
            }
        }
        if self.size.contains(&0) {
            return Ok(ByteRuns::none());
        }
        self.runs_within(dtype, shape)
    }

    /// The runs of a box that is not empty and lies within the tensor.
    fn runs_within(&self, dtype: DType, shape: &[u64]) -> Result<ByteRuns> {
        // The dimensions from `inner` on are in one run: all of them are whole but the first.
        let is_whole = |dimension: usize| self.size[dimension] == shape[dimension];
        let mut inner = shape.len();
        while inner > 0 {
            inner -= 1;
            if !is_whole(inner) {
                break;
            }
        }
        let bits = u64::from(dtype.bits());
        // Checked by `tensor_bytes`: the bits of 2^63 bytes may need more than 64 bits, so bytes
        // and bits within a byte are kept apart.
        let to_bytes = |elements: u64| {
            let bits = u128::from(elements) * u128::from(bits);
            let bytes = u64::try_from(bits / 8).ok();
            bytes
                .filter(|_| bits.is_multiple_of(8))
                .ok_or_else(|| Error::invalid("the box begins or ends within a byte of the tensor"))
        };
        let mut strides = vec![1; shape.len()];
        for dimension in (1..shape.len()).rev() {
            strides[dimension - 1] = strides[dimension] * shape[dimension];
        }
        let first: u64 = std::iter::zip(&self.start, &strides)
            .map(|(start, stride)| start * stride)
            .sum();
        let run_elements: u64 = self.size[inner..].iter().product();
        let outer = (0..inner)
            .filter(|dimension| self.size[*dimension] > 1)
            .map(|dimension| {
                Ok(Dimension {
                    count: self.size[dimension],
                    index: 0,
                    stride_bytes: to_bytes(strides[dimension])?,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let length = to_bytes(run_elements)?;
        let count = outer.iter().map(|dimension| dimension.count).product();
        let too_large = || Error::invalid("the box does not fit into memory");
        let total_bytes = usize::try_from(length * count)
            .ok()
            .filter(|bytes| isize::try_from(*bytes).is_ok())
            .ok_or_else(too_large)?;
        Ok(ByteRuns {
            outer,
            next: ByteRun {
                tensor_offset: to_bytes(first)?,
                buffer_offset: 0,
                length: usize::try_from(length).map_err(|_| too_large())?,
            },
            left: count,
            total_bytes,
        })
    }
}

#[derive(Debug, Clone)]
struct Dimension {
    count: u64,
    index: u64,
    stride_bytes: u64,
}

/// The runs of a box; see [`Region::runs`].
#[derive(Debug, Clone)]
pub struct ByteRuns {
    outer: Vec<Dimension>,
    next: ByteRun,
    left: u64,
    total_bytes: usize,
}

impl ByteRuns {
    fn none() -> Self {
        Self {
            outer: Vec::new(),
            next: ByteRun {
                tensor_offset: 0,
                buffer_offset: 0,
                length: 0,
            },
            left: 0,
            total_bytes: 0,
        }
    }

    /// How many bytes the box has, however many runs have come out already.
    pub fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    /// How many runs are still to come.
    pub fn runs_left(&self) -> u64 {
        self.left
    }

    /// Goes on to the next run, as an odometer does.
    fn advance(&mut self) {
        self.next.buffer_offset += self.next.length;
        for dimension in self.outer.iter_mut().rev() {
            dimension.index += 1;
            if dimension.index < dimension.count {
                self.next.tensor_offset += dimension.stride_bytes;
                return;
            }
            self.next.tensor_offset -= dimension.stride_bytes * (dimension.count - 1);
            dimension.index = 0;
        }
    }
}

impl Iterator for ByteRuns {
    type Item = ByteRun;

    fn next(&mut self) -> Option<ByteRun> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let run = self.next;
        self.advance();
        Some(run)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).ok();
        (left.unwrap_or(usize::MAX), left)
    }
}

impl FusedIterator for ByteRuns {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn runs(dtype: DType, shape: &[u64], start: &[u64], size: &[u64]) -> Result<Vec<(u64, usize)>> {
        let region = Region {
            start: start.to_vec(),
            size: size.to_vec(),
        };
        let runs = region.runs(dtype, shape)?;
        assert_eq!(runs.size_hint().1, usize::try_from(runs.runs_left()).ok());
        let total = runs.total_bytes();
        let mut end = 0;
        let runs = runs
            .map(|run| {
                assert_eq!(run.buffer_offset, end);
                assert!(run.length > 0);
                end += run.length;
                (run.tensor_offset, run.length)
            })
            .collect();
        assert_eq!(end, total);
        Ok(runs)
    }

    #[test]
    fn whole_tensors_rows_and_scalars_are_one_run() {
        let f32 = DType::F32;
        assert_eq!(runs(f32, &[], &[], &[]).unwrap(), [(0, 4)]);
        assert_eq!(runs(f32, &[2, 3], &[0, 0], &[2, 3]).unwrap(), [(0, 24)]);
        assert_eq!(runs(f32, &[4, 3], &[1, 0], &[2, 3]).unwrap(), [(12, 24)]);
        assert_eq!(
            runs(f32, &[1, 9, 1, 3], &[0, 2, 0, 0], &[1, 2, 1, 3]).unwrap(),
            [(24, 24)]
        );
        assert_eq!(runs(f32, &[5, 7], &[3, 2], &[1, 4]).unwrap(), [(92, 16)]);
        let shape = [3, 5];
        let whole = Region::whole(&shape).runs(f32, &shape).unwrap();
        assert_eq!(whole.collect::<Vec<_>>().len(), 1);
    }

    #[test]
    fn columns_are_a_run_a_row() {
        let found = runs(DType::U16, &[2, 3, 4], &[0, 1, 1], &[2, 2, 2]).unwrap();
        assert_eq!(found, [(10, 4), (18, 4), (34, 4), (42, 4)]);
        let found = runs(DType::U8, &[2, 3, 4], &[0, 1, 0], &[2, 2, 4]).unwrap();
        assert_eq!(found, [(4, 8), (16, 8)]);
    }

    #[test]
    fn empty_boxes_have_no_runs_wherever_they_are() {
        assert_eq!(runs(DType::F32, &[2, 3], &[2, 3], &[0, 0]).unwrap(), []);
        assert_eq!(runs(DType::F32, &[2, 0], &[0, 0], &[2, 0]).unwrap(), []);
        assert_eq!(runs(DType::F4, &[2, 3], &[0, 1], &[1, 0]).unwrap(), []);
    }

    #[test]
    fn boxes_outside_of_the_tensor_are_refused() {
        let cases: &[(&[u64], &[u64], &[u64])] = &[
            (&[2, 3], &[0], &[2]),
            (&[2, 3], &[0, 0], &[2]),
            (&[2, 3], &[0, 0, 0], &[1, 1, 1]),
            (&[2, 3], &[0, 1], &[2, 3]),
            (&[2, 3], &[3, 0], &[0, 1]),
            (&[2, 3], &[u64::MAX, 0], &[2, 3]),
            (&[2, 3], &[1, 0], &[u64::MAX, 3]),
            (&[u64::MAX, 2], &[0, 0], &[1, 1]),
            (&[0, u64::MAX, u64::MAX], &[0, 0, 0], &[0, 1, 1]),
        ];
        for (shape, start, size) in cases {
            assert!(runs(DType::F32, shape, start, size).is_err(), "{shape:?}");
        }
    }

    #[test]
    fn elements_smaller_than_a_byte_must_end_on_one() {
        assert_eq!(
            runs(DType::F4, &[3, 4], &[1, 2], &[2, 2]).unwrap(),
            [(3, 1), (5, 1)]
        );
        assert_eq!(
            runs(DType::F4, &[2, 3], &[0, 0], &[2, 3]).unwrap(),
            [(0, 3)]
        );
        assert!(runs(DType::F4, &[2, 3], &[1, 0], &[1, 3]).is_err());
        assert!(runs(DType::F4, &[2, 4], &[0, 1], &[1, 2]).is_err());
        assert!(runs(DType::F4, &[2, 4], &[0, 0], &[1, 3]).is_err());
        assert!(runs(DType::F4, &[4, 5], &[0, 0], &[2, 2]).is_err());
        assert_eq!(runs(DType::F6E2M3, &[8], &[4], &[4]).unwrap(), [(3, 3)]);
    }

    #[test]
    fn the_largest_tensors_do_not_overflow() {
        let max = crate::dtype::TENSOR_BYTES_MAX;
        let found = runs(DType::U8, &[max], &[max - 1], &[1]).unwrap();
        assert_eq!(found, [(max - 1, 1)]);
        let found = runs(DType::U64, &[2, max / 16], &[1, max / 16 - 1], &[1, 1]).unwrap();
        assert_eq!(found, [(max / 16 * 16 - 8, 8)]);
        let found = runs(DType::F64, &[1 << 58, 2], &[(1 << 58) - 2, 1], &[2, 1]).unwrap();
        assert_eq!(found, [((1 << 62) - 24, 8), ((1 << 62) - 8, 8)]);
    }

    proptest! {
        /// Element by element, as the definition has it, then merged.
        #[test]
        fn runs_are_the_elements_of_the_box_merged(
            dims in prop::collection::vec((0..6_u64, any::<[u64; 2]>()), 0..5),
            dtype in prop::sample::select(vec![DType::U8, DType::F16, DType::C64]),
        ) {
            let shape: Vec<u64> = dims.iter().map(|(whole, _)| *whole).collect();
            let start: Vec<u64> = dims.iter().map(|(whole, [a, _])| a % (whole + 1)).collect();
            let size: Vec<u64> = std::iter::zip(&dims, &start)
                .map(|((whole, [_, b]), start)| b % (whole - start + 1))
                .collect();
            let item = u64::from(dtype.bits() / 8);
            let mut expected: Vec<(u64, usize)> = Vec::new();
            let elements: u64 = size.iter().product();
            for element in 0..elements {
                let (mut rest, mut offset, mut stride) = (element, 0, item);
                for dimension in (0..shape.len()).rev() {
                    offset += (start[dimension] + rest % size[dimension]) * stride;
                    rest /= size[dimension];
                    stride *= shape[dimension];
                }
                match expected.last_mut() {
                    Some(last) if last.0 + last.1 as u64 == offset => {
                        last.1 += usize::try_from(item).unwrap();
                    }
                    _ => expected.push((offset, usize::try_from(item).unwrap())),
                }
            }
            prop_assert_eq!(runs(dtype, &shape, &start, &size).unwrap(), expected);
        }
    }
}
