//! Tower layers of a listener, one per file. Each is a [`Middleware`]: it sees a request and the rest of the stack, and
//! answers with a response. It cannot fail: refusing means answering with a gRPC status ([`refuse`]), because an `Err`
//! of a tower service tears down the connection, and with it every other call on it.

pub mod admission;
pub mod auth;
pub mod body;
pub mod deadline;
pub mod limit;
pub mod metrics;
pub mod panic;
pub mod quota;
pub mod request_id;
pub mod signed;
pub mod trace;
pub mod undecodable;

use http::{Request, Response};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use strata_core::{Fault, Reason};
use tonic::body::Body;
use tower::Service;

/// The rest of a stack, down to the generated service: a gRPC service that answers every request.
pub trait Rpc:
    Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + 'static> + Clone + Send + Sync + 'static
{
}

impl<S> Rpc for S where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// One concern of a listener.
pub trait Middleware: Send + Sync + 'static {
    /// Answers `request`, by itself or by [`forward`]ing it to `next`.
    fn handle<S: Rpc>(self: Arc<Self>, request: Request<Body>, next: S) -> impl Future<Output = Response<Body>> + Send + 'static;
}

/// Calls the rest of the stack.
pub async fn forward<S: Rpc>(mut next: S, request: Request<Body>) -> Response<Body> {
    let answer = async {
        std::future::poll_fn(|cx| next.poll_ready(cx)).await?;
        next.call(request).await
    };
    match answer.await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Why a layer answered by itself, in the extensions of its response: the metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub Reason);

/// A gRPC response that refuses, without a message body ("trailers only").
#[must_use]
pub fn refuse(fault: Fault) -> Response<Body> {
    let reason = fault.reason;
    let mut response = status(fault).into_http();
    response.extensions_mut().insert(Refused(reason));
    response
}

/// The wire form of a fault.
pub(crate) fn status(fault: Fault) -> tonic::Status {
    strata_api::error::status(fault)
}

/// Makes a [`Middleware`] a tower layer.
pub struct Use<M>(Arc<M>);

impl<M> Use<M> {
    /// Wraps.
    pub fn new(middleware: M) -> Self {
        Self(Arc::new(middleware))
    }
}

impl<M> From<Arc<M>> for Use<M> {
    fn from(middleware: Arc<M>) -> Self {
        Self(middleware)
    }
}

impl<M> Clone for Use<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M, S> tower::Layer<S> for Use<M> {
    type Service = Used<M, S>;

    fn layer(&self, next: S) -> Self::Service {
        Used { middleware: Arc::clone(&self.0), next }
    }
}

/// A service behind a [`Middleware`].
pub struct Used<M, S> {
    middleware: Arc<M>,
    next: S,
}

impl<M, S: Clone> Clone for Used<M, S> {
    fn clone(&self) -> Self {
        Self { middleware: Arc::clone(&self.middleware), next: self.next.clone() }
    }
}

impl<M: Middleware, S: Rpc> Service<Request<Body>> for Used<M, S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Readiness of the inner service is awaited in `forward`, on the clone that is called.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = Arc::clone(&self.middleware).handle(request, self.next.clone());
        Box::pin(async move { Ok(answer.await) })
    }
}

/// Paths every listener answers without a credential, named one by one: probes and tools have none.
pub const OPEN_PATHS: [&str; 5] = [
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.health.v1.Health/List",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Whether `path` is one of [`OPEN_PATHS`].
#[must_use]
pub fn is_open(path: &str) -> bool {
    OPEN_PATHS.contains(&path)
}

/// Service and method of a path, of the product's own table or of [`OPEN_PATHS`]; anything else is `("other", "other")`,
/// so that a caller cannot grow the number of time series by inventing paths.
#[must_use]
pub fn known_method(path: &str) -> (&'static str, &'static str) {
    let known = strata_core::policy::authz::find(path)
        .map(|method| method.path)
        .or_else(|| OPEN_PATHS.iter().find(|open| **open == path).copied());
    known.and_then(|path| path.get(1..)).and_then(|path| path.split_once('/')).unwrap_or(("other", "other"))
}
