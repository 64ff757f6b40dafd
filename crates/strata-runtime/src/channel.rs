//! One channel type for every way a call can go. A generated client over an [`RpcChannel`] cannot tell whether the
//! service is in this process, behind an in-memory HTTP/2 connection, or in another pod; neither can the service.
//!
//! What has to be so, each with a test below or in `tests/`:
//! - The error type is concrete (`Status`): with a boxed error the client's futures do not prove `Send` inside a spawn.
//! - `grpc-timeout` is enforced by tonic's transport, not by a generated service: only the deadline layer gives a local
//!   call its deadline. So a channel leads to a *stack* ([`crate::stack`]), not to a bare service.
//! - Dropping the caller drops the handler in the middle of an await, in all three. Handlers are cancellable, writers are
//!   not: see [`crate::task::detached_write`] and [`crate::sqlite`].
//! - A local call runs in the caller's task: the catch-panic layer stands between them.
//! - Extensions do not cross: over a network they cannot, so a local call drops them too, in both directions. A caller
//!   can hand nothing to a handler that is not on the wire.
//! - HTTP/2 keepalive is not optional: after a healed partition a channel without it fails for ever.
//! - The failure of an attempt to connect is told to whoever waited for that attempt, never to a later caller.

use crate::ports::Stopwatch;
use crate::tls::{ClientTls, TlsFiles};
use arc_swap::ArcSwapOption;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use strata_core::{Fault, Reason};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::Status;
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

/// Any error of a transport.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The one channel type. Cheap to clone; clones share the connection.
pub type RpcChannel = BoxCloneSyncService<Request<Body>, Response<Body>, Status>;

/// Any tower service that serves gRPC: tonic's `Routes`, a generated server, a stack.
pub trait GrpcService:
    Service<Request<Body>, Response = Response<Body>, Error: Into<BoxError> + Send, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> GrpcService for S where
    S: Service<Request<Body>, Response = Response<Body>, Error: Into<BoxError> + Send, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// Calls a service of this process directly, in the caller's task: about 2 us a call.
pub fn local<S: GrpcService>(service: S) -> RpcChannel {
    BoxCloneSyncService::new(tower::service_fn(move |mut request: Request<Body>| {
        let service = service.clone();
        async move {
            request.extensions_mut().clear();
            let answer = service.oneshot(request).await;
            let mut response = answer.map_err(|error| transport_status(error.into(), &TlsEnd::default()))?;
            response.extensions_mut().clear();
            Ok(response)
        }
    }))
}

/// How to reach a role in another process.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// `http://host:port`, `https://host:port` or `unix:/path/to/socket`.
    pub url: String,
    /// Longest time for TCP and HTTP/2 to come up, per attempt.
    pub connect_timeout: Duration,
    /// A ping goes out when nothing came in for this long, also without calls.
    pub keepalive_interval: Duration,
    /// The connection is closed, and made anew by the next call, when a ping is not answered for this long.
    pub keepalive_timeout: Duration,
    /// Trust and own certificate, for `https`; `None` trusts the host's roots and shows none.
    pub tls: Option<Arc<ClientTls>>,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            connect_timeout: Duration::from_secs(2),
            keepalive_interval: Duration::from_secs(10),
            keepalive_timeout: Duration::from_secs(5),
            tls: None,
        }
    }
}

impl EndpointConfig {
    /// The defaults for `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), ..Self::default() }
    }
}

pub(crate) fn keepalive(endpoint: Endpoint, config: &EndpointConfig) -> Endpoint {
    endpoint
        .http2_keep_alive_interval(config.keepalive_interval)
        .keep_alive_timeout(config.keepalive_timeout)
        .keep_alive_while_idle(true)
}

