//! A listener and its end. Bind first, then configure: tests bind port 0 and hand the listener in, so ports never race.
//!
//! Shutdown in prose: when the token is cancelled the listener closes at once (new connections are refused by the
//! kernel), every connection is told GOAWAY, and calls in flight go on. When all connections have closed, or when
//! `grace` is over, [`serve`] returns; in the second case it first breaks every connection that is left, so that neither a half-open
//! connection nor an endless stream can hold the process (case C180).

use crate::channel::GrpcService;
use crate::pace::Pace;
use crate::ports::pause;
use crate::tls::ServerTls;
use futures::{Stream, StreamExt};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use strata_core::{Fault, Reason, limits};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tower::ServiceExt as _;

/// Longest life of a connection. HTTP/2 keeps one open for ever: replicas that came later would get no calls, and a certificate
/// that was taken away could be used as long as its connection lasts.
pub const CONNECTION_AGE: Duration = Duration::from_secs(600);

/// Bounds of a listener.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Calls in flight on one connection.
    pub max_concurrent_streams: u32,
    /// Connections open at a time; further ones wait in the kernel's backlog.
    pub max_connections: usize,
    /// A ping goes out when nothing came in for this long.
    pub keepalive_interval: Duration,
    /// The connection is closed when a ping is not answered for this long.
    pub keepalive_timeout: Duration,
    /// A connection that has not said a word for this long after it was accepted is broken: it only holds a place.
    pub first_byte_timeout: Duration,
    /// An answer whose next piece is not taken for this long is given up.
    pub stall_timeout: Duration,
    /// A connection that is older is told to take no more calls, and ends when those it has are over.
    pub max_connection_age: Duration,
    /// Longest time from the shutdown token to the return of [`serve`].
    pub grace: Duration,
    /// Bytes of all headers of one call.
    pub max_header_bytes: u32,
    /// Streams that a client opened and reset before they were looked at; more end the connection (a reset flood).
    pub max_pending_resets: usize,
    /// Certificates; `None` serves clear text.
    pub tls: Option<Arc<ServerTls>>,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            max_concurrent_streams: limits::STREAMS_PER_CONNECTION,
            max_connections: limits::CONNECTIONS,
            keepalive_interval: Duration::from_secs(20),
            keepalive_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_secs(10),
            // A reader on a bad line is slow, one that takes nothing for as long as the longest deadline is none.
            stall_timeout: Duration::from_secs(60),
            max_connection_age: CONNECTION_AGE,
            grace: Duration::from_secs(20),
            max_header_bytes: 64 * 1024,
            max_pending_resets: 20,
            tls: None,
        }
    }
}

/// Binds. Port 0 lets the kernel choose.
///
/// # Errors
/// `INVALID_FIELD` naming `listen` when the address is in use or not of this host.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, Fault> {
    TcpListener::bind(address)
        .await
        .map_err(|error| Fault::field("listen", format!("{address} cannot be bound: {}", error.kind())))
}

/// Refuses an address that others can reach while callers need no credential (api.md).
///
/// # Errors
/// `INVALID_FIELD` naming `listen`.
pub fn check_exposure(address: SocketAddr, has_credentials: bool) -> Result<(), Fault> {
    if has_credentials || address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(Fault::field(
        "listen",
        format!("{address} can be reached from outside, so API keys must be configured; or listen on 127.0.0.1"),
    ))
}

/// Serves gRPC on `listener` until `shutdown` is cancelled, then drains for at most `config.grace`.
///
/// Message limits are part of generated services, not of the listener: every generated server is made with
/// `.max_decoding_message_size(MESSAGE_BYTES).max_encoding_message_size(MESSAGE_BYTES)` (macro [`limited`](crate::limited)).
///
/// # Errors
/// `INTERNAL` when the TLS identity is unusable or the server cannot run.
pub async fn serve<S: GrpcService>(
    listener: TcpListener,
    service: S,
    config: &ServeConfig,
    shutdown: CancellationToken,
) -> Result<(), Fault> {
    let slots = Arc::new(Semaphore::new(config.max_connections));
    let incoming = futures::stream::unfold((listener, slots), |(listener, slots)| async move {
        // The slot is taken before the accept: a connection over the bound waits in the kernel, not in this process.
        let slot = Arc::clone(&slots).acquire_owned().await.ok()?;
        let accepted = match listener.accept().await {
            Ok((stream, _)) => stream.set_nodelay(true).map(|()| Slotted { stream, slot }),
            Err(error) => {
                // Out of file descriptors: accepting again at once would spin.
                tracing::warn!(%error, "a connection could not be accepted");
                pause(Duration::from_millis(50)).await;
                Err(error)
            }
        };
        Some((accepted, (listener, slots)))
    });
    let Some(tls) = &config.tls else {
        return serve_connections(incoming, service, config, shutdown).await;
    };
    // Side by side: whoever is slow in the handshake holds a place of its own and nobody else up.
    let incoming = incoming.map(|accepted| {
        let tls = Arc::clone(tls);
        async move {
            let Slotted { stream, slot } = accepted?;
            tls.accept(stream).await.map(|stream| Secured { stream, _slot: slot })
        }
    });
    let incoming = incoming.buffer_unordered(config.max_connections).filter_map(|accepted| {
        if let Err(error) = &accepted {
            // What is sent to us is shown to nobody: the text is that of the checks, such as which certificate has expired.
            tracing::debug!(kind = ?error.kind(), cause = %error, "a handshake failed");
        }
        std::future::ready(accepted.ok().map(Ok))
    });
    serve_connections(incoming, service, config, shutdown).await
}

