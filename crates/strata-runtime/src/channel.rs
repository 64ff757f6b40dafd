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

use crate::server::{self, ServeConfig};
use crate::task::TaskGroup;
use crate::tls::{ClientTls, TlsFiles};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use strata_core::{Fault, Reason};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
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
    BoxCloneSyncService::new(
        service
            .map_request(|mut request: Request<Body>| {
                request.extensions_mut().clear();
                request
            })
            .map_response(|mut response: Response<Body>| {
                response.extensions_mut().clear();
                response
            })
            .map_err(|error| transport_status(error.into())),
    )
}

/// Connections waiting to be accepted by the in-memory server: more than one only while a client reconnects.
const DUPLEX_BACKLOG: usize = 4;
/// Bytes in flight each way of an in-memory connection: the size of a loopback socket buffer.
const DUPLEX_BYTES: usize = 64 * 1024;

/// Real HTTP/2 over an in-memory pipe, for tests of everything but the kernel. The server runs in `tasks`.
pub fn duplex<S: GrpcService>(tasks: &TaskGroup, service: S) -> RpcChannel {
    let (connect, accept) = mpsc::channel::<io::Result<tokio::io::DuplexStream>>(DUPLEX_BACKLOG);
    let token = tasks.token().clone();
    tasks.spawn("duplex server", async move {
        let config = ServeConfig::default();
        if let Err(fault) = server::serve_connections(ReceiverStream::new(accept), service, &config, token).await {
            tracing::error!(%fault, "the in-memory server ended");
        }
    });
    let connector = tower::service_fn(move |_: Uri| {
        let connect = connect.clone();
        async move {
            let (client, server) = tokio::io::duplex(DUPLEX_BYTES);
            connect.send(Ok(server)).await.map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
            Ok::<_, io::Error>(TokioIo::new(client))
        }
    });
    over(
        keepalive(Endpoint::from_static("http://duplex.local"), &EndpointConfig::default())
            .connect_with_connector_lazy(connector),
    )
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

fn keepalive(endpoint: Endpoint, config: &EndpointConfig) -> Endpoint {
    endpoint
        .connect_timeout(config.connect_timeout)
        .http2_keep_alive_interval(config.keepalive_interval)
        .keep_alive_timeout(config.keepalive_timeout)
        .keep_alive_while_idle(true)
        .tcp_keepalive(Some(config.keepalive_interval))
        .tcp_nodelay(true)
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
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { Ok::<_, io::Error>(TokioIo::new(tokio::net::UnixStream::connect(path).await?)) }
        });
        let endpoint = Endpoint::from_static("http://unix.local");
        return Ok(over(keepalive(endpoint, config).connect_with_connector_lazy(connector)));
    }
    if !(config.url.starts_with("http://") || config.url.starts_with("https://")) {
        return Err(Fault::field("url", "must be http://host:port, https://host:port or unix:/path"));
    }
    let endpoint = Endpoint::from_shared(config.url.clone()).map_err(wrong)?;
    if !config.url.starts_with("https://") {
        return Ok(over(keepalive(endpoint, config).connect_lazy()));
    }
    let tls = match &config.tls {
        Some(tls) => Arc::clone(tls),
        None => ClientTls::from_files(TlsFiles::default(), "tls")?,
    };
    let origin = endpoint.uri().clone();
    let host = origin.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = origin.port_u16().unwrap_or(443);
    let limit = config.connect_timeout;
    // The handshake is ours, so that each connection sees the certificates of its time; what tonic dials is then clear text,
    // and the scheme that the server is told is the origin's.
    let connector = tower::service_fn(move |_: Uri| {
        let (tls, host) = (Arc::clone(&tls), host.clone());
        async move {
            let dial = async {
                let stream = TcpStream::connect((host.as_str(), port)).await?;
                stream.set_nodelay(true)?;
                tls.connect(&host, stream).await
            };
            let stream = tokio::time::timeout(limit, dial).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
            Ok::<_, io::Error>(TokioIo::new(stream))
        }
    });
    let plain = Endpoint::from_static("http://tls.local").origin(origin);
    Ok(over(keepalive(plain, config).connect_with_connector_lazy(connector)))
}

fn over(channel: Channel) -> RpcChannel {
    let whole = |response: Response<Body>| response.map(|body| Body::new(body.map_err(broken_off)));
    BoxCloneSyncService::new(channel.map_err(|error| transport_status(error.into())).map_response(whole))
}

/// The status of an answer that began and broke off: its own would have come in the trailers, so this one is the transport's,
/// which calls a connection that went away `UNKNOWN`, as if a retry could do harm.
fn broken_off(status: Status) -> Status {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(&status);
    while let Some(inner) = cause {
        if inner.is::<tonic::TimeoutExpired>() {
            return crate::layer::status(crate::layer::deadline::exceeded());
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

/// The status of a call that the transport could not carry: the status inside the error if there is one,
/// `DEADLINE_EXCEEDED` when its time was over, else `UNAVAILABLE`, never "unknown", so that a caller knows that a retry
/// may help.
pub(crate) fn transport_status(error: BoxError) -> Status {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&*error);
    while let Some(inner) = cause {
        if let Some(status) = inner.downcast_ref::<Status>() {
            return status.clone();
        }
        if inner.is::<tonic::TimeoutExpired>() {
            // tonic's own client keeps the deadline too, and would call it CANCELLED.
            return crate::layer::status(crate::layer::deadline::exceeded());
        }
        cause = inner.source();
    }
    tracing::debug!(%error, "the transport failed");
    unanswered()
}

/// Awaits that a channel is ready, then calls it.
pub(crate) async fn call(mut channel: RpcChannel, request: Request<Body>) -> Result<Response<Body>, Status> {
    channel.ready().await?.call(request).await
}
