//! What a model's checkpoint looks like: [`Model`], its tensors, and which rank has which.
//!
//! The shapes are those that MLPerf Storage takes for its checkpoint workloads: decoder-only
//! transformers of 8 billion to about a trillion parameters. For each parameter there are 14
//! bytes: the weight in bf16, and in f32 the master copy and the two moments of Adam, as well as
//! Adam's step for each tensor, 4 bytes.
//!
//! - A model is scaled by one factor in all of its dimensions: layers, width, vocabulary. So the
//!   mix stays: vectors of a few KiB beside matrices and an embedding that is many times larger.
//! - The vocabulary takes up what rounding leaves, so that the total is what was asked for.
//! - The same shape and size give the same tensors, always.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};
use swath_checkpoint::DType;

use crate::error::{Error, Result};
use crate::report::whole;

/// Less than this is no model.
pub const SIZE_BYTES_MIN: u64 = 1 << 20;

/// The tensor that `full_tensor` adds: just above 2^31 bytes, and above 2^30 elements.
pub const FULL_TENSOR_BYTES: u64 = (1 << 31) + 4096;

/// Widths are multiples of this.
const WIDTH_STEP: u64 = 16;

/// Bytes of one parameter in all four of its tensors.
const PARAMETER_BYTES: u64 = 2 + 3 * 4;

/// Bytes of Adam's step.
const STEP_BYTES: u64 = 4;

/// Which model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModelShape {
    /// 8 billion parameters.
    B8,
    /// 70 billion.
    B70,
    /// 405 billion.
    B405,
    /// About a trillion.
    T1,
}

impl ModelShape {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::B8, Self::B70, Self::B405, Self::T1];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::B8 => "8b",
            Self::B70 => "70b",
            Self::B405 => "405b",
            Self::T1 => "1t",
        }
    }

    /// Its dimensions, as published.
    const fn dimensions(self) -> Dimensions {
        let (layers, width, inner, key_value) = match self {
            Self::B8 => (32, 4096, 14_336, 1024),
            Self::B70 => (80, 8192, 28_672, 1024),
            Self::B405 => (126, 16_384, 53_248, 1024),
            Self::T1 => (128, 25_872, 98_304, 4312),
        };
        Dimensions {
            layers,
            width,
            inner,
            key_value,
            vocabulary: 128_256,
        }
    }

    /// The bytes of a checkpoint at full size.
    pub fn full_bytes(self) -> u64 {
        u64::try_from(self.dimensions().bytes()).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for ModelShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for ModelShape {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl FromStr for ModelShape {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|shape| shape.name().eq_ignore_ascii_case(name.trim()))
            .ok_or_else(|| {
                Error::usage(format!(
                    "no model is called '{name}'; there are 8b, 70b, 405b and 1t"
                ))
            })
    }
}

/// The numbers that make a transformer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Dimensions {
    layers: u64,
    /// Of the residual stream.
    width: u64,
    /// Of the feed-forward part.
    inner: u64,
    /// Of keys and of values.
    key_value: u64,
    vocabulary: u64,
}

