//! A second look at what was found (rule R9): a cross-encoder behind `POST {base}/rerank`, as TEI, vLLM, Jina and Cohere
//! serve it. It only orders; whether and where it is asked is the caller's.

use crate::http::{Failure, Provider};
use crate::tokens;
use async_trait::async_trait;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Bytes of an answer that are read: a hundred scores, even if a provider sends the texts back.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;
/// Texts of one call at most.
pub const MAX_TEXTS: usize = 200;

/// Why there is no order. Says nothing of the texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RerankError {
    /// The provider does not answer or answers with a failure that may pass.
    #[error("reranker: {0}")]
    Unavailable(String),
    /// The provider or the configuration is not what is expected; a retry does not help.
    #[error("reranker: {0}")]
    Refused(String),
}

impl From<Failure> for RerankError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unavailable { what, .. } => Self::Unavailable(what),
            Failure::Refused(what) => Self::Refused(what),
        }
    }
}

/// Scores texts against a query.
#[async_trait]
pub trait Reranker: Send + Sync + fmt::Debug {
    /// One finite score per text, in order: the higher, the more relevant. Scores of different calls are not comparable.
    ///
    /// # Errors
    /// [`RerankError`]; all texts or none.
    async fn score(&self, query: &str, texts: &[&str]) -> Result<Vec<f64>, RerankError>;
}

/// How to reach the provider.
#[derive(Clone, Debug)]
pub struct HttpRerankerConfig {
    /// Up to and without `/rerank`, such as `http://tei:8080` or `https://api.jina.ai/v1`.
    pub base_url: String,
    /// Bearer token; none for a provider without keys.
    pub api_key: Option<SecretString>,
    /// Name of the model; none for a server of one model (TEI).
    pub model: Option<String>,
    /// Tokens of a text that are sent, by the documented estimator; the rest is cut.
    pub max_tokens: u32,
    /// Of the one call that is made: an answer waits for it, so there is no second try.
    pub timeout: Duration,
}

impl HttpRerankerConfig {
    /// A configuration with the usual values for the rest.
    pub fn new(base_url: impl Into<String>) -> Self {
        Self { base_url: base_url.into(), api_key: None, model: None, max_tokens: 512, timeout: Duration::from_secs(2) }
    }
}

/// The client.
#[derive(Debug)]
pub struct HttpReranker {
    provider: Provider,
    model: Option<String>,
    max_tokens: u32,
}

/// `documents` is the field of Jina, Cohere and vLLM, who want a model; `texts` that of TEI, which has one.
#[derive(Serialize)]
struct Request<'a> {
    query: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    documents: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    texts: Option<&'a [String]>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Results { results: Vec<Item> },
    Bare(Vec<Item>),
}

#[derive(Deserialize)]
struct Item {
    index: usize,
    #[serde(alias = "relevance_score")]
    score: f64,
}

impl HttpReranker {
    /// Checks the configuration; calls nobody.
    ///
    /// # Errors
    /// [`RerankError::Refused`] naming the setting that is out of range.
    pub fn new(config: HttpRerankerConfig) -> Result<Self, RerankError> {
        let refused = |what: &str| RerankError::Refused(what.to_owned());
        if config.max_tokens == 0 || config.timeout.is_zero() || config.model.as_ref().is_some_and(String::is_empty) {
            return Err(refused("max_tokens and timeout are above 0, a model has a name"));
        }
        let provider = Provider::new(&config.base_url, "rerank", config.api_key, config.timeout).map_err(refused)?;
        Ok(Self { provider, model: config.model, max_tokens: config.max_tokens })
    }
}

