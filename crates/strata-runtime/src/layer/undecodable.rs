//! A message that cannot be decoded is the caller's mistake and says so. tonic answers INTERNAL without details, which a
//! client would take for a defect of the service and retry. Our own faults always carry details, so the two cannot be
//! confused.

use super::{Middleware, Rpc, forward, refuse};
use http::{Request, Response};
use std::sync::Arc;
use strata_core::Fault;
use tonic::body::Body;

/// The layer. See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Undecodable;

impl Middleware for Undecodable {
    async fn handle<S: Rpc>(self: Arc<Self>, request: Request<Body>, next: S) -> Response<Body> {
        let response = forward(next, request).await;
        let internal = response.headers().get("grpc-status").is_some_and(|code| code == "13");
        if internal && !response.headers().contains_key("grpc-status-details-bin") {
            return refuse(Fault::field(
                "request",
                "is not a message of this method: generate the client from the service's protos",
            ));
        }
        response
    }
}