/// [`serve`] on connections from anywhere.
///
/// # Errors
/// As [`serve`].
pub async fn serve_connections<S, I, C>(
    incoming: I,
    service: S,
    config: &ServeConfig,
    shutdown: CancellationToken,
) -> Result<(), Fault>
where
    S: GrpcService,
    I: Stream<Item = io::Result<C>>,
    C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let broken = CancellationToken::new();
    let incoming = incoming.map(|accepted| {
        accepted.map(|inner| Breakable {
            inner,
            broken: Box::pin(broken.clone().cancelled_owned()),
            silence: Some(Box::pin(pause(config.first_byte_timeout))),
        })
    });
    let server = Server::builder()
        .max_concurrent_streams(config.max_concurrent_streams)
        .http2_keepalive_interval(Some(config.keepalive_interval))
        .http2_keepalive_timeout(Some(config.keepalive_timeout))
        .http2_max_pending_accept_reset_streams(Some(config.max_pending_resets))
        .max_connection_age(config.max_connection_age)
        .http2_max_header_list_size(config.max_header_bytes);
    let pace = Arc::new(Pace::default());
    let paced = Arc::clone(&pace);
    let service = service.map_response(move |response| paced.answer(response));
    let serving = server.serve_with_incoming_shutdown(service, incoming, shutdown.clone().cancelled_owned());
    let sweeping = async {
        loop {
            pause(config.stall_timeout / 4).await;
            pace.sweep(config.stall_timeout);
        }
    };
    let grace = async {
        shutdown.cancelled().await;
        pause(config.grace).await;
    };
    tokio::select! {
        ended = serving => ended.map_err(|error| {
            tracing::error!(%error, "the listener ended");
            Fault::new(Reason::Internal, "the listener ended unexpectedly")
        }),
        () = sweeping => Ok(()),
        () = grace => {
            tracing::warn!("connections outlive the grace period and are broken");
            broken.cancel();
            Ok(())
        }
    }
}

/// Sets the message limits of a generated server in both directions ([`strata_core::limits::MESSAGE_BYTES`]): a memory
/// that can be written must also be readable (case C087).
#[macro_export]
macro_rules! limited {
    ($server:expr) => {
        $server
            .max_decoding_message_size(::strata_core::limits::MESSAGE_BYTES)
            .max_encoding_message_size(::strata_core::limits::MESSAGE_BYTES)
    };
}

/// A TCP connection that holds its place among [`ServeConfig::max_connections`].
struct Slotted {
    stream: tokio::net::TcpStream,
    slot: OwnedSemaphorePermit,
}

/// The same, behind a handshake.
struct Secured {
    stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>,
    _slot: OwnedSemaphorePermit,
}

/// A connection that fails every read and write once `broken` is cancelled, or when it stays silent from the start: tonic
/// runs each connection in a task that nothing else can stop.
struct Breakable<C> {
    inner: C,
    broken: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Until the first byte has come.
    silence: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<C> Breakable<C> {
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.broken.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl<C: Connected> Connected for Breakable<C> {
    type ConnectInfo = C::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.inner.connect_info()
    }
}

impl Connected for Slotted {
    type ConnectInfo = tonic::transport::server::TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Breakable<C> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.silence = None;
        }
        if polled.is_pending()
            && let Some(silence) = &mut self.silence
            && silence.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        polled
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Breakable<C> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

impl Connected for Secured {
    // The peer's address, as without TLS: who it is says its credential, not its certificate.
    type ConnectInfo = tonic::transport::server::TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.get_ref().0.connect_info()
    }
}

/// Reads and writes go to the stream inside.
macro_rules! stream_of {
    ($($outer:ident),*) => { $(
        impl AsyncRead for $outer {
            fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.stream).poll_read(cx, buf)
            }
        }

        impl AsyncWrite for $outer {
            fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.stream).poll_write(cx, buf)
            }

            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.stream).poll_flush(cx)
            }

            fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.stream).poll_shutdown(cx)
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                self.stream.is_write_vectored()
            }
        }
    )* };
}

stream_of!(Slotted, Secured);