#[async_trait]
impl Reranker for HttpReranker {
    async fn score(&self, query: &str, texts: &[&str]) -> Result<Vec<f64>, RerankError> {
        let refused = |what: &str| RerankError::Refused(what.to_owned());
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        if texts.len() > MAX_TEXTS {
            return Err(refused("more texts than one call takes"));
        }
        let texts: Vec<String> = texts.iter().map(|text| tokens::cut(text, self.max_tokens).to_owned()).collect();
        let model = self.model.as_deref();
        let body = Request {
            query: tokens::cut(query, self.max_tokens),
            model,
            documents: model.map(|_| &*texts),
            texts: model.is_none().then_some(&*texts),
        };
        let answer: Answer = self.provider.post(&body, MAX_ANSWER_BYTES).await?;
        let (Answer::Results { results: items } | Answer::Bare(items)) = answer;
        let mut scores = vec![f64::NAN; texts.len()];
        for item in items {
            match scores.get_mut(item.index) {
                Some(score) if score.is_nan() => *score = item.score,
                _ => return Err(refused("a score for a text that was not sent, or two for one")),
            }
        }
        if scores.iter().any(|score| !score.is_finite()) {
            return Err(refused("another number of scores than texts"));
        }
        Ok(scores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::testing::provider;
    use serde_json::{Value, json};

    fn config(base: &str) -> HttpRerankerConfig {
        HttpRerankerConfig { timeout: Duration::from_secs(5), ..HttpRerankerConfig::new(base) }
    }

    /// Scores by place, in reverse order.
    fn bare(body: &Value) -> Value {
        let count = body["texts"].as_array().map_or(0, Vec::len);
        (0..count).rev().map(|i| json!({"index": i, "score": i as f64 / 4.0})).collect()
    }

    fn results(body: &Value) -> Value {
        let count = body["documents"].as_array().map_or(0, Vec::len);
        let of = |i| json!({"index": i, "relevance_score": -(i as f64), "document": {"text": "x"}});
        json!({"model": "m", "results": (0..count).map(of).collect::<Vec<_>>()})
    }

    #[tokio::test]
    async fn r9_both_forms_of_the_interface_are_spoken() {
        let (base, seen) = provider(vec![("200 OK", Value::Null)], bare);
        let reranker = HttpReranker::new(config(&base)).expect("config");
        assert_eq!(reranker.score("忌口?", &["a", "不吃辣", "👍"]).await, Ok(vec![0.0, 0.25, 0.5]));
        assert_eq!(reranker.score("q", &[]).await, Ok(vec![]));
        {
            let seen = seen.lock().expect("lock");
            assert_eq!(seen.len(), 1, "nobody is asked about nothing");
            assert!(seen[0].0.starts_with("post /v1/rerank") && !seen[0].0.contains("authorization"));
            assert_eq!(seen[0].1, json!({"query": "忌口?", "texts": ["a", "不吃辣", "👍"]}));
        }
        let (base, seen) = provider(vec![("200 OK", Value::Null)], results);
        let key = Some(SecretString::from("k-123"));
        let reranker =
            HttpReranker::new(HttpRerankerConfig { api_key: key, model: Some("m".into()), ..config(&base) }).expect("config");
        assert!(!format!("{reranker:?}").contains("k-123"));
        assert_eq!(reranker.score("q", &["a", "b"]).await, Ok(vec![-0.0, -1.0]));
        let seen = seen.lock().expect("lock");
        assert!(seen[0].0.contains("authorization: bearer k-123"));
        assert_eq!(seen[0].1, json!({"query": "q", "model": "m", "documents": ["a", "b"]}));
    }

    #[tokio::test]
    async fn r9_a_failure_or_a_strange_answer_is_no_order() {
        let unavailable = |text: &str| RerankError::Unavailable(text.into());
        let refused = |text: &str| RerankError::Refused(text.into());
        let (unknown, few) = ("a score for a text that was not sent, or two for one", "another number of scores than texts");
        for (status, answer, error) in [
            ("503 Service Unavailable", json!({}), unavailable("status 503")),
            ("429 Too Many Requests", json!({}), unavailable("status 429")),
            ("401 Unauthorized", json!({"error": "bad key k-1"}), refused("status 401")),
            ("302 Found\r\nlocation: http://127.0.0.1:1/", json!({}), refused("status 302")),
            ("200 OK", json!([{"index": 0, "score": 1.0}]), refused(few)),
            ("200 OK", json!([{"index": 0, "score": 1.0}, {"index": 0, "score": 1.0}]), refused(unknown)),
            ("200 OK", json!([{"index": 7, "score": 1.0}]), refused(unknown)),
            ("200 OK", json!("hello"), refused("the answer has another form")),
        ] {
            let (base, seen) = provider(vec![(status, answer)], bare);
            let reranker = HttpReranker::new(config(&base)).expect("config");
            assert_eq!(reranker.score("q", &["a", "b"]).await, Err(error), "{status}");
            assert_eq!(seen.lock().expect("lock").len(), 1, "{status}: one try");
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("port");
        let base = format!("http://{}", listener.local_addr().expect("address"));
        let slow = HttpReranker::new(HttpRerankerConfig { timeout: Duration::from_millis(50), ..config(&base) }).expect("config");
        assert_eq!(slow.score("q", &["a"]).await, Err(unavailable("no answer in time")));
        drop(listener);
        let nobody = HttpReranker::new(config(&base)).expect("config");
        assert_eq!(nobody.score("q", &["a"]).await, Err(unavailable("not reachable")));
    }

    #[test]
    fn settings_are_checked() {
        for config in [
            HttpRerankerConfig::new("nonsense"),
            HttpRerankerConfig::new("ftp://host"),
            HttpRerankerConfig::new("https://user:pw@host"),
            HttpRerankerConfig { max_tokens: 0, ..HttpRerankerConfig::new("https://host") },
            HttpRerankerConfig { timeout: Duration::ZERO, ..HttpRerankerConfig::new("https://host") },
            HttpRerankerConfig { model: Some(String::new()), ..HttpRerankerConfig::new("https://host") },
        ] {
            assert!(matches!(HttpReranker::new(config), Err(RerankError::Refused(_))));
        }
    }
}
