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

use body::Answer;
use http::{Request, Response};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use strata_core::{Fault, Reason};
use tonic::body::Body;
use tonic::server::NamedService;
use tower::{Service, ServiceExt as _};

/// A tower service that a stack can end in: tonic's `Routes`, a generated server.
pub trait GrpcLeaf:
    Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + 'static> + Clone + Send + Sync + 'static
{
}

impl<S> GrpcLeaf for S where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// The rest of a stack, down to the generated service: answers every request. Called by reference: a call borrows the whole
/// stack once, where it enters ([`Shared`]), and copies nothing of it on its way down.
pub trait Rpc: Send + Sync + 'static {
    /// Answers.
    fn call(&self, request: Request<Body>) -> impl Future<Output = Response<Answer>> + Send;
}

/// One concern of a listener.
pub trait Middleware: Send + Sync + 'static {
    /// Answers `request`, by itself or by passing it on to `next`.
    fn handle<S: Rpc>(self: &Arc<Self>, request: Request<Body>, next: &S) -> impl Future<Output = Response<Answer>> + Send;
}

/// Why a layer answered by itself, in the extensions of its response: the metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub Reason);

/// A gRPC response that refuses, without a message body ("trailers only").
#[must_use]
pub fn refuse(fault: Fault) -> Response<Answer> {
    let reason = fault.reason;
    let mut response = status(fault).into_http().map(Answer::new);
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

/// What follows a [`Middleware`], behind it.
pub struct Used<M, S> {
    middleware: Arc<M>,
    next: S,
}

impl<M: Middleware, S: Rpc> Rpc for Used<M, S> {
    fn call(&self, request: Request<Body>) -> impl Future<Output = Response<Answer>> + Send {
        self.middleware.handle(request, &self.next)
    }
}

impl<M, S: NamedService> NamedService for Used<M, S> {
    const NAME: &'static str = S::NAME;
}

/// The end of a stack: a service of tower, of which each call takes a copy.
pub struct Leaf<S>(S);

impl<S> Leaf<S> {
    /// Ends in `service`.
    pub const fn new(service: S) -> Self {
        Self(service)
    }
}

impl<S: GrpcLeaf> Rpc for Leaf<S> {
    async fn call(&self, request: Request<Body>) -> Response<Answer> {
        match self.0.clone().oneshot(request).await {
            Ok(response) => response.map(Answer::new),
            Err(never) => match never {},
        }
    }
}

impl<S: NamedService> NamedService for Leaf<S> {
    const NAME: &'static str = S::NAME;
}

/// A whole stack as a service of tower. Clones share it.
pub struct Shared<S>(Arc<S>);

impl<S> Shared<S> {
    /// Shares `stack`.
    pub fn new(stack: S) -> Self {
        Self(Arc::new(stack))
    }
}

impl<S: Rpc> Shared<S> {
    /// Answers with all that the layers added to the body.
    pub async fn answer(self, request: Request<Body>) -> Response<Body> {
        self.0.call(request).await.map(Answer::into_body)
    }
}

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: NamedService> NamedService for Shared<S> {
    const NAME: &'static str = S::NAME;
}

impl<S: Rpc> Service<Request<Body>> for Shared<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Readiness of the service at the end is awaited there, on the clone that is called.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let stack = self.clone();
        Box::pin(async move { Ok(stack.answer(request).await) })
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
