//! A remote embedder with the interface of OpenAI: `POST {base}/embeddings`. Served by OpenAI, Ollama, vLLM, TEI and others.

use super::{EmbedError, Embedder, EmbedderIdentity, Purpose, normalise};
use crate::http::{Failure, Provider};
use crate::tokens;
use async_trait::async_trait;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Bytes of an answer that are read: 256 vectors of 4,096 numbers as text stay under it.
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;
/// Longest pause before a retry, whatever the provider asks for: the caller has a deadline.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// First pause before a retry; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// How to reach the provider, and what its model is.
#[derive(Clone, Debug)]
pub struct OpenAiConfig {
    /// Up to and without `/embeddings`, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// Bearer token; none for a provider without keys.
    pub api_key: Option<SecretString>,
    /// Name of the model, sent to the provider.
    pub model: String,
    /// Length of a vector, 1 to `limits::VECTOR_DIMS`; an answer of another length is refused.
    pub dimensions: usize,
    /// Ask the provider for that length; off for providers that know no such field.
    pub send_dimensions: bool,
    /// Texts in one call, 1 to 256; providers allow 32 at least.
    pub batch: usize,
    /// Tokens of a text that are sent, by the documented estimator; the rest is cut.
    pub max_tokens: u32,
    /// Put before a query, such as `query: `.
    pub query_prefix: String,
    /// Put before a document, such as `passage: `.
    pub document_prefix: String,
    /// Of one call, without retries.
    pub timeout: Duration,
    /// Further tries after 429, 5xx, or no answer; at most 5.
    pub retries: u32,
    /// Thresholds of the model (see [`EmbedderIdentity`]).
    pub min_similarity: f32,
    /// See [`EmbedderIdentity::duplicate_similarity`].
    pub duplicate_similarity: f32,
    /// See [`EmbedderIdentity::conflict_similarity`].
    pub conflict_similarity: f32,
    /// See [`EmbedderIdentity::topic_similarity`].
    pub topic_similarity: f32,
}

impl OpenAiConfig {
    /// A configuration with the usual values for the rest.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>, dimensions: usize) -> Self {
        Self {
            base_url: base_url.into(),
            api_key: None,
            model: model.into(),
            dimensions,
            send_dimensions: false,
            batch: 32,
            max_tokens: 2_000,
            query_prefix: String::new(),
            document_prefix: String::new(),
            timeout: Duration::from_secs(10),
            retries: 2,
            min_similarity: 0.3,
            duplicate_similarity: 0.95,
            conflict_similarity: 0.7,
            topic_similarity: 0.3,
        }
    }
}

/// The embedder.
#[derive(Debug)]
pub struct OpenAi {
    identity: EmbedderIdentity,
    config: OpenAiConfig,
    provider: Provider,
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    input: &'a [String],
    encoding_format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<usize>,
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    index: usize,
    embedding: Vec<f32>,
}

impl OpenAi {
    /// Checks the configuration; calls nobody.
    ///
    /// # Errors
    /// [`EmbedError::Refused`] naming the setting that is out of range.
    pub fn new(config: OpenAiConfig) -> Result<Self, EmbedError> {
        let refused = |what: &str| EmbedError::Refused(what.to_owned());
        let key = config.api_key.clone();
        let provider = Provider::new(&config.base_url, "embeddings", key, config.timeout).map_err(refused)?;
        if config.model.is_empty() {
            return Err(refused("model is required"));
        }
        if !(1..=strata_core::limits::VECTOR_DIMS).contains(&config.dimensions) {
            return Err(refused("dimensions is out of range"));
        }
        if !(1..=256).contains(&config.batch) || config.retries > 5 || config.max_tokens == 0 || config.timeout.is_zero() {
            return Err(refused("batch is 1 to 256, retries at most 5, max_tokens and timeout above 0"));
        }
        let identity = EmbedderIdentity {
            name: format!("{}@{}", config.model, config.dimensions),
            dimensions: config.dimensions,
            min_similarity: config.min_similarity,
            duplicate_similarity: config.duplicate_similarity,
            conflict_similarity: config.conflict_similarity,
            topic_similarity: config.topic_similarity,
        };
        Ok(Self { identity, config, provider })
    }

