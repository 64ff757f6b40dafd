//! What the clients of remote providers share: addresses that are checked once, and answers of bounded size.

use reqwest::{Client, Response, Url};
use std::time::Duration;

/// The address of `path` under a base.
///
/// # Errors
/// What is wrong with the base.
pub(crate) fn endpoint(base: &str, path: &str) -> Result<Url, &'static str> {
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
pub(crate) fn client(timeout: Duration) -> Result<Client, &'static str> {
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
pub(crate) enum Unread {
    /// It ended early.
    BrokeOff,
    /// It is larger than the bound.
    TooLarge,
}

/// Reads an answer of at most `most` bytes.
///
/// # Errors
/// [`Unread`].
pub(crate) async fn content(mut response: Response, most: usize) -> Result<Vec<u8>, Unread> {
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// What a provider was sent: head and body.
    pub(crate) type Seen = Arc<Mutex<Vec<(String, Value)>>>;

    /// Serves HTTP/1.1 on port 0: one answer a request, the last one for ever. For an answer of `null` the request's own
    /// body is asked through `proper`.
    pub(crate) async fn provider(answers: Vec<(&'static str, Value)>, proper: fn(&Value) -> Value) -> (String, Seen) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
        let base = format!("http://{}/v1", listener.local_addr().expect("address"));
        let seen = Seen::default();
        let log = Arc::clone(&seen);
        drop(std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
            runtime.block_on(async move {
                let mut turn = 0;
                loop {
                    let Ok((mut stream, _)) = listener.accept().await else { return };
                    let (head, body) = read(&mut stream).await;
                    let (status, answer) = &answers[turn.min(answers.len() - 1)];
                    turn += 1;
                    let answer = if answer.is_null() { proper(&body) } else { answer.clone() };
                    log.lock().expect("lock").push((head, body));
                    let text = answer.to_string();
                    let reply = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}", text.len());
                    stream.write_all(reply.as_bytes()).await.expect("write");
                }
            });
        }));
        (base, seen)
    }

    async fn read(stream: &mut tokio::net::TcpStream) -> (String, Value) {
        let mut bytes = Vec::new();
        loop {
            let mut buffer = [0; 4096];
            let n = stream.read(&mut buffer).await.expect("read");
            bytes.extend_from_slice(&buffer[..n]);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let head = head.to_lowercase();
                let length: usize =
                    head.lines().find_map(|l| l.strip_prefix("content-length: ")).map_or(0, |l| l.parse().expect("length"));
                if body.len() >= length {
                    return (head, serde_json::from_str(body).expect("json"));
                }
            }
        }
    }
}
