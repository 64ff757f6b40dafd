//! What every call goes through, as two lists to be read from the top: outermost first.
//!
//! A stack is served by [`crate::server::serve`], called by [`crate::channel::local`], or both: it is cheap to clone.

use crate::channel::RpcChannel;
use crate::control::{ModeBoard, ModeGate};
use crate::layer::admission::{Admission, AdmissionSettings};
use crate::layer::auth::Authenticator;
use crate::layer::deadline::Deadline;
use crate::layer::metrics::Metrics;
use crate::layer::panic::CatchPanic;
use crate::layer::quota::Quotas;
use crate::layer::request_id::RequestIds;
use crate::layer::trace::Trace;
use crate::layer::undecodable::Undecodable;
use crate::layer::{GrpcLeaf, Leaf, Rpc, Shared, Use};
use crate::ports::Ports;
use crate::signing::Verifier;
use arc_swap::ArcSwap;
use std::sync::Arc;
use strata_core::policy::quota::QuotaSettings;
use tower::ServiceBuilder;
use tower::util::BoxCloneSyncService;

/// What both stacks need.
#[derive(Clone, Debug)]
pub struct StackDeps {
    /// Mints request ids.
    pub ports: Ports,
    /// Bounds of time.
    pub deadline: Deadline,
    /// Bounds of load.
    pub admission: AdmissionSettings,
    /// Instruments.
    pub metrics: Metrics,
    /// What each tenant may ask for; replaced as a whole by a hot reload.
    pub quotas: Arc<ArcSwap<QuotaSettings>>,
    /// Modes that a layer keeps by itself.
    pub modes: Arc<ModeBoard>,
}

impl StackDeps {
    /// Default bounds.
    #[must_use]
    pub fn new(ports: Ports) -> Self {
        Self {
            ports,
            deadline: Deadline::default(),
            admission: AdmissionSettings::default(),
            metrics: Metrics::global(),
            quotas: Arc::default(),
            modes: Arc::default(),
        }
    }
}

/// The router's stack: callers are authenticated and authorised.
pub fn public<S: GrpcLeaf>(service: S, authenticator: Arc<Authenticator>, deps: &StackDeps) -> RpcChannel {
    served(
        ServiceBuilder::new()
            // First, so that every answer, refusals included, carries the id a person can ask about.
            .layer(Use::new(RequestIds { ports: deps.ports.clone() }))
            // Around everything that may refuse: a refusal is a traced and counted call too.
            .layer(Use::new(Trace))
            .layer(Use::new(deps.metrics.of_listener("public")))
            // Before any work: what we cannot hold we refuse while it is cheap.
            .layer(Use::new(Admission::public(deps.admission)))
            // Who, then whether: nothing below runs for a stranger.
            .layer(Use::from(authenticator))
            // Needs to know whose call it is.
            .layer(Use::new(Quotas::new(Arc::clone(&deps.quotas))))
            // The handler's time, not the time spent refusing.
            .layer(Use::new(deps.deadline))
            // Innermost, so that a defect of a handler is an answer for all layers above.
            .layer(Use::new(CatchPanic))
            .layer(Use::new(Undecodable))
            .service(Leaf::new(service)),
    )
}

/// A layer's stack: callers are the router, by signature.
pub fn internal<S: GrpcLeaf>(service: S, verifier: Arc<Verifier>, deps: &StackDeps) -> RpcChannel {
    served(
        ServiceBuilder::new()
            // As above: the router sends its own id along, so both logs show the same one.
            .layer(Use::new(RequestIds { ports: deps.ports.clone() }))
            .layer(Use::new(Trace))
            .layer(Use::new(deps.metrics.of_listener("internal")))
            .layer(Use::new(Admission::internal(deps.admission)))
            // The deadline stands outside: verifying waits for the first message, and that wait must end too.
            .layer(Use::new(deps.deadline))
            // The only authorisation of a layer: the router's signature over who asks, for whom, and for what.
            .layer(Use::from(verifier))
            // Needs to know whose call it is.
            .layer(Use::new(ModeGate { board: Arc::clone(&deps.modes) }))
            .layer(Use::new(CatchPanic))
            .layer(Use::new(Undecodable))
            .service(Leaf::new(service)),
    )
}

/// Unlike [`crate::channel::local`] this keeps the extensions: the listener puts the peer's address there.
fn served<S: Rpc>(stack: S) -> RpcChannel {
    let stack = Shared::new(stack);
    // The channel boxes its future: that of `Shared` as a service would be a second box.
    BoxCloneSyncService::new(tower::service_fn(move |request| {
        let stack = stack.clone();
        async move { Ok(stack.answer(request).await) }
    }))
}
