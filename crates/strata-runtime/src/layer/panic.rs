//! A handler that panics answers INTERNAL. A local call runs in its caller's task and a remote one shares its connection
//! with others: without this layer one defect would take both down.

use super::body::{Answer, defect};
use super::{Middleware, Rpc, refuse};
use futures::FutureExt;
use http::{Request, Response};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tonic::body::Body;

/// The layer. See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct CatchPanic;

impl Middleware for CatchPanic {
    async fn handle<S: Rpc>(self: &Arc<Self>, request: Request<Body>, next: &S) -> Response<Answer> {
        // Unwind safety: what the handler shared is behind locks without poisoning and in stores with transactions.
        match AssertUnwindSafe(next.call(request)).catch_unwind().await {
            Ok(response) => response.map(Answer::guard),
            Err(_) => refuse(defect()),
        }
    }
}