/// A lazy channel: connects at the first call and reconnects by itself. Never waits here, so that roles can start in any
/// order.
///
/// # Errors
/// `INVALID_FIELD` for a URL that cannot be one.
pub fn connect(config: &EndpointConfig) -> Result<RpcChannel, Fault> {
    let wrong = |_| Fault::field("url", "must be http://host:port, https://host:port or unix:/path");
    if let Some(path) = config.url.strip_prefix("unix:") {
        let path = std::path::PathBuf::from(path);
        let endpoint = Endpoint::from_static("http://unix.local");
        return Ok(dialled(endpoint, config, TlsEnd::default(), move || tokio::net::UnixStream::connect(path.clone())));
    }
    if !(config.url.starts_with("http://") || config.url.starts_with("https://")) {
        return Err(Fault::field("url", "must be http://host:port, https://host:port or unix:/path"));
    }
    let endpoint = Endpoint::from_shared(config.url.clone()).map_err(wrong)?;
    let origin = endpoint.uri().clone();
    let encrypted = config.url.starts_with("https://");
    let host = origin.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = origin.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
    let dial = move || {
        let host = host.clone();
        async move {
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            stream.set_nodelay(true)?;
            Ok::<_, io::Error>((host, stream))
        }
    };
    if !encrypted {
        return Ok(dialled(endpoint, config, TlsEnd::default(), move || {
            let tcp = dial();
            async move { Ok(tcp.await?.1) }
        }));
    }
    let tls = match &config.tls {
        Some(tls) => Arc::clone(tls),
        None => ClientTls::from_files(TlsFiles::default(), "tls")?,
    };
    // The handshake is ours, so that each connection sees the certificates of its time; what tonic dials is then clear text,
    // and the scheme that the server is told is the origin's.
    let plain = Endpoint::from_static("http://tls.local").origin(origin);
    let end = TlsEnd::default();
    Ok(dialled(plain, config, end.clone(), move || {
        let (tls, tcp, end) = (Arc::clone(&tls), dial(), end.clone());
        async move {
            end.0.store(None);
            let (host, stream) = tcp.await?;
            Ok(Heard { inner: tls.connect(&host, stream).await?, end })
        }
    }))
}

/// A channel whose connections `dial` makes, each within the time that the configuration gives to an attempt.
fn dialled<D, F, C>(endpoint: Endpoint, config: &EndpointConfig, end: TlsEnd, dial: D) -> RpcChannel
where
    D: Fn() -> F + Clone + Send + Sync + Unpin + 'static,
    F: Future<Output = io::Result<C>> + Send + 'static,
    C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let limit = config.connect_timeout;
    let connector = tower::service_fn(move |_: Uri| {
        let dial = dial.clone();
        Attempt::new(move || {
            let connecting = tokio::time::timeout(limit, dial());
            async move { Ok(TokioIo::new(connecting.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??)) }
        })
    });
    over(keepalive(endpoint, config).connect_with_connector_lazy(connector), end)
}

/// Why TLS ended the newest connection of a channel; nothing while it is well. The caller's side of TLS 1.3 is done before the
/// other side has judged its certificate, so a refusal comes as the end of a connection, whose text HTTP/2 gives to the calls
/// under way and to those that wait not even that.
#[derive(Clone, Default)]
pub(crate) struct TlsEnd(Arc<ArcSwapOption<String>>);

/// A connection that notes what TLS ends it with.
struct Heard<C> {
    inner: C,
    end: TlsEnd,
}

impl<C: AsyncRead + Unpin> AsyncRead for Heard<C> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if let Poll::Ready(Err(error)) = &read
            && let Some(failure) = tls_failure(error)
        {
            self.end.0.store(Some(Arc::new(failure)));
        }
        read
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Heard<C> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// A failed attempt that nobody looked at for so long is not the next caller's: long for a task that is woken, short for
/// whoever waits.
const FORGOTTEN: Duration = Duration::from_millis(100);

/// An attempt to connect. A lazy channel looks at it only while a call waits. When that call is given up, the attempt stays as
/// it is, and its failure, perhaps from before the other side was there, would be the answer to the next call, however much
/// later: so what failed while nobody looked is tried once more.
struct Attempt<D, F> {
    dial: D,
    trying: Pin<Box<F>>,
    woken: Arc<Woken>,
}

/// Notes when an attempt first had something to say.
struct Woken {
    waker: Waker,
    since: OnceLock<Stopwatch>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.since.get_or_init(Stopwatch::start);
        self.waker.wake_by_ref();
    }
}

impl Woken {
    fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self { waker, since: OnceLock::new() })
    }
}

impl<D: Fn() -> F, F> Attempt<D, F> {
    fn new(dial: D) -> Self {
        let trying = Box::pin(dial());
        Self { dial, trying, woken: Woken::new(Waker::noop().clone()) }
    }
}

