//! From a text to a vector. Vectors are unit length, so that a dot product is their cosine; the identity of the embedder
//! is stored with each and identities never mix in one index.

pub mod builtin;
pub mod cached;
pub mod caller;
pub mod openai;

pub use builtin::Builtin;
pub use cached::Cached;
pub use caller::Caller;
pub use openai::{OpenAi, OpenAiConfig};

use async_trait::async_trait;
use std::fmt;

/// What a text is embedded for: some models put different words before each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// It is searched for.
    Query,
    /// It is searched in.
    Document,
}

impl Purpose {
    /// Stable lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Document => "document",
        }
    }
}

/// Which model makes the vectors, and what its cosines mean. Thresholds belong to the model: cosines of different models
/// are not comparable.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbedderIdentity {
    /// Model and digest, such as `use-multilingual-v3@0db566fd`; stored with every vector.
    pub name: String,
    /// Length of a vector.
    pub dimensions: usize,
    /// Least cosine of a relevant hit (rule R3).
    pub min_similarity: f32,
    /// Least cosine of two wordings of one statement (rule R11).
    pub duplicate_similarity: f32,
    /// Least cosine of two statements about one thing, which may contradict (rule K0).
    pub conflict_similarity: f32,
    /// Least cosine of a turn with the mean of the last turns of its own topic (rule S7).
    pub topic_similarity: f32,
}

/// Why no vector was made. Says nothing of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// The model's files are absent, altered, or not what the loader expects.
    #[error("embedding model: {0}")]
    Model(String),
    /// The provider does not answer or answers with a failure that may pass; retry later.
    #[error("embedding provider: {0}")]
    Unavailable(String),
    /// The provider refuses, or its answer has another form or dimension than expected; a retry does not help.
    #[error("embedding provider: {0}")]
    Refused(String),
    /// Too many texts wait; retry later.
    #[error("embedding queue is full")]
    Overloaded,
}

/// Makes vectors.
#[async_trait]
pub trait Embedder: Send + Sync + fmt::Debug {
    /// Which model.
    fn identity(&self) -> &EmbedderIdentity;

    /// One vector of unit length per text, in order. An empty list gives an empty list.
    ///
    /// # Errors
    /// [`EmbedError`]; all texts or none.
    async fn embed(&self, texts: &[&str], purpose: Purpose) -> Result<Vec<Vec<f32>>, EmbedError>;

    /// Whether the vectors are the caller's: they come with the requests, and [`Self::embed`] makes none.
    fn is_caller(&self) -> bool {
        false
    }

    /// Drops what is kept of a text (rule E2); nothing for an embedder without a cache.
    fn forget(&self, _text: &str) {}
}

/// Cosine of two vectors of equal length, clamped to -1..1 and rounded to 1e-4, so that two indexes rank alike (rule R4).
/// Vectors of unequal length, and a vector of length zero, have cosine 0.
#[must_use]
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    if a.len() != b.len() {
        return 0.0;
    }
    let (mut dot, mut aa, mut bb) = (0.0_f64, 0.0_f64, 0.0_f64);
    for (x, y) in a.iter().zip(b) {
        let (x, y) = (f64::from(*x), f64::from(*y));
        dot += x * y;
        aa += x * x;
        bb += y * y;
    }
    let length = (aa * bb).sqrt();
    if length <= 0.0 || !length.is_finite() || !dot.is_finite() {
        return 0.0;
    }
    round_similarity((dot / length) as f32)
}

/// A cosine from an index, clamped and rounded as [`cosine`] does.
#[must_use]
pub fn round_similarity(cosine: f32) -> f32 {
    if cosine.is_nan() { 0.0 } else { (cosine.clamp(-1.0, 1.0) * 10_000.0).round() / 10_000.0 }
}

/// Scales to unit length; a zero or non-finite vector stays as it is and `false` is returned.
pub fn normalise(vector: &mut [f32]) -> bool {
    let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    if !length.is_finite() || length <= f64::EPSILON {
        return false;
    }
    vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r4_cosine_is_clamped_and_rounded() {
        assert_eq!(cosine(&[1.0, 0.0], &[1.0, 0.0]), 1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[-1.0, 0.0]), -1.0);
        assert_eq!(cosine(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), 0.7143);
        assert_eq!(cosine(&[0.0, 0.0], &[1.0, 0.0]), 0.0);
        assert_eq!(cosine(&[1.0], &[1.0, 0.0]), 0.0);
        assert_eq!(cosine(&[f32::NAN], &[1.0]), 0.0);
        assert_eq!(round_similarity(1.000_000_7), 1.0);
        let mut zero = [0.0, 0.0];
        assert!(!normalise(&mut zero));
    }
}