impl Dimensions {
    /// The weights of one layer: names and shapes.
    fn layer(&self) -> [(&'static str, Vec<u64>); 9] {
        let Self {
            width,
            inner,
            key_value,
            ..
        } = *self;
        [
            ("input_layernorm.weight", vec![width]),
            ("self_attn.q_proj.weight", vec![width, width]),
            ("self_attn.k_proj.weight", vec![key_value, width]),
            ("self_attn.v_proj.weight", vec![key_value, width]),
            ("self_attn.o_proj.weight", vec![width, width]),
            ("post_attention_layernorm.weight", vec![width]),
            ("mlp.gate_proj.weight", vec![inner, width]),
            ("mlp.up_proj.weight", vec![inner, width]),
            ("mlp.down_proj.weight", vec![width, inner]),
        ]
    }

    /// Every weight, in the order in which a model has them.
    fn weights(&self) -> Vec<(String, Vec<u64>)> {
        let vocabulary = vec![self.vocabulary, self.width];
        let mut weights = vec![("model.embed_tokens.weight".to_owned(), vocabulary.clone())];
        for number in 0..self.layers {
            let named = |(name, shape)| (format!("model.layers.{number}.{name}"), shape);
            weights.extend(self.layer().map(named));
        }
        weights.push(("model.norm.weight".to_owned(), vec![self.width]));
        weights.push(("lm_head.weight".to_owned(), vocabulary));
        weights
    }

    /// The bytes of all layers: what does not depend on the vocabulary, but for a vector.
    fn layers_bytes(&self) -> u128 {
        let weights = self.layer();
        let parameters: u128 = weights
            .iter()
            .map(|(_, shape)| shape.iter().map(|size| u128::from(*size)).product::<u128>())
            .sum();
        let one = parameters * u128::from(PARAMETER_BYTES) + 9 * u128::from(STEP_BYTES);
        one * u128::from(self.layers)
    }

    /// The bytes of the vector behind the layers, and of the steps of what is not in them.
    fn rest_bytes(&self) -> u128 {
        u128::from(self.width * PARAMETER_BYTES + 3 * STEP_BYTES)
    }

    /// What one word of the vocabulary takes, in the embedding and in the head.
    fn word_bytes(&self) -> u128 {
        u128::from(2 * self.width * PARAMETER_BYTES)
    }

    fn bytes(&self) -> u128 {
        self.layers_bytes() + self.rest_bytes() + self.word_bytes() * u128::from(self.vocabulary)
    }

    /// As wide as `width` says, all other widths in proportion.
    fn widened(&self, width: u64, layers: u64) -> Self {
        let in_proportion = |other: u64| {
            let scaled = u128::from(other) * u128::from(width) / u128::from(self.width);
            u64::try_from(scaled)
                .unwrap_or(u64::MAX)
                .next_multiple_of(WIDTH_STEP)
                .max(WIDTH_STEP)
        };
        Self {
            layers,
            width,
            inner: in_proportion(self.inner),
            key_value: in_proportion(self.key_value),
            vocabulary: 1,
        }
    }

    /// Scaled so that a checkpoint has `bytes` bytes, near enough.
    fn scaled(&self, bytes: u64) -> Self {
        let wanted = u128::from(bytes);
        let factor = (bytes as f64 / self.bytes() as f64).cbrt();
        let layers = whole(self.layers as f64 * factor).max(1);
        // Layers keep their share of the total. The widest that does not go beyond it is looked
        // for between the bounds, in steps; the cost grows with the width, so halving finds it.
        let share = self.layers_bytes() * wanted / self.bytes();
        let (mut fits, mut too_wide) = (1, 1 << 16);
        while too_wide - fits > 1 {
            let middle = fits + (too_wide - fits) / 2;
            if self.widened(middle * WIDTH_STEP, layers).layers_bytes() <= share {
                fits = middle;
            } else {
                too_wide = middle;
            }
        }
        let mut scaled = self.widened(fits * WIDTH_STEP, layers);
        let left = wanted.saturating_sub(scaled.layers_bytes() + scaled.rest_bytes());
        let words = (left + scaled.word_bytes() / 2) / scaled.word_bytes();
        scaled.vocabulary = u64::try_from(words).unwrap_or(u64::MAX).max(1);
        scaled
    }
}

/// One tensor of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorSpec {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Its dimensions.
    pub shape: Vec<u64>,
    /// Its bytes.
    pub bytes: u64,
}

impl TensorSpec {
    fn new(name: String, dtype: DType, shape: Vec<u64>) -> Self {
        let bytes = shape.iter().product::<u64>() * u64::from(dtype.bits() / 8);
        Self {
            name,
            dtype,
            shape,
            bytes,
        }
    }
}

/// The tensors of one checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    shape: ModelShape,
    tensors: Vec<TensorSpec>,
    layers: u64,
    width: u64,
}

impl Model {
    /// A model whose checkpoint has about `bytes` bytes, and one tensor of
    /// [`FULL_TENSOR_BYTES`] besides, if `full_tensor` says so.
    ///
    /// # Errors
    ///
    /// Less than [`SIZE_BYTES_MIN`], or more than 1 PiB.
    pub fn new(shape: ModelShape, bytes: u64, full_tensor: bool) -> Result<Self> {
        if !(SIZE_BYTES_MIN..=1 << 50).contains(&bytes) {
            return Err(Error::usage(
                "a checkpoint of a model has from 1m up to 1024t bytes; give another --size",
            ));
        }
        let dimensions = shape.dimensions().scaled(bytes);
        let mut tensors = Vec::new();
        for (name, shape) in dimensions.weights() {
            for part in ["master", "exp_avg", "exp_avg_sq"] {
                let name = format!("optimizer.{part}.{name}");
                tensors.push(TensorSpec::new(name, DType::F32, shape.clone()));
            }
            let step = format!("optimizer.step.{name}");
            tensors.push(TensorSpec::new(step, DType::F32, Vec::new()));
            tensors.push(TensorSpec::new(name, DType::Bf16, shape));
        }
        if full_tensor {
            let shape = vec![FULL_TENSOR_BYTES / 2048, 1024];
            tensors.push(TensorSpec::new(
                "full_tensor".to_owned(),
                DType::Bf16,
                shape,
            ));
        }
        Ok(Self {
            shape,
            tensors,
            layers: dimensions.layers,
            width: dimensions.width,
        })
    }

    /// A part of a model that is known by its tensors alone: what one of several ranks has.
    pub(crate) fn of_tensors(tensors: Vec<TensorSpec>) -> Self {
        Self {
            shape: ModelShape::B8,
            tensors,
            layers: 0,
            width: 0,
        }
    }

    /// Which model it is.
    pub fn shape(&self) -> ModelShape {
        self.shape
    }

    /// How many layers it has.
    pub fn layers(&self) -> u64 {
        self.layers
    }

