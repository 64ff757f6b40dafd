//! The layer of a layer's listener: only signed calls pass (rule P10). See [`crate::signing`].

use super::body::Answer;
use super::{Middleware, Rpc, is_open, refuse};
use crate::signing::Verifier;
use http::{Request, Response};
use std::sync::Arc;
use tonic::body::Body;

impl Middleware for Verifier {
    async fn handle<S: Rpc>(self: &Arc<Self>, request: Request<Body>, next: &S) -> Response<Answer> {
        if is_open(request.uri().path()) {
            return next.call(request).await;
        }
        match self.verify(request).await {
            Ok(request) => next.call(request).await,
            Err(fault) => {
                tracing::warn!(reason = fault.reason.name(), cause = %fault.message, "a call was refused");
                refuse(fault)
            }
        }
    }
}