impl<D, F, C> Future for Attempt<D, F>
where
    D: Fn() -> F + Unpin,
    F: Future<Output = io::Result<C>>,
{
    type Output = io::Result<C>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let mut forgotten = this.woken.since.get().is_some_and(|since| since.elapsed() >= FORGOTTEN);
        loop {
            this.woken = Woken::new(context.waker().clone());
            let waker = Waker::from(Arc::clone(&this.woken));
            match this.trying.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(Err(error)) if forgotten => {
                    tracing::debug!(%error, "an attempt that nobody waited for had failed; it is made again");
                    forgotten = false;
                    this.trying = Box::pin((this.dial)());
                }
                answer @ (Poll::Ready(_) | Poll::Pending) => return answer,
            }
        }
    }
}

pub(crate) fn over(channel: Channel, end: TlsEnd) -> RpcChannel {
    let whole = |response: Response<Body>| response.map(|body| Body::new(body.map_err(broken_off)));
    BoxCloneSyncService::new(channel.map_err(move |error| transport_status(error.into(), &end)).map_response(whole))
}

/// The status of an answer that began and broke off: its own would have come in the trailers, so this one is the transport's,
/// which calls a connection that went away `UNKNOWN`, as if a retry could do harm.
fn broken_off(status: Status) -> Status {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(&status);
    while let Some(inner) = cause {
        if inner.is::<tonic::TimeoutExpired>() {
            return crate::layer::status(crate::layer::body::exceeded());
        }
        cause = inner.source();
    }
    tracing::debug!(code = ?status.code(), "an answer broke off");
    unanswered()
}

/// Nobody knows what became of the call.
fn unanswered() -> Status {
    crate::layer::status(
        Fault::new(Reason::StoreUnavailable, "the service does not answer; retry with the same request_id").retry_after(500),
    )
}

/// Source of the status of a call that the transport could not carry: no service answered with it.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no service answered")]
pub struct TransportFailed {
    /// Whether the call may have reached the service; false when nobody could be reached.
    pub sent: bool,
}

/// The failure of the transport that a status tells, if no service said it.
#[must_use]
pub fn transport_failure(status: &Status) -> Option<TransportFailed> {
    std::error::Error::source(status).and_then(|source| source.downcast_ref()).copied()
}

/// The status of a call that the transport could not carry: the status inside the error if there is one,
/// `DEADLINE_EXCEEDED` when its time was over, else `UNAVAILABLE`, never "unknown", so that a caller knows that a retry
/// may help.
fn transport_status(error: BoxError, end: &TlsEnd) -> Status {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&*error);
    let mut not_sent = false;
    let mut failure = None;
    while let Some(inner) = cause {
        if let Some(status) = inner.downcast_ref::<Status>() {
            return status.clone();
        }
        if inner.is::<tonic::TimeoutExpired>() {
            // tonic's own client keeps the deadline too, and would call it CANCELLED.
            return crate::layer::status(crate::layer::body::exceeded());
        }
        not_sent |= inner.is::<tonic::ConnectError>();
        failure = failure.or_else(|| inner.downcast_ref().and_then(tls_failure));
        cause = inner.source();
    }
    let mut status = match failure.or_else(|| end.0.load().as_deref().cloned()) {
        Some(what) => {
            tracing::warn!(cause = what, "a TLS handshake failed");
            let message = format!("the TLS handshake failed: {what}; a retry helps once that is mended");
            crate::layer::status(Fault::new(Reason::StoreUnavailable, message).retry_after(5_000))
        }
        None => {
            tracing::debug!(%error, not_sent, "the transport failed");
            unanswered()
        }
    };
    status.set_source(Arc::new(TransportFailed { sent: !not_sent }));
    status
}

/// What TLS says of an error: a certificate that is not trusted or has expired here, or the alert of the other side.
fn tls_failure(error: &io::Error) -> Option<String> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).map(ToString::to_string)
}

/// Awaits that a channel is ready, then calls it.
pub(crate) async fn call(mut channel: RpcChannel, request: Request<Body>) -> Result<Response<Body>, Status> {
    channel.ready().await?.call(request).await
}