    /// Embeds one text and so checks key, model and dimension; for start-up.
    ///
    /// # Errors
    /// As [`Embedder::embed`].
    pub async fn probe(&self) -> Result<(), EmbedError> {
        self.embed(&["probe"], Purpose::Query).await.map(drop)
    }

    async fn call(&self, input: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let mut pause = FIRST_PAUSE;
        let mut tries_left = self.config.retries;
        loop {
            let failure = match self.attempt(input).await {
                Ok(vectors) => return Ok(vectors),
                Err(Attempt::Final(error)) => return Err(error),
                Err(Attempt::Passing(error, asked)) => {
                    pause = asked.unwrap_or(pause).min(MAX_PAUSE);
                    error
                }
            };
            if tries_left == 0 {
                return Err(failure);
            }
            tries_left -= 1;
            wait(pause).await;
            pause *= 2;
        }
    }

    async fn attempt(&self, input: &[String]) -> Result<Vec<Vec<f32>>, Attempt> {
        let body = Request {
            model: &self.config.model,
            input,
            encoding_format: "float",
            dimensions: self.config.send_dimensions.then_some(self.config.dimensions),
        };
        let answer: Answer = self.provider.post(&body, MAX_ANSWER_BYTES).await.map_err(|failure| match failure {
            Failure::Unavailable { what, wait } => {
                tracing::warn!(%what, "the embedding provider does not answer");
                Attempt::Passing(EmbedError::Unavailable(what), wait)
            }
            Failure::Refused(what) => Attempt::Final(EmbedError::Refused(what)),
        })?;
        self.vectors(answer, input.len()).map_err(Attempt::Final)
    }

    fn vectors(&self, answer: Answer, expected: usize) -> Result<Vec<Vec<f32>>, EmbedError> {
        let refused = |what: &str| EmbedError::Refused(what.to_owned());
        let mut items = answer.data;
        items.sort_by_key(|item| item.index);
        if items.len() != expected || items.iter().enumerate().any(|(i, item)| item.index != i) {
            return Err(refused("another number of vectors than texts"));
        }
        items
            .into_iter()
            .map(|item| {
                let mut vector = item.embedding;
                if vector.len() != self.config.dimensions {
                    return Err(refused("a vector of another dimension than configured"));
                }
                if !normalise(&mut vector) {
                    return Err(refused("a vector without length"));
                }
                Ok(vector)
            })
            .collect()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "at most five bounded pauses inside a call that ends when its caller drops it; this crate stands below the runtime"
)]
async fn wait(pause: Duration) {
    tokio::time::sleep(pause).await;
}

enum Attempt {
    Final(EmbedError),
    /// May pass; how long the provider asks to wait.
    Passing(EmbedError, Option<Duration>),
}

#[async_trait]
impl Embedder for OpenAi {
    fn identity(&self) -> &EmbedderIdentity {
        &self.identity
    }

