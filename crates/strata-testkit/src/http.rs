//! A provider of models behind HTTP/1.1: answers as it is told, and remembers what it was asked.

use crate::port::HeldPort;
use crate::thread::ServerThread;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What a request gets.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A status such as `200 OK`, header lines after it if wanted, and a body.
    Answer(String, Vec<u8>),
    /// Nothing: the connection stays open.
    Hang,
}

impl Reply {
    /// A body with the status 200.
    pub fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self::Answer("200 OK".to_owned(), body.into())
    }
}

type Answer = dyn FnMut(&str, &str) -> Reply + Send;

/// The provider. Requests are served at once, each on a connection of its own.
#[derive(Debug)]
pub struct HttpDouble {
    address: std::net::SocketAddr,
    seen: Arc<Mutex<Vec<(String, String)>>>,
    _server: ServerThread,
}

impl HttpDouble {
    /// Starts one. `answer` is given the head of a request in lower case, and its body.
    ///
    /// # Panics
    /// When the machine has no free port.
    #[must_use]
    pub fn start(answer: impl FnMut(&str, &str) -> Reply + Send + 'static) -> Self {
        let (port, seen) = (HeldPort::new(), Arc::<Mutex<Vec<_>>>::default());
        let (address, log) = (port.addr(), Arc::clone(&seen));
        let answer: Arc<Mutex<Answer>> = Arc::new(Mutex::new(answer));
        let (listening, listens) = std::sync::mpsc::channel();
        let server = ServerThread::start("http-double", move || async move {
            let listener = port.listen();
            listening.send(()).expect("the starter waits");
            while let Ok((stream, _)) = listener.accept().await {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                drop(tokio::spawn(serve(stream, log, answer)));
            }
        });
        listens.recv().expect("the provider listens");
        Self { address, seen, _server: server }
    }

    /// Base URL, with `/v1`.
    #[must_use]
    pub fn base(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Heads and bodies of all requests so far.
    #[must_use]
    pub fn seen(&self) -> Vec<(String, String)> {
        self.seen.lock().clone()
    }
}

async fn serve(mut stream: TcpStream, log: Arc<Mutex<Vec<(String, String)>>>, answer: Arc<Mutex<Answer>>) {
    let Some((head, body)) = read(&mut stream).await else { return };
    let reply = (answer.lock())(&head, &body);
    log.lock().push((head, body));
    match reply {
        Reply::Answer(status, content) => {
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", content.len());
            // A caller that has gone is its own affair.
            drop(stream.write_all(&[head.into_bytes(), content].concat()).await);
        }
        Reply::Hang => {
            // Until the caller gives up.
            drop(stream.read(&mut [0; 16]).await);
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let n = stream.read(&mut buffer).await.ok().filter(|n| *n > 0)?;
        bytes.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_lowercase();
            let length: usize = head.lines().find_map(|l| l.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                return Some((head, body.to_owned()));
            }
        }
    }
}
