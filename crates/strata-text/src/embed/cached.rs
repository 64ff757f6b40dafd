//! A bounded cache in front of an embedder. Keys are digests, so that the cache holds no text; an erased text is forgotten
//! (rule E2), also when it is being embedded at that moment.

use super::{EmbedError, Embedder, EmbedderIdentity, Purpose};
use async_trait::async_trait;
use moka::sync::Cache;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Vectors kept by default: 20 MB at 512 dimensions.
pub const DEFAULT_ENTRIES: u64 = 10_000;

type Key = [u8; 32];

/// An embedder with a cache.
#[derive(Debug)]
pub struct Cached<E> {
    inner: E,
    vectors: Cache<Key, Arc<[f32]>>,
    /// Raised by every [`Embedder::forget`]: what was asked for before is not kept afterwards.
    forgotten: AtomicU64,
}

impl<E: Embedder> Cached<E> {
    /// Keeps [`DEFAULT_ENTRIES`] vectors.
    pub fn new(inner: E) -> Self {
        Self::with_entries(inner, DEFAULT_ENTRIES)
    }

    /// Keeps at most `entries` vectors, the least used ones leave; 0 keeps none.
    pub fn with_entries(inner: E, entries: u64) -> Self {
        Self { inner, vectors: Cache::new(entries), forgotten: AtomicU64::new(0) }
    }

    /// Vectors kept now.
    pub fn entries(&self) -> u64 {
        self.vectors.run_pending_tasks();
        self.vectors.entry_count()
    }

    fn key(&self, text: &str, purpose: Purpose) -> Key {
        let mut hasher = blake3::Hasher::new();
        hasher
            .update(self.inner.identity().name.as_bytes())
            .update(&[0])
            .update(purpose.name().as_bytes())
            .update(&[0])
            .update(text.as_bytes());
        *hasher.finalize().as_bytes()
    }
}

#[async_trait]
impl<E: Embedder> Embedder for Cached<E> {
    fn identity(&self) -> &EmbedderIdentity {
        self.inner.identity()
    }

    async fn embed(&self, texts: &[&str], purpose: Purpose) -> Result<Vec<Vec<f32>>, EmbedError> {
        let keys: Vec<Key> = texts.iter().map(|text| self.key(text, purpose)).collect();
        let mut vectors: Vec<Option<Vec<f32>>> = keys.iter().map(|key| self.vectors.get(key).map(|v| v.to_vec())).collect();
        let missing: Vec<usize> = (0..texts.len()).filter(|i| vectors[*i].is_none()).collect();
        if !missing.is_empty() {
            let before = self.forgotten.load(Ordering::Acquire);
            let asked: Vec<&str> = missing.iter().map(|i| texts[*i]).collect();
            let made = self.inner.embed(&asked, purpose).await?;
            if made.len() != asked.len() {
                return Err(EmbedError::Refused("another number of vectors than texts".into()));
            }
            for (i, vector) in missing.into_iter().zip(made) {
                self.vectors.insert(keys[i], Arc::from(vector.as_slice()));
                vectors[i] = Some(vector);
                // Checked after the insert: a forget in between has either raised the number, seen here, or comes later and
                // removes the entry itself.
                if self.forgotten.load(Ordering::Acquire) != before {
                    self.vectors.invalidate(&keys[i]);
                }
            }
        }
        Ok(vectors.into_iter().flatten().collect())
    }

    fn forget(&self, text: &str) {
        self.forgotten.fetch_add(1, Ordering::AcqRel);
        for purpose in [Purpose::Query, Purpose::Document] {
            self.vectors.invalidate(&self.key(text, purpose));
        }
        self.inner.forget(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tokio::sync::Notify;

    /// Counts what it is asked for; waits for a permit when told to.
    #[derive(Debug)]
    struct Fake {
        identity: EmbedderIdentity,
        asked: Mutex<Vec<String>>,
        entered: Notify,
        hold: Option<Notify>,
    }

    impl Fake {
        fn new(hold: bool) -> Self {
            let identity = EmbedderIdentity {
                name: "fake@1".into(),
                dimensions: 2,
                min_similarity: 0.0,
                duplicate_similarity: 1.0,
                conflict_similarity: 0.5,
                topic_similarity: 0.0,
            };
            Self { identity, asked: Mutex::default(), entered: Notify::new(), hold: hold.then(Notify::new) }
        }
        fn asked(&self) -> Vec<String> {
            self.asked.lock().expect("lock").clone()
        }
    }

    #[async_trait]
    impl Embedder for Fake {
        fn identity(&self) -> &EmbedderIdentity {
            &self.identity
        }
        async fn embed(&self, texts: &[&str], _: Purpose) -> Result<Vec<Vec<f32>>, EmbedError> {
            self.asked.lock().expect("lock").extend(texts.iter().map(|t| (*t).to_owned()));
            self.entered.notify_one();
            if let Some(hold) = &self.hold {
                hold.notified().await;
            }
            Ok(texts.iter().map(|t| vec![t.len() as f32, 0.0]).collect())
        }
    }

    #[tokio::test]
    async fn answers_in_order_and_asks_once() {
        let cached = Cached::new(Fake::new(false));
        assert_eq!(cached.embed(&["a", "bb"], Purpose::Query).await.expect("vectors"), [[1.0, 0.0], [2.0, 0.0]]);
        assert_eq!(
            cached.embed(&["bb", "ccc", "a"], Purpose::Query).await.expect("vectors"),
            [[2.0, 0.0], [3.0, 0.0], [1.0, 0.0]]
        );
        assert_eq!(cached.inner.asked(), ["a", "bb", "ccc"]);
        // A query is not a document.
        cached.embed(&["a"], Purpose::Document).await.expect("vectors");
        assert_eq!(cached.inner.asked().len(), 4);
    }

    #[tokio::test]
    async fn e2_a_forgotten_text_is_embedded_anew() {
        let cached = Cached::new(Fake::new(false));
        for purpose in [Purpose::Query, Purpose::Document] {
            cached.embed(&["a", "b"], purpose).await.expect("vectors");
        }
        cached.forget("a");
        assert_eq!(cached.entries(), 2);
        cached.embed(&["a", "b"], Purpose::Document).await.expect("vectors");
        assert_eq!(cached.inner.asked().len(), 5);
    }

    #[tokio::test]
    async fn e2_a_text_forgotten_while_it_is_embedded_is_not_kept() {
        let cached = Cached::new(Fake::new(true));
        let embedding = cached.embed(&["a"], Purpose::Document);
        let forgetting = async {
            cached.inner.entered.notified().await;
            cached.forget("a");
            cached.inner.hold.as_ref().expect("holds").notify_one();
        };
        let (vectors, ()) = tokio::join!(embedding, forgetting);
        assert_eq!(vectors.expect("vectors").len(), 1);
        assert_eq!(cached.entries(), 0);
    }

    #[tokio::test]
    async fn the_cache_is_bounded() {
        let cached = Cached::with_entries(Fake::new(false), 3);
        for text in ["a", "b", "c", "d", "e", "f"] {
            cached.embed(&[text], Purpose::Query).await.expect("vectors");
        }
        assert!(cached.entries() <= 3);
    }
}