    async fn embed(&self, texts: &[&str], purpose: Purpose) -> Result<Vec<Vec<f32>>, EmbedError> {
        let prefix = match purpose {
            Purpose::Query => &self.config.query_prefix,
            Purpose::Document => &self.config.document_prefix,
        };
        let inputs: Vec<String> =
            texts.iter().map(|text| format!("{prefix}{}", tokens::cut(text, self.config.max_tokens))).collect();
        let mut vectors = Vec::with_capacity(texts.len());
        for batch in inputs.chunks(self.config.batch) {
            vectors.extend(self.call(batch).await?);
        }
        Ok(vectors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::testing::{self, Seen};
    use serde_json::{Value, json};
    use tokio::net::TcpListener;

    /// A provider whose proper answer, `null`, comes in reverse order.
    fn provider(answers: Vec<(&'static str, Value)>) -> (String, Seen) {
        testing::provider(answers, |body| {
            let count = body["input"].as_array().map_or(0, Vec::len);
            let of = |i: usize| json!({"index": i, "embedding": [3.0, 4.0 * i as f32]});
            json!({"data": (0..count).rev().map(of).collect::<Vec<_>>()})
        })
    }

    fn config(base: &str) -> OpenAiConfig {
        OpenAiConfig { timeout: Duration::from_secs(5), ..OpenAiConfig::new(base, "m1", 2) }
    }

    #[tokio::test]
    async fn vectors_come_in_order_at_unit_length_in_batches() {
        let (base, seen) = provider(vec![("200 OK", Value::Null)]);
        let key = Some(SecretString::from("k-123"));
        let config =
            OpenAiConfig { api_key: key, batch: 2, query_prefix: "query: ".into(), send_dimensions: true, ..config(&base) };
        let embedder = OpenAi::new(config).expect("config");
        assert!(!format!("{embedder:?}").contains("k-123"));
        let vectors = embedder.embed(&["a", "b", "不吃辣"], Purpose::Query).await.expect("vectors");
        assert_eq!(vectors, [vec![1.0, 0.0], vec![0.6, 0.8], vec![1.0, 0.0]]);
        let seen = seen.lock().expect("lock");
        assert_eq!(seen.len(), 2);
        assert!(seen[0].0.starts_with("post /v1/embeddings") && seen[0].0.contains("authorization: bearer k-123"));
        assert_eq!(
            seen[0].1,
            json!({"model": "m1", "input": ["query: a", "query: b"], "encoding_format": "float", "dimensions": 2})
        );
        assert_eq!(seen[1].1["input"], json!(["query: 不吃辣"]));
    }

    #[tokio::test]
    async fn passing_failures_are_tried_again_and_then_reported() {
        let (base, seen) = provider(vec![
            ("429 Too Many Requests\r\nretry-after: 0", json!({})),
            ("503 Service Unavailable", json!({})),
            ("200 OK", Value::Null),
        ]);
        let embedder = OpenAi::new(config(&base)).expect("config");
        assert_eq!(embedder.embed(&["a"], Purpose::Document).await.expect("third try").len(), 1);
        assert_eq!(seen.lock().expect("lock").len(), 3);

        let (base, seen) = provider(vec![("500 Internal Server Error", json!({"secret": "x"}))]);
        let embedder = OpenAi::new(OpenAiConfig { retries: 1, ..config(&base) }).expect("config");
        assert_eq!(embedder.embed(&["a"], Purpose::Query).await, Err(EmbedError::Unavailable("status 500".into())));
        assert_eq!(seen.lock().expect("lock").len(), 2);
    }

    #[tokio::test]
    async fn a_refusal_or_a_strange_answer_is_final() {
        for (status, answer, says) in [
            ("401 Unauthorized", json!({"error": "bad key k-1"}), "status 401"),
            ("302 Found\r\nlocation: http://127.0.0.1:1/", json!({}), "status 302"),
            ("200 OK", json!({"data": []}), "another number of vectors than texts"),
            ("200 OK", json!({"data": [{"index": 1, "embedding": [1.0, 0.0]}]}), "another number of vectors than texts"),
            ("200 OK", json!({"data": [{"index": 0, "embedding": [1.0]}]}), "a vector of another dimension than configured"),
            ("200 OK", json!({"data": [{"index": 0, "embedding": [0.0, 0.0]}]}), "a vector without length"),
            ("200 OK", json!("hello"), "the answer has another form"),
        ] {
            let (base, seen) = provider(vec![(status, answer)]);
            let embedder = OpenAi::new(config(&base)).expect("config");
            assert_eq!(embedder.embed(&["a"], Purpose::Query).await, Err(EmbedError::Refused(says.into())), "{status}");
            assert_eq!(seen.lock().expect("lock").len(), 1, "{status}");
        }
    }

    #[tokio::test]
    async fn nobody_there_is_unavailable() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
        let base = format!("http://{}", listener.local_addr().expect("address"));
        drop(listener);
        let embedder = OpenAi::new(OpenAiConfig { retries: 0, ..config(&base) }).expect("config");
        assert_eq!(embedder.probe().await, Err(EmbedError::Unavailable("not reachable".into())));
    }

    #[test]
    fn settings_are_checked() {
        for config in [
            OpenAiConfig::new("nonsense", "m", 2),
            OpenAiConfig::new("ftp://host/v1", "m", 2),
            OpenAiConfig::new("https://user:pw@host/v1", "m", 2),
            OpenAiConfig::new("https://host/v1", "", 2),
            OpenAiConfig::new("https://host/v1", "m", 0),
            OpenAiConfig { batch: 0, ..OpenAiConfig::new("https://host/v1", "m", 2) },
            OpenAiConfig { retries: 6, ..OpenAiConfig::new("https://host/v1", "m", 2) },
        ] {
            assert!(matches!(OpenAi::new(config), Err(EmbedError::Refused(_))));
        }
    }
}