    /// How wide its layers are.
    pub fn width(&self) -> u64 {
        self.width
    }

    /// Its tensors.
    pub fn tensors(&self) -> &[TensorSpec] {
        &self.tensors
    }

    /// The bytes of all of them.
    pub fn total_bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.bytes).sum()
    }

    /// The bytes of the largest.
    pub fn largest_bytes(&self) -> u64 {
        let sizes = self.tensors.iter().map(|tensor| tensor.bytes);
        sizes.max().unwrap_or(0)
    }

    /// Deals the tensors to ranks: the largest first, each to whoever has least. Each rank has
    /// the places of its own in [`tensors`](Self::tensors), in order; some may have none.
    pub fn ranks(&self, count: usize) -> Vec<Vec<usize>> {
        let mut ranks = vec![Vec::new(); count.max(1)];
        let mut loads = vec![0_u64; ranks.len()];
        let mut places: Vec<usize> = (0..self.tensors.len()).collect();
        places.sort_by_key(|&place| std::cmp::Reverse(self.tensors[place].bytes));
        for place in places {
            let least = (0..loads.len())
                .min_by_key(|&rank| loads[rank])
                .unwrap_or(0);
            loads[least] += self.tensors[place].bytes;
            ranks[least].push(place);
        }
        ranks.iter_mut().for_each(|rank| rank.sort_unstable());
        ranks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    #[test]
    fn full_sizes_are_those_of_the_models() {
        for (shape, gigabytes) in ModelShape::ALL.into_iter().zip([112, 988, 5681, 16_564]) {
            let found = shape.full_bytes() / 1_000_000_000;
            assert!(
                found.abs_diff(gigabytes) * 100 <= gigabytes,
                "{shape}: {found} GB"
            );
            assert_eq!(shape.name().parse::<ModelShape>().unwrap(), shape);
        }
        assert!("9b".parse::<ModelShape>().is_err());
    }

    #[test]
    fn totals_are_what_was_asked_for_within_one_percent() {
        for shape in ModelShape::ALL {
            for bytes in [32 * MIB, 64 * MIB, 1000 * MIB, GIB, 4 * GIB, 3 << 40] {
                let model = Model::new(shape, bytes, false).unwrap();
                let total = model.total_bytes();
                assert!(
                    total.abs_diff(bytes) <= bytes / 100,
                    "{shape} of {bytes}: {total}"
                );
            }
        }
        assert!(Model::new(ModelShape::B8, MIB - 1, false).is_err());
        // The smallest there is.
        assert!(
            Model::new(ModelShape::T1, MIB, false)
                .unwrap()
                .total_bytes()
                >= MIB / 2
        );
    }

    #[test]
    fn a_model_at_full_size_is_the_one_that_was_published() {
        let shape = ModelShape::B8;
        let model = Model::new(shape, shape.full_bytes(), false).unwrap();
        assert_eq!((model.layers(), model.width()), (32, 4096));
        assert_eq!(model.largest_bytes(), 128_256 * 4096 * 4);
    }

    #[test]
    fn tensors_repeat_have_names_of_their_own_and_the_bytes_of_their_shapes() {
        let model = Model::new(ModelShape::B70, 256 * MIB, true).unwrap();
        assert_eq!(model, Model::new(ModelShape::B70, 256 * MIB, true).unwrap());
        let mut names: Vec<_> = model.tensors().iter().map(|t| &t.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), model.tensors().len());
        for tensor in model.tensors() {
            assert_eq!(
                tensor.dtype.tensor_bytes(&tensor.shape).unwrap(),
                tensor.bytes
            );
        }
        assert!(model.largest_bytes() > 1 << 31);
    }

    #[test]
    fn small_vectors_lie_beside_an_embedding_that_is_many_times_larger() {
        let model = Model::new(ModelShape::B8, 4 * GIB, false).unwrap();
        let sizes = |test: &dyn Fn(u64) -> bool| {
            let tensors = model.tensors().iter();
            tensors.filter(|tensor| test(tensor.bytes)).count()
        };
        assert!(sizes(&|bytes| (1024..16_384).contains(&bytes)) > 20);
        assert!(sizes(&|bytes| bytes > 64 * MIB) >= 6);
    }

    #[test]
    fn ranks_have_every_tensor_once_and_about_as_much() {
        let model = Model::new(ModelShape::B405, 512 * MIB, false).unwrap();
        for count in [1, 3, 8] {
            let ranks = model.ranks(count);
            assert_eq!(ranks.len(), count);
            let mut places: Vec<usize> = ranks.concat();
            places.sort_unstable();
            assert!(places.iter().copied().eq(0..model.tensors().len()));
            let load = |rank: &Vec<usize>| -> u64 {
                rank.iter().map(|&place| model.tensors()[place].bytes).sum()
            };
            let most = ranks.iter().map(load).max().unwrap();
            let share = model.total_bytes() / count as u64;
            assert!(most <= share + share / 10 + model.largest_bytes() / 4);
        }
    }
}
