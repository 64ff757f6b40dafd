//! What the clients of remote providers share: addresses that are checked once, JSON there and back, answers of bounded size.

use reqwest::{Client, Response, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Why a provider gave no answer that can be used. Says nothing of what it was sent.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It does not answer, or with a failure that may pass.
    Unavailable {
        /// What happened.
        what: String,
        /// How long it asks to wait.
        wait: Option<Duration>,
    },
    /// It, or its answer, is not what is expected; a retry does not help.
    Refused(String),
}

impl Failure {
    fn unavailable(what: impl Into<String>) -> Self {
        Self::Unavailable { what: what.into(), wait: None }
    }

    pub(crate) fn refused(what: impl Into<String>) -> Self {
        Self::Refused(what.into())
    }
}

/// One address of a provider, behind its key.
#[derive(Clone, Debug)]
pub(crate) struct Provider {
    endpoint: Url,
    key: Option<SecretString>,
    client: Client,
}

impl Provider {
    /// `path` under a base. Calls nobody.
    ///
    /// # Errors
    /// What is wrong with the base.
    pub(crate) fn new(base: &str, path: &str, key: Option<SecretString>, timeout: Duration) -> Result<Self, &'static str> {
        Ok(Self { endpoint: endpoint(base, path)?, key, client: client(timeout)? })
    }

    /// Posts JSON, once, and reads an answer of at most `most` bytes.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn post<A: DeserializeOwned>(&self, body: &(impl Serialize + Sync), most: usize) -> Result<A, Failure> {
        let mut request = self.client.post(self.endpoint.clone()).json(body);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key.expose_secret());
        }
        let response = request
            .send()
            .await
            .map_err(|error| Failure::unavailable(if error.is_timeout() { "no answer in time" } else { "not reachable" }))?;
        let status = response.status();
        if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            let header = response.headers().get(reqwest::header::RETRY_AFTER);
            let wait = header.and_then(|v| v.to_str().ok()?.parse().ok()).map(Duration::from_secs);
            return Err(Failure::Unavailable { what: format!("status {}", status.as_u16()), wait });
        }
        if !status.is_success() {
            return Err(Failure::refused(format!("status {}", status.as_u16())));
        }
        let content = content(response, most).await.map_err(|unread| match unread {
            Unread::BrokeOff => Failure::unavailable("the answer broke off"),
            Unread::TooLarge => Failure::refused("the answer is too large"),
        })?;
        serde_json::from_slice(&content).map_err(|_| Failure::refused("the answer has another form"))
    }
}

/// The address of `path` under a base.
///
/// # Errors
/// What is wrong with the base.
fn endpoint(base: &str, path: &str) -> Result<Url, &'static str> {
    let endpoint = Url::parse(&format!("{}/{path}", base.trim_end_matches('/'))).map_err(|_| "base_url is no URL")?;
    if !matches!(endpoint.scheme(), "http" | "https") || !endpoint.username().is_empty() || endpoint.password().is_some() {
        return Err("base_url is an http or https URL without a user");
    }
    Ok(endpoint)
}

/// A client that follows no redirect: it would carry the key to another host.
///
/// # Errors
/// When none can be made.
fn client(timeout: Duration) -> Result<Client, &'static str> {
    // A second installation is refused and changes nothing.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .timeout(timeout)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|_| "no HTTP client can be made")
}

/// Reads a text of at most `most` bytes from an address.
///
/// # Errors
/// What went wrong, without the address: it may hold a secret.
pub async fn fetch(url: &str, timeout: Duration, most: usize) -> Result<String, String> {
    let url = Url::parse(url).map_err(|_| "the address is none".to_owned())?;
    let answer = client(timeout)?.get(url).send().await.map_err(|_| "the server does not answer".to_owned())?;
    if !answer.status().is_success() {
        return Err(format!("the server answers {}", answer.status().as_u16()));
    }
    let content = content(answer, most).await.map_err(|unread| match unread {
        Unread::BrokeOff => "the answer broke off",
        Unread::TooLarge => "the answer is too large",
    })?;
    String::from_utf8(content).map_err(|_| "the answer is no text".to_owned())
}

/// Why an answer could not be read.
enum Unread {
    /// It ended early.
    BrokeOff,
    /// It is larger than the bound.
    TooLarge,
}

/// Reads an answer of at most `most` bytes.
///
/// # Errors
/// [`Unread`].
async fn content(mut response: Response, most: usize) -> Result<Vec<u8>, Unread> {
    let mut content = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| Unread::BrokeOff)? {
        content.extend_from_slice(&chunk);
        if content.len() > most {
            return Err(Unread::TooLarge);
        }
    }
    Ok(content)
}

/// A provider for tests.
#[cfg(test)]
pub(crate) mod testing {
    use serde_json::Value;
    use std::sync::{Arc, Mutex};
    use strata_testkit::http::{HttpDouble, Reply};

    /// What a provider was sent: head and body.
    pub(crate) type Seen = Arc<Mutex<Vec<(String, Value)>>>;

    /// One answer a request, the last one for ever. For an answer of `null` the request's own body is asked through `proper`.
    pub(crate) fn provider(answers: Vec<(&'static str, Value)>, proper: fn(&Value) -> Value) -> (String, Seen) {
        let seen = Seen::default();
        let log = Arc::clone(&seen);
        let mut turn = 0;
        let double = HttpDouble::start(move |head, body| {
            let body: Value = serde_json::from_str(body).expect("json");
            let (status, answer) = &answers[turn.min(answers.len() - 1)];
            turn += 1;
            let answer = if answer.is_null() { proper(&body) } else { answer.clone() };
            log.lock().expect("lock").push((head.to_owned(), body));
            Reply::Answer((*status).to_owned(), answer.to_string().into_bytes())
        });
        // It serves to the end of the process.
        (Box::leak(Box::new(double)).base(), seen)
    }
}
