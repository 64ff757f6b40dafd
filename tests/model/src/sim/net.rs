//! The network between routers and layers: a call may be late, lost, or arrive twice; its answer may be late or lost; a
//! router may be cut off from a layer. A call that nobody waits for any more still arrives.

use super::layers::{Layer, Layers, TOLD};
use super::{Shared, USER};
use crate::bug::Bug;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use prost::Message as _;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strata_api::internal::v1 as internal;
use strata_core::Fault;
use strata_runtime::ports::pause;
use strata_runtime::{RpcChannel, TaskGroup};
use tonic::Status;
use tonic::body::Body;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

/// From a router to a layer.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) router: usize,
    pub(crate) layer: Layer,
    /// Whether the router lives.
    pub(crate) alive: Arc<AtomicBool>,
}

/// The network.
#[derive(Debug)]
pub(crate) struct Net {
    shared: Arc<Shared>,
    tasks: TaskGroup,
    cut: Mutex<BTreeSet<(usize, Layer)>>,
}

fn silence() -> Status {
    strata_api::error::status(Fault::unavailable("the layer"))
}

impl Net {
    pub(crate) fn new(shared: Arc<Shared>, tasks: TaskGroup) -> Self {
        Self { shared, tasks, cut: Mutex::default() }
    }

    /// Cuts a router off from a layer, or joins them again.
    pub(crate) fn cut(&self, router: usize, layer: Layer, cut: bool) {
        self.shared.log(&format!("router {router} {layer:?} cut: {cut}"));
        if cut {
            self.cut.lock().insert((router, layer));
        } else {
            self.cut.lock().remove(&(router, layer));
        }
    }

    fn is_cut(&self, link: &Link) -> bool {
        self.cut.lock().contains(&(link.router, link.layer))
    }

    /// The channel of a link.
    pub(crate) fn reach(self: &Arc<Self>, link: Link, layers: Arc<Layers>) -> RpcChannel {
        let net = Arc::clone(self);
        BoxCloneSyncService::new(tower::service_fn(move |request: http::Request<Body>| {
            let (net, link, layers) = (Arc::clone(&net), link.clone(), Arc::clone(&layers));
            async move { net.carry(link, layers, request).await }
        }))
    }

    async fn carry(
        self: Arc<Self>,
        link: Link,
        layers: Arc<Layers>,
        request: http::Request<Body>,
    ) -> Result<http::Response<Body>, Status> {
        if !link.alive.load(Ordering::SeqCst) {
            return std::future::pending().await;
        }
        let (head, body) = request.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let shared = &self.shared;
        if self.is_cut(&link) {
            // Half of the cuts are seen at once, as when a pod is gone; the others are silence.
            if shared.rng.percent(50) {
                return Err(silence());
            }
            return std::future::pending().await;
        }
        if shared.bug == Some(Bug::UndoWithoutFence) && head.uri.path().ends_with("/Abort") {
            return Ok(pretended());
        }
        let again = |head: &http::request::Parts, bytes: &Bytes| {
            let mut request = http::Request::new(Body::new(Full::new(bytes.clone())));
            *request.method_mut() = head.method.clone();
            *request.uri_mut() = head.uri.clone();
            *request.headers_mut() = head.headers.clone();
            request
        };
        let late = match shared.rng.below(100) {
            _ if shared.peace.load(Ordering::SeqCst) => Duration::from_millis(1),
            0..=74 => Duration::from_millis(1) + shared.rng.millis(20),
            75..=89 => shared.rng.millis(900),
            _ => shared.rng.millis(6_500),
        };
        if shared.trouble(3) {
            self.shared.log(&format!("router {} lost call {}", link.router, head.uri.path()));
            return std::future::pending().await;
        }
        if shared.trouble(3) {
            // Twice: the second is refused, for its nonce was used (rule P10).
            let (copy, channel, wait) = (again(&head, &bytes), layers.channel(link.layer), late + shared.rng.millis(3_000));
            self.tasks.spawn("doubled call", async move {
                pause(wait).await;
                drop(channel.oneshot(copy).await);
            });
        }
        let (lost_answer, layer) = (shared.trouble(4), link.layer);
        let (request, net, there) = (again(&head, &bytes), Arc::clone(&self), Arc::clone(&layers));
        let arrives = self.tasks.spawn("call", async move {
            pause(late).await;
            // The stack of now: a layer that restarted refuses what was signed before.
            let answer = there.channel(layer).oneshot(request).await;
            if net.shared.trouble(40) {
                pause(net.shared.rng.millis(30)).await;
            }
            answer
        });
        let answer = arrives.await.unwrap_or_else(|_| Err(silence()));
        if lost_answer || self.is_cut(&link) || !link.alive.load(Ordering::SeqCst) {
            return std::future::pending().await;
        }
        layers.arrived(answer.as_ref().ok().and_then(|answer| answer.headers().get(TOLD)));
        answer
    }
}

/// The planted mistake: nothing is written at the target, and the source is unsealed all the same.
fn pretended() -> http::Response<Body> {
    debug_assert!(!USER.is_empty());
    super::layers::response(Ok(internal::AbortResponse::default().encode_to_vec()))
}
