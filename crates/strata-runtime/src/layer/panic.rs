//! A handler that panics answers INTERNAL. A local call runs in its caller's task and a remote one shares its connection
//! with others: without this layer one defect would take both down.

use super::{Middleware, Rpc, body, forward, refuse, status};
use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use strata_core::{Fault, Reason};
use tonic::body::Body;

/// The layer. See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct CatchPanic;

/// Says nothing of the panic's message, which may hold content; the panic hook has logged where it happened.
fn defect() -> Fault {
    Fault::new(Reason::Internal, "a defect of the service; the log has the cause under this call's x-request-id")
}

impl Middleware for CatchPanic {
    async fn handle<S: Rpc>(self: Arc<Self>, request: Request<Body>, next: S) -> Response<Body> {
        // Unwind safety: what the handler shared is behind locks without poisoning and in stores with transactions.
        match AssertUnwindSafe(forward(next, request)).catch_unwind().await {
            Ok(response) => response.map(|inner| Body::new(Guarded { inner, over: false })),
            Err(_) => refuse(defect()),
        }
    }
}

/// A response body that ends with INTERNAL when the stream behind it panics.
struct Guarded {
    inner: Body,
    over: bool,
}

impl HttpBody for Guarded {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let inner = &mut self.inner;
        if let Ok(polled) = std::panic::catch_unwind(AssertUnwindSafe(|| Pin::new(inner).poll_frame(cx))) {
            return polled;
        }
        self.over = true;
        Poll::Ready(Some(Ok(body::trailers(&status(defect())))))
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
