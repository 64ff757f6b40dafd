//! Vectors that callers make themselves and send with their statements and queries.

use super::{EmbedError, Embedder, EmbedderIdentity, Purpose};
use async_trait::async_trait;

/// Stands for the callers' embedder: knows its name and dimensions, makes no vector. What comes without one is found by its
/// words.
#[derive(Clone, Debug, PartialEq)]
pub struct Caller {
    identity: EmbedderIdentity,
}

impl Caller {
    /// An embedder of this name and dimension. The thresholds are those of a general model: cosines of theirs are not known
    /// here.
    #[must_use]
    pub fn new(name: impl Into<String>, dimensions: usize) -> Self {
        Self {
            identity: EmbedderIdentity {
                name: name.into(),
                dimensions,
                min_similarity: 0.3,
                duplicate_similarity: 0.95,
                conflict_similarity: 0.7,
                topic_similarity: 0.0,
            },
        }
    }
}

#[async_trait]
impl Embedder for Caller {
    fn identity(&self) -> &EmbedderIdentity {
        &self.identity
    }

    async fn embed(&self, _texts: &[&str], _purpose: Purpose) -> Result<Vec<Vec<f32>>, EmbedError> {
        Err(EmbedError::Refused("vectors come with the requests".to_owned()))
    }

    fn is_caller(&self) -> bool {
        true
    }
}
